// LINK: cinch_frontend
// -D and --set; keys of random draws; names of results; equal calls in `train`; where hints go.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"

#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <map>

using namespace cinch;

static int passed = 0, failed = 0;
static void expect(bool good, const std::string &what) {
  ++(good ? passed : failed);
  if (!good)
    llvm::outs() << "failed: " << what << "\n";
}

struct Outcome {
  std::optional<Program> program;
  std::string messages;
  bool says(const std::string &text) const { return messages.find(text) != std::string::npos; }
};

static Outcome compile(const std::string &text, const Options &options = {}) {
  SourceList sources;
  int id = sources.add("case.cinch", text);
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, id, diags);
  Outcome outcome;
  if (!diags.hasErrors())
    outcome.program = check(sources, prelude, file, options, diags);
  llvm::raw_string_ostream os(outcome.messages);
  diags.print(os);
  if (outcome.program)
    expect(verifyProgram(*outcome.program).empty(), "the verifier: " + verifyProgram(*outcome.program));
  return outcome;
}

static std::string model(const std::string &body, const std::string &train) {
  return "dim B = 8 batch, D = 4, F = 2 * D\nconst rate = 0.5\n"
         "data train = npz(\"d\") -> (x: f32[B, D], y: i32[B] below D)\n"
         "layer noisy(x: f32[B, D]) -> f32[B, D] { return x + random_uniform[B, D] + dropout(x, rate) }\n"
         "model net(x: f32[B, D]) -> f32[B, D] {\n" +
         body + "}\ntrain net on train seed 3 {\n" + train + "  steps 10\n}\n";
}
static const char *const linear = "  use up = linear[F], down = linear[D]\n  return down(relu(up(x)))\n";
static const char *const plain = "  loss = mean[B] cross_entropy(net(x), y)\n  optimizer sgd(lr = 0.1)\n";

static std::vector<uint64_t> keys(const Graph &graph) {
  std::vector<uint64_t> result;
  for (const Op &op : graph.ops)
    if (op.kind == OpKind::Random)
      result.push_back(uint64_t(op.integer(Key::Key)));
  return result;
}

// The formula of Elaborator.h, written again.
static uint64_t keyOf(const std::vector<uint64_t> &chain) {
  uint64_t key = 0;
  for (uint64_t number : chain) {
    uint64_t z = key + 0x9e3779b97f4a7c15ull + number;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    key = z ^ (z >> 31);
  }
  return key;
}

