// standin.cpp: the threads of a GPU on the CPU, for a library that has the functions of NVIDIA's driver (driver.cpp).
//
// It is no GPU: it tests what a kernel's code computes and how threads, barriers and shuffles work together. It says nothing about ptxas,
// the real driver, or speed.
//
// Every GPU thread of a block is a fiber; one block runs at a time.
//   STANDIN_SEED                   in which order threads take their turns
//   STANDIN_BANKS                  1: rows of a matrix that lie in the same banks of shared memory are a fault
//   STANDIN_TENSOR                 a100, h100: whose tensor cores (TensorCore.h); without it by the capability
#include "standin.h"
#include "test/nvidia/TensorCore.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <sys/mman.h>
#include <vector>

namespace standin {

[[noreturn]] void fault(const std::string &what) {
  fprintf(stderr, "stand-in: %s\n", what.c_str());
  _Exit(99);
}

const char *setting(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : nullptr;
}
uint64_t number(const char *name, uint64_t otherwise) { return setting(name) ? strtoull(setting(name), nullptr, 10) : otherwise; }

char *arenaBegin, *arenaEnd;

} // namespace standin

using namespace standin;

extern "C" void standin_global(const char *at, int64_t bytes, int64_t);

namespace {

// ---- Fibers --------------------------------------------------------------------------------------------------------------------
struct Copy {
  char *to;
  const char *from;
  uint32_t bytes, group; // of 16, the others are zero
};

enum class State { Ready, AtBarrier, AtWarp, AtPhase, Done };
// What wgmma reads: two descriptions of matrices (PTX ISA, "Matrix Descriptor Format").
struct Product {
  uint64_t a, b;
  uint32_t columns, turnedA, turnedB, group;
};
// A barrier of phases (mbarrier): how many arrivals end a phase, and are left; the number of the present one.
struct Phases {
  uint32_t arrivals, left, number;
  int64_t bytes = 0; // that are expected, and have not come; below zero: more have come
  bool shown = false; // to copies of boxes
  bool endsNow() {
    if (left > 0 || bytes != 0)
      return false;
    return ++number, left = arrivals, true;
  }
};
// A copy of a box that somebody asked for (cp.async.bulk.tensor).
struct BoxCopy {
  char *to;
  Map map;
  int32_t begin[5];
  char *barrier;
  uint32_t bytes() const {
    uint32_t all = 2;
    for (uint32_t i = 0; i < map.rank; ++i)
      all *= map.box[i] + 1u;
    return all;
  }
};
struct Fiber {
  void *stack = nullptr; // where it goes on
  State state = State::Done;
  const char *operation = "";
  uint32_t mask = 0, value = 0, argument = 0, clamp = 0, result = 0;
  const char *memory = nullptr;                  // ldmatrix: the row that this lane names
  std::array<uint32_t, 10> in{};                 // mma.sync: four registers of A, two of B, four of C
  std::array<uint32_t, 4> out{};                 // of both
  std::vector<Copy> copies;                      // cp.async that nobody has waited for
  uint32_t groups = 0;                           // that were closed
  std::vector<std::pair<char *, int64_t>> hidden; // written, and not shown to wgmma yet
  std::vector<float> sums;                       // that products under way add to
  bool prepared = false;                         // these registers are
  Product product = {};                          // wgmma
  char *awaited = nullptr;                       // barrier, and the parity of its phase
  uint32_t parity = 0;
};
// Of the four warps that multiply together each has its own rows, and its own products under way.
struct Warp {
  std::vector<Product> products;
  uint32_t groups = 0;
};
constexpr size_t kStackBytes = 256 << 10;

struct Block {
  const Kernel *kernel = nullptr;
  void *arguments[4] = {};
  std::vector<Fiber> fibers;
  char *stacks = nullptr;
  size_t capacity = 0;
  uint32_t number = 0, current = 0;
  void *scheduler = nullptr;
  uint64_t barriers = 0;
  std::vector<Warp> warps;
  std::map<char *, Phases> phases;
  std::vector<BoxCopy> boxes; // on their way
  char *shared = nullptr; // that the launch gave; null: its kernel has no barriers there
} block;
constexpr int64_t kSharedOfLaunch = 1 << 18;
bool hasEnded(const Fiber &f) { return (block.phases.at(f.awaited).number & 1) != f.parity; }

// Saves the registers that a callee keeps, swaps stacks.
extern "C" void standin_switch(void **from, void *to);
asm(R"(
.text
standin_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

void runFiber() {
  block.kernel->run(block.arguments[0], block.arguments[1], block.arguments[2], block.arguments[3]);
  Fiber &self = block.fibers[block.current];
  self.state = State::Done;
  standin_switch(&self.stack, block.scheduler);
  abort();
}

void pause(State state) {
  Fiber &self = block.fibers[block.current];
  self.state = state;
  standin_switch(&self.stack, block.scheduler);
}

[[noreturn]] void stuck(const char *why) {
  std::string text = std::string(why) + " in " + block.kernel->name + ", block " + std::to_string(block.number) + ":";
  for (size_t i = 0; i < block.fibers.size() && text.size() < 600; ++i) {
    const Fiber &f = block.fibers[i];
    std::string at = f.state == State::AtBarrier ? "at a barrier"
                     : f.state == State::AtPhase ? "at a barrier's phase"
                                                 : "at " + std::string(f.operation);
    text += " " + std::to_string(i) + " " + (f.state == State::Done ? "has ended" : at) + ";";
  }
  fault(text);
}

void arriveBox(const BoxCopy &);

} // namespace

void standin::runBlock(const Kernel &kernel, void *const arguments[4], uint32_t number, uint32_t threads) {
  if (block.capacity < threads) {
    block.capacity = threads;
    block.stacks = static_cast<char *>(mmap(nullptr, threads * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  block.kernel = &kernel;
  std::copy(arguments, arguments + 4, block.arguments);
  block.number = number;
  block.fibers.assign(threads, Fiber());
  block.warps.assign((threads + 31) / 32, Warp());
  block.phases.clear();
  block.boxes.clear();
  block.shared = nullptr;
  ++block.barriers;
  std::vector<uint32_t> order(threads);
  for (uint32_t i = 0; i < threads; ++i) {
    order[i] = i;
    auto *top = reinterpret_cast<void **>(block.stacks + (i + 1) * kStackBytes - 64);
    *--top = reinterpret_cast<void *>(+[] { abort(); });
    *--top = reinterpret_cast<void *>(runFiber);
    block.fibers[i].stack = top - 6;
    block.fibers[i].state = State::Ready;
  }
  static std::mt19937_64 random(::number("STANDIN_SEED", 0));
  if (setting("STANDIN_SEED"))
    std::shuffle(order.begin(), order.end(), random);
  for (;;) {
    size_t ran = 0, waiting = 0, done = 0;
    for (uint32_t i : order)
      if (block.fibers[i].state == State::Ready) {
        block.current = i;
        standin_switch(&block.scheduler, block.fibers[i].stack);
        ++ran;
      }
    for (Fiber &f : block.fibers) {
      if (f.state == State::AtPhase && hasEnded(f))
        f.state = State::Ready, ++ran;
      waiting += f.state == State::AtBarrier;
      done += f.state == State::Done;
    }
    if (done == threads) {
      for (const Warp &warp : block.warps)
        if (!warp.products.empty())
          fault("a block ends while products are under way, in " + kernel.name);
      if (!block.boxes.empty())
        fault("a block ends while copies of boxes are on their way, in " + kernel.name);
      return;
    }
    if (waiting == threads) {
      ++block.barriers;
      for (Fiber &f : block.fibers)
        f.state = State::Ready;
    } else if (ran == 0 && !block.boxes.empty()) { // copies of boxes come as late as they may, one at a time, in any order
      const size_t one = setting("STANDIN_SEED") ? random() % block.boxes.size() : 0;
      const BoxCopy copy = block.boxes[one];
      block.boxes.erase(block.boxes.begin() + long(one));
      arriveBox(copy);
    } else if (ran == 0) {
      stuck("threads wait for others that never come");
    }
  }
}

namespace {

// Arrives at an operation of a warp; when the last lane of the mask is there, all go on.
uint32_t meet(const char *operation, uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp,
              uint32_t (*resolve)(Fiber *warp, uint32_t lane)) {
  uint32_t first = block.current & ~31u, lane = block.current & 31;
  Fiber *warp = &block.fibers[first];
  Fiber &self = block.fibers[block.current];
  if (!(mask >> lane & 1))
    fault(std::string(operation) + ": a thread is not in its own mask, in " + block.kernel->name);
  self.operation = operation, self.mask = mask, self.value = value, self.argument = argument, self.clamp = clamp;
  self.state = State::AtWarp;
  bool all = true;
  for (uint32_t i = 0; i < 32; ++i)
    if (mask >> i & 1) {
      if (first + i >= block.fibers.size())
        fault(std::string(operation) + ": the mask names threads that there are not, in " + block.kernel->name);
      all = all && warp[i].state == State::AtWarp && warp[i].mask == mask;
      if (warp[i].state == State::AtWarp && warp[i].mask == mask && warp[i].operation != operation)
        stuck("lanes of one mask meet at different operations");
    }
  if (!all) {
    pause(State::AtWarp);
    return self.result;
  }
  for (uint32_t i = 0; i < 32; ++i)
    if (mask >> i & 1)
      warp[i].result = resolve(warp, i);
  for (uint32_t i = 0; i < 32; ++i)
    if (mask >> i & 1)
      warp[i].state = State::Ready;
  return self.result;
}

// PTX ISA, shfl.sync: bits 0..4 of c bound the lane, bits 8..12 cut the warp into segments.
uint32_t ofLane(const Fiber *warp, uint32_t lane, uint32_t from, bool inside) {
  uint32_t source = inside ? from : lane;
  if (!(warp[lane].mask >> source & 1))
    fault("a shuffle reads a lane that takes no part, in " + block.kernel->name);
  return warp[source].value;
}
uint32_t resolveDown(Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = lane + (warp[lane].argument & 31);
  return ofLane(warp, lane, from, from <= most);
}
uint32_t resolveIndex(Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = (lane & segments) | (warp[lane].argument & 31 & ~segments);
  return ofLane(warp, lane, from, from <= most);
}

uint32_t resolveBeside(Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = lane ^ (warp[lane].argument & 31);
  return ofLane(warp, lane, from, from <= most);
}

// PTX ISA, ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i, 16 bytes each; lane l gets elements 2 (l % 4) and the next one of row
// l / 4 of each; of a turned one, of column l / 4.
// Shared memory has 32 banks of four bytes: the eight rows of a matrix come at once if they lie in different groups of four.
void lookAtBanks(const Fiber *warp) {
  static const bool looks = number("STANDIN_BANKS", 0) != 0;
  for (uint32_t matrix = 0; looks && matrix < 4; ++matrix) {
    const char *rows[8] = {};
    for (uint32_t row = 0; row < 8; ++row) {
      const char *at = warp[matrix * 8 + row].memory, *&here = rows[reinterpret_cast<uintptr_t>(at) / 16 % 8];
      if (here && here != at)
        fault("rows of a matrix lie in the same banks, in " + block.kernel->name);
      here = at;
    }
  }
}
uint32_t element(const Fiber *warp, uint32_t matrix, uint32_t row, uint32_t column) {
  uint16_t value;
  memcpy(&value, warp[matrix * 8 + row].memory + column * 2, 2);
  return value;
}
uint32_t resolveMatrices(Fiber *warp, uint32_t lane) {
  if (lane == 0)
    lookAtBanks(warp);
  for (uint32_t i = 0; i < 4; ++i)
    warp[lane].out[i] = element(warp, i, lane / 4, lane % 4 * 2) | element(warp, i, lane / 4, lane % 4 * 2 + 1) << 16;
  return 0;
}
uint32_t resolveTurned(Fiber *warp, uint32_t lane) {
  if (lane == 0)
    lookAtBanks(warp);
  for (uint32_t i = 0; i < 4; ++i)
    warp[lane].out[i] = element(warp, i, lane % 4 * 2, lane / 4) | element(warp, i, lane % 4 * 2 + 1, lane / 4) << 16;
  return 0;
}

tensor::Kind tensorKind() {
  static const tensor::Kind kind = [] {
    const char *name = setting("STANDIN_TENSOR");
    return name ? tensor::kindOf(name) : tensor::kindOf(number("STANDIN_CAPABILITY", 90) < 90 ? "a100" : "h100");
  }();
  return kind;
}

// PTX ISA, mma.m16n8k16: where the elements of A (16 x 16), B (16 x 8) and C lie in the lanes' registers.
uint16_t half(uint32_t word, uint32_t which) { return uint16_t(which ? word >> 16 : word); }
uint16_t elementOfA(const Fiber *warp, uint32_t row, uint32_t k) {
  return half(warp[row % 8 * 4 + k % 8 / 2].in[row / 8 + k / 8 * 2], k % 2);
}
uint16_t elementOfB(const Fiber *warp, uint32_t k, uint32_t column) { return half(warp[column * 4 + k % 8 / 2].in[4 + k / 8], k % 2); }
uint32_t resolveMultiply(Fiber *warp, uint32_t lane) {
  if (lane > 0) // the first one has done it for all
    return 0;
  tensor::Factor a[16][16], b[8][16];
  for (uint32_t k = 0; k < 16; ++k) {
    for (uint32_t row = 0; row < 16; ++row)
      a[row][k] = tensor::Factor(elementOfA(warp, row, k));
    for (uint32_t column = 0; column < 8; ++column)
      b[column][k] = tensor::Factor(elementOfB(warp, k, column));
  }
  for (uint32_t l = 0; l < 32; ++l)
    for (uint32_t i = 0; i < 4; ++i) {
      float sum;
      memcpy(&sum, &warp[l].in[6 + i], 4);
      sum = tensor::multiplyAdd(tensorKind(), a[l / 4 + i / 2 * 8], b[l % 4 * 2 + i % 2], sum);
      memcpy(&warp[l].out[i], &sum, 4);
    }
  return 0;
}

// ---- What accesses show --------------------------------------------------------------------------------------------------------
struct Shadow {
  uint64_t written = 0, read = 0; // between which barriers
  uint32_t writer = 0, reader = 0;
  bool severalReaders = false, inFlight = false; // a copy into it is on its way
  bool hidden = false;                           // what was written is not shown to wgmma
  uint16_t products = 0;                         // under way that read it
};
// Shared memory is that of the kernels' library: all of it lies within some MiB of wherever it was touched first. A shadow for each byte,
// of which every second one is used: the smallest accesses that lie among larger ones have two.
Shadow &shadowOf(const char *at) {
  constexpr size_t kReach = 256 << 20;
  static const char *middle = at;
  static auto *shadows = static_cast<Shadow *>(
      mmap(nullptr, 2 * kReach * sizeof(Shadow), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  size_t place = size_t(at - middle) + kReach;
  if (shadows == MAP_FAILED || place >= 2 * kReach)
    fault("no shadow for shared memory");
  return shadows[place];
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------------------
Warp &warpOf(const Fiber *warp) { return block.warps[size_t(warp - block.fibers.data()) / 32]; }

// Where element k of row (or column) `row` lies: PTX ISA, "Strides", with the layouts of 128 and of 64 bytes; units of 16 bytes. The
// address is swizzled at last: bits 4 to 6 by bits 7 to 9, or 4 and 5 by 7 and 8.
char *elementOfTile(uint64_t tile, bool turned, uint32_t row, uint32_t k) {
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
template <typename Body> void forElements(const Product &product, uint32_t warp, Body body) {
  for (uint32_t k = 0; k < 16; ++k) {
    for (uint32_t row = 0; row < 16; ++row)
      body(0, row, k, elementOfTile(product.a, product.turnedA, warp % 4 * 16 + row, k));
    for (uint32_t column = 0; column < product.columns; ++column)
      body(1, column, k, elementOfTile(product.b, product.turnedB, column, k));
  }
}

uint32_t beginProduct(Fiber *warp, uint32_t lane) {
  if (warp[lane].product.a != warp->product.a || warp[lane].product.b != warp->product.b)
    fault("lanes describe different matrices, in " + block.kernel->name);
  if (lane > 0)
    return 0;
  Warp &own = warpOf(warp);
  own.products.push_back(warp->product);
  own.products.back().group = own.groups;
  forElements(own.products.back(), uint32_t(&own - block.warps.data()), [](int, uint32_t, uint32_t, char *at) { ++shadowOf(at).products; });
  return 0;
}

// They read as late as they may: when they are waited for.
void multiplyNow(Fiber *warp, const Product &product) {
  static tensor::Factor a[16][16], b[256][16];
  forElements(product, uint32_t(&warpOf(warp) - block.warps.data()), [](int which, uint32_t row, uint32_t k, char *at) {
    Shadow &shadow = shadowOf(at);
    if (shadow.hidden || shadow.inFlight)
      fault("products read what was not shown to them, in " + block.kernel->name);
    --shadow.products;
    uint16_t half;
    memcpy(&half, at, 2);
    (which ? b : a)[row][k] = tensor::Factor(half);
  });
  for (uint32_t l = 0; l < 32; ++l)
    for (uint32_t i = 0; i < warp[l].sums.size(); ++i)
      warp[l].sums[i] = tensor::multiplyAdd(tensorKind(), a[l / 4 + i / 2 % 2 * 8], b[i / 4 * 8 + l % 4 * 2 + i % 2], warp[l].sums[i]);
}

uint32_t endProducts(Fiber *warp, uint32_t lane) {
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
template <typename Body> void forBox(const BoxCopy &copy, Body body) {
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

void arriveBox(const BoxCopy &copy) {
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

// Lanes name rows of 16 bytes.
void namesRow(const char *at) {
  if (reinterpret_cast<uintptr_t>(at) % 16)
    fault("a row of a matrix that does not begin at 16 bytes, in " + block.kernel->name);
}

} // namespace

extern "C" {
uint32_t standin_thread() { return block.current; }
uint32_t standin_block() { return block.number; }
void standin_sync_block() { pause(State::AtBarrier); }
void standin_sync_warp(uint32_t mask) {
  meet("a sync of a warp", mask, 0, 0, 0, [](Fiber *, uint32_t) { return 0u; });
}
uint32_t standin_shuffle_down(uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp) {
  return meet("a shuffle down", mask, value, argument, clamp, resolveDown);
}
uint32_t standin_shuffle_beside(uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp) {
  return meet("a shuffle beside", mask, value, argument, clamp, resolveBeside);
}
uint32_t standin_shuffle_index(uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp) {
  return meet("a shuffle of an index", mask, value, argument, clamp, resolveIndex);
}

// PTX ISA, cvt.rn.bf16x2.f32: to nearest, ties to even; the first argument is the upper half; a NaN becomes 0x7fff.
uint32_t standin_rounded_pair(float upper, float lower) {
  auto rounded = [](float value) -> uint32_t {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000)
      return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return rounded(upper) << 16 | rounded(lower);
}
// PTX ISA, ex2.approx.ftz.f32: a GPU's is within 2 units in the last place, and the same each time; this one is another such function.
float standin_exp2(float x) {
  if (std::fabs(x) < 0x1p-126f)
    return 1;
  float result = std::exp2f(x);
  return std::fabs(result) < 0x1p-126f ? 0 : result;
}

// PTX ISA, rcp.approx.ftz.f32: within 1 unit in the last place. This one is off wherever it may be, now to this side, now to the other one.
float standin_about_reciprocal(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  float result = 1 / x;
  if ((bits & 0x7fffff) == 0) // of a power of two it is exact
    return result;
  return std::nextafterf(result, bits % 3 == 0 ? 0 : bits % 3 == 1 ? INFINITY : result);
}

void standin_shared(char *at, int64_t bytes, int64_t writes) {
  if (writes && block.shared)
    block.fibers[block.current].hidden.push_back({at, bytes});
  for (int64_t i = 0; i < bytes; i += 2) {
    Shadow &shadow = shadowOf(at + i);
    uint64_t now = block.barriers;
    uint32_t self = block.current;
    if (shadow.inFlight)
      fault("an access to shared memory while a copy into it is on its way, in " + block.kernel->name + ", thread " + std::to_string(self));
    bool race = (shadow.written == now && shadow.writer != self) ||
                (writes && shadow.read == now && (shadow.severalReaders || shadow.reader != self));
    if (race)
      fault("a race on shared memory in " + block.kernel->name + ", thread " + std::to_string(self));
    if (writes && shadow.products)
      fault("a write to shared memory that products under way read, in " + block.kernel->name + ", thread " + std::to_string(self));
    if (writes) {
      shadow.written = now, shadow.writer = self;
      shadow.hidden = block.shared;
    } else {
      shadow.severalReaders = shadow.read == now && (shadow.severalReaders || shadow.reader != self);
      shadow.read = now, shadow.reader = self;
    }
  }
}
void standin_global(const char *at, int64_t bytes, int64_t) {
  if (at < arenaBegin || at + bytes > arenaEnd)
    fault("an access outside of the arena in " + block.kernel->name + ", byte " + std::to_string(at - arenaBegin) + " of " +
          std::to_string(arenaEnd - arenaBegin));
}
// cp.async copies as late as it may: when its thread waits for it. Until then nobody may touch where it goes to, and those who did before
// must be behind a barrier.
void standin_copy(char *to, const char *from, int32_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16)
    fault("a copy that does not begin at 16 bytes, in " + block.kernel->name);
  if (bytes)
    standin_global(from, bytes, 0);
  standin_shared(to, 16, 1);
  for (int64_t i = 0; i < 16; i += 2)
    shadowOf(to + i).inFlight = true;
  Fiber &self = block.fibers[block.current];
  self.copies.push_back({to, from, uint32_t(bytes), self.groups});
}
void standin_end_of_copies() { ++block.fibers[block.current].groups; }
void standin_wait_for_copies(int32_t left) {
  Fiber &self = block.fibers[block.current];
  std::vector<Copy> still;
  for (const Copy &copy : self.copies) {
    if (int64_t(copy.group) >= int64_t(self.groups) - left) {
      still.push_back(copy);
      continue;
    }
    memset(copy.to, 0, 16);
    memcpy(copy.to, copy.from, copy.bytes);
    for (int64_t i = 0; i < 16; i += 2) {
      Shadow &shadow = shadowOf(copy.to + i);
      shadow.inFlight = false, shadow.written = block.barriers, shadow.writer = block.current;
      shadow.hidden = block.shared;
    }
    if (block.shared)
      self.hidden.push_back({copy.to, 16});
  }
  self.copies = still;
}

void standin_matrices(uint32_t *out, char *at) {
  namesRow(at);
  standin_shared(at, 16, 0);
  Fiber &self = block.fibers[block.current];
  self.memory = at;
  meet("ldmatrix", ~0u, 0, 0, 0, resolveMatrices);
  std::copy(self.out.begin(), self.out.end(), out);
}
void standin_matrices_turned(uint32_t *out, char *at) {
  namesRow(at);
  standin_shared(at, 16, 0);
  Fiber &self = block.fibers[block.current];
  self.memory = at;
  meet("ldmatrix.trans", ~0u, 0, 0, 0, resolveTurned);
  std::copy(self.out.begin(), self.out.end(), out);
}
void standin_multiply(uint32_t *out, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1, float c2,
                      float c3) {
  Fiber &self = block.fibers[block.current];
  self.in = {a0, a1, a2, a3, b0, b1};
  const float sums[] = {c0, c1, c2, c3};
  memcpy(&self.in[6], sums, sizeof sums);
  meet("mma.sync", ~0u, 0, 0, 0, resolveMultiply);
  std::copy(self.out.begin(), self.out.end(), out);
}

// ---- Warpgroups ----------------------------------------------------------------------------------------------------------------
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
void standin_prepared_sums(float *, uint32_t) { block.fibers[block.current].prepared = true; }
void standin_begin_products() {}
// Sums are away until somebody has waited for the products: who looks at the registers finds this number.
void standin_multiply_tiles(float *sums, uint32_t count, uint64_t a, uint64_t b, uint32_t turnedA, uint32_t turnedB) {
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
  self.product = {a, b, count * 2, turnedA, turnedB, 0};
  meet("wgmma", ~0u, 0, 0, 0, beginProduct);
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
