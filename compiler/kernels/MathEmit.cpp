// MathEmit.cpp: the arithmetic that turns formulas into operations.
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/MathFormulas.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/ErrorHandling.h"
#include <cmath>

using namespace mlir;

namespace cinch::kernels {
namespace {

// A float type in place of another's element type, in the same shape.
Type withElement(Type shape, Type element) {
  if (auto vector = dyn_cast<VectorType>(shape))
    return VectorType::get(vector.getShape(), element);
  return element;
}

// The arithmetic of MathFormulas.h on values of one float type.
class EmitArith {
public:
  using V = Value;
  using N = Value;
  using M = Value;

  EmitArith(OpBuilder &builder, Location loc, Type type)
      : b(builder), loc(loc), type(type), f64(getElementTypeOrSelf(type).isF64()),
        integer(withElement(type, b.getIntegerType(f64 ? 64 : 32))) {}

  bool isF64() const { return f64; }
  V c(double number) { return emitNumber(b, loc, type, number); }
  N ic(int64_t number) { return emitInteger(b, loc, integer, number); }
  V add(V x, V y) { return arith::AddFOp::create(b, loc, x, y); }
  V sub(V x, V y) { return arith::SubFOp::create(b, loc, x, y); }
  V mul(V x, V y) { return arith::MulFOp::create(b, loc, x, y); }
  V div(V x, V y) { return arith::DivFOp::create(b, loc, x, y); }
  V fma(V x, V y, V z) { return math::FmaOp::create(b, loc, x, y, z); }
  V neg(V x) { return arith::NegFOp::create(b, loc, x); }
  V abs(V x) { return math::AbsFOp::create(b, loc, x); }
  V sqrt(V x) { return math::SqrtOp::create(b, loc, x); }
  V floor(V x) { return math::FloorOp::create(b, loc, x); }
  V exp2(V x) { return simt::exp2(b, loc, x); }
  V reciprocal(V x) { return simt::reciprocal(b, loc, x); }
  V max(V x, V y) { return arith::MaximumFOp::create(b, loc, x, y); }
  V min(V x, V y) { return arith::MinimumFOp::create(b, loc, x, y); }
  M lt(V x, V y) { return compare(arith::CmpFPredicate::OLT, x, y); }
  M gt(V x, V y) { return compare(arith::CmpFPredicate::OGT, x, y); }
  M eq(V x, V y) { return compare(arith::CmpFPredicate::OEQ, x, y); }
  M ne(V x, V y) { return compare(arith::CmpFPredicate::UNE, x, y); }
  M band(M x, M y) { return arith::AndIOp::create(b, loc, x, y); }
  V select(M m, V x, V y) { return arith::SelectOp::create(b, loc, m, x, y); }
  N bits(V x) { return arith::BitcastOp::create(b, loc, integer, x); }
  V fromBits(N n) { return arith::BitcastOp::create(b, loc, type, n); }
  V toFloat(N n) { return arith::SIToFPOp::create(b, loc, type, n); }
  N iadd(N x, N y) { return arith::AddIOp::create(b, loc, x, y); }
  N isub(N x, N y) { return arith::SubIOp::create(b, loc, x, y); }
  N iand(N x, N y) { return arith::AndIOp::create(b, loc, x, y); }
  N ior(N x, N y) { return arith::OrIOp::create(b, loc, x, y); }
  N ixor(N x, N y) { return arith::XOrIOp::create(b, loc, x, y); }
  N imul(N x, N y) { return arith::MulIOp::create(b, loc, x, y); }
  N iselect(M m, N x, N y) { return arith::SelectOp::create(b, loc, m, x, y); }
  N shr(N x, int n) { return arith::ShRUIOp::create(b, loc, x, ic(n)); }
  N shrBy(N x, N n) { return arith::ShRUIOp::create(b, loc, x, n); }
  N shlBy(N x, N n) { return arith::ShLIOp::create(b, loc, x, n); }
  N shl(N x, int n) { return arith::ShLIOp::create(b, loc, x, ic(n)); }
  N sar(N x, int n) { return arith::ShRSIOp::create(b, loc, x, ic(n)); }
  M ieq(N x, N y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y); }
  M ilt(N x, N y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y); }

