// Memory.h: buffers with fixed lifetimes get offsets in one arena, as low as possible.
//
// Two buffers whose lifetimes [lower, upper) overlap must not share bytes. The height of the arena is at least the
// largest sum of bytes alive at one moment (`lowerBound`). Greedy placement in several orders comes first, then
// what hands its bytes over to what, if none is ever free (ArenaSegments.cpp), better orders (ArenaOrder.cpp), blocks of buffers that fit
// (ArenaMerge.cpp), branch and bound over canonical placements (ArenaSearch.cpp). All of it is deterministic under a work limit.
#ifndef CINCH_COMPILER_SOLVE_MEMORY_H
#define CINCH_COMPILER_SOLVE_MEMORY_H

#include "compiler/solve/Bytes.h"

#include <optional>
#include <string>
#include <vector>

namespace cinch::solve {

struct ArenaBuffer {
  int64_t size = 0;
  int64_t lower = 0, upper = 0; // alive in [lower, upper)
  int64_t fixedOffset = -1;     // >= 0: placed by the caller
};

struct ArenaProblem {
  std::vector<ArenaBuffer> buffers;
  int64_t alignment = 1; // offsets are multiples of it; sizes count as rounded up to it
};

struct ArenaLimits {
  int64_t work = 40'000'000; // steps of the searches after the greedy start (some 0.8 s); deterministic
  double seconds = 0;        // > 0: also stop after this long (not deterministic)
  std::optional<int64_t> capacity; // a height up to this is good enough
  bool onlyWithin = false;         // .. and nothing above it is of use: a placement is given up when it gets there
};

// What `cinch solve arena` spends without a limit: some ten seconds where nothing is found.
constexpr int64_t kArenaCommandWork = 1'000'000'000;

struct ArenaSolution {
  std::vector<int64_t> offsets;
  int64_t height = 0;
  int64_t bound = 0;      // proven: no placement is lower
  bool exhausted = false; // a limit ended the search
};

// Empty if the problem is sane, else what is wrong.
std::string check(const ArenaProblem &);
// Largest sum of bytes alive at one moment, and the ends of the fixed buffers.
int64_t lowerBound(const ArenaProblem &);
ArenaSolution solve(const ArenaProblem &, const ArenaLimits & = {});
// Empty if the offsets are right, else the first thing that is wrong.
std::string verify(const ArenaProblem &, const ArenaSolution &);

namespace detail {
// Places the buffers in this order, each at the lowest offset that is free over its whole life, or, with `bestFit`, in the least gap. `cap` >= 0:
// gives up (returns -1) as soon as an end lies above it. Returns the height. `byTime`: whether what is taken is found by time (TakenRanges)
// or in one list; absent, whichever is quicker. The offsets are the same.
int64_t placeInOrder(const ArenaProblem &, const std::vector<int> &order, std::vector<int64_t> &offsets, int64_t cap, bool bestFit = false,
                     std::optional<bool> byTime = {});
// Branch and bound for a height of at most `target`; true: `offsets` holds a placement. `proved`: there is none.
bool searchCanonical(const ArenaProblem &, int64_t target, int64_t &work, double deadline,
                     std::vector<int64_t> &offsets, bool &proved);
// Places again and again in orders learnt from what sticks out above `enough`; `best` becomes what is found if it is
// lower.
void placeByOrder(const ArenaProblem &, int64_t enough, uint64_t seed, ArenaSolution &best, int64_t &work,
                  double deadline);
// Glues buffers that fit exactly into blocks and places those, at the height `enough` or, if that is not found, below
// `known`; the height, or -1.
int64_t placeGlued(const ArenaProblem &, uint64_t seed, int64_t enough, int64_t known, int64_t &work, double deadline,
                   std::vector<int64_t> &offsets);
double secondsNow();
} // namespace detail

} // namespace cinch::solve
#endif
