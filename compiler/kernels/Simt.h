// Simt.h: what a kernel of a GPU asks of the threads around it.
//
// Kernels of both targets come from the same builders. A vector of 16 columns is 16 numbers in one register of a CPU; on a GPU it is
// one number in each of 16 threads, a *team*: half of a warp. Vector loads become loads of one element a thread, the tree of a row sum
// becomes shuffles, and what is one number for all columns is computed by every thread of the team for itself.
#ifndef CINCH_COMPILER_KERNELS_SIMT_H
#define CINCH_COMPILER_KERNELS_SIMT_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace cinch::kernels::simt {

constexpr int kTeam = 16;

// The number of this thread within its block, and within its team (index).
mlir::Value threadOfBlock(mlir::OpBuilder &, mlir::Location);
mlir::Value lane(mlir::OpBuilder &, mlir::Location);

// All threads of a team call these together. The value that the thread `distance` lanes behind has (its own beyond the last), and the
// value of lane 0; of i1, i8, i16, i32, i64, f32 or f64.
mlir::Value fromBehind(mlir::OpBuilder &, mlir::Location, mlir::Value, int distance);
mlir::Value fromFirst(mlir::OpBuilder &, mlir::Location, mlir::Value);
// Waits until the whole team is here. What it read and wrote before is done.
void syncTeam(mlir::OpBuilder &, mlir::Location);
// The same for all threads of the block.
void syncBlock(mlir::OpBuilder &, mlir::Location);

} // namespace cinch::kernels::simt
#endif