  EmitArith wide() { return EmitArith(b, loc, withElement(type, b.getF64Type())); }
  V widen(V x) { return arith::ExtFOp::create(b, loc, withElement(type, b.getF64Type()), x); }
  V narrow(V x) { return arith::TruncFOp::create(b, loc, type, x); }

private:
  M compare(arith::CmpFPredicate predicate, V x, V y) { return arith::CmpFOp::create(b, loc, predicate, x, y); }

  OpBuilder &b;
  Location loc;
  Type type;
  bool f64;
  Type integer;
};

Value emitCompare(OpBuilder &b, Location loc, LoopOp op, Value x, Value y) {
  if (isa<FloatType>(getElementTypeOrSelf(x.getType()))) {
    auto predicate = op == LoopOp::CompareEQ   ? arith::CmpFPredicate::OEQ
                     : op == LoopOp::CompareNE ? arith::CmpFPredicate::UNE
                     : op == LoopOp::CompareLT ? arith::CmpFPredicate::OLT
                     : op == LoopOp::CompareLE ? arith::CmpFPredicate::OLE
                     : op == LoopOp::CompareGT ? arith::CmpFPredicate::OGT
                                               : arith::CmpFPredicate::OGE;
    return arith::CmpFOp::create(b, loc, predicate, x, y);
  }
  bool isBool = getElementTypeOrSelf(x.getType()).isInteger(1); // false < true
  auto predicate = op == LoopOp::CompareEQ   ? arith::CmpIPredicate::eq
                   : op == LoopOp::CompareNE ? arith::CmpIPredicate::ne
                   : op == LoopOp::CompareLT ? (isBool ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt)
                   : op == LoopOp::CompareLE ? (isBool ? arith::CmpIPredicate::ule : arith::CmpIPredicate::sle)
                   : op == LoopOp::CompareGT ? (isBool ? arith::CmpIPredicate::ugt : arith::CmpIPredicate::sgt)
                                             : (isBool ? arith::CmpIPredicate::uge : arith::CmpIPredicate::sge);
  return arith::CmpIOp::create(b, loc, predicate, x, y);
}

// f32/f64 -> i32 cuts towards zero and saturates; NaN becomes 0. To Bool: whether it differs from zero.
Value emitCast(OpBuilder &b, Location loc, Value x, Elem elem) {
  if (elem == Elem::BF16)
    return emitRounded(b, loc, emitCast(b, loc, x, Elem::F32));
  Type from = getElementTypeOrSelf(x.getType());
  Type to = withElement(x.getType(), valueType(b, elem));
  if (x.getType() == to)
    return x;
  if (elem == Elem::Bool) {
    Value zero = isa<FloatType>(from) ? emitNumber(b, loc, x.getType(), 0) : emitInteger(b, loc, x.getType(), 0);
    return emitCompare(b, loc, LoopOp::CompareNE, x, zero);
  }
  if (from.isInteger(1)) {
    if (elem == Elem::I32)
      return arith::ExtUIOp::create(b, loc, to, x);
    return arith::SelectOp::create(b, loc, x, emitNumber(b, loc, to, 1), emitNumber(b, loc, to, 0));
  }
  if (from.isInteger())
    return arith::SIToFPOp::create(b, loc, to, x);
  if (elem == Elem::F64)
    return arith::ExtFOp::create(b, loc, to, x);
  if (elem == Elem::F32)
    return arith::TruncFOp::create(b, loc, to, x);
  EmitArith a(b, loc, x.getType());
  x = a.select(a.eq(x, x), x, a.c(0));
  double greatest = a.isF64() ? 2147483647.0 : 2147483520.0;
  x = a.select(a.gt(x, a.c(greatest)), a.c(greatest), x);
  x = a.select(a.lt(x, a.c(-2147483648.0)), a.c(-2147483648.0), x);
  return arith::FPToSIOp::create(b, loc, to, x);
}

