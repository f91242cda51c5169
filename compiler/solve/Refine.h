// Refine.h: local search on a loop list with exact bytes: what does not fall into segments and units.
#ifndef CINCH_COMPILER_SOLVE_REFINE_H
#define CINCH_COMPILER_SOLVE_REFINE_H

#include "compiler/solve/Timeline.h"

namespace cinch::solve {

// Takes out runs whose results can be held instead while the peak of live bytes stays within `target` (`loop` is).
std::vector<int> fill(const GraphIndex &, int64_t microbatch, std::vector<int> loop, int64_t target);

// Computes values again right before their use until the peak is within `target`; empty if it does not get there.
// `steps`: most values given up.
std::vector<int> shrink(const GraphIndex &, int64_t microbatch, std::vector<int> loop, int64_t target, int steps);

} // namespace cinch::solve
#endif
