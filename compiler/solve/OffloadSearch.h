// OffloadSearch.h: what lies on the host, state and values of the main loop, together with micro-batch, recomputation and row blocks: the least
// predicted time under two budgets, the arena's and that of pinned memory.
//
// State on the host lowers the arena of every plan by the same bytes, since it stays there through the main loop, and its copies, behind the
// loop, cost the same whatever the loop does. So the ladder of the plain step says what each plan of the loop would need: it is priced with as
// much state on the host as makes it fit, and the best of these are searched with their copies in the graph. Values of the loop come on top
// (SwapPlans.h). What is found is proved like any plan.
#ifndef CINCH_COMPILER_SOLVE_OFFLOADSEARCH_H
#define CINCH_COMPILER_SOLVE_OFFLOADSEARCH_H

#include "compiler/solve/Swap.h"
#include "compiler/solve/Variants.h"

#include <functional>

namespace cinch::solve {

struct OffloadAnswer {
  SearchResult result;  // feasible: a plan with something on the host that is faster than `plain`, or the first that fits
  RowBlocked rows;      // its graph; none: nothing is moved, and the result is `plain`
  Offload offload;
  std::vector<Swap> swaps;
};

// Of buffers: whether they may leave the device. Empty: all.
struct MayLeave {
  std::vector<bool> state, values; // as of movableState, of SwapSearch
  bool allState = false;           // all state that may leave does, whatever is fastest
};

// `plain`: the variants of the step without copies, and what their search and their ladder have found. The arena has a budget.
OffloadAnswer searchOffload(const std::vector<Variant> &variants, const SearchResult &plain, const std::vector<LadderSchedule> &ladder,
                            const SearchOptions &, int64_t hostBudget, const MayLeave & = {});

} // namespace cinch::solve
#endif
