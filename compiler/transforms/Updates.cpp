// Updates.cpp: norm, clipping and updates behind the backward sweep. The rules stand in dialects/ops/Optimizers.cpp.
#include "compiler/transforms/Updates.h"
#include "dialects/nn/Versions.h"
#include "dialects/ops/Optimizers.h"
#include "dialects/nn/Shards.h"

#include <map>

using namespace mlir;

namespace cinch {

bool isTrained(func::FuncOp function, BlockArgument argument) {
  unsigned number = argument.getArgNumber();
  return function.getArgAttr(number, nn::kPathAttr) && !function.getArgAttr(number, nn::kFrozenAttr) &&
         !function.getArgAttr(number, nn::kStateAttr) &&
         isa<FloatType>(nn::tensorOf(argument).getElementType());
}

namespace {
// A result of @train and the attribute that says what it is.
struct Named {
  Value value;
  StringRef attribute;
  std::string name;
};

class UpdateBuilder {
public:
  UpdateBuilder(func::FuncOp function, nn::TrainingAttr training, nn::GradientBuilder &builder)
      : function(function), training(training), builder(builder), attributes(function.getContext()) {
    if (auto given = function->getAttrOfType<DenseI64ArrayAttr>(nn::kRunValuesAttr))
      places = given.asArrayRef();
  }

  Value norm(ArrayRef<BlockArgument> trained, ArrayRef<Value> gradients);
  Value clippedByValue(Value gradient); // as it is, if nothing clips values
  void update(BlockArgument parameter, Value gradient, Value factor);
  void average(BlockArgument average, DictionaryAttr rule);
  void keepPrevious(BlockArgument parameter);
  // `combine async`: what is computed of a parameter is computed of the oldest of the versions that this replica keeps beside it. In front
  // of the update; and behind it, when each takes the place of the one before and the last one is the new parameter.
  SmallVector<Value> readVersions(BlockArgument parameter, int64_t stale);
  void keepVersions(BlockArgument parameter, ArrayRef<Value> versions);
  Value rate(unsigned optimizer);
  IntegerAttr clipNormPlace() { return placeOf(places.size() - 3); }
  // The function's type and the attributes of its arguments, once all slots are there: its type is written out anew for each change.
  void finish(TypeRange results);

  SmallVector<Named> parameters, averages, slots;

private:
  Value slot(BlockArgument parameter, StringRef name);
  // `like` filled with a number, or with value `part` of the run if the program has such.
  Value filled(Value like, double number, size_t part);
  // Where the values of a part of the program begin among those of the run (RunValuePlaces); null: they are constants.
  IntegerAttr placeOf(size_t part) { return places.empty() ? IntegerAttr() : attributes.getI64IntegerAttr(places[part]); }

  func::FuncOp function;
  nn::TrainingAttr training;
  nn::GradientBuilder &builder;
  Builder attributes;
  DenseMap<unsigned, Value> rates;
  ArrayRef<int64_t> places; // of the optimizers, the schedule, clip norm, clip value, averages; empty: all are constants
  SmallVector<DictionaryAttr> slotAttributes; // one an argument behind those of the function's type
};
} // namespace

// The root of the sum of the contributions in the order of the parameters, in f64. Of shards: those that all have, then each shard's.
Value UpdateBuilder::norm(ArrayRef<BlockArgument> trained, ArrayRef<Value> gradients) {
  std::map<int, Value> sums;
  auto add = [&](Value &sum, Value part) { sum = sum ? builder.make<nn::AddOp>(sum, part).getResult() : part; };
  for (auto [argument, gradient] : llvm::zip_equal(trained, gradients)) {
    auto path = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr);
    add(sums[nn::shardOfName(path.getValue()).value_or(-1)], builder.make<nn::SumSquaresOp>(gradient));
  }
  Value all;
  for (auto &[shard, sum] : sums)
    add(all, sum);
  if (sums.size() > 1)
    all.getDefiningOp()->setAttr(nn::kAllReduceAttr, attributes.getUnitAttr());
  return builder.make<nn::SqrtOp>(all);
}

Value UpdateBuilder::rate(unsigned optimizer) {
  Value &rate = rates[optimizer];
  if (!rate) {
    nn::OptimizerAttr by = training.getOptimizers()[optimizer];
    DenseI64ArrayAttr given;
    if (!places.empty())
      given = attributes.getDenseI64ArrayAttr({places[optimizer] + int64_t(by.rule().placeOf("lr")), places[places.size() - 4]});
    rate = builder.make<nn::LearningRateOp>(attributes.getF64FloatAttr(by.value("lr")), training.getSchedule(),
                                            attributes.getI64IntegerAttr(training.getSteps()), given);
  }
  return rate;
}

Value UpdateBuilder::slot(BlockArgument parameter, StringRef name) {
  slotAttributes.push_back(
      attributes.getDictionaryAttr(attributes.getNamedAttr(nn::kSlotAttr, attributes.getStringAttr(name))));
  return function.getBody().front().addArgument(parameter.getType(), parameter.getLoc());
}

