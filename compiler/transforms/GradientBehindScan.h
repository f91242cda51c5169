// GradientBehindScan.h: what a loop's gradient computes behind the loop, from values of all trips.
#ifndef CINCH_COMPILER_TRANSFORMS_GRADIENT_BEHIND_SCAN_H
#define CINCH_COMPILER_TRANSFORMS_GRADIENT_BEHIND_SCAN_H

#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"

namespace cinch {

// Can the op stand behind the loop instead of in it: a contraction, a filter of a convolution, a sum or a scatter_add? Null: no.
bool canStandBehindLoop(mlir::Operation *);

// What `op` computes in each trip, of all trips at once: with the trips as first axis if `keepsTrips`, else their sum, the examples slowest, then
// time ascending. Operands have the trips as first axis, but for those that are the same in all of them (`timeless`).
mlir::Value sumOverTrips(nn::GradientBuilder &, mlir::Operation *op, int64_t trips, bool keepsTrips,
                         llvm::SmallVectorImpl<mlir::Value> &operands, llvm::ArrayRef<bool> timeless);

// A reshape or transpose of what an op computes in each trip, of what `sumOverTrips` made for that op.
mlir::Value viewBehind(nn::GradientBuilder &, mlir::Operation *view, int64_t trips, bool keepsTrips, mlir::Value);

// The same value for each trip.
mlir::Value withTrips(nn::GradientBuilder &, mlir::Value, int64_t trips);

} // namespace cinch
#endif
