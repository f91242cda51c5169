// Transpose.h: copies that exchange which dim is contiguous.
#ifndef CINCH_COMPILER_KERNELS_TRANSPOSE_H
#define CINCH_COMPILER_KERNELS_TRANSPOSE_H

#include "compiler/kernels/LoopPlan.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallVector.h"

namespace cinch::kernels {

// Of as many vectors as one has elements, a power of two.
llvm::SmallVector<mlir::Value> emitTransposed(mlir::OpBuilder &, mlir::Location, llvm::SmallVector<mlir::Value> rows);

// The body of a loop kernel that is a transposition (LoopPlan::Transposition); arguments as the kernel ABI has them.
void emitTransposition(mlir::OpBuilder &, mlir::Location, const LoopPlan &, mlir::ValueRange arguments);

} // namespace cinch::kernels
#endif
