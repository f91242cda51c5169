// Link.h: object files and the runtime become an executable.
#ifndef CINCH_COMPILER_TARGET_LINK_H
#define CINCH_COMPILER_TARGET_LINK_H

#include <string>
#include <vector>

namespace cinch::target {

// Links `objects` with the runtime archive into a static executable at `output`. Uses lld as a library where the C library's
// start files are found, else the system's `cc`. The output appears under its name only when it is whole. Returns the empty
// string, or what went wrong.
std::string linkExecutable(const std::vector<std::string> &objects, const std::string &runtimeArchive,
                           const std::string &output);

} // namespace cinch::target
#endif
