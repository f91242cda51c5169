// TableBound.h: how early can a table of actions end, if of each worker only is known what work its micro-batches have, and in which parts?
#ifndef CINCH_COMPILER_SOLVE_STAGES_TABLEBOUND_H
#define CINCH_COMPILER_SOLVE_STAGES_TABLEBOUND_H

#include "compiler/solve/PartsBound.h"
#include "compiler/solve/stages/Channels.h"

namespace cinch::solve {

// Proven: with these actions, messages and boxes no run ends earlier, however the work (of each worker) is shared out among the parts in which
// it may be done. `seconds` of the problem do not count.
//
// A run's end is the longest of its chains of work and messages, so it is a maximum of sums of the parts' seconds. A mean of several chains
// ends no later than the longest of them; on a mean each piece of work goes where it stands least often, and that is the bound. Chains are
// found in turns: one of the longest for the work as it lies, then the work as it lies best for the mean of all chains so far.
double earliestEnd(const ChannelProblem &, const std::vector<int> &boxes, const std::vector<std::vector<PartWork>> &work);

} // namespace cinch::solve
#endif
