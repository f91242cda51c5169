// Elementwise.cpp: operations on every element: equal dtypes, operands brought to one shape, intervals of integers.
// Outside of index notation the axes of the shorter operand are the last axes of the longer; inside, operands are
// combined over the union of their indices, so that a value is computed over the indices used so far and no more.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>
#include <cmath>

namespace cinch {

using namespace ast;

Value Elaborator::constantBinary(BinaryOp op, const Value &left, const Value &right, const Expr &expr, Frame &frame) {
  bool numbers = left.isNumber() && right.isNumber(), bools = left.isBool() && right.isBool();
  auto wrong = [&]() {
    Diagnostic &d = report(
        Code::E0202, expr.op,
        std::string("`") + spelling(op) + "` does not take " + kindName(left) + " and " + kindName(right), frame);
    labelOperand(d, expr.children[0]->span, left);
    labelOperand(d, expr.children[1]->span, right);
    return Value();
  };
  std::optional<Number> result;
  switch (op) {
  case BinaryOp::And:
  case BinaryOp::Or:
    if (!bools)
      return wrong();
    return Value::ofBool(op == BinaryOp::And ? left.flag && right.flag : left.flag || right.flag);
  case BinaryOp::EQ:
  case BinaryOp::NE:
    if (bools)
      return Value::ofBool((left.flag == right.flag) == (op == BinaryOp::EQ));
    if (!numbers)
      return wrong();
    return Value::ofBool((compareNumbers(left.number, right.number) == 0) == (op == BinaryOp::EQ));
  case BinaryOp::LT:
  case BinaryOp::LE:
  case BinaryOp::GT:
  case BinaryOp::GE: {
    if (!numbers)
      return wrong();
    int order = compareNumbers(left.number, right.number);
    return Value::ofBool(op == BinaryOp::LT   ? order < 0
                         : op == BinaryOp::LE ? order <= 0
                         : op == BinaryOp::GT ? order > 0
                                              : order >= 0);
  }
  default:
    break;
  }
  if (!numbers)
    return wrong();
  if (op == BinaryOp::Add)
    result = addNumbers(left.number, right.number);
  else if (op == BinaryOp::Sub)
    result = subtractNumbers(left.number, right.number);
  else if (op == BinaryOp::Mul)
    result = multiplyNumbers(left.number, right.number);
  else if (op == BinaryOp::Div)
    result = divideNumbers(left.number, right.number);
  else if (op == BinaryOp::Pow)
    result = powerNumbers(left.number, right.number);
  if (result)
    return Value::of(*result);
  bool zero = op == BinaryOp::Div && right.number.isZero();
  return failure(Code::E0206, expr.op,
                 zero ? "division by zero"
                      : "the constant " + valueOf(left.number) + " " + spelling(op) + " " + valueOf(right.number) +
                            " cannot be represented",
                 frame);
}

// ---- Shapes -------------------------------------------------------------------------------------------------------
Tensor Elaborator::transposed(const Tensor &tensor, const std::vector<int64_t> &order, Span span, Frame &frame) {
  bool identity = true;
  for (size_t i = 0; i < order.size(); ++i)
    identity &= order[i] == static_cast<int64_t>(i);
  if (identity)
    return tensor;
  const Op &source = graph->at(tensor.op);
  std::vector<int64_t> through = order;
  int from = tensor.op;
  if (source.kind == OpKind::Transpose) { // two in a row are one, or none
    for (int64_t &axis : through)
      axis = source.integers(Key::Permutation)[axis];
    from = source.operands[0];
  }
  Tensor result = tensor;
  for (size_t i = 0; i < order.size(); ++i) {
    result.axes[i] = tensor.axes[order[i]];
    if (!tensor.labels.empty())
      result.labels[i] = tensor.labels[order[i]];
  }
  bool none = std::is_sorted(through.begin(), through.end());
  result.op = none ? from
                   : emit(Op(OpKind::Transpose, {from}, {{Key::Permutation, through}}), tensor.dtype, result.axes, span,
                          frame)
                         .op;
  return result;
}

// Axis i of the operand becomes axis places[i] of the result, the others are new.
Tensor Elaborator::broadcastTo(const Tensor &tensor, const std::vector<Number> &axes,
                               const std::vector<int64_t> &places, Span span, Frame &frame) {
  Tensor result = tensor;
  result.labels.clear();
  if (axes.size() == tensor.axes.size()) {
    result.axes = axes;
    return result;
  }
  const Op &source = graph->at(tensor.op);
  Op op = source.kind == OpKind::Constant ? Op(OpKind::Constant, {}, {{Key::Number, source.number(Key::Number)}})
                                          : Op(OpKind::Broadcast, {tensor.op}, {{Key::Axes, places}});
  Tensor wide = emit(std::move(op), tensor.dtype, axes, span, frame);
  result.op = wide.op;
  result.axes = wide.axes;
  return result;
}

// Index notation: to the labels given, which contain all of the tensor's.
Tensor Elaborator::bring(const Tensor &tensor, const std::vector<int> &labels, const std::vector<Number> &axes,
                         Span span, Frame &frame) {
  std::vector<int64_t> order, places;
  for (size_t i = 0; i < labels.size(); ++i) {
    auto found = std::find(tensor.labels.begin(), tensor.labels.end(), labels[i]);
    if (found == tensor.labels.end())
      continue;
    order.push_back(found - tensor.labels.begin());
    places.push_back(static_cast<int64_t>(i));
  }
  Tensor result = broadcastTo(transposed(tensor, order, span, frame), axes, places, span, frame);
  result.labels = labels;
  return result;
}

static bool isSubsequence(const std::vector<int> &part, const std::vector<int> &whole) {
  size_t i = 0;
  for (int label : whole)
    if (i < part.size() && part[i] == label)
      ++i;
  return i == part.size();
}

// What stands in the place of a tensor whose axes are not the last ones of the longer one.
std::string Elaborator::howToStretch(const Tensor &shorter, Span span, const Tensor &longer) const {
  size_t next = 0; // of its axes
  std::string all, own;
  for (size_t k = 0; k < longer.axes.size(); ++k) {
    const bool isOwn = next < shorter.axes.size() && sameForm(shorter.axes[next], longer.axes[k]);
    all += (k ? ", " : "") + formOf(longer.axes[k], dims);
    own += std::string(k ? ", " : "") + (isOwn ? formOf(shorter.axes[next++], dims) : "1");
  }
  if (next < shorter.axes.size())
    return "the axes of the shorter must be the last axes of the longer; write index notation otherwise, r[i, j] = x[i, j] - y[i]";
  return "give the shorter axes of 1 where it has none, and stretch them: expand[" + all + "](reshape[" + own + "](" + textOf(span) + "))";
}

// Brings all tensors to one shape.
bool Elaborator::align(std::vector<Tensor> &tensors, const std::vector<Span> &spans, Span span, Frame &frame,
                       const char *symbol, Span at) {
  if (tensors.empty())
    return true;
  if (frame.index) {
    std::vector<int> labels = tensors[0].labels;
    for (const Tensor &tensor : tensors) {
      if (isSubsequence(tensor.labels, labels))
        continue;
      if (isSubsequence(labels, tensor.labels)) {
        labels = tensor.labels;
        continue;
      }
      std::set<int> all(labels.begin(), labels.end());
      all.insert(tensor.labels.begin(), tensor.labels.end());
      labels.assign(all.begin(), all.end());
    }
    std::vector<Number> axes;
    for (int label : labels) {
      std::optional<Number> axis;
      for (const Tensor &tensor : tensors)
        for (size_t i = 0; i < tensor.labels.size(); ++i)
          if (tensor.labels[i] == label)
            axis = axis ? betterName(*axis, tensor.axes[i]) : tensor.axes[i];
      axes.push_back(*axis);
    }
    for (Tensor &tensor : tensors)
      tensor = bring(tensor, labels, axes, span, frame);
    return true;
  }
  size_t longest = 0;
  for (size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].axes.size() > tensors[longest].axes.size())
      longest = i;
  std::vector<Number> axes = tensors[longest].axes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t offset = axes.size() - tensors[i].axes.size();
    for (size_t k = 0; k < tensors[i].axes.size(); ++k) {
      if (sameSize(tensors[i].axes[k], axes[offset + k])) {
        axes[offset + k] = betterName(axes[offset + k], tensors[i].axes[k]);
        continue;
      }
      const Number &one = tensors[longest].axes[offset + k], &other = tensors[i].axes[k];
      std::string name = symbol ? "`" + std::string(symbol) + "`" : "an element-wise operation";
      Diagnostic &d = report(Code::E0201, at.file < 0 ? span : at,
                             name + " needs equal axes, but " + sizeText(one) + " meets " + sizeText(other), frame);
      labelOperand(d, spans[longest], Value::of(tensors[longest]), &one);
      labelOperand(d, spans[i], Value::of(tensors[i]), &other);
      if (compareNumbers(one, other) == 0)
        d.help(equalValuesHelp(one, other));
      else
        d.help(howToStretch(tensors[i], spans[i], tensors[longest]));
      return false;
    }
  }
  for (Tensor &tensor : tensors) {
    std::vector<int64_t> places;
    for (size_t k = 0; k < tensor.axes.size(); ++k)
      places.push_back(static_cast<int64_t>(axes.size() - tensor.axes.size() + k));
    tensor = broadcastTo(tensor, axes, places, span, frame);
  }
  return true;
}

