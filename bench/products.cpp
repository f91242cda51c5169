// products.cpp: generated contraction kernels beside oneDNN's, alternating rounds in one process for each CPU and number of threads.
//
//   bench_products [--cpu NAME] [--threads N] [--rounds N] [--shape MxNxK:TT ...] [--tiling ROWS,VECTORS,STEPS,NEAR,FAR] [FILTER]
//
// Without --cpu: this machine's code and, if that has AVX-512, AVX2 code, too; without --threads: one and two. Both sides see the same matrices;
// packing is part of our time. A row's ratio is the median over the rounds of (oneDNN's time / ours): above 1 ours is faster. With an AVX2 CPU
// oneDNN is held to AVX2, too. One thread is timed by its processor time, which other load does not change; several by the clock, on a machine
// that should be quiet, and both sides run on one team of threads. --tiling takes the place of the built-in rules (Tiling.h).
#include "bench/harness/OneDnnProduct.h"
#include "bench/harness/ProductShapes.h"
#include "bench/harness/Timing.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/kernels/Tiling.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace cinch;
using bench::median;
using bench::OneDnnProduct;
using bench::Shape;

namespace {

struct Settings {
  std::string filter;
  int rounds = 15;
  std::vector<Shape> shapes;
  kernels::Tiling tiling; // no rows: by the built-in rules
};

double clockNow() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// Seconds a call, over `repeats` calls.
template <class Call> double secondsOf(int threads, int repeats, Call call) {
  auto now = threads == 1 ? bench::now : clockNow;
  double start = now();
  for (int i = 0; i < repeats; ++i)
    call();
  return (now() - start) / repeats;
}

kernels::ContractSpec specOf(const Shape &shape) {
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
  if (shape.batch > 1) {
    spec.batch = {shape.batch};
    spec.a.strides.insert(spec.a.strides.begin(), shape.m * shape.k);
    spec.b.strides.insert(spec.b.strides.begin(), shape.k * shape.n);
    spec.c.strides.insert(spec.c.strides.begin(), shape.m * shape.n);
  }
  return spec;
}

bool isSame(const Shape &shape, const float *ours, const std::vector<float> &theirs) {
  for (size_t i = 0; i < theirs.size(); ++i)
    if (!(std::fabs(ours[i] - theirs[i]) <= 1e-4 * std::sqrt(double(shape.k)))) {
      std::fprintf(stderr, "%s: element %zu is %g, oneDNN has %g\n", shape.name, i, ours[i], theirs[i]);
      return false;
    }
  return true;
}

struct Row {
  double ratio = 0, ours = 0, theirs = 0; // GFLOP/s
};

bool measure(const Shape &shape, const std::string &cpu, int threads, const Settings &settings, Row &row) {
  kernels::ContractSpec spec = specOf(shape);
  kernels::TargetInfo target = target::infoOf(cpu);
  if (settings.tiling.rows) {
    auto tiles = std::make_shared<kernels::TileTable>();
    tiles->tilings[kernels::shapeText(spec, target)] = settings.tiling;
    target.tiles = tiles;
  }
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildContract(builder, harness.module(), "product", spec, target);
  if (!harness.compile()) {
    std::fprintf(stderr, "%s: %s\n", shape.name, harness.error().c_str());
    return false;
  }
  test::KernelFunction function = harness.lookup("product");

  test::Arena arena;
  const int64_t sizes[] = {shape.batch * shape.m * shape.k, shape.batch * shape.k * shape.n, shape.batch * shape.m * shape.n};
  for (int64_t size : sizes)
    arena.add(size * 4);
  if (int64_t bytes = kernels::scratchBytesPerThread(spec, target))
    arena.add(bytes * threads);
  uint32_t state = 1;
  for (int operand : {0, 1})
    for (int64_t i = 0; i < sizes[operand]; ++i) {
      state = state * 1664525u + 1013904223u;
      arena.at<float>(operand)[i] = float(int32_t(state)) * 4e-10f;
    }
  std::vector<float> theirs(sizes[2]);
  OneDnnProduct callTheirs(shape, arena.at<float>(0), arena.at<float>(1), theirs.data());
  int64_t context[kernels::kContextWords] = {};
  char *base = arena.data();
  const int64_t *offsets = arena.offsetsOf();
  auto callOurs = [&] {
    if (threads == 1)
      return function(base, offsets, context, 0, 1);
#pragma omp parallel num_threads(threads)
    function(base, offsets, context, omp_get_thread_num(), threads);
  };
  callOurs();
  callTheirs();
  if (!isSame(shape, arena.at<float>(2), theirs))
    return false;

  double flops = 2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k), once = secondsOf(threads, 3, callTheirs);
  int repeats = int(std::max(1.0, 2e-3 / once)), turns = once > 0.05 ? std::min(settings.rounds, 5) : settings.rounds;
  std::vector<double> ratios, ourTimes, theirTimes;
  for (int round = 0; round < turns; ++round) {
    double ourTime = secondsOf(threads, repeats, callOurs), theirTime = secondsOf(threads, repeats, callTheirs);
    ratios.push_back(theirTime / ourTime);
    ourTimes.push_back(ourTime);
    theirTimes.push_back(theirTime);
  }
  row = {median(ratios), flops / median(ourTimes) * 1e-9, flops / median(theirTimes) * 1e-9};
  return true;
}

