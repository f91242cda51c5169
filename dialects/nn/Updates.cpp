// Updates.cpp: the definitions of the learning rate, clipping and the update rules, written out in element-wise ops.
// The formulas are PyTorch's (torch.optim.SGD, Adam, AdamW; clip_grad_norm_). Scalars are f64.
#include "dialects/nn/NN.h"
#include <cmath>

using namespace mlir;

namespace cinch::nn {

namespace {
// Arithmetic on values of one type, numbers being constants of that type.
struct Arithmetic {
  OpBuilder &builder;
  Location location;
  RankedTensorType type;

  Value number(double value) { return ConstantOp::create(builder, location, type, builder.getF64FloatAttr(value)); }
  template <typename Op> Value make(Value a, Value b) { return Op::create(builder, location, a, b); }
  Value add(Value a, Value b) { return make<AddOp>(a, b); }
  Value sub(Value a, Value b) { return make<SubOp>(a, b); }
  Value mul(Value a, Value b) { return make<MulOp>(a, b); }
  Value div(Value a, Value b) { return make<DivOp>(a, b); }
  Value pow(Value a, Value b) { return make<PowOp>(a, b); }
  Value max(Value a, Value b) { return make<MaxOp>(a, b); }
  Value min(Value a, Value b) { return make<MinOp>(a, b); }
  Value sqrt(Value x) { return SqrtOp::create(builder, location, x); }
  Value floor(Value x) { return FloorOp::create(builder, location, x); }
  Value less(Value a, Value b) { return CompareOp::create(builder, location, Comparison::LT, a, b); }
  Value where(Value condition, Value a, Value b) { return WhereOp::create(builder, location, condition, a, b); }

