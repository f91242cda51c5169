// products.cpp: generated contraction kernels beside oneDNN's sgemm, one thread, alternating rounds in one process.
//
//   bench_products [--cpu NAME] [--rounds N] [--shape MxNxK:TT ...] [FILTER]
//
// Both sides see the same matrices; packing is part of our time. A row's ratio is the median over the rounds of
// (oneDNN's time / ours): above 1 ours is faster. With an AVX2 CPU oneDNN is held to AVX2, too.
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
#include <dnnl.h>
#include <omp.h>

using namespace cinch;
using bench::median;
using bench::timeOf;

struct Shape {
  const char *name;
  int64_t m, n, k;
  bool transposeA, transposeB; // A is stored k x m, B is stored n x k
};

// The shapes of training: cubes, a transformer's feed-forward with its gradients, an MLP with its gradients, a
// classifier.
static const Shape shapes[] = {
    {"256^3", 256, 256, 256, false, false},
    {"512^3", 512, 512, 512, false, false},
    {"1024^3", 1024, 1024, 1024, false, false},
    {"2048^3", 2048, 2048, 2048, false, false},
    {"1000^3", 1000, 1000, 1000, false, false},
    {"1008x1152x1024", 1008, 1152, 1024, false, false},
    {"feed-forward", 4096, 3072, 768, false, false},
    {"feed-forward dX", 4096, 768, 3072, false, true},
    {"feed-forward dW", 768, 3072, 4096, true, false},
    {"mlp", 256, 512, 784, false, false},
    {"mlp dX", 256, 784, 512, false, true},
    {"mlp dW", 784, 512, 256, true, false},
    {"64^3 NN", 64, 64, 64, false, false},
    {"64^3 NT", 64, 64, 64, false, true},
    {"64^3 TN", 64, 64, 64, true, false},
    {"classifier", 256, 10, 512, false, false},
    {"classifier dX", 256, 512, 10, false, true},
    {"classifier dW", 512, 10, 256, true, false},
};

static kernels::ContractSpec specOf(const Shape &shape) {
  kernels::ContractSpec spec;
  spec.m = {shape.m};
  spec.n = {shape.n};
  spec.k = {shape.k};
  spec.a.buffer = 0;
  spec.b.buffer = 1;
  spec.c.buffer = 2;
  spec.a.strides = shape.transposeA ? std::vector<int64_t>{1, shape.m} : std::vector<int64_t>{shape.k, 1};
  spec.b.strides = shape.transposeB ? std::vector<int64_t>{1, shape.k} : std::vector<int64_t>{shape.n, 1};
  spec.c.strides = {shape.n, 1};
  return spec;
}

struct Row {
  double ratio = 0, ours = 0, theirs = 0; // GFLOP/s
};

static bool measure(const Shape &shape, const std::string &cpu, int rounds, Row &row) {
  kernels::ContractSpec spec = specOf(shape);
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
  arena.add(shape.m * shape.k * 4);
  arena.add(shape.k * shape.n * 4);
  arena.add(shape.m * shape.n * 4);
  if (int64_t bytes = kernels::scratchBytesPerThread(spec, target))
    arena.add(bytes);
  float *a = arena.at<float>(0), *b = arena.at<float>(1), *c = arena.at<float>(2);
  uint32_t state = 1;
  auto fill = [&](float *values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      values[i] = float(int32_t(state)) * 4e-10f;
    }
  };
  fill(a, shape.m * shape.k);
  fill(b, shape.k * shape.n);
  std::vector<float> theirs(shape.m * shape.n);

  int64_t context[kernels::kContextWords] = {};
  auto callOurs = [&] { function(arena.data(), arena.offsetsOf(), context, 0, 1); };
  auto callTheirs = [&] {
    dnnl_sgemm(shape.transposeA ? 'T' : 'N', shape.transposeB ? 'T' : 'N', shape.m, shape.n, shape.k, 1.0f, a,
               shape.transposeA ? shape.m : shape.k, b, shape.transposeB ? shape.k : shape.n, 0.0f, theirs.data(),
               shape.n);
  };
  callOurs();
  callTheirs();
  for (int64_t i = 0; i < shape.m * shape.n; ++i) {
    if (!(std::fabs(c[i] - theirs[i]) <= 1e-4 * std::sqrt(double(shape.k)))) {
      std::fprintf(stderr, "%s: element %lld is %g, oneDNN has %g\n", shape.name, (long long)i, c[i], theirs[i]);
      return false;
    }
  }

  double flops = 2.0 * double(shape.m) * double(shape.n) * double(shape.k);
  int repeats = int(std::max(1.0, 2e-3 / timeOf(3, callTheirs)));
  std::vector<double> ratios, ourTimes, theirTimes;
  for (int round = 0; round < rounds; ++round) {
    double ourTime = timeOf(repeats, callOurs), theirTime = timeOf(repeats, callTheirs);
    ratios.push_back(theirTime / ourTime);
    ourTimes.push_back(ourTime);
    theirTimes.push_back(theirTime);
  }
  row.ratio = median(ratios);
  row.ours = flops / median(ourTimes) * 1e-9;
  row.theirs = flops / median(theirTimes) * 1e-9;
  return true;
}

int main(int argc, char **argv) {
  std::string cpu = "native", filter;
  int rounds = 15;
  std::vector<Shape> chosen;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--cpu") && i + 1 < argc)
      cpu = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (!std::strcmp(argv[i], "--shape") && i + 1 < argc) {
      long long m, n, k;
      char a, b;
      if (std::sscanf(argv[++i], "%lldx%lldx%lld:%c%c", &m, &n, &k, &a, &b) != 5 || m < 1 || n < 1 || k < 1) {
        std::fprintf(stderr, "expected a shape such as 256x512x784:NT, got '%s'\n", argv[i]);
        return 2;
      }
      chosen.push_back({argv[i], m, n, k, a == 'T', b == 'T'});
    } else if (argv[i][0] != '-')
      filter = argv[i];
    else {
      std::fprintf(stderr, "usage: bench_products [--cpu NAME] [--rounds N] [--shape MxNxK:TT ...] [FILTER]\n");
      return 2;
    }
  }
  int lanes = target::lanesOf(cpu);
  if (lanes == 0) {
    std::fprintf(stderr, "unknown cpu '%s'\n", cpu.c_str());
    return 2;
  }
  if (lanes < 16)
    dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  omp_set_num_threads(1);

  std::printf("%-20s %18s %10s %10s %7s\n", "product", "M x N x K", "GFLOP/s", "oneDNN", "ratio");
  double logs = 0, least = 1e9;
  int count = 0;
  bool ok = true;
  if (chosen.empty())
    chosen.assign(std::begin(shapes), std::end(shapes));
  for (const Shape &shape : chosen) {
    if (!filter.empty() && !std::strstr(shape.name, filter.c_str()))
      continue;
    Row row;
    if (!measure(shape, cpu, rounds, row)) {
      ok = false;
      continue;
    }
    std::string size = std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k);
    std::printf("%-20s %18s %10.1f %10.1f %7.3f\n", shape.name, size.c_str(), row.ours, row.theirs, row.ratio);
    std::fflush(stdout);
    logs += std::log(row.ratio);
    least = std::min(least, row.ratio);
    ++count;
  }
  if (count > 0) {
    std::printf("RESULT products.geomean %.3f\n", std::exp(logs / count));
    std::printf("RESULT products.min %.3f\n", least);
  }
  return ok ? 0 : 1;
}
