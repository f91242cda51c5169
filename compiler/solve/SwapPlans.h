// SwapPlans.h: plans in which values of the main loop wait on the host, together with micro-batch, recomputation, row blocks and state there.
//
// The ladder of the plain step holds schedules from the one that computes nothing again to the smallest. Each is priced with as many values on the
// host as it needs beside that (SwapSearch), so what is cheap to compute again is computed again, and what is dear and idle for long leaves. Each
// is tried with no state on the host and with some. The fastest that can be packed counts.
#ifndef CINCH_COMPILER_SOLVE_SWAPPLANS_H
#define CINCH_COMPILER_SOLVE_SWAPPLANS_H

#include "compiler/solve/OffloadSearch.h"

namespace cinch::solve {

// `answer` is changed if a plan is faster, or the first that fits. `states`: to be tried, in terms of the first variant.
void searchSwaps(const std::vector<Variant> &, const std::vector<LadderSchedule> &, const SearchOptions &, int64_t hostBudget, const MayLeave &,
                 const std::vector<Offload> &states, OffloadAnswer &answer);
// Where nothing fits: `answer` is changed if a plan needs a smaller arena. What is looked at does not depend on the arena's budget, so that what is named
// here is found when it is asked for.
void searchSmallestSwaps(const std::vector<Variant> &, const SearchOptions &, int64_t hostBudget, const MayLeave &, const std::vector<Offload> &states,
                         OffloadAnswer &answer);

} // namespace cinch::solve
#endif
