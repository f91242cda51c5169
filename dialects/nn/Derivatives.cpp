// Derivatives.cpp: the derivative table. For every op the formula, the values it is computed from (`savedValues`), and
// the gradient of each operand (`buildBackward`). dy is the gradient of the result, 0 stands for no gradient.
//
// Which saved value a formula reads is part of the language's numbers: reading y instead of x changes bits. The choice
// is the one that is cheap to recompute or that the forward pass has at hand.
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/Shards.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Winograd.h"
#include <cmath>

using namespace mlir;

namespace cinch::nn {

using Values = SmallVector<Value>;
using Wanted = ArrayRef<bool>;

// ---- Functions of one value: name, what is saved (s), gradient ------------------------------------------------------
#define UNARY(OP, SAVED, GRADIENT)                                                                                  \
  Values OP::savedValues(Wanted) { return SAVED; }                                                                  \
  Values OP::buildBackward(GradientBuilder &b, ValueRange s, ValueRange grads, Wanted) {                            \
    Value dy = grads[0];                                                                                            \
    return {GRADIENT};                                                                                              \
  }
#define SAVE(...) (Values{__VA_ARGS__})

UNARY(NegOp, SAVE(), b.neg(dy))                                                    // -dy
UNARY(ExpOp, SAVE(getResult()), b.mul(dy, s[0]))                                   // dy y
UNARY(Expm1Op, SAVE(getResult()), b.mul(dy, b.add(s[0], b.like(dy, 1))))           // dy (y + 1)
UNARY(LogOp, SAVE(getX()), b.div(dy, s[0]))                                        // dy / x
UNARY(Log1pOp, SAVE(getX()), b.div(dy, b.add(s[0], b.like(dy, 1))))                // dy / (x + 1)
UNARY(SqrtOp, SAVE(getResult()), b.div(b.mul(dy, b.like(dy, 0.5)), s[0]))          // (dy / 2) / y
UNARY(SinOp, SAVE(getX()), b.mul(dy, b.make<CosOp>(s[0])))                         // dy cos x
UNARY(CosOp, SAVE(getX()), b.neg(b.mul(dy, b.make<SinOp>(s[0]))))                  // -(dy sin x)
UNARY(AsinhOp, SAVE(getX()),                                                       // dy / sqrt(x x + 1)
      b.div(dy, b.make<SqrtOp>(b.add(b.mul(s[0], s[0]), b.like(dy, 1)))))
UNARY(TanhOp, SAVE(getResult()), b.mul(dy, b.sub(b.like(dy, 1), b.mul(s[0], s[0]))))    // dy (1 - y y)
UNARY(SigmoidOp, SAVE(getResult()), b.mul(dy, b.mul(s[0], b.sub(b.like(dy, 1), s[0])))) // dy (y (1 - y))
UNARY(SoftplusOp, SAVE(getX()), b.mul(dy, b.make<SigmoidOp>(s[0])))                // dy sigmoid(x)
UNARY(ErfOp, SAVE(getX()),                                                         // dy (2 / sqrt(pi) exp(-x x))
      b.mul(dy, b.mul(b.like(dy, 2 / std::sqrt(M_PI)), b.make<ExpOp>(b.neg(b.mul(s[0], s[0]))))))
UNARY(AbsOp, SAVE(getX()),                                                         // dy, -dy or 0 by the sign of x
      b.where(b.compare(Comparison::GT, s[0], b.like(dy, 0)), dy,
              b.where(b.compare(Comparison::LT, s[0], b.like(dy, 0)), b.neg(dy), b.like(dy, 0))))
UNARY(GroupMeanOp, SAVE(), b.make<GroupMeanOp>(dy, getGroup()))                    // the mean of dy over the group
UNARY(SoftmaxOp, SAVE(getResult()), b.make<SoftmaxGradOp>(s[0], dy, getAxis()))
UNARY(LogSoftmaxOp, SAVE(getResult()), b.make<LogSoftmaxGradOp>(s[0], dy, getAxis()))

// ---- Shape: the inverse ---------------------------------------------------------------------------------------------
UNARY(ReshapeOp, SAVE(), b.reshape(dy, getX().getType()))
UNARY(ReverseOp, SAVE(), b.make<ReverseOp>(dy, getAxis()))
UNARY(SliceOp, SAVE(),
      b.make<PadOp>(dy, getAxis(), getBegin(), getX().getType().getDimSize(getAxis()) - getEnd(),
                      APFloat(0.0)))
UNARY(PadOp, SAVE(),
      b.make<SliceOp>(dy, getAxis(), getBefore(), getBefore() + getX().getType().getDimSize(getAxis())))
UNARY(CastOp, SAVE(), b.make<CastOp>(getX().getType(), dy))

Values TransposeOp::savedValues(Wanted) { return {}; }
Values TransposeOp::buildBackward(GradientBuilder &b, ValueRange, ValueRange dy, Wanted) {
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [to, from] : llvm::enumerate(getPermutation()))
    inverse[from] = to;
  return {b.transpose(dy[0], inverse)};
}

