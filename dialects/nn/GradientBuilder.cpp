// GradientBuilder.cpp: the simplifications of GradientBuilder.h.
#include "dialects/nn/GradientBuilder.h"
#include <cmath>

using namespace mlir;

namespace cinch::nn {

Value GradientBuilder::constant(Type type, double number) {
  Value &value = constants[{type, llvm::bit_cast<uint64_t>(number)}];
  if (!value)
    value = make<ConstantOp>(type, builder.getF64FloatAttr(number));
  return value;
}

// Both operands are constants: the result is one, rounded as the op would round it (a double holds the exact sum or
// product of two f32 closely enough that rounding twice is rounding once: 53 >= 2 * 24 + 2).
Value GradientBuilder::fold(Value a, Value b, double (*operation)(double, double)) {
  auto x = splatNumber(a), y = splatNumber(b);
  if (!x || !y)
    return Value();
  mlir::Type element = tensorOf(a).getElementType();
  if (element.isF64())
    return like(a, operation(*x, *y));
  if (element.isF32())
    return like(a, float(operation(float(*x), float(*y))));
  return Value();
}

Value GradientBuilder::neg(Value x) {
  if (auto number = splatNumber(x))
    return like(x, -*number);
  return make<NegOp>(x);
}

Value GradientBuilder::add(Value a, Value b) {
  if (Value folded = fold(a, b, [](double x, double y) { return x + y; }))
    return folded;
  return make<AddOp>(a, b);
}

Value GradientBuilder::sub(Value a, Value b) {
  if (Value folded = fold(a, b, [](double x, double y) { return x - y; }))
    return folded;
  return make<SubOp>(a, b);
}

Value GradientBuilder::mul(Value a, Value b) {
  if (splatNumber(a) == 1.0)
    return b;
  if (splatNumber(b) == 1.0)
    return a;
  if (Value folded = fold(a, b, [](double x, double y) { return x * y; }))
    return folded;
  return make<MulOp>(a, b);
}

Value GradientBuilder::div(Value a, Value b) {
  if (splatNumber(b) == 1.0)
    return a;
  if (Value folded = fold(a, b, [](double x, double y) { return x / y; }))
    return folded;
  return make<DivOp>(a, b);
}

Value GradientBuilder::power(Value x, double exponent) {
  double whole = std::fabs(exponent);
  if (exponent == 0)
    return like(x, 1);
  if (exponent == 0.5)
    return make<SqrtOp>(x);
  if (exponent < 0 && (whole == 0.5 || (std::floor(whole) == whole && whole <= 16)))
    return div(like(x, 1), power(x, whole));
  if (std::floor(whole) != whole || whole > 16)
    return make<PowOp>(x, like(x, exponent));
  Value result = x; // from the highest bit of the exponent: square, and times x where a bit is set
  for (int bit = std::ilogb(whole) - 1; bit >= 0; --bit) {
    result = mul(result, result);
    if (int(whole) >> bit & 1)
      result = mul(result, x);
  }
  return result;
}

Value GradientBuilder::compare(Comparison comparison, Value a, Value b) { return make<CompareOp>(comparison, a, b); }

Value GradientBuilder::where(Value condition, Value a, Value b) { return make<WhereOp>(condition, a, b); }

Value GradientBuilder::broadcast(Value x, ArrayRef<int64_t> axes, Type type) {
  if (tensorOf(x) == type)
    return x;
  if (auto number = splatNumber(x))
    return constant(type, *number);
  return make<BroadcastOp>(type, x, axes);
}

Value GradientBuilder::reshape(Value x, Type type) {
  if (tensorOf(x) == type)
    return x;
  if (auto number = splatNumber(x))
    return constant(type, *number);
  return make<ReshapeOp>(type, x);
}

Value GradientBuilder::rounded(Value x) {
  auto narrow = withElement(tensorOf(x), builder.getBF16Type());
  if (auto widened = x.getDefiningOp<CastOp>(); widened && widened.getX().getType() == narrow)
    return widened.getX();
  return make<CastOp>(narrow, x);
}

Value GradientBuilder::transpose(Value x, ArrayRef<int64_t> permutation) {
  if (llvm::is_sorted(permutation))
    return x;
  return make<TransposeOp>(x, permutation);
}

Value GradientBuilder::sum(Value x, ArrayRef<int64_t> axes) {
  if (axes.empty())
    return x;
  return make<ReduceOp>(Reduction::Sum, x, axes);
}

} // namespace cinch::nn
