// LINK: cinch_oracle cinch_transforms cinch_nn MLIR
// derivatives.cpp: the gradient of every differentiable op, in f64, against central differences. Each case is a
// function of parameters; the loss is the sum of its result times fixed random weights. SGD with lr = 1 shows the
// gradient as the difference of old and new parameters, so what is checked is what Differentiate makes, update
// included.
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "test/oracle/NNInterpreter.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

using namespace mlir;
using namespace cinch;
using oracle::Array;

namespace {

struct Input {
  const char *type;
  double low, high;
  bool parameter = true, whole = false;
};

struct Case {
  std::string name;
  std::vector<Input> inputs; // %0, %1, ..
  std::string body;          // defines %r
  std::string type;          // of %r
};

const char *kTraining =
    "attributes {nn.training = #nn.training<optimizers = [#nn.optimizer<sgd, lr = 1.0>], schedule = "
    "#nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>"
    ", steps = 10, clip_norm = 0.0, clip_value = 0.0>}";

// `#b` stands for the encoding of a batch on axis 0.
std::string spelled(std::string text) {
  for (size_t at; (at = text.find("#b")) != std::string::npos;)
    text.replace(at, 2, "#nn.batch<0>");
  return text;
}

// Arguments of the function. A parameter has no batch axis: where a case wants one, the operand is a parameter,
// repeated for every example, plus a field.
struct Argument {
  std::string name, type;
  double low, high;
  bool parameter, whole;
};

std::vector<Argument> argumentsOf(const Case &test, std::string &prologue) {
  std::vector<Argument> arguments;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const Input &input = test.inputs[i];
    std::string name = "%" + std::to_string(i), type = input.type;
    size_t encoding = type.find(", #b"), first = type.find('<'), x = type.find('x');
    if (!input.parameter || encoding == std::string::npos) {
      arguments.push_back({name, type, input.low, input.high, input.parameter, input.whole});
      continue;
    }
    std::string plain = type.substr(0, first + 1) + type.substr(x + 1, encoding - x - 1) + ">", axes;
    int rank = int(std::count(plain.begin(), plain.end(), 'x'));
    for (int axis = 1; axis <= rank; ++axis)
      axes += (axis > 1 ? ", " : "") + std::to_string(axis);
    std::string n = std::to_string(i);
    arguments.push_back({"%p" + n, plain, input.low / 2, input.high / 2, true, false});
    arguments.push_back({"%f" + n, type, input.low / 2, input.high / 2, false, false});
    prologue += "%b" + n + " = nn.broadcast %p" + n + " [" + axes + "] : (" + plain + ") -> " + type + "\n" + name +
                " = nn.add %b" + n + ", %f" + n + " : " + type + "\n";
  }
  return arguments;
}

std::string textOf(const Case &test, const std::vector<Argument> &arguments, const std::string &prologue) {
  std::string text = "func.func @step(";
  for (size_t i = 0; i < arguments.size(); ++i) {
    text += (i ? ", " : "") + arguments[i].name + ": " + arguments[i].type;
    if (arguments[i].parameter)
      text += " {nn.path = \"" + arguments[i].name + "\"}";
  }
  int rank = 0; // one comma or x a dimension: "tensor<2x3xf64>"
  std::string shape = test.type.substr(0, test.type.find_first_of(",>"));
  for (char c : shape)
    rank += c == 'x';
  text += std::string(") -> tensor<f64> ") + kTraining + " {\n" + prologue + test.body +
          "\n%weights = nn.random uniform key 5 : " + test.type + "\n%weighted = nn.mul %r, %weights : " + test.type +
          "\n";
  std::string loss = "%weighted";
  if (rank) {
    std::string axes;
    for (int axis = 0; axis < rank; ++axis)
      axes += (axis ? ", " : "") + std::to_string(axis);
    text += "%loss = nn.reduce sum %weighted [" + axes + "] : (" + test.type + ") -> tensor<f64>\n";
    loss = "%loss";
  }
  return spelled(text + "return " + loss + " : tensor<f64>\n}\n");
}

