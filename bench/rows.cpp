// rows.cpp: loop kernels beside a copy of the same bytes (memcpy), one thread, alternating rounds.
//
//   bench_rows [--cpu NAME] [--rounds N] [--rows N --cols N] [NAME ...]
//
// `share` is the time in which memcpy moves the bytes that the kernel must move (every buffer once; those updated in
// place twice) over the kernel's time.
#include "bench/harness/Timing.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/RowKernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cinch;
using bench::now;
using bench::median;

static double shareOf(const test::RowKernel &kernel, const std::string &cpu, int rounds, int64_t rows) {
  const test::SpecWriter &writer = kernel.writer;
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildLoop(builder, harness.module(), kernel.name, writer.spec);
  if (!harness.compile()) {
    std::printf("%s: %s\n", kernel.name.c_str(), harness.error().c_str());
    return 0;
  }
  test::Arena arena;
  int64_t elements = 0, bytes = 0;
  for (size_t i = 0; i < writer.elements.size(); ++i) {
    int64_t size = writer.elements[i] * kernels::bytesOf(writer.elems[i]);
    arena.add(size);
    bytes += size;
    elements = std::max(elements, writer.elements[i]);
  }
  for (const kernels::LoopStore &store : writer.spec.stores) {
    bool inPlace = std::any_of(writer.spec.nodes.begin(), writer.spec.nodes.end(), [&](const kernels::LoopNode &node) {
      return node.op == kernels::LoopOp::Load && node.view.buffer == store.view.buffer;
    });
    if (inPlace)
      bytes += writer.elements[store.view.buffer] * 4;
  }
  if (writer.spec.addAt.present)
    bytes += elements * 4;
  arena.add(std::max<int64_t>(64, kernels::scratchBytesPerThread(writer.spec)));
  for (size_t i = 0; i < writer.elements.size(); ++i) {
    for (int64_t e = 0; e < writer.elements[i]; ++e) {
      uint32_t x = uint32_t(e * 2654435761u);
      if (writer.elems[i] == kernels::Elem::I32)
        arena.at<int32_t>(int(i))[e] = int32_t(x % uint32_t(rows));
      else
        arena.at<float>(int(i))[e] = float(x >> 8) / 4194304.0f;
    }
  }
  std::vector<char> from(bytes / 2, 1), to(bytes / 2);
  int64_t context[kernels::kContextWords] = {};
  auto function = harness.lookup(kernel.name);
  std::vector<double> ours, copies;
  int repeat = int(std::max<int64_t>(1, 4000000 / elements));
  for (int round = 0; round < rounds; ++round) {
    double t0 = now();
    for (int i = 0; i < repeat; ++i)
      std::memcpy(to.data(), from.data(), from.size());
    double t1 = now();
    for (int i = 0; i < repeat; ++i)
      function(arena.data(), arena.offsetsOf(), context, 0, 1);
    double t2 = now();
    copies.push_back((t1 - t0) / repeat);
    ours.push_back((t2 - t1) / repeat);
  }
  double time = median(ours), share = median(copies) / time;
  std::printf("%-24s %8.2f %8.1f %8.2f %10.0f\n", kernel.name.c_str(), time / double(elements) * 1e9,
              double(bytes) / time * 1e-9, share, harness.compileSeconds() * 1e3);
  std::fflush(stdout);
  return share;
}

int main(int argc, char **argv) {
  std::string cpu = "native";
  int rounds = 9;
  int64_t rows = 4096, cols = 768;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--cpu" && i + 1 < argc)
      cpu = argv[++i];
    else if (word == "--rounds" && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (word == "--rows" && i + 1 < argc)
      rows = std::atoll(argv[++i]);
    else if (word == "--cols" && i + 1 < argc)
      cols = std::atoll(argv[++i]);
    else
      names.push_back(word);
  }
  std::printf("%s, %ld x %ld, one thread\n%-24s %8s %8s %8s %10s\n", cpu.c_str(), long(rows), long(cols), "kernel",
              "ns/elem", "GB/s", "share", "compile ms");
  double logs = 0, least = 1e30;
  int count = 0;
  for (const test::RowKernel &kernel : test::rowKernels(rows, cols, std::max<int64_t>(1, rows * cols / 50257), 50257)) {
    if (!names.empty() && std::find(names.begin(), names.end(), kernel.name) == names.end())
      continue;
    double share = shareOf(kernel, cpu, rounds, rows);
    logs += std::log(share);
    least = std::min(least, share);
    ++count;
  }
  if (count > 0)
    std::printf("RESULT rows.geomean %.3f\nRESULT rows.min %.3f\n", std::exp(logs / count), least);
  return 0;
}
