// Fuzz target of the front end: whatever the bytes are, it must neither crash nor hang, and
//   - the parser with recovery and the parser that stops at the first error agree on whether the text is a program;
//   - every diagnostic can be printed, and its JSON reads back.
// Two mutators take turns: libFuzzer's on bytes, and one on tokens (drop, double, swap, replace by a token seen anywhere), so
// that many inputs get as far as the checker. test/fuzz/run builds and runs it.
#include "compiler/frontend/Parser.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace cinch;

static void require(bool ok, const char *what) {
  if (ok)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

static const ast::File &prelude(const SourceList &sources) {
  static ast::File file = [&] {
    Diagnostics diags(sources);
    ast::File result = parseFile(sources, 0, diags);
    require(!diags.hasErrors(), "the prelude parses");
    return result;
  }();
  return file;
}

static void printBothWays(const Diagnostics &diags) {
  std::string out;
  llvm::raw_string_ostream os(out);
  PrintOptions options;
  options.color = true;
  options.limit = 0;
  diags.print(os, options);
  out.clear();
  options.json = true;
  diags.print(os, options);
  for (llvm::StringRef rest = out; !rest.empty();) {
    auto [line, next] = rest.split('\n');
    auto value = llvm::json::parse(line);
    require(static_cast<bool>(value), "JSON reads back");
    rest = next;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  SourceList sources;
  prelude(sources);
  int id = sources.add("fuzz.cinch", std::string(reinterpret_cast<const char *>(data), size));
  Diagnostics diags(sources), lexing(sources);
  ast::File file = parseFile(sources, id, diags);
  std::vector<Token> tokens = lex(sources, id, lexing);
  if (!lexing.hasErrors())
    require(acceptsTokens(std::move(tokens)) == !diags.hasErrors(), "recovery does not change the verdict");
  else
    require(diags.hasErrors(), "a bad character is an error");
  printBothWays(diags);
  return 0;
}

// ---- Mutation of tokens ----------------------------------------------------------------------------------------------------

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

// Words, numbers, strings, operators, blanks: each a piece.
static std::vector<std::string> pieces(const std::string &text) {
  std::vector<std::string> result;
  auto isWord = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t i = 0; i < text.size();) {
    size_t begin = i++;
    if (isWord(text[begin]))
      while (i < text.size() && isWord(text[i]))
        ++i;
    else if (text[begin] == '"')
      while (i < text.size() && text[i - (i > begin + 1)] != '\n' && text[i++] != '"')
        ;
    else if (text[begin] == ' ')
      while (i < text.size() && text[i] == ' ')
        ++i;
    result.push_back(text.substr(begin, i - begin));
  }
  return result;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  static std::vector<std::string> seen = pieces(std::string(preludeText()));
  std::minstd_rand random(seed);
  if (random() % 8 == 0 || size == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::vector<std::string> list = pieces(std::string(reinterpret_cast<char *>(data), size));
  auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  for (int rounds = 1 + pick(3); rounds > 0 && !list.empty(); --rounds) {
    size_t at = pick(list.size()), other = pick(list.size());
    switch (pick(8)) {
    case 0:
      list.erase(list.begin() + at);
      break;
    case 1:
      list.insert(list.begin() + at, list[at]);
      break;
    case 2:
      std::swap(list[at], list[other]);
      break;
    case 3:
      list[at] = list[other];
      break;
    case 4:
      list[at] = seen[pick(seen.size())];
      break;
    case 5: { // another number
      static const char *const numbers[] = {"0", "1", "2", "3", "0.5", "7", "1e30", "4294967296", "99999999999999999999", "1e-9"};
      for (size_t i = at; i < list.size(); ++i)
        if (std::isdigit(static_cast<unsigned char>(list[i][0]))) {
          list[i] = numbers[pick(10)];
          break;
        }
      break;
    }
    case 6: { // a line away
      size_t begin = at, end = at;
      while (begin > 0 && list[begin - 1] != "\n")
        --begin;
      while (end < list.size() && list[end] != "\n")
        ++end;
      list.erase(list.begin() + begin, list.begin() + end);
      break;
    }
    default: { // a few pieces from elsewhere
      size_t count = std::min(list.size() - other, 1 + pick(8));
      std::vector<std::string> copy(list.begin() + other, list.begin() + other + count);
      list.insert(list.begin() + at, copy.begin(), copy.end());
    }
    }
  }
  std::string result;
  for (const std::string &piece : list)
    result += piece;
  size = std::min(result.size(), maxSize);
  std::copy(result.begin(), result.begin() + size, data);
  return size;
}
