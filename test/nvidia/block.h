// block.h: a block of threads of the stand-in, between its threads (standin.cpp) and what warpgroups do together (warpgroups.cpp).
#ifndef STANDIN_BLOCK_H
#define STANDIN_BLOCK_H
#include "standin.h"
#include "test/nvidia/TensorCore.h"

#include <array>
#include <cstdint>
#include <map>
#include <vector>

extern "C" void standin_global(const char *at, int64_t bytes, int64_t);

namespace standin {

struct Copy {
  char *to;
  const char *from;
  uint32_t bytes, width, group; // so many of `width`, the others are zero
};

enum class State { Ready, AtBarrier, AtWarp, AtPhase, Done };
// What wgmma reads: two descriptions of matrices (PTX ISA, "Matrix Descriptor Format"), or of the left one four registers of each lane.
struct Product {
  uint64_t a, b;
  uint32_t columns, turnedA, turnedB, group;
  bool inRegisters = false;
  std::array<uint32_t, 4> words = {};              // this lane's
  std::vector<std::array<uint32_t, 4>> left = {}; // all lanes'
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
  std::vector<const char *> words;               // that this lane has read from shared memory since the last barrier or product of tf32, if banks are looked at
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
  uint32_t met = 0; // lanes that wait at an operation of the warp
};
struct Block {
  const Kernel *kernel = nullptr;
  void *arguments[4] = {};
  std::vector<Fiber> fibers;
  char *stacks = nullptr;
  size_t capacity = 0;
  uint32_t number = 0, current = 0;
  void *scheduler = nullptr;
  uint32_t barriers = 0; // of all blocks so far
  std::vector<Warp> warps;
  std::map<char *, Phases> phases;
  std::vector<BoxCopy> boxes; // on their way
  char *shared = nullptr; // that the launch gave; null: its kernel has no barriers there
};
extern Block block;
constexpr int64_t kSharedOfLaunch = 1 << 18;
inline bool hasEnded(const Fiber &f) { return (block.phases.at(f.awaited).number & 1) != f.parity; }

// What accesses to shared memory show.
struct Shadow {
  uint32_t written = 0, read = 0; // between which barriers
  uint16_t writer = 0, reader = 0; // threads
  uint16_t products = 0;           // under way that read it
  bool severalReaders : 1, inFlight : 1; // a copy into it is on its way
  bool hidden : 1;                       // what was written is not shown to wgmma
};
static_assert(sizeof(Shadow) == 16);
Shadow &shadowOf(const char *at); // those of the next bytes follow

// The thread waits in that state until somebody makes it ready.
void pause(State);
// Arrives at an operation of a warp; when the last lane of the mask is there, `resolve` gives each its result, and all go on.
uint32_t meet(const char *operation, uint32_t mask, uint32_t value, uint32_t argument, uint32_t clamp,
              uint32_t (*resolve)(Fiber *warp, uint32_t lane));
tensor::Kind tensorKind();
// A copy of a box comes, and its barrier is told (warpgroups.cpp).
void arriveBox(const BoxCopy &);

} // namespace standin
#endif
