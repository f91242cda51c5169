// Approximate.h: exponentials and quotients by a GPU's own instructions.
#ifndef CINCH_COMPILER_TRANSFORMS_APPROXIMATE_H
#define CINCH_COMPILER_TRANSFORMS_APPROXIMATE_H

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// Marks exponentials, hyperbolic tangents, sigmoids and quotients of f32 to be approximated (nn/Approximate.h), where they are of examples. For
// programs of bf16 on a GPU: their values are rounded to eight bits, and an approximation is right to twenty. Updates of parameters stay exact, as
// everything is that no example has.
void approximate(mlir::ModuleOp);

} // namespace cinch
#endif
