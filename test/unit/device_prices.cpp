// LINK: cinch_analysis
// The price of kernels of a GPU follows from how they go through their work: turns of tiles, steps that wait, blocks that sum columns, draws.
#include "compiler/analysis/DeviceCost.h"
#include "compiler/analysis/Target.h"
#include "test/unit/Expect.h"

#include <cmath>

using namespace cinch;
using namespace cinch::analysis;
using namespace cinch::kernels;

static Target machine(const std::string &word) {
  std::string error;
  return *parseTarget(word, error);
}

// Beside its first launch.
static double seconds(const Target &target, const KernelSpec &spec, const DeviceWork &work = {}) {
  return priceOnDevice(spec, work, target.kernels(), target.rates()).seconds - target.rates().launch;
}

static bool near(double found, double wanted, double share = 0.02) { return std::fabs(found / wanted - 1) <= share; }

// bf16, m x k times k x n; what follows k in memory is `line` elements long.
static KernelSpec product(int64_t m, int64_t n, int64_t k, int64_t line = 0) {
  line = line > 0 ? line : k;
  ContractSpec spec;
  spec.pairs = true;
  spec.m = {m}, spec.n = {n}, spec.k = {k};
  spec.a = {0, Elem::BF16, 0, {line, 1}}, spec.b = {1, Elem::BF16, 0, {1, line}}, spec.c = {2, Elem::BF16, 0, {n, 1}};
  KernelSpec kernel;
  kernel.work = spec;
  return kernel;
}

// Sums of the columns of `rows` rows of bf16, in blocks of so many rows.
static KernelSpec sums(int64_t rows, int64_t cols, int64_t blockRows) {
  LoopSpec spec;
  spec.chain = {rows}, spec.cols = cols, spec.blockRows = blockRows;
  LoopNode load, sum;
  load.op = LoopOp::Load, load.elem = Elem::BF16, load.view = {0, Elem::BF16, 0, {cols, 1}};
  sum.op = LoopOp::ReduceChain, sum.elem = Elem::F32, sum.level = Level::Column, sum.args = {0};
  spec.nodes = {load, sum};
  spec.stores = {{1, {1, Elem::F32, 0, {0, 1}}}};
  KernelSpec kernel;
  kernel.work = spec;
  return kernel;
}

static KernelSpec attention(double dropout) {
  AttendSpec spec;
  spec.pairs = true;
  spec.lead = {32}, spec.batchDim = 0;
  spec.A = spec.G = 12, spec.T = spec.S = 1024, spec.K = spec.E = 64;
  spec.causal = true, spec.dropout = dropout;
  KernelSpec kernel;
  kernel.work = spec;
  return kernel;
}

static KernelSpec productOfTF32(int64_t m, int64_t n, int64_t k) {
  KernelSpec kernel = product(m, n, k);
  auto &spec = std::get<ContractSpec>(kernel.work);
  spec.pairs = false, spec.tf32 = true;
  spec.a.elem = spec.b.elem = spec.c.elem = Elem::F32;
  return kernel;
}
static KernelSpec productOfF32(int64_t m, int64_t n, int64_t k) {
  KernelSpec kernel = productOfTF32(m, n, k);
  std::get<ContractSpec>(kernel.work).tf32 = false;
  return kernel;
}

static void products(const Target &h200, const Target &sync) {
  const double full = seconds(h200, product(132 * 128, 2048, 1024));
  expect(near(seconds(h200, product(132 * 128, 2048, 2048)), 2 * full), "twice the steps take twice the time");
  expect(near(seconds(h200, product(2 * 132 * 128, 2048, 1024)), 2 * full), "twice the turns take twice the time");
  expect(near(full, 2.0 * 132 * 128 * 2048 * 1024 / (0.79 * 989.4e12)), "full turns of wide tiles take the rate of large products");
  expect(near(seconds(h200, product(128, 256, 4096)), seconds(h200, product(128, 64 * 132, 4096)), 0.01),
         "one tile alone takes as long as a tile on each multiprocessor");
  expect(seconds(h200, product(4096, 4096, 4095)) > 1.2 * seconds(h200, product(4096, 4096, 4096)), "rows that begin anywhere are waited for");
  expect(seconds(sync, product(8192, 8192, 8192)) > seconds(h200, product(8192, 8192, 8192)) / 0.79 * 0.63, "mma.sync is slower than wgmma");
  for (const Target *target : {&h200, &sync}) {
    const double tf32 = seconds(*target, productOfTF32(8192, 8192, 8192));
    expect(near(tf32, 2 * seconds(sync, product(8192, 8192, 8192))), "numbers twice as wide are read and multiplied for twice as long");
    expect(tf32 < seconds(*target, productOfF32(8192, 8192, 8192)) / 2, "tensor cores are faster than those of single FMAs");
  }
}

// Whole blocks of threads walk a chain; blocks of a chain are read by all multiprocessors, and a second launch adds their sums.
static void columns(const Target &h200) {
  const double chain = seconds(h200, sums(32768, 768, 0));
  expect(near(seconds(h200, sums(32768, 1536, 0)), chain), "columns that have a multiprocessor each cost nothing");
  expect(near(seconds(h200, sums(65536, 768, 0)), 2 * chain), "twice the rows are waited for twice as long");
  const double bytes = 2.0 * 32768 * 768, blocks = seconds(h200, sums(32768, 768, 32), {0, 0, bytes});
  expect(blocks > h200.rates().launch + bytes / h200.rates().bytes, "blocks take a second launch, beside the bytes");
  expect(blocks < chain / 3, "blocks of rows are summed side by side");
  expect(seconds(h200, sums(131072, 768, 32), {0, 0, bytes}) > blocks, "more blocks are added for longer");
}

int main() {
  const Target h200 = machine("nvidia:h200"), sync = machine("nvidia:sm_90");
  products(h200, sync);
  columns(h200);
  expect(seconds(h200, attention(0.1)) > 1.1 * seconds(h200, attention(0)), "draws of dropout take time");
  KernelSpec loop = sums(1 << 20, 1 << 12, 0);
  expect(near(seconds(h200, loop, {1, 1, 4.32e12}), 1), "what hardly computes takes the time of its bytes");
  expect(near(seconds(h200, loop, {2e12, 0, 1}), 2 * seconds(h200, loop, {1e12, 0, 1})), "what computes takes the time of its instructions");
  return tally();
}
