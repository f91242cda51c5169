// Refine.h: local search on a loop list with exact bytes: what does not fall into segments and units.
#ifndef CINCH_COMPILER_SOLVE_REFINE_H
#define CINCH_COMPILER_SOLVE_REFINE_H

#include "compiler/solve/Timeline.h"

#include <functional>

namespace cinch::solve {

// Takes out runs whose results can be held instead while the peak of live bytes stays within `target` (`loop` is).
std::vector<int> fill(const GraphIndex &, int64_t microbatch, std::vector<int> loop, int64_t target);

// Computes values again right before their use until the peak is within `target`; empty if it does not get there.
// `steps`: most values given up.
std::vector<int> shrink(const GraphIndex &, int64_t microbatch, std::vector<int> loop, int64_t target, int steps);

// The loop without some of its repetitions, whose readers take the copy before; `choose` gets the number of repetitions and names some of
// them by their places in the loop's order. Nothing is said about bytes.
std::vector<int> withHeld(const GraphIndex &, int64_t microbatch, const std::vector<int> &loop,
                          const std::function<std::vector<size_t>(size_t)> &choose);

// Looks for a faster loop within `target` (`loop` is) by disturbing it and refining what comes of that, so many times; deterministic.
// `steps`: as for `shrink`; `better`: if there, gets every loop that was the fastest when it was found, in turn.
std::vector<int> shake(const GraphIndex &, int64_t microbatch, std::vector<int> loop, int64_t target, int tries, int steps, uint64_t seed,
                       std::vector<std::vector<int>> *better = nullptr);

} // namespace cinch::solve
#endif
