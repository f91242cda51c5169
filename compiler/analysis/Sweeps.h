// Sweeps.h: the loops over the examples that a step needs, and which of its work stands where.
//
// A sum over the batch is complete when a loop over the examples has ended. Work on single examples that needs such a sum (a loss that
// is divided by the number of chosen elements) stands in a later loop: a *sweep*. So a step is a list
//
//     part 0      what is the same for all examples, before the first sweep
//     part 1      sweep 0
//     part 2      what the sums of sweep 0 give
//     part 3      sweep 1
//     ..
//     part 2 n    behind the last sweep
//
// A value of single examples does not outlive its sweep. Where a later one needs it, it is computed again.
#ifndef CINCH_COMPILER_ANALYSIS_SWEEPS_H
#define CINCH_COMPILER_ANALYSIS_SWEEPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cinch::analysis {

struct Sweeps {
  int count = 1; // a step has one sweep at least
  llvm::DenseMap<mlir::Operation *, int> part;
  int last() const { return 2 * count; }
  int lastSweep() const { return 2 * count - 1; }
};
inline bool isSweep(int part) { return part % 2 == 1; }

// Copies the work on examples that several sweeps need, so that every op belongs to one part. Each sum stands in the latest sweep in
// which it can; what is the same for all examples stands as late as it can.
Sweeps separateSweeps(mlir::func::FuncOp);

} // namespace cinch::analysis
#endif
