// ShapeBuiltins.cpp: built-ins that make tensors or change their shape.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

// The sizes in brackets; a leading `..` stands for the axes that `..` of the signature stands for.
std::optional<std::vector<Number>> Elaborator::sizeList(const std::vector<Argument> &sizes, bool dots, Frame &frame) {
  std::vector<Number> axes;
  if (dots) {
    if (!frame.hasDots) {
      Span at = sizes.empty() ? frame.callSpan : sizes[0].span;
      report(Code::E0304, at, "`..` is not known here: no parameter has it", frame);
      return std::nullopt;
    }
    axes = frame.dots;
  }
  for (const Argument &size : sizes) {
    if (!size.name.empty()) {
      report(Code::E0304, size.span, "these sizes have no names", frame);
      return std::nullopt;
    }
    if (!checkAxis(size.value.number, size.span, frame))
      return std::nullopt;
    axes.push_back(size.value.number);
  }
  return axes;
}

Value Elaborator::builtinCount(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("count", args, {"x"}, 1, span, frame, taken))
    return {};
  if (!taken[0]->value.isTensor())
    return failure(Code::E0202, taken[0]->span,
                   "`count` takes a tensor, but this is " + describe(taken[0]->value, dims), frame);
  Number count(1);
  for (const Number &axis : taken[0]->value.tensor.axes) {
    std::optional<Number> more = multiplyNumbers(count, axis);
    if (!more)
      return failure(Code::E0206, span, "the number of elements is too large", frame);
    count = *more;
  }
  return Value::of(count);
}

Value Elaborator::builtinRange(const std::vector<Argument> &sizes, Span span, Frame &frame) {
  if (sizes.size() != 1)
    return failure(Code::E0304, span, "`range` needs one size, range[N]", frame);
  if (isBatch(sizes[0].value.number)) {
    report(Code::E0502, span, "`range` over the batch axis " + dims[batchDim].name + " numbers the examples of a batch", frame)
        .help("examples that are compared with one another are a group: group_place(group = " + dims[batchDim].name + ") is the place of each in its own");
    return {};
  }
  if (!checkAxis(sizes[0].value.number, sizes[0].span, frame))
    return {};
  Tensor result = emit(Op(OpKind::Range), DType::I32, {sizes[0].value.number}, span, frame);
  result.range = Interval::below(*sizes[0].value.number.integer());
  return Value::of(result);
}

Value Elaborator::builtinVector(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<double> numbers;
  for (const Argument &arg : args) {
    if (!arg.value.isNumber() || !arg.name.empty())
      return failure(Code::E0301, arg.span, "`vector` takes numbers, but this is " + describe(arg.value, dims), frame);
    numbers.push_back(arg.value.number.real);
  }
  if (args.empty())
    return failure(Code::E0301, span, "`vector` needs a number or more", frame);
  Op op(OpKind::Vector, {}, {{Key::Numbers, numbers}});
  return Value::of(emit(std::move(op), DType::F32, {Number(static_cast<int64_t>(args.size()))}, span, frame));
}

// Adds leading axes, stretches axes of size 1.
Value Elaborator::builtinExpand(const std::vector<Argument> &sizes, bool dots, const std::vector<Argument> &args,
                                Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("expand", args, {"x"}, 1, span, frame, taken))
    return {};
  std::optional<std::vector<Number>> axes = sizeList(sizes, dots, frame);
  if (!axes)
    return {};
  const Value &value = taken[0]->value;
  if (!value.isTensor()) {
    std::optional<Tensor> filled = fill(value, value.isBool() ? DType::Bool : DType::F32, *axes, span, frame);
    return filled ? Value::of(*filled) : Value();
  }
  const Tensor &x = value.tensor;
  size_t offset = axes->size() - x.axes.size();
  if (x.axes.size() > axes->size())
    return failure(Code::E0213, span, "`expand` cannot take axes away: " + typeOf(x) + " has more axes than are given",
                   frame);
  std::vector<int64_t> places;
  std::vector<Number> kept;
  for (size_t i = 0; i < x.axes.size(); ++i) {
    if (sameSize(x.axes[i], (*axes)[offset + i])) {
      places.push_back(static_cast<int64_t>(offset + i));
      kept.push_back((*axes)[offset + i]);
    } else if (x.axes[i].integer() != 1 || isBatch(x.axes[i])) {
      Diagnostic &d = report(Code::E0213, span,
                             "`expand` stretches axes of size 1 only, but " + sizeText(x.axes[i]) + " meets " +
                                 sizeText((*axes)[offset + i]),
                             frame);
      labelOperand(d, taken[0]->span, value);
      return {};
    }
  }
  Tensor narrow = x;
  if (kept.size() != x.axes.size()) { // the axes that are stretched go first
    narrow.op = emit(Op(OpKind::Reshape, {x.op}), x.dtype, kept, span, frame).op;
    narrow.axes = kept;
  }
  return Value::of(broadcastTo(narrow, *axes, places, span, frame));
}

