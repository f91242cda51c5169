// ElementShapes.cpp: constants, draws, element-wise ops, and ops that move elements.
#include "dialects/ops/ShapeRules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace cinch {

using namespace shapes;

static bool isWhole(double value) { return std::floor(value) == value && std::fabs(value) < 9007199254740992.0; }

std::string shapes::constant(const OpView &op, Types &results) {
  double number = op.number(Key::Number);
  DType element = results[0].dtype;
  if ((element == DType::I32 && (!isWhole(number) || std::fabs(number) > 2147483648.0)) ||
      (element == DType::Bool && number != 0 && number != 1)) // C1
    return say("expected a number that ", element, " holds, got ", number);
  return "";
}

std::string shapes::oneAxis(const TensorType &type, const std::string &size) {
  if (type.shape.size() != 1) // C1
    return say("expected one axis", size, ", got ", type);
  if (type.batch >= 0) // C2
    return say("expected no batch axis, got ", type);
  return "";
}

std::string shapes::vector(const OpView &op, Types &results) {
  size_t count = std::get<std::vector<double>>(op.attribute(Key::Numbers)).size();
  std::string of = say(" of ", count, " elements");
  if (rankOf(results[0]) == 1 && results[0].shape[0] != int64_t(count)) // C1
    return say("expected one axis", of, ", got ", results[0]);
  return oneAxis(results[0], of);
}

std::string shapes::random(const OpView &op, Types &results) {
  auto draw = Draw(op.integer(Key::Draw));
  DType element = results[0].dtype;
  bool fits = draw == Draw::Int    ? element == DType::I32
              : draw == Draw::Bool ? element == DType::Bool
                                   : isFloat(element);
  if (!fits) // C1
    return say("expected an element type that fits '", nameOf(ChoiceType::Draw, int64_t(draw)), "', got ", element);
  double number = op.number(Key::Number);
  if ((draw == Draw::Int && (!isWhole(number) || number < 1)) ||
      (draw == Draw::Bool && !(number >= 0 && number <= 1))) // C2
    return say("expected a count >= 1 or a probability in [0, 1], got ", number);
  return "";
}

std::string shapes::compare(const OpView &op, Types &results) {
  if (op.in(0) != op.in(1))
    return say("expected one type, got ", op.in(0), " and ", op.in(1));
  results.push_back(withElement(op.in(0), DType::Bool));
  return "";
}

std::string shapes::where(const OpView &op, Types &results) {
  const TensorType &condition = op.in(0), &a = op.in(1), &b = op.in(2);
  if (condition != withElement(a, DType::Bool)) // C1
    return say("expected the condition to have the shape and batch axis of ", a, ", got ", condition);
  if (a != b) // C2
    return say("expected one type, got ", a, " and ", b);
  results.push_back(a);
  return "";
}

std::string shapes::cast(const OpView &op, Types &results) {
  const TensorType &from = op.in(0), &to = results[0];
  if (withElement(from, to.dtype) != to) // C1
    return say("expected shape and batch axis to stay, got ", from, " to ", to);
  if (isFloat(from.dtype) && !isFloat(to.dtype)) // C2
    return say("expected no float to become an integer, got ", from, " to ", to);
  return "";
}

std::string shapes::broadcast(const OpView &op, Types &results) {
  const TensorType &from = op.in(0), &to = results[0];
  const Shape &axes = op.integers(Key::Axes);
  if (int64_t(axes.size()) != rankOf(from)) // C1
    return say("expected ", rankOf(from), " axes, got ", axes.size());
  int64_t last = -1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] <= last || axes[i] >= rankOf(to)) // C1
      return say("expected increasing axes below ", rankOf(to), ", got ", axes[i], " behind ", last);
    last = axes[i];
    if (from.shape[i] != to.shape[last]) // C2
      return say("axis ", i, " has ", from.shape[i], " elements, axis ", last, " of the result ", to.shape[last]);
  }
  if (from.dtype != to.dtype)
    return say("expected one element type, got ", from, " and ", to);
  bool fits = from.batch >= 0 ? to.batch == axes[from.batch] && to.group == from.group
                              : to.batch < 0 || std::find(axes.begin(), axes.end(), to.batch) == axes.end();
  if (!fits) // C3
    return say("the batch axis does not carry over, from ", from, " to ", to);
  return "";
}

std::string shapes::transpose(const OpView &op, Types &results) {
  const TensorType &x = op.in(0);
  const Shape &permutation = op.integers(Key::Permutation);
  Shape sorted = permutation, axes(x.shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(axes.begin(), axes.end(), 0);
  if (sorted != axes) // C1
    return say("expected a permutation of ", rankOf(x), " axes");
  TensorType result{x.dtype, {}, -1};
  for (int64_t axis : permutation) {
    if (axis == x.batch)
      result.batch = int(result.shape.size()), result.group = x.group;
    result.shape.push_back(x.shape[axis]);
  }
  results.push_back(result);
  return "";
}

std::string shapes::reshape(const OpView &op, Types &results) {
  const TensorType &from = op.in(0), &to = results[0];
  if (from.dtype != to.dtype || elementsOf(from.shape, from.shape.size()) != elementsOf(to.shape, to.shape.size())) // C1
    return say("expected as many elements of one type, got ", from, " and ", to);
  if ((from.batch < 0) != (to.batch < 0) ||
      (from.batch >= 0 && (from.shape[from.batch] * from.group != to.shape[to.batch] * to.group ||
                           elementsOf(from.shape, from.batch) != elementsOf(to.shape, to.batch)))) // C2
    return say("expected the batch axis to keep its size and place, got ", from, " and ", to);
  return "";
}

std::string shapes::slice(const OpView &op, Types &results) {
  int64_t axis = op.integer(Key::Axis), begin = op.integer(Key::Begin), end = op.integer(Key::End);
  if (begin < 0 || begin >= end || end > op.in(0).shape[axis]) // C2
    return say("expected a range inside ", op.in(0).shape[axis], " elements, got ", begin, " to ", end);
  results.push_back(withAxis(op.in(0), axis, end - begin));
  return "";
}

std::string shapes::pad(const OpView &op, Types &results) {
  int64_t axis = op.integer(Key::Axis), before = op.integer(Key::Before), after = op.integer(Key::After);
  if (before < 0 || after < 0) // C2
    return say("expected no negative count, got ", before, " and ", after);
  results.push_back(withAxis(op.in(0), axis, before + op.in(0).shape[axis] + after));
  return "";
}

std::string shapes::concat(const OpView &op, Types &results) {
  const TensorType &first = op.in(0);
  int64_t axis = op.integer(Key::Axis), size = 0;
  for (const TensorType *type : op.operands) {
    if (rankOf(*type) != rankOf(first) || withAxis(*type, axis, 1) != withAxis(first, axis, 1)) // C3
      return say("expected all but axis ", axis, " to agree, got ", first, " and ", *type);
    size += type->shape[axis];
  }
  results.push_back(withAxis(first, axis, size));
  return "";
}

} // namespace cinch
