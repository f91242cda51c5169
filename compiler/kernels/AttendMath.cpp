// AttendMath.cpp: exponential and logarithm of the attention kernels.
#include "compiler/kernels/AttendEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
using namespace mlir;
namespace cinch::kernels {
Value AttendEmitter::exp(Value x) {
  if (spec.elem == Elem::F64) return math::ExpOp::create(b, loc, x);
  auto iv = VectorType::get({lanes}, b.getI32Type());
  Value small = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, splat(-87.3));
  Value big = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, splat(88.3));
  Value c = select(small, splat(-87.3), x); c = select(big, splat(88.3), c);
  Value n = math::FloorOp::create(b, loc, fma(c, splat(1.44269504088896341), splat(0.5)));
  Value r = fma(n, splat(-0.693359375), c); r = fma(n, splat(2.12194440e-4), r);
  Value y = splat(1.9875691500E-4);
  for (double k : {1.3981999507E-3, 8.3334519073E-3, 4.1665795894E-2, 1.6666665459E-1, 5.0000001201E-1}) y = fma(y, r, splat(k));
  y = fadd(fma(y, fmul(r, r), r), splat(1.0));
  Value i = arith::FPToSIOp::create(b, loc, iv, n);
  Value c23 = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(iv, b.getI32IntegerAttr(23)));
  Value bits = arith::AddIOp::create(b, loc, arith::BitcastOp::create(b, loc, iv, y), arith::ShLIOp::create(b, loc, i, c23));
  y = arith::BitcastOp::create(b, loc, vector, bits);
  return select(small, splat(0.0), y);
}
Value AttendEmitter::log(Value x) {
  auto wide = VectorType::get({lanes}, b.getF64Type());
  if (spec.elem == Elem::F64) return math::LogOp::create(b, loc, x);
  return arith::TruncFOp::create(b, loc, vector, math::LogOp::create(b, loc, arith::ExtFOp::create(b, loc, wide, x)));
}
}
