// TwoSteps.h: workers whose steps overlap (`2bw`): what a function says about that.
#ifndef CINCH_COMPILER_TRANSFORMS_TWOSTEPS_H
#define CINCH_COMPILER_TRANSFORMS_TWOSTEPS_H

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// The main loop of a worker whose list of actions has some of the next step; null: there is none.
plan::LoopOp overlappingLoop(mlir::func::FuncOp);

// `delay 1`: a step computes with the previous parameters, PATH.prev among the state; the next step will find the parameters there as they are
// now. The first to the second, as far as the function has both.
llvm::DenseMap<mlir::Value, mlir::BlockArgument> newerParameters(mlir::func::FuncOp);

} // namespace cinch
#endif