bool check(MLIRContext &context, const Case &test) {
  auto fail = [&](const std::string &why) {
    std::printf("FAILED %s: %s\n", test.name.c_str(), why.c_str());
    return false;
  };
  std::string prologue;
  std::vector<Argument> inputs = argumentsOf(test, prologue);
  std::string text = textOf(test, inputs, prologue);
  auto forward = parseSourceString<ModuleOp>(text, &context), backward = parseSourceString<ModuleOp>(text, &context);
  if (!forward || !backward)
    return fail("does not parse:\n" + text);
  PassManager passes(&context);
  passes.addPass(createDifferentiate());
  if (failed(passes.run(*backward)))
    return fail("is not differentiated");
  auto step = forward->lookupSymbol<func::FuncOp>("step"), train = backward->lookupSymbol<func::FuncOp>("train");

  std::mt19937 random(7);
  std::vector<Array> arguments;
  for (auto [argument, input] : llvm::zip_equal(step.getArguments(), inputs)) {
    auto shape = nn::tensorOf(argument).getShape();
    Array array = Array::filled(oracle::Shape(shape.begin(), shape.end()), 0);
    std::uniform_real_distribution<double> numbers(input.low, input.high);
    for (double &element : array.data)
      element = input.whole ? std::floor(numbers(random)) : numbers(random);
    arguments.push_back(array);
  }
  oracle::RunState run{42, 3, 10};
  auto trained = oracle::interpret(train, arguments, run);
  if (failed(trained))
    return fail("the oracle stops");
  PassManager writeOut(&context);
  writeOut.addPass(createDecomposeOps());
  if (failed(writeOut.run(*backward)))
    return fail("is not written out in simpler ops");
  auto simpler = oracle::interpret(train, arguments, run);
  if (failed(simpler))
    return fail("the oracle stops behind DecomposeOps");
  for (auto [a, b] : llvm::zip_equal(*trained, *simpler))
    for (auto [x, y] : llvm::zip_equal(a.data, b.data))
      if (!(std::fabs(x - y) <= 1e-13 + 1e-12 * std::fabs(x)))
        return fail("was " + std::to_string(x) + ", and is " + std::to_string(y) + " when written out in simpler ops");

  size_t result = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!inputs[i].parameter)
      continue;
    const Array &updated = (*trained)[result++];
    for (int64_t e = 0; e < updated.size(); ++e) {
      const double h = 1e-5, old = arguments[i].data[e];
      double sides[2];
      for (int side = 0; side < 2; ++side) {
        arguments[i].data[e] = side ? old + h : old - h;
        sides[side] = (*oracle::interpret(step, arguments, run))[0].data[0];
      }
      arguments[i].data[e] = old;
      double gradient = old - updated.data[e], expected = (sides[1] - sides[0]) / (2 * h);
      if (!(std::fabs(gradient - expected) <= 1e-8 + 1e-6 * std::fabs(expected)))
        return fail(inputs[i].name + " element " + std::to_string(e) + ": got " + std::to_string(gradient) +
                    ", central difference " + std::to_string(expected));
    }
  }
  return true;
}

const char *kBatch = "tensor<3x4xf64, #b>", *kPlain = "tensor<3x4xf64>";

std::vector<Case> elementWise() {
  std::vector<Case> cases;
  struct Unary {
    const char *name;
    double low, high;
  };
  const Unary functions[] = {
#define FUNCTION(OP, NAME, FROM, TO, NEAR, ULP32, ULP64, TRUTH) {#NAME, FROM, TO},
#include "test/oracle/Functions.def"
  };
  for (Unary op : functions)
    for (const char *type : {kPlain, kBatch})
      cases.push_back({op.name, {{type, op.low, op.high}}, std::string("%r = nn.") + op.name + " %0 : " + type, type});
  for (const char *op : {"add", "sub", "mul", "div", "pow", "max", "min"})
    cases.push_back(
        {op, {{kPlain, 0.5, 2}, {kPlain, 0.5, 2}}, std::string("%r = nn.") + op + " %0, %1 : tensor<3x4xf64>", kPlain});
  for (const char *exponent : {"2.0", "3.0", "-2.5", "0.5"})
    cases.push_back(
        {std::string("pow by ") + exponent,
         {{kPlain, 0.5, 2}},
         std::string("%c = nn.constant ") + exponent + " : tensor<3x4xf64>\n%r = nn.pow %0, %c : tensor<3x4xf64>",
         kPlain});
  cases.push_back({"where",
                   {{kPlain, -2, 2}, {kPlain, -2, 2}},
                   "%c = nn.compare lt %0, %1 : (tensor<3x4xf64>, tensor<3x4xf64>) -> tensor<3x4xi1>\n"
                   "%s = nn.sin %1 : tensor<3x4xf64>\n"
                   "%r = nn.where %c, %0, %s : (tensor<3x4xi1>, tensor<3x4xf64>, tensor<3x4xf64>) -> tensor<3x4xf64>",
                   kPlain});
  cases.push_back({"cast",
                   {{kPlain, -2, 2}},
                   "%s = nn.sin %0 : tensor<3x4xf64>\n%c = nn.cast %s : (tensor<3x4xf64>) -> tensor<3x4xf32>\n"
                   "%r = nn.cast %c : (tensor<3x4xf32>) -> tensor<3x4xf64>",
                   kPlain});
  cases.push_back({"dropout",
                   {{kBatch, -2, 2}},
                   "%m = nn.random bool key 9 of 0.5 : tensor<3x4xi1, #b>\n%z = nn.constant 0.0 : tensor<3x4xf64, #b>\n"
                   "%r = nn.where %m, %0, %z : (tensor<3x4xi1, #b>, tensor<3x4xf64, #b>, tensor<3x4xf64, #b>) -> "
                   "tensor<3x4xf64, #b>",
                   kBatch});
  return cases;
}

