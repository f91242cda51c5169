// Shapes.cpp: the shape rules: the types of the results, batch axis included, from those of the operands, and what else an op
// asks of its types and attributes. C1, C2 .. are the constraints as the op's description in dialects/nn numbers them.
#include "dialects/ops/ShapeRules.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace cinch {

using namespace shapes;

static const char *elementName(DType type) {
  static const char *const names[] = {"f32", "i32", "i1", "f64", "bf16"};
  return names[size_t(type)];
}

std::string typeText(const TensorType &type) {
  std::string text = "tensor<";
  for (int64_t size : type.shape)
    text += std::to_string(size) + "x";
  text += elementName(type.dtype);
  if (type.batch < 0)
    return text + ">";
  text += ", #nn.batch<" + std::to_string(type.batch);
  return text + (type.group > 1 ? ", group = " + std::to_string(type.group) : "") + ">>";
}

std::string shapes::piece(double number) {
  char buffer[40];
  snprintf(buffer, sizeof buffer, "%.6e", number);
  return buffer;
}
std::string shapes::piece(DType type) { return std::string("'") + elementName(type) + "'"; }

int64_t shapes::elementsOf(const Shape &shape, size_t count) {
  return std::accumulate(shape.begin(), shape.begin() + count, int64_t(1), std::multiplies<int64_t>());
}

TensorType shapes::withElement(TensorType type, DType element) {
  type.dtype = element;
  return type;
}

TensorType shapes::withAxis(TensorType type, int64_t axis, int64_t size) {
  type.shape[axis] = size;
  return type;
}

TensorType shapes::withoutAxes(const TensorType &type, const Shape &axes, DType element) {
  TensorType result{element, {}, -1};
  for (int64_t axis = 0; axis < rankOf(type); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      continue;
    if (axis == type.batch)
      result.batch = int(result.shape.size()), result.group = type.group;
    result.shape.push_back(type.shape[axis]);
  }
  return result;
}

// ---- Which rule an op has ---------------------------------------------------------------------------------------------
using Rule = std::string (*)(const OpView &, Types &);
static Rule ruleOf(OpKind kind) {
  switch (kind) {
  case OpKind::Constant: return constant;
  case OpKind::Vector: return vector;
  case OpKind::Range: return [](const OpView &, Types &results) { return oneAxis(results[0], ""); };
  case OpKind::Random: return random;
  case OpKind::Compare: return compare;
  case OpKind::Where: return where;
  case OpKind::Cast: return cast;
  case OpKind::Broadcast: return broadcast;
  case OpKind::Transpose: return transpose;
  case OpKind::Reshape: return reshape;
  case OpKind::Slice: return slice;
  case OpKind::Pad: return pad;
  case OpKind::Concat: return concat;
  case OpKind::Reduce: return reduce;
  case OpKind::Contract: return contract;
  case OpKind::Gather: return gather;
  case OpKind::ScatterAdd: return scatterAdd;
  case OpKind::ArgMax: case OpKind::ArgMin: return indexOfExtreme;
  case OpKind::CrossEntropy: return crossEntropy;
  case OpKind::CrossEntropyGrad: return crossEntropyGrad;
  case OpKind::Attend: return attend;
  case OpKind::AttendGrad: return attendGrad;
  case OpKind::Conv: return conv;
  case OpKind::MaxPool: case OpKind::SumPool: return pool;
  case OpKind::MaxPoolGrad: case OpKind::SumPoolGrad: return poolGrad;
  case OpKind::SumSquares: return sumSquares;
  case OpKind::GroupMean: return groupMean;
  case OpKind::NewState: return newState;
  case OpKind::Update: return update;
  default: return nullptr;
  }
}

bool infersTypes(OpKind kind) { return infoOf(kind).infers || infoOf(kind).sameType; }

std::string applyShapeRule(const OpView &op, Types &results) {
  const OpInfo &info = infoOf(op.kind);
  if (info.has(Key::Axis)) { // an axis is one of operand 0, and never the batch's
    int64_t axis = op.integer(Key::Axis);
    if (op.operands.empty())
      return "expected an operand";
    if (axis < 0 || axis >= rankOf(op.in(0)))
      return say("expected an axis below ", rankOf(op.in(0)), ", got ", axis);
    if (axis == op.in(0).batch)
      return say("axis ", axis, " is the batch axis: an op works example by example");
  }
  if (Rule rule = ruleOf(op.kind))
    return rule(op, results);
  if (info.sameType) {
    for (const TensorType *operand : op.operands)
      if (*operand != op.in(0))
        return say("expected one type, got ", op.in(0), " and ", *operand);
    results.push_back(op.in(0));
  }
  return "";
}

std::string checkForm(const OpView &op) {
  const OpInfo &info = infoOf(op.kind);
  size_t next = 0;
  for (const ValueInfo &wanted : info.operands) {
    size_t count = wanted.count == Count::Variadic ? op.operands.size() - next : 1;
    for (; count > 0; --count, ++next) {
      if (next >= op.operands.size() || (!op.operands[next] && wanted.count != Count::Optional))
        return say("operand `", wanted.name, "` is absent");
      if (op.operands[next] && !(bit(op.in(next).dtype) & wanted.types))
        return say("operand `", wanted.name, "` is of type ", op.in(next));
    }
  }
  if (next != op.operands.size())
    return say("expected ", next, " operands, got ", op.operands.size());
  if (op.attributes.size() != info.attributes.size())
    return say("expected ", info.attributes.size(), " attributes, got ", op.attributes.size());
  for (size_t i = 0; i < info.attributes.size(); ++i) {
    const AttrInfo &wanted = info.attributes[i];
    const AttrValue &value = op.attributes[i];
    static const size_t alternatives[] = {2, 3, 1, 4, 5, 6, 2}; // of AttrValue, by kind
    if (wanted.optional && value.index() == 0)
      continue;
    if (value.index() != alternatives[size_t(wanted.kind)])
      return say("attribute `", wanted.name, "` is ", value.index() ? "of another kind" : "absent");
    if (wanted.kind == AttrKind::Choice && !nameOf(wanted.choice, std::get<int64_t>(value)))
      return say("attribute `", wanted.name, "` has no value ", std::get<int64_t>(value));
    // What a largest or a smallest starts from is an infinite constant.
    if (wanted.kind == AttrKind::Number)
      if (double number = std::get<double>(value); std::isnan(number) || (std::isinf(number) && op.kind != OpKind::Constant))
        return say("attribute `", wanted.name, "` is not finite");
  }
  return "";
}

} // namespace cinch
