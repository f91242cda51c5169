// Refine.h: local search on a loop list with exact bytes: what does not fall into segments and units.
#ifndef CINCH_COMPILER_SOLVE_REFINE_H
#define CINCH_COMPILER_SOLVE_REFINE_H

#include "compiler/solve/Timeline.h"

#include <functional>
#include <memory>

namespace cinch::solve {

constexpr size_t kMostRefinedKernels = 20'000; // of a loop: the moves would take too long in longer ones

class LoopCopies;
class Reorderer;

// Whether a loop serves whoever looks for one.
enum class Serves { Yes, No, NoneWill };

// Of one micro-batch: the tables of one loop serve the next, since thousands of loops are tried.
class Refiner {
public:
  using Loop = std::vector<int>;

  Refiner(const GraphIndex &, int64_t microbatch);
  ~Refiner();

  // Takes out runs whose results can be held instead while the peak of live bytes stays within `target` (`loop` is).
  Loop fill(Loop loop, int64_t target);
  // Computes values again right before their use until the peak is within `target`; empty if it does not get there.
  // `steps`: most values given up.
  Loop shrink(Loop loop, int64_t target, int steps);
  // Shrinks to `low`, orders the runs anew, and fills up to `target`; empty if it cannot be shrunk so far.
  Loop lowered(Loop loop, int64_t low, int64_t target, int steps);
  // The loop without some of its repetitions, whose readers take the copy before; `choose` gets the number of repetitions and names some of
  // them by their places in the loop's order. Nothing is said about bytes.
  Loop withHeld(const Loop &loop, const std::function<std::vector<size_t>(size_t)> &choose);
  // Looks for a faster loop within `target` (`loop` is) by disturbing it and refining what comes of that, so many times; deterministic.
  // `steps`: as for `shrink`; `serves`: if there, is asked of every loop that is faster than all before that served. It ends where no other one will serve.
  Loop shake(Loop loop, int64_t target, int tries, int steps, uint64_t seed, const std::function<Serves(const Loop &)> &serves = {});

  const GraphIndex &index;
  const int64_t microbatch;

private:
  std::unique_ptr<LoopCopies> copies, longer; // of the loop that is looked at; of what a step would make of it
  std::unique_ptr<Reorderer> reordered;
};

} // namespace cinch::solve
#endif