std::vector<Case> shapes() {
  return {
      {"broadcast to a batch",
       {{"tensor<4xf64>", -2, 2}},
       "%r = nn.broadcast %0 [2] : (tensor<4xf64>) -> tensor<3x2x4xf64, #b>",
       "tensor<3x2x4xf64, #b>"},
      {"broadcast of a scalar",
       {{"tensor<f64>", -2, 2}},
       "%r = nn.broadcast %0 [] : (tensor<f64>) -> tensor<3x4xf64>",
       kPlain},
      {"broadcast inside",
       {{kPlain, -2, 2}},
       "%r = nn.broadcast %0 [0, 2] : (tensor<3x4xf64>) -> tensor<3x2x4xf64>",
       "tensor<3x2x4xf64>"},
      {"transpose",
       {{"tensor<2x3x4xf64>", -2, 2}},
       "%r = nn.transpose %0 [1, 2, 0] : (tensor<2x3x4xf64>) -> tensor<3x4x2xf64>",
       "tensor<3x4x2xf64>"},
      {"reshape",
       {{"tensor<3x4x2xf64, #b>", -2, 2}},
       "%r = nn.reshape %0 : (tensor<3x4x2xf64, #b>) -> tensor<3x8xf64, #b>",
       "tensor<3x8xf64, #b>"},
      {"slice",
       {{kPlain, -2, 2}},
       "%r = nn.slice %0 axis 1 from 1 to 3 : (tensor<3x4xf64>) -> tensor<3x2xf64>",
       "tensor<3x2xf64>"},
      {"pad",
       {{kPlain, -2, 2}},
       "%r = nn.pad %0 axis 1 before 2 after 1 value 7.0 : (tensor<3x4xf64>) -> tensor<3x7xf64>",
       "tensor<3x7xf64>"},
      {"concat",
       {{kPlain, -2, 2}, {"tensor<3x2xf64>", -2, 2}},
       "%r = nn.concat %0, %1, %0 axis 1 : (tensor<3x4xf64>, tensor<3x2xf64>, tensor<3x4xf64>) -> tensor<3x10xf64>",
       "tensor<3x10xf64>"},
      {"reverse", {{kPlain, -2, 2}}, "%r = nn.reverse %0 axis 1 : tensor<3x4xf64>", kPlain},
      {"group_mean", {{"tensor<6x4xf64, #b>", -2, 2}}, "%r = nn.group_mean %0 group 3 : tensor<6x4xf64, #b>", "tensor<6x4xf64, #b>"},
      {"group_mean of the last axis", {{"tensor<6xf64, #b>", -2, 2}}, "%r = nn.group_mean %0 group 2 : tensor<6xf64, #b>", "tensor<6xf64, #b>"},
  };
}

std::vector<Case> reductions() {
  std::vector<Case> cases;
  for (const char *op : {"sum", "max", "min", "prod"}) {
    cases.push_back({std::string(op) + " of the last axis",
                     {{kBatch, -2, 2}},
                     std::string("%r = nn.reduce ") + op + " %0 [1] : (tensor<3x4xf64, #b>) -> tensor<3xf64, #b>",
                     "tensor<3xf64, #b>"});
    cases.push_back({std::string(op) + " of the outer and the inner axis",
                     {{"tensor<2x3x4xf64>", -2, 2}},
                     std::string("%r = nn.reduce ") + op + " %0 [0, 2] : (tensor<2x3x4xf64>) -> tensor<3xf64>",
                     "tensor<3xf64>"});
  }
  cases.push_back({"sum of the batch",
                   {{kBatch, -2, 2}},
                   "%r = nn.reduce sum %0 [0] : (tensor<3x4xf64, #b>) -> tensor<4xf64>",
                   "tensor<4xf64>"});
  cases.push_back({"prod with zeros",
                   {{"tensor<4x5xf64>", -2, 3, true, true}},
                   "%r = nn.reduce prod %0 [1] : (tensor<4x5xf64>) -> tensor<4xf64>",
                   "tensor<4xf64>"});
  return cases;
}

