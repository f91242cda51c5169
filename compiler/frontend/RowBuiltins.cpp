// RowBuiltins.cpp: built-ins along one axis with a kernel of their own: the softmax family, argmax, cross_entropy,
// attend.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

// axis = the name of a size, or a number from the left, negative from the right. Never the batch axis.
std::optional<size_t> Elaborator::axisArgument(const Argument *arg, const Tensor &x, int64_t fallback, Span span,
                                               Frame &frame, const char *what) {
  int64_t rank = static_cast<int64_t>(x.axes.size());
  std::optional<size_t> found;
  Span at = arg ? arg->span : span;
  if (!arg) {
    if (fallback + rank >= 0 && rank > 0)
      found = static_cast<size_t>(fallback < 0 ? fallback + rank : fallback);
  } else if (arg->value.isNumber()) {
    const Number &number = arg->value.number;
    bool size = number.hasNames();
    if (arg->expr && arg->expr->kind == ExprKind::Name) {
      auto own = frame.names.find(arg->expr->text);
      size |= own != frame.names.end()
                  ? own->second.isSize
                  : fileFrame.names.count(arg->expr->text) && fileFrame.names[arg->expr->text].isSize;
    }
    if (size) {
      int matches = 0;
      for (size_t i = 0; i < x.axes.size(); ++i)
        if (sameForm(x.axes[i], number)) {
          found = i;
          ++matches;
        }
      if (matches != 1) {
        report(Code::E0406, at,
               std::string(matches ? "more than one axis" : "no axis") + " of " + typeOf(x) + " has the size " +
                   sizeText(number),
               frame)
            .help(matches ? "" : sameLength(x, number))
            .help("give the number of the axis, from 0, or from -1 on the right");
        return std::nullopt;
      }
    } else if (std::optional<int64_t> position = number.integer()) {
      if (*position >= -rank && *position < rank)
        found = static_cast<size_t>(*position < 0 ? *position + rank : *position);
    }
  }
  if (!found) {
    report(Code::E0406, at,
           std::string("`") + what + "` has no such axis: " + typeOf(x) + " has " + std::to_string(rank), frame);
    return std::nullopt;
  }
  if (isBatch(x.axes[*found])) {
    report(Code::E0502, at,
           std::string("`") + what + "` along the batch axis " + dims[batchDim].name + " mixes examples", frame)
        .help("name another axis, axis = ..");
    return std::nullopt;
  }
  return found;
}

Value Elaborator::builtinAlongAxis(OpKind kind, const std::vector<Argument> &args, Span span, Frame &frame) {
  const OpInfo &info = infoOf(kind);
  std::string name = info.name;
  std::vector<const Argument *> taken;
  if (!takeArguments(name, args, {"x", "axis"}, 1, span, frame, taken))
    return {};
  if (!taken[0]->value.isTensor() || taken[0]->value.tensor.dtype != DType::F32)
    return failure(Code::E0202, taken[0]->span,
                   "`" + name + "` takes f32, but this is " + describe(taken[0]->value, dims), frame);
  Tensor x = taken[0]->value.tensor;
  std::optional<size_t> axis = axisArgument(taken[1], x, -1, span, frame, info.name);
  if (!axis)
    return {};
  std::vector<Number> axes = x.axes;
  bool index = info.results[0].types == bit(DType::I32); // the place of an element
  if (index)
    axes.erase(axes.begin() + *axis);
  Tensor result = emit(Op(kind, {x.op}, {{Key::Axis, int64_t(*axis)}}), index ? DType::I32 : DType::F32, axes, span, frame);
  if (index)
    result.range = Interval::below(static_cast<int64_t>(x.axes[*axis].real));
  return Value::of(result);
}

