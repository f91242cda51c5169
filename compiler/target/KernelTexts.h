// KernelTexts.h: kernels before they are printed as text, by which caches know them, and the threads that compile such texts.
#ifndef CINCH_COMPILER_TARGET_KERNELTEXTS_H
#define CINCH_COMPILER_TARGET_KERNELTEXTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch::target {

// Builders write a constant wherever they need it. LLVM has each once, so that the code is the same if they are merged before
// they are printed, read and converted.
void mergeConstants(mlir::func::FuncOp);

// Calls `work`, which takes jobs until there are none, on at most so many threads, the caller's being one of them. No jobs: not at all.
void onThreads(int threads, size_t jobs, llvm::function_ref<void()> work);

} // namespace cinch::target
#endif
