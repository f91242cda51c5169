// HoldSums.h: sums of grains that wait for the sum that they are added to.
#ifndef CINCH_COMPILER_TRANSFORMS_HOLDSUMS_H
#define CINCH_COMPILER_TRANSFORMS_HOLDSUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Divides gradients of parameters in two: the sum of each grain (nn.held), and the sum of these. A replica that waits for the sum of the one
// before it can make the former meanwhile, and let go of what they are made of. No bit changes. False: there is no such gradient.
bool holdSums(mlir::func::FuncOp);

} // namespace cinch
#endif
