// PadRows.h: rows of bf16 that begin at 16 bytes, for the products of a GPU.
#ifndef CINCH_COMPILER_TRANSFORMS_PADROWS_H
#define CINCH_COMPILER_TRANSFORMS_PADROWS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Long rows of bf16 that products read or write get a pitch (nn.batch) of a multiple of 16 bytes. No number changes.
void padRows(mlir::func::FuncOp);

} // namespace cinch
#endif
