// Link.h: object files and the runtime become an executable.
#ifndef CINCH_COMPILER_TARGET_LINK_H
#define CINCH_COMPILER_TARGET_LINK_H

#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cinch::target {

// Of the C library and the loader, what a process holds at most that links them dynamically.
constexpr int64_t kLibraryBytes = 2 << 20;

// Links `objects` with the runtime archive into a static executable at `output`. Uses lld as a library where the C library's
// start files are found, else the system's `cc`. The output appears under its name only when it is whole and `accepts` takes
// its size, counted with the libraries that it needs at run time. Returns the empty string, or what went wrong.
//
// A program of several workers is linked with the C library dynamically, and with the part of the runtime that finds workers in
// other processes: that opens an MPI library at run time, which needs the very same C library.
std::string linkExecutable(const std::vector<std::string> &objects, const std::string &runtimeArchive,
                           const std::string &output, llvm::function_ref<bool(int64_t bytes)> accepts,
                           bool severalWorkers = false);

} // namespace cinch::target
#endif