void UpdateBuilder::finish(TypeRange results) {
  SmallVector<DictionaryAttr> all;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    all.push_back(function.getArgAttrDict(i));
  all.append(slotAttributes);
  function.setFunctionType(
      FunctionType::get(function.getContext(), function.getBody().front().getArgumentTypes(), results));
  function.setAllArgAttrs(all);
}

Value UpdateBuilder::filled(Value like, double number, size_t part) {
  if (places.empty())
    return builder.like(like, number);
  auto type = nn::tensorOf(like);
  Value value = builder.make<nn::RunValueOp>(placeOf(part), attributes.getF64FloatAttr(std::abs(number)));
  if (number < 0)
    value = builder.make<nn::NegOp>(value);
  if (value.getType() != nn::withElement(nn::tensorOf(value), type.getElementType()))
    value = builder.make<nn::CastOp>(nn::withElement(nn::tensorOf(value), type.getElementType()), value);
  return builder.broadcast(value, {}, type);
}

Value UpdateBuilder::clippedByValue(Value gradient) {
  const double limit = training.getClipValue().convertToDouble();
  if (limit == 0)
    return gradient;
  return builder.make<nn::MinOp>(builder.make<nn::MaxOp>(gradient, filled(gradient, -limit, places.size() - 2)).getResult(),
                                 filled(gradient, limit, places.size() - 2));
}

void UpdateBuilder::update(BlockArgument parameter, Value gradient, Value factor) {
  unsigned number = parameter.getArgNumber();
  auto path = cast<StringAttr>(function.getArgAttr(number, nn::kPathAttr)).getValue();
  auto chosen = function.getArgAttrOfType<IntegerAttr>(number, nn::kOptimizerAttr);
  unsigned index = chosen ? chosen.getInt() : 0;
  nn::OptimizerAttr optimizer = training.getOptimizers()[index];
  if (!function.getArgAttr(number, nn::kDecaysAttr))
    optimizer = optimizer.with("decay", 0);
  SmallVector<Value> state;
  SmallVector<std::string> names;
  for (const StateSlot &each : optimizer.rule().slotsWith(optimizer.getValues().asArrayRef())) {
    names.push_back((path + "." + each.name).str());
    state.push_back(slot(parameter, names.back()));
  }
  SmallVector<Type> types(state.size(), parameter.getType());
  auto op = builder.make<nn::UpdateOp>(parameter.getType(), types, parameter, gradient, rate(index), factor, state, optimizer,
                                      placeOf(index));
  parameters.push_back({op.getResult(), nn::kPathAttr, path.str()});
  for (auto [name, value] : llvm::zip_equal(names, op.getNewState()))
    slots.push_back({value, nn::kSlotAttr, name});
}

// decay * e + (1 - decay) * p', which a parameter that is not updated leaves as it started.
void UpdateBuilder::average(BlockArgument average, DictionaryAttr rule) {
  StringRef of = rule.getAs<StringAttr>("of").getValue();
  double decay = rule.getAs<FloatAttr>("decay").getValueAsDouble();
  const Named *parameter = llvm::find_if(parameters, [&](const Named &named) { return named.name == of; });
  if (parameter == parameters.end())
    return;
  Value share = filled(average, decay, places.size() - 1), rest = builder.like(average, 1 - decay);
  if (!places.empty()) { // 1 - decay in f64, as the compiler computes it, then rounded
    Value scalar = builder.make<nn::RunValueOp>(placeOf(places.size() - 1), attributes.getF64FloatAttr(decay));
    auto type = nn::tensorOf(average);
    rest = builder.make<nn::SubOp>(builder.like(scalar, 1), scalar);
    if (!type.getElementType().isF64())
      rest = builder.make<nn::CastOp>(nn::withElement(nn::tensorOf(rest), type.getElementType()), rest);
    rest = builder.broadcast(rest, {}, type);
  }
  Value before = builder.make<nn::MulOp>(average, share);
  Value now = builder.make<nn::MulOp>(parameter->value, rest);
  auto path = function.getArgAttrOfType<StringAttr>(average.getArgNumber(), nn::kPathAttr);
  averages.push_back({builder.make<nn::AddOp>(before, now).getResult(), nn::kPathAttr, path.str()});
}

// `delay 1`: what is computed of a parameter, and its gradient, is computed of the one before the last update, which is state beside it.
void UpdateBuilder::keepPrevious(BlockArgument parameter) {
  auto path = function.getArgAttrOfType<StringAttr>(parameter.getArgNumber(), nn::kPathAttr);
  std::string name = nn::previousOf(path.getValue());
  Value previous = slot(parameter, name);
  parameter.replaceUsesWithIf(previous, [](OpOperand &use) { return !isa<nn::UpdateOp>(use.getOwner()); });
  slots.push_back({builder.make<nn::MulOp>(parameter, builder.like(parameter, 1)).getResult(), nn::kSlotAttr, name});
}