std::vector<Case> contractions() {
  return {
      {"x w'",
       {{"tensor<3x4xf64, #b>", -2, 2}, {"tensor<5x4xf64>", -2, 2}},
       "%r = nn.contract %0 [0, 2], %1 [1, 2] : (tensor<3x4xf64, #b>, tensor<5x4xf64>) -> tensor<3x5xf64, #b>",
       "tensor<3x5xf64, #b>"},
      {"sum over the batch and a second axis",
       {{"tensor<3x2x4xf64, #b>", -2, 2}, {"tensor<3x2x5xf64, #b>", -2, 2}},
       "%r = nn.contract %0 [2, 3, 0], %1 [2, 3, 1] : (tensor<3x2x4xf64, #b>, tensor<3x2x5xf64, #b>) -> "
       "tensor<4x5xf64>",
       "tensor<4x5xf64>"},
      {"batched",
       {{"tensor<3x2x4xf64, #b>", -2, 2}, {"tensor<3x4x5xf64, #b>", -2, 2}},
       "%r = nn.contract %0 [0, 1, 3], %1 [0, 3, 2] : (tensor<3x2x4xf64, #b>, tensor<3x4x5xf64, #b>) -> "
       "tensor<3x2x5xf64, #b>",
       "tensor<3x2x5xf64, #b>"},
      {"outer",
       {{"tensor<3xf64>", -2, 2}, {"tensor<4xf64>", -2, 2}},
       "%r = nn.contract %0 [0], %1 [1] : (tensor<3xf64>, tensor<4xf64>) -> tensor<3x4xf64>",
       kPlain},
      {"a operand twice",
       {{kPlain, -2, 2}},
       "%r = nn.contract %0 [0, 2], %0 [1, 2] : (tensor<3x4xf64>, tensor<3x4xf64>) -> tensor<3x3xf64>",
       "tensor<3x3xf64>"},
      {"gather rows",
       {{"tensor<6x2xf64>", -2, 2}, {"tensor<3x4xi32, #b>", 0, 6, false, true}},
       "%r = nn.gather %0 [-1, 2] at (%1) [[0, 1]] : (tensor<6x2xf64>, tensor<3x4xi32, #b>) -> tensor<3x4x2xf64, #b>",
       "tensor<3x4x2xf64, #b>"},
      {"gather at two indices in each example",
       {{"tensor<3x2x5x5xf64, #b>", -2, 2},
        {"tensor<3x4xi32, #b>", 0, 5, false, true},
        {"tensor<3x4xi32, #b>", 0, 5, false, true}},
       "%r = nn.gather %0 [0, 1, -1, -2] at (%1, %2) [[0, 2], [0, 3]] : (tensor<3x2x5x5xf64, #b>, tensor<3x4xi32, #b>, "
       "tensor<3x4xi32, #b>) -> tensor<3x2x4x4xf64, #b>",
       "tensor<3x2x4x4xf64, #b>"},
  };
}

std::vector<Case> rows() {
  std::vector<Case> cases;
  for (const char *op : {"softmax", "log_softmax"}) {
    cases.push_back({op,
                     {{kBatch, -2, 2}},
                     std::string("%r = nn.") + op + " %0 axis 1 : (tensor<3x4xf64, #b>) -> tensor<3x4xf64, #b>",
                     kBatch});
    cases.push_back({std::string(op) + " along the middle",
                     {{"tensor<2x3x4xf64>", -2, 2}},
                     std::string("%r = nn.") + op + " %0 axis 1 : (tensor<2x3x4xf64>) -> tensor<2x3x4xf64>",
                     "tensor<2x3x4xf64>"});
  }
  for (const char *more : {"", " smooth 0.1", " except 2", " smooth 0.1 except 2"})
    cases.push_back({std::string("cross_entropy") + more,
                     {{"tensor<4x5x2xf64, #b>", -2, 2}, {"tensor<4x2xi32, #b>", 0, 5, false, true}},
                     std::string("%r = nn.cross_entropy %0, %1 axis 1") + more +
                         " : (tensor<4x5x2xf64, #b>, tensor<4x2xi32, #b>) -> tensor<4x2xf64, #b>",
                     "tensor<4x2xf64, #b>"});
  return cases;
}

