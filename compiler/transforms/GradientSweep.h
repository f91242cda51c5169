// GradientSweep.h: the backward sweep over the ops of a block: from gradients of what leaves it to those of what it is computed from.
// The rules of single ops stand in dialects/nn/Derivatives.cpp, that of loops in GradientOfScan.cpp.
//
// Invariants:
//  1. An op of the sweep reads the saved values and result gradients its rule was given, or what the rule made: checked.
//  2. A value's gradient is the chain c0 + c1 + .. of its contributions in the order of its uses (op, then operand). Slices that cover an
//     axis without overlap give back a concatenation.
//  3. Every contribution to a value without the batch axis has no batch axis either: the type says that the example axis was summed by the
//     op that made it, so that op alone accumulates and the additions of 2 lie behind the micro-batch loop.
//  4. An addition with nn.stream is one of a reversible layer, y = x + e. When the sweep comes to it, y is known again (or is what the
//     forward pass made, if no reversible layer follows): e is computed anew from what is known again, x is y - e, and the derivatives of
//     what e is made of read the new values. So no plan decides which values they read, and none of the forward pass need be kept.
#ifndef CINCH_COMPILER_TRANSFORMS_GRADIENT_SWEEP_H
#define CINCH_COMPILER_TRANSFORMS_GRADIENT_SWEEP_H

#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace cinch {

class GradientSweep {
public:
  // Floats that depend on a trained parameter, through derivatives, are active. `builder` makes the ops of the sweep.
  GradientSweep(nn::GradientBuilder &builder, llvm::DenseSet<mlir::Value> active) : active(std::move(active)), builder(builder) {}

  // Adds what the ops of the block make of active values.
  static void grow(llvm::DenseSet<mlir::Value> &active, mlir::Block &block);
  // A gradient that reaches `value` through operand `operand` of op number `user`.
  void contribute(mlir::Value value, unsigned user, unsigned operand, mlir::Value gradient, int shard = -1);
  // Values of the forward pass, which may be contributions, are others now.
  void replace(llvm::ArrayRef<mlir::Value> before, mlir::ValueRange now);
  // Visits the ops of the block from the last to the first. A loop among them is replaced by one with more results.
  mlir::LogicalResult visit(mlir::Block &block);
  // The sum of the contributions to a value; null: there is none. Asked for once.
  mlir::Value plus(mlir::Value, mlir::Value);
  mlir::Value gradientOf(mlir::Value value);
  // The contributions one by one, in the order of the uses.
  llvm::SmallVector<mlir::Value> takeContributions(mlir::Value value);
  bool isActive(mlir::Value value) const { return active.contains(value); }

private:
  struct Contribution {
    unsigned user, operand;
    mlir::Value gradient;
    int shard; // whose op it comes from; -1: all do it
  };
  llvm::SmallVector<Contribution> take(mlir::Value value);
  mlir::Value sumOfShards(llvm::ArrayRef<Contribution> parts);
  void rebuildStream(mlir::Operation &addition);
  mlir::Value computedAnew(mlir::Value value);
  mlir::LogicalResult visit(mlir::Operation &op, unsigned place);
  mlir::LogicalResult checkReads(mlir::Operation &op, mlir::ValueRange saved, mlir::ValueRange grads, size_t firstMade);
  static bool coverAnAxis(llvm::ArrayRef<Contribution> parts, llvm::SmallVectorImpl<nn::PadOp> &pads);

  llvm::DenseSet<mlir::Value> active;
  nn::GradientBuilder &builder;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Contribution>> contributions;
  llvm::DenseMap<mlir::Operation *, unsigned> places;              // of the ops of the block
  llvm::DenseMap<mlir::Value, mlir::Value> rebuilt;                // streams of reversible layers
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> doneAgain;  // what was computed anew
};

// The gradient of a loop: a loop in the other direction, and behind it what sums over all trips. `place`: of the loop among the ops.
mlir::LogicalResult differentiateScan(nn::ScanOp, unsigned place, mlir::ValueRange resultGradients, GradientSweep &, nn::GradientBuilder &);

inline bool isFloatTensor(mlir::Value value) {
  auto type = mlir::dyn_cast<mlir::RankedTensorType>(value.getType());
  return type && mlir::isa<mlir::FloatType>(type.getElementType());
}

} // namespace cinch
#endif
