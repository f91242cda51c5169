// Lexer.h: text -> tokens, by the token rules at the top of grammar.ebnf. Line ends that end a statement are tokens
// (NL); all others are blank. The words that are reserved only in places (`dim`, `layer`, `batch`, ..) are Names.
#ifndef CINCH_COMPILER_FRONTEND_LEXER_H
#define CINCH_COMPILER_FRONTEND_LEXER_H

#include "compiler/frontend/Diagnostics.h"

namespace cinch {

enum class TokenKind {
  Name, Number, String, NL, End,
  Error, // reported already; no rule accepts it
  // Reserved words, in the order of reservedWords().
  If, Then, Else, And, Or, Not, True, False, Where, Sum, Mean, Max, Min, Prod, Any, All, Scan,
  Param, State, Use, Update, Return, Metric, Predict, Repeat, As,
  // ( ) [ ] { } , : ? ~ @ ' = -> .. == != < <= > >= + - * / ^
  LPar, RPar, LSquare, RSquare, LBrace, RBrace, Comma, Colon, Query, Tilde, At, Prime, Assign, Arrow, Dots,
  EQ, NE, LT, LE, GT, GE, Plus, Minus, Star, Slash, Caret,
};

struct Token {
  TokenKind kind = TokenKind::End;
  Span span;
  std::string text;       // as written; of a String: its value, of a Number: without the unit
  std::string unit;       // of a Number
  bool startsLine = false;
  bool bracketed = false; // a ( or [ is open before it
};

const std::vector<std::string> &reservedWords();
// The kind of a reserved word, or Name.
TokenKind wordKind(std::string_view word);
// "`(`", "the end of the line", "a number": for messages.
std::string describe(TokenKind kind);

// The tokens from byte `begin` of a file on, the last an End. No bracket is taken to be open at `begin`.
std::vector<Token> lex(const SourceList &sources, int file, Diagnostics &diags, uint32_t begin = 0);

} // namespace cinch
#endif
