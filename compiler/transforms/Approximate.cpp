// Approximate.cpp: exponentials and quotients by a GPU's own instructions.
//
//     %y = nn.tanh %x {nn.approximate} : tensor<32x1024x3072xf32, #nn.batch<0>>
//
// A GPU has an instruction for 2^x and one for 1 / x. The formulas of a CPU take up to thirty instructions an element in their place, so that
// gelu and cross entropy would wait for these and not for memory.
#include "compiler/transforms/Approximate.h"

#include "dialects/nn/Approximate.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {

void approximate(ModuleOp module) {
  module.walk([](Operation *op) {
    if (!isa<nn::ExpOp, nn::TanhOp, nn::SigmoidOp, nn::DivOp>(op))
      return;
    Value result = op->getResult(0);
    if (nn::batchAxis(result) >= 0 && nn::tensorOf(result).getElementType().isF32())
      op->setAttr(nn::kApproximateAttr, UnitAttr::get(op->getContext()));
  });
}

} // namespace cinch
