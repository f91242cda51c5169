// Transpose.h: squares of elements that are turned in registers.
#ifndef CINCH_COMPILER_KERNELS_TRANSPOSE_H
#define CINCH_COMPILER_KERNELS_TRANSPOSE_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallVector.h"

namespace cinch::kernels {

// Of as many vectors as one has elements, a power of two.
llvm::SmallVector<mlir::Value> emitTransposed(mlir::OpBuilder &, mlir::Location, llvm::SmallVector<mlir::Value> rows);

} // namespace cinch::kernels
#endif
