// GroupBuiltins.cpp: the built-ins that let the examples of a group see one another: `group_mean`, `group_all`, `group_place`.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

// The number of examples of a group. Nothing, with the error reported, if it does not divide the batch.
std::optional<int64_t> Elaborator::groupSize(const Argument &group, Frame &frame) {
  const Value &value = group.value;
  std::optional<int64_t> size = value.isNumber() ? value.number.integer() : std::nullopt;
  if (size && *size >= 1 && program.batch % *size == 0)
    return size;
  report(Code::E0505, group.span,
         "a group is a whole number of examples that divides the batch, " + dims[batchDim].name + " = " +
             std::to_string(program.batch) + ", but this is " + describe(value, dims),
         frame);
  return std::nullopt;
}

Value Elaborator::builtinGroupMean(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("group_mean", args, {"x", "group"}, 2, span, frame, taken))
    return {};
  const Value &x = taken[0]->value;
  if (!x.isTensor() || x.tensor.dtype != DType::F32 || batchAxis(x.tensor.axes) < 0)
    return failure(Code::E0202, taken[0]->span,
                   "`group_mean` takes an f32 tensor with the batch axis, but this is " + describe(x, dims), frame);
  if (!checkMaskEnd(x.tensor, span, frame, "`group_mean`"))
    return {};
  std::optional<int64_t> size = groupSize(*taken[1], frame);
  if (!size)
    return {};
  if (!training) {
    report(Code::E0505, span, "`group_mean` outside of training: what one example gives would depend on the others", frame)
        .help("ask for it, if training then group_mean(..) else ..");
    return {};
  }
  Op op(OpKind::GroupMean, {x.tensor.op}, {{Key::Group, *size}});
  return Value::of(emit(std::move(op), DType::F32, x.tensor.axes, span, frame));
}

// Evaluations have whole groups too (what is left of a data set behind the last one is left out); a prediction is of one example.
bool Elaborator::groupsAllowed(const char *name, Span span, Frame &frame) {
  if (mode != GraphMode::Prediction)
    return true;
  report(Code::E0505, span,
         std::string("`") + name + "` in what is predicted: what is predicted of an example may depend on it alone", frame)
      .help("what the model gives is predicted, and so is what it takes. To compare its results, write this behind its call; to mix the examples that it takes, "
            "in training alone: net(if training then mixed else x)");
  return false;
}

// Three views: groups of examples; these, for each example of a group; examples again. Work on the result is brought to the groups
// later (compiler/transforms/SinkGroups.cpp).
Value Elaborator::builtinGroupAll(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("group_all", args, {"x", "group"}, 2, span, frame, taken))
    return {};
  const Value &x = taken[0]->value;
  if (!x.isTensor() || batchAxis(x.tensor.axes) < 0)
    return failure(Code::E0202, taken[0]->span,
                   "`group_all` takes a tensor with the batch axis, but this is " + describe(x, dims), frame);
  std::optional<int64_t> group = groupSize(*taken[1], frame);
  if (!group || !groupsAllowed("group_all", span, frame))
    return {};
  int batch = batchAxis(x.tensor.axes);
  TensorType groups = graph->at(x.tensor.op).type;
  groups.shape[batch] /= *group;
  groups.shape.insert(groups.shape.begin() + batch + 1, *group);
  groups.group = *group;
  TensorType repeated = groups;
  repeated.shape.insert(repeated.shape.begin() + batch + 1, *group);
  std::vector<int64_t> places;
  for (int64_t axis = 0; axis < int64_t(repeated.shape.size()); ++axis)
    if (axis != batch + 1)
      places.push_back(axis);
  int rows = emit(Op(OpKind::Reshape, {x.tensor.op}), groups, span, frame);
  int all = emit(Op(OpKind::Broadcast, {rows}, {{Key::Axes, places}}), repeated, span, frame);
  Tensor result = x.tensor;
  const Number &size = taken[1]->value.number; // a share of the batch is a number here: B may be part of no other axis
  result.axes.insert(result.axes.begin() + batch + 1, size.mentions(batchDim) ? size.bare() : size);
  result.op = emit(Op(OpKind::Reshape, {all}), x.tensor.dtype, result.axes, span, frame).op;
  return Value::of(result);
}

Value Elaborator::builtinGroupPlace(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("group_place", args, {"group"}, 1, span, frame, taken))
    return {};
  std::optional<int64_t> size = groupSize(*taken[0], frame);
  if (!size || !groupsAllowed("group_place", span, frame))
    return {};
  int place = emit(Op(OpKind::Range), TensorType{DType::I32, {*size}}, span, frame);
  TensorType groups{DType::I32, {program.batch / *size, *size}, 0, *size};
  int all = emit(Op(OpKind::Broadcast, {place}, {{Key::Axes, std::vector<int64_t>{1}}}), groups, span, frame);
  Tensor result = emit(Op(OpKind::Reshape, {all}), DType::I32, {Number::ofDim(batchDim, dims[batchDim].value)}, span, frame);
  result.range = Interval::below(*size);
  return Value::of(result);
}

} // namespace cinch
