// RowShapes.cpp: rows, losses, attention; what ends a training step.
#include "dialects/ops/ShapeRules.h"

#include <algorithm>

namespace cinch {

using namespace shapes;

std::string shapes::indexOfExtreme(const OpView &op, Types &results) {
  results.push_back(withoutAxes(op.in(0), {op.integer(Key::Axis)}, DType::I32));
  return "";
}

std::string shapes::crossEntropy(const OpView &op, Types &results) {
  const TensorType &logits = op.in(0), &y = op.in(1);
  TensorType loss = withoutAxes(logits, {op.integer(Key::Axis)}, logits.dtype);
  if (y != withElement(loss, y.dtype)) // C2
    return say("expected labels of type ", withElement(loss, y.dtype), ", got ", y);
  double smooth = op.number(Key::Smooth);
  if (!(smooth >= 0 && smooth < 1)) // C3
    return say("expected a smoothing in [0, 1), got ", smooth);
  results.push_back(loss);
  return "";
}

std::string shapes::crossEntropyGrad(const OpView &op, Types &) {
  Types loss;
  if (std::string fault = crossEntropy(op, loss); !fault.empty())
    return fault;
  return loss[0] != op.in(2) ? say("expected a gradient of type ", loss[0], ", got ", op.in(2)) : "";
}

// Of attention of bf16, what is neither rows of q, k, v nor a gradient of rows is f32.
static DType besideRows(const TensorType &q) { return q.dtype == DType::BF16 ? DType::F32 : q.dtype; }

std::string shapes::attend(const OpView &op, Types &results) {
  const TensorType &q = op.in(0), &k = op.in(1), &v = op.in(2);
  auto fail = [&](const char *what) { return say(what, ", got ", q, ", ", k, " and ", v); };
  int64_t lead = rankOf(q) - 3;
  if (lead < 0 || rankOf(k) != rankOf(q) || rankOf(v) != rankOf(q)) // C3
    return fail("expected q, k and v of equal rank, at least 3");
  auto leading = [&](const TensorType &type) { return Shape(type.shape.begin(), type.shape.begin() + lead); };
  if (leading(q) != leading(k) || leading(q) != leading(v) || q.batch != k.batch || q.batch != v.batch ||
      q.batch >= lead) // C1
    return fail("expected the same leading axes, the batch axis among them");
  int64_t A = q.shape[lead], T = q.shape[lead + 1], K = q.shape[lead + 2];
  int64_t G = k.shape[lead], S = k.shape[lead + 1], E = v.shape[lead + 2];
  if (A % G) // C2
    return fail("expected a multiple of the key heads as query heads");
  if (k.shape[lead + 2] != K || v.shape[lead] != G || v.shape[lead + 1] != S) // C3
    return fail("expected q[A, T, K], k[G, S, K], v[G, S, E]");
  if (k.dtype != q.dtype || v.dtype != q.dtype) // C5
    return fail("expected one element type");
  TensorType keys{DType::Bool, leading(q), q.batch}, bias{besideRows(q), {A, T, S}, -1};
  keys.shape.push_back(S);
  if (op.operands[3] && op.in(3) != keys) // C3
    return say("expected keys of type ", keys, ", got ", op.in(3));
  if (op.operands[4] && op.in(4) != bias) // C3, C4
    return say("expected a bias of type ", bias, ", got ", op.in(4));
  double dropout = op.number(Key::Dropout);
  if (!(dropout >= 0 && dropout < 1)) // C6
    return say("expected dropout in [0, 1), got ", dropout);
  results.push_back(withAxis(withElement(q, besideRows(q)), lead + 2, E));
  results.push_back(withoutAxes(q, {lead + 2}, besideRows(q)));
  return "";
}

std::string shapes::attendGrad(const OpView &op, Types &results) {
  auto same = [&](const TensorType &a, const TensorType &b, const char *name) { // C1
    return a != b ? say(name, " has type ", a, ", expected ", b) : std::string();
  };
  const char *const names[] = {"dq", "dk", "dv"};
  const TensorType &q = op.in(0);
  const DType of = results[0].dtype == besideRows(q) ? besideRows(q) : q.dtype; // rounded, or yet to be
  for (size_t i = 0; i < 3; ++i)
    if (std::string fault = same(results[i], withElement(op.in(i), of), names[i]); !fault.empty())
      return fault;
  if (std::string fault = same(op.in(5), withElement(op.in(3), q.dtype), "dout"); !fault.empty())
    return fault;
  if (op.in(4) != withoutAxes(q, {rankOf(q) - 1}, besideRows(q))) // C1
    return say("lse has type ", op.in(4), ", which is not that of a row of q");
  if (results.size() < 4)
    return "";
  return op.operands[7] ? same(results[3], op.in(7), "dbias") : "expected a bias beside its gradient"; // C2
}

std::string shapes::sumSquares(const OpView &op, Types &) {
  return op.in(0).batch >= 0 ? say("expected no batch axis, got ", op.in(0)) : ""; // C1
}

std::string shapes::newState(const OpView &op, Types &results) {
  if (op.in(0).batch >= 0) // C1
    return say("expected no batch axis, got ", op.in(0));
  results.push_back(op.in(0));
  return "";
}

std::string shapes::update(const OpView &op, Types &results) {
  const TensorType &parameter = op.in(0);
  if (parameter.batch >= 0) // C1
    return say("expected a parameter without batch axis, got ", parameter);
  auto same = [&](const TensorType &other) { // C1
    return other != parameter ? say("expected the parameter's type ", parameter, ", got ", other) : std::string();
  };
  for (size_t i = 1; i < op.operands.size(); ++i)
    if (i != 2 && i != 3) // the scalars
      if (std::string fault = same(op.in(i)); !fault.empty())
        return fault;
  for (const TensorType &result : results)
    if (std::string fault = same(result); !fault.empty())
      return fault;
  return "";
}

} // namespace cinch