static void overrides() {
  std::string text = model(linear, plain);
  Outcome wide = compile(text, {{{"D", "6"}, {"B", "2"}}, {}});
  expect(wide.program && wide.program->batch == 2, "-D B=2");
  expect(wide.program && wide.program->parameters[0].type.shape == std::vector<int64_t>{12, 6},
         "abbreviations follow -D");
  expect(compile(text, {{{"F", "6"}}, {}}).says("abbreviation of 2 * D"), "-D of an abbreviation");
  expect(compile(text, {{{"E", "6"}}, {}}).says("no dim or const `E`"), "-D of an unknown name");
  expect(compile(text, {{{"rat", "1"}}, {}}).says("did you mean `rate`?"), "-D suggests");
  expect(compile(text, {{{"D", "six"}}, {}}).says("`six` is not a number"), "-D of a word");
  expect(compile(text, {{{"D", "1/2"}}, {}}).says("E0608"), "-D of a fraction's text");
  expect(compile(text, {{{"D", "0.5"}}, {}}).says("E0204"), "-D of half an axis");
  expect(compile(text, {{{"D", "-4"}}, {}}).says("E0204"), "-D of a negative axis");
  Options all{{},
              {{"train.lr", "0.25"},
               {"train.momentum", "0.9"},
               {"train.decay", "1e-2"},
               {"train.epochs", "7"},
               {"train.grain", "4"},
               {"train.seed", "99"},
               {"train.precision", "f64"},
               {"train.clip", "2"}}};
  Outcome set = compile(text, all);
  expect(set.program.has_value(), "--set: " + set.messages);
  if (set.program) {
    const Train &t = set.program->train;
    expect(t.optimizers[0].value("lr") == 0.25 && t.optimizers[0].value("momentum") == 0.9 &&
               t.optimizers[0].value("decay") == 0.01,
           "--set of the optimizer");
    expect(t.steps == 0 && t.epochs == 7, "--set train.epochs replaces steps");
    expect(t.grain == 4 && t.seed == 99 && t.f64 && t.clipNorm == 2, "--set of single values");
  }
  const std::pair<const char *, const char *> wrong[] = {{"train.lrr", "did you mean `train.lr`?"},
                                                         {"leraning", "unknown key `leraning`"},
                                                         {"train.steps", "from 1 to 2^53"},
                                                         {"train.grain", "must divide"},
                                                         {"train.momentum", "[0, 1)"},
                                                         {"train.precision", "f32, f64 and bf16"},
                                                         {"train.lr", "at least 0"},
                                                         {"train.seed", "below 2^64"},
                                                         {"learning_rate", "did you mean `lr`?"},
                                                         {"train.weight_decay", "did you mean `train.decay`?"}};
  const char *const values[] = {"1", "1", "0", "3", "1", "f16", "x", "1.5", "1", "1"};
  for (size_t i = 0; i < std::size(values); ++i)
    expect(compile(text, {{}, {{wrong[i].first, values[i]}}}).says(wrong[i].second),
           std::string("--set ") + wrong[i].first + "=" + values[i]);
  expect(compile(model(linear, "  loss = mean[B] cross_entropy(net(x), y)\n  optimizer adam(lr = 0.1)\n"),
                 {{}, {{"train.momentum", "0.5"}}})
             .says("no optimizer of this file has it"),
         "--set of what no optimizer has");
  expect(compile(text, {{}, {{"ema", "0.5"}}}).says("there is no `ema` in this file"), "--set of an average that there is not");
  expect(!compile(text, {{}, {{"foo", "1"}}}).says("did you mean"), "--set of a key that is near to none");
  const std::string scheduled = model(linear, std::string(plain) + "  schedule step(factor = 0.1, every = 2)\n");
  expect(compile(scheduled, {{}, {{"end", "0.5"}}}).says("the schedule of this file does not have it"), "--set of what the schedule has not");
  expect(compile(scheduled, {{}, {{"factor", "0.5"}}}).program.has_value(), "--set of what it has");
  expect(compile(text, {{}, {{"lr", "1/100"}}}).says("in digits: 0.01 or 1e-2"), "--set of a fraction");
  expect(compile(text, {{}, {{"train.precision", "bf16"}}}).program.has_value(), "--set train.precision=bf16");
  Outcome tf32 = compile(text, {{}, {{"train.precision", "tf32"}}});
  expect(tf32.program && tf32.program->train.tf32 && !tf32.program->train.f64, "--set train.precision=tf32");
  Outcome f32 = compile(model(linear, std::string(plain) + "  precision tf32\n"), {{}, {{"precision", "f32"}}});
  expect(f32.program && !f32.program->train.tf32, "--set precision=f32 in the place of tf32");
  std::string planned = text + "plan { microbatch 2 }\n";
  expect(compile(planned, {{}, {{"train.grain", "2"}}}).program.has_value(), "--set train.grain, whole grains");
  expect(compile(planned, {{}, {{"train.grain", "4"}}}).says("multiple of `grain`"), "--set train.grain, cut grains");
}

// A byte order mark is skipped, and counts in no column.
static void byteOrderMark() {
  std::string text = model(linear, plain), mark = "\xEF\xBB\xBF";
  Outcome with = compile(mark + text);
  expect(with.program.has_value(), "a byte order mark: " + with.messages);
  Outcome wrong = compile(mark + "dam B = 8\n" + text);
  expect(wrong.says("case.cinch:1:1\n") && !wrong.says("unknown character"), "a place behind the mark: " + wrong.messages);
  expect(compile(text + mark).says("unknown character"), "a byte order mark elsewhere is a character");
}

