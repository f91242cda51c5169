// Product.h: the files that a compilation leaves: the executable, or the library with its header.
#ifndef CINCH_COMPILER_TOOLS_PRODUCT_H
#define CINCH_COMPILER_TOOLS_PRODUCT_H

#include "compiler/phases/Compile.h"
#include "compiler/tools/Options.h"

namespace cinch {

// These return an exit code, and say what is wrong if it is not 0. `self`: argv[0], beside which the runtime's archive lies.

int writeOutput(const std::string &path, llvm::StringRef bytes);
// The executable or the library. `leftOver`: bytes of the allowance that the executable does not need; < 0: so many are missing, and nothing is written.
// Of a library nothing is measured.
int linkProduct(const CommandLine &, const Program &, Compilation &, llvm::StringRef object, const char *self, const CompileOptions &, int64_t &leftOver);
// Links the executable, finds `leftOver`, and writes nothing.
int measureProduct(Compilation &, llvm::StringRef object, const char *self, const CompileOptions &, int64_t &leftOver);

// The plan in a few lines, on standard output.
void printSummary(const Compilation &);

// The path of this compiler.
std::string ownFile(const char *self);

} // namespace cinch
#endif
