// PackWeights.h: copies of weights for products in loops along an axis, laid out as AMX reads them.
#ifndef CINCH_COMPILER_TRANSFORMS_PACKWEIGHTS_H
#define CINCH_COMPILER_TRANSFORMS_PACKWEIGHTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Products of bf16 in loops along an axis read copies of their weights, which are made once a step. No bit changes. False: there are no such products.
bool packWeights(mlir::func::FuncOp);

} // namespace cinch
#endif
