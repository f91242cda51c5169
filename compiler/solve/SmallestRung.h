// SmallestRung.h: where the search at the lower end of the ladder begins (Planner::deepen), and what counts at the smallest rung.
#ifndef CINCH_COMPILER_SOLVE_SMALLESTRUNG_H
#define CINCH_COMPILER_SOLVE_SMALLESTRUNG_H

#include "compiler/solve/Evaluate.h"
#include "compiler/solve/Refine.h"

#include <memory>

namespace cinch::solve {

using Loops = std::vector<std::vector<int>>;

// A rung's own loop, and what becomes of loops that were found for more bytes, the last of them first: where little fits, each leads elsewhere.
// All but the first are within `target`; at most `most`.
Loops startsOf(Refiner &, std::vector<int> own, const Loops &above, int64_t target, int steps, size_t most);

// At the smallest rung there are no bytes to spare: what is alive may fit, and yet be packed into more. So a loop must be packed into its room to
// count, quickly. It is asked for loops that get faster and faster.
class PackedInto {
public:
  // `room`: bytes of the arena. Of loops faster than `fastest` none counts. Loops are tried until `placings` storages have been placed, each with so much
  // work beyond the greedy start.
  PackedInto(const GraphIndex &, int64_t microbatch, int64_t room, double fastest, int64_t placings, int64_t work);
  Serves operator()(const std::vector<int> &loop);
  std::shared_ptr<Plan> best; // the fastest that was packed; null: none
  std::vector<int> bestLoop;

private:
  const GraphIndex &index;
  int64_t microbatch, room;
  double fastest;
  int64_t left; // storages to place
  ArenaLimits limits;
};

} // namespace cinch::solve
#endif