// Axes of `rank` that are not in `axes`.
static SmallVector<int64_t> otherAxes(int64_t rank, ArrayRef<int64_t> axes) {
  SmallVector<int64_t> others;
  for (int64_t axis = 0; axis < rank; ++axis)
    if (!llvm::is_contained(axes, axis))
      others.push_back(axis);
  return others;
}

// One sum over all new axes.
Values BroadcastOp::savedValues(Wanted) { return {}; }
Values BroadcastOp::buildBackward(GradientBuilder &b, ValueRange, ValueRange dy, Wanted) {
  return {b.sum(dy[0], otherAxes(getType().getRank(), getAxes()))};
}

Values ConcatOp::savedValues(Wanted) { return {}; }
Values ConcatOp::buildBackward(GradientBuilder &b, ValueRange, ValueRange dy, Wanted wanted) {
  Values grads;
  int64_t begin = 0;
  for (auto [operand, want] : llvm::zip_equal(getOperands(), wanted)) {
    int64_t end = begin + tensorOf(operand).getDimSize(getAxis());
    grads.push_back(want ? b.make<SliceOp>(dy[0], getAxis(), begin, end) : Value());
    begin = end;
  }
  return grads;
}

// ---- Functions of two values ----------------------------------------------------------------------------------------
// dy; dy
Values AddOp::savedValues(Wanted) { return {}; }
Values AddOp::buildBackward(GradientBuilder &b, ValueRange, ValueRange dy, Wanted) { return {dy[0], dy[0]}; }

// dy; -dy
Values SubOp::savedValues(Wanted) { return {}; }
Values SubOp::buildBackward(GradientBuilder &b, ValueRange, ValueRange dy, Wanted wanted) {
  return {dy[0], wanted[1] ? b.neg(dy[0]) : Value()};
}

// dy b; dy a
Values MulOp::savedValues(Wanted wanted) {
  Values saved;
  if (wanted[0])
    saved.push_back(getB());
  if (wanted[1])
    saved.push_back(getA());
  return saved;
}
Values MulOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  if (getA() == getB())
    return Values(2, b.mul(dy[0], saved.front()));
  return {wanted[0] ? b.mul(dy[0], saved.front()) : Value(), wanted[1] ? b.mul(dy[0], saved.back()) : Value()};
}

// t = dy / b: t; -(t y)
Values DivOp::savedValues(Wanted wanted) { return wanted[1] ? Values{getB(), getResult()} : Values{getB()}; }
Values DivOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  Value t = b.div(dy[0], saved[0]);
  return {t, wanted[1] ? b.neg(b.mul(t, saved[1])) : Value()};
}

// dy (b a^(b - 1)), 0 where b is 0; dy (y log a), 0 where a <= 0
Values PowOp::savedValues(Wanted wanted) {
  return wanted[1] ? Values{getA(), getB(), getResult()} : Values{getA(), getB()};
}
Values PowOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  Value base = saved[0], exponent = saved[1], one = b.like(base, 1), zero = b.like(base, 0), da, db;
  if (wanted[0]) {
    auto number = splatNumber(exponent);
    Value power = number ? b.power(base, *number - 1) : b.make<PowOp>(base, b.sub(exponent, one)).getResult();
    da = b.mul(dy[0], b.mul(exponent, power));
    if (!number) // 0 times an infinity, where a is 0, too
      da = b.where(b.compare(Comparison::EQ, exponent, b.like(exponent, 0)), zero, da);
  }
  if (wanted[1])
    db = b.where(b.compare(Comparison::GT, base, zero), b.mul(dy[0], b.mul(saved[2], b.make<LogOp>(base))), zero);
  return {da, db};
}

