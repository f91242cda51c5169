// LINK: kernel_harness
//
// The machine code of the main product kernel, AVX2 and AVX-512: its inner loops consist of the FMAs of the register
// tile and the loads they need, and nothing in them goes to the stack. Also which rows a tile has.
#include "test/unit/Expect.h"
#include "compiler/kernels/ContractPlan.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <map>
#include <sstream>

using namespace cinch;

struct Loop {
  int fmas = 0, dots = 0, instructions = 0, stackAccesses = 0, stores = 0;
};

static bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

// Innermost loops: the stretch from a label to a conditional jump back to it, with no other label of a jump inside.
static std::vector<Loop> innermostLoops(const std::string &assembly) {
  std::vector<std::string> lines;
  std::istringstream stream(assembly);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  bool framed = contains(assembly, "movq\t%rsp, %rbp"); // else rbp is a register like others
  std::map<std::string, size_t> labels;
  std::vector<Loop> loops;
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::string &line = lines[at];
    if (line.compare(0, 2, ".L") == 0) {
      labels[line.substr(0, line.find(':'))] = at;
      continue;
    }
    size_t target = line.find(".LBB");
    if (!contains(line, "\tj") || target == std::string::npos)
      continue;
    auto label = labels.find(line.substr(target));
    if (label == labels.end())
      continue; // forwards
    Loop loop;
    bool inner = true;
    for (size_t i = label->second + 1; i <= at; ++i) {
      const std::string &instruction = lines[i];
      inner &= instruction.compare(0, 2, ".L") != 0;
      if (instruction.empty() || instruction[0] != '\t' || instruction[1] == '.' || instruction[1] == '#')
        continue;
      ++loop.instructions;
      loop.fmas += contains(instruction, "vfmadd");
      loop.dots += contains(instruction, "vdpbf16ps");
      loop.stackAccesses += contains(instruction, "(%rsp") || (framed && contains(instruction, "(%rbp"));
      loop.stores += contains(instruction, "vmov") && instruction.back() == ')';
    }
    if (inner)
      loops.push_back(loop);
  }
  return loops;
}

static void checkTile(const std::string &cpu, int64_t m, int64_t n, int64_t k, bool transposeA, bool transposeB,
                      int leastFmasAStep) {
  kernels::ContractSpec spec;
  spec.m = {m};
  spec.n = {n};
  spec.k = {k};
  spec.a.buffer = 0, spec.b.buffer = 1, spec.c.buffer = 2;
  spec.a.strides = transposeA ? std::vector<int64_t>{1, m} : std::vector<int64_t>{k, 1};
  spec.b.strides = transposeB ? std::vector<int64_t>{1, k} : std::vector<int64_t>{n, 1};
  spec.c.strides = {n, 1};
  kernels::TargetInfo target;
  target = target::infoOf(cpu);
  kernels::ContractPlan plan = kernels::planContract(spec, target);
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildContract(builder, harness.module(), "product", spec, target);
  std::string name = cpu + " " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
                     (transposeA ? " T" : " N") + (transposeB ? "T" : "N");
  if (!harness.compile()) {
    expect(false, name + ": " + harness.error());
    return;
  }
  std::string assembly = harness.assembly();
  expect(contains(assembly, target.lanes == 16 ? "%zmm" : "%ymm"), name + ": uses the full vector width");
  int tile = plan.mr * plan.nv;
  expect(tile >= leastFmasAStep, name + ": tile of " + std::to_string(plan.mr) + " x " + std::to_string(plan.nv));
  bool found = false;
  for (const Loop &loop : innermostLoops(assembly)) {
    if (loop.fmas == 0)
      continue;
    std::string counts = std::to_string(loop.fmas) + " FMAs, " + std::to_string(loop.instructions) + " instructions, " +
                         std::to_string(loop.stackAccesses) + " stack accesses, " + std::to_string(loop.stores) +
                         " stores";
    expect(loop.stackAccesses == 0 && loop.stores == 0, name + ": a loop spills or stores: " + counts);
    if (loop.fmas != tile * plan.unroll)
      continue;
    found = true;
    // Loads of B, broadcasts of A, the counter, its comparison, the jump and at most two moves of addresses a step.
    int most = plan.unroll * (tile + plan.nv + plan.mr + 2) + 4;
    expect(loop.instructions <= most, name + ": at most " + std::to_string(most) + " instructions expected: " + counts);
  }
  expect(found, name + ": a loop of " + std::to_string(tile * plan.unroll) + " FMAs");
}

