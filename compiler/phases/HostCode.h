// HostCode.h: scheduled functions become kernels and the code that calls them.
//
// Every plan.kernel becomes a launch of a kernel function; equal specs share one function. The host code is a straight line of
// launches with constant offsets around the micro-batch loop; in a loop over blocks of rows, offsets move with the block. It calls the functions of runtime.h and nothing else.
#ifndef CINCH_COMPILER_PHASES_HOSTCODE_H
#define CINCH_COMPILER_PHASES_HOSTCODE_H

#include "compiler/kernels/Kernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace cinch {

// What the runtime is told of a launch.
struct LaunchInfo {
  std::string kernel, text; // function; for people: "blocks.3.ff: mul"
  std::string file; // with `line`: where it is written; the prelude has lines, too
  int line = 0;
  struct Output {
    int64_t offset = 0, count = 0;
    kernels::Elem elem = kernels::Elem::F32;
    int word = -1; // of the launch's offsets, where the true one stands if it moves; -1: it does not
  };
  std::vector<Output> outputs;
};

class HostCode {
public:
  HostCode(mlir::ModuleOp module, kernels::TargetInfo target, int maxThreads)
      : module(module), target(target), maxThreads(maxThreads) {}

  // Kernels of a scheduled function (assign-memory has run). `symbol` is the entry point to be made.
  mlir::LogicalResult addKernels(mlir::func::FuncOp function);
  // After all kernels were added and lowered to the LLVM dialect: the entry point of a function. `entry` is its number for the
  // runtime; if `counted`, the number of micro-batches is an argument.
  void addEntry(mlir::func::FuncOp function, llvm::StringRef symbol, int entry, bool counted);
  // A constant string under a global name.
  void addText(llvm::StringRef symbol, llvm::StringRef text);

  std::vector<LaunchInfo> launches;

private:
  struct Call {
    int launch;
    std::string kernel;
    llvm::SmallVector<int64_t> words; // offsets, scratch, keys
    // In a loop over blocks of rows: what an example and a position add to each word.
    llvm::SmallVector<std::pair<int64_t, int64_t>> steps;
    llvm::SmallVector<std::pair<int64_t, int64_t>> zeroed; // (offset, bytes) to clear first
  };
  mlir::LogicalResult addKernel(mlir::Operation *kernel);
  std::string shared(const std::string &key, llvm::function_ref<mlir::func::FuncOp(const std::string &)> build);
  std::string offsetsGlobal(llvm::ArrayRef<int64_t> words);

  mlir::ModuleOp module;
  kernels::TargetInfo target;
  int maxThreads;
  llvm::StringMap<std::string> functions; // key of a spec -> name
  llvm::DenseMap<mlir::Operation *, Call> calls;
  llvm::StringMap<std::string> globals;
};

} // namespace cinch
#endif
