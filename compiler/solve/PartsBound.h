// PartsBound.h: how little time can a worker of several take for a micro-batch, and in which parts of its loop body? With its cut, its list
// of actions, its micro-batch and its row blocks as they are, in any order of the loop, whatever is computed again.
#ifndef CINCH_COMPILER_SOLVE_PARTSBOUND_H
#define CINCH_COMPILER_SOLVE_PARTSBOUND_H

#include "compiler/solve/StepBound.h"

namespace cinch::solve {

// Work of a micro-batch that is done in one or several of the parts `first` .. `last`.
struct PartWork {
  double seconds = 0;
  int first = 0, last = 0;
};

struct PartsBound {
  std::vector<PartWork> work; // proven: a plan does all of it, every micro-batch
  double seconds = 0;         // its sum
  std::string fault;          // not empty: the plan that is known takes less, and one of the two is wrong
};

// Each kernel once, in the parts in which messages and sums leave it room; and what has to be repeated:
//   - At the border behind part p, what later parts read of parts 0 .. p waits in as many places as micro-batches are in flight, or is
//     computed again behind the border. These places are set aside through the whole loop, so that the neediest kernel of the body finds
//     its room beside them. The least that repetition costs is a minimum cut with a price on bytes.
//   - A value whose places leave too little room to some kernel cannot wait at a border. What reads it behind the border makes it run once
//     more there, and so does what it is made of, if that cannot wait either. The loop with these runs as kernels of their own is a graph
//     whose repetition the bounds of dag/ know.
//   - Where the parts take turns nothing waits, and the bounds of dag/ hold for the body as a whole.
// `known`: seconds of a micro-batch by a plan that fits the arena. No arena: nothing has to be repeated.
PartsBound partsBound(const StepGraph &, int64_t microbatch, std::optional<int64_t> arenaBytes, double known, const DagLimits & = {});

} // namespace cinch::solve
#endif
