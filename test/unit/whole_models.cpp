// LINK: cinch_oracle cinch_transforms cinch_frontend cinch_nn MLIR
// whole_models.cpp: from the text of a model to its gradient: parsed, checked, emitted, differentiated, every border
// verified. The derivative of the loss along random directions of all parameters is compared with central differences,
// in f64. `whole_models FILE [NAME=VALUE ..]` does it for a file; sizes should be small.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/transforms/EmitNN.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "test/oracle/NNInterpreter.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <cstdio>
#include <random>

using namespace mlir;
using namespace cinch;
using oracle::Array;

static std::optional<Program> parse(SourceList &sources, int file, const Options &options) {
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), user = parseFile(sources, file, diags);
  auto program = diags.hasErrors() ? std::nullopt : check(sources, prelude, user, options, diags);
  if (!program)
    diags.print(llvm::outs());
  return program;
}

// Numbers for every argument: small parameters, fields inside their interval, all rows valid.
static std::vector<Array> draw(func::FuncOp function, const Program &program, std::mt19937 &random) {
  std::vector<Array> arguments;
  const Dataset &dataset = program.datasets[program.train.dataset];
  for (BlockArgument argument : function.getArguments()) {
    auto type = nn::tensorOf(argument);
    Array array = Array::filled(oracle::Shape(type.getShape().begin(), type.getShape().end()), 1);
    auto field = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), nn::kFieldAttr);
    std::uniform_real_distribution<double> numbers(-0.7, 0.7), unit(0, 1);
    for (double &element : array.data) {
      if (field && type.getElementType().isInteger(32))
        element = std::floor(unit(random) * double(dataset.fields[field.getInt()].below));
      else if (!type.getElementType().isInteger(1))
        element = numbers(random);
    }
    arguments.push_back(array);
  }
  return arguments;
}

static bool checkModel(const std::string &name, SourceList &sources, int file, const Options &options) {
  auto fail = [&](const std::string &why) {
    std::printf("FAILED %s: %s\n", name.c_str(), why.c_str());
    return false;
  };
  auto program = parse(sources, file, options);
  if (!program)
    return fail("is not accepted");
  program->train.f64 = true; // and the gradient as the step that plain SGD makes
  program->train.clipNorm = program->train.clipValue = 0;
  program->train.schedule = Schedule();
  for (Optimizer &optimizer : program->train.optimizers) {
    optimizer.rule = optimizerNamed("sgd");
    optimizer.values = optimizer.rule->defaults();
    optimizer.values[optimizer.rule->placeOf("lr")] = 1;
  }
  MLIRContext context;
  auto module = emitNN(context, *program, sources);
  if (!module)
    return fail("is not emitted");
  OwningOpRef<ModuleOp> forward(cast<ModuleOp>((*module)->clone()));
  PassManager passes(&context);
  VerifyPhaseOptions parsed{Phase::Parsed}, differentiated{Phase::Differentiated};
  passes.addPass(createVerifyPhase(parsed));
  passes.addPass(createDifferentiate());
  if (failed(passes.run(*module)))
    return fail("is not differentiated");
  PassManager border(&context);
  border.addPass(createVerifyPhase(differentiated));
  std::string errors;
  ScopedDiagnosticHandler listener(&context, [&](mlir::Diagnostic &diagnostic) { errors += diagnostic.str(); });
  if (failed(border.run(*module)))
    return fail(errors);

  auto step = forward->lookupSymbol<func::FuncOp>("step"), train = module->lookupSymbol<func::FuncOp>("train");
  std::mt19937 random(3);
  std::vector<Array> arguments = draw(step, *program, random);
  oracle::RunState run{program->train.seed, 5, 100};
  auto updated = oracle::interpret(train, arguments, run);
  if (failed(updated))
    return fail("the oracle stops");
  for (int direction = 0; direction < 3; ++direction) {
    std::vector<Array> plus = arguments, minus = arguments;
    double expected = 0;
    const double h = 1e-6;
    size_t result = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!step.getArgAttr(i, nn::kPathAttr) || step.getArgAttr(i, nn::kFrozenAttr))
        continue;
      const Array &after = (*updated)[result++];
      if (train.getResultAttr(result - 1, nn::kPathAttr) != step.getArgAttr(i, nn::kPathAttr))
        return fail("result " + std::to_string(result - 1) + " is another parameter");
      std::normal_distribution<double> normal;
      for (int64_t e = 0; e < after.size(); ++e) {
        double d = normal(random);
        expected += d * (arguments[i].data[e] - after.data[e]);
        plus[i].data[e] += h * d;
        minus[i].data[e] -= h * d;
      }
    }
    double difference =
        ((*oracle::interpret(step, plus, run))[0].data[0] - (*oracle::interpret(step, minus, run))[0].data[0]) /
        (2 * h);
    if (!(std::fabs(expected - difference) <= 1e-8 + 1e-6 * std::fabs(difference)))
      return fail("the gradient says " + std::to_string(expected) + ", the central difference " +
                  std::to_string(difference));
  }
  for (const char *entry : {"evaluation", "prediction"}) {
    auto function = forward->lookupSymbol<func::FuncOp>(entry);
    if (failed(oracle::interpret(function, draw(function, *program, random), run)))
      return fail(std::string("the oracle stops in @") + entry);
  }
  return true;
}

