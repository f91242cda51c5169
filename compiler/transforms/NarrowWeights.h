// NarrowWeights.h: copies of weights in bf16, for the products of a GPU.
#ifndef CINCH_COMPILER_TRANSFORMS_NARROWWEIGHTS_H
#define CINCH_COMPILER_TRANSFORMS_NARROWWEIGHTS_H

#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Whether a product rounds its operands to bf16.
bool isOfBF16(nn::ContractOp product);

// Products of bf16 read a bf16 copy of their weights, which is made once a step. No bit changes. False: there are no such products.
bool narrowWeights(mlir::func::FuncOp);

} // namespace cinch
#endif