// Whether numbers are f64: it is said in `train`, or on the command line, and known before anything is elaborated.
bool Elaborator::hasF64() const {
  bool found = false;
  for (size_t i = 0; train && i < train->clauses.size(); ++i) {
    const Setting &setting = train->clauses[i].setting;
    if (train->clauses[i].kind == StatementKind::Setting && setting.key.text == "precision" && !setting.words.empty())
      found = setting.words[0].text == "f64";
  }
  for (const auto &[name, text] : options.settings)
    if (name == "precision" || name == "train.precision")
      found = text == "f64";
  return found;
}

// A constant where a tensor is expected. A whole number fits f32 and i32, another f32 only.
std::optional<Tensor> Elaborator::fill(const Value &value, DType dtype, const std::vector<Number> &axes, Span span,
                                       Frame &frame) {
  double number = 0;
  Interval range;
  if (value.isBool() && dtype == DType::Bool) {
    number = value.flag;
  } else if (value.isNumber() && dtype == DType::F32) {
    number = value.number.real;
    const double there = hasF64() ? number : static_cast<double>(static_cast<float>(number));
    if (!std::isinf(number) && (std::isinf(there) || (there == 0 && number != 0))) {
      report(Code::E0206, span, valueOf(value.number) + (there == 0 ? " is too near to 0 for f32, and is not 0" : " is too large for f32"), frame)
          .help(std::string("the numbers of f32 ") + (there == 0 ? "begin at 1.4e-45" : "end at 3.4e38") + "; `precision f64` has others, too");
      return std::nullopt;
    }
  } else if (value.isNumber() && dtype == DType::I32) {
    std::optional<int64_t> whole = value.number.integer();
    if (!whole || *whole < INT32_MIN || *whole > INT32_MAX) {
      report(Code::E0202, span, valueOf(value.number) + " does not fit i32", frame)
          .help("write f32(..) of the i32 operand");
      return std::nullopt;
    }
    number = static_cast<double>(*whole);
    range = Interval::of(*whole, *whole);
  } else {
    report(Code::E0202, span, std::string(kindName(value)) + " does not fit " + dtypeName(dtype), frame);
    return std::nullopt;
  }
  Tensor tensor = emit(Op(OpKind::Constant, {}, {{Key::Number, number}}), dtype, axes, span, frame);
  tensor.range = range;
  return tensor;
}

