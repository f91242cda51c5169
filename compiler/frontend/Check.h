// Check.h: the checker's public face: from the trees of the prelude and of the user's file to a Program.
#ifndef CINCH_COMPILER_FRONTEND_CHECK_H
#define CINCH_COMPILER_FRONTEND_CHECK_H

#include "compiler/frontend/AST.h"
#include "compiler/frontend/Diagnostics.h"
#include "compiler/frontend/Facts.h"
#include "compiler/frontend/Program.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cinch {

struct Options {
  std::vector<std::pair<std::string, std::string>> defines;  // -D NAME=VALUE: new values of `dim` names and `const`s
  std::vector<std::pair<std::string, std::string>> settings; // --set KEY=VALUE: train.steps, train.lr, ..
  bool microbatchGiven = false; // --microbatch: the one of the file does not count
  Facts *facts = nullptr; // takes what the checker finds out, for editors
};

// Nothing if there are errors; they are in `diags`. `file` and `prelude` come from the parser.
std::optional<Program> check(const SourceList &sources, const ast::File &prelude, const ast::File &file,
                             const Options &options, Diagnostics &diags);

// "3GiB" -> bytes; what is no whole number of bytes is rounded down; nothing if the unit is missing or unknown.
std::optional<int64_t> parseBytes(std::string_view text);
inline constexpr const char *mostBytesText = "8388607TiB"; // the most that it gives, in whole units

// "NAME=VALUE" as -D and --set take it; nothing if there is no `=` or no name before it.
std::optional<std::pair<std::string, std::string>> parseAssignment(std::string_view text);

// A readable listing of everything in a Program, for tests and for people.
std::string printProgram(const Program &program);

} // namespace cinch
#endif