  // An f64 scalar, rounded to the element type and spread over the shape.
  Value spread(Value scalar) {
    Type element = type.getElementType();
    if (!element.isF64())
      scalar = CastOp::create(builder, location, RankedTensorType::get({}, element), scalar);
    if (type.getRank() == 0)
      return scalar;
    return BroadcastOp::create(builder, location, type, scalar, ArrayRef<int64_t>());
  }
};
} // namespace

static Arithmetic scalars(OpBuilder &builder, Location location) {
  return {builder, location, RankedTensorType::get({}, builder.getF64Type())};
}

// The share of the learning rate behind the warm-up.
static Value courseOf(Arithmetic a, LearningRateOp op, Value step) {
  auto schedule = op.getSchedule();
  double warmup = schedule.getWarmup().convertToDouble(), end = schedule.getEnd().convertToDouble();
  double decay = schedule.getDecay().convertToDouble(), every = schedule.getEvery().convertToDouble();
  Value one = a.number(1), factor = a.number(schedule.getFactor().convertToDouble());
  auto horizon = [&]() -> Value {
    if (op.getHorizon())
      return a.number(double(op.getHorizon()));
    return TotalStepsOp::create(a.builder, a.location);
  };
  auto progress = [&] { // t = (s - w) / max(N - w, 1), cut to [0, 1]
    Value t = a.div(a.sub(step, a.number(warmup)), a.max(a.sub(horizon(), a.number(warmup)), one));
    return a.min(a.max(t, a.number(0)), one);
  };
  switch (schedule.getKind()) {
  case ScheduleKind::Constant: return one;
  case ScheduleKind::Linear: return a.sub(one, a.mul(a.number(1 - end), progress()));
  case ScheduleKind::Cosine: {
    Value cosine = CosOp::create(a.builder, a.location, a.mul(a.number(M_PI), progress()));
    return a.add(a.number(end), a.mul(a.number(1 - end), a.mul(a.number(0.5), a.add(one, cosine))));
  }
  case ScheduleKind::Polynomial: {
    Value power = a.pow(a.sub(one, progress()), a.number(schedule.getPower().convertToDouble()));
    return a.add(a.number(end), a.mul(a.number(1 - end), power));
  }
  case ScheduleKind::Inverse_Sqrt: {
    Value start = a.number(std::max(warmup, 1.0));
    return a.sqrt(a.div(start, a.max(a.add(step, one), start)));
  }
  case ScheduleKind::Step: {
    if (schedule.getAt().empty())
      return a.pow(factor, a.floor(a.div(step, a.number(every))));
    Value passed = a.number(0);
    for (int64_t at : schedule.getAt())
      passed = a.add(passed, a.where(a.less(step, a.number(double(at))), a.number(0), one));
    return a.pow(factor, passed);
  }
  case ScheduleKind::Exponential: return a.pow(factor, a.div(step, a.number(every)));
  case ScheduleKind::WSD: {
    Value start = a.sub(horizon(), a.number(decay));
    Value share = a.sub(one, a.mul(a.number(1 - end), a.div(a.sub(step, start), a.number(decay))));
    return a.where(a.less(step, start), one, share);
  }
  }
  return one;
}

SmallVector<Value> LearningRateOp::decompose(OpBuilder &builder) {
  Arithmetic a = scalars(builder, getLoc());
  double warmup = getSchedule().getWarmup().convertToDouble();
  Value rate = a.number(getLr().convertToDouble());
  if (warmup == 0 && getSchedule().getKind() == ScheduleKind::Constant)
    return {rate};
  Value step = StepOp::create(builder, getLoc());
  Value share = courseOf(a, *this, step);
  if (warmup > 0)
    share = a.where(a.less(step, a.number(warmup)), a.div(a.add(step, a.number(1)), a.number(warmup)), share);
  return {a.mul(rate, share)};
}

SmallVector<Value> ClipFactorOp::decompose(OpBuilder &builder) {
  Arithmetic a = scalars(builder, getLoc());
  return {a.min(a.number(1), a.div(a.number(getLimit().convertToDouble()), a.add(getNorm(), a.number(1e-6))))};
}

SmallVector<Value> SgdOp::decompose(OpBuilder &builder) {
  Arithmetic a{builder, getLoc(), getParameter().getType()};
  double decay = getDecay().convertToDouble();
  Value p = getParameter(), g = getGradient(), v;
  if (getFactor())
    g = a.mul(g, a.spread(getFactor()));
  if (decay != 0)
    g = a.add(g, a.mul(a.number(decay), p));
  Value direction = g;
  if (getVelocity()) {
    Value momentum = a.number(getMomentum().convertToDouble());
    v = a.add(a.mul(momentum, getVelocity()), g);
    direction = getNesterov() ? a.add(g, a.mul(momentum, v)) : v;
  }
  SmallVector<Value> results{a.sub(p, a.mul(a.spread(getLr()), direction))};
  if (v)
    results.push_back(v);
  return results;
}

SmallVector<Value> AdamOp::decompose(OpBuilder &builder) {
  Arithmetic s = scalars(builder, getLoc()), a{builder, getLoc(), getParameter().getType()};
  double beta1 = getBeta1().convertToDouble(), beta2 = getBeta2().convertToDouble();
  double decay = getDecay().convertToDouble();
  Value one = s.number(1), t = s.add(getStep(), one);
  Value rate = s.div(getLr(), s.sub(one, s.pow(s.number(beta1), t)));
  Value root = s.sqrt(s.sub(one, s.pow(s.number(beta2), t)));
  Value p = getParameter(), g = getGradient();
  if (getFactor())
    g = a.mul(g, a.spread(getFactor()));
  if (decay != 0 && getDecoupled())
    p = a.mul(p, a.spread(s.sub(one, s.mul(getLr(), s.number(decay)))));
  else if (decay != 0)
    g = a.add(g, a.mul(a.number(decay), p));
  Value m = a.add(a.mul(a.number(beta1), getM()), a.mul(a.number(1 - beta1), g));
  Value v = a.add(a.mul(a.number(beta2), getV()), a.mul(a.mul(a.number(1 - beta2), g), g));
  Value denominator = a.add(a.div(a.sqrt(v), a.spread(root)), a.number(getEps().convertToDouble()));
  return {a.sub(p, a.mul(a.spread(rate), a.div(m, denominator))), m, v};
}

} // namespace cinch::nn
