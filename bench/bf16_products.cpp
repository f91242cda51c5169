// bf16_products.cpp: generated products of bf16 beside PyTorch's, one thread, alternating.
//
//   bench_bf16_products [--quick] [--cpu NAME] [--rounds N]
//
// Ours include packing: operands and results in bf16, results of weight gradients (TN) in f32, as training has them. PyTorch's are `a @ b` of
// tensors of bf16, in a process of their own each round (bench/peers/setup; PEERS_VENV names another place). A row's ratio is the median over
// the rounds of (their time / ours), in processor time: above 1 ours is faster. Without PyTorch ours are printed alone.
#include "bench/harness/Timing.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace cinch;
using bench::median;
using bench::timeOf;
using kernels::Elem;

struct Shape {
  const char *name;
  int64_t m, n, k;
  bool transposeA, transposeB; // A is stored k x m, B is stored n x k
};

// Cubes; the feed-forward of a byte GPT and of GPT-2 with their gradients; an MLP; a head of attention.
static const Shape shapes[] = {
    {"512^3", 512, 512, 512, false, false},
    {"1024^3", 1024, 1024, 1024, false, false},
    {"byte GPT", 4096, 1536, 384, false, false},
    {"byte GPT dX", 4096, 384, 1536, false, true},
    {"byte GPT dW", 384, 1536, 4096, true, false},
    {"GPT-2", 512, 3072, 768, false, false},
    {"GPT-2 dX", 512, 768, 3072, false, true},
    {"GPT-2 dW", 768, 3072, 512, true, false},
    {"mlp", 128, 1024, 784, false, false},
    {"256x512x784", 256, 512, 784, false, false},
    {"64^3", 64, 64, 64, false, false},
};

// Prints seconds a product.
static const char *script =
    "import sys, time, torch\n"
    "m, n, k = map(int, sys.argv[1:4])\n"
    "torch.set_num_threads(1)\n"
    "x = torch.randn(k, m).bfloat16().t() if sys.argv[4] == \"T\" else torch.randn(m, k).bfloat16()\n"
    "y = torch.randn(n, k).bfloat16().t() if sys.argv[5] == \"T\" else torch.randn(k, n).bfloat16()\n"
    "for _ in range(3): x @ y\n"
    "times, repeats = [], max(1, int(1e9 / (m * n * k)))\n"
    "for _ in range(5):\n"
    "    start = time.process_time()\n"
    "    for _ in range(repeats): x @ y\n"
    "    times.append((time.process_time() - start) / repeats)\n"
    "print(sorted(times)[2])\n";

static std::string python() {
  const char *folder = std::getenv("PEERS_VENV");
  std::string path = std::string(folder && *folder ? folder : "bench/peers/venv") + "/bin/python";
  return access(path.c_str(), X_OK) == 0 ? path : "";
}

static double timeOfPyTorch(const std::string &python, const Shape &shape) {
  std::string command = python + " -c '" + script + "'";
  for (int64_t size : {shape.m, shape.n, shape.k})
    command += " " + std::to_string(size);
  command += std::string(shape.transposeA ? " T" : " N") + (shape.transposeB ? " T" : " N") + " 2>/dev/null";
  FILE *pipe = popen(command.c_str(), "r");
  double seconds = 0;
  bool good = pipe && std::fscanf(pipe, "%lf", &seconds) == 1;
  return pipe && pclose(pipe) == 0 && good ? seconds : 0;
}

