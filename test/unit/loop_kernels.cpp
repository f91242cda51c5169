// LINK: kernel_harness
//
// Random loop kernels against the interpreter, bit for bit: every level, both reductions, gathers, ragged tails,
// strides, rows side by side, draws, in-place updates, 1 to 3 threads, AVX2 and AVX-512 code.
//
//   loop_kernels [SEED COUNT]   other or more random kernels; COUNT = 1 prints the spec of a failure
#include "test/unit/Expect.h"
#include "compiler/kernels/LoopPlan.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/LoopGenerator.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

using namespace cinch;
using namespace cinch::kernels;
using cinch::test::LoopCase;
using cinch::test::LoopGenerator;
using cinch::test::LoopReference;

namespace {

bool sameBits(Elem elem, const char *x, const char *y) {
  if (elem == Elem::F32) {
    float a, b;
    std::memcpy(&a, x, 4), std::memcpy(&b, y, 4);
    return std::memcmp(x, y, 4) == 0 || (a != a && b != b);
  }
  if (elem == Elem::F64) {
    double a, b;
    std::memcpy(&a, x, 8), std::memcpy(&b, y, 8);
    return std::memcmp(x, y, 8) == 0 || (a != a && b != b);
  }
  return std::memcmp(x, y, size_t(bytesOf(elem))) == 0;
}

void describe(const LoopCase &c) {
  auto list = [](const std::vector<int64_t> &v) {
    std::string text = "[";
    for (int64_t x : v)
      text += std::to_string(x) + " ";
    return text + "]";
  };
  std::printf("  outer %s chain %s cols %ld\n", list(c.spec.outer).c_str(), list(c.spec.chain).c_str(),
              long(c.spec.cols));
  for (size_t i = 0; i < c.spec.nodes.size(); ++i) {
    const LoopNode &n = c.spec.nodes[i];
    std::printf("  %zu: op %d elem %d reduce %d init %d number %g buffer %d offset %ld strides %s example %d %s args",
                i, int(n.op), int(n.elem), int(n.reduce), n.hasInit, n.number, n.view.buffer, long(n.view.offset),
                list(n.view.strides).c_str(), n.usesExample, list(n.exampleStrides).c_str());
    for (int arg : n.args)
      std::printf(" %d", arg);
    std::printf("\n");
  }
  for (const LoopStore &s : c.spec.stores)
    std::printf("  store %d to buffer %d offset %ld strides %s\n", s.node, s.view.buffer, long(s.view.offset),
                list(s.view.strides).c_str());
}

constexpr char kFresh = char(0xa5); // what scratch holds before a run

// A row of scratch that is asked for is written: nothing is reserved for other kernels.
std::string unusedScratch(const LoopSpec &spec, const char *scratch) {
  LoopPlan plan = planLoop(spec);
  std::vector<int64_t> rows;
  for (size_t n = 0; n < plan.spec.nodes.size(); ++n)
    for (int64_t row : {plan.scratchOf[n], plan.totalOf[n]})
      if (row >= 0)
        rows.push_back(row);
  if (plan.tableAt >= 0)
    rows.push_back(plan.tableAt);
  std::sort(rows.begin(), rows.end());
  if (rows.empty() || rows.front() != 0)
    return "scratch that belongs to nothing";
  rows.push_back(plan.scratchBytes);
  for (size_t i = 0; i + 1 < rows.size(); ++i)
    if (std::all_of(scratch + rows[i], scratch + rows[i + 1], [](char byte) { return byte == kFresh; }))
      return "scratch at " + std::to_string(rows[i]) + " is never written";
  return "";
}

std::string compareRun(const LoopCase &c, test::KernelFunction kernel, int threads,
                       const std::vector<std::vector<char>> &expected) {
  test::Arena arena;
  for (const auto &bytes : c.memory)
    arena.add(int64_t(bytes.size()));
  int64_t perThread = scratchBytesPerThread(c.spec);
  if (perThread > 0)
    arena.add(perThread * threads);
  for (size_t i = 0; i < c.memory.size(); ++i)
    std::memcpy(arena.at<char>(int(i)), c.memory[i].data(), c.memory[i].size());
  if (perThread > 0)
    std::memset(arena.at<char>(int(c.memory.size())), kFresh, size_t(perThread * threads));
  int64_t context[kContextWords];
  std::copy(std::begin(c.context), std::end(c.context), context);
  std::vector<int64_t> offsets(arena.offsetsOf(), arena.offsetsOf() + c.memory.size() + (perThread > 0));
  offsets.resize(c.memory.size() + 1);
  offsets.insert(offsets.end(), c.keyWords.begin(), c.keyWords.end());
  test::callKernel(kernel, arena.data(), offsets.data(), context, threads);
  if (!arena.guardsIntact())
    return "wrote outside of its buffers";
  if (threads == 1 && perThread > 0)
    if (std::string row = unusedScratch(c.spec, arena.at<char>(int(c.memory.size()))); !row.empty())
      return row;
  for (size_t i = 0; i < c.memory.size(); ++i) {
    int64_t size = bytesOf(c.elems[i]);
    for (int64_t at = 0; at + size <= int64_t(c.memory[i].size()); at += size)
      if (!sameBits(c.elems[i], expected[i].data() + at, arena.at<char>(int(i)) + at))
        return "buffer " + std::to_string(i) + " element " + std::to_string(at / size);
  }
  return "";
}

// The case, and the same over one element of each of its dims: what is walked as columns then changes, and with it what lies in scratch.
std::vector<LoopCase> withParts(const LoopCase &c) {
  std::vector<LoopCase> cases = {c};
  size_t outer = c.spec.outer.size(), dims = outer + c.spec.chain.size() + 1;
  for (size_t dim = 0; dim < dims; ++dim) {
    LoopCase part = c;
    LoopSpec &spec = part.spec;
    int64_t &extent = dim < outer ? spec.outer[dim] : dim + 1 < dims ? spec.chain[dim - outer] : spec.cols;
    bool cut = spec.blockRows > 0 && dim >= outer && dim + 1 < dims; // its blocks have more than one row
    if (extent == 1 || cut)
      continue;
    extent = 1;
    part.name += "_one" + std::to_string(dim);
    cases.push_back(part);
  }
  return cases;
}

// All cases in one module.
double runCases(const std::vector<LoopCase> &cases, const std::string &cpu, bool verbose) {
  test::KernelHarness harness(cpu);
  for (const LoopCase &c : cases) {
    auto builder = harness.builder();
    buildLoop(builder, harness.module(), c.name, c.spec);
  }
  if (!harness.compile()) {
    expect(false, "compiles for " + cpu + ": " + harness.error().substr(0, 500));
    return 0;
  }
  for (const LoopCase &c : cases) {
    Case one;
    auto expected = LoopReference(c.spec, c.memory, c.context, c.keyWords).run();
    for (int threads = 1; threads <= 3; ++threads) {
      std::string difference = compareRun(c, harness.lookup(c.name), threads, expected);
      expect(difference.empty(), c.name + ", " + cpu + ", " + std::to_string(threads) + " threads: " + difference);
      if (!difference.empty() && verbose)
        describe(c);
      if (!difference.empty())
        break;
    }
  }
  return harness.compileSeconds();
}

} // namespace

