// LINK: kernel_harness
//
// Random draws of compiled kernels: the share of kept elements, moments, independence of blocks and shapes.
//
//   draws --print    numbers for test/kernels/philox_reference.py, which computes them from their definition
#include "test/unit/Expect.h"
#include "test/kernels/KernelHarness.h"
#include "compiler/kernels/Kernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using namespace cinch;
using namespace cinch::kernels;

namespace {

// out[example, e] = draw of element first + e.
LoopSpec drawSpec(LoopOp op, double number, int64_t examples, int64_t elements, int64_t first) {
  LoopSpec spec;
  spec.outer = {examples};
  spec.cols = elements;
  LoopNode node;
  node.op = op;
  node.elem = op == LoopOp::RandomBool ? Elem::Bool : op == LoopOp::RandomInt ? Elem::I32 : Elem::F32;
  node.number = number;
  node.key = 0xFEDCBA9876543210;
  node.view.offset = first;
  node.view.strides = {0, 1};
  node.usesExample = true;
  node.exampleStrides = {1, 0};
  spec.nodes.push_back(node);
  spec.stores.push_back({0, {0, node.elem, 0, {elements, 1}}});
  return spec;
}

// The spec's result, as doubles.
std::vector<double> run(const std::string &cpu, const LoopSpec &spec, int64_t step, int64_t example, int64_t seed) {
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  buildLoop(builder, harness.module(), "draw", spec);
  if (!harness.compile()) {
    expect(false, harness.error());
    return {};
  }
  Elem elem = spec.nodes[0].elem;
  int64_t count = spec.outer[0] * spec.cols;
  test::Arena arena;
  arena.add(count * bytesOf(elem));
  arena.add(scratchBytesPerThread(spec) * 2 + 64);
  int64_t context[kContextWords] = {step, example, seed};
  test::callKernel(harness.lookup("draw"), arena.data(), arena.offsetsOf(), context, 2);
  expect(arena.guardsIntact(), "draws stay inside of their buffers");
  std::vector<double> numbers(count);
  for (int64_t i = 0; i < count; ++i)
    numbers[i] = elem == Elem::F32   ? arena.at<float>(0)[i]
                 : elem == Elem::I32 ? arena.at<int32_t>(0)[i]
                                     : arena.at<char>(0)[i];
  return numbers;
}

void print() {
  struct {
    const char *name;
    LoopOp op;
    double number;
  } cases[] = {{"bool", LoopOp::RandomBool, 0.9},
               {"bool", LoopOp::RandomBool, 0.3},
               {"uniform", LoopOp::RandomUniform, 0},
               {"int", LoopOp::RandomInt, 50257},
               {"normal", LoopOp::RandomNormal, 0}};
  struct {
    uint64_t seed;
    int64_t step, first;
  } runs[] = {{0, 0, 0}, {0x9876543212345678, 3000000019, 7000000000}};
  for (auto &c : cases) {
    for (auto &r : runs) {
      auto numbers = run("native", drawSpec(c.op, c.number, 3, 200, 5), r.step, r.first, int64_t(r.seed));
      for (int example = 0; example < 3; ++example) {
        std::printf("%s %d", c.name, example);
        for (int e = 0; e < 200; ++e) {
          double x = numbers[example * 200 + e];
          char text[40];
          if (c.op == LoopOp::RandomNormal)
            std::snprintf(text, sizeof text, "%.8f", x);
          else
            std::snprintf(text, sizeof text, "%llx",
                          (unsigned long long)(c.op == LoopOp::RandomUniform ? x * 16777216.0 : x));
          std::printf(" %s", text);
        }
        std::printf("\n");
      }
    }
  }
}

void statistics(const std::string &cpu) {
  const int64_t n = 1 << 20;
  auto moments = [](const std::vector<double> &x, double &mean, double &variance) {
    mean = variance = 0;
    for (double v : x)
      mean += v / double(x.size());
    for (double v : x)
      variance += (v - mean) * (v - mean) / double(x.size());
  };
  double mean, variance;
  for (double p : {0.1, 0.5, 0.9, 1.0, 0.0}) {
    auto kept = run(cpu, drawSpec(LoopOp::RandomBool, p, 1, n, 0), 1, 2, 3);
    moments(kept, mean, variance);
    expect(std::fabs(mean - p) <= 5 * std::sqrt(p * (1 - p) / double(n)) + 1.0 / 131072,
           "share kept is " + std::to_string(mean) + ", expected " + std::to_string(p));
  }
  auto normal = run(cpu, drawSpec(LoopOp::RandomNormal, 0, 1, n, 0), 1, 2, 3);
  moments(normal, mean, variance);
  expect(std::fabs(mean) < 5e-3 && std::fabs(variance - 1) < 1e-2, "normal numbers have mean 0 and variance 1");
  double fourth = 0, neighbours = 0;
  for (int64_t i = 0; i + 1 < n; ++i) {
    fourth += std::pow(normal[i], 4) / double(n);
    neighbours += normal[i] * normal[i + 1] / double(n);
  }
  expect(std::fabs(fourth - 3) < 0.08, "normal numbers have fourth moment 3, got " + std::to_string(fourth));
  expect(std::fabs(neighbours) < 5e-3, "neighbours are independent");
  auto uniform = run(cpu, drawSpec(LoopOp::RandomUniform, 0, 1, n, 0), 1, 2, 3);
  moments(uniform, mean, variance);
  expect(std::fabs(mean - 0.5) < 2e-3 && std::fabs(variance - 1.0 / 12) < 1e-3,
         "uniform numbers have mean 1/2, variance 1/12");
  auto whole = run(cpu, drawSpec(LoopOp::RandomInt, 7, 1, n, 0), 1, 2, 3);
  std::vector<int64_t> counts(7);
  for (double w : whole)
    if (w >= 0 && w < 7)
      ++counts[size_t(w)];
  for (int64_t count : counts)
    expect(std::fabs(double(count) - double(n) / 7) < 5 * std::sqrt(double(n) / 7), "whole numbers are spread evenly");

  // A micro-batch draws what the whole batch draws; other steps, seeds and examples draw something else.
  auto all = run(cpu, drawSpec(LoopOp::RandomUniform, 0, 8, 100, 0), 5, 0, 9);
  auto part = run(cpu, drawSpec(LoopOp::RandomUniform, 0, 2, 100, 0), 5, 4, 9);
  expect(std::equal(part.begin(), part.end(), all.begin() + 400), "examples 4 and 5 draw the same in a smaller batch");
  auto tail = run(cpu, drawSpec(LoopOp::RandomUniform, 0, 8, 63, 37), 5, 0, 9);
  expect(std::equal(tail.begin(), tail.begin() + 63, all.begin() + 37), "elements draw the same in a smaller block");
  expect(run(cpu, drawSpec(LoopOp::RandomUniform, 0, 8, 100, 0), 6, 0, 9) != all, "another step draws other numbers");
  expect(run(cpu, drawSpec(LoopOp::RandomUniform, 0, 8, 100, 0), 5, 0, 10) != all, "another seed draws other numbers");
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::strcmp(argv[1], "--print") == 0) {
    print();
    return failed != 0;
  }
  for (const std::string &cpu : test::runnableCpus())
    statistics(cpu);
  return tally();
}
