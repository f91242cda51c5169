// standin.cpp: the threads of a GPU on the CPU, for a library that has the functions of NVIDIA's driver (driver.cpp).
//
// It is no GPU: it tests what a kernel's code computes and how threads, barriers and shuffles work together. It says nothing about ptxas,
// the real driver, or speed.
//
// Every GPU thread of a block is a fiber; one block runs at a time.
//   STANDIN_SEED                   in which order threads take their turns
//   STANDIN_BANKS                  1: rows of a matrix that lie in the same banks of shared memory are a fault
//   STANDIN_TENSOR                 a100, h100: whose tensor cores (TensorCore.h); without it by the capability
#include "block.h"

#include <algorithm>
#include <cstdint>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

namespace standin {

Block block;
static constexpr size_t kStackBytes = 256 << 10;

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

static void runFiber() {
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

[[noreturn]] static void stuck(const char *why) {
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

} // namespace standin

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
  if (++block.barriers > UINT32_MAX / 2)
    fault("more barriers than can be counted");
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

namespace standin {

uint32_t meet(const char *operation, uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp,
              uint32_t (*resolve)(Fiber *warp, uint32_t lane)) {
  uint32_t first = block.current & ~31u, lane = block.current & 31;
  Fiber *warp = &block.fibers[first];
  Fiber &self = block.fibers[block.current];
  if (!(mask >> lane & 1))
    fault(std::string(operation) + ": a thread is not in its own mask, in " + block.kernel->name);
  self.operation = operation, self.mask = mask, self.value = value, self.argument = argument, self.clamp = clamp;
  self.state = State::AtWarp;
  if (size_t behind = block.fibers.size() - first; behind < 32 && mask >> behind)
    fault(std::string(operation) + ": the mask names threads that there are not, in " + block.kernel->name);
  uint32_t &met = block.warps[first / 32].met;
  met |= 1u << lane;
  // Of those that wait with this mask it is enough to ask one: it was compared with the others.
  for (uint32_t others = met & mask & ~(1u << lane); others; others &= others - 1) {
    const Fiber &other = warp[__builtin_ctz(others)];
    if (other.mask == mask && other.operation != operation)
      stuck("lanes of one mask meet at different operations");
    if (other.mask == mask)
      break;
  }
  bool all = (met & mask) == mask;
  for (uint32_t i = 0; all && i < 32; ++i)
    all = !(mask >> i & 1) || warp[i].mask == mask;
  if (!all) {
    pause(State::AtWarp);
    return self.result;
  }
  met &= ~mask;
  for (uint32_t i = 0; i < 32; ++i)
    if (mask >> i & 1)
      warp[i].result = resolve(warp, i);
  for (uint32_t i = 0; i < 32; ++i)
    if (mask >> i & 1)
      warp[i].state = State::Ready;
  return self.result;
}

// PTX ISA, shfl.sync: bits 0..4 of c bound the lane, bits 8..12 cut the warp into segments.
static uint32_t ofLane(const Fiber *warp, uint32_t lane, uint32_t from, bool inside) {
  uint32_t source = inside ? from : lane;
  if (!(warp[lane].mask >> source & 1))
    fault("a shuffle reads a lane that takes no part, in " + block.kernel->name);
  return warp[source].value;
}
static uint32_t resolveDown(Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = lane + (warp[lane].argument & 31);
  return ofLane(warp, lane, from, from <= most);
}
static uint32_t resolveIndex(Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = (lane & segments) | (warp[lane].argument & 31 & ~segments);
  return ofLane(warp, lane, from, from <= most);
}

static uint32_t resolveBeside(Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = lane ^ (warp[lane].argument & 31);
  return ofLane(warp, lane, from, from <= most);
}

// PTX ISA, ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i, 16 bytes each; lane l gets elements 2 (l % 4) and the next one of row
// l / 4 of each; of a turned one, of column l / 4.
// Shared memory has 32 banks of four bytes: the eight rows of a matrix come at once if they lie in different groups of four.
static bool looksAtBanks() {
  static const bool looks = number("STANDIN_BANKS", 0) != 0;
  return looks;
}
static void lookAtBanks(const Fiber *warp) {
  for (uint32_t matrix = 0; looksAtBanks() && matrix < 4; ++matrix) {
    const char *rows[8] = {};
    for (uint32_t row = 0; row < 8; ++row) {
      const char *at = warp[matrix * 8 + row].memory, *&here = rows[reinterpret_cast<uintptr_t>(at) / 16 % 8];
      if (here && here != at)
        fault("rows of a matrix lie in the same banks, in " + block.kernel->name);
      here = at;
    }
  }
}
// The i-th words that the lanes have read since then, 32 at once: in different banks, too.
static void lookAtBanksOfWords(Fiber *warp) {
  for (size_t i = 0; i < warp->words.size(); ++i) {
    const char *banks[32] = {};
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (warp[lane].words.size() != warp->words.size())
        fault("lanes that multiply have read another number of words than others, in " + block.kernel->name);
      const char *at = warp[lane].words[i], *&here = banks[reinterpret_cast<uintptr_t>(at) / 4 % 32];
      if (here && here != at)
        fault("words of a matrix lie in the same banks, in " + block.kernel->name);
      here = at;
    }
  }
  for (uint32_t lane = 0; lane < 32; ++lane)
    warp[lane].words.clear();
}
static uint32_t element(const Fiber *warp, uint32_t matrix, uint32_t row, uint32_t column) {
  uint16_t value;
  memcpy(&value, warp[matrix * 8 + row].memory + column * 2, 2);
  return value;
}
static uint32_t resolveMatrices(Fiber *warp, uint32_t lane) {
  if (lane == 0)
    lookAtBanks(warp);
  for (uint32_t i = 0; i < 4; ++i)
    warp[lane].out[i] = element(warp, i, lane / 4, lane % 4 * 2) | element(warp, i, lane / 4, lane % 4 * 2 + 1) << 16;
  return 0;
}
static uint32_t resolveTurned(Fiber *warp, uint32_t lane) {
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
static uint16_t half(uint32_t word, uint32_t which) { return uint16_t(which ? word >> 16 : word); }
static uint16_t elementOfA(const Fiber *warp, uint32_t row, uint32_t k) {
  return half(warp[row % 8 * 4 + k % 8 / 2].in[row / 8 + k / 8 * 2], k % 2);
}
static uint16_t elementOfB(const Fiber *warp, uint32_t k, uint32_t column) { return half(warp[column * 4 + k % 8 / 2].in[4 + k / 8], k % 2); }
static uint32_t resolveMultiply(Fiber *warp, uint32_t lane) {
  if (lane > 0) // the first one has done it for all
    return 0;
  tensor::Factors a[16], b[8];
  for (uint32_t k = 0; k < 16; ++k) {
    for (uint32_t row = 0; row < 16; ++row)
      a[row].set(int(k), tensor::Factor(elementOfA(warp, row, k)));
    for (uint32_t column = 0; column < 8; ++column)
      b[column].set(int(k), tensor::Factor(elementOfB(warp, k, column)));
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

// PTX ISA, mma.m16n8k8 of tf32: likewise, an element a word.
static tensor::Factor roundedFactor(uint32_t word) {
  const bool isNaN = (word & 0x7fffffff) > 0x7f800000;
  if (!isNaN && word & 0x1fff)
    fault("a factor that was not rounded to tf32, in " + block.kernel->name);
  return tensor::Factor(word, tensor::kTF32);
}
static uint32_t resolveMultiplyOfTF32(Fiber *warp, uint32_t lane) {
  if (lane > 0) // the first one has done it for all
    return 0;
  lookAtBanksOfWords(warp);
  tensor::Factors a[16], b[8];
  for (uint32_t k = 0; k < 8; ++k) {
    for (uint32_t row = 0; row < 16; ++row)
      a[row].set(int(k), roundedFactor(warp[row % 8 * 4 + k % 4].in[row / 8 + k / 4 * 2]));
    for (uint32_t column = 0; column < 8; ++column)
      b[column].set(int(k), roundedFactor(warp[column * 4 + k % 4].in[4 + k / 4]));
  }
  for (uint32_t l = 0; l < 32; ++l)
    for (uint32_t i = 0; i < 4; ++i) {
      float sum;
      memcpy(&sum, &warp[l].in[6 + i], 4);
      sum = tensor::multiplyAddOfTF32(tensorKind(), a[l / 4 + i / 2 * 8], b[l % 4 * 2 + i % 2], sum);
      memcpy(&warp[l].out[i], &sum, 4);
    }
  return 0;
}

// ---- What accesses show --------------------------------------------------------------------------------------------------------
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

// Lanes name rows of 16 bytes.
static void namesRow(const char *at) {
  if (reinterpret_cast<uintptr_t>(at) % 16)
    fault("a row of a matrix that does not begin at 16 bytes, in " + block.kernel->name);
}

} // namespace standin

extern "C" {
uint32_t standin_thread() { return block.current; }
uint32_t standin_block() { return block.number; }
void standin_sync_block() {
  block.fibers[block.current].words.clear();
  pause(State::AtBarrier);
}
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
// PTX ISA, cvt.rna.tf32.f32: to nearest, ties away from zero; a NaN becomes 0x7fffffff.
uint32_t standin_rounded_to_tf32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return 0x7fffffff;
  return (bits + 0x1000) & ~0x1fffu;
}

// PTX ISA, ex2.approx.ftz.f32: a GPU's is within 2 units in the last place, and the same each time; this one is another such function.
float standin_exp2(float x) {
  if (std::fabs(x) < 0x1p-126f)
    return 1;
  float result = std::exp2f(x);
  return std::fabs(result) < 0x1p-126f ? 0 : result;
}

// rcp.approx.ftz.f32: within 1.
float standin_reciprocal(float x) {
  float result = std::fabs(x) < 0x1p-126f ? std::copysign(INFINITY, x) : 1 / x;
  return std::fabs(result) < 0x1p-126f ? std::copysign(0.0f, result) : result;
}

void standin_shared(char *at, int64_t bytes, int64_t writes) {
  if (!writes && bytes == 4 && looksAtBanks())
    block.fibers[block.current].words.push_back(at);
  if (writes && block.shared)
    block.fibers[block.current].hidden.push_back({at, bytes});
  Shadow *shadows = &shadowOf(at);
  const uint32_t now = block.barriers, self = block.current;
  for (int64_t i = 0; i < bytes; i += 2) {
    Shadow &shadow = shadows[i];
    if (shadow.inFlight)
      fault("an access to shared memory while a copy into it is on its way, in " + block.kernel->name + ", thread " + std::to_string(self));
    bool race = (shadow.written == now && shadow.writer != self) ||
                (writes && shadow.read == now && (shadow.severalReaders || shadow.reader != self));
    if (race)
      fault("a race on shared memory in " + block.kernel->name + ", thread " + std::to_string(self));
    if (writes && shadow.products)
      fault("a write to shared memory that products under way read, in " + block.kernel->name + ", thread " + std::to_string(self));
    if (writes) {
      shadow.written = now, shadow.writer = uint16_t(self);
      shadow.hidden = block.shared != nullptr;
    } else {
      shadow.severalReaders = shadow.read == now && (shadow.severalReaders || shadow.reader != self);
      shadow.read = now, shadow.reader = uint16_t(self);
    }
  }
}
void standin_global(const char *at, int64_t bytes, int64_t) {
  if (at < arenaBegin || at + bytes > arenaEnd)
    fault("an access outside of the arena in " + block.kernel->name + ", byte " + std::to_string(at - arenaBegin) + " of " +
          std::to_string(arenaEnd - arenaBegin));
}
// A GPU has no such access: error 716, a misaligned address.
static void beginsAt(const char *at, int64_t bytes, int64_t writes, int64_t alignment, const char *where, int64_t place) {
  if (reinterpret_cast<uintptr_t>(at) % uintptr_t(alignment))
    fault(std::string(writes ? "a store to " : "a load from ") + where + " of " + std::to_string(bytes) + " bytes, at byte " + std::to_string(place) +
          ", that does not begin at a multiple of " + std::to_string(alignment) + ", in " + block.kernel->name + ", thread " +
          std::to_string(block.current));
}
void standin_shared_access(char *at, int64_t bytes, int64_t writes, int64_t alignment) {
  beginsAt(at, bytes, writes, alignment, "shared memory", int64_t(reinterpret_cast<uintptr_t>(at) % uintptr_t(2 * alignment)));
  standin_shared(at, bytes, writes);
}
void standin_global_access(const char *at, int64_t bytes, int64_t writes, int64_t alignment) {
  standin_global(at, bytes, writes);
  beginsAt(at, bytes, writes, alignment, "the arena", at - arenaBegin);
}
// cp.async copies as late as it may: when its thread waits for it. Until then nobody may touch where it goes to, and those who did before
// must be behind a barrier.
void standin_copy(char *to, const char *from, int32_t bytes, int32_t width) {
  if (reinterpret_cast<uintptr_t>(to) % uintptr_t(width) || reinterpret_cast<uintptr_t>(from) % uintptr_t(width))
    fault("a copy of " + std::to_string(width) + " bytes that does not begin at a multiple of them, in " + block.kernel->name);
  if (bytes)
    standin_global(from, bytes, 0);
  standin_shared(to, width, 1);
  for (int64_t i = 0; i < width; i += 2)
    shadowOf(to + i).inFlight = true;
  Fiber &self = block.fibers[block.current];
  self.copies.push_back({to, from, uint32_t(bytes), uint32_t(width), self.groups});
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
    memset(copy.to, 0, copy.width);
    memcpy(copy.to, copy.from, copy.bytes);
    for (int64_t i = 0; i < copy.width; i += 2) {
      Shadow &shadow = shadowOf(copy.to + i);
      shadow.inFlight = false, shadow.written = block.barriers, shadow.writer = uint16_t(block.current);
      shadow.hidden = block.shared != nullptr;
    }
    if (block.shared)
      self.hidden.push_back({copy.to, copy.width});
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
static void multiplies(uint32_t *out, std::array<uint32_t, 6> factors, std::array<float, 4> sums, uint32_t (*resolve)(Fiber *, uint32_t)) {
  Fiber &self = block.fibers[block.current];
  std::copy(factors.begin(), factors.end(), self.in.begin());
  memcpy(&self.in[6], sums.data(), sizeof sums);
  meet("mma.sync", ~0u, 0, 0, 0, resolve);
  std::copy(self.out.begin(), self.out.end(), out);
}
void standin_multiply(uint32_t *out, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1, float c2,
                      float c3) {
  multiplies(out, {a0, a1, a2, a3, b0, b1}, {c0, c1, c2, c3}, resolveMultiply);
}
void standin_multiply_tf32(uint32_t *out, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1, float c2,
                           float c3) {
  multiplies(out, {a0, a1, a2, a3, b0, b1}, {c0, c1, c2, c3}, resolveMultiplyOfTF32);
}
}