// The branch taken; b at a tie.
static Values backwardOfChoice(GradientBuilder &b, Comparison takesA, ValueRange saved, Value dy, Wanted wanted) {
  Value condition = b.compare(takesA, saved[0], saved[1]), zero = b.like(dy, 0);
  return {wanted[0] ? b.where(condition, dy, zero) : Value(), wanted[1] ? b.where(condition, zero, dy) : Value()};
}
Values MaxOp::savedValues(Wanted) { return {getA(), getB()}; }
Values MaxOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  return backwardOfChoice(b, Comparison::GT, saved, dy[0], wanted);
}
Values MinOp::savedValues(Wanted) { return {getA(), getB()}; }
Values MinOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  return backwardOfChoice(b, Comparison::LT, saved, dy[0], wanted);
}

// 0; where(c, dy, 0); where(c, 0, dy)
Values WhereOp::savedValues(Wanted) { return {getCondition()}; }
Values WhereOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  Value zero = b.like(dy[0], 0);
  return {Value(), wanted[1] ? b.where(saved[0], dy[0], zero) : Value(),
          wanted[2] ? b.where(saved[0], zero, dy[0]) : Value()};
}

// ---- Reductions -----------------------------------------------------------------------------------------------------
// max and min: dy goes to the first of the largest (row-major over the reduced axes), whose place is computed from x
// again.
static Value backwardOfExtreme(GradientBuilder &b, ReduceOp op, Value x, Value dy) {
  auto type = tensorOf(x);
  SmallVector<int64_t> kept = otherAxes(type.getRank(), op.getAxes()), order(kept), rowShape, reducedShape;
  int64_t batch = -1, count = 1;
  for (auto [place, axis] : llvm::enumerate(kept)) {
    rowShape.push_back(type.getDimSize(axis));
    if (axis == batchAxis(type))
      batch = place;
  }
  for (int64_t axis : op.getAxes()) {
    order.push_back(axis);
    reducedShape.push_back(type.getDimSize(axis));
    count *= type.getDimSize(axis);
  }
  rowShape.push_back(count);
  Value rows = b.reshape(b.transpose(x, order), tensorType(rowShape, type.getElementType(), batch, batchGroup(type)));
  int64_t last = rowShape.size() - 1;
  Value place = op.getReduction() == Reduction::Max ? b.make<ArgMaxOp>(rows, last).getResult()
                                                    : b.make<ArgMinOp>(rows, last).getResult();
  auto integer = tensorOf(place).getElementType();
  auto range = b.make<RangeOp>(tensorType({count}, integer, -1));
  Value number = b.reshape(range, tensorType(reducedShape, integer, -1));
  auto full = withElement(type, integer);
  Value here = b.compare(Comparison::EQ, b.broadcast(number, op.getAxes(), full), b.broadcast(place, kept, full));
  return b.where(here, b.broadcast(dy, kept, type), b.like(x, 0));
}

// prod: dy times the product of the others: y / x if no factor is 0; if one is, the others' product there.
static Value backwardOfProduct(GradientBuilder &b, ReduceOp op, Value x, Value dy) {
  auto type = tensorOf(x);
  SmallVector<int64_t> kept = otherAxes(type.getRank(), op.getAxes());
  auto spread = [&](Value row) { return b.broadcast(row, kept, type); };
  Value zero = b.like(x, 0), one = b.like(x, 1), isZero = b.compare(Comparison::EQ, x, zero);
  Value others = b.where(isZero, one, x);
  Value product = spread(b.make<ReduceOp>(Reduction::Prod, others, op.getAxes()));
  Value zeros = spread(b.sum(b.where(isZero, one, zero), op.getAxes()));
  Value atZero = b.where(b.compare(Comparison::EQ, zeros, one), product, zero);
  Value elsewhere = b.where(b.compare(Comparison::EQ, zeros, zero), b.div(product, others), zero);
  return b.mul(spread(dy), b.where(isZero, atZero, elsewhere));
}