SmallVector<Value> UpdateBuilder::readVersions(BlockArgument parameter, int64_t stale) {
  auto path = function.getArgAttrOfType<StringAttr>(parameter.getArgNumber(), nn::kPathAttr);
  SmallVector<Value> versions;
  for (int64_t n = 0; n <= stale; ++n)
    versions.push_back(slot(parameter, nn::versionOf(path.getValue(), n)));
  parameter.replaceUsesWithIf(versions.front(), [](OpOperand &use) { return !isa<nn::UpdateOp>(use.getOwner()); });
  return versions;
}

void UpdateBuilder::keepVersions(BlockArgument parameter, ArrayRef<Value> versions) {
  auto path = function.getArgAttrOfType<StringAttr>(parameter.getArgNumber(), nn::kPathAttr);
  for (size_t n = 0; n < versions.size(); ++n) {
    Value next = n + 1 < versions.size() ? versions[n + 1] : parameters.back().value;
    slots.push_back({builder.make<nn::MulOp>(next, builder.like(next, 1)).getResult(), nn::kSlotAttr, nn::versionOf(path.getValue(), int64_t(n))});
  }
}

void buildUpdates(func::FuncOp function, nn::TrainingAttr training, Value loss, const DenseMap<Value, Value> &gradients,
                  nn::GradientBuilder &builder) {
  UpdateBuilder updates(function, training, builder);
  SmallVector<BlockArgument> trained, arguments(function.getArguments()); // without those that updates add
  SmallVector<Value> ordered;
  for (BlockArgument argument : arguments)
    if (Value gradient = gradients.lookup(argument)) {
      trained.push_back(argument);
      ordered.push_back(gradient);
    }
  builder.setLocation(nn::called(loss.getLoc(), "norm of the gradients"));
  Value norm = updates.norm(trained, ordered), factor;
  double limit = training.getClipNorm().convertToDouble();
  Builder attributes(function.getContext());
  // The gate and the logs go by the norm of what the backward pass gives. Where values are clipped as well, they come first, and what clips the
  // norm is that of the rest.
  const bool both = limit > 0 && training.getClipValue().convertToDouble() > 0;
  if (both)
    for (Value &gradient : ordered)
      gradient = updates.clippedByValue(gradient);
  if (limit > 0)
    factor = builder.make<nn::ClipFactorOp>(both ? updates.norm(trained, ordered) : norm, attributes.getF64FloatAttr(limit), updates.clipNormPlace());
  if (norm.getType() != loss.getType())
    norm = builder.make<nn::CastOp>(loss.getType(), norm);
  Value rate = updates.rate(0);
  for (auto [argument, gradient] : llvm::zip_equal(trained, ordered)) {
    if (function->hasAttr(nn::kDelayAttr)) { // in front of the update, which writes over what it reads
      builder.setLocation(nn::called(argument.getLoc(), "previous " + nn::instancePath(argument.getLoc())));
      updates.keepPrevious(argument);
    }
    SmallVector<Value> versions;
    if (auto stale = function->getAttrOfType<IntegerAttr>(nn::kStaleAttr))
      versions = updates.readVersions(argument, stale.getInt());
    builder.setLocation(nn::called(argument.getLoc(), "update of " + nn::instancePath(argument.getLoc())));
    updates.update(argument, both ? gradient : updates.clippedByValue(gradient), factor);
    if (!versions.empty()) {
      builder.setLocation(nn::called(argument.getLoc(), "version of " + nn::instancePath(argument.getLoc())));
      updates.keepVersions(argument, versions);
    }
  }
  for (BlockArgument argument : arguments)
    if (auto rule = function.getArgAttrOfType<DictionaryAttr>(argument.getArgNumber(), nn::kAverageAttr)) {
      builder.setLocation(argument.getLoc());
      updates.average(argument, rule);
    }

  auto exit = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  SmallVector<Named> results = std::move(updates.parameters);
  for (auto [i, value] : llvm::enumerate(exit.getOperands()))
    if (auto state = function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kPathAttr))
      results.push_back({value, nn::kPathAttr, state.str()});
  results.append(updates.averages.begin(), updates.averages.end());
  results.append(updates.slots.begin(), updates.slots.end());
  results.push_back({loss, nn::kNameAttr, "loss"});
  results.push_back({norm, nn::kNameAttr, "norm"});
  results.push_back({rate, nn::kNameAttr, "lr"});
  SmallVector<Value> values = llvm::map_to_vector(results, [](const Named &named) { return named.value; });
  exit->setOperands(values);
  updates.finish(ValueRange(values).getTypes());
  SmallVector<Attribute> names = llvm::map_to_vector(results, [&](const Named &named) -> Attribute {
    return attributes.getDictionaryAttr(attributes.getNamedAttr(named.attribute, attributes.getStringAttr(named.name)));
  });
  function.setResAttrsAttr(attributes.getArrayAttr(names));
}

} // namespace cinch
