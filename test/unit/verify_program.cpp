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

static int add(Graph &graph, OpKind kind, std::vector<int> operands, TensorType type, std::vector<int64_t> ints = {},
               std::vector<std::vector<int64_t>> maps = {}) {
  Op op;
  op.kind = kind;
  op.operands = std::move(operands);
  op.type = std::move(type);
  op.ints = std::move(ints);
  op.maps = std::move(maps);
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
  Draw,
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
  add(g, OpKind::Field, {}, i32({B, T}, 0));
  add(g, OpKind::Parameter, {}, f32({V, D}));
  add(g, OpKind::Gather, {Wte, Text}, f32({B, T, D}, 0), {}, {{-1, 2}, {0, 1}});
  add(g, OpKind::Reshape, {Embedded}, f32({B, T, A, K}, 0));
  add(g, OpKind::Transpose, {Heads}, f32({B, A, T, K}, 0), {0, 2, 1, 3});
  add(g, OpKind::Attend, {Turned, Turned, Turned}, f32({B, A, T, K}, 0));
  add(g, OpKind::Reshape, {Embedded}, f32({B, T, D}, 0));
  add(g, OpKind::Contract, {Flat, Wte}, f32({B, T, V}, 0), {}, {{0, 1, 3}, {2, 3}});
  add(g, OpKind::Field, {}, i32({B, T}, 0));
  g.ops.back().index = 1;
  add(g, OpKind::CrossEntropy, {Logits, Labels}, f32({B, T}, 0), {2});
  add(g, OpKind::Reduce, {Losses}, f32({B}, 0), {1});
  add(g, OpKind::Reduce, {Total}, f32({}), {0});
  p.loss = Loss;
  add(g, OpKind::Parameter, {}, f32({V}));
  g.ops.back().index = 1;
  add(g, OpKind::Broadcast, {Bias}, f32({B, T, V}, 0), {2});
  add(g, OpKind::Add, {Logits, Wide}, f32({B, T, V}, 0));
  add(g, OpKind::Slice, {Sum}, f32({B, 2, V}, 0), {1, 1, 3});
  add(g, OpKind::Pad, {Cut}, f32({B, T, V}, 0), {1, 2, 0});
  add(g, OpKind::Concat, {Padded, Cut}, f32({B, T + 2, V}, 0), {1});
  add(g, OpKind::Compare, {Sum, Wide}, boolean({B, T, V}, 0));
  add(g, OpKind::Where, {Less, Sum, Wide}, f32({B, T, V}, 0));
  add(g, OpKind::ArgMax, {Sum}, i32({B, T}, 0), {2});
  add(g, OpKind::Cast, {Less}, f32({B, T, V}, 0));
  add(g, OpKind::Random, {}, f32({B, T}, 0));
  add(g, OpKind::Softmax, {Sum}, f32({B, T, V}, 0), {2});
  p.evaluation.ops.push_back(g.ops[Text]);
  add(p.evaluation, OpKind::ValidRows, {}, boolean({B}, 0));
  add(p.evaluation, OpKind::Constant, {}, f32({}));
  p.metrics.push_back({"loss", 2});
  p.prediction.ops.push_back(g.ops[Text]);
  p.results.push_back({"result", 0});
  return p;
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
  refused("before it is defined", [](Program &, Ops &o) { o[Embedded].operands[0] = -1; });
  refused("unknown instance", [](Program &, Ops &o) { o[Sum].instance = 1; });
  refused("size of an axis", [](Program &, Ops &o) { o[Draw].type.shape[1] = 0; });
  refused("size of an axis", [](Program &, Ops &o) { o[Draw].type.shape[1] = int64_t(1) << 40; });
  refused("not as long as the batch", [](Program &, Ops &o) { o[Draw].type.batch = 1; });
  refused("batch axis's number", [](Program &, Ops &o) { o[Draw].type.batch = 2; });
  refused("unknown parameter", [](Program &, Ops &o) { o[Wte].index = 2; });
  refused("expected the result", [](Program &, Ops &o) { o[Wte].index = 1; });
  refused("unknown field", [](Program &, Ops &o) { o[Text].index = 2; });
  refused("outside of the evaluation", [](Program &, Ops &o) {
    o[Draw].kind = OpKind::ValidRows;
    o[Draw].type = boolean({B}, 0);
  });
  refused("as many labels as axes", [](Program &, Ops &o) { o[Embedded].maps[0].pop_back(); });
  refused("runs over two sizes", [](Program &, Ops &o) { o[Embedded].maps[0] = {-1, 1}; });
  refused("which index tensor", [](Program &, Ops &o) { o[Embedded].maps[0] = {-2, 2}; });
  refused("no operand has", [](Program &, Ops &o) { o[Embedded].maps[0] = {-1, 3}; });
  refused("number of elements", [](Program &, Ops &o) { o[Heads].type.shape[3] = 4; });
  refused("moves the batch axis", [](Program &, Ops &o) { o[Heads].type = f32({T, B, A, K}, 1); });
  refused("loses the batch axis", [](Program &, Ops &o) { o[Heads].type.batch = -1; });
  refused("no permutation", [](Program &, Ops &o) { o[Turned].ints = {0, 2, 2, 3}; });
  refused("expected the result", [](Program &, Ops &o) { o[Turned].ints = {0, 1, 2, 3}; });
  refused("keys", [](Program &, Ops &o) {
    o[Attended].attend.hasKeys = true;
    o[Attended].operands.push_back(Text);
  });
  refused("expected 4 operands", [](Program &, Ops &o) { o[Attended].attend.hasBias = true; });
  refused("in one operand only", [](Program &, Ops &o) { o[Logits].maps = {{0, 1, 4}, {2, 3}}; });
  refused("twice in one operand", [](Program &, Ops &o) {
    o[Wte].kind = OpKind::Constant;
    o[Wte].type.shape = {D, D};
    o[Embedded].kind = OpKind::Random;
    o[Embedded].operands.clear();
    o[Logits].type.shape[2] = D;
    o[Logits].maps = {{0, 1, 2}, {2, 2}};
  });
  refused("labels' shape", [](Program &, Ops &o) { o[Losses].ints = {1}; });
  refused("along the batch axis", [](Program &, Ops &o) { o[Losses].ints = {0}; });
  refused("axis outside", [](Program &, Ops &o) { o[Losses].ints = {3}; });
  refused("no axes", [](Program &, Ops &o) { o[Total].ints = {}; });
  refused("not increasing", [](Program &, Ops &o) { o[Total].ints = {1, 0}; });
  refused("(Reduce): dtype", [](Program &, Ops &o) { o[Total].reduce = ReduceKind::Any; });
  refused("the loss is no f32[]", [](Program &p, Ops &) { p.loss = Total; });
  refused("an axis is stretched", [](Program &, Ops &o) { o[Wide].ints = {1}; });
  refused("becomes the batch axis", [](Program &, Ops &o) {
    o[Bias].kind = OpKind::Constant;
    o[Bias].type.shape = {B};
    o[Wide].ints = {0};
  });
  refused("operands differ", [](Program &, Ops &o) { o[Sum].operands[1] = Embedded; });
  refused("arithmetic on bool", [](Program &, Ops &o) { o[Chosen] = o[Sum], o[Chosen].operands = {Less, Less}; });
  refused("bounds", [](Program &, Ops &o) { o[Cut].ints = {1, 3, 3}; });
  refused("along the batch axis", [](Program &, Ops &o) { o[Cut].ints = {0, 1, 3}; });
  refused("expected the result", [](Program &, Ops &o) { o[Cut].ints = {1, 0, 3}; });
  refused("negative padding", [](Program &, Ops &o) { o[Padded].ints = {1, 3, -1}; });
  refused("expected the result", [](Program &, Ops &o) { o[Joined].operands.push_back(Cut); });
  refused("expected the result", [](Program &, Ops &o) { o[Less].type.dtype = DType::I32; });
  refused("dtype of an operand", [](Program &, Ops &o) { o[Chosen].operands[0] = Sum; });
  refused("expected the result", [](Program &, Ops &o) { o[Best].type.dtype = DType::F32; });
  refused("only to f32", [](Program &, Ops &o) { o[Known].operands[0] = Sum; });
  refused("dtype", [](Program &, Ops &o) { o[Draw].random = RandomKind::Int; });
  refused("along the batch axis", [](Program &, Ops &o) { o[Whole].ints = {0}; });
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
