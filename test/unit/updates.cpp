// LINK: cinch_oracle cinch_nn MLIR
// updates.cpp: the definitions of learning rate, clipping and update rules in element-wise ops against their formulas.
#include "dialects/nn/NN.h"
#include "dialects/ops/Optimizers.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Parser/Parser.h"
#include "test/oracle/NNInterpreter.h"
#include <cmath>
#include <cstdio>

using namespace mlir;
using namespace cinch;
using oracle::Array;

// Replaces every op that can be written out; returns how many there were.
static int decompose(func::FuncOp function) {
  SmallVector<nn::Decomposable> ops;
  function.walk([&](nn::Decomposable op) { ops.push_back(op); });
  for (nn::Decomposable op : ops) {
    OpBuilder builder(op);
    op->replaceAllUsesWith(op.decompose(builder));
    op->erase();
  }
  return int(ops.size());
}

static bool check(MLIRContext &context, const std::string &name, const std::string &arguments, const std::string &body,
                  const oracle::RunState &run) {
  auto fail = [&](const std::string &why) {
    std::printf("FAILED %s at step %lld: %s\n", name.c_str(), static_cast<long long>(run.step), why.c_str());
    return false;
  };
  std::string text = "func.func @f(" + arguments + ") -> " + body;
  auto whole = parseSourceString<ModuleOp>(text, &context), written = parseSourceString<ModuleOp>(text, &context);
  if (!whole || !written)
    return fail("does not parse:\n" + text);
  auto f = whole->lookupSymbol<func::FuncOp>("f"), g = written->lookupSymbol<func::FuncOp>("f");
  if (decompose(g) != 1)
    return fail("expected one op that can be written out");
  std::vector<Array> values;
  for (BlockArgument argument : f.getArguments()) {
    auto shape = nn::tensorOf(argument).getShape();
    Array value = Array::filled(oracle::Shape(shape.begin(), shape.end()), 0);
    for (size_t i = 0; i < value.data.size(); ++i)
      value.data[i] =
          shape.empty() ? 0.25 + argument.getArgNumber() * 0.125 : 0.1 + 0.3 * double(i) + argument.getArgNumber();
    values.push_back(value);
  }
  auto expected = oracle::interpret(f, values, run), got = oracle::interpret(g, values, run);
  if (failed(expected) || failed(got))
    return fail("the oracle stops");
  for (auto [x, y] : llvm::zip_equal(*expected, *got))
    for (auto [a, b] : llvm::zip_equal(x.data, y.data))
      if (!(std::fabs(a - b) <= 1e-14 + 1e-13 * std::fabs(a)))
        return fail("expected " + std::to_string(a) + ", got " + std::to_string(b));
  return true;
}

int main() {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  int passed = 0, failed = 0;
  auto count = [&](bool good) { ++(good ? passed : failed); };

  for (const char *kind : {"constant", "linear", "cosine", "polynomial", "inverse_sqrt", "step", "exponential", "wsd"})
    for (const char *warmup : {"0.0", "5.0"})
      for (int horizon : {40, 0})
        for (const char *at : {"", ", at = [7, 20]"})
          for (int64_t step : {0, 1, 4, 5, 6, 7, 19, 20, 29, 30, 31, 39, 60}) {
            std::string schedule = std::string("<") + kind + ", warmup = " + warmup +
                                   ", end = 0.1, power = 2.0, factor = 0.5, every = 3.0, decay = 10.0" + at + ">";
            count(check(context, schedule, "",
                        "tensor<f64> {\n%r = nn.learning_rate 0.3 " + schedule + " horizon " + std::to_string(horizon) +
                            "\nreturn %r : tensor<f64>\n}",
                        {1, step, 40}));
          }

  // A cosine once, and in cycles.
  for (const char *cycles : {"0.0, decay = 0.0", "7.0, decay = 0.0", "1.0, decay = 0.0", "0.0, decay = 0.0, at = [7, 20]", "0.0, decay = 0.0, at = [3, 40, 70]"})
    for (const char *warmup : {"0.0", "5.0"})
      for (int horizon : {40, 0})
        for (int64_t step : {0, 2, 3, 4, 5, 6, 7, 11, 12, 19, 20, 26, 39, 40, 69, 71}) {
          std::string schedule = std::string("<cosine, warmup = ") + warmup + ", end = 0.1, power = 1.0, factor = 1.0, every = " + cycles + ">";
          count(check(context, schedule, "",
                      "tensor<f64> {\n%r = nn.learning_rate 0.3 " + schedule + " horizon " + std::to_string(horizon) + "\nreturn %r : tensor<f64>\n}",
                      {1, step, 40}));
        }

  for (const char *limit : {"0.1", "7.0"})
    count(check(context, std::string("clip at ") + limit, "%n: tensor<f64>",
                std::string("tensor<f64> {\n%r = nn.clip_factor %n limit ") + limit + "\nreturn %r : tensor<f64>\n}",
                {}));

  // Every rule; each hyperparameter that may be left out at its default and at another value.
  std::string t = "tensor<2x3xf64>", s = "tensor<f64>";
  for (const OptimizerRule &rule : optimizerRules()) {
    std::vector<std::string> optimizers{std::string("<") + rule.name + ", lr = 0.1"};
    for (const Hyperparameter &each : rule.hyperparameters) {
      if (each.name == std::string("lr"))
        continue;
      std::string other = each.kind == Hyperparameter::Flag   ? "true"
                          : each.kind == Hyperparameter::Pair ? "(0.7, 0.8)"
                                                              : "0.6";
      for (size_t i = optimizers.size(); i-- > 0;)
        optimizers.push_back(optimizers[i] + ", " + each.name + " = " + other);
    }
    for (const std::string &optimizer : optimizers)
      for (const char *factor : {"", " factor %f"})
        for (int64_t step : {0, 7}) {
          auto attribute = cast<nn::OptimizerAttr>(parseAttribute("#nn.optimizer" + optimizer + ">", &context));
          std::string types = t, values = "%r#0", state;
          size_t slots = rule.slotsWith(attribute.getValues().asArrayRef()).size();
          for (size_t i = 0; i < slots; ++i) {
            types += ", " + t;
            values += ", %r#" + std::to_string(i + 1);
            state += (i ? ", %s" : " state %s") + std::to_string(i);
          }
          std::string operands = t + ", " + t + ", " + s + (*factor ? ", " + s : "") + types.substr(t.size());
          count(check(context, optimizer + factor,
                      "%p: " + t + ", %g: " + t + ", %lr: " + s + ", %f: " + s + ", %s0: " + t + ", %s1: " + t,
                      "(" + types + ") {\n%r:" + std::to_string(slots + 1) + " = nn.update %p, %g lr %lr" + factor +
                          state + " by " + optimizer + "> : (" + operands + ") -> (" + types + ")\nreturn " + values +
                          " : " + types + "\n}",
                      {1, step, 40}));
        }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
