// warpgroups.cpp: what the warpgroups of a Hopper do on the stand-in: products whose operands are matrices in shared memory (wgmma), copies of boxes
// (cp.async.bulk.tensor), and the barriers of phases that these are counted by (mbarrier).
#include "block.h"

#include <algorithm>
#include <cstring>

using namespace standin;

static Warp &warpOf(const Fiber *warp) { return block.warps[size_t(warp - block.fibers.data()) / 32]; }

// Where element k of row (or column) `row` lies: PTX ISA, "Strides", with the layouts of 128 and of 64 bytes; units of 16 bytes. The
// address is swizzled at last: bits 4 to 6 by bits 7 to 9, or 4 and 5 by 7 and 8.
static char *elementOfTile(uint64_t tile, bool turned, uint32_t row, uint32_t k) {
  const uint64_t begin = (tile & 0x3fff) << 4, leading = (tile >> 16 & 0x3fff) << 4, stride = (tile >> 32 & 0x3fff) << 4;
  const uint64_t kind = tile >> 62, line = kind == 1 ? 128 : 64;
  if ((kind != 1 && kind != 2) || (tile >> 49 & 7))
    fault("a description of a matrix that is not known here, in " + block.kernel->name);
  const uint64_t inLine = line / 2; // elements
  uint64_t at = turned ? begin + row / inLine * leading + row % inLine * 2 + k % 8 * line + k / 8 * stride
                       : begin + row / 8 * stride + row % 8 * line + k * 2;
  at ^= (at >> 7 & (kind == 1 ? 7 : 3)) << 4;
  if (at >= uint64_t(kSharedOfLaunch))
    fault("a matrix beyond shared memory, in " + block.kernel->name);
  return block.shared + at;
}

// What a warp reads of a product: its sixteen of 64 rows, and all columns.
template <typename Body> static void forElements(const Product &product, uint32_t warp, Body body) {
  for (uint32_t k = 0; k < 16; ++k) {
    for (uint32_t row = 0; row < 16 && !product.inRegisters; ++row)
      body(0, row, k, elementOfTile(product.a, product.turnedA, warp % 4 * 16 + row, k));
    for (uint32_t column = 0; column < product.columns; ++column)
      body(1, column, k, elementOfTile(product.b, product.turnedB, column, k));
  }
}

static uint32_t beginProduct(Fiber *warp, uint32_t lane) {
  if (warp[lane].product.a != warp->product.a || warp[lane].product.b != warp->product.b)
    fault("lanes describe different matrices, in " + block.kernel->name);
  if (lane > 0)
    return 0;
  Warp &own = warpOf(warp);
  own.products.push_back(warp->product);
  own.products.back().group = own.groups;
  for (uint32_t l = 0; l < 32; ++l)
    own.products.back().left.push_back(warp[l].product.words);
  forElements(own.products.back(), uint32_t(&own - block.warps.data()), [](int, uint32_t, uint32_t, char *at) { ++shadowOf(at).products; });
  return 0;
}

// They read as late as they may: when they are waited for.
static void multiplyNow(Fiber *warp, const Product &product) {
  static tensor::Factors a[16], b[256];
  forElements(product, uint32_t(&warpOf(warp) - block.warps.data()), [](int which, uint32_t row, uint32_t k, char *at) {
    Shadow &shadow = shadowOf(at);
    if (shadow.hidden || shadow.inFlight)
      fault("products read what was not shown to them, in " + block.kernel->name);
    --shadow.products;
    uint16_t half;
    memcpy(&half, at, 2);
    (which ? b : a)[row].set(int(k), tensor::Factor(half));
  });
  // PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix A: two rows, eight apart, and then both eight k further.
  for (uint32_t l = 0; l < 32 && product.inRegisters; ++l)
    for (uint32_t i = 0; i < 8; ++i)
      a[l / 4 + i / 2 % 2 * 8].set(int(l % 4 * 2 + i % 2 + i / 4 * 8), tensor::Factor(uint16_t(product.left[l][i / 2] >> i % 2 * 16)));
  for (uint32_t l = 0; l < 32; ++l)
    for (uint32_t i = 0; i < warp[l].sums.size(); ++i)
      warp[l].sums[i] = tensor::multiplyAdd(tensorKind(), a[l / 4 + i / 2 % 2 * 8], b[i / 4 * 8 + l % 4 * 2 + i % 2], warp[l].sums[i]);
}