Value emitInt(OpBuilder &b, Location loc, LoopOp op, ArrayRef<Value> x) {
  Type type = x[0].getType();
  bool isBool = getElementTypeOrSelf(type).isInteger(1);
  switch (op) {
  case LoopOp::Neg: return arith::SubIOp::create(b, loc, emitInteger(b, loc, type, 0), x[0]);
  case LoopOp::Abs: return math::AbsIOp::create(b, loc, x[0]);
  case LoopOp::Floor: return x[0];
  case LoopOp::Add: return arith::AddIOp::create(b, loc, x[0], x[1]);
  case LoopOp::Sub: return arith::SubIOp::create(b, loc, x[0], x[1]);
  case LoopOp::Mul: return arith::MulIOp::create(b, loc, x[0], x[1]);
  case LoopOp::Fma: return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, x[0], x[1]), x[2]);
  case LoopOp::Max:
    return isBool ? Value(arith::OrIOp::create(b, loc, x[0], x[1])) : arith::MaxSIOp::create(b, loc, x[0], x[1]);
  case LoopOp::Min:
    return isBool ? Value(arith::AndIOp::create(b, loc, x[0], x[1])) : arith::MinSIOp::create(b, loc, x[0], x[1]);
  default: llvm::report_fatal_error("loop kernel: operation without meaning on integers");
  }
}

} // namespace

// In integers: nothing that a later stage could fold, and the same on every CPU. Half of the last place that stays is added, less one
// where that place is even; a NaN would become an infinity by it, and is cut instead, with its quiet bit set.
Value emitRounded(OpBuilder &b, Location loc, Value x) {
  Type type = withElement(x.getType(), b.getI32Type());
  auto number = [&](int64_t n) { return emitInteger(b, loc, type, n); };
  Value bits = arith::BitcastOp::create(b, loc, type, x);
  Value odd = arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, bits, number(16)), number(1));
  Value up = arith::AddIOp::create(b, loc, bits, arith::AddIOp::create(b, loc, odd, number(0x7fff)));
  Value size = arith::AndIOp::create(b, loc, bits, number(0x7fffffff));
  Value nan = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, size, number(0x7f800000));
  Value quiet = arith::OrIOp::create(b, loc, bits, number(0x400000));
  Value chosen = arith::SelectOp::create(b, loc, nan, quiet, up);
  Value cut = arith::AndIOp::create(b, loc, chosen, number(int64_t(int32_t(0xffff0000))));
  return arith::BitcastOp::create(b, loc, x.getType(), cut);
}

Value emitWidened(OpBuilder &b, Location loc, Value half) {
  Type wide = withElement(half.getType(), b.getI32Type());
  Value bits = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, wide, half), emitInteger(b, loc, wide, 16));
  return arith::BitcastOp::create(b, loc, withElement(half.getType(), b.getF32Type()), bits);
}

Value emitNarrowed(OpBuilder &b, Location loc, Value rounded) {
  Type wide = withElement(rounded.getType(), b.getI32Type());
  Value bits = arith::ShRUIOp::create(b, loc, arith::BitcastOp::create(b, loc, wide, rounded), emitInteger(b, loc, wide, 16));
  return arith::TruncIOp::create(b, loc, withElement(rounded.getType(), b.getI16Type()), bits);
}

Type valueType(OpBuilder &b, Elem elem) {
  switch (elem) {
  case Elem::F32:
  case Elem::BF16: return b.getF32Type();
  case Elem::F64: return b.getF64Type();
  case Elem::I32: return b.getI32Type();
  case Elem::Bool: return b.getI1Type();
  }
  llvm::report_fatal_error("unknown element type");
}

