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
  Value runValue(int64_t place, double value) {
    return RunValueOp::create(builder, location, uint64_t(place), llvm::APFloat(value));
  }
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

namespace {
// The numbers of a schedule: constants, or values of the run.
struct Course {
  Arithmetic a;
  ScheduleAttr schedule;
  int64_t place; // of warmup among the values of the run; -1: constants

  Value value(int i, double number) { return place < 0 ? a.number(number) : a.runValue(place + i, number); }
  Value warmup() { return value(0, schedule.getWarmup().convertToDouble()); }
  Value end() { return value(1, schedule.getEnd().convertToDouble()); }
  Value power() { return value(2, schedule.getPower().convertToDouble()); }
  Value factor() { return value(3, schedule.getFactor().convertToDouble()); }
  Value every() { return value(4, schedule.getEvery().convertToDouble()); }
  Value decay() { return value(5, schedule.getDecay().convertToDouble()); }
  bool mayWarmUp() const { return place >= 0 || schedule.getWarmup().convertToDouble() > 0; }
};
} // namespace

// The share of the learning rate behind the warm-up.
static Value courseOf(Course c, uint64_t horizonSteps, Value step) {
  Arithmetic a = c.a;
  Value one = a.number(1);
  auto horizon = [&]() -> Value {
    if (horizonSteps)
      return a.number(double(horizonSteps));
    return TotalStepsOp::create(a.builder, a.location);
  };
  auto progress = [&] { // t = (s - w) / max(N - w, 1), cut to [0, 1]
    Value t = a.div(a.sub(step, c.warmup()), a.max(a.sub(horizon(), c.warmup()), one));
    return a.min(a.max(t, a.number(0)), one);
  };
  auto progressOfCycle = [&]() -> Value { // the same between the places where the course begins anew
    ArrayRef<int64_t> places = c.schedule.getAt();
    if (places.empty() && c.schedule.getEvery().isZero())
      return progress();
    if (places.empty()) {
      Value cycles = a.max(a.div(a.sub(step, c.warmup()), c.every()), a.number(0));
      return a.sub(cycles, a.floor(cycles));
    }
    Value begin = c.warmup(), finish = horizon();
    for (int64_t place : places)
      begin = a.where(a.less(step, a.number(double(place))), begin, a.max(a.number(double(place)), c.warmup()));
    for (int64_t place : llvm::reverse(places))
      finish = a.where(a.less(step, a.number(double(place))), a.number(double(place)), finish);
    Value t = a.div(a.sub(step, begin), a.max(a.sub(finish, begin), one));
    return a.min(a.max(t, a.number(0)), one);
  };
  switch (c.schedule.getKind()) {
  case ScheduleKind::Constant: return one;
  case ScheduleKind::Linear: return a.sub(one, a.mul(a.sub(one, c.end()), progress()));
  case ScheduleKind::Cosine: {
    Value cosine = CosOp::create(a.builder, a.location, a.mul(a.number(M_PI), progressOfCycle()));
    return a.add(c.end(), a.mul(a.sub(one, c.end()), a.mul(a.number(0.5), a.add(one, cosine))));
  }
  case ScheduleKind::Polynomial: {
    Value power = a.pow(a.sub(one, progress()), c.power());
    return a.add(c.end(), a.mul(a.sub(one, c.end()), power));
  }
  case ScheduleKind::Inverse_Sqrt: {
    Value start = a.max(c.warmup(), one);
    return a.sqrt(a.div(start, a.max(a.add(step, one), start)));
  }
  case ScheduleKind::Step: {
    if (c.schedule.getAt().empty())
      return a.pow(c.factor(), a.floor(a.div(step, c.every())));
    Value passed = a.number(0);
    for (int64_t at : c.schedule.getAt())
      passed = a.add(passed, a.where(a.less(step, a.number(double(at))), a.number(0), one));
    return a.pow(c.factor(), passed);
  }
  case ScheduleKind::Exponential: return a.pow(c.factor(), a.div(step, c.every()));
  case ScheduleKind::WSD: {
    Value start = a.sub(horizon(), c.decay());
    Value share = a.sub(one, a.mul(a.sub(one, c.end()), a.div(a.sub(step, start), c.decay())));
    return a.where(a.less(step, start), one, share);
  }
  }
  return one;
}

SmallVector<Value> LearningRateOp::decompose(OpBuilder &builder) {
  Arithmetic a = scalars(builder, getLoc());
  bool given = getValues().has_value();
  Course course{a, getSchedule(), given ? (*getValues())[1] : -1};
  double lr = getLr().convertToDouble();
  Value rate = given ? a.runValue((*getValues())[0], lr) : a.number(lr);
  if (!course.mayWarmUp() && getSchedule().getKind() == ScheduleKind::Constant)
    return {rate};
  Value step = StepOp::create(builder, getLoc());
  Value share = courseOf(course, getHorizon(), step);
  if (course.mayWarmUp()) // a warm-up of 0 steps is behind every step
    share = a.where(a.less(step, course.warmup()), a.div(a.add(step, a.number(1)), course.warmup()), share);
  return {a.mul(rate, share)};
}

SmallVector<Value> ClipFactorOp::decompose(OpBuilder &builder) {
  Arithmetic a = scalars(builder, getLoc());
  double number = getLimit().convertToDouble();
  Value limit = getValues() ? a.runValue(int64_t(*getValues()), number) : a.number(number);
  return {a.min(a.number(1), a.div(limit, a.add(getNorm(), a.number(1e-6))))};
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
  std::vector<Quantity> hyperparameters(values.begin(), values.end());
  Arithmetic arithmetic = scalars(builder, getLoc());
  for (size_t i = 0; getValues() && i < values.size(); ++i)
    hyperparameters[i] = maker.term(arithmetic.runValue(int64_t(*getValues() + i), values[i]));
  Update update{getOptimizer().rule(), values, hyperparameters, maker.term(getParameter()), gradient, maker.term(getLr()),
                maker.term(step), {}};
  for (Value state : getState())
    update.state.push_back(maker.term(state));
  update.p = update.rule.formula(update);
  SmallVector<Value> results{Value::getFromOpaquePointer(update.p.node)};
  for (const Quantity &state : update.state)
    results.push_back(Value::getFromOpaquePointer(state.node));
  if (step.use_empty())
    step.getDefiningOp()->erase();
  for (const Quantity &each : hyperparameters) // those that the formula does without
    if (each.maker)
      if (Value value = Value::getFromOpaquePointer(each.node); value.use_empty())
        value.getDefiningOp()->erase();
  return results;
}

} // namespace cinch::nn
