// RowWise.h: which work is independent for each row, an (example, position) pair, and what it looks like on a block.
//
// Rows are the first two axes of a tensor, the batch axis and the positions; in a program without positions the batch axis
// alone. A tensor of rows starts with these axes; one without a batch axis is the same for all rows.
//
// Of images the positions are their rows. Where a convolution or a pool has a stride, images of other heights belong to it, which have
// several rows a position.
#ifndef CINCH_COMPILER_ANALYSIS_ROWWISE_H
#define CINCH_COMPILER_ANALYSIS_ROWWISE_H

#include "compiler/analysis/StepProblem.h"
#include "compiler/solve/RowBlocks.h"

#include <map>

namespace cinch::analysis {

struct RowSpace {
  int64_t positions = 1;
  std::map<int64_t, int64_t> heights = {}; // of images with several rows a position: height -> rows a position
  int64_t lead() const { return positions > 1 ? 2 : 1; } // axes that count rows
  // Rows a position of what is so long along axis 1; 0: these are no rows.
  int64_t scaleOf(int64_t height) const {
    auto it = heights.find(height);
    return height == positions ? 1 : it != heights.end() ? it->second : 0;
  }
};

// Whole: the same for all rows. Other: has a batch axis, but no rows.
enum class RowKind { Whole, Rows, Other };
RowKind rowKind(mlir::Type, const RowSpace &);

// The first of the positions that a slice takes from what is longer (text[.., 1:T + 1]); -1: it is no such slice.
int64_t sliceOfPositions(mlir::Operation *, const RowSpace &);

// A block of some positions is given those that its kernel would cut out itself. Takes these slices out of the kernel, and says of each
// input that is positions of something longer from now on where they begin.
std::map<unsigned, int64_t> takeSlices(plan::KernelOp, const RowSpace &);

// Can the kernel run block by block? Sums over rows must be chains over the rows, example by example and position by position.
bool isRowWise(plan::KernelOp, const RowSpace &);

// The rows of an operand that row p of what its op makes needs: of a convolution or a pool.
solve::RowReach reachOf(mlir::OpOperand &);

// Makes the kernel, which is row-wise on whole images, one on some rows of one example. Of operand i it has the rows `known[i]`.
void takeRows(plan::KernelOp, const RowSpace &, const solve::TripRows &made, llvm::ArrayRef<solve::TripRows> known);

// A type with fewer examples and, for tensors of rows, fewer positions.
mlir::Type typeOfBlock(mlir::Type, const RowSpace &, int64_t examples, int64_t positions);

// Sets `positions` of the graph and `rows` of its kernels: positions are the second axis of the widest tensors around which
// there is work for row blocks. `images`: convolutions and pools are such work, too.
void markRows(const Step &, StepProblem &, bool images);

} // namespace cinch::analysis
#endif
