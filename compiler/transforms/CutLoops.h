// CutLoops.h: what a loop along an axis keeps for its backward loop.
#ifndef CINCH_COMPILER_TRANSFORMS_CUT_LOOPS_H
#define CINCH_COMPILER_TRANSFORMS_CUT_LOOPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Lets each backward loop compute again what its forward loop kept of every trip, run by run; `levels`: 1, the states at the beginning of
// each run are kept, or 2, runs are cut into shorter ones. The lengths are those for which least is kept. No bit changes. False: there is
// no loop that can be cut so.
bool cutLoops(mlir::func::FuncOp, int levels);

} // namespace cinch
#endif
