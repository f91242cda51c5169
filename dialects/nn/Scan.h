// Scan.h: makes loops along an axis (nn.scan).
#ifndef CINCH_DIALECTS_NN_SCAN_H
#define CINCH_DIALECTS_NN_SCAN_H

#include "dialects/nn/NN.h"

namespace cinch::nn {

// What a loop is made of. The body's block has arguments for inits, slices and stacks, and may read values from outside, which become
// `wholes`; it ends without a terminator.
struct ScanParts {
  int64_t trips = 1;
  bool reverse = false;
  llvm::SmallVector<mlir::Value> inits, slices, stacks, firsts;
  llvm::SmallVector<mlir::Value> yields; // carried values, then stacked ones; values of the block or from outside
  llvm::SmallVector<bool> inRuns;        // of the stacked ones: what a trip yields is several parts in a row; absent: none is
};

// Takes the block. Constants from outside, and what is the same for all examples but for a broadcast along them, are computed in the body:
// so a sum of its gradient over the examples can leave the loop.
ScanOp createScan(mlir::OpBuilder &, mlir::Location, const ScanParts &, mlir::Block *body);

// Work of a loop over examples that is the same for all of them (what is computed from a slice of a parameter) becomes a loop of its own,
// before it, so that every sum over the examples in the gradient can leave the loop. The op may be replaced and erased.
ScanOp splitSharedWork(ScanOp);

// Products of slices, and of slices with what is the same in every trip, leave the loop: they are one product over all trips, of which a trip
// gets its part. The op may be replaced and erased.
ScanOp hoistProducts(ScanOp);

// Copies what is yielded for two purposes (equal values may have become one), and drops stacked results that nobody reads. The op may be
// replaced and erased.
ScanOp separateYields(ScanOp);

// The same loop with more stacked results behind the others. The old op is replaced and erased.
ScanOp addStacked(ScanOp, llvm::ArrayRef<mlir::Value> values);

} // namespace cinch::nn
#endif
