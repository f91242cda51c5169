// standin.cpp: the threads of a GPU on the CPU, for a library that has the functions of NVIDIA's driver (driver.cpp).
//
// It is no GPU: it tests what a kernel's code computes and how threads, barriers and shuffles work together. It says nothing about ptxas,
// the real driver, or speed.
//
// Every GPU thread of a block is a fiber; one block runs at a time.
//   STANDIN_SEED                   in which order threads take their turns
#include "standin.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <unordered_map>
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

namespace {

// ---- Fibers --------------------------------------------------------------------------------------------------------------------
enum class State { Ready, AtBarrier, AtWarp, Done };
struct Fiber {
  void *stack = nullptr; // where it goes on
  State state = State::Done;
  const char *operation = "";
  uint32_t mask = 0, value = 0, argument = 0, clamp = 0, result = 0;
};
constexpr size_t kStackBytes = 256 << 10;

struct Block {
  const Kernel *kernel = nullptr;
  void *arguments[3] = {};
  std::vector<Fiber> fibers;
  char *stacks = nullptr;
  size_t capacity = 0;
  uint32_t number = 0, current = 0;
  void *scheduler = nullptr;
  uint64_t barriers = 0;
} block;

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
  block.kernel->run(block.arguments[0], block.arguments[1], block.arguments[2]);
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
    text += " " + std::to_string(i) + (f.state == State::AtBarrier ? " at a barrier" : f.state == State::Done ? " has ended" : std::string(" at ") + f.operation) + ";";
  }
  fault(text);
}

} // namespace

void standin::runBlock(const Kernel &kernel, void *const arguments[3], uint32_t number, uint32_t threads) {
  if (block.capacity < threads) {
    block.capacity = threads;
    block.stacks = static_cast<char *>(mmap(nullptr, threads * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  block.kernel = &kernel;
  std::copy(arguments, arguments + 3, block.arguments);
  block.number = number;
  block.fibers.assign(threads, Fiber());
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
    for (const Fiber &f : block.fibers) {
      waiting += f.state == State::AtBarrier;
      done += f.state == State::Done;
    }
    if (done == threads)
      return;
    if (waiting == threads) {
      ++block.barriers;
      for (Fiber &f : block.fibers)
        f.state = State::Ready;
    } else if (ran == 0) {
      stuck("threads wait for others that never come");
    }
  }
}

namespace {

// Arrives at an operation of a warp; when the last lane of the mask is there, all go on.
uint32_t meet(const char *operation, uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp,
              uint32_t (*resolve)(const Fiber *warp, uint32_t lane)) {
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
      if (warp[i].state == State::AtWarp && warp[i].mask == mask && strcmp(warp[i].operation, operation) != 0)
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
uint32_t resolveDown(const Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = lane + (warp[lane].argument & 31);
  return ofLane(warp, lane, from, from <= most);
}
uint32_t resolveIndex(const Fiber *warp, uint32_t lane) {
  uint32_t segments = warp[lane].clamp >> 8 & 31, most = (lane & segments) | (warp[lane].clamp & 31 & ~segments);
  uint32_t from = (lane & segments) | (warp[lane].argument & 31 & ~segments);
  return ofLane(warp, lane, from, from <= most);
}

// ---- What accesses show --------------------------------------------------------------------------------------------------------
struct Shadow {
  uint64_t written = 0, read = 0; // between which barriers
  uint32_t writer = 0, reader = 0;
  bool severalReaders = false;
};
std::unordered_map<uintptr_t, Shadow> shadows;

} // namespace

extern "C" {
uint32_t standin_thread() { return block.current; }
uint32_t standin_block() { return block.number; }
void standin_sync_block() { pause(State::AtBarrier); }
void standin_sync_warp(uint32_t mask) {
  meet("a sync of a warp", mask, 0, 0, 0, [](const Fiber *, uint32_t) { return 0u; });
}
uint32_t standin_shuffle_down(uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp) {
  return meet("a shuffle down", mask, value, argument, clamp, resolveDown);
}
uint32_t standin_shuffle_index(uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp) {
  return meet("a shuffle of an index", mask, value, argument, clamp, resolveIndex);
}

void standin_shared(char *at, int64_t bytes, int64_t writes) {
  for (int64_t i = 0; i < bytes; i += 4) {
    Shadow &shadow = shadows[reinterpret_cast<uintptr_t>(at) + uintptr_t(i)];
    uint64_t now = block.barriers;
    uint32_t self = block.current;
    bool race = (shadow.written == now && shadow.writer != self) ||
                (writes && shadow.read == now && (shadow.severalReaders || shadow.reader != self));
    if (race)
      fault("a race on shared memory in " + block.kernel->name + ", thread " + std::to_string(self));
    if (writes) {
      shadow.written = now, shadow.writer = self;
    } else {
      shadow.severalReaders = shadow.read == now && (shadow.severalReaders || shadow.reader != self);
      shadow.read = now, shadow.reader = self;
    }
  }
}
void standin_global(char *at, int64_t bytes, int64_t) {
  if (at < arenaBegin || at + bytes > arenaEnd)
    fault("an access outside of the arena in " + block.kernel->name + ", byte " + std::to_string(at - arenaBegin) + " of " +
          std::to_string(arenaEnd - arenaBegin));
}
}
