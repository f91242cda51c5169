// Held.h: the bytes that a worker's plan holds while its table of actions is run. A plan sets places aside for as many micro-batches as are
// ever in flight; how many of them are taken changes from action to action.
#ifndef CINCH_COMPILER_SOLVE_STAGES_HELD_H
#define CINCH_COMPILER_SOLVE_STAGES_HELD_H

#include "compiler/solve/Explain.h"

namespace cinch::solve {

using ClassBytes = std::array<int64_t, kMemoryClasses>; // of each MemoryClass
struct HeldBytes {
  ClassBytes before{}, behind{}; // where most is held before and behind the loop
  struct Action {
    ClassBytes during{}, after{}; // where the action holds most; when the next one has not begun
  };
  std::vector<Action> actions; // as StepGraph::actions
};
// The graph must have actions, and the decision must be for it.
HeldBytes heldBytes(const StepGraph &, const Decision &);

} // namespace cinch::solve
#endif
