// NarrowOperands.h: attention and convolutions read bf16 values as they lie.
#ifndef CINCH_COMPILER_TRANSFORMS_NARROWOPERANDS_H
#define CINCH_COMPILER_TRANSFORMS_NARROWOPERANDS_H

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// Attention of bf16 reads bf16, and where it runs on tensor cores its gradients are bf16, too. The copy of a filter in the order that convolutions read
// is bf16, if they are. To be called before ops are decomposed, which drops what is widened and rounded again. No bit changes.
void narrowOperands(mlir::ModuleOp, bool isDevice);

} // namespace cinch
#endif
