// MathEmit.h: emits mathematics as arith and math operations, on scalars or vectors.
//
// Nothing here leaves an elementary function to a later stage: exp, log and the rest are expanded at once
// (MathFormulas.h), before any folder could evaluate them with the compiling machine's libm. What remains are exact
// instructions: sqrt, abs, floor, fma.
#ifndef CINCH_COMPILER_KERNELS_MATHEMIT_H
#define CINCH_COMPILER_KERNELS_MATHEMIT_H

#include "compiler/kernels/Kernels.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace cinch::kernels {

// f32, f64, i32, i1 for Bool (whose storage is i8), f32 for BF16 (whose storage is i16).
mlir::Type valueType(mlir::OpBuilder &, Elem);

// An f32 rounded to bf16, ties to even; it stays an f32. No op of LLVM's bfloat: bits are moved.
mlir::Value emitRounded(mlir::OpBuilder &, mlir::Location, mlir::Value x);
// Between the i16 in memory and such an f32, both exact.
mlir::Value emitWidened(mlir::OpBuilder &, mlir::Location, mlir::Value half);
mlir::Value emitNarrowed(mlir::OpBuilder &, mlir::Location, mlir::Value rounded);

// A constant of a type that is a scalar or a vector.
mlir::Value emitNumber(mlir::OpBuilder &, mlir::Location, mlir::Type, double);
// The f64 that a word (i64) holds, as a scalar of another type of floats.
mlir::Value emitNumberOfWord(mlir::OpBuilder &, mlir::Location, mlir::Type, mlir::Value word);
mlir::Value emitInteger(mlir::OpBuilder &, mlir::Location, mlir::Type, int64_t);

// An element-wise operation other than loads, constants, draws and reductions. Operands have one shape, and the type of
// the result is `elem` in that shape.
mlir::Value emitElementwise(mlir::OpBuilder &, mlir::Location, LoopOp, Elem, llvm::ArrayRef<mlir::Value>);

// The same of an op that a GPU may approximate (LoopNode::approximate), on f32.
mlir::Value emitApproximate(mlir::OpBuilder &, mlir::Location, LoopOp, llvm::ArrayRef<mlir::Value>);

// For attention.
inline mlir::Value emitExp(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x) {
  return emitElementwise(b, loc, LoopOp::Exp, Elem::F32, {x});
}
inline mlir::Value emitLog(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x) {
  return emitElementwise(b, loc, LoopOp::Log, Elem::F32, {x});
}

// exp of what is at most formulas::kWithin in size.
mlir::Value emitExpWithin(mlir::OpBuilder &, mlir::Location, mlir::Value x);

// sqrt(-2 ln u1) times cos (first) and sin (second) of 2 pi u2; u1 in (0, 1], u2 in [0, 1) are multiples of 2^-24.
std::pair<mlir::Value, mlir::Value> emitBoxMuller(mlir::OpBuilder &, mlir::Location, mlir::Value u1, mlir::Value u2);

} // namespace cinch::kernels
#endif