static void draws() {
  std::string body = "  use l = linear[D], n = repeat 2 again\n  h = noisy(l(x))\n  return n(noisy(h))\n";
  std::string text =
      model(body, "  loss = mean[B] cross_entropy(net(x), y)\n  metric m = mean[B] (argmax(net(x)) == y)\n"
                  "  optimizer sgd(lr = 0.1)\n") +
      "layer again(x: f32[B, D]) -> f32[B, D] { return noisy(x) }\n";
  Outcome outcome = compile(text);
  expect(outcome.program.has_value(), "draws: " + outcome.messages);
  if (!outcome.program)
    return;
  std::vector<uint64_t> step = keys(outcome.program->step), eval = keys(outcome.program->evaluation);
  // train: cross_entropy is call 0, net 1. net: noisy 0, l 1, n 2, noisy 3. again: noisy 0. noisy: random_uniform 0,
  // dropout 1. dropout: where 0, random_bool 1.
  std::vector<uint64_t> uniform = {keyOf({1, 0, 0}), keyOf({1, 3, 0}), keyOf({1, 2, 0, 0, 0}), keyOf({1, 2, 1, 0, 0})};
  std::vector<uint64_t> masks = {keyOf({1, 0, 1, 1}), keyOf({1, 3, 1, 1}), keyOf({1, 2, 0, 0, 1, 1}),
                                 keyOf({1, 2, 1, 0, 1, 1})};
  std::vector<uint64_t> all = uniform;
  all.insert(all.end(), masks.begin(), masks.end());
  auto sorted = [](std::vector<uint64_t> list) {
    std::sort(list.begin(), list.end());
    return list;
  };
  expect(sorted(step) == sorted(all), "keys of the step follow the formula");
  expect(sorted(eval) == sorted(uniform), "evaluation draws with the same keys, and no dropout");
  expect(sorted(keys(outcome.program->prediction)) == sorted(uniform), "prediction draws with the same keys");
}

// An instance that is called by its name alone draws numbers of its own in every place, and moves no number of another call.
static void drawsOfBareInstances() {
  Outcome outcome = compile(model("  use l = linear[D], n = noise[D]\n  return l(noisy(x)) + (n - n)\n", plain) +
                            "layer noise[N]() -> f32[B, N] { return random_normal[B, N] }\n");
  expect(outcome.program.has_value(), "draws of instances: " + outcome.messages);
  if (!outcome.program)
    return;
  const uint64_t bare = 1 << 27;
  // train: cross_entropy is call 0, net 1. net: l 0, noisy 1. noisy: random_uniform 0, dropout 1. dropout: where 0, random_bool 1.
  std::vector<uint64_t> all = {keyOf({1, 1, 0}), keyOf({1, 1, 1, 1}), keyOf({1, bare, 0}), keyOf({1, bare + 1, 0})};
  std::vector<uint64_t> step = keys(outcome.program->step);
  std::sort(all.begin(), all.end());
  std::sort(step.begin(), step.end());
  expect(step == all, "instances without arguments draw by the number of their place");
}

// So do the default values of a layer's parameters.
static void drawsOfDefaults() {
  Outcome outcome = compile(model("  use l = linear[D]\n  return both(l(x))\n", plain) +
                    "layer both(x: f32[B, D], a: f32[B, D] = random_normal[B, D], b: f32[B, D] = again) -> f32[B, D] { return x + a - b + random_normal[B, D] }\n"
                    "layer again() -> f32[B, D] { return random_normal[B, D] }\n");
  expect(outcome.program.has_value(), "draws of defaults: " + outcome.messages);
  if (!outcome.program)
    return;
  const uint64_t given = 1 << 26;
  // train: cross_entropy is call 0, net 1. net: both 0. both: random_normal 0; again: random_normal 0.
  std::vector<uint64_t> all = {keyOf({1, 0, 0}), keyOf({1, 0, given}), keyOf({1, 0, given + 1, 0})};
  std::vector<uint64_t> step = keys(outcome.program->step);
  std::sort(all.begin(), all.end());
  std::sort(step.begin(), step.end());
  expect(step == all, "default values draw by the number of their place");
}

