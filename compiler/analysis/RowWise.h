// RowWise.h: which work is independent for each row, an (example, position) pair, and what it looks like on a block.
//
// Rows are the first two axes of a tensor, the batch axis and the positions; in a program without positions the batch axis
// alone. A tensor of rows starts with these axes; one without a batch axis is the same for all rows.
#ifndef CINCH_COMPILER_ANALYSIS_ROWWISE_H
#define CINCH_COMPILER_ANALYSIS_ROWWISE_H

#include "compiler/analysis/StepProblem.h"

namespace cinch::analysis {

struct RowSpace {
  int64_t positions = 1;
  int64_t lead() const { return positions > 1 ? 2 : 1; } // axes that count rows
};

// Whole: the same for all rows. Other: has a batch axis, but no rows.
enum class RowKind { Whole, Rows, Other };
RowKind rowKind(mlir::Type, RowSpace);

// The first of the positions that a slice takes from what is longer (text[.., 1:T + 1]); -1: it is no such slice.
int64_t sliceOfPositions(mlir::Operation *, RowSpace);

// Can the kernel run block by block? Sums over rows must be chains over the rows, example by example and position by position.
bool isRowWise(plan::KernelOp, RowSpace);

// A type with fewer examples and, for tensors of rows, fewer positions.
mlir::Type typeOfBlock(mlir::Type, RowSpace, int64_t examples, int64_t positions);

// Sets `positions` of the graph and `rows` of its kernels: positions are the second axis of the widest tensors around which
// there is work for row blocks.
void markRows(const Step &, StepProblem &);

} // namespace cinch::analysis
#endif