static Value emitConstant(OpBuilder &b, Location loc, Type type, TypedAttr scalar) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vector, Attribute(scalar)));
  return arith::ConstantOp::create(b, loc, scalar);
}

Value emitNumber(OpBuilder &b, Location loc, Type type, double number) {
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element))
    return emitConstant(b, loc, type, b.getFloatAttr(element, number));
  return emitInteger(b, loc, type, int64_t(number));
}

Value emitNumberOfWord(OpBuilder &b, Location loc, Type type, Value word) {
  Value number = arith::BitcastOp::create(b, loc, b.getF64Type(), word);
  return type.isF64() ? number : arith::TruncFOp::create(b, loc, type, number);
}

Value emitInteger(OpBuilder &b, Location loc, Type type, int64_t number) {
  Type element = getElementTypeOrSelf(type);
  if (isa<IndexType>(element))
    return emitConstant(b, loc, type, b.getIndexAttr(number));
  unsigned width = element.getIntOrFloatBitWidth();
  return emitConstant(b, loc, type, b.getIntegerAttr(element, APInt(width, uint64_t(number), true, true)));
}

template <int count, typename Formula> static Value onOperands(ArrayRef<Value> x, Formula formula) {
  if constexpr (count == 1)
    return formula(x[0]);
  else
    return formula(x[0], x[1]);
}

Value emitElementwise(OpBuilder &b, Location loc, LoopOp op, Elem elem, ArrayRef<Value> x) {
  switch (op) {
  case LoopOp::CompareEQ: case LoopOp::CompareNE: case LoopOp::CompareLT:
  case LoopOp::CompareLE: case LoopOp::CompareGT: case LoopOp::CompareGE:
    return emitCompare(b, loc, op, x[0], x[1]);
  case LoopOp::Not:
    return arith::XOrIOp::create(b, loc, x[0], emitInteger(b, loc, x[0].getType(), 1));
  case LoopOp::And: return arith::AndIOp::create(b, loc, x[0], x[1]);
  case LoopOp::Or: return arith::OrIOp::create(b, loc, x[0], x[1]);
  case LoopOp::Select: return arith::SelectOp::create(b, loc, x[0], x[1], x[2]);
  case LoopOp::Cast: return emitCast(b, loc, x[0], elem);
  default: break;
  }
  if (!isa<FloatType>(getElementTypeOrSelf(x[0].getType())))
    return emitInt(b, loc, op, x);
  EmitArith a(b, loc, x[0].getType());
  switch (op) {
#define FORMULA(KIND, FUNCTION, OPERANDS, WEIGHT)                                                                      \
  case LoopOp::KIND: return onOperands<OPERANDS>(x, [&](auto... v) { return formulas::FUNCTION(a, v...); });
#include "dialects/ops/Ops.inc"
  case LoopOp::Fma: return a.fma(x[0], x[1], x[2]);
  default: llvm::report_fatal_error("loop kernel: not an element-wise operation");
  }
}

Value emitApproximate(OpBuilder &b, Location loc, LoopOp op, ArrayRef<Value> x) {
  EmitArith a(b, loc, x[0].getType());
  switch (op) {
  case LoopOp::Exp: return formulas::approximate::exp(a, x[0]);
  case LoopOp::Tanh: return formulas::approximate::tanh(a, x[0]);
  case LoopOp::Sigmoid: return formulas::approximate::sigmoid(a, x[0]);
  case LoopOp::Div: return formulas::approximate::div(a, x[0], x[1]);
  default: llvm::report_fatal_error("loop kernel: no approximation");
  }
}

Value emitExpWithin(OpBuilder &b, Location loc, Value x) {
  EmitArith a(b, loc, x.getType());
  return formulas::expWithin(a, x);
}

std::pair<Value, Value> emitBoxMuller(OpBuilder &b, Location loc, Value u1, Value u2) {
  EmitArith a(b, loc, u1.getType());
  auto pair = formulas::boxMuller(a, u1, u2);
  return {pair.first, pair.second};
}

} // namespace cinch::kernels
