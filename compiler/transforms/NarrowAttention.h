// NarrowAttention.h: attention of bf16 values, for the tensor cores of a GPU.
#ifndef CINCH_COMPILER_TRANSFORMS_NARROWATTENTION_H
#define CINCH_COMPILER_TRANSFORMS_NARROWATTENTION_H

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// Attention that runs on tensor cores reads and gives bf16. To be called before ops are decomposed, which drops what is widened and rounded again.
void narrowAttention(mlir::ModuleOp);

} // namespace cinch
#endif
