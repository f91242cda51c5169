// ParserImpl.h: the parser's state and its functions, shared by ParseItems.cpp, ParseStatements.cpp,
// ParseExpressions.cpp and Parser.cpp (tokens, errors, recovery).
//
// Errors: the first error in a statement is reported and sets `panic`. From then on every look at a token sees the end
// of the file, so all rules run out without further messages; the statement's or item's owner clears `panic` and moves
// to where the next one begins.
#ifndef CINCH_COMPILER_FRONTEND_PARSERIMPL_H
#define CINCH_COMPILER_FRONTEND_PARSERIMPL_H

#include "compiler/frontend/Parser.h"

namespace cinch {

class Parser {
public:
  // Without sources (token streams of tests) the parser stops at the first error.
  Parser(std::vector<Token> tokens, Diagnostics &diags, const SourceList *sources, int file);
  ast::File parseFile();

private:
  // ---- Parser.cpp: tokens
  const Token &peek(int ahead = 0) const;
  bool at(TokenKind kind, int ahead = 0) const { return peek(ahead).kind == kind; }
  bool atWord(const char *word, int ahead = 0) const { return at(TokenKind::Name, ahead) && peek(ahead).text == word; }
  Token take();                                 // the next token, which is consumed
  bool accept(TokenKind kind);                  // consumes it if it is there
  bool acceptWord(const char *word);
  void expect(TokenKind kind, const char *where); // `where`: "after the fields", ..
  void expectWord(const char *word, const char *where);
  ast::Name expectName(const char *what);       // "a layer's name"
  void open(TokenKind bracket, const char *where); // expects ( [ {; close() then knows where it stands
  void close(TokenKind bracket);
  uint32_t here() const;                        // where the next token begins
  Span since(uint32_t begin) const;             // from there to the end of the last token consumed

  // ---- Parser.cpp: errors and recovery
  void fail(const std::string &expected, const std::string &help = ""); // "expected X, got Y"
  void failAt(Code code, Span span, std::string message, std::string help = "");
  bool failReserved();                          // if a reserved word stands on the left of `=`: reports it
  bool failUnclosed();                          // if the reason is an open bracket: reports it
  void endOfStatement(const char *expected);    // NL
  bool startsItem(size_t index) const;          // by its first two tokens, at the beginning of a line
  bool isItem(size_t index) const;              // startsItem, and no statement can go on so
  void skipToItem(size_t first);
  void skipToBody();                            // to the `{` of an item whose header is wrong, if there is one
  void relex(size_t index);                     // goes to this token; if a bracket is open there, the rest is read anew
  // "{" { parse NL } "}"
  template <typename Parse> void braced(const char *where, const char *expected, Parse parse) {
    size_t opening = pos;
    Span brace = peek().span;
    expect(TokenKind::LBrace, where);
    while (!panic && !at(TokenKind::RBrace)) {
      size_t first = pos;
      if (at(TokenKind::End) || isItem(pos)) {
        failBrace(brace, opening);
        return;
      }
      parse();
      endOfStatement(expected);
      if (panic && !recoverStatement(first))
        return;
    }
    expect(TokenKind::RBrace, where);
  }
  void failBrace(Span brace, size_t opening);
  bool recoverStatement(size_t first);          // false: give the whole item up

  // ---- ParseItems.cpp
  std::unique_ptr<ast::Item> parseItem();
  std::unique_ptr<ast::Item> parseDims();
  std::unique_ptr<ast::Item> parseConst();
  std::unique_ptr<ast::Item> parseData();
  std::unique_ptr<ast::Item> parseLayer();
  std::unique_ptr<ast::Item> parseNames();
  std::unique_ptr<ast::Item> parseTrain();
  std::unique_ptr<ast::Item> parsePlan();
  ast::Dim parseDim();
  ast::Field parseField();
  std::vector<ast::SizeParameter> parseSizes();
  ast::SizeParameter parseSize();
  ast::Signature parseSignature();
  ast::Parameter parseParameter();
  void parseResult(ast::Signature &signature);
  ast::Type parseType();
  ast::Type parseTensor();
  void parseBounds(ast::Type &type);
  ast::Axis parseAxis();

  // ---- ParseStatements.cpp
  ast::Statement parseStatement();
  ast::Hint parseHint();
  void parseDefinition(ast::Statement &statement);
  void parseStored(ast::Statement &statement);
  ast::Use parseUse();
  ast::ExprPtr parseCount();
  ast::Statement parseClause();
  ast::Setting parseSetting();
  ast::SettingWord parseSettingWord();
  std::vector<ast::Place> parsePlaces();
  ast::Place parsePlace();

  // ---- ParseExpressions.cpp
  ast::ExprPtr parseExpr();
  ast::ExprPtr parseEither();
  ast::ExprPtr parseBoth();
  ast::ExprPtr parseNegation();
  ast::ExprPtr parseComparison();
  ast::ExprPtr parseSum();
  ast::ExprPtr parseProduct();
  ast::ExprPtr parseReduction();
  ast::ExprPtr parseFactor(bool inProduct);
  ast::ExprPtr parsePower();
  ast::ExprPtr parsePostfix();
  ast::ExprPtr parsePrimary();
  std::vector<ast::Slot> parseSlots();          // "[" slot { "," slot } "]"
  ast::Slot parseSlot();
  std::vector<ast::Arg> parseParenthesizedArgs(const char *where); // "(" args ")"
  std::vector<ast::Arg> parseArgs();
  ast::Arg parseArg();
  ast::Path parsePath();
  bool startsReduction() const;
  ast::ExprPtr node(ast::ExprKind kind, uint32_t begin);
  ast::ExprPtr binary(ast::BinaryOp op, Span at, ast::ExprPtr left, ast::ExprPtr right);
  ast::ExprPtr finish(ast::ExprPtr expr);       // its span and height, once its parts are there

  // How deep the text may nest, and how high an expression's tree may be (`a + b + ..` is as high as it is long).
  static constexpr int maxNesting = 200, maxHeight = 500;
  struct Nesting {                              // one level deeper while it lives
    Parser &parser;
    explicit Nesting(Parser &parser);
    ~Nesting() { --parser.nesting; }
  };

  struct OpenBracket {
    TokenKind kind;
    Span span;
  };

  std::vector<Token> tokens;
  Token end;                                    // what is seen in a panic
  Diagnostics &diags;
  const SourceList *sources;
  int file;
  size_t pos = 0;
  bool panic = false;
  size_t panicAt = 0;                           // the token at which it began
  bool unclosed = false;                        // it began because a bracket before is not closed
  size_t unclosedAt = 0;                        // the token that begins the first line which shows it
  int nesting = 0;
  std::vector<OpenBracket> brackets;
};

} // namespace cinch
#endif
