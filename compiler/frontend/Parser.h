// Parser.h: text -> AST. Hand-written recursive descent with two tokens of look-ahead; one function a rule of
// grammar.ebnf.
#ifndef CINCH_COMPILER_FRONTEND_PARSER_H
#define CINCH_COMPILER_FRONTEND_PARSER_H

#include "compiler/frontend/AST.h"
#include "compiler/frontend/Lexer.h"

namespace cinch {

// Parses a file of the list. Every syntax error is reported; what could be parsed is returned.
ast::File parseFile(const SourceList &sources, int file, Diagnostics &diags);

// Whether the grammar derives these tokens (the last an End). For tests of the parser against the grammar.
bool acceptsTokens(std::vector<Token> tokens);

// The words that may begin an item: "dim", "const", ..
const std::vector<std::string> &itemWords();

} // namespace cinch
#endif
