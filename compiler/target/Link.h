// Link.h: object files and the runtime become an executable.
#ifndef CINCH_COMPILER_TARGET_LINK_H
#define CINCH_COMPILER_TARGET_LINK_H

#include "compiler/target/TemporaryFile.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cinch::target {

// Of the C library and the loader, what a process holds at most that links them dynamically.
constexpr int64_t kLibraryBytes = 2 << 20;

// Links `objects` with the runtime archive into a static executable at `output`. Uses lld as a library where the C library's
// start files are found, else the system's `cc`. The output appears under its name only when it is whole and `accepts` takes
// its size, counted with the libraries that it needs at run time. Returns the empty string, or what went wrong.
//
// What opens a library at run time needs the very same C library, and is linked with it dynamically: a program of several workers, with
// the part of the runtime that finds workers in other processes (MPI), and one for a GPU, with the part that drives it; one of several workers with a GPU each, with both.
//
// The runtime archive may be written anew meanwhile: it is read once, and what is linked is a copy.
enum class Linking { Static, WithPeers, WithDevice, WithPeersAndDevice };
std::string linkExecutable(const std::vector<std::string> &objects, const std::string &runtimeArchive,
                           const std::string &output, llvm::function_ref<bool(int64_t bytes)> accepts,
                           Linking = Linking::Static);

// The whole of an archive as it is now; null, and what is wrong in `error`: it is not there, or is being written.
std::unique_ptr<llvm::MemoryBuffer> readArchive(const std::string &path, std::string &error);
// .. in a file of its own. Returns the empty string, or what went wrong.
std::string copyArchive(const std::string &path, TemporaryFile &copy);

} // namespace cinch::target
#endif
