// Reversible.cpp: a reversible layer is an additive coupling of two streams,
//
//     y1 = x1 + e1      e1 depends on x2, not on x1              x2 = y2 - e2
//     y2 = x2 + e2      e2 depends on y1, not on x1, x2, y2      x1 = y1 - e1
//
// so that the backward pass can rebuild what goes in from what comes out. It is checked on the ops of the body, whatever way they are
// written in. The two additions are marked with the operand that is the stream; GradientSweep.cpp rebuilds by the marks.
#include "compiler/frontend/Elaborator.h"

#include <unordered_set>

namespace cinch {

using namespace ast;

// The tensors of the two streams; null: the layer has not two.
static std::vector<Tensor *> streamsOf(const LayerItem &layer, Frame &callee) {
  std::vector<Tensor *> streams;
  for (const ast::Parameter &parameter : layer.signature.parameters)
    if (parameter.type) {
      Value &value = callee.names.at(parameter.name.text).value;
      streams.push_back(value.isTensor() ? &value.tensor : nullptr);
    }
  return streams;
}

bool Elaborator::enterCoupling(const Call &call, Frame &callee, Frame &caller) {
  const LayerItem &layer = call.layer;
  std::vector<Tensor *> streams = streamsOf(layer, callee);
  auto wrong = [&](Code code, const std::string &what) {
    report(code, call.span, what, caller).label(layer.name.span, "declared here");
    return false;
  };
  if (streams.size() != 2 || layer.signature.results.size() != 2)
    return wrong(Code::E0705, "the reversible layer `" + layer.name.text + "` must take two tensors and return two");
  for (Tensor *stream : streams)
    if (!stream || stream->dtype != DType::F32)
      return wrong(Code::E0705, "the two streams of the reversible layer `" + layer.name.text + "` must be f32 tensors");
  if (!activeLoops.empty())
    return wrong(Code::E0710, "a reversible layer in a loop is not there yet");
  if (reversibleDepth > 0)
    return wrong(Code::E0710, "a reversible layer inside of another is not there yet");
  // Each stream is a value of its own, which the backward pass rebuilds for itself. Copied are a transposed tensor, which index notation in the layer
  // would look through, and the second stream if the first is that one (`blocks(h, h)`) or made of it: what the layer makes of it again would
  // be found to be the first stream.
  auto copy = [&](Tensor &stream) {
    Value copied = elementwise(OpKind::Mul, {Value::of(stream), Value::of(Number(1))}, {call.span, call.span}, call.span, callee);
    if (copied.isTensor())
      stream = copied.tensor;
    return copied.isTensor();
  };
  for (Tensor *stream : streams)
    if (graph->at(stream->op).kind == OpKind::Transpose && !copy(*stream))
      return false;
  if (dependsOn(streams[0]->op, streams[1]->op, -1) && !copy(*streams[1]))
    return false;
  ++reversibleDepth;
  return true;
}

// Whether an op is computed from another by a way that does not lead through `cut`.
bool Elaborator::dependsOn(int op, int wanted, int cut) {
  std::vector<int> stack{op};
  std::unordered_set<int> seen;
  while (!stack.empty()) {
    int at = stack.back();
    stack.pop_back();
    if (at == wanted)
      return true;
    if (at < wanted || at == cut || !seen.insert(at).second) // operands come before what is made of them
      continue;
    for (int operand : graph->at(at).operands)
      if (operand >= 0)
        stack.push_back(operand);
  }
  return false;
}

// Which operand of the addition that gives `result` is the stream; -1: it is no such addition.
int Elaborator::couplingOperand(const Tensor &result, const Tensor &stream) {
  const Op &op = graph->at(result.op);
  if (op.kind != OpKind::Add)
    return -1;
  for (int i : {0, 1})
    if (op.operands[i] == stream.op && op.operands[1 - i] != stream.op)
      return i;
  return -1;
}

bool Elaborator::checkCoupling(const Call &call, const std::vector<Value> &results, const std::vector<Span> &spans, Frame &callee) {
  std::vector<Tensor *> x = streamsOf(call.layer, callee);
  std::vector<std::string> names;
  for (const ast::Parameter &parameter : call.layer.signature.parameters)
    if (parameter.type)
      names.push_back(parameter.name.text);
  auto wrong = [&](int i, const std::string &what) {
    report(Code::E0705, spans[i], what, callee)
        .note("a reversible layer is y1 = x1 + e1, y2 = x2 + e2, where e1 depends on x2 and e2 on y1 alone");
    return false;
  };
  int streamOf[2];
  for (int i : {0, 1}) {
    streamOf[i] = couplingOperand(results[i].tensor, *x[i]);
    if (streamOf[i] < 0)
      return wrong(i, std::string("the ") + (i ? "second" : "first") + " result of a reversible layer must be `" + names[i] + "` and something added to it");
  }
  int y1 = results[0].tensor.op, y2 = results[1].tensor.op;
  int e1 = graph->at(y1).operands[1 - streamOf[0]], e2 = graph->at(y2).operands[1 - streamOf[1]];
  if (dependsOn(e1, x[0]->op, x[1]->op)) // of an earlier layer of a chain, the second stream itself is made of the first
    return wrong(0, "what is added to `" + names[0] + "` depends on it, so it cannot be rebuilt from the results");
  for (int i : {0, 1})
    if (dependsOn(e2, x[i]->op, y1))
      return wrong(1, "what is added to `" + names[1] + "` depends on `" + names[i] + "` other than through the first result");
  graph->at(y1).stream = streamOf[0];
  graph->at(y2).stream = streamOf[1];
  return true;
}

} // namespace cinch
