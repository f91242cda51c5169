// Format.h: `cinch fmt`: one way to write a program. Line breaks, comments and columns of blanks are the author's; indentation,
// blanks between tokens and empty lines follow rules (Format.cpp).
#ifndef CINCH_COMPILER_FRONTEND_FORMAT_H
#define CINCH_COMPILER_FRONTEND_FORMAT_H

#include "compiler/frontend/Diagnostics.h"

namespace cinch {

// The text of a file, formatted. The file has no errors of syntax.
std::string formatted(const SourceList &sources, int file);

// What of a text a formatter may not change: its tokens, with the ends of statements, and its comments.
std::string substance(const SourceList &sources, int file);

} // namespace cinch
#endif
