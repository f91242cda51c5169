// Reductions.cpp: sum, mean, max, min, prod, any, all over axes named by size or by index, with or without a `where`;
// and the reductions over the batch that `train` may write, which differ in the step and in an evaluation.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>
#include <limits>

namespace cinch {

using namespace ast;

Value Elaborator::evalReduction(const Expr &expr, Frame &frame) {
  if (expr.reduction == ReductionOp::Scan)
    return evalScan(expr, frame);
  bool sizes = true, names = false;
  for (const Place &place : expr.places) {
    if (place.dots)
      continue;
    names = true;
    const std::string &name = place.name.text;
    bool index = frame.index && frame.index->find(name) >= 0;
    bool known = frame.names.count(name) || (frame.file != 0 && fileFrame.names.count(name));
    sizes &= known && !index;
  }
  if (!frame.index)
    return sizes ? reduceBySize(expr, frame) : reduceByIndex(expr, frame);
  return sizes && names ? noIndices(expr, frame) : reduceByIndex(expr, frame);
}

// A reduction inside index notation all of whose names are known already.
Value Elaborator::noIndices(const Expr &expr, Frame &frame) {
  for (const Place &place : expr.places) {
    if (place.dots)
      continue;
    const std::string &name = place.name.text;
    if (tables.unknown.count({place.span.file, place.span.begin})) // told by the names pass
      return {};
    Value known = lookup(name, place.span, frame);
    if (known.isNumber() || known.isError())
      continue;
    Diagnostic &d = report(Code::E0406, place.span, "`" + name + "` is a name already; an index is a new name", frame);
    if (auto own = frame.names.find(name); own != frame.names.end())
      d.label(own->second.span, "defined here");
    d.help("give the index or the value another name");
    return {};
  }
  return failure(Code::E0406, expr.op, "a reduction inside index notation names indices, not sizes", frame);
}

// A mean is a sum, divided afterwards.
static Reduction reductionOf(ReductionOp op) {
  switch (op) {
  case ReductionOp::Max:
    return Reduction::Max;
  case ReductionOp::Min:
    return Reduction::Min;
  case ReductionOp::Prod:
    return Reduction::Prod;
  case ReductionOp::Any:
    return Reduction::Any;
  case ReductionOp::All:
    return Reduction::All;
  default:
    return Reduction::Sum;
  }
}

// The condition behind `where`; nothing without one. False after an error.
bool Elaborator::reductionMask(const Expr &expr, Frame &frame, std::optional<Tensor> &mask) {
  if (!expr.where)
    return true;
  Value condition = eval(*expr.where, frame);
  if (condition.isError())
    return false;
  if (!condition.isTensor() || condition.tensor.dtype != DType::Bool) {
    report(Code::E0407, expr.where->span, "the condition of `where` must be a bool tensor, but this is " + describe(condition, dims), frame);
    return false;
  }
  mask = condition.tensor;
  return true;
}

// The indices of a reduction are names inside it alone.
Value Elaborator::reduceByIndex(const Expr &expr, Frame &frame) {
  IndexScope own, *outer = frame.index;
  IndexScope &scope = outer ? *outer : own;
  std::vector<int> bound;
  for (const Place &place : expr.places) {
    if (scope.find(place.dots ? "" : place.name.text) >= 0)
      return failure(Code::E0401, place.span, "index `" + (place.dots ? ".." : place.name.text) + "` is bound already",
                     frame);
    bound.push_back(bindIndex(scope, place.dots ? "" : place.name.text, place.span));
    scope.indices[bound.back()].reduced = true;
  }
  frame.index = &scope;
  Value value = reduceBound(expr, bound, frame);
  for (int index : bound)
    scope.indices[index].visible = false;
  frame.index = outer;
  if (!outer && value.isTensor())
    value.tensor.labels.clear();
  return value;
}

// The labels of the axes that go, how many elements of an operand make one of the result, and whether examples are among them. False
// after an error: the size of an index is that of the axes it stands on.
bool Elaborator::sizeBound(const std::vector<int> &bound, std::set<int> &gone, Number &count, bool &overBatch, Frame &frame) {
  for (int index : bound) {
    const IndexScope::Index &info = frame.index->indices[index];
    if (!info.used) {
      report(Code::E0404, info.span,
             "index `" + (info.name.empty() ? ".." : info.name) + "` is summed over but not used, so its size is unknown", frame);
      return false;
    }
    for (size_t k = 0; k < info.sizes.size(); ++k) {
      gone.insert((info.order << 8) + static_cast<int>(k));
      overBatch |= isBatch(info.sizes[k]);
      if (std::optional<Number> more = multiplyNumbers(count, info.sizes[k].bare()))
        count = *more;
    }
  }
  return true;
}

// A sum of products, or their mean, as one contraction.
Value Elaborator::reduceProduct(const Expr &expr, const Tensor &left, const Tensor &right, const std::set<int> &gone, const Number &count,
                                Frame &frame) {
  std::set<int> kept;
  for (const Tensor *tensor : {&left, &right})
    for (int label : tensor->labels)
      if (!gone.count(label))
        kept.insert(label);
  if (!checkMaskEnd(left, expr.span, frame, "a sum") || !checkMaskEnd(right, expr.span, frame, "a sum"))
    return {};
  Value product = Value::of(contract(left, right, {kept.begin(), kept.end()}, {gone.begin(), gone.end()}, expr.span, frame));
  if (expr.reduction == ReductionOp::Mean)
    product = elementwise(OpKind::Mul, {product, Value::of(*divideNumbers(Number(1), count))}, {expr.span, expr.span}, expr.span, frame,
                          Comparison::EQ, "mean");
  return product;
}

Value Elaborator::reduceBound(const Expr &expr, const std::vector<int> &bound, Frame &frame) {
  std::optional<Tensor> mask;
  if (!reductionMask(expr, frame, mask))
    return {};
  const Expr &body = *expr.children[0];
  bool adds = expr.reduction == ReductionOp::Sum || expr.reduction == ReductionOp::Mean;
  auto product = [&](const Value &left, const Value &right) {
    return elementwise(OpKind::Mul, {left, right}, {body.children[0]->span, body.children[1]->span}, body.span, frame, Comparison::EQ, "*");
  };
  Value value, left, right;
  bool contraction = false;
  if (adds && !mask && body.kind == ExprKind::Binary && body.binary == BinaryOp::Mul) {
    left = eval(*body.children[0], frame);
    right = eval(*body.children[1], frame);
    if (left.isError() || right.isError())
      return {};
    contraction = left.isTensor() && right.isTensor() && contracts(left.tensor, right.tensor);
    if (!left.isTensor() && !right.isTensor())
      value = constantBinary(BinaryOp::Mul, left, right, body, frame);
    else if (!contraction)
      value = product(left, right);
  } else {
    value = eval(body, frame);
  }
  if (value.isError() && !contraction)
    return {};
  std::set<int> gone;
  Number count(1);
  bool overBatch = false;
  if (!sizeBound(bound, gone, count, overBatch, frame))
    return {};
  if (contraction && !overBatch && !gone.empty())
    return reduceProduct(expr, left.tensor, right.tensor, gone, count, frame);
  if (contraction)
    value = product(left, right);
  if (!value.isTensor())
    return value.isError() ? Value()
                           : failure(Code::E0407, body.span, "a reduction takes a tensor, but this is " + describe(value, dims), frame);
  std::vector<Tensor> both = {value.tensor};
  std::vector<Span> spans = {body.span};
  if (mask) {
    both.push_back(*mask);
    spans.push_back(expr.where->span);
  }
  if (!align(both, spans, expr.span, frame, spelling(expr.reduction)))
    return {};
  if (mask)
    mask = both[1];
  std::vector<int64_t> axes;
  for (size_t i = 0; i < both[0].labels.size(); ++i)
    if (gone.count(both[0].labels[i]))
      axes.push_back(static_cast<int64_t>(i));
  return reduce(expr, both[0], mask, axes, frame);
}

Value Elaborator::reduceBySize(const Expr &expr, Frame &frame) {
  Value value = eval(*expr.children[0], frame);
  if (value.isError())
    return {};
  if (!value.isTensor())
    return failure(Code::E0407, expr.children[0]->span,
                   "a reduction takes a tensor, but this is " + describe(value, dims), frame);
  std::vector<Tensor> both = {value.tensor};
  std::vector<Span> spans = {expr.children[0]->span};
  std::optional<Tensor> mask;
  if (!reductionMask(expr, frame, mask))
    return {};
  if (mask) {
    both.push_back(*mask);
    spans.push_back(expr.where->span);
    if (!align(both, spans, expr.where->span, frame, "where"))
      return {};
    mask = both[1];
  }
  const Tensor &tensor = both[0];
  std::set<int64_t> axes;
  bool dots = false;
  for (const Place &place : expr.places) {
    if (place.dots) {
      dots = true;
      continue;
    }
    Value size = lookup(place.name.text, place.span, frame);
    if (size.isError())
      return {};
    if (!size.isNumber())
      return failure(Code::E0406, place.span,
                     "a reduction names sizes, but `" + place.name.text + "` is " + describe(size, dims), frame);
    std::vector<int64_t> found;
    for (size_t i = 0; i < tensor.axes.size(); ++i)
      if (sameForm(tensor.axes[i], size.number))
        found.push_back(static_cast<int64_t>(i));
    if (found.size() != 1) {
      Diagnostic &d = report(Code::E0406, place.span,
                             std::string(found.empty() ? "no axis" : "more than one axis") + " of " + typeOf(tensor) +
                                 " has the size " + sizeText(size.number),
                             frame);
      labelOperand(d, expr.children[0]->span, Value::of(tensor));
      if (found.empty())
        d.help(sameLength(tensor, size.number));
      if (!found.empty() && expr.places.size() == tensor.axes.size()) // of a square
        d.help("all axes are " + std::string(spelling(expr.reduction)) + "[..]");
      else
        d.help("reduce with index names, y[i] = " + std::string(spelling(expr.reduction)) + "[k] x[i, k]");
      return {};
    }
    if (!axes.insert(found[0]).second)
      return failure(Code::E0406, place.span, "the axis " + place.name.text + " is named twice", frame);
  }
  if (dots)
    for (size_t i = 0; i < tensor.axes.size(); ++i)
      axes.insert(static_cast<int64_t>(i));
  return reduce(expr, tensor, mask, {axes.begin(), axes.end()}, frame);
}

Tensor Elaborator::emitReduce(ReductionOp kind, const Tensor &value, const std::vector<int64_t> &axes, Span span,
                              Frame &frame) {
  Tensor result = value;
  double count = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    count *= result.axes[axes[i]].real;
    result.axes.erase(result.axes.begin() + axes[i]);
    if (!result.labels.empty())
      result.labels.erase(result.labels.begin() + axes[i]);
  }
  result.hasExcept = false;
  if (axes.empty())
    return result;
  if (kind == ReductionOp::Prod) // a product of elements leaves their interval
    result.range = {};
  Op op(OpKind::Reduce, {value.op}, {{Key::Reduction, int64_t(reductionOf(kind))}, {Key::Axes, axes}});
  op.written = kind == ReductionOp::Mean ? "mean" : "";
  result.op = emit(op, value.dtype, result.axes, span, frame).op;
  if (kind == ReductionOp::Mean && count != 1) {
    int number = emit(Op(OpKind::Constant, {}, {{Key::Number, count}}), DType::F32, result.axes, span, frame).op;
    Op share(OpKind::Div, {result.op, number});
    share.written = op.written;
    result.op = emit(std::move(share), DType::F32, result.axes, span, frame).op;
  }
  return result;
}

