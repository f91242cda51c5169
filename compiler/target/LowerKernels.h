// LowerKernels.h: kernels and host code in scf, cf, vector, memref, arith, math and func -> the LLVM dialect.
#ifndef CINCH_COMPILER_TARGET_LOWERKERNELS_H
#define CINCH_COMPILER_TARGET_LOWERKERNELS_H

#include "mlir/Support/LLVM.h"

namespace mlir {
class DialectRegistry;
class ModuleOp;
} // namespace mlir

namespace cinch::target {

// Registers every dialect that a kernel builder may use, and the translation to LLVM IR.
void registerKernelDialects(mlir::DialectRegistry &);

// Lowers all functions of the module to the LLVM dialect: memref arguments become bare pointers, no fast-math flag is
// added anywhere. Fails, with an error at the op, on operations that the numbers contract forbids before lowering
// (vector.fma, vector.contract, linalg, any fast-math attribute).
mlir::LogicalResult lowerKernels(mlir::ModuleOp);

// The check before lowering, alone.
mlir::LogicalResult verifyKernelNumbers(mlir::ModuleOp);

} // namespace cinch::target
#endif
