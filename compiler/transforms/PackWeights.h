// PackWeights.h: copies of weights for products in loops along an axis, laid out as the CPU multiplies them.
#ifndef CINCH_COMPILER_TRANSFORMS_PACKWEIGHTS_H
#define CINCH_COMPILER_TRANSFORMS_PACKWEIGHTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Products in loops along an axis read copies of their weights, which are made once a step, in the order in which this CPU multiplies them. No bit changes.
// `amx`: the CPU has it. False: there are no such products.
bool packWeights(mlir::func::FuncOp, bool amx);

} // namespace cinch
#endif
