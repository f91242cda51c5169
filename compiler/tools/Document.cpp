// Document.cpp: see Document.h.
#include "compiler/tools/Document.h"
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Format.h"
#include "compiler/frontend/Names.h"
#include "compiler/frontend/Parser.h"

#include <algorithm>
#include <set>

namespace cinch {

using namespace ast;

Document::Document(std::string name, std::string text) {
  file = sources.add(std::move(name), std::move(text));
  Diagnostics said(sources); // the parser says it
  tokens = lex(sources, file, said);
  prelude = parseFile(sources, 0, diagnostics);
  tree = parseFile(sources, file, diagnostics);
  parsed = !diagnostics.hasErrors();
  if (!parsed)
    return;
  Options options;
  options.facts = &facts;
  check(sources, prelude, tree, options, diagnostics);
}

static bool isNameByte(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The word around an offset; empty if there is none.
Span Document::nameAt(uint32_t offset) const {
  std::string_view all = text();
  uint32_t begin = std::min<uint32_t>(offset, all.size()), end = begin;
  while (begin > 0 && isNameByte(all[begin - 1]))
    --begin;
  while (end < all.size() && isNameByte(all[end]))
    ++end;
  return {file, begin, end};
}

// ---- Scopes ---------------------------------------------------------------------------------------------------------
static bool holds(Span span, uint32_t offset) { return span.begin <= offset && offset <= span.end; }

// Names first those of the body around the offset, then those of the file, then the prelude's.
std::vector<Document::Definition> Document::visible(uint32_t offset) const {
  std::vector<Definition> list;
  auto add = [&](Candidate::Kind kind, const Name &name, Span all) {
    if (name)
      list.push_back({kind, name, all});
  };
  auto addBody = [&](const std::vector<Statement> &body) {
    for (const Statement &statement : body) {
      bool value = statement.kind != StatementKind::Metric && statement.kind != StatementKind::Predict && statement.kind != StatementKind::Update;
      for (const Name &name : statement.names)
        if (value)
          add(Candidate::Value, name, statement.span);
      for (const Use &use : statement.uses)
        add(Candidate::Layer, use.name, use.span);
    }
  };
  for (const std::unique_ptr<Item> &item : tree.items) {
    if (!holds(item->span, offset))
      continue;
    if (item->kind == ItemKind::Layer) {
      const auto &layer = static_cast<const LayerItem &>(*item);
      addBody(layer.body);
      for (const ast::Parameter &parameter : layer.signature.parameters)
        add(Candidate::Value, parameter.name, parameter.span);
      for (const SizeParameter &size : layer.sizes)
        add(Candidate::Size, size.name, size.span);
    } else if (item->kind == ItemKind::Train) {
      const auto &train = static_cast<const TrainItem &>(*item);
      addBody(train.clauses);
      for (const std::unique_ptr<Item> &other : tree.items) // the fields of its data
        if (other->kind == ItemKind::Data && other->name.text == train.data.text)
          for (const ast::Field &field : static_cast<const DataItem &>(*other).fields)
            add(Candidate::Value, field.name, field.span);
    }
  }
  for (const File *each : {&tree, &prelude})
    for (const std::unique_ptr<Item> &item : each->items) {
      if (item->kind == ItemKind::Dims)
        for (const Dim &dim : static_cast<const DimsItem &>(*item).dims)
          add(Candidate::Size, dim.name, dim.span);
      else if (item->kind == ItemKind::Layer)
        add(Candidate::Layer, item->name, static_cast<const LayerItem &>(*item).header);
      else if (item->kind == ItemKind::Data)
        add(Candidate::Data, item->name, item->span);
      else if (item->kind == ItemKind::Const)
        for (const Constant &constant : static_cast<const ConstItem &>(*item).constants)
          add(Candidate::Value, constant.name, constant.span);
    }
  return list;
}

const Document::Definition *Document::find(const std::vector<Definition> &list, const std::string &name) const {
  for (const Definition &definition : list)
    if (definition.name.text == name)
      return &definition;
  return nullptr;
}

std::optional<Span> Document::definition(uint32_t offset) const {
  Span name = nameAt(offset);
  std::vector<Definition> list = visible(offset);
  const Definition *found = find(list, std::string(sources.text(name)));
  return found ? std::optional<Span>(found->name.span) : std::nullopt;
}

std::vector<Span> Document::references(uint32_t offset) const {
  const std::optional<Span> sought = definition(offset);
  std::vector<Span> result;
  for (size_t i = 0; sought && i < tokens.size(); ++i) {
    const Token &token = tokens[i];
    if (token.kind != TokenKind::Name || token.text != sources.text(*sought))
      continue;
    const bool isHere = token.span.begin == sought->begin && token.span.file == sought->file;
    const TokenKind next = i + 1 < tokens.size() ? tokens[i + 1].kind : TokenKind::End;
    const bool namesParameter = token.bracketed && next == TokenKind::Assign;
    const bool beginsItem = token.startsLine && next == TokenKind::Name; // `train net on train`
    std::optional<Span> defined = isHere || namesParameter || beginsItem ? std::nullopt : definition(token.span.begin);
    if (isHere || (defined && defined->file == sought->file && defined->begin == sought->begin))
      result.push_back(token.span);
  }
  return result;
}

std::vector<Document::Symbol> Document::symbols() const {
  std::vector<Symbol> list;
  auto add = [&](Symbol::Kind kind, const Name &name, Span all, const std::string &before = "") {
    if (name)
      list.push_back({kind, before + name.text, join(all, name.span), name.span});
  };
  for (const std::unique_ptr<Item> &item : tree.items)
    switch (item->kind) {
    case ItemKind::Dims:
      for (const Dim &dim : static_cast<const DimsItem &>(*item).dims)
        add(Symbol::Size, dim.name, dim.span);
      break;
    case ItemKind::Const:
      for (const Constant &constant : static_cast<const ConstItem &>(*item).constants)
        add(Symbol::Constant, constant.name, constant.span);
      break;
    case ItemKind::Data: add(Symbol::Data, item->name, item->span); break;
    case ItemKind::Layer: {
      const bool isModel = static_cast<const LayerItem &>(*item).form == LayerItem::Model;
      add(isModel ? Symbol::Model : Symbol::Layer, item->name, item->span);
      break;
    }
    case ItemKind::Names: add(Symbol::Names, item->name, item->span); break;
    case ItemKind::Train: add(Symbol::Train, item->name, item->span, "train "); break;
    case ItemKind::Plan: break;
    }
  return list;
}

// ---- What a thing is ------------------------------------------------------------------------------------------------
std::optional<std::pair<Span, std::string>> Document::hover(uint32_t offset) const {
  Span name = nameAt(offset);
  std::string word(sources.text(name)), text;
  auto code = [&](std::string_view line) { text += "```cinch\n" + std::string(line) + "\n```\n"; };
  std::vector<Definition> list = visible(offset);
  const Definition *found = word.empty() ? nullptr : find(list, word);
  // The value of the name or, beside a name (an operator, a bracket), of the smallest expression around the offset.
  auto known = facts.values.find({name.begin, name.end});
  Span about = name;
  if (known == facts.values.end() && !found)
    for (auto it = facts.values.begin(); it != facts.values.end(); ++it)
      if (it->first.first <= offset && offset < it->first.second &&
          (known == facts.values.end() || it->first.second - it->first.first < known->first.second - known->first.first)) {
        known = it;
        about = {file, it->first.first, it->first.second};
      }
  if (known != facts.values.end())
    for (const std::string &value : known->second)
      code((found || about.begin == name.begin ? word + ": " : "") + value);
  if (found && (known == facts.values.end() || found->kind == Candidate::Layer || found->kind == Candidate::Size))
    code(sources.text(found->all));
  if (found && !isHere(found->all))
    text += "standard library, `prelude.cinch`\n";
  if (text.empty())
    return std::nullopt;
  return std::make_pair(about, text);
}

std::vector<Document::Candidate> Document::candidates(uint32_t offset) const {
  std::vector<Candidate> result;
  std::set<std::string> seen;
  for (const Definition &definition : visible(offset)) {
    auto value = facts.values.find({definition.name.span.begin, definition.name.span.end});
    bool here = isHere(definition.name.span);
    std::string detail = here && value != facts.values.end() ? value->second[0] : std::string(sources.text(definition.all));
    if (size_t end = detail.find('\n'); end != std::string::npos)
      detail.erase(end);
    if (seen.insert(definition.name.text).second)
      result.push_back({definition.kind, definition.name.text, detail});
  }
  std::vector<std::string> words = reservedWords();
  words.insert(words.end(), itemWords().begin(), itemWords().end());
  words.insert(words.end(), implicitNames().begin(), implicitNames().end());
  for (const char *word : {"batch", "below", "scale", "from", "names", "normalize", "at", "optimizer", "schedule", "steps", "epochs", "clip", "every", "eval",
                           "checkpoint", "log", "freeze", "init", "ema", "grain", "delay", "combine", "shards", "precision"})
    words.push_back(word);
  for (const std::string &word : words)
    if (seen.insert(word).second)
      result.push_back({Candidate::Word, word, ""});
  return result;
}

std::optional<std::string> Document::formattedText() const {
  return parsed ? std::optional<std::string>(formatted(sources, file)) : std::nullopt;
}

} // namespace cinch