Value Elaborator::reduce(const Expr &expr, Tensor value, std::optional<Tensor> mask, std::vector<int64_t> axes,
                         Frame &frame) {
  ReductionOp kind = expr.reduction;
  std::string name = std::string("`") + spelling(expr.reduction) + "`";
  Span span = expr.span;
  bool adds = kind == ReductionOp::Sum || kind == ReductionOp::Mean,
       logic = kind == ReductionOp::Any || kind == ReductionOp::All;
  if (mask && !adds && !logic)
    return failure(Code::E0407, expr.op, name + " takes no `where`; only sum, mean, any and all do", frame);
  if (logic != (value.dtype == DType::Bool) && !(adds && value.dtype == DType::Bool))
    return failure(Code::E0407, expr.op, name + " does not take " + dtypeName(value.dtype), frame);
  if (adds && value.dtype == DType::I32) {
    report(kind == ReductionOp::Sum ? Code::E0710 : Code::E0407, expr.op,
           name + (kind == ReductionOp::Sum ? " of i32 is not there yet" : " does not take i32"), frame)
        .help("write f32(x)");
    return {};
  }
  if (!mask && !checkMaskEnd(value, span, frame, "a reduction"))
    return {};
  if (mask && mayBeExcept(*mask))
    return failure(Code::E0211, expr.where->span, "the condition itself depends on the `except` value of the data",
                   frame);
  value.hasExcept = false;
  int batch = batchAxis(value.axes);
  const bool overBatch = batch >= 0 && std::find(axes.begin(), axes.end(), batch) != axes.end();
  if (adds && value.dtype == DType::Bool && !overBatch) {
    value.op = emit(Op(OpKind::Cast, {value.op}), DType::F32, value.axes, span, frame).op;
    value.dtype = DType::F32;
  }
  if (overBatch) {
    if (frame.isTrain || frame.inUpdate)
      return reduceBatch(expr, value, mask, axes, frame);
    report(Code::E0502, expr.op, name + " over the batch axis " + dims[batchDim].name + " mixes examples", frame)
        .help("reductions over the batch stand in `train` and in `update`");
    return {};
  }
  if (!mask) {
    Value result = Value::of(emitReduce(kind, value, axes, span, frame));
    return result;
  }
  Value all = Value::of(value), condition = Value::of(*mask);
  if (kind == ReductionOp::Any)
    return Value::of(emitReduce(kind, elementwise(OpKind::And, {condition, all}, {span, span}, span, frame).tensor,
                                axes, span, frame));
  if (kind == ReductionOp::All) {
    Value outside = elementwise(OpKind::Not, {condition}, {span}, span, frame);
    return Value::of(
        emitReduce(kind, elementwise(OpKind::Or, {outside, all}, {span, span}, span, frame).tensor, axes, span, frame));
  }
  Value zero = Value::of(Number(0)), one = Value::of(Number(1));
  Value inside = elementwise(OpKind::Where, {condition, all, zero}, {span, span, span}, span, frame);
  Value sum = Value::of(emitReduce(ReductionOp::Sum, inside.tensor, axes, span, frame));
  if (kind == ReductionOp::Sum)
    return sum;
  Tensor counted = emit(Op(OpKind::Cast, {mask->op}), DType::F32, mask->axes, span, frame);
  counted.labels = mask->labels;
  Value count = Value::of(emitReduce(ReductionOp::Sum, counted, axes, span, frame));
  count = elementwise(OpKind::Max, {count, one}, {span, span}, span, frame); // none: the sum is 0 and stays it
  return elementwise(OpKind::Div, {sum, count}, {span, span}, span, frame);
}