// One table, and the sum of the ratios' logarithms, the least one and their number as a line for who started this process.
bool table(const std::string &cpu, int threads, const Settings &settings, FILE *answer) {
  if (target::lanesOf(cpu) < 16)
    dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  omp_set_num_threads(threads);
  std::printf("\n%s, %d thread%s\n", cpu.c_str(), threads, threads > 1 ? "s" : "");
  std::printf("%-20s %22s %10s %10s %7s\n", "product", "M x N x K", "GFLOP/s", "oneDNN", "ratio");
  double logs = 0, least = 1e9;
  int count = 0;
  bool ok = true;
  for (const Shape &shape : settings.shapes) {
    if (!settings.filter.empty() && !std::strstr(shape.name, settings.filter.c_str()))
      continue;
    Row row;
    if (!measure(shape, cpu, threads, settings, row)) {
      ok = false;
      continue;
    }
    std::string size = std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k);
    if (shape.batch > 1)
      size = std::to_string(shape.batch) + " of " + size;
    std::printf("%-20s %22s %10.1f %10.1f %7.3f\n", shape.name, size.c_str(), row.ours, row.theirs, row.ratio);
    std::fflush(stdout);
    logs += std::log(row.ratio);
    least = std::min(least, row.ratio);
    ++count;
  }
  std::fprintf(answer, "%.9g %.9g %d\n", logs, least, count);
  return ok;
}

struct Sums {
  double logs = 0, least = 1e9;
  int count = 0;
  bool ok = true;
};

// In a process of its own: oneDNN's instructions and a team's threads can be chosen once.
Sums tableApart(const std::string &cpu, int threads, const Settings &settings) {
  Sums sums;
  FILE *answer = std::tmpfile();
  std::fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    bool ok = table(cpu, threads, settings, answer);
    std::fflush(stdout);
    std::fflush(answer);
    _exit(ok ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  std::rewind(answer);
  sums.ok = status == 0 && std::fscanf(answer, "%lf %lf %d", &sums.logs, &sums.least, &sums.count) == 3;
  std::fclose(answer);
  return sums;
}

int usage() {
  std::fprintf(stderr, "usage: bench_products [--cpu NAME] [--threads N] [--rounds N] [--shape MxNxK:TT ...] "
                       "[--tiling ROWS,VECTORS,STEPS,NEAR,FAR] [FILTER]\n");
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  std::vector<std::string> cpus;
  std::vector<int> threads;
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--cpu") && i + 1 < argc) {
      cpus.push_back(argv[++i]);
    } else if (!std::strcmp(argv[i], "--threads") && i + 1 < argc) {
      threads.push_back(std::max(1, std::atoi(argv[++i])));
    } else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc) {
      settings.rounds = std::max(1, std::atoi(argv[++i]));
    } else if (!std::strcmp(argv[i], "--shape") && i + 1 < argc) {
      long long m, n, k;
      char a, b;
      if (std::sscanf(argv[++i], "%lldx%lldx%lld:%c%c", &m, &n, &k, &a, &b) != 5 || m < 1 || n < 1 || k < 1)
        return usage();
      settings.shapes.push_back({argv[i], m, n, k, a == 'T', b == 'T'});
    } else if (!std::strcmp(argv[i], "--tiling") && i + 1 < argc) {
      kernels::Tiling &t = settings.tiling;
      long long steps, near, far;
      if (std::sscanf(argv[++i], "%d,%d,%lld,%lld,%lld", &t.rows, &t.vectors, &steps, &near, &far) != 5)
        return usage();
      t.steps = steps, t.near = near, t.far = far;
    } else if (argv[i][0] != '-') {
      settings.filter = argv[i];
    } else {
      return usage();
    }
  }
  if (settings.shapes.empty())
    settings.shapes.assign(std::begin(bench::kShapes), std::end(bench::kShapes));
  if (cpus.empty())
    cpus = target::lanesOf("native") >= 16 ? std::vector<std::string>{"native", "haswell"} : std::vector<std::string>{"native"};
  if (threads.empty())
    threads = {1, 2};

  Sums all;
  std::string results;
  for (const std::string &cpu : cpus)
    for (int count : threads) {
      if (target::lanesOf(cpu) == 0) {
        std::fprintf(stderr, "unknown cpu '%s'\n", cpu.c_str());
        return 2;
      }
      Sums sums = tableApart(cpu, count, settings);
      all = {all.logs + sums.logs, std::min(all.least, sums.least), all.count + sums.count, all.ok && sums.ok};
      char text[200];
      std::string name = "RESULT products." + std::string(target::lanesOf(cpu) >= 16 ? "avx512" : "avx2") + ".threads" + std::to_string(count);
      std::snprintf(text, sizeof text, "%s.geomean %.3f\n%s.min %.3f\n", name.c_str(), std::exp(sums.logs / std::max(1, sums.count)), name.c_str(), sums.least);
      results += text;
    }
  std::fputs(results.c_str(), stdout);
  if (all.count > 0)
    std::printf("RESULT products.geomean %.3f\nRESULT products.min %.3f\n", std::exp(all.logs / all.count), all.least);
  return all.ok ? 0 : 1;
}