// ---- Operations ---------------------------------------------------------------------------------------------------
static Interval resultRange(OpKind kind, const std::vector<Tensor> &t) {
  switch (kind) {
  case OpKind::Add:
    return addIntervals(t[0].range, t[1].range);
  case OpKind::Sub:
    return subtractIntervals(t[0].range, t[1].range);
  case OpKind::Mul:
    return multiplyIntervals(t[0].range, t[1].range);
  case OpKind::Max:
    return maxIntervals(t[0].range, t[1].range);
  case OpKind::Min:
    return minIntervals(t[0].range, t[1].range);
  case OpKind::Where:
    return joinIntervals(t[1].range, t[2].range);
  default:
    return {};
  }
}

struct Elaborator::ElementwiseCall {
  OpKind kind;
  const std::vector<Value> &operands;
  const std::vector<Span> &spans; // of the operands
  Span span, at;                  // of the whole, and of the operation's sign
  const char *symbol;             // null: it has none
  Comparison comparison;          // of a comparison
  std::string name() const { return symbol ? "`" + std::string(symbol) + "`" : "this operation"; }
  bool isWhere() const { return kind == OpKind::Where; }
  bool compares() const { return kind == OpKind::Compare; }
  uint8_t types() const { return infoOf(kind).operands.back().types; }
};

