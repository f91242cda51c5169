// MultiplyInTF32.h: products of f32 on the tensor cores of a GPU.
#ifndef CINCH_COMPILER_TRANSFORMS_MULTIPLYINTF32_H
#define CINCH_COMPILER_TRANSFORMS_MULTIPLYINTF32_H

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// Marks all products and convolutions of f32 (nn/TensorCores.h), those of gradients too. For programs of `precision tf32` on a GPU, when no more
// products are made.
void multiplyInTF32(mlir::ModuleOp);

} // namespace cinch
#endif
