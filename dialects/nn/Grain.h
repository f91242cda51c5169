// Grain.h: the blocks in which sums over the batch are cut.
//
// A function with the attribute `nn.grain = g` sums over its batch axis in blocks of g consecutive examples: the chain of a
// block starts from zero, and the sums of the blocks are added in their order, by one chain from zero. It belongs to the
// program: it changes the bits. A micro-batch is a multiple of g, so the blocks, and the bits, are the same under every plan.
// Only the function that trains has it.
#ifndef CINCH_DIALECTS_NN_GRAIN_H
#define CINCH_DIALECTS_NN_GRAIN_H

#include "dialects/nn/NN.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace cinch::nn {

inline constexpr llvm::StringLiteral kGrainAttr = "nn.grain";

// Examples of a block for the sums of an op (or function); 0: sums over the batch are one chain.
inline int64_t grainOf(mlir::Operation *op) {
  for (; op; op = op->getParentOp())
    if (auto grain = op->getAttrOfType<mlir::IntegerAttr>(kGrainAttr))
      return grain.getInt();
  return 0;
}

// The same, in elements of the batch axis of `summed`: examples, or groups of them, which divide the grain.
inline int64_t grainOver(mlir::Operation *op, mlir::Value summed) { return grainOf(op) / batchGroup(summed.getType()); }

// A sum over examples and positions with the attribute `nn.rows_together = r` sums blocks of r consecutive rows of an example in the same way: each
// from zero, and these sums by one chain. r divides the rows of an example, and row blocks hold a multiple of r. It belongs to the kind of the
// target (docs/nvidia.md). Where there is a grain, its blocks are those of the sum.
inline constexpr llvm::StringLiteral kRowsTogetherAttr = "nn.rows_together";

inline int64_t rowsTogether(mlir::Operation *op) {
  auto rows = op->getAttrOfType<mlir::IntegerAttr>(kRowsTogetherAttr);
  return rows ? rows.getInt() : 0;
}

} // namespace cinch::nn
#endif
