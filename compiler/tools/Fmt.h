// Fmt.h: the command `cinch fmt`.
#ifndef CINCH_COMPILER_TOOLS_FMT_H
#define CINCH_COMPILER_TOOLS_FMT_H

#include <string>
#include <vector>

namespace cinch {

// Formats files in their place, `-`: standard input to standard output. With `check` nothing is written: the names of those that
// would change are printed, and the status is 1 if there are any. Returns the exit code.
int formatFiles(const std::vector<std::string> &files, bool check, const std::string &color);

} // namespace cinch
#endif