static const std::pair<const char *, const char *> kModels[] = {
    {"mlp", R"(
dim B = 6 batch, I = 5, H = 7, C = 4
data train = idx("images", "labels") -> (x: f32[B, I] scale 1/255, y: i32[B] below C)
model mlp(x: f32[B, I]) -> f32[B, C] {
  use fc1 = linear[H], fc2 = linear[C]
  h = dropout(gelu(fc1(x)), 0.1)
  return fc2(h)
}
train mlp on train seed 42 {
  logits     = mlp(x)
  loss       = mean[B] cross_entropy(logits, y, smooth = 0.1)
  metric acc = mean[B] (argmax(logits) == y)
  optimizer  sgd(lr = 0.1)
  steps      10
  every 5    eval(train)
}
)"},
    {"gpt with a tied embedding", R"(
dim B = 3 batch, T = 5, V = 9, N = 2
dim D = 8, A = 2, F = 4 * D
data train = text("train.txt", window = T + 1) -> (text: i32[B, T + 1] below V)
model gpt(text: i32[B, T] below V) -> f32[B, T, V] {
  param wte: f32[V, D] ~ normal(0.02)
  param wpe: f32[T, D] ~ normal(0.01)
  use blocks = repeat N transformer_block[A, F](causal = true, rate = 0.2), lnf = layer_norm
  h = dropout(wte[text] + wpe, 0.2)
  g = blocks(h)
  return lnf(g) @ wte'
}
train gpt on train seed 1337 {
  loss         = mean[B, T] cross_entropy(gpt(text[.., :T]), text[.., 1:])
  metric bits  = loss / log(2)
  optimizer    adamw(lr = 1e-3, decay = 0.1 except (wpe, "*.bias"))
  steps        10
  every 5      eval(train)
}
)"},
    {"masked tokens", R"(
dim B = 4 batch, T = 5, V = 11, D = 8, A = 2
data train = npz("x.npz") -> (text: i32[B, T] below V, length: i32[B] below T + 1)
layer padding(length: i32[B]) -> bool[B, T] {
  t0 = range[T]
  ok[b, t] = t0[t] < length[b] + 1
  return ok
}
model bert(text: i32[B, T] below V, keys: bool[B, T]) -> f32[B, T, V] {
  param word: f32[V, D] ~ normal(0.02)
  param bias: f32[V] ~ zeros
  use attn = multi_head_attention[A](rate = 0.1), ln = layer_norm
  h = word[text]
  return ln(h + attn(h, keys)) @ word' + bias
}
train bert on train seed 12 {
  keys       = padding(length)
  u          = random_uniform[B, T]
  chosen     = keys and u < 0.6
  noisy      = where(u < 0.4, 3, text)
  logits     = bert(where(chosen, noisy, text), keys)
  loss       = sum[B, T where chosen] cross_entropy(logits, text) / 12
  metric acc = mean[B, T where chosen] (argmax(logits) == text)
  optimizer  sgd(lr = 0.1)
  steps      10
  every 5    eval(train)
}
)"},
    {"variational autoencoder", R"(
dim B = 4 batch, I = 6, H = 5, Z = 3
data train = idx("images") -> (x: f32[B, I] scale 1/255)
model vae(x: f32[B, I]) -> (f32[B, I], f32[B, Z], f32[B, Z]) {
  use enc = linear[H], to_mu = linear[Z], to_log_var = linear[Z], dec = linear[H], out = linear[I]
  h = silu(enc(x))
  mu = to_mu(h)
  log_var = to_log_var(h)
  z = if training then mu + exp(0.5 * log_var) * random_normal[B, Z] else mu
  return out(mish(dec(z))), mu, log_var
}
train vae on train seed 1 {
  logits, mu, log_var = vae(x)
  rec       = sum[I] bce_with_logits(logits, x)
  prior     = sum[Z] kl_normal(mu, log_var)
  loss      = mean[B] rec + 0.5 * mean[B] prior
  optimizer adam(lr = 1e-3)
  epochs    20
  every epoch eval(train)
}
)"},
    {"rotary positions, grouped heads, a gated block", R"(
dim B = 2 batch, T = 4, D = 8, A = 2, G = 1, V = 7
data train = text("t.txt", window = T) -> (text: i32[B, T] below V)
model m(text: i32[B, T] below V) -> f32[B, T, D] {
  param w: f32[V, D] ~ normal(0.02)
  use q = linear[D](with_bias = false), k = linear[G * D / A], v = linear[G * D / A]
  use up = linear[4 * D], down = linear[D], n = rms_norm
  h = n(w[text])
  a[.., x, t, e] = reshape[.., T, A, D / A](q(h))[.., t, x, e]
  b[.., x, t, e] = reshape[.., T, G, D / A](k(h))[.., t, x, e]
  c[.., x, t, e] = reshape[.., T, G, D / A](v(h))[.., t, x, e]
  o = attend(rope(a), rope(b), c, causal = true)
  y[.., t, x, e] = o[.., x, t, e]
  return h + down(swiglu(up(reshape[.., T, D](y))))
}
train m on train seed 3 {
  loss      = mean[B, T, D] huber(m(text), 0.3, delta = 0.5)
  optimizer sgd(lr = 1)
  steps     5
  every 5   eval(train)
}
)"},
};

int main(int argc, char **argv) {
  int passed = 0, failed = 0;
  SourceList sources;
  Options options;
  if (argc > 1) {
    std::string error;
    int file = sources.addFile(argv[1], error);
    for (int i = 2; i < argc; ++i)
      if (auto assignment = parseAssignment(argv[i]))
        options.defines.push_back(*assignment);
    if (file < 0)
      std::printf("%s\n", error.c_str());
    ++(file >= 0 && checkModel(argv[1], sources, file, options) ? passed : failed);
  } else {
    for (auto [name, text] : kModels)
      ++(checkModel(name, sources, sources.add(name, text), options) ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