static uint32_t endProducts(Fiber *warp, uint32_t lane) {
  if (lane > 0)
    return 0;
  Warp &own = warpOf(warp);
  std::vector<Product> still;
  for (const Product &product : own.products)
    if (int64_t(product.group) >= int64_t(own.groups) - int64_t(warp->value))
      still.push_back(product);
    else
      multiplyNow(warp, product);
  own.products = still;
  return 0;
}

// ---- Copies of boxes -----------------------------------------------------------------------------------------------------------
// Calls `body` for each element: where it goes to, and where it comes from (null: there is none). PTX ISA, "Tensor Data Movement", "Swizzling
// modes": the box lies as its axes do, the first one fastest, and the 16 bytes number i of a line lie at i ^ (the line's number), by address.
template <typename Body> static void forBox(const BoxCopy &copy, Body body) {
  const Map &map = copy.map;
  const uint32_t elements = copy.bytes() / 2, chunks = map.line / 16u;
  for (uint32_t element = 0; element < elements; ++element) {
    const char *from = map.begin;
    uint32_t rest = element;
    for (uint32_t i = 0; i < map.rank; ++i) {
      const int64_t at = copy.begin[i] + int64_t(rest % (map.box[i] + 1u));
      rest /= map.box[i] + 1u;
      from = !from || at < 0 || uint64_t(at) >= map.size[i] ? nullptr : from + at * int64_t(i ? map.stride[i - 1] : 2);
    }
    uint64_t at = uint64_t(copy.to - block.shared) + element * 2;
    if (chunks)
      at ^= (at / 128 % chunks) << 4;
    body(block.shared + at, from);
  }
}

void standin::arriveBox(const BoxCopy &copy) {
  forBox(copy, [](char *to, const char *from) {
    Shadow &shadow = shadowOf(to);
    shadow.inFlight = shadow.hidden = false;
    if (from)
      standin_global(from, 2, 0), memcpy(to, from, 2);
    else
      memset(to, 0, 2);
  });
  Phases &phases = block.phases.at(copy.barrier);
  phases.bytes -= copy.bytes();
  phases.endsNow();
}

