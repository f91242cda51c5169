// MultiplyInTF32.cpp: products of f32 on the tensor cores of a GPU.
//
//     %y = nn.contract %x [0, 2], %w [1, 2] {nn.tf32} : (tensor<32x768xf32, #nn.batch<0>>, tensor<768x768xf32>) -> tensor<32x768xf32, #nn.batch<0>>
//
// On a CPU the same program has no such mark, and is the program of `precision f32`.
#include "compiler/transforms/MultiplyInTF32.h"

#include "dialects/nn/NN.h"
#include "dialects/nn/TensorCores.h"

using namespace mlir;

namespace cinch {

void multiplyInTF32(ModuleOp module) {
  module.walk([](Operation *op) {
    auto isF32 = [](Value value) { return nn::tensorOf(value).getElementType().isF32(); };
    if (isa<nn::ContractOp, nn::ConvOp>(op) && llvm::all_of(op->getOperands(), isF32))
      op->setAttr(nn::kTF32Attr, UnitAttr::get(op->getContext()));
  });
}

} // namespace cinch