// Products of bf16 by vdpbf16ps: words that are loaded long before they are needed run out of registers, which costs half of the speed.
static void checkWords(const std::string &cpu, bool transposeA, bool transposeB) {
  constexpr int64_t kSize = 512;
  kernels::ContractSpec spec;
  spec.pairs = true;
  spec.m = {kSize}, spec.n = {kSize}, spec.k = {kSize};
  spec.a.buffer = 0, spec.b.buffer = 1, spec.c.buffer = 2;
  spec.a.elem = spec.b.elem = kernels::Elem::BF16, spec.c.elem = kernels::Elem::F32;
  spec.a.strides = transposeA ? std::vector<int64_t>{1, kSize} : std::vector<int64_t>{kSize, 1};
  spec.b.strides = transposeB ? std::vector<int64_t>{1, kSize} : std::vector<int64_t>{kSize, 1};
  spec.c.strides = {kSize, 1};
  kernels::TargetInfo target = target::infoOf(cpu);
  kernels::ContractPlan plan = kernels::planContract(spec, target);
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildContract(builder, harness.module(), "product", spec, target);
  std::string name = cpu + " words " + (transposeA ? "T" : "N") + (transposeB ? "T" : "N");
  if (!harness.compile()) {
    expect(false, name + ": " + harness.error());
    return;
  }
  int most = 0;
  for (const Loop &loop : innermostLoops(harness.assembly())) {
    most = std::max(most, loop.dots);
    expect(loop.dots == 0 || loop.stackAccesses + loop.stores == 0,
           name + ": a loop of " + std::to_string(loop.dots) + " products of pairs has " + std::to_string(loop.stackAccesses) + " stack accesses, " +
               std::to_string(loop.stores) + " stores");
  }
  int both = 2 * plan.mr * plan.nv; // chains
  expect(most == both && both >= 16, name + ": a loop of " + std::to_string(most) + " products of pairs for " + std::to_string(both) + " chains");
}

// What gives the image of a convolution of 2 x 2 taps with stride 2 writes every second place of every second row. A tile takes places of one
// row, which lie together in both A and C, and not the same place of all rows, of which there are more.
static void checkNearRows(const std::string &cpu) {
  constexpr int64_t kRows = 1024, kPlaces = 32, kIn = 32, kOut = 16;
  kernels::ContractSpec spec;
  spec.m = {kRows, kPlaces};
  spec.n = {kOut};
  spec.k = {kIn};
  spec.a.buffer = 0, spec.b.buffer = 1, spec.c.buffer = 2;
  spec.a.strides = {kPlaces * kIn, kIn, 1};
  spec.b.strides = {kOut, 1};
  spec.c.strides = {4 * kPlaces * kOut, 2 * kOut, 1};
  kernels::ContractPlan plan = kernels::planContract(spec, target::infoOf(cpu));
  expect(plan.m.size == kPlaces && plan.m.c == 2 * kOut, cpu + ": rows of a tile are " + std::to_string(plan.m.c) + " elements apart");
}

// A convolution of one channel: neighbouring places read the same element at several taps of a row. Where tiles have no registers for these elements from
// one tap to the next, their chains would go to the stack.
static void checkSharedElements(const std::string &cpu) {
  constexpr int64_t kExamples = 4, kSize = 28, kTaps = 5, kOut = 32, kBefore = kTaps / 2;
  kernels::ContractSpec spec;
  spec.m = {kExamples, kSize, kSize};
  spec.n = {kOut};
  spec.k = {kTaps, kTaps, 1};
  spec.a.buffer = 0, spec.b.buffer = 1, spec.c.buffer = 2;
  spec.a.strides = {kSize * kSize, kSize, 1, kSize, 1, 1};
  spec.a.offset = -kBefore * (kSize + 1);
  spec.b.strides = {kTaps * kOut, kOut, kOut, 1};
  spec.c.strides = {kSize * kSize * kOut, kSize * kOut, kOut, 1};
  spec.bounds = {{-kBefore, kSize, {0, 1, 0, 1, 0, 0}}, {-kBefore, kSize, {0, 0, 1, 0, 1, 0}}};
  kernels::TargetInfo target = target::infoOf(cpu);
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildContract(builder, harness.module(), "convolution", spec, target);
  const std::string name = cpu + " convolution of one channel";
  if (!harness.compile()) {
    expect(false, name + ": " + harness.error());
    return;
  }
  int vectorsOnStack = 0;
  std::istringstream assembly(harness.assembly());
  for (std::string line; std::getline(assembly, line);)
    vectorsOnStack += contains(line, "(%rsp") && (contains(line, "%zmm") || contains(line, "%ymm"));
  kernels::ContractPlan plan = kernels::planContract(spec, target);
  expect(vectorsOnStack < plan.mr * plan.nv, name + ": " + std::to_string(vectorsOnStack) + " accesses to vectors on the stack");
}

int main() {
  for (auto &cpu : {std::pair<std::string, int>{"haswell", 10}, {"skylake-avx512", 20}, {"znver4", 20}}) {
    checkTile(cpu.first, 1024, 1024, 1024, false, false, cpu.second);
    checkTile(cpu.first, 4096, 768, 3072, false, true, cpu.second);
    checkTile(cpu.first, 768, 3072, 4096, true, false, cpu.second);
    checkTile(cpu.first, 1000, 1000, 1000, false, false, cpu.second);
    checkTile(cpu.first, 64, 64, 64, false, false, cpu.second);
    checkNearRows(cpu.first);
  }
  for (const char *cpu : {"haswell", "skylake-avx512", "znver4", "sapphirerapids"})
    checkSharedElements(cpu);
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true})
      checkWords("znver4", transposeA, transposeB);
  return tally();
}