std::vector<Case> attention() {
  const char *q = "tensor<2x4x3x2xf64, #b>", *k = "tensor<2x2x5x2xf64, #b>", *v = "tensor<2x2x5x3xf64, #b>";
  const char *keys = "tensor<2x5xi1, #b>", *bias = "tensor<4x3x5xf64>", *o = "tensor<2x4x3x3xf64, #b>";
  std::vector<Input> inputs{{q, -1, 1}, {k, -1, 1}, {v, -1, 1}};
  std::string types = std::string(q) + ", " + k + ", " + v,
              results = std::string(") -> (") + o + ", tensor<2x4x3xf64, #b>)";
  auto make = [&](const char *name, std::string operands, std::string options, std::string more) {
    std::string body =
        "%r, %lse = nn.attend %0, %1, %2" + operands + " scale 0.7" + options + " : (" + types + more + results;
    return Case{name, inputs, body, o};
  };
  std::vector<Case> cases{make("attend", "", "", ""), make("attend causal", "", " causal", ""),
                          make("attend with dropout", "", " causal dropout 0.3 key 11", "")};
  inputs.push_back({bias, -1, 1});
  cases.push_back(make("attend with bias", " bias %3", "", std::string(", ") + bias));
  inputs.insert(inputs.begin() + 3, {keys, 0, 1, false, false});
  cases.push_back(
      make("attend with keys and bias", " keys %3 bias %4", " causal", std::string(", ") + keys + ", " + bias));
  return cases;
}

std::vector<Case> windows() {
  std::vector<Case> cases;
  const char *x = "tensor<2x5x4x4xf64, #b>";
  auto conv = [&](std::string name, const char *gives, const char *a, const char *b, const char *type, std::string options) {
    cases.push_back({"conv " + name, {{a, -1, 1}, {b, -1, 1}},
                     std::string("%r = nn.conv ") + gives + " %0, %1 " + options + " : (" + a + ", " + b + ") -> " + type, type});
  };
  conv("output", "output", x, "tensor<3x2x4x3xf64>", "tensor<2x3x5x3xf64, #b>", "stride [2, 1] pad [1, 1] dilate [1, 1]");
  conv("output, groups", "output", x, "tensor<2x2x2x6xf64>", "tensor<2x3x2x6xf64, #b>",
       "stride [1, 1] pad [0, 0] dilate [2, 2] groups 2");
  conv("image", "image", "tensor<2x3x2x6xf64, #b>", "tensor<3x2x4x6xf64>", x, "stride [2, 2] pad [1, 0] dilate [1, 1]");
  conv("filter", "filter", x, "tensor<2x5x4x2xf64, #b>", "tensor<3x3x4x2xf64>", "stride [1, 1] pad [1, 1] dilate [1, 1]");
  auto pool = [&](const char *name, const char *result, const char *types) {
    cases.push_back({name, {{x, -1, 1}},
                     std::string("%r") + result + " = nn." + name + " %0 window [3, 2] stride [2, 1] pad [1, 0] : (" + x + ") -> " +
                         types,
                     "tensor<2x3x3x4xf64, #b>"});
  };
  pool("max_pool", ", %place", "(tensor<2x3x3x4xf64, #b>, tensor<2x3x3x4xi32, #b>)");
  pool("sum_pool", "", "tensor<2x3x3x4xf64, #b>");
  return cases;
}

