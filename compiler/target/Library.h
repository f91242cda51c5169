// Library.h: object files and the runtime become a library instead of an executable.
#ifndef CINCH_COMPILER_TARGET_LIBRARY_H
#define CINCH_COMPILER_TARGET_LIBRARY_H

#include "compiler/target/KernelObjects.h"

namespace cinch::target {

// An archive of the program's object, its kernels and the runtime; "" or what went wrong.
std::string writeStaticLibrary(llvm::StringRef object, const KernelObjects &, const std::string &runtimeArchive,
                               const std::string &path);
// A shared library of the same, in which only the functions of runtime/library.h are seen from outside. `name`: what it will be called.
std::string linkSharedLibrary(const std::vector<std::string> &objects, const std::string &runtimeArchive, const std::string &path, const std::string &name);

} // namespace cinch::target
#endif
