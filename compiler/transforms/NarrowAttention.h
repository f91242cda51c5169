// NarrowAttention.h: attention reads bf16 values as they lie.
#ifndef CINCH_COMPILER_TRANSFORMS_NARROWATTENTION_H
#define CINCH_COMPILER_TRANSFORMS_NARROWATTENTION_H

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// Attention of bf16 reads bf16, and where it runs on tensor cores its gradients are bf16, too. To be called before ops are decomposed, which drops
// what is widened and rounded again. No bit changes.
void narrowAttention(mlir::ModuleOp, bool isDevice);

} // namespace cinch
#endif
