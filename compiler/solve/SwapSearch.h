// SwapSearch.h: which values of a schedule of the main loop wait on the host, and when their copies begin and are waited for, so that the loop
// fits and takes the least time by simulation of kernels and copies (Engines.h).
//
// Which values: they are put together greedily, in several ways, and the best is improved by leaving one out, taking one in, and exchanging two.
// When: SwapTimes.h.
#ifndef CINCH_COMPILER_SOLVE_SWAPSEARCH_H
#define CINCH_COMPILER_SOLVE_SWAPSEARCH_H

#include "compiler/solve/SwapTimes.h"
#include "compiler/solve/Timeline.h"

namespace cinch::solve {

struct SwapAnswer {
  bool fits = false;
  std::vector<Swap> swaps;
  double seconds = 0;     // of the loop's body
  int64_t hostBytes = 0;
};

class SwapSearch {
public:
  // A schedule that Timeline accepts, of a main loop without parts. `allowed`: of buffers, whether they may leave; empty: all that the loop makes.
  SwapSearch(const GraphIndex &, int64_t microbatch, const std::vector<int> &loop, const std::vector<bool> &allowed = {});

  // The fastest that is found. `tries`: simulations at most.
  SwapAnswer solve(int64_t arenaBytes, int64_t hostBytes, int tries);
  // Bytes alive at most if every value is away wherever nobody uses it: no choice needs less.
  int64_t leastBytes() const;
  // .. in so many bytes of the host, as far as greedy choices show.
  int64_t smallestRoom(int64_t hostBytes);
  // Seconds that the body takes at least in so many bytes.
  double leastSeconds(int64_t arenaBytes) const;
  const std::vector<IdleValue> &values() const { return loop.idle; }

private:
  struct Choice {
    std::vector<Away> away;
    bool inTime = false; // copies in begin no earlier than needed
    double seconds = SwapTimes::kNever;
    int64_t bytes = 0;
  };
  void findIdle(const Timeline &, const std::vector<bool> &allowed);
  void price(SwapTimes &, Choice &) const;
  Choice greedy(int order) const;
  bool improve(SwapTimes &, Choice &, std::vector<Away> changed) const;
  void search(SwapTimes &, Choice &, int tries) const;

  SwapLoop loop;
  int64_t outside = 0; // most bytes alive outside of the loop

  // Of the search at hand.
  int64_t room = 0, hostRoom = 0;
  std::vector<int> useful; // values that are idle where too much is alive
};

} // namespace cinch::solve
#endif
