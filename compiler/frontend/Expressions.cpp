// Expressions.cpp: one function for each kind of expression. Constants are computed, tensors become ops.
#include "compiler/frontend/Elaborator.h"
#include "compiler/solve/Units.h"

#include <algorithm>
#include <cmath>

namespace cinch {

using namespace ast;

// Constant and shape arithmetic nests inside layers inside layers; all of it together stays within this depth.
static constexpr int maxDepth = 1200;
static constexpr long maxEvaluations = 4000000; // more than a million for examples/revnet of 1000 blocks

Value Elaborator::eval(const Expr &expr, Frame &frame) {
  if (evalDepth >= maxDepth)
    return failure(Code::E0207, expr.span, "layers and expressions nest too deeply here", frame);
  if (++evaluations > maxEvaluations) {
    if (!tooLarge)
      report(Code::E0207, expr.span, "the program is too large to be checked", frame)
          .help("make `repeat` counts smaller");
    tooLarge = true;
    return {};
  }
  ++evalDepth;
  int bad = badOps;
  Value value;
  switch (expr.kind) {
  case ExprKind::Number:
    value = evalNumber(expr, frame);
    break;
  case ExprKind::String:
    value = Value::ofText(Value::String, expr.text);
    break;
  case ExprKind::Bool:
    value = Value::ofBool(expr.flag);
    break;
  case ExprKind::Name:
    if (frame.index && frame.index->find(expr.text) >= 0)
      value = indexIsNoValue(expr.text, expr.span, frame);
    else if (isCalledByName(expr.text, frame))
      value = callNamed(expr, expr, nullptr, {}, frame);
    else
      value = lookup(expr.text, expr.span, frame);
    if (frame.index && value.isTensor())
      value = requireScalar(std::move(value), expr.span, frame);
    break;
  case ExprKind::Tuple:
    value.kind = Value::Tuple;
    for (const ExprPtr &child : expr.children) {
      value.items.push_back(eval(*child, frame));
      if (value.items.back().isTensor()) {
        value = failure(Code::E0207, child->span, "a tensor may not stand in a tuple", frame);
        break;
      }
      if (value.items.back().isError()) {
        value = {};
        break;
      }
    }
    break;
  case ExprKind::Call:
    value = evalCall(expr, frame);
    break;
  case ExprKind::Index:
    value = evalIndex(expr, frame);
    break;
  case ExprKind::Transpose:
    value = evalTranspose(expr, frame);
    break;
  case ExprKind::Unary:
    value = evalUnary(expr, frame);
    break;
  case ExprKind::Binary:
    value = evalBinary(expr, frame);
    break;
  case ExprKind::Reduction:
    value = evalReduction(expr, frame);
    break;
  case ExprKind::If:
    value = evalIf(expr, frame);
    break;
  }
  --evalDepth;
  if (bad != badOps)
    return {};
  noteFact(expr.span, value);
  return value;
}

// Whether the file says `precision f64`; settings are read behind the graphs.
bool Elaborator::asksForF64() const {
  return train && std::any_of(train->clauses.begin(), train->clauses.end(), [](const Statement &clause) {
           const Setting &setting = clause.setting;
           return clause.kind == StatementKind::Setting && setting.key.text == "precision" && !setting.words.empty() && setting.words[0].text == "f64";
         });
}

// For editors: what a piece of the user's text is, in the step or, where the step has none of it, elsewhere.
void Elaborator::noteFact(Span span, const Value &value) {
  if (!options.facts || span.file != file.id || value.isError() || value.kind == Value::Tuple)
    return;
  std::string text = describe(value, dims);
  if (value.isTensor()) {
    double bytes = value.tensor.dtype == DType::Bool ? 1 : value.tensor.dtype == DType::F32 && asksForF64() ? 8 : 4;
    std::string sizes;
    for (const Number &axis : value.tensor.axes) {
      bytes *= axis.real;
      sizes += (sizes.empty() ? "" : " x ") + countText(axis.real);
    }
    text += (sizes.empty() ? "" : " = " + sizes) + ", " + solve::bytesText(int64_t(bytes)); // below 2^47
  }
  options.facts->note(span, text);
}

Value Elaborator::evalWhole(const Expr &expr, Frame &frame) {
  IndexScope *outer = frame.index;
  frame.index = nullptr;
  Value value = eval(expr, frame);
  frame.index = outer;
  return value;
}

Value Elaborator::evalNumber(const Expr &expr, Frame &frame) {
  if (!expr.unit.empty())
    return failure(Code::E0207, expr.span,
                   "a number of bytes has no place here" +
                       (expr.unit == "B" ? "; a product with a size named B is written " + expr.text + " * B" : std::string()),
                   frame);
  if (std::optional<Number> number = parseNumber(expr.text))
    return Value::of(*number);
  bool small = strtod(expr.text.c_str(), nullptr) < 1;
  return failure(Code::E0206, expr.span, "the number " + expr.text + (small ? " is too small, and is not 0" : " is too large"), frame);
}

std::optional<Number> Elaborator::evalConstantNumber(const Expr &expr, Frame &frame, const char *what) {
  Value value = evalWhole(expr, frame);
  if (value.isNumber())
    return value.number;
  if (!value.isError())
    report(Code::E0207, expr.span,
           std::string(what) + " must be a number known at compile time, but this is " +
               (value.isTensor() ? "a tensor, " + typeOf(value.tensor) : kindName(value)),
           frame);
  return std::nullopt;
}

Value Elaborator::evalIf(const Expr &expr, Frame &frame) {
  Value condition = evalWhole(*expr.children[0], frame);
  if (condition.isError())
    return {};
  if (condition.isTensor()) {
    report(Code::E0207, expr.children[0]->span,
           "the condition of `if` must be a constant, but this is " + typeOf(condition.tensor), frame)
        .help("write where(c, a, b) to choose element by element");
    return {};
  }
  if (!condition.isBool())
    return failure(Code::E0207, expr.children[0]->span,
                   "the condition of `if` must be a boolean, but this is " + std::string(kindName(condition)), frame);
  return eval(*expr.children[condition.flag ? 1 : 2], frame);
}

Value Elaborator::evalUnary(const Expr &expr, Frame &frame) {
  Value value = eval(*expr.children[0], frame);
  Span at = expr.children[0]->span;
  if (value.isError())
    return {};
  if (expr.unary == UnaryOp::Not) {
    if (value.isBool())
      return Value::ofBool(!value.flag);
    if (value.isTensor() && value.tensor.dtype == DType::Bool)
      return elementwise(OpKind::Not, {value}, {at}, expr.span, frame);
    return failure(Code::E0202, at, "`not` takes a bool, but this is " + describe(value, dims), frame);
  }
  if (value.isNumber())
    return Value::of(negateNumber(value.number));
  if (value.isTensor() && value.tensor.dtype != DType::Bool) {
    if (value.tensor.dtype == DType::F32)
      return elementwise(OpKind::Neg, {value}, {at}, expr.span, frame);
    return elementwise(OpKind::Sub, {Value::of(Number(0)), value}, {at, at}, expr.span, frame, Comparison::EQ, "-");
  }
  return failure(Code::E0202, at, "`-` takes numbers, but this is " + describe(value, dims), frame);
}

Value Elaborator::evalBinary(const Expr &expr, Frame &frame) {
  if (expr.binary == BinaryOp::MatMul && frame.index)
    return failure(Code::E0405, expr.op, "`@` has no place in index notation; write a sum over an index", frame);
  Value left = eval(*expr.children[0], frame), right = eval(*expr.children[1], frame);
  if (left.isError() || right.isError())
    return {};
  if (expr.binary == BinaryOp::MatMul)
    return evalMatMul(expr, left, right, frame);
  if (!left.isTensor() && !right.isTensor())
    return constantBinary(expr.binary, left, right, expr, frame);
  static const struct {
    OpKind kind;
    Comparison compare;
  } table[] = {
      {OpKind::Add, Comparison::EQ},     {OpKind::Sub, Comparison::EQ},      {OpKind::Mul, Comparison::EQ},
      {OpKind::Div, Comparison::EQ},     {OpKind::Constant, Comparison::EQ}, {OpKind::Pow, Comparison::EQ},
      {OpKind::Compare, Comparison::EQ}, {OpKind::Compare, Comparison::NE},  {OpKind::Compare, Comparison::LT},
      {OpKind::Compare, Comparison::LE}, {OpKind::Compare, Comparison::GT},  {OpKind::Compare, Comparison::GE},
      {OpKind::And, Comparison::EQ},     {OpKind::Or, Comparison::EQ}};
  const auto &entry = table[static_cast<int>(expr.binary)];
  return elementwise(entry.kind, {left, right}, {expr.children[0]->span, expr.children[1]->span}, expr.span, frame,
                     entry.compare, spelling(expr.binary), expr.op);
}

// a @ b is a contraction of the last axis of a with the last but one of b; leading axes as in element-wise operations.
Value Elaborator::evalMatMul(const Expr &expr, const Value &left, const Value &right, Frame &frame) {
  Span at[] = {expr.children[0]->span, expr.children[1]->span};
  const Value *values[] = {&left, &right};
  for (int i = 0; i < 2; ++i) {
    const Value &value = *values[i];
    if (value.isTensor() && value.tensor.dtype == DType::F32 && value.tensor.axes.size() >= 2)
      continue;
    Diagnostic &d =
        report(Code::E0202, expr.op,
               "`@` takes f32 with two axes or more, but " + textOf(at[i]) + " is " + describe(value, dims), frame);
    labelOperand(d, at[0], left);
    labelOperand(d, at[1], right);
    if (value.isTensor() && value.tensor.axes.size() == 1)
      d.help("write a sum over an index, y[i] = sum[k] a[i, k] * b[k]");
    return {};
  }
  const Tensor &a = left.tensor, &b = right.tensor;
  size_t m = a.axes.size() - 2, n = b.axes.size() - 2;
  const Number &inner = a.axes[m + 1], &other = b.axes[n];
  if (isBatch(inner) || isBatch(other))
    return failure(Code::E0502, expr.op, "`@` may not contract the batch axis " + dims[batchDim].name, frame);
  if (!sameSize(inner, other)) {
    Diagnostic &d = report(Code::E0203, expr.op,
                           "`@` needs equal inner sizes, but " + sizeText(inner) + " meets " + sizeText(other), frame);
    labelOperand(d, at[0], left, &inner);
    labelOperand(d, at[1], right, &other);
    const cinch::Parameter *parameter = parameterOf(right);
    if (sameSize(inner, b.axes[n + 1]))
      d.help("transpose it: " + textOf(at[0]) + " @ " + textOf(at[1]) + "'");
    else if (parameter && n == 0 && sources.text(parameter->span) == textOf(at[1]))
      d.help("write `param " + textOf(at[1]) + ": " + typeText(DType::F32, {inner, b.axes[1]}, dims) + "`");
    else if (compareNumbers(inner, other) == 0)
      d.help(equalValuesHelp(inner, other));
    else
      d.help("make the last axis of " + textOf(at[0]) + " and the last but one of " + textOf(at[1]) + " the same size");
    return {};
  }
  size_t lead = std::max(m, n);
  std::vector<Number> axes(lead);
  for (size_t i = 0; i < lead; ++i) { // from the right
    size_t place = lead - 1 - i;
    if (i < m && i < n && !sameSize(a.axes[m - 1 - i], b.axes[n - 1 - i])) {
      Diagnostic &d = report(Code::E0201, expr.op,
                             "`@` needs equal leading axes, but " + sizeText(a.axes[m - 1 - i]) + " meets " +
                                 sizeText(b.axes[n - 1 - i]),
                             frame);
      labelOperand(d, at[0], left, &a.axes[m - 1 - i]);
      labelOperand(d, at[1], right, &b.axes[n - 1 - i]);
      return {};
    }
    axes[place] = i < m && i < n ? betterName(a.axes[m - 1 - i], b.axes[n - 1 - i])
                  : i < m        ? a.axes[m - 1 - i]
                                 : b.axes[n - 1 - i];
  }
  axes.push_back(a.axes[m]);
  axes.push_back(b.axes[n + 1]);
  Tensor x = a, y = b;
  x.labels.clear();
  y.labels.clear();
  for (size_t i = 0; i < m; ++i)
    x.labels.push_back(static_cast<int>(lead - m + i));
  for (size_t i = 0; i < n; ++i)
    y.labels.push_back(static_cast<int>(lead - n + i));
  int row = static_cast<int>(lead), column = row + 1, sum = row + 2;
  x.labels.insert(x.labels.end(), {row, sum});
  y.labels.insert(y.labels.end(), {sum, column});
  std::vector<int> result;
  for (int i = 0; i <= column; ++i)
    result.push_back(i);
  Tensor product = contract(x, y, result, {sum}, expr.span, frame);
  product.labels.clear();
  return Value::of(product);
}

Value Elaborator::evalTranspose(const Expr &expr, Frame &frame) {
  Value value = eval(*expr.children[0], frame);
  if (value.isError())
    return {};
  if (frame.index)
    return failure(Code::E0405, expr.op, "`'` has no place in index notation; change the order of the indices", frame);
  if (!value.isTensor() || value.tensor.axes.size() < 2)
    return failure(
        Code::E0202, expr.span,
        "`'` swaps the last two axes, but " + textOf(expr.children[0]->span) + " is " + describe(value, dims), frame);
  std::vector<int64_t> order;
  for (size_t i = 0; i < value.tensor.axes.size(); ++i)
    order.push_back(static_cast<int64_t>(i));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return Value::of(transposed(value.tensor, order, expr.span, frame));
}

} // namespace cinch
