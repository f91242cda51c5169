// LINK: cinch_frontend
// The verifier between checker and emitter: a small right program is accepted, and each way of making it wrong is
// refused with the reason.
#include "compiler/frontend/VerifyProgram.h"

#include <functional>
#include <iostream>

using namespace cinch;

static int passed = 0, failed = 0;

static void check(bool ok, const std::string &what) {
  ok ? ++passed : ++failed;
  if (!ok)
    std::cout << "failed: " << what << "\n";
}

static const int64_t B = 8, D = 6, V = 10, T = 4, A = 2, K = 3;

using Attributes = std::initializer_list<std::pair<Key, AttrValue>>;
using Axes = std::vector<int64_t>;

static int add(Graph &graph, OpKind kind, std::vector<int> operands, TensorType type, Attributes attributes = {}) {
  Op op(kind, std::move(operands), attributes);
  op.type = std::move(type);
  graph.ops.push_back(std::move(op));
  return static_cast<int>(graph.ops.size()) - 1;
}

static TensorType f32(std::vector<int64_t> shape, int batch = -1) { return {DType::F32, std::move(shape), batch}; }
static TensorType i32(std::vector<int64_t> shape, int batch = -1) { return {DType::I32, std::move(shape), batch}; }
static TensorType boolean(std::vector<int64_t> shape, int batch = -1) { return {DType::Bool, std::move(shape), batch}; }

// The places of ops that the cases change.
enum Place {
  Text,
  Wte,
  Embedded,
  Heads,
  Turned,
  Attended,
  Flat,
  Logits,
  Labels,
  Losses,
  Total,
  Loss,
  Bias,
  Wide,
  Sum,
  Cut,
  Padded,
  Joined,
  Less,
  Chosen,
  Best,
  Known,
  Draws,
  Whole
};

static Program right() {
  Program p;
  p.modelName = "m";
  p.batch = B;
  p.batchName = "B";
  p.instances.push_back({});
  p.parameters.push_back({"wte", f32({V, D})});
  p.parameters.push_back({"bias", f32({V})});
  Dataset data;
  data.name = "train";
  data.fields.push_back({"text", i32({B, T}, 0)});
  data.fields.push_back({"y", i32({B, T}, 0)});
  p.datasets.push_back(data);
  p.train.steps = 10;
  p.train.optimizers.push_back({});

  Graph &g = p.step;
  auto axis = [](int64_t axis) { return std::make_pair(Key::Axis, AttrValue(axis)); };
  auto index = [](int64_t index) { return std::make_pair(Key::Index, AttrValue(index)); };
  auto sum = [](int64_t axis) { return std::make_pair(Key::Axes, AttrValue(Axes{axis})); };
  std::pair<Key, AttrValue> ofSum{Key::Reduction, int64_t(Reduction::Sum)};
  add(g, OpKind::Field, {}, i32({B, T}, 0), {index(0)});
  add(g, OpKind::Parameter, {}, f32({V, D}), {index(0)});
  add(g, OpKind::Gather, {Wte, Text}, f32({B, T, D}, 0), {{Key::XLabels, Axes{-1, 2}}, {Key::IndexLabels, Lists{{0, 1}}}});
  add(g, OpKind::Reshape, {Embedded}, f32({B, T, A, K}, 0));
  add(g, OpKind::Transpose, {Heads}, f32({B, A, T, K}, 0), {{Key::Permutation, Axes{0, 2, 1, 3}}});
  add(g, OpKind::Attend, {Turned, Turned, Turned, -1, -1}, f32({B, A, T, K}, 0), {{Key::Scale, 1.0}});
  add(g, OpKind::Reshape, {Embedded}, f32({B, T, D}, 0));
  add(g, OpKind::Contract, {Flat, Wte}, f32({B, T, V}, 0), {{Key::LhsLabels, Axes{0, 1, 3}}, {Key::RhsLabels, Axes{2, 3}}});
  add(g, OpKind::Field, {}, i32({B, T}, 0), {index(1)});
  add(g, OpKind::CrossEntropy, {Logits, Labels}, f32({B, T}, 0), {axis(2)});
  add(g, OpKind::Reduce, {Losses}, f32({B}, 0), {ofSum, sum(1)});
  add(g, OpKind::Reduce, {Total}, f32({}), {ofSum, sum(0)});
  p.loss = Loss;
  add(g, OpKind::Parameter, {}, f32({V}), {index(1)});
  add(g, OpKind::Broadcast, {Bias}, f32({B, T, V}, 0), {sum(2)});
  add(g, OpKind::Add, {Logits, Wide}, f32({B, T, V}, 0));
  add(g, OpKind::Slice, {Sum}, f32({B, 2, V}, 0), {axis(1), {Key::Begin, int64_t(1)}, {Key::End, int64_t(3)}});
  add(g, OpKind::Pad, {Cut}, f32({B, T, V}, 0), {axis(1), {Key::Before, int64_t(2)}, {Key::After, int64_t(0)}});
  add(g, OpKind::Concat, {Padded, Cut}, f32({B, T + 2, V}, 0), {axis(1)});
  add(g, OpKind::Compare, {Sum, Wide}, boolean({B, T, V}, 0), {{Key::Comparison, int64_t(Comparison::LT)}});
  add(g, OpKind::Where, {Less, Sum, Wide}, f32({B, T, V}, 0));
  add(g, OpKind::ArgMax, {Sum}, i32({B, T}, 0), {axis(2)});
  add(g, OpKind::Cast, {Less}, f32({B, T, V}, 0));
  add(g, OpKind::Random, {}, f32({B, T}, 0), {{Key::Draw, int64_t(Draw::Uniform)}, {Key::Key, int64_t(7)}});
  add(g, OpKind::Softmax, {Sum}, f32({B, T, V}, 0), {axis(2)});
  p.evaluation.ops.push_back(g.ops[Text]);
  add(p.evaluation, OpKind::ValidRows, {}, boolean({B}, 0));
  add(p.evaluation, OpKind::Constant, {}, f32({}), {{Key::Number, 1.0}});
  p.metrics.push_back({"loss", 2});
  p.prediction.ops.push_back(g.ops[Text]);
  p.results.push_back({"result", 0});
  return p;
}

