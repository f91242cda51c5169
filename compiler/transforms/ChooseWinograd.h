// ChooseWinograd.h: convolutions by Winograd's minimal filtering, on a CPU.
#ifndef CINCH_COMPILER_TRANSFORMS_CHOOSEWINOGRAD_H
#define CINCH_COMPILER_TRANSFORMS_CHOOSEWINOGRAD_H

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// Marks them (dialects/nn/Winograd.h) in a program of f32 or f64 that has no gradients yet. Which they are follows from the op and its sizes at one
// example.
void chooseWinograd(mlir::ModuleOp);

} // namespace cinch
#endif