// ---- What kernels call ---------------------------------------------------------------------------------------------------------
extern "C" {
void standin_begin_phases(char *barrier, uint32_t arrivals, char *shared) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 || reinterpret_cast<uintptr_t>(shared) % kSharedOfLaunch)
    fault("a barrier that does not begin at 8 bytes, in " + block.kernel->name);
  block.shared = shared;
  block.phases[barrier] = {arrivals, arrivals, 0};
  block.fibers[block.current].hidden.push_back({barrier, 8});
}
void standin_arrive(char *barrier) {
  auto found = block.phases.find(barrier);
  if (found == block.phases.end())
    fault("an arrival at what is no barrier, in " + block.kernel->name);
  Phases &phases = found->second;
  if (phases.left == 0)
    fault("more arrivals than a phase has, in " + block.kernel->name);
  --phases.left;
  phases.endsNow();
}
void standin_expect_bytes(char *barrier, uint32_t bytes) {
  auto found = block.phases.find(barrier);
  if (found == block.phases.end() || bytes >= 1 << 20)
    fault("bytes are expected at what is no barrier, or too many, in " + block.kernel->name);
  found->second.bytes += bytes;
}
// Nobody may touch where it goes from now on, until it has come.
void standin_copy_box(char *to, const char *words, char *barrier, uint32_t rank, const int32_t *begin) {
  BoxCopy copy = {to, {}, {}, barrier};
  memcpy(&copy.map, words, sizeof copy.map);
  std::copy(begin, begin + rank, copy.begin);
  auto found = block.phases.find(barrier);
  if (copy.map.mark != kMapMark || copy.map.rank != rank || reinterpret_cast<uintptr_t>(words) % 64)
    fault("a copy of a box by what is no map of its rank, in " + block.kernel->name);
  if (found == block.phases.end() || !found->second.shown)
    fault("a copy of a box tells a barrier that was not shown to it, in " + block.kernel->name);
  if (reinterpret_cast<uintptr_t>(to) % 128 || to < block.shared || to + copy.bytes() > block.shared + kSharedOfLaunch)
    fault("a copy of a box that does not begin at 128 bytes of shared memory, in " + block.kernel->name);
  forBox(copy, [](char *at, const char *) {
    Shadow &shadow = shadowOf(at);
    if (shadow.inFlight || shadow.products)
      fault("a copy of a box comes to where another one does, or to what products under way read, in " + block.kernel->name);
    shadow.inFlight = true;
  });
  block.boxes.push_back(copy);
}
void standin_await_phase(char *barrier, uint32_t parity) {
  if (!block.phases.count(barrier))
    fault("a wait for what is no barrier, in " + block.kernel->name);
  Fiber &self = block.fibers[block.current];
  self.awaited = barrier, self.parity = parity & 1;
  while (!hasEnded(self))
    pause(State::AtPhase);
}
void standin_show() {
  Fiber &self = block.fibers[block.current];
  for (auto [at, bytes] : self.hidden)
    if (auto barrier = block.phases.find(at); barrier != block.phases.end())
      barrier->second.shown = true;
    else
      for (int64_t i = 0; i < bytes; i += 2)
        if (Shadow &shadow = shadowOf(at + i); shadow.writer == block.current && !shadow.inFlight)
          shadow.hidden = false;
  self.hidden.clear();
}
// What a launch gave its block, where there are no barriers.
void standin_memory_of_launch(char *shared) { block.shared = shared; }
void standin_prepared_sums(float *, uint32_t) { block.fibers[block.current].prepared = true; }
void standin_begin_products() { block.fibers[block.current].prepared = true; }
// Sums are away until somebody has waited for the products: who looks at the registers finds this number.
static void multiply(float *sums, uint32_t count, const Product &product) {
  constexpr uint32_t kAway = 0x7fc0dead;
  Fiber &self = block.fibers[block.current];
  if (!self.prepared)
    fault("products whose registers were not made ready, in " + block.kernel->name);
  const bool first = self.sums.empty();
  if (first)
    self.sums.assign(sums, sums + count);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t bits;
    memcpy(&bits, sums + i, 4);
    if (!first && bits != kAway)
      fault("a register changed while products add to it, in " + block.kernel->name);
    memcpy(sums + i, &kAway, 4);
  }
  self.product = product;
  meet("wgmma", ~0u, 0, 0, 0, beginProduct);
}
void standin_multiply_tiles(float *sums, uint32_t count, uint64_t a, uint64_t b, uint32_t turnedA, uint32_t turnedB) {
  multiply(sums, count, {a, b, count * 2, turnedA, turnedB, 0});
}
void standin_multiply_rows(float *sums, uint32_t count, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, uint32_t turned) {
  multiply(sums, count, {0, b, count * 2, 0, turned, 0, true, {a0, a1, a2, a3}});
}
void standin_end_products() {
  meet("wgmma.commit_group", ~0u, 0, 0, 0, [](Fiber *warp, uint32_t lane) { return lane ? 0u : ++warpOf(warp).groups; });
}
void standin_await_products(uint32_t left) { meet("wgmma.wait_group", ~0u, left, 0, 0, endProducts); }
void standin_finished_sums(float *sums, uint32_t, uint32_t left) {
  standin_await_products(left);
  Fiber &self = block.fibers[block.current];
  if (!warpOf(&block.fibers[block.current & ~31u]).products.empty()) // what a GPU would leave there, nobody can say
    return;
  std::copy(self.sums.begin(), self.sums.end(), sums);
  self.sums.clear();
  self.prepared = false;
}
}
