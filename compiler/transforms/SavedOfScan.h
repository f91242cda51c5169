// SavedOfScan.h: what the backward loop of a loop along an axis has of the forward trips.
//
// What is saved of a trip is a cut of least bytes through the work of a trip, such that everything the backward loop reads can be computed
// from it by work that is no product. A state before a trip costs nothing if the states behind the trips are kept anyway.
#ifndef CINCH_COMPILER_TRANSFORMS_SAVEDOFSCAN_H
#define CINCH_COMPILER_TRANSFORMS_SAVEDOFSCAN_H

#include "dialects/nn/NN.h"
#include "dialects/nn/Scan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace cinch {

// A constant of the body: it needs not be saved.
bool isSameInEachTrip(mlir::Value);
// The result of a loop that stacks a value of its body; -1: none.
int stackOf(nn::ScanOp, mlir::Value);
// The values of a trip to save, for what is in `read`; what is in `kept` is saved anyway.
mlir::DenseSet<mlir::Value> cheapestToSave(nn::ScanOp, const llvm::SetVector<mlir::Value> &read, const llvm::SetVector<mlir::Value> &kept);
// A value that is stacked in any case is read as it is and not computed again. (The state behind each trip is stacked where the states before the
// trips are asked for.) Such values join the cut where the way from the cut to `read` leads over them.
void addStacked(nn::ScanOp, const llvm::SetVector<mlir::Value> &read, mlir::DenseSet<mlir::Value> &cut);
// What of `read` is not `inside` the backward body yet is computed at its begin, in the order of the forward body, and takes the place of what
// the body and its yields name.
void computeAgain(nn::ScanOp, const llvm::SetVector<mlir::Value> &read, mlir::Block &backward, mlir::SmallVectorImpl<mlir::Value> &yields,
                  mlir::IRMapping &inside);

} // namespace cinch
#endif
