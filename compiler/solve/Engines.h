// Engines.h: when the kernels of a list and the copies between arena and host in it run, beside one another.
//
// Kernels run one after the other. A copy begins when all kernels before it have ended and its direction's engine is free; an Await holds up
// the kernels behind it until the copy has ended. A device does the same with three streams and events between them.
#ifndef CINCH_COMPILER_SOLVE_ENGINES_H
#define CINCH_COMPILER_SOLVE_ENGINES_H

#include "compiler/solve/StepGraph.h"

namespace cinch::solve {

struct EngineTimes {
  double end = 0;             // seconds, until kernels and copies have ended
  double kernels = 0;         // of the kernels alone
  double in = 0, out = 0;     // that the copies of a direction take
  int64_t bytes = 0;          // copied in one direction
  double waited() const { return end - kernels; } // that the copies are not hidden by work
};

// `kernels`: of the graph, in the order in which they run, once each.
EngineTimes runEngines(const StepGraph &, const std::vector<int> &kernels, int64_t microbatch);

} // namespace cinch::solve
#endif