// The one element type of the operands that are tensors (`where`: of what is chosen); numbers take it. Empty: an error was reported.
std::optional<DType> Elaborator::typeOfOperands(const ElementwiseCall &call, Frame &frame) {
  std::optional<DType> dtype;
  size_t typedBy = 0;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Value &value = call.operands[i];
    if (value.isError())
      return std::nullopt;
    if (call.isWhere() && i == 0) {
      if (value.isTensor() && value.tensor.dtype == DType::Bool)
        continue;
      report(Code::E0202, call.spans[0], "`where` needs a bool tensor first, but this is " + describe(value, dims), frame)
          .help(value.isBool() ? "write `if c then a else b` for a constant condition" : "");
      return std::nullopt;
    }
    if (!value.isTensor() && !value.isNumber() && !value.isBool()) {
      report(Code::E0202, call.spans[i], call.name() + " does not take " + kindName(value), frame);
      return std::nullopt;
    }
    if (!value.isTensor())
      continue;
    if (dtype && *dtype != value.tensor.dtype) {
      Diagnostic &d = report(Code::E0202, call.at,
                             call.name() + " needs equal element types, but " + dtypeName(*dtype) + " meets " +
                                 dtypeName(value.tensor.dtype),
                             frame);
      labelOperand(d, call.spans[typedBy], call.operands[typedBy]);
      labelOperand(d, call.spans[i], value);
      if (*dtype != DType::Bool || value.tensor.dtype != DType::Bool)
        d.help("nothing is converted implicitly; write f32(x)");
      return std::nullopt;
    }
    if (!dtype) {
      dtype = value.tensor.dtype;
      typedBy = i;
    }
  }
  if (dtype)
    return dtype;
  // `where` of two constants
  bool bools = call.operands.size() == 3 && call.operands[1].isBool() && call.operands[2].isBool();
  return bools ? DType::Bool : DType::F32;
}

bool Elaborator::checkElementwiseType(const ElementwiseCall &call, DType dtype, Frame &frame) {
  bool ordersTruth = call.compares() && dtype == DType::Bool && call.comparison != Comparison::EQ && call.comparison != Comparison::NE;
  if (call.types() & bit(dtype) && !ordersTruth)
    return true;
  Diagnostic &d = report(Code::E0202, call.at, call.name() + " does not take " + dtypeName(dtype), frame);
  for (size_t i = 0; i < call.operands.size(); ++i)
    labelOperand(d, call.spans[i], call.operands[i]);
  bool logic = call.types() == bit(DType::Bool);
  d.help(logic                  ? "write a comparison, such as x > 0"
         : dtype == DType::Bool ? "write f32(x), or `and`, `or`, `not`"
                                : "write f32(x) first");
  return false;
}