Value Elaborator::builtinCrossEntropy(const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments("cross_entropy", args, {"logits", "y", "axis", "smooth"}, 2, span, frame, taken))
    return {};
  const Value &logits = taken[0]->value, &y = taken[1]->value;
  if (!logits.isTensor() || logits.tensor.dtype != DType::F32)
    return failure(Code::E0202, taken[0]->span,
                   "the logits of `cross_entropy` are f32, but this is " + describe(logits, dims), frame);
  if (!y.isTensor() || y.tensor.dtype != DType::I32) {
    report(Code::E0202, taken[1]->span, "the labels of `cross_entropy` are i32, but this is " + describe(y, dims), frame)
        .help(y.isTensor() ? y.tensor.dtype == DType::F32 ? "declare the field as i32, or write i32(..); of probabilities for each class: -sum[c] p[.., c] * log_softmax(logits)[.., c]" : ""
                           : "the same class for every example is a place of the logarithms: -log_softmax(logits)[.., 0]");
    return {};
  }
  const Tensor &x = logits.tensor;
  std::optional<size_t> axis = axisArgument(taken[2], x, -1, span, frame, "cross_entropy");
  if (!axis)
    return {};
  std::vector<Number> axes = x.axes;
  axes.erase(axes.begin() + *axis);
  bool equal = axes.size() == y.tensor.axes.size();
  std::string clash;
  for (size_t i = 0; equal && i < axes.size(); ++i) {
    if (!sameSize(axes[i], y.tensor.axes[i])) {
      equal = false;
      clash = ", but " + sizeText(axes[i]) + " meets " + sizeText(y.tensor.axes[i]);
    } else {
      axes[i] = betterName(y.tensor.axes[i], axes[i]);
    }
  }
  if (!equal) {
    Diagnostic &d = report(Code::E0201, span,
                           "the labels of `cross_entropy` have the logits' axes but for the classes" +
                               (clash.empty() ? ": " + typeText(DType::I32, axes, dims) : clash),
                           frame);
    labelOperand(d, taken[0]->span, logits);
    labelOperand(d, taken[1]->span, y);
    return {};
  }
  std::optional<int64_t> classes = x.axes[*axis].integer();
  if (classes && !y.tensor.range.within(0, *classes - 1)) {
    Diagnostic &d = report(Code::E0209, taken[1]->span,
                           "a label must be known to lie in 0 .. " + std::to_string(*classes - 1) + ", but this is " +
                               intervalText(y.tensor.range),
                           frame);
    labelOperand(d, taken[0]->span, logits);
    labelOperand(d, taken[1]->span, y);
    d.help(y.tensor.range.known ? "" : "declare the labels `below " + formOf(x.axes[*axis], dims) + "`");
    return {};
  }
  if (isFromExcept(y.tensor))
    return failure(Code::E0211, taken[1]->span, "these labels were computed from data that may hold its `except` value",
                   frame);
  if (graph->at(x.op).kind == OpKind::Softmax)
    diags.warning(Code::W0102, span, "`cross_entropy` takes logits, and these are a softmax already")
        .help("leave the softmax out");
  Op op(OpKind::CrossEntropy, {x.op, y.tensor.op}, {{Key::Axis, int64_t(*axis)}});
  if (y.tensor.hasExcept)
    op.set(Key::Except, y.tensor.except);
  if (taken[3]) {
    const Value &smooth = taken[3]->value;
    if (!smooth.isNumber() || smooth.number.sign() < 0 || compareNumbers(smooth.number, Number(1)) >= 0)
      return failure(Code::E0301, taken[3]->span, "`smooth` must be in [0, 1), but this is " + describe(smooth, dims),
                     frame);
    op.set(Key::Smooth, smooth.number.real);
  }
  return Value::of(emit(std::move(op), DType::F32, axes, span, frame));
}

// Arguments against a built-in's signature, by the rules of a layer's.
bool Elaborator::bindBuiltin(const LayerItem &item, const std::vector<Argument> &args, Span span, Frame &frame, Frame &callee) {
  Call call{item};
  call.args = args;
  call.direct = true;
  call.node = frame.node;
  call.span = call.viaSpan = span;
  call.via = item.name.text + "(..)";
  callee.file = item.span.file;
  callee.layer = &item;
  callee.node = frame.node;
  callee.caller = &frame;
  callee.callSpan = callee.viaSpan = span;
  callee.via = call.via;
  callee.block = frame.block;
  callee.depth = frame.depth + 1;
  return bindCall(call, callee, frame);
}

