// Parameters.cpp: `param` and `state` declarations, and `update`: their types, their initial distributions, and the order in which they are
// listed. The formulas of the fans are PyTorch's: fan in is the product of all axes but the first, fan out of all but
// the second;
//   kaiming_normal: sqrt(2 / fan) deviation      kaiming_uniform: sqrt(6 / fan) half width
//   xavier_normal:  sqrt(2 / (in + out))         xavier_uniform:  sqrt(6 / (in + out))
#include "compiler/frontend/Elaborator.h"

#include <algorithm>
#include <cmath>

namespace cinch {

using namespace ast;

bool Elaborator::resolveInit(const Value &value, const Tensor &tensor, Span span, Frame &frame, Init &init) {
  if (value.isError())
    return false;
  if (value.kind != Value::Distribution) {
    report(Code::E0309, span, "it starts from a distribution, not from " + std::string(kindName(value)), frame)
        .help(std::string("there are ") + distributionsText);
    return false;
  }
  const Distribution &d = value.distribution;
  double in = 1, out = 1;
  for (size_t i = 0; i < tensor.axes.size(); ++i) {
    in *= i == 0 ? 1.0 : tensor.axes[i].real;
    out *= i == 1 ? 1.0 : tensor.axes[i].real;
  }
  double fan = d.fanOut ? out : in;
  switch (d.kind) {
  case Distribution::Constant:
    init = {InitKind::Constant, d.a};
    break;
  case Distribution::Normal:
    init = {InitKind::Normal, d.a};
    break;
  case Distribution::TruncatedNormal:
    init = {InitKind::TruncatedNormal, d.a};
    break;
  case Distribution::Uniform:
    init = {InitKind::Uniform, d.a};
    break;
  case Distribution::Orthogonal:
    if (tensor.axes.size() < 2) {
      report(Code::E0309, span, "`orthogonal` needs two axes or more, but the parameter is " + typeOf(tensor), frame);
      return false;
    }
    init = {InitKind::Orthogonal, d.a};
    break;
  case Distribution::KaimingNormal:
    init = {InitKind::Normal, std::sqrt(2 / fan)};
    break;
  case Distribution::KaimingUniform:
    init = {InitKind::Uniform, std::sqrt(6 / fan)};
    break;
  case Distribution::XavierNormal:
    init = {InitKind::Normal, std::sqrt(2 / (in + out))};
    break;
  case Distribution::XavierUniform:
    init = {InitKind::Uniform, std::sqrt(6 / (in + out))};
    break;
  }
  return true;
}

// Checkpoints are read with names of up to 511 bytes, a path behind the name of what the optimizer holds for it.
static constexpr size_t kLongestPath = 400;

Value Elaborator::parameter(Binding &binding, const std::string &name, Frame &frame) {
  if (binding.done)
    return binding.value;
  binding.done = true; // an error is told once
  const Statement &statement = *binding.statement;
  const bool isState = binding.kind == Binding::State;
  const std::string what = isState ? "state" : "parameter";
  std::optional<DType> dtype = typeDtype(statement.type, frame);
  std::optional<std::vector<Number>> axes = typeAxes(statement.type, frame);
  Value start = eval(*statement.values[0], frame);
  if (!dtype || !axes)
    return {};
  if (*dtype != DType::F32)
    return failure(Code::E0309, statement.type.span, "a " + what + " is f32, not " + std::string(dtypeName(*dtype)),
                   frame);
  if (batchAxis(*axes) >= 0)
    return failure(Code::E0309, statement.type.span, "a " + what + " may not have the batch axis " + dims[batchDim].name,
                   frame);
  Tensor tensor;
  tensor.axes = *axes;
  Init init;
  if (!resolveInit(start, tensor, statement.values[0]->span, frame, init))
    return {};

  std::string path = frame.node->path.empty() ? name : frame.node->path + "." + name;
  if (path.size() > kLongestPath)
    return failure(Code::E0309, statement.names[0].span,
                   "the path of this " + what + " has " + std::to_string(path.size()) + " bytes, expected at most " +
                       std::to_string(kLongestPath),
                   frame);
  auto [entry, isNew] = frame.node->parameters.try_emplace(name, static_cast<int>(program.parameters.size()));
  int bad = badOps;
  Op op(OpKind::Parameter, {}, {{Key::Index, int64_t(entry->second)}});
  tensor = emit(std::move(op), DType::F32, *axes, statement.names[0].span, frame);
  if (bad != badOps)
    return {};
  if (isState)
    graph->dropFacts(tensor.op, FromParameter);
  const TensorType &type = graph->at(tensor.op).type;
  if (isNew) {
    if (parametersFixed)
      return failure(Code::E0306, statement.names[0].span,
                     "evaluation needs the " + what + " `" + path + "`, which training does not have", frame);
    cinch::Parameter parameter;
    parameter.path = path;
    parameter.type = type;
    parameter.init = init;
    parameter.state = isState;
    parameter.span = statement.names[0].span;
    program.parameters.push_back(parameter);
    parameterAxes.push_back(*axes);
    std::vector<int> order = frame.node->order;
    order.push_back(static_cast<int>(binding.span.begin));
    parameterOrder.push_back(order);
  } else {
    const cinch::Parameter &first = program.parameters[entry->second];
    if (first.type.shape != type.shape || first.init.kind != init.kind || first.init.a != init.a) {
      std::string sizes;
      for (int64_t size : first.type.shape)
        sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
      return failure(Code::E0306, statement.names[0].span,
                     "`" + path + "` must be the same in every call, but it was f32[" + sizes + "] and is now " +
                         typeOf(tensor),
                     frame);
    }
  }
  binding.value = Value::of(tensor);
  return binding.value;
}

// The new value of a state, of which the expression may use the old one.
void Elaborator::evalUpdate(const Statement &statement, Frame &frame) {
  const Name &name = statement.names[0];
  auto found = frame.names.find(name.text);
  if (found == frame.names.end() || found->second.kind != Binding::State) {
    if (!tables.unknown.count({name.span.file, name.span.begin}))
      report(Code::E0310, name.span, "`" + name.text + "` is no `state` of this layer, so it cannot be updated", frame)
          .help("declare it here, state " + name.text + ": f32[..] ~ zeros");
    return;
  }
  if (!activeLoops.empty()) {
    report(Code::E0702, name.span, "a state is updated once a step, so not in a loop", frame)
        .help("hand it on from trip to trip: make it a result of the layer");
    return;
  }
  Value state = force(found->second, name.text, name.span, frame);
  int bad = badOps;
  frame.inUpdate = true;
  const Expr &expr = *statement.values[0];
  Value value = eval(expr, frame);
  frame.inUpdate = false;
  if (state.isError() || value.isError() || bad != badOps)
    return;
  if (value.isNumber())
    if (std::optional<Tensor> filled = fill(value, DType::F32, state.tensor.axes, expr.span, frame))
      value = Value::of(*filled);
  bool fits = value.isTensor() && value.tensor.dtype == DType::F32 && value.tensor.axes.size() == state.tensor.axes.size();
  for (size_t i = 0; fits && i < value.tensor.axes.size(); ++i)
    fits = sameSize(value.tensor.axes[i], state.tensor.axes[i]);
  if (!fits) {
    Diagnostic &diagnostic = report(Code::E0310, expr.span,
                                    "`" + name.text + "` is " + typeOf(state.tensor) + ", but its new value is " +
                                        describe(value, dims),
                                    frame);
    if (value.isTensor() && batchAxis(value.tensor.axes) >= 0)
      diagnostic.help("reduce it over the batch, mean[" + dims[batchDim].name + "] ..");
    return;
  }
  if (!checkMaskEnd(value.tensor, expr.span, frame, "an update"))
    return;
  int parameter = graph->at(state.tensor.op).integer(Key::Index);
  auto [first, isNew] = updatedAt.try_emplace(parameter, statement.span);
  if (!isNew) {
    report(Code::E0310, statement.span,
           "`" + program.parameters[parameter].path + "` is updated a second time in one step", frame)
        .label(first->second, "first here")
        .help("an instance with a state is called once a step. Two instances have weights of their own; to share them, call one instance with both inputs on one "
              "more axis: docs/patterns.md, \"Two views through one batch norm\"");
    return;
  }
  program.updates.push_back({parameter, value.tensor.op});
}

// Parameters are listed in the order of their definitions along the paths, whatever was evaluated first.
void Elaborator::orderParameters() {
  std::vector<int> order(program.parameters.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return parameterOrder[a] < parameterOrder[b]; });
  std::vector<int> place(order.size());
  std::vector<cinch::Parameter> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
    sorted.push_back(program.parameters[order[i]]);
  }
  program.parameters = std::move(sorted);
  for (Graph *g : {&program.step, &program.evaluation, &program.prediction})
    for (Op &op : g->ops)
      if (op.kind == OpKind::Parameter)
        op.set(Key::Index, int64_t(place[op.integer(Key::Index)]));
  for (StateUpdate &update : program.updates)
    update.parameter = place[update.parameter];
  std::sort(program.updates.begin(), program.updates.end(),
            [](const StateUpdate &a, const StateUpdate &b) { return a.parameter < b.parameter; });
}

// Behind all others a state for each parameter that an optimizer moves, which evaluation reads in its place.
void Elaborator::addAverages() {
  std::vector<int> readAs;
  size_t count = program.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    readAs.push_back(static_cast<int>(i));
    if (program.parameters[i].state || program.parameters[i].frozen)
      continue;
    readAs.back() = static_cast<int>(program.parameters.size());
    cinch::Parameter average = program.parameters[i];
    average.path += ".ema";
    average.init = {};
    average.state = true;
    average.averageOf = static_cast<int>(i);
    program.parameters.push_back(std::move(average));
  }
  for (Graph *g : {&program.evaluation, &program.prediction})
    for (Op &op : g->ops)
      if (op.kind == OpKind::Parameter)
        op.set(Key::Index, int64_t(readAs[op.integer(Key::Index)]));
}

} // namespace cinch
