// TensorCores.h: which products add several of their terms at once.
//
// A product or a convolution of f32 with the attribute `nn.tf32` runs on the tensor cores of a GPU, unless it sums over examples alone or convolves each
// channel by itself. They round both operands to ten bits behind the leading one (tf32), to nearest, ties away from zero, and add eight products at a
// time to an f32. The eights begin anew where the blocks of a product of bf16 do. The attribute belongs to the program and to the kind of the target
// (docs/nvidia.md), and to the op: no plan changes it.
#ifndef CINCH_DIALECTS_NN_TENSORCORES_H
#define CINCH_DIALECTS_NN_TENSORCORES_H

#include "dialects/nn/NN.h"

namespace cinch::nn {

inline constexpr llvm::StringLiteral kTF32Attr = "nn.tf32";

// Whether some product in a function sums blocks of neighbours in k, as those of bf16 and of tf32 do: then a plan cuts sums over positions at multiples
// of kRowsOfBlocks alone, and a grain nowhere.
inline constexpr int64_t kRowsOfBlocks = 32;
inline bool sumsBlocks(mlir::Operation *function) {
  return function
      ->walk([](mlir::Operation *op) {
        auto cast = mlir::dyn_cast<CastOp>(op);
        bool rounds = cast && tensorOf(cast.getResult()).getElementType().isBF16();
        return rounds || op->hasAttr(kTF32Attr) ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

} // namespace cinch::nn
#endif