int main(int argc, char **argv) {
  uint64_t seed = argc > 2 ? std::strtoull(argv[1], nullptr, 10) : 1;
  int count = argc > 2 ? std::atoi(argv[2]) : 60;
  for (const std::string &cpu : test::runnableCpus()) {
    for (int from = 0; from < count; from += 12) {
      std::vector<LoopCase> cases;
      for (int i = from; i < std::min(count, from + 12); ++i) {
        LoopGenerator generator(seed * 1000003 + i);
        cases.push_back(i % 10 == 9 ? generator.addAt(i) : generator.next(i));
        if (i % 3 == 0)
          cases.push_back(generator.narrow(i));
      }
      runCases(cases, cpu, argc > 2);
    }
    constexpr uint64_t kSeedOfParts = 2; // its kernel 10 has a chain of one column if it has one row
    for (int i = 0; i < 20; ++i)
      runCases(withParts(LoopGenerator(kSeedOfParts * 1000003 + i).next(i)), cpu, argc > 2);
  }
  for (const std::string &cpu : test::runnableCpus()) {
    for (auto [rows, cols, classRows, classes] :
         {std::array<int64_t, 4>{9, 70, 5, 515}, {4, 1040, 3, 4111}, {70, 64, 2, 128}}) {
      std::vector<LoopCase> cases;
      for (const test::RowKernel &kernel : test::rowKernels(rows, cols, classRows, classes))
        cases.push_back(LoopGenerator(seed + cases.size()).row(kernel, int(std::min(rows, classes))));
      runCases(cases, cpu, argc > 2);
    }
  }
  return tally();
}