Values ReduceOp::savedValues(Wanted) { return getReduction() == Reduction::Sum ? Values{} : Values{getX()}; }
Values ReduceOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted) {
  switch (getReduction()) {
  case Reduction::Sum:
    return {b.broadcast(dy[0], otherAxes(getX().getType().getRank(), getAxes()), getX().getType())};
  case Reduction::Max:
  case Reduction::Min:
    return {backwardOfExtreme(b, *this, saved[0], dy[0])};
  case Reduction::Prod:
    return {backwardOfProduct(b, *this, saved[0], dy[0])};
  case Reduction::Any:
  case Reduction::All:
    break;
  }
  return {Value()};
}

// ---- Contractions and places ----------------------------------------------------------------------------------------
// A product or a convolution of bf16.
template <typename Product>
static bool isRounded(Product op) {
  return op->hasAttr(kBF16Attr) || op.getLhs().getType().getElementType().isBF16() || op.getRhs().getType().getElementType().isBF16();
}

// The type of a sum that is rounded only as a contribution to the gradient of what has `type`.
static RankedTensorType wideType(GradientBuilder &b, RankedTensorType type) {
  return type.getElementType().isBF16() ? withElement(type, b.opBuilder().getF32Type()) : type;
}

// Gradient of one operand of a contraction: a contraction of dy with the other operand over every label that the
// operand lacks, the batch slowest, then in the order of the labels.
static Value backwardOfContract(GradientBuilder &b, ContractOp op, bool ofLhs, Value other, Value dy) {
  auto target = ofLhs ? op.getLhs().getType() : op.getRhs().getType();
  ArrayRef<int64_t> targetLabels = ofLhs ? op.getLhsLabels() : op.getRhsLabels();
  ArrayRef<int64_t> otherLabels = ofLhs ? op.getRhsLabels() : op.getLhsLabels();
  llvm::SmallDenseMap<int64_t, int64_t> renamed;
  for (auto [axis, label] : llvm::enumerate(targetLabels))
    renamed[label] = axis;
  SmallVector<int64_t> summed;
  int64_t rank = op.getType().getRank(), batch = batchAxis(op.getType());
  for (int64_t label = 0; label < rank; ++label)
    if (!renamed.count(label))
      summed.push_back(label);
  llvm::stable_sort(summed, [&](int64_t x, int64_t y) { return x == batch && y != batch; });
  for (auto [place, label] : llvm::enumerate(summed))
    renamed[label] = target.getRank() + place;
  auto rename = [&](auto labels) {
    return llvm::map_to_vector(labels, [&](int64_t label) { return renamed.lookup(label); });
  };
  SmallVector<int64_t> dyLabels = rename(llvm::seq<int64_t>(0, rank)), others = rename(otherLabels);
  if (isRounded(op))
    dy = b.rounded(dy);
  target = wideType(b, target);
  if (ofLhs)
    return b.make<ContractOp>(target, dy, other, dyLabels, others);
  return b.make<ContractOp>(target, other, dy, others, dyLabels);
}

Values ContractOp::savedValues(Wanted wanted) {
  Values saved;
  if (wanted[0])
    saved.push_back(getRhs());
  if (wanted[1])
    saved.push_back(getLhs());
  return saved;
}
Values ContractOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  return {wanted[0] ? backwardOfContract(b, *this, true, saved.front(), dy[0]) : Value(),
          wanted[1] ? backwardOfContract(b, *this, false, saved.back(), dy[0]) : Value()};
}

// dx[.., index, ..] += dy
Values GatherOp::savedValues(Wanted) { return llvm::to_vector(getIndices()); }
Values GatherOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  Values grads(wanted.size());
  RankedTensorType type = wideType(b, getX().getType());
  Value updates = dy[0];
  if (getX().getType() != type) // contributions are summed in f32
    updates = b.make<CastOp>(withElement(tensorOf(updates), type.getElementType()), updates);
  grads[0] = b.make<ScatterAddOp>(type, updates, saved, getXLabels(), getIndexLabels());
  return grads;
}

