// SumInBlocks.h: column sums of gradients in blocks of rows.
#ifndef CINCH_COMPILER_TRANSFORMS_SUMINBLOCKS_H
#define CINCH_COMPILER_TRANSFORMS_SUMINBLOCKS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Marks gradients of parameters that are sums over examples and their positions to be summed in blocks of 32 rows of an example (nn/Grain.h), where
// that divides its rows. It is another order of additions than that of one chain, and belongs to the kind of the target: programs of bf16 on a
// GPU, whose products sum blocks of 32 positions, too. With a grain, sums are cut at grains already, and stay as they are.
void sumInBlocks(mlir::func::FuncOp);

} // namespace cinch
#endif