Value Elaborator::builtinAttend(const LayerItem &item, const Expr &site, const std::vector<Argument> &args,
                                uint64_t key, Frame &frame) {
  Span span = site.span;
  // Absent `keys` and `bias` are no operands; so is `true` for `keys` and 0 for `bias`.
  const Argument *keysArg = nullptr, *biasArg = nullptr;
  size_t position = 0;
  for (const Argument &arg : args) {
    bool keys = arg.name == "keys" || (arg.name.empty() && position == 3);
    bool bias = arg.name == "bias" || (arg.name.empty() && position == 4);
    if (keys && !(arg.value.isBool() && arg.value.flag))
      keysArg = &arg;
    if (bias && !(arg.value.isNumber() && arg.value.number.isZero()))
      biasArg = &arg;
    position += arg.name.empty();
  }
  Frame callee;
  if (!bindBuiltin(item, args, span, frame, callee))
    return {};
  for (const char *name : {"A", "G", "T", "S", "K", "E"})
    if (isBatch(callee.names[name].value.number))
      return failure(Code::E0502, span, "`attend` along the batch axis " + dims[batchDim].name + " mixes examples",
                     frame);
  auto number = [&](const char *name) { return callee.names[name].value; };
  Value heads = number("A"), groups = number("G"), causal = number("causal"), scale = number("scale"),
        rate = number("dropout");
  if (!causal.isBool())
    return failure(Code::E0301, span, "`causal` is true or false, but this is " + describe(causal, dims), frame);
  if (!scale.isNumber())
    return failure(Code::E0301, span, "`scale` is a number, but this is " + describe(scale, dims), frame);
  if (!rate.isNumber() || rate.number.sign() < 0 || compareNumbers(rate.number, Number(1)) >= 0)
    return failure(Code::E0301, span, "`dropout` must be in [0, 1), but this is " + describe(rate, dims), frame);
  if (!takeRate(rate, "`dropout`", span, frame))
    return {};
  if (*heads.number.integer() % *groups.number.integer() != 0)
    return failure(Code::E0302, span,
                   "the key heads must divide the query heads, but " + sizeText(groups.number) + " does not divide " +
                       sizeText(heads.number),
                   frame);
  std::optional<std::vector<Number>> axes = typeAxes(item.signature.results[0], callee);
  if (!axes)
    return {};
  auto isFilled = [&](const char *name, double value) { // handed on from a default
    const Op &filled = graph->at(callee.names[name].value.tensor.op);
    return filled.kind == OpKind::Constant && filled.number(Key::Number) == value;
  };
  if (keysArg && isFilled("keys", 1))
    keysArg = nullptr;
  if (biasArg && isFilled("bias", 0))
    biasArg = nullptr;
  double dropout = training ? rate.number.real : 0;
  if (dropout > 0 && drawsForbidden > 0)
    return failure(Code::E0405, span, "a layer called in index notation may not draw", frame);
  if (!activeLoops.empty() && (dropout > 0 || biasArg)) {
    std::vector<Argument> given = args;
    for (Argument &arg : given)
      if (arg.name == "dropout")
        arg.name = "rate";
    return callDirect(*tables.preludeLayers.at("attend_written"), site, {}, std::move(given), frame);
  }
  auto operand = [&](const char *name, bool given = true) { return given ? callee.names[name].value.tensor.op : -1; };
  Op op(OpKind::Attend,
        {operand("q"), operand("k"), operand("v"), operand("keys", keysArg != nullptr),
         operand("bias", biasArg != nullptr)},
        {{Key::Scale, scale.number.real}, {Key::Causal, causal.flag}, {Key::Dropout, dropout},
         {Key::Key, dropout > 0 ? int64_t(key) : int64_t(0)}});
  return Value::of(emit(std::move(op), DType::F32, *axes, span, frame));
}

} // namespace cinch
