// WinogradEmit.h: the formulas of Winograd.h along one axis, of vectors.
#ifndef CINCH_COMPILER_KERNELS_WINOGRADEMIT_H
#define CINCH_COMPILER_KERNELS_WINOGRADEMIT_H

#include "compiler/kernels/Winograd.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <array>

namespace cinch::kernels {

class WinogradEmit {
public:
  using Value = mlir::Value;
  using Values = llvm::ArrayRef<Value>;
  using Products = std::array<Value, kWinogradPatch>;

  // `half`: a vector of 0.5, for what is halved.
  WinogradEmit(mlir::OpBuilder &builder, mlir::Location loc, Value half) : builder(builder), loc(loc), half(half) {}

  Products ofImage(Values d) { return {sub(d[0], d[2]), add(d[1], d[2]), sub(d[2], d[1]), sub(d[1], d[3])}; }
  Products ofTaps(Values g) {
    Value outer = add(g[0], g[2]);
    return {g[0], halved(add(outer, g[1])), halved(sub(outer, g[1])), g[2]};
  }
  std::array<Value, kWinogradOutputs> outputsOf(Values m) { return {add(add(m[0], m[1]), m[2]), sub(sub(m[1], m[2]), m[3])}; }
  // For the gradient of the filter: of the outputs' gradient, and of sums.
  Products ofGradients(Values y) { return {y[0], add(y[0], y[1]), sub(y[0], y[1]), mlir::arith::NegFOp::create(builder, loc, y[1])}; }
  std::array<Value, kWinogradTaps> tapsOf(Values m) {
    Value inner = halved(add(m[1], m[2]));
    return {add(m[0], inner), halved(sub(m[1], m[2])), add(inner, m[3])};
  }

private:
  Value add(Value x, Value y) { return mlir::arith::AddFOp::create(builder, loc, x, y); }
  Value sub(Value x, Value y) { return mlir::arith::SubFOp::create(builder, loc, x, y); }
  Value halved(Value x) { return mlir::arith::MulFOp::create(builder, loc, x, half); }

  mlir::OpBuilder &builder;
  mlir::Location loc;
  Value half;
};

} // namespace cinch::kernels
#endif