std::vector<Case> severalUses() {
  return {
      {"a batch-free value used three times",
       {{"tensor<4xf64>", -1, 1}, {kBatch, -1, 1, false}},
       "%w = nn.tanh %0 : tensor<4xf64>\n%b = nn.broadcast %w [1] : (tensor<4xf64>) -> tensor<3x4xf64, #b>\n"
       "%bx = nn.mul %1, %b : tensor<3x4xf64, #b>\n%b2 = nn.broadcast %w [1] : (tensor<4xf64>) -> tensor<3x4xf64, #b>\n"
       "%s = nn.sin %bx : tensor<3x4xf64, #b>\n%m2 = nn.mul %s, %b2 : tensor<3x4xf64, #b>\n"
       "%w2 = nn.exp %w : tensor<4xf64>\n%b3 = nn.broadcast %w2 [1] : (tensor<4xf64>) -> tensor<3x4xf64, #b>\n"
       "%r = nn.add %m2, %b3 : tensor<3x4xf64, #b>",
       kBatch},
      {"slices that cover an axis, out of order",
       {{"tensor<3x6xf64, #b>", -1, 1}},
       "%a = nn.slice %0 axis 1 from 4 to 6 : (tensor<3x6xf64, #b>) -> tensor<3x2xf64, #b>\n"
       "%b = nn.slice %0 axis 1 from 0 to 2 : (tensor<3x6xf64, #b>) -> tensor<3x2xf64, #b>\n"
       "%c = nn.slice %0 axis 1 from 2 to 4 : (tensor<3x6xf64, #b>) -> tensor<3x2xf64, #b>\n"
       "%d = nn.mul %a, %b : tensor<3x2xf64, #b>\n%e = nn.exp %c : tensor<3x2xf64, #b>\n"
       "%r = nn.mul %d, %e : tensor<3x2xf64, #b>",
       "tensor<3x2xf64, #b>"},
      {"slices that overlap",
       {{"tensor<3x6xf64, #b>", -1, 1}},
       "%a = nn.slice %0 axis 1 from 0 to 4 : (tensor<3x6xf64, #b>) -> tensor<3x4xf64, #b>\n"
       "%b = nn.slice %0 axis 1 from 2 to 6 : (tensor<3x6xf64, #b>) -> tensor<3x4xf64, #b>\n"
       "%r = nn.mul %a, %b : tensor<3x4xf64, #b>",
       kBatch},
      {"a norm of several chunks",
       {{"tensor<41x300xf64>", -1, 1}},
       "%q = nn.sin %0 : tensor<41x300xf64>\n"
       "%r = nn.slice %q axis 1 from 0 to 1 : (tensor<41x300xf64>) -> tensor<41x1xf64>",
       "tensor<41x1xf64>"},
      {"a square", {{kPlain, -2, 2}}, "%r = nn.mul %0, %0 : tensor<3x4xf64>", kPlain},
      {"tied weights",
       {{"tensor<5x4xf64>", -1, 1}, {"tensor<3xi32, #b>", 0, 5, false, true}},
       "%e = nn.gather %0 [-1, 1] at (%1) [[0]] : (tensor<5x4xf64>, tensor<3xi32, #b>) -> tensor<3x4xf64, #b>\n"
       "%h = nn.tanh %e : tensor<3x4xf64, #b>\n"
       "%r = nn.contract %h [0, 2], %0 [1, 2] : (tensor<3x4xf64, #b>, tensor<5x4xf64>) -> tensor<3x5xf64, #b>",
       "tensor<3x5xf64, #b>"},
      {"layer norm",
       {{kBatch, -1, 1}, {"tensor<4xf64>", -1, 1}},
       "%n = nn.constant 4.0 : tensor<3xf64, #b>\n%s = nn.reduce sum %0 [1] : (tensor<3x4xf64, #b>) -> tensor<3xf64, "
       "#b>\n"
       "%m = nn.div %s, %n : tensor<3xf64, #b>\n%mb = nn.broadcast %m [0] : (tensor<3xf64, #b>) -> tensor<3x4xf64, "
       "#b>\n"
       "%c = nn.sub %0, %mb : tensor<3x4xf64, #b>\n%q = nn.mul %c, %c : tensor<3x4xf64, #b>\n"
       "%v = nn.reduce sum %q [1] : (tensor<3x4xf64, #b>) -> tensor<3xf64, #b>\n%d = nn.sqrt %v : tensor<3xf64, #b>\n"
       "%db = nn.broadcast %d [0] : (tensor<3xf64, #b>) -> tensor<3x4xf64, #b>\n%y = nn.div %c, %db : tensor<3x4xf64, "
       "#b>\n"
       "%w = nn.broadcast %1 [1] : (tensor<4xf64>) -> tensor<3x4xf64, #b>\n%r = nn.mul %y, %w : tensor<3x4xf64, #b>",
       kBatch},
  };
}

} // namespace

int main() {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  int passed = 0, failed = 0;
  for (auto group : {elementWise(), shapes(), reductions(), contractions(), rows(), attention(), windows(), severalUses()})
    for (const Case &test : group)
      ++(check(context, test) ? passed : failed);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
