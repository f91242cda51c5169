// Builtins.cpp: what the prelude declares as `builtin`, and the few words that are known without a declaration. On
// constants the functions of one value are computed at once.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>
#include <cmath>

namespace cinch {

using namespace ast;

// Help for what other frameworks call an argument of a built-in, and what here is written outside of it.
static std::string writtenOutside(const std::string &builtin, const std::string &name) {
  if (builtin == "cross_entropy" && name == "weight")
    return "weights of classes stand before it: w = vector(..), one for each class, and (sum[B] w[y] * cross_entropy(logits, y)) / sum[B] w[y]";
  return "";
}

bool Elaborator::takeArguments(const std::string &builtin, const std::vector<Argument> &args,
                               const std::vector<const char *> &names, size_t required, Span span, Frame &frame,
                               std::vector<const Argument *> &taken) {
  taken.assign(names.size(), nullptr);
  size_t next = 0;
  for (const Argument &arg : args) {
    size_t at = names.size();
    if (arg.name.empty()) {
      at = next++;
    } else {
      for (size_t i = 0; i < names.size(); ++i)
        if (arg.name == names[i])
          at = i;
    }
    if (at >= names.size() || taken[at]) {
      std::vector<std::string> known(names.begin(), names.end());
      const std::string outside = writtenOutside(builtin, arg.name);
      report(Code::E0301, arg.span,
             at < names.size()  ? "`" + std::string(names[at]) + "` is given twice"
             : arg.name.empty() ? "`" + builtin + "` takes " + std::to_string(names.size()) + " arguments, but " +
                                      std::to_string(args.size()) + " are given"
                                : "`" + builtin + "` has no parameter `" + arg.name + "`",
             frame)
          .help(outside.empty() ? didYouMean(arg.name, known) : outside);
      return false;
    }
    taken[at] = &arg;
  }
  for (size_t i = 0; i < required; ++i)
    if (!taken[i]) {
      report(Code::E0301, span, "`" + builtin + "` needs `" + names[i] + "`", frame);
      return false;
    }
  return true;
}

// ---- Functions of one value ---------------------------------------------------------------------------------------
// An element-wise op on floats of its name, as the prelude may declare it.
static bool isUnaryFunction(const OpInfo &info) {
  return info.elementwise && info.operands.size() == 1 && info.operands[0].types == (bit(DType::F32) | bit(DType::F64));
}
// An op on floats along the axis that is its only attribute.
static bool worksAlongAxis(const OpInfo &info) {
  return info.operands.size() == 1 && info.operands[0].types == (bit(DType::F32) | bit(DType::F64)) &&
         info.attributes.size() == 1 && info.attributes[0].key == Key::Axis;
}

std::optional<Value> Elaborator::constantFunction(const std::string &name, const std::vector<Argument> &args, Span span,
                                                  Frame &frame) {
  if (args.size() != 1 || !args[0].value.isNumber())
    return std::nullopt;
  const Number &x = args[0].value.number;
  if (name == "floor")
    return Value::of(floorNumber(x));
  if (name == "abs")
    return Value::of(x.sign() < 0 ? negateNumber(x) : x);
  double y;
  if (name == "exp")
    y = std::exp(x.real);
  else if (name == "log")
    y = std::log(x.real);
  else if (name == "sqrt")
    y = std::sqrt(x.real);
  else if (name == "sin")
    y = std::sin(x.real);
  else if (name == "cos")
    y = std::cos(x.real);
  else if (name == "tanh")
    y = std::tanh(x.real);
  else
    return std::nullopt;
  if (!std::isfinite(y))
    return failure(Code::E0206, span, name + "(" + valueOf(x) + ") is not a number", frame);
  return Value::of(Number::inexact(y));
}

Value Elaborator::builtinCast(const std::string &name, const std::vector<Argument> &args, Span span, Frame &frame) {
  std::vector<const Argument *> taken;
  if (!takeArguments(name, args, {"x"}, 1, span, frame, taken))
    return {};
  const Value &value = taken[0]->value;
  if (name == "f32" && value.isNumber())
    return value;
  DType to = name == "f32" ? DType::F32 : DType::I32;
  if (!value.isTensor() || value.tensor.dtype == to || (to == DType::I32 && value.tensor.dtype != DType::Bool)) {
    Diagnostic &d = report(Code::E0202, taken[0]->span,
                           name + (to == DType::F32 ? "(x) takes i32 or bool" : "(x) takes bool") + ", but this is " + describe(value, dims), frame);
    if (value.isTensor() && value.tensor.dtype == to)
      d.help("it is " + name + " already: leave " + name + "(..) out");
    else if (value.isTensor()) {
      const std::string text = textOf(taken[0]->span);
      d.help("an integer is found by comparing with those that it may be: v = " + (text.size() <= 60 && !frame.index ? text : "..") +
             "; k = f32(range[N]); far[.., n] = abs(v[..] - k[n]); argmin(far) is the nearest of 0 .. N - 1 (docs/patterns.md, \"Numbers to classes\")");
    }
    return {};
  }
  Tensor result = emit(Op(OpKind::Cast, {value.tensor.op}), to, value.tensor.axes, span, frame);
  result.labels = value.tensor.labels;
  if (to == DType::I32)
    result.range = Interval::below(2);
  return Value::of(result);
}

// ---- Words that are not declared ----------------------------------------------------------------------------------
static const std::map<std::string, Distribution::Kind> &distributionsThatTakeArguments() {
  static const std::map<std::string, Distribution::Kind> distributions = {
      {"constant", Distribution::Constant},
      {"normal", Distribution::Normal},
      {"truncated_normal", Distribution::TruncatedNormal},
      {"uniform", Distribution::Uniform},
      {"orthogonal", Distribution::Orthogonal},
      {"kaiming_normal", Distribution::KaimingNormal},
      {"kaiming_uniform", Distribution::KaimingUniform},
      {"xavier_normal", Distribution::XavierNormal},
      {"xavier_uniform", Distribution::XavierUniform}};
  return distributions;
}

// A word that is not declared, and stands without arguments.
Value Elaborator::plainImplicit(const std::string &name, Span span, Frame &frame) {
  const std::map<std::string, Distribution::Kind> &distributions = distributionsThatTakeArguments();
  auto found = distributions.find(name);
  if (found == distributions.end())
    return failure(Code::E0307, span, "`" + name + "` is a function and has no value; call it", frame);
  Distribution distribution;
  distribution.kind = found->second;
  if (distribution.kind == Distribution::XavierNormal || distribution.kind == Distribution::XavierUniform) // of both fans
    return Value::of(distribution);
  bool ofFan = distribution.kind >= Distribution::KaimingNormal;
  return failure(Code::E0309, span,
                 "the distribution `" + name + "` takes " + (ofFan ? "fan_in or fan_out: " : "a number: ") + name +
                     (ofFan ? "(fan_in)" : "(0.02)"),
                 frame);
}

Value Elaborator::callImplicit(const std::string &name, const Expr &site, const std::vector<Argument> &args,
                               Frame &frame) {
  std::vector<const Argument *> taken;
  Span span = site.span;
  if (name == "max" || name == "min") {
    const size_t known = diags.size();
    if (!takeArguments(name, args, {"a", "b"}, 2, span, frame, taken)) {
      if (diags.size() > known)
        diags[known].help("a reduction names its axes: " + name + "[D] x; " + name + "(a, b) takes the " + (name == "max" ? "larger" : "smaller") +
                          " one of two, element by element");
      return {};
    }
    const Value &a = taken[0]->value, &b = taken[1]->value;
    if (a.isNumber() && b.isNumber())
      return (compareNumbers(a.number, b.number) > 0) == (name == "max") ? a : b;
    if (!a.isTensor() && !b.isTensor())
      return failure(Code::E0202, span, "`" + name + "` takes numbers or tensors", frame);
    return elementwise(name == "max" ? OpKind::Max : OpKind::Min, {a, b}, {taken[0]->span, taken[1]->span}, span, frame,
                       Comparison::EQ, name.c_str());
  }
  if (name == "where") {
    if (!takeArguments(name, args, {"c", "a", "b"}, 3, span, frame, taken))
      return {};
    return elementwise(OpKind::Where, {taken[0]->value, taken[1]->value, taken[2]->value},
                       {taken[0]->span, taken[1]->span, taken[2]->span}, span, frame, Comparison::EQ, "where");
  }
  const std::map<std::string, Distribution::Kind> &distributions = distributionsThatTakeArguments();
  auto found = distributions.find(name);
  if (found == distributions.end())
    return failure(Code::E0307, span, "`" + name + "` cannot be called", frame);
  Distribution distribution;
  distribution.kind = found->second;
  if (found->second >= Distribution::KaimingNormal) {
    if (!takeArguments(name, args, {"fan"}, 1, span, frame, taken))
      return {};
    if (taken[0]->value.kind != Value::Word)
      return failure(Code::E0309, taken[0]->span, "`" + name + "` takes fan_in or fan_out", frame);
    distribution.fanOut = taken[0]->value.text == "fan_out";
    return Value::of(distribution);
  }
  if (!takeArguments(name, args, {"a"}, 1, span, frame, taken))
    return {};
  if (!taken[0]->value.isNumber() || (name != "constant" && taken[0]->value.number.sign() < 0))
    return failure(Code::E0309, taken[0]->span,
                   "`" + name + "` takes a number" + (name == "constant" ? "" : " of at least 0") + ", but this is " +
                       describe(taken[0]->value, dims),
                   frame);
  distribution.a = taken[0]->value.number.real;
  return Value::of(distribution);
}

// ---- Dispatch -----------------------------------------------------------------------------------------------------
Value Elaborator::callBuiltin(const LayerItem &item, const Expr &site, const std::vector<Argument> &sizes, bool dots,
                              const std::vector<Argument> &args, uint64_t key, Frame &frame) {
  const std::string &name = item.name.text;
  Span span = site.span;
  static const std::vector<std::string> shaped = {"range",         "expand",     "reshape",    "random_uniform",
                                                  "random_normal", "random_int", "random_bool"};
  if ((dots || !sizes.empty()) && std::find(shaped.begin(), shaped.end(), name) == shaped.end())
    return failure(Code::E0304, span, "`" + name + "` has no sizes", frame);
  std::optional<OpKind> kind = opNamed(name);
  if (kind && isUnaryFunction(infoOf(*kind))) {
    std::vector<const Argument *> taken;
    if (!takeArguments(name, args, {"x"}, 1, span, frame, taken))
      return {};
    if (std::optional<Value> constant = constantFunction(name, args, span, frame))
      return *constant;
    if (!taken[0]->value.isTensor())
      return failure(Code::E0202, taken[0]->span,
                     "`" + name + "` takes an f32 tensor, but this is " + describe(taken[0]->value, dims), frame);
    return elementwise(*kind, {taken[0]->value}, {taken[0]->span}, span, frame, Comparison::EQ, name.c_str());
  }
  if (name == "f32" || name == "i32")
    return builtinCast(name, args, span, frame);
  if (name == "weight")
    return builtinWeight(args, span, frame);
  if (name == "count" && !frame.index)
    return builtinCount(args, span, frame);
  if (frame.index)
    return failure(Code::E0405, span, "`" + name + "` may not be called in index notation", frame);
  if (name == "range")
    return builtinRange(sizes, span, frame);
  if (name == "vector")
    return builtinVector(args, span, frame);
  if (name == "expand")
    return builtinExpand(sizes, dots, args, span, frame);
  if (name == "reshape")
    return builtinReshape(sizes, dots, args, span, frame);
  if (name == "concat")
    return builtinConcat(args, span, frame);
  if (name == "reverse")
    return builtinReverse(args, span, frame);
  if (name == "pad")
    return builtinPad(args, span, frame);
  if (kind && worksAlongAxis(infoOf(*kind)))
    return builtinAlongAxis(*kind, args, span, frame);
  if (name == "cross_entropy")
    return builtinCrossEntropy(args, span, frame);
  if (name == "group_mean")
    return builtinGroupMean(args, span, frame);
  if (name == "group_all")
    return builtinGroupAll(args, span, frame);
  if (name == "group_place")
    return builtinGroupPlace(args, span, frame);
  if (name == "attend")
    return builtinAttend(item, site, args, key, frame);
  if (name.rfind("conv", 0) == 0)
    return builtinConvolution(item, args, span, frame);
  if (name.rfind("max_pool", 0) == 0 || name.rfind("avg_pool", 0) == 0)
    return builtinPool(item, args, span, frame);
  if (name.rfind("random_", 0) == 0)
    return builtinRandom(name, sizes, dots, args, key, span, frame);
  return failure(Code::E0710, span, "`" + name + "` is not there yet", frame);
}

Value Elaborator::builtinRandom(const std::string &name, const std::vector<Argument> &sizes, bool dots,
                                const std::vector<Argument> &args, uint64_t key, Span span, Frame &frame) {
  if (drawsForbidden > 0)
    return failure(Code::E0405, span, "a layer called in index notation may not draw", frame);
  Op op(OpKind::Random, {}, {{Key::Key, int64_t(key)}});
  Interval range;
  DType dtype = DType::F32;
  std::vector<const Argument *> taken;
  if (name == "random_uniform" || name == "random_normal") {
    op.set(Key::Draw, int64_t(name == "random_uniform" ? Draw::Uniform : Draw::Normal));
    if (!takeArguments(name, args, {}, 0, span, frame, taken))
      return {};
  } else {
    bool whole = name == "random_int";
    if (!takeArguments(name, args, {whole ? "n" : "p"}, 1, span, frame, taken))
      return {};
    const Value &value = taken[0]->value;
    std::optional<int64_t> n = value.isNumber() ? value.number.integer() : std::nullopt;
    if (whole && (!n || *n < 1 || *n > INT32_MAX))
      return failure(Code::E0301, taken[0]->span,
                     "`random_int` takes a whole number of at least 1, but this is " + describe(value, dims), frame);
    if (!whole && (!value.isNumber() || value.number.sign() < 0 || compareNumbers(value.number, Number(1)) > 0))
      return failure(Code::E0301, taken[0]->span,
                     "`random_bool` takes a probability from 0 to 1, but this is " + describe(value, dims), frame);
    op.set(Key::Draw, int64_t(whole ? Draw::Int : Draw::Bool));
    op.set(Key::Number, value.number.real);
    dtype = whole ? DType::I32 : DType::Bool;
    if (whole)
      range = Interval::below(*n);
  }
  if (sizes.empty() && !dots)
    return failure(Code::E0304, span, "`" + name + "` needs sizes, " + name + "[B, T]", frame);
  std::optional<std::vector<Number>> axes = sizeList(sizes, dots, frame);
  if (!axes)
    return {};
  // In a loop the numbers of all trips are drawn at once, the trips being the first axes: a trip takes its part.
  std::vector<Number> trips;
  for (const ActiveLoop &loop : activeLoops)
    trips.push_back(loop.trips);
  axes->insert(axes->begin(), trips.begin(), trips.end());
  Tensor result = emit(std::move(op), dtype, *axes, span, frame);
  result.range = range;
  for (const ActiveLoop &loop : activeLoops) {
    std::vector<Number> rest(result.axes.begin() + 1, result.axes.end());
    Op slice(OpKind::LoopSlice, {result.op}, {{Key::Index, int64_t(loop.number)}, {Key::Trips, loop.count}});
    result.op = emit(std::move(slice), dtype, rest, span, frame).op;
    result.axes = std::move(rest);
  }
  return Value::of(result);
}

} // namespace cinch
