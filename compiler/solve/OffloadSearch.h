// OffloadSearch.h: how much state lies on the host, together with micro-batch, recomputation and row blocks: the least predicted time under two
// budgets, the arena's and that of pinned memory.
//
// What lies on the host lowers the arena of every plan by the same bytes, since it stays there through the main loop, and its copies, behind the
// loop, cost the same whatever the loop does. So the ladder of the plain step says what each plan of the loop would need: it is priced with as
// much state on the host as makes it fit, and the best of these are searched with their copies in the graph. What is found is proved like any plan.
#ifndef CINCH_COMPILER_SOLVE_OFFLOADSEARCH_H
#define CINCH_COMPILER_SOLVE_OFFLOADSEARCH_H

#include "compiler/solve/Offload.h"
#include "compiler/solve/Variants.h"

#include <functional>

namespace cinch::solve {

struct OffloadAnswer {
  SearchResult result;  // feasible: a plan with state on the host that is faster than `plain`, or the first that fits
  RowBlocked rows;      // its graph; none: nothing is moved, and the result is `plain`
  Offload offload;
};

// `allowed`: as of movableState. `plain`: the variants of the step without copies, and what their search and their ladder have found. The arena has a budget.
OffloadAnswer searchOffload(const std::vector<Variant> &variants, const SearchResult &plain, const std::vector<LadderPoint> &ladder,
                            const SearchOptions &, int64_t hostBudget, const std::vector<bool> &allowed = {});

} // namespace cinch::solve
#endif
