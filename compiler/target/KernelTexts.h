// KernelTexts.h: kernels before they are printed as text, by which caches know them.
#ifndef CINCH_COMPILER_TARGET_KERNELTEXTS_H
#define CINCH_COMPILER_TARGET_KERNELTEXTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch::target {

// Builders write a constant wherever they need it. LLVM has each once, so that the code is the same if they are merged before
// they are printed, read and converted.
void mergeConstants(mlir::func::FuncOp);

} // namespace cinch::target
#endif
