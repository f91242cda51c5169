// Parser.cpp: tokens, errors, and where the parser goes on after an error. The rules are in ParseItems.cpp,
// ParseStatements.cpp and ParseExpressions.cpp.
#include "compiler/frontend/ParserImpl.h"

#include <algorithm>

namespace cinch {

const std::vector<std::string> &itemWords() {
  static const std::vector<std::string> words = {"dim",     "const", "data",  "reversible", "layer",
                                                 "builtin", "model", "names", "train",      "plan"};
  return words;
}

ast::File parseFile(const SourceList &sources, int file, Diagnostics &diags) {
  return Parser(lex(sources, file, diags), diags, &sources, file).parseFile();
}

bool acceptsTokens(std::vector<Token> tokens) {
  SourceList sources;
  Diagnostics diags(sources);
  Parser(std::move(tokens), diags, nullptr, -1).parseFile();
  return !diags.hasErrors();
}

Parser::Parser(std::vector<Token> tokens, Diagnostics &diags, const SourceList *sources, int file)
    : tokens(std::move(tokens)), diags(diags), sources(sources), file(file) {}

// ---- Tokens ---------------------------------------------------------------------------------------------------------

const Token &Parser::peek(int ahead) const {
  if (panic)
    return end;
  return tokens[std::min(pos + ahead, tokens.size() - 1)];
}

Token Parser::take() {
  if (panic)
    return end;
  return pos + 1 < tokens.size() ? tokens[pos++] : tokens[pos];
}

bool Parser::accept(TokenKind kind) {
  if (!at(kind))
    return false;
  take();
  return true;
}

bool Parser::acceptWord(const char *word) {
  if (!atWord(word))
    return false;
  take();
  return true;
}

void Parser::expect(TokenKind kind, const char *where) {
  if (!accept(kind))
    fail(describe(kind) + " " + where);
}

void Parser::expectWord(const char *word, const char *where) {
  if (!acceptWord(word))
    fail(std::string("`") + word + "` " + where);
}

ast::Name Parser::expectName(const char *what) {
  if (!at(TokenKind::Name)) {
    TokenKind kind = peek().kind;
    if (kind >= TokenKind::If && kind <= TokenKind::As)
      failAt(Code::E0011, peek().span, describe(kind) + " is a reserved word; expected " + what);
    else
      fail(what);
    return {};
  }
  Token token = take();
  return {std::move(token.text), token.span};
}

void Parser::open(TokenKind bracket, const char *where) {
  Span span = peek().span;
  expect(bracket, where);
  if (!panic)
    brackets.push_back({bracket, span});
}

void Parser::close(TokenKind bracket) {
  if (panic)
    return;
  if (!accept(bracket)) {
    fail("`,` or " + describe(bracket));
    return;
  }
  brackets.pop_back();
}

uint32_t Parser::here() const { return peek().span.begin; }

Span Parser::since(uint32_t begin) const {
  uint32_t last = pos > 0 ? tokens[pos - 1].span.end : begin;
  return {file, begin, std::max(begin, last)};
}

// ---- Errors ---------------------------------------------------------------------------------------------------------

void Parser::fail(const std::string &expected, const std::string &help) {
  if (panic)
    return;
  const Token &token = peek();
  std::string got = describe(token.kind);
  Span span = token.span;
  switch (token.kind) {
  case TokenKind::Name:
  case TokenKind::Number:
    got = "`" + token.text + token.unit + "`";
    break;
  case TokenKind::NL:
  case TokenKind::End: // where the text before ends, not behind comments and blank lines
    span.begin = span.end = pos > 0 ? tokens[pos - 1].span.end : 0;
    break;
  default:
    break;
  }
  if (token.kind != TokenKind::Error && !failUnclosed()) {
    Diagnostic &error = diags.error(Code::E0010, span, "expected " + expected + ", got " + got);
    error.help(help);
    bool closes = token.kind == TokenKind::RPar || token.kind == TokenKind::RSquare ||
                  token.kind == TokenKind::RBrace || token.kind == TokenKind::End;
    if (closes && !brackets.empty() && brackets.back().span.end < span.begin)
      error.label(brackets.back().span, describe(brackets.back().kind) + " is open since here");
  } else if (!diags.hasErrors()) { // an Error token that nobody has reported: a hand-made stream
    diags.error(Code::E0001, span, "unknown character");
  }
  panic = true;
  panicAt = pos;
}

void Parser::failAt(Code code, Span span, std::string message, std::string help) {
  if (panic)
    return;
  diags.error(code, span, std::move(message)).help(std::move(help));
  panic = true;
  panicAt = pos;
}

bool Parser::failReserved() {
  TokenKind kind = peek().kind;
  if (kind < TokenKind::If || kind > TokenKind::As || !(at(TokenKind::Assign, 1) || (at(TokenKind::Comma, 1) && kind != TokenKind::Return)))
    return false;
  failAt(Code::E0011, peek().span, describe(kind) + " is a reserved word; expected a definition's name", "give it another name");
  return true;
}

// In brackets line ends do not count, so that a bracket left open shows at the next statement. It is the reason if a
// line begins here (or began with the left side of this `=`), and a brace, a statement's word or an item comes before
// the partner of the bracket.
bool Parser::failUnclosed() {
  size_t first = pos;
  while (tokens[pos].kind == TokenKind::Assign && first > 0 && !tokens[first].startsLine)
    --first;
  const Token &token = tokens[first];
  if (brackets.empty() || brackets.back().span.begin >= token.span.begin ||
      !(token.startsLine || token.kind == TokenKind::End))
    return false;
  int depth = 1;
  for (size_t i = pos; i < tokens.size(); ++i) {
    TokenKind kind = tokens[i].kind;
    if (kind == TokenKind::LPar || kind == TokenKind::LSquare)
      ++depth;
    else if (kind == TokenKind::RPar || kind == TokenKind::RSquare)
      --depth;
    else if (kind == TokenKind::LBrace || kind == TokenKind::RBrace || kind == TokenKind::End || startsItem(i) ||
             (kind >= TokenKind::Param && kind <= TokenKind::Predict))
      break;
    if (depth == 0)
      return false;
  }
  diags.error(Code::E0013, brackets.back().span, describe(brackets.back().kind) + " is not closed")
      .label(token.span, token.kind == TokenKind::End ? "the file ends here" : "expected " +
             describe(brackets.back().kind == TokenKind::LPar ? TokenKind::RPar : TokenKind::RSquare) + " before this");
  unclosed = true;
  unclosedAt = first;
  return true;
}

void Parser::failBrace(Span brace, size_t opening) {
  if (panic)
    return;
  Span last = pos > 0 ? tokens[pos - 1].span : brace;
  bool isEnd = at(TokenKind::End);
  diags.error(Code::E0013, brace, "`{` is not closed")
      .label(isEnd ? Span{last.file, last.end, last.end} : peek().span,
             isEnd ? "the file ends here" : "expected `}` before this");
  panic = true;
  panicAt = pos;
}

void Parser::endOfStatement(const char *expected) {
  if (!accept(TokenKind::NL))
    fail(expected);
}

// ---- Recovery -------------------------------------------------------------------------------------------------------

bool Parser::startsItem(size_t index) const {
  const Token &token = tokens[index];
  if (!token.startsLine || token.kind != TokenKind::Name || index + 1 >= tokens.size())
    return false;
  TokenKind next = tokens[index + 1].kind;
  if (token.text == "plan" ? next != TokenKind::LBrace : next != TokenKind::Name)
    return false;
  return std::find(itemWords().begin(), itemWords().end(), token.text) != itemWords().end();
}

bool Parser::isItem(size_t index) const {
  if (panic || !startsItem(index))
    return false;
  if (index + 2 < tokens.size() && tokens[index + 2].kind == TokenKind::Assign)
    return true;
  // `layer f(..)` could be a setting; with `->` or `{` on its line it cannot.
  for (size_t i = index; i < tokens.size() && tokens[i].kind != TokenKind::NL; ++i)
    if (tokens[i].kind == TokenKind::Arrow || tokens[i].kind == TokenKind::LBrace)
      return true;
  return false;
}

void Parser::relex(size_t index) {
  if (sources && tokens[index].bracketed) {
    uint32_t begin = tokens[index].span.begin;
    bool startsLine = tokens[index].startsLine;
    tokens.resize(index);
    std::vector<Token> rest = lex(*sources, file, diags, begin);
    rest.front().startsLine = startsLine;
    tokens.insert(tokens.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  }
  pos = index;
  panic = unclosed = false;
  brackets.clear();
}

// More than this, and the file is not worth reading on.
static constexpr int enough = 100;

bool Parser::recoverStatement(size_t first) {
  if (!sources || diags.errorCount() >= enough)
    return false;
  if (unclosed) { // the statement that shows it is whole
    relex(std::max(unclosedAt, first + 1));
    return true;
  }
  int braces = 0;
  for (size_t i = std::max(panicAt, first); i < tokens.size(); ++i) {
    TokenKind kind = tokens[i].kind;
    if (kind == TokenKind::LBrace)
      ++braces;
    else if (kind == TokenKind::RBrace && braces > 0)
      --braces;
    else if (kind == TokenKind::RBrace || kind == TokenKind::End || (i > first && startsItem(i)))
      return relex(i), true;
    else if (kind == TokenKind::NL && braces == 0)
      return relex(i + 1), true;
  }
  return false;
}

// To the next item, or behind the end of this line or of the braces that begin on it.
void Parser::skipToItem(size_t first) {
  int braces = 0;
  size_t i = std::max(unclosed ? unclosedAt : panicAt, first + 1);
  for (; i + 1 < tokens.size() && !startsItem(i); ++i) {
    TokenKind kind = tokens[i].kind;
    braces += kind == TokenKind::LBrace ? 1 : kind == TokenKind::RBrace ? -1 : 0;
    if (kind == TokenKind::NL && braces <= 0) {
      ++i;
      break;
    }
  }
  relex(std::min(i, tokens.size() - 1));
}

void Parser::skipToBody() {
  if (!panic || !sources)
    return;
  for (size_t i = panicAt; i < tokens.size() && !startsItem(i); ++i) {
    TokenKind kind = tokens[i].kind;
    if (kind == TokenKind::LBrace)
      return relex(i);
    if (kind == TokenKind::RBrace || (kind >= TokenKind::Param && kind <= TokenKind::Predict))
      return;
  }
}

Parser::Nesting::Nesting(Parser &parser) : parser(parser) {
  if (++parser.nesting > maxNesting)
    parser.failAt(Code::E0012, parser.peek().span,
                  "this nests more than " + std::to_string(maxNesting) + " levels deep", "give a part of it a name");
}

// file = { item NL }
ast::File Parser::parseFile() {
  ast::File result;
  result.id = file;
  while (!at(TokenKind::End)) {
    size_t first = pos;
    std::unique_ptr<ast::Item> item = parseItem();
    endOfStatement("the end of the line");
    if (item)
      result.items.push_back(std::move(item));
    if (!panic)
      continue;
    if (!sources || diags.errorCount() >= enough)
      break;
    skipToItem(first);
  }
  return result;
}

} // namespace cinch
