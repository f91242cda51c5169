// Updates.cpp: the learning rate, clipping and updates, written out in element-wise ops. The formulas of clipping and of the
// rules (dialects/ops/Optimizers.cpp) are PyTorch's. Scalars are f64.
#include "dialects/nn/PlainTypes.h"
#include "dialects/ops/Optimizers.h"
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

namespace {
// Nodes of a rule's formula are values.
struct ValueMaker : NodeMaker {
  OpBuilder &builder;
  Location location;
  ValueMaker(OpBuilder &builder, Location location) : builder(builder), location(location) {}

  const void *make(OpKind kind, const std::vector<const void *> &operands, const std::vector<AttrValue> &attributes,
                   const TensorType &result) override {
    auto values = llvm::map_to_vector(operands, [](const void *node) { return Value::getFromOpaquePointer(node); });
    Operation *op = createFromTable(builder, location, kind, values, attributes, typeOf(result, builder.getContext()));
    return op->getResult(0).getAsOpaquePointer();
  }
  Quantity term(Value value) { return Quantity(*this, value.getAsOpaquePointer(), plainType(value.getType())); }
};
} // namespace

SmallVector<Value> UpdateOp::decompose(OpBuilder &builder) {
  ValueMaker maker(builder, getLoc());
  Quantity gradient = maker.term(getGradient());
  if (getFactor())
    gradient = gradient * maker.term(getFactor());
  std::vector<double> values = getOptimizer().getValues().asArrayRef().vec();
  Value step = StepOp::create(builder, getLoc());
  if (Attribute backward = getOperation()->getDiscardableAttr(kBackwardAttr)) // and so is what is computed from it
    step.getDefiningOp()->setDiscardableAttr(kBackwardAttr, backward);
  Update update{getOptimizer().rule(), values, maker.term(getParameter()), gradient, maker.term(getLr()), maker.term(step), {}};
  for (Value state : getState())
    update.state.push_back(maker.term(state));
  update.p = update.rule.formula(update);
  SmallVector<Value> results{Value::getFromOpaquePointer(update.p.node)};
  for (const Quantity &state : update.state)
    results.push_back(Value::getFromOpaquePointer(state.node));
  if (step.use_empty())
    step.getDefiningOp()->erase();
  return results;
}

} // namespace cinch::nn