// All operands with the axes of their union, numbers as constants of that shape.
bool Elaborator::tensorsOf(const ElementwiseCall &call, DType dtype, std::vector<Tensor> &all, Frame &frame) {
  std::vector<Tensor> tensors;
  std::vector<Span> places;
  for (size_t i = 0; i < call.operands.size(); ++i)
    if (call.operands[i].isTensor()) {
      tensors.push_back(call.operands[i].tensor);
      places.push_back(call.spans[i]);
    }
  if (!align(tensors, places, call.span, frame, call.symbol, call.at))
    return false;
  for (size_t i = 0, next = 0; i < call.operands.size(); ++i) {
    if (call.operands[i].isTensor()) {
      all.push_back(tensors[next++]);
      continue;
    }
    DType wanted = call.isWhere() && i == 0 ? DType::Bool : dtype;
    std::optional<Tensor> constant = fill(call.operands[i], wanted, tensors[0].axes, call.spans[i], frame);
    if (!constant)
      return false;
    all.push_back(*constant);
  }
  return true;
}

// The interval of a result of whole numbers.
void Elaborator::boundResult(const ElementwiseCall &call, std::vector<Tensor> operands, Tensor &result, Frame &frame) {
  for (Tensor &tensor : operands)
    tensor.range = openRange(tensor);
  result.range = resultRange(call.kind, operands);
  if (result.range.fitsI32())
    return;
  Diagnostic &d =
      report(Code::E0210, call.at, call.name() + " may leave i32: the result lies in " + intervalText(result.range), frame);
  for (size_t i = 0; i < call.operands.size(); ++i)
    labelOperand(d, call.spans[i], call.operands[i]);
  result.range = {};
}

Value Elaborator::elementwise(OpKind kind, const std::vector<Value> &operands, const std::vector<Span> &spans,
                              Span span, Frame &frame, Comparison comparison, const char *symbol, Span at) {
  ElementwiseCall call{kind, operands, spans, span, at.file < 0 ? span : at, symbol, comparison};
  std::optional<DType> dtype = typeOfOperands(call, frame);
  if (!dtype)
    return {};
  if (kind == OpKind::Div && operands[1].isNumber() && operands[1].number.isZero())
    return failure(Code::E0206, spans[1], "division by zero", frame);
  std::vector<Tensor> all;
  if (!checkElementwiseType(call, *dtype, frame) || !tensorsOf(call, *dtype, all, frame))
    return {};

  Op op(kind);
  if (call.compares())
    op.set(Key::Comparison, int64_t(comparison));
  for (const Tensor &tensor : all)
    op.operands.push_back(tensor.op);
  auto isTensor = [](const Value &value) { return value.isTensor(); };
  const Tensor &shaped = all[size_t(std::find_if(operands.begin(), operands.end(), isTensor) - operands.begin())]; // a constant has no labels
  Tensor result = emit(std::move(op), call.compares() ? DType::Bool : *dtype, shaped.axes, span, frame);
  result.labels = shaped.labels;
  if (*dtype == DType::I32 && !call.compares())
    boundResult(call, all, result, frame);
  return Value::of(result);
}

bool Elaborator::checkMaskEnd(const Tensor &tensor, Span span, Frame &frame, const char *what) {
  if (!mayBeExcept(tensor))
    return true;
  report(Code::E0211, span, std::string(what) + " of data that may hold its `except` value needs a `where`", frame)
      .help("write op[axes where y != v] e");
  return false;
}

} // namespace cinch