static void equalCalls() {
  Outcome two = compile(model(
      linear, "  a = random_uniform[B]\n  b = random_uniform[B]\n  loss = mean[B] (cross_entropy(net(x), y) + a - b + "
              "cross_entropy(net(x), y))\n  optimizer sgd(lr = 0.1)\n"));
  expect(two.program && keys(two.program->step).size() == 1, "two equal draws in train are one");
  int products = 0;
  for (const Op &op : two.program ? two.program->step.ops : std::vector<Op>())
    products += op.kind == OpKind::Contract;
  expect(products == 2, "two equal calls of the model are one");
  Outcome body =
      compile(model("  use l = linear[D]\n  return l(x + random_uniform[B, D] - random_uniform[B, D])\n", plain));
  expect(body.program && keys(body.program->step).size() == 2, "two equal draws elsewhere are two");
}

static void namesOfResults() {
  Outcome named = compile(
      model(linear, "  logits = net(x)\n  loss = mean[B] cross_entropy(logits, y)\n  optimizer sgd(lr = 0.1)\n"));
  expect(named.program && named.program->results.size() == 1 && named.program->results[0].name == "logits",
         "a defined result");
  Outcome plainly = compile(model(linear, plain));
  expect(plainly.program && plainly.program->results[0].name == "net", "a result within an expression");
  Outcome twice =
      compile(model(linear, "  loss = mean[B] cross_entropy(net(x) + net(2 * x), y)\n  optimizer sgd(lr = 0.1)\n"));
  expect(twice.program && twice.program->results.size() == 2 && twice.program->results[1].name == "net.2", "two calls");
  Outcome unused = compile(model(linear, "  other = net(3 * x)\n" + std::string(plain)));
  expect(unused.program && unused.program->results.size() == 1, "a call that nothing needs does not exist");
}

static void existence() {
  // neither made nor checked for sizes: the branch not taken, and what nobody asks for
  Outcome outcome = compile(
      model("  use up = linear[F], down = linear[D], never = linear[D]\n  param w: f32[3, 3] ~ zeros\n  bad = x @ w\n"
            "  h = if D == 4 then relu(up(x)) else never(bad)\n  return down(h)\n",
            plain));
  expect(outcome.program && outcome.program->parameters.size() == 4,
         "what no result needs does not exist: " + outcome.messages);
  Outcome eval =
      compile(model("  use l = linear[D], k = linear[D]\n  return if training then l(x) else k(x)\n", plain));
  expect(eval.says("E0306") && eval.says("evaluation needs the parameter `k."), "evaluation needs other parameters");
}

static void hints() {
  Outcome outcome = compile(model(
      "  use l = repeat 3 linear[D]\n  @checkpoint\n  h = l(x)\n  @recompute\n  g = tanh(h)\n  return g\n", plain));
  int ends = 0, kept = 0, recomputed = 0;
  if (outcome.program)
    for (const Op &op : outcome.program->step.ops) {
      ends += op.blockEnd;
      kept += op.keep && op.blockEnd;
      recomputed += op.recompute && op.kind == OpKind::Tanh;
    }
  expect(ends == 3 && kept == 3 && recomputed == 1, "hints: " + outcome.messages);
  for (auto [hint, wanted] : {std::pair{"auto", 3}, std::pair{"1", 1}}) {
    Outcome staged = compile(model(std::string("  use l = repeat 3 linear[D]\n  @stage(") + hint + ")\n  h = l(x)\n  return h\n", plain));
    int marked = 0;
    for (const Op &op : staged.program ? staged.program->step.ops : std::vector<Op>())
      marked += op.endsStage && op.blockEnd;
    expect(marked == wanted, std::string("@stage(") + hint + ") marks " + std::to_string(marked) + " ends: " + staged.messages);
  }
}

int main() {
  overrides();
  byteOrderMark();
  draws();
  drawsOfBareInstances();
  drawsOfDefaults();
  equalCalls();
  namesOfResults();
  existence();
  hints();
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
