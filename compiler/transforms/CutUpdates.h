// CutUpdates.h: updates of large parameters in runs of rows, which replicas can share.
#ifndef CINCH_COMPILER_TRANSFORMS_CUTUPDATES_H
#define CINCH_COMPILER_TRANSFORMS_CUTUPDATES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Divides updates whose state is much beside what all `workers` share (solve/stages/Rows.h). The state of a run of rows is an argument of its
// own, called NAME#RUN. No bit changes: only what is computed element by element is divided. False: there is nothing to divide.
bool cutUpdates(mlir::func::FuncOp, int workers);

} // namespace cinch
#endif