// ---- Convolutions and pools -----------------------------------------------------------------------------------------
// Each of the three tensors of a convolution is linear in each of the other two: gradients are convolutions that give the
// operand, from dy in the place of the result and the other operand.
Values ConvOp::savedValues(Wanted wanted) {
  Values saved;
  if (wanted[0])
    saved.push_back(getRhs());
  if (wanted[1])
    saved.push_back(getLhs());
  return saved;
}
Values ConvOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted wanted) {
  Value rounded = isRounded(*this) ? b.rounded(dy[0]) : dy[0];
  auto gradient = [&](Value of, Value other, Value otherValue) {
    llvm::SmallDenseMap<int, Value> values; // by part
    ConvPart wants = ConvPart::Output;
    for (ConvPart each : {ConvPart::Output, ConvPart::Image, ConvPart::Filter}) {
      Value value = part(each);
      if (each == getGives())
        values[int(each)] = rounded;
      else if (value == other)
        values[int(each)] = otherValue;
      else
        wants = each;
    }
    Value first = values.lookup(int(wants == ConvPart::Image ? ConvPart::Output : ConvPart::Image));
    Value second = values.lookup(int(wants == ConvPart::Filter ? ConvPart::Output : ConvPart::Filter));
    auto conv = b.make<ConvOp>(wideType(b, tensorOf(of)), first, second, wants, getStride(), getPad(), getDilate(), getGroups());
    if ((*this)->hasAttr(wants == ConvPart::Filter ? kWinogradFilterAttr : kWinogradAttr))
      conv->setAttr(kWinogradAttr, b.opBuilder().getUnitAttr());
    return conv.getResult();
  };
  return {wanted[0] ? gradient(getLhs(), getRhs(), saved.front()) : Value(),
          wanted[1] ? gradient(getRhs(), getLhs(), saved.back()) : Value()};
}

Values MaxPoolOp::savedValues(Wanted) { return {getPlace()}; }
Values MaxPoolOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange grads, Wanted) {
  RankedTensorType wide = wideType(b, tensorOf(grads[0]));
  Value dy = tensorOf(grads[0]) == wide ? grads[0] : Value(b.make<CastOp>(wide, grads[0]));
  return {b.make<MaxPoolGradOp>(wideType(b, tensorOf(getX())), saved[0], dy, getWindow(), getStride(), getPad())};
}

UNARY(SumPoolOp, SAVE(), b.make<SumPoolGradOp>(wideType(b, tensorOf(getX())), dy, getWindow(), getStride(), getPad()))

// ---- Losses and attention -------------------------------------------------------------------------------------------
Values CrossEntropyOp::savedValues(Wanted) { return {getLogits(), getY()}; }
Values CrossEntropyOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange dy, Wanted) {
  return {b.make<CrossEntropyGradOp>(getLogits().getType(), saved[0], saved[1], dy[0], getAxisAttr(), getSmoothAttr(),
                                     getExceptAttr()),
          Value()};
}

Values AttendOp::savedValues(Wanted) {
  Values saved{getQ(), getK(), getV(), getO(), getLse()};
  if (getKeys())
    saved.push_back(getKeys());
  if (getBias())
    saved.push_back(getBias());
  return saved;
}
Values AttendOp::buildBackward(GradientBuilder &b, ValueRange saved, ValueRange grads, Wanted wanted) {
  Value keys = getKeys() ? saved[5] : Value(), bias = getBias() ? saved.back() : Value();
  bool wantsBias = bias && wanted.back();
  auto grad = b.make<AttendGradOp>(saved[0].getType(), saved[1].getType(), saved[2].getType(),
                                   wantsBias ? bias.getType() : mlir::Type(), saved[0], saved[1], saved[2], saved[3],
                                   saved[4], grads[0], keys, bias, getScaleAttr(), getCausalAttr(), getDropoutAttr(),
                                   getKeyAttr());
  for (llvm::StringRef kept : {kBF16Attr, kOtherHeadsAttr})
    if (mlir::Attribute attribute = (*this)->getAttr(kept))
      grad->setAttr(kept, attribute);
  Values result{grad.getDq(), grad.getDk(), grad.getDv()};
  result.resize(wanted.size());
  if (wantsBias)
    result.back() = grad.getDbias();
  return result;
}

} // namespace cinch::nn
