// Passes.h: declarations of all passes.
#ifndef CINCH_COMPILER_TRANSFORMS_PASSES_H
#define CINCH_COMPILER_TRANSFORMS_PASSES_H

#include "compiler/transforms/Phase.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace cinch {
#define GEN_PASS_DECL
#include "compiler/transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

#endif
