// NarrowWeights.h: copies of weights in bf16, for the products of a GPU.
#ifndef CINCH_COMPILER_TRANSFORMS_NARROWWEIGHTS_H
#define CINCH_COMPILER_TRANSFORMS_NARROWWEIGHTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Products of bf16 read a bf16 copy of their weights, which is made once a step. No bit changes. False: there are no such products.
bool narrowWeights(mlir::func::FuncOp);

} // namespace cinch
#endif
