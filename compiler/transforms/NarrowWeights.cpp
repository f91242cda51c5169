// NarrowWeights.cpp: products of bf16 read a bf16 copy of their weights, which is made once a step.
//
//     %y = nn.contract %x, %w : bf16, f32        %n = nn.cast %w : f32 -> bf16
//                                          ->    %y = nn.contract %x, %n : bf16, bf16
//
// A product rounds what it reads as f32 in any case, so no bit changes. On a GPU every tile of outputs reads the weights again. Of bf16 that is half
// the bytes, and copies bring them into shared memory without a register.
#include "compiler/transforms/NarrowWeights.h"

using namespace mlir;

namespace cinch {

bool isOfBF16(nn::ContractOp product) {
  return product->hasAttr(nn::kBF16Attr) ||
         llvm::any_of(product->getOperands(), [](Value value) { return nn::tensorOf(value).getElementType().isBF16(); });
}

bool narrowWeights(func::FuncOp function) {
  Block &block = function.getBody().front();
  OpBuilder builder = OpBuilder::atBlockBegin(&block);
  llvm::DenseMap<Value, Value> copies;
  for (auto product : llvm::to_vector(block.getOps<nn::ContractOp>())) {
    if (!isOfBF16(product))
      continue;
    for (OpOperand &operand : product->getOpOperands()) {
      Value weights = operand.get();
      if (!isa<BlockArgument>(weights) || nn::hasBatch(weights) || !nn::tensorOf(weights).getElementType().isF32())
        continue;
      Value &copy = copies[weights];
      if (!copy)
        copy = nn::CastOp::create(builder, product.getLoc(), nn::withElement(nn::tensorOf(weights), builder.getBF16Type()), weights);
      operand.set(copy);
    }
  }
  return !copies.empty();
}

} // namespace cinch