Value Elaborator::builtinReshape(const std::vector<Argument> &sizes, bool dots, const std::vector<Argument> &args,
                                 Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("reshape", args, {"x"}, 1, span, frame, taken))
    return {};
  const Value &value = taken[0]->value;
  if (!value.isTensor())
    return failure(Code::E0202, taken[0]->span, "`reshape` takes a tensor, but this is " + describe(value, dims),
                   frame);
  const Tensor &x = value.tensor;
  std::optional<std::vector<Number>> given = sizeList(sizes, false, frame);
  if (!given)
    return {};
  auto product = [](const std::vector<Number> &axes, size_t from, size_t to) {
    double all = 1; // exact: an axis is below 2^31 and a tensor below 2^46 bytes
    for (size_t i = from; i < to; ++i)
      all *= axes[i].real;
    return all;
  };
  std::vector<Number> axes = *given;
  double wanted = product(axes, 0, axes.size());
  bool fits = product(x.axes, 0, x.axes.size()) == wanted;
  if (dots) {
    fits = false;
    // What `..` of the signature stands for, if that fits; else as many leading axes as do.
    size_t own = frame.dots.size();
    bool startsWithOwn = frame.hasDots && own <= x.axes.size() && product(x.axes, own, x.axes.size()) == wanted;
    for (size_t i = 0; startsWithOwn && i < own; ++i)
      startsWithOwn = sameSize(frame.dots[i], x.axes[i]);
    if (startsWithOwn) {
      axes.insert(axes.begin(), x.axes.begin(), x.axes.begin() + own);
      fits = true;
    }
    for (size_t lead = x.axes.size() + 1; lead-- > 0 && !fits;)
      if (product(x.axes, lead, x.axes.size()) == wanted) {
        axes.insert(axes.begin(), x.axes.begin(), x.axes.begin() + lead);
        fits = true;
      }
  }
  std::string target;
  for (const Number &size : *given)
    target += (target.empty() && !dots ? "" : ", ") + formOf(size, dims);
  target = (dots ? "[.." : "[") + target + "]";
  if (!fits) {
    Diagnostic &d =
        report(Code::E0213, span,
               "`reshape` keeps the number of elements, but " + typeOf(x) + " does not fit " + target, frame);
    labelOperand(d, taken[0]->span, value);
    d.note(typeOf(x) + " has " + countText(product(x.axes, 0, x.axes.size())) +
           " elements, " + target + (dots ? " a multiple of " : " ") + countText(wanted));
    return {};
  }
  int from = batchAxis(x.axes), to = batchAxis(axes);
  if ((from < 0) != (to < 0) || (from >= 0 && product(x.axes, 0, from) != product(axes, 0, to))) {
    report(Code::E0502, span,
           "`reshape` from " + typeOf(x) + " to " + typeText(x.dtype, axes, dims) +
               " merges, splits or moves the batch axis",
           frame)
        .help("keep " + dims[batchDim].name + " as the axis it is");
    return {};
  }
  Tensor result = x;
  result.axes = axes;
  if (axes.size() == x.axes.size()) {
    bool same = from == to; // of one example, the batch axis may change its place among axes of size 1
    for (size_t i = 0; i < axes.size(); ++i)
      same &= axes[i].integer() == x.axes[i].integer();
    if (same)
      return Value::of(result);
  }
  result.op = emit(Op(OpKind::Reshape, {x.op}), x.dtype, axes, span, frame).op;
  return Value::of(result);
}

