// KernelObjects.h: every kernel becomes an object of its own, several at a time, or is taken from those generated before.
#ifndef CINCH_COMPILER_TARGET_KERNELOBJECTS_H
#define CINCH_COMPILER_TARGET_KERNELOBJECTS_H

#include "compiler/target/KernelCache.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

#include <vector>

namespace cinch::target {

struct KernelObjects {
  struct Object {
    std::string symbol; // what it defines: named by what decides it, so that equal kernels have equal objects
    llvm::SmallVector<char, 0> bytes;
    bool found = false; // in the cache
  };
  std::vector<Object> objects;           // in the order of the kernels
  llvm::StringMap<std::string> symbolOf; // the kernel's name in the module -> its symbol
  std::string error;                     // an internal error; "": none
};

// Takes the kernels, functions that refer to no other, out of the module, and generates code for them on `threads` threads.
KernelObjects compileKernels(mlir::ModuleOp kernels, const std::string &cpu, const KernelCache &cache, int threads);

// One file for the linker, of objects of this machine; "" or what went wrong.
std::string writeArchive(const KernelObjects &, const std::string &path);

} // namespace cinch::target
#endif
