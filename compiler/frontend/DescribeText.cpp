// DescribeText.cpp: the text of a program in parts that have names, for people who are told what was edited since a checkpoint.
#include "compiler/frontend/Elaborator.h"
#include "compiler/frontend/Lexer.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"
#include <algorithm>

namespace cinch {

using namespace ast;

namespace {
// Texts without comments, line ends and blanks that mean nothing.
class Words {
public:
  Words(const SourceList &sources, int file) : text(sources.text(file)) {
    Diagnostics none(sources);
    tokens = lex(sources, file, none);
  }
  std::string of(Span span) const {
    std::string result;
    auto token = std::lower_bound(tokens.begin(), tokens.end(), span.begin, [](const Token &each, uint32_t begin) { return each.span.begin < begin; });
    for (; token != tokens.end() && token->span.begin < span.end; ++token)
      if (token->kind != TokenKind::NL && token->span.end <= span.end && token->span.end > token->span.begin)
        result += (result.empty() ? "" : " ") + std::string(text.substr(token->span.begin, token->span.end - token->span.begin));
    return result;
  }

private:
  std::string_view text;
  std::vector<Token> tokens;
};
} // namespace

// Long texts are known by a mark.
static std::string named(const std::string &words) {
  constexpr size_t shown = 120;
  if (words.size() <= shown)
    return "`" + words + "`";
  return llvm::formatv("text {0:x-8}", uint32_t(llvm::xxh3_64bits(words))).str();
}

void Elaborator::describeText() {
  Words words(sources, file.id);
  for (const DimInfo &dim : dims.dims)
    program.text.push_back({"dim " + dim.name, dim.value.str()});
  for (const std::unique_ptr<Item> &item : file.items) {
    if (item->kind == ItemKind::Const) {
      for (const Constant &constant : static_cast<const ConstItem &>(*item).constants)
        if (const Value &value = fileFrame.names[constant.name.text].value; value.isNumber())
          program.text.push_back({"const " + constant.name.text, valueOf(value.number)});
    } else if (item->kind == ItemKind::Layer) {
      program.text.push_back({"layer " + item->name.text, named(words.of(item->span))});
    } else if (item->kind == ItemKind::Train) {
      for (const Statement &clause : static_cast<const TrainItem &>(*item).clauses)
        if (clause.kind == StatementKind::Define || clause.kind == StatementKind::DefineIndex)
          program.text.push_back({clause.names[0].text, named(words.of(clause.span))});
    }
  }
}

} // namespace cinch