Value Elaborator::builtinConcat(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> parts;
  const Argument *axisArg = nullptr;
  for (const Argument &arg : args) {
    if (arg.name == "axis") {
      axisArg = &arg;
    } else if (arg.value.isTensor()) {
      parts.push_back(&arg);
    } else {
      return failure(Code::E0301, arg.span,
                     "`concat` takes tensors and `axis`, but this is " + describe(arg.value, dims), frame);
    }
  }
  if (parts.size() < 2 || !axisArg)
    return failure(Code::E0301, span, "`concat` needs two tensors or more and `axis = ..`", frame);
  const Tensor &first = parts[0]->value.tensor;
  std::optional<size_t> axis = axisArgument(axisArg, first, 0, span, frame, "concat");
  if (!axis)
    return {};
  Tensor result = first;
  result.range = openRange(first);
  result.hasExcept = false;
  Op op(OpKind::Concat, {first.op}, {{Key::Axis, int64_t(*axis)}});
  for (size_t p = 1; p < parts.size(); ++p) {
    const Tensor &next = parts[p]->value.tensor;
    bool fits = next.dtype == first.dtype && next.axes.size() == first.axes.size();
    for (size_t i = 0; fits && i < next.axes.size(); ++i)
      fits = i == *axis || sameSize(next.axes[i], result.axes[i]);
    if (!fits) {
      Diagnostic &d =
          report(Code::E0213, span,
                 "`concat` needs equal types but for the axis, but " + typeOf(first) + " meets " + typeOf(next), frame);
      labelOperand(d, parts[0]->span, parts[0]->value);
      labelOperand(d, parts[p]->span, parts[p]->value);
      return {};
    }
    for (size_t i = 0; i < next.axes.size(); ++i)
      if (i != *axis)
        result.axes[i] = betterName(result.axes[i], next.axes[i]);
    std::optional<Number> sum = addNumbers(result.axes[*axis], next.axes[*axis]);
    if (!sum)
      return failure(Code::E0206, span, "the sum of the sizes is too large", frame);
    result.axes[*axis] = *sum;
    result.range = joinIntervals(result.range, openRange(next));
    op.operands.push_back(next.op);
  }
  result.op = emit(std::move(op), first.dtype, result.axes, span, frame).op;
  return Value::of(result);
}

Value Elaborator::builtinPad(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("pad", args, {"x", "before", "after", "axis", "value"}, 4, span, frame, taken))
    return {};
  if (!taken[0]->value.isTensor())
    return failure(Code::E0202, taken[0]->span, "`pad` takes a tensor, but this is " + describe(taken[0]->value, dims),
                   frame);
  const Tensor &x = taken[0]->value.tensor;
  std::optional<size_t> axis = axisArgument(taken[3], x, 0, span, frame, "pad");
  if (!axis)
    return {};
  Tensor result = x;
  Op op(OpKind::Pad, {x.op}, {{Key::Axis, int64_t(*axis)}});
  for (int i = 1; i <= 2; ++i) {
    std::optional<int64_t> amount = taken[i]->value.isNumber() ? taken[i]->value.number.integer() : std::nullopt;
    if (!amount || *amount < 0)
      return failure(Code::E0204, taken[i]->span,
                     "padding must be a whole number of at least 0, but this is " + describe(taken[i]->value, dims),
                     frame);
    op.set(i == 1 ? Key::Before : Key::After, *amount);
    std::optional<Number> sum = addNumbers(result.axes[*axis], taken[i]->value.number);
    if (!sum)
      return failure(Code::E0206, span, "the padded axis is too large", frame);
    result.axes[*axis] = *sum;
  }
  Interval filled = Interval::of(0, 0);
  if (taken[4]) {
    std::optional<Tensor> value = fill(taken[4]->value, x.dtype, {}, taken[4]->span, frame);
    if (!value)
      return {};
    op.set(Key::Value, graph->at(value->op).number(Key::Number));
    filled = value->range;
  }
  result.range = joinIntervals(x.range, filled);
  result.op = emit(std::move(op), x.dtype, result.axes, span, frame).op;
  return Value::of(result);
}

Value Elaborator::builtinReverse(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("reverse", args, {"x", "axis"}, 2, span, frame, taken))
    return {};
  if (!taken[0]->value.isTensor())
    return failure(Code::E0202, taken[0]->span,
                   "`reverse` takes a tensor, but this is " + describe(taken[0]->value, dims), frame);
  Tensor result = taken[0]->value.tensor;
  std::optional<size_t> axis = axisArgument(taken[1], result, 0, span, frame, "reverse");
  if (!axis)
    return {};
  Op op(OpKind::Reverse, {result.op}, {{Key::Axis, int64_t(*axis)}});
  result.op = emit(std::move(op), result.dtype, result.axes, span, frame).op;
  return Value::of(result);
}

} // namespace cinch