static Op constant(Axes shape) {
  Op op(OpKind::Constant, {}, {{Key::Number, 1.0}});
  op.type = f32(std::move(shape));
  return op;
}

static void refused(const char *reason, const std::function<void(Program &, std::vector<Op> &)> &spoil) {
  Program p = right();
  spoil(p, p.step.ops);
  std::string fault = verifyProgram(p);
  check(fault.find(reason) != std::string::npos, std::string("expected <") + reason + ">, got <" + fault + ">");
}

int main() {
  check(verifyProgram(right()).empty(), "the right program: " + verifyProgram(right()));
  using Ops = std::vector<Op>;
  refused("before it is defined", [](Program &, Ops &o) { o[Embedded].operands[1] = Embedded; });
  refused("before it is defined", [](Program &, Ops &o) { o[Embedded].operands[0] = -2; });
  refused("operand `x` is absent", [](Program &, Ops &o) { o[Embedded].operands[0] = -1; });
  refused("unknown instance", [](Program &, Ops &o) { o[Sum].instance = 1; });
  refused("size of an axis", [](Program &, Ops &o) { o[Draws].type.shape[1] = 0; });
  refused("size of an axis", [](Program &, Ops &o) { o[Draws].type.shape[1] = int64_t(1) << 40; });
  refused("not as long as the batch", [](Program &, Ops &o) { o[Draws].type.batch = 1; });
  refused("batch axis's number", [](Program &, Ops &o) { o[Draws].type.batch = 2; });
  refused("unknown parameter", [](Program &, Ops &o) { o[Wte].set(Key::Index, int64_t(2)); });
  refused("expected the result", [](Program &, Ops &o) { o[Wte].set(Key::Index, int64_t(1)); });
  refused("unknown field", [](Program &, Ops &o) { o[Text].set(Key::Index, int64_t(2)); });
  refused("outside of the evaluation", [](Program &, Ops &o) {
    o[Draws] = Op(OpKind::ValidRows);
    o[Draws].type = boolean({B}, 0);
  });
  refused("one label an axis", [](Program &, Ops &o) { o[Embedded].set(Key::XLabels, Axes{-1}); });
  refused("stands for 6 and for 4", [](Program &, Ops &o) { o[Embedded].set(Key::XLabels, Axes{-1, 1}); });
  refused("names no index tensor", [](Program &, Ops &o) { o[Embedded].set(Key::XLabels, Axes{-2, 2}); });
  refused("without a gap", [](Program &, Ops &o) { o[Embedded].set(Key::XLabels, Axes{-1, 3}); });
  refused("is the batch axis of one operand only", [](Program &, Ops &o) {
    o[Wte] = constant({V, B});
    o[Embedded].set(Key::XLabels, Axes{-1, 0});
  });
  refused("as many elements", [](Program &, Ops &o) { o[Heads].type.shape[3] = 4; });
  refused("keep its size and place", [](Program &, Ops &o) { o[Heads].type = f32({T, B, A, K}, 1); });
  refused("keep its size and place", [](Program &, Ops &o) { o[Heads].type.batch = -1; });
  refused("a permutation", [](Program &, Ops &o) { o[Turned].set(Key::Permutation, Axes{0, 2, 2, 3}); });
  refused("expected the result", [](Program &, Ops &o) { o[Turned].set(Key::Permutation, Axes{0, 1, 2, 3}); });
  refused("`keys`", [](Program &, Ops &o) { o[Attended].operands[3] = Text; });
  refused("expected a bias of type", [](Program &, Ops &o) { o[Attended].operands[4] = Turned; });
  refused("operand `bias` is absent", [](Program &, Ops &o) { o[Attended].operands.pop_back(); });
  refused("attribute `scale` is absent", [](Program &, Ops &o) { o[Attended].set(Key::Scale, {}); });
  refused("attribute `scale` is of another kind", [](Program &, Ops &o) { o[Attended].set(Key::Scale, int64_t(1)); });
  refused("attribute `scale` is not finite", [](Program &, Ops &o) { o[Attended].set(Key::Scale, 1.0 / 0.0); });
  refused("dropout in [0, 1)", [](Program &, Ops &o) { o[Attended].set(Key::Dropout, 1.0); });
  refused("in one operand only", [](Program &, Ops &o) { o[Logits].set(Key::LhsLabels, Axes{0, 1, 4}); });
  refused("twice in one operand", [](Program &, Ops &o) {
    o[Wte] = constant({D, D});
    o[Embedded] = Op(OpKind::Random, {}, {{Key::Draw, int64_t(Draw::Uniform)}, {Key::Key, int64_t(1)}});
    o[Embedded].type = f32({B, T, D}, 0);
    o[Logits].type.shape[2] = D;
    o[Logits].set(Key::LhsLabels, Axes{0, 1, 2});
    o[Logits].set(Key::RhsLabels, Axes{2, 2});
  });
  refused("expected labels of type", [](Program &, Ops &o) { o[Losses].set(Key::Axis, int64_t(1)); });
  refused("is the batch axis", [](Program &, Ops &o) { o[Losses].set(Key::Axis, int64_t(0)); });
  refused("expected an axis below 3", [](Program &, Ops &o) { o[Losses].set(Key::Axis, int64_t(3)); });
  refused("expected an axis", [](Program &, Ops &o) { o[Total].set(Key::Axes, Axes{}); });
  refused("expected increasing axes", [](Program &, Ops &o) { o[Total].set(Key::Axes, Axes{1, 0}); });
  refused("'any' does not fit", [](Program &, Ops &o) { o[Total].set(Key::Reduction, int64_t(Reduction::Any)); });
  refused("`reduction` has no value", [](Program &, Ops &o) { o[Total].set(Key::Reduction, int64_t(9)); });
  refused("the loss is no f32[]", [](Program &p, Ops &) { p.loss = Total; });
  refused("axis 0 has 10 elements", [](Program &, Ops &o) { o[Wide].set(Key::Axes, Axes{1}); });
  refused("the batch axis does not carry over", [](Program &, Ops &o) {
    o[Bias] = constant({B});
    o[Wide].set(Key::Axes, Axes{0});
  });
  refused("expected one type", [](Program &, Ops &o) { o[Sum].operands[1] = Embedded; });
  refused("operand `a`", [](Program &, Ops &o) { o[Chosen] = o[Sum], o[Chosen].operands = {Less, Less}; });
  refused("expected 2 operands", [](Program &, Ops &o) { o[Sum].operands.push_back(Wide); });
  refused("expected a range", [](Program &, Ops &o) { o[Cut].set(Key::Begin, int64_t(3)); });
  refused("is the batch axis", [](Program &, Ops &o) { o[Cut].set(Key::Axis, int64_t(0)); });
  refused("expected the result", [](Program &, Ops &o) { o[Cut].set(Key::Begin, int64_t(0)); });
  refused("no negative count", [](Program &, Ops &o) { o[Padded].set(Key::After, int64_t(-1)); });
  refused("expected the result", [](Program &, Ops &o) { o[Joined].operands.push_back(Cut); });
  refused("expected the result", [](Program &, Ops &o) { o[Less].type.dtype = DType::I32; });
  refused("operand `condition`", [](Program &, Ops &o) { o[Chosen].operands[0] = Sum; });
  refused("expected the result", [](Program &, Ops &o) { o[Best].type.dtype = DType::F32; });
  refused("no float to become an integer", [](Program &, Ops &o) {
    o[Known].operands[0] = Sum;
    o[Known].type.dtype = DType::I32;
  });
  refused("the result's element type", [](Program &, Ops &o) { o[Known].type.dtype = DType::Bool; });
  refused("fits 'int'", [](Program &, Ops &o) { o[Draws].set(Key::Draw, int64_t(Draw::Int)); });
  refused("is the batch axis", [](Program &, Ops &o) { o[Whole].set(Key::Axis, int64_t(0)); });
  refused("no batch", [](Program &p, Ops &) { p.batch = 0; });
  refused("one of steps and epochs", [](Program &p, Ops &) { p.train.epochs = 1; });
  refused("no optimizer", [](Program &p, Ops &) { p.train.optimizers.clear(); });
  refused("unknown optimizer", [](Program &p, Ops &) { p.parameters[0].optimizer = 1; });
  refused("has the batch axis", [](Program &p, Ops &) { p.parameters[0].type = f32({B}, 0); });
  refused("two parameters with the path", [](Program &p, Ops &) { p.parameters[1].path = "wte"; });
  refused("batch axis is not the first", [](Program &p, Ops &) { p.datasets[0].fields[0].type.batch = -1; });
  refused("metric `loss`", [](Program &p, Ops &) { p.metrics[0].op = 0; });
  refused("result `result`", [](Program &p, Ops &) { p.results[0].op = 9; });
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