static float widened(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

struct Row {
  double ours = 0, theirs = 0, ratio = 0; // GFLOP/s
};

// Operands are small whole numbers, so that sums are exact until the result is rounded.
static bool measure(const Shape &shape, const std::string &cpu, int rounds, const std::string &python, Row &row) {
  const bool wide = shape.transposeA;
  kernels::ContractSpec spec;
  spec.pairs = true;
  spec.m = {shape.m}, spec.n = {shape.n}, spec.k = {shape.k};
  spec.a.buffer = 0, spec.b.buffer = 1, spec.c.buffer = 2;
  spec.a.elem = spec.b.elem = Elem::BF16, spec.c.elem = wide ? Elem::F32 : Elem::BF16;
  spec.a.strides = shape.transposeA ? std::vector<int64_t>{1, shape.m} : std::vector<int64_t>{shape.k, 1};
  spec.b.strides = shape.transposeB ? std::vector<int64_t>{1, shape.k} : std::vector<int64_t>{shape.n, 1};
  spec.c.strides = {shape.n, 1};
  kernels::TargetInfo target = target::infoOf(cpu);
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildContract(builder, harness.module(), "product", spec, target);
  if (!harness.compile()) {
    std::fprintf(stderr, "%s: %s\n", shape.name, harness.error().c_str());
    return false;
  }
  test::KernelFunction function = harness.lookup("product");
  test::Arena arena;
  arena.add(shape.m * shape.k * 2);
  arena.add(shape.k * shape.n * 2);
  arena.add(shape.m * shape.n * kernels::bytesOf(spec.c.elem));
  if (int64_t bytes = kernels::scratchBytesPerThread(spec, target))
    arena.add(bytes);
  uint32_t state = 1;
  static const uint16_t few[] = {0x3f80, 0xbf80, 0x4000, 0x0000, 0xc000}; // 1, -1, 2, 0, -2
  for (int i : {0, 1})
    for (int64_t e = 0; e < (i ? shape.k * shape.n : shape.m * shape.k); ++e) {
      state = state * 1664525u + 1013904223u;
      arena.at<uint16_t>(i)[e] = few[(state >> 16) % 5];
    }
  int64_t context[kernels::kContextWords] = {};
  auto call = [&] { function(arena.data(), arena.offsetsOf(), context, 0, 1); };
  call();
  for (int64_t at = 0; at < shape.m * shape.n; at += 1 + shape.m * shape.n / 500) {
    float sum = 0;
    for (int64_t k = 0; k < shape.k; ++k)
      sum += widened(arena.at<uint16_t>(0)[spec.a.strides[0] * (at / shape.n) + spec.a.strides[1] * k]) *
             widened(arena.at<uint16_t>(1)[spec.b.strides[0] * k + spec.b.strides[1] * (at % shape.n)]);
    float got = wide ? arena.at<float>(2)[at] : widened(arena.at<uint16_t>(2)[at]);
    if (!(std::fabs(got - sum) <= std::fabs(sum) / 256)) {
      std::fprintf(stderr, "%s: element %lld is %g, expected %g\n", shape.name, (long long)at, got, sum);
      return false;
    }
  }
  double flops = 2.0 * double(shape.m) * double(shape.n) * double(shape.k);
  int repeats = int(std::max(1.0, 5e-3 / timeOf(3, call)));
  std::vector<double> ours, theirs, ratios;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> each;
    for (int i = 0; i < 5; ++i)
      each.push_back(timeOf(repeats, call));
    ours.push_back(median(each));
    if (double seconds = python.empty() ? 0 : timeOfPyTorch(python, shape))
      theirs.push_back(seconds), ratios.push_back(seconds / ours.back());
  }
  row.ours = flops / median(ours) * 1e-9;
  if (!ratios.empty())
    row.theirs = flops / median(theirs) * 1e-9, row.ratio = median(ratios);
  return true;
}

int main(int argc, char **argv) {
  std::string cpu = "native";
  int rounds = 5;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--cpu") && i + 1 < argc)
      cpu = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (!std::strcmp(argv[i], "--quick"))
      quick = true, rounds = 1;
    else {
      std::fprintf(stderr, "usage: bench_bf16_products [--quick] [--cpu NAME] [--rounds N]\n");
      return 2;
    }
  }
  if (target::lanesOf(cpu) == 0) {
    std::fprintf(stderr, "unknown cpu '%s'\n", cpu.c_str());
    return 2;
  }
  const std::string peer = python();
  if (peer.empty())
    std::printf("PyTorch is not installed (bench/peers/setup): ours alone\n");
  std::printf("%-14s %20s %10s %10s %7s\n", "product", "M x N x K", "GFLOP/s", "PyTorch", "ratio");
  double logs = 0, least = 1e9;
  int count = 0;
  bool good = true;
  for (const Shape &shape : shapes) {
    Row row;
    if (quick && shape.m * shape.n * shape.k > 512 * 512 * 512)
      continue;
    if (!measure(shape, cpu, rounds, peer, row)) {
      good = false;
      continue;
    }
    std::string size = std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k);
    std::printf("%-14s %20s %10.0f", shape.name, size.c_str(), row.ours);
    if (row.ratio > 0) {
      std::printf(" %10.0f %7.2f", row.theirs, row.ratio);
      logs += std::log(row.ratio), least = std::min(least, row.ratio), ++count;
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  if (count > 0) {
    std::printf("RESULT bf16_products.geomean %.3f\n", std::exp(logs / count));
    std::printf("RESULT bf16_products.min %.3f\n", least);
  }
  return good ? 0 : 1;
}