// The rows of an evaluation's last batch that are examples.
std::optional<Tensor> Elaborator::validRows(Span span, Frame &frame) {
  return emit(Op(OpKind::ValidRows), DType::Bool, {Number::ofDim(batchDim, dims[batchDim].value)}, span, frame);
}

// What `max`, `min` and `prod` give of nothing.
static double neutralOf(ReductionOp kind, DType type) {
  if (kind == ReductionOp::Prod)
    return 1;
  double largest = type == DType::I32 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<double>::infinity();
  double smallest = type == DType::I32 ? std::numeric_limits<int32_t>::min() : -largest;
  return kind == ReductionOp::Max ? smallest : largest;
}

// In the step: over the full batch, whose size is known. In an evaluation: sums over the valid rows of this batch, so
// that the sums of all batches may be added, and the number of valid rows is such a sum too.
Value Elaborator::reduceBatch(const Expr &expr, Tensor value, std::optional<Tensor> mask, std::vector<int64_t> axes,
                              Frame &frame) {
  ReductionOp kind = expr.reduction;
  Span span = expr.span;
  bool picks = kind == ReductionOp::Max || kind == ReductionOp::Min || kind == ReductionOp::Prod; // never with a `where`
  if (picks && mode != GraphMode::Evaluation)
    return Value::of(emitReduce(kind, value, axes, span, frame));
  if (mode == GraphMode::Evaluation) {
    Tensor valid = *validRows(span, frame);
    std::vector<int> labels = value.labels;
    valid = broadcastTo(valid, value.axes, {batchAxis(value.axes)}, span, frame);
    valid.labels = labels;
    Value both = Value::of(valid);
    if (mask)
      both = elementwise(OpKind::And, {both, Value::of(*mask)}, {span, span}, span, frame);
    mask = both.tensor;
  }
  if (picks) { // rows that are no examples change nothing
    Tensor none = emit(Op(OpKind::Constant, {}, {{Key::Number, neutralOf(kind, value.dtype)}}), value.dtype, value.axes, span, frame);
    none.labels = value.labels;
    Tensor valid = value;
    valid.op = emit(Op(OpKind::Where, {mask->op, value.op, none.op}), value.dtype, value.axes, span, frame).op;
    return Value::of(emitReduce(kind, valid, axes, span, frame));
  }
  auto cast = [&](const Tensor &flags) {
    Tensor numbers = emit(Op(OpKind::Cast, {flags.op}), DType::F32, flags.axes, span, frame);
    numbers.labels = flags.labels;
    return numbers;
  };
  if (kind == ReductionOp::Any || kind == ReductionOp::All) { // by counting
    Value flags = Value::of(value);
    if (kind == ReductionOp::All)
      flags = elementwise(OpKind::Not, {flags}, {span}, span, frame);
    if (mask)
      flags = elementwise(OpKind::And, {Value::of(*mask), flags}, {span, span}, span, frame);
    Value count = Value::of(emitReduce(ReductionOp::Sum, cast(flags.tensor), axes, span, frame));
    return elementwise(OpKind::Compare, {count, Value::of(Number(0))}, {span, span}, span, frame,
                       kind == ReductionOp::Any ? Comparison::GT : Comparison::EQ);
  }
  const bool counts = value.dtype == DType::Bool; // a cast of flags is counted exactly (DecomposeOps), so it comes last
  if (!mask)
    return Value::of(emitReduce(kind, counts ? cast(value) : value, axes, span, frame));
  Value zero = Value::of(Number(0));
  Value inside = counts ? Value::of(cast(elementwise(OpKind::And, {Value::of(*mask), Value::of(value)}, {span, span}, span, frame).tensor))
                        : elementwise(OpKind::Where, {Value::of(*mask), Value::of(value), zero}, {span, span, span}, span, frame);
  Value sum = Value::of(emitReduce(ReductionOp::Sum, inside.tensor, axes, span, frame));
  if (kind == ReductionOp::Sum)
    return sum;
  Value count;
  if (expr.where) {
    count = Value::of(emitReduce(ReductionOp::Sum, cast(*mask), axes, span, frame));
    count = elementwise(OpKind::Max, {count, Value::of(Number(1))}, {span, span}, span, frame);
  } else { // valid rows times the elements of a row
    count = Value::of(emitReduce(ReductionOp::Sum, cast(*validRows(span, frame)), {0}, span, frame));
    Number others(1);
    for (int64_t axis : axes)
      if (!isBatch(value.axes[axis]))
        if (std::optional<Number> more = multiplyNumbers(others, value.axes[axis].bare()))
          others = *more;
    if (others.integer() != 1)
      count = elementwise(OpKind::Mul, {count, Value::of(others)}, {span, span}, span, frame);
  }
  if (frame.index)
    count.tensor.labels.resize(count.tensor.axes.size());
  return elementwise(OpKind::Div, {sum, count}, {span, span}, span, frame);
}

} // namespace cinch
