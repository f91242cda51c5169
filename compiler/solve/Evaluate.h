// Evaluate.h: the one pure function that says what a choice costs: kernels in their order, copies of the buffers,
// offsets, peak and predicted time. The search minimises what this returns and the passes apply exactly that.
#ifndef CINCH_COMPILER_SOLVE_EVALUATE_H
#define CINCH_COMPILER_SOLVE_EVALUATE_H

#include "compiler/solve/Decision.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/Timeline.h"

namespace cinch::solve {

// What a planner may choose.
struct Choice {
  int64_t microbatch = 1;
  std::vector<int> loop; // kernels of the main loop in the order they run; one that stands again is recomputed
};

struct Plan {
  std::string error; // not empty: the choice is no plan, and says why
  Decision decision;
  int64_t peakLive = 0; // most bytes alive at one run: no packing of this order can be smaller
  int peakRun = 0;
  double seconds = 0;          // predicted for a whole step of `batch` examples
  double recomputeSeconds = 0; // part of it spent on running kernels again
  int recomputed = 0;          // runs in the loop body beyond the first of each kernel
};

Plan evaluate(const GraphIndex &, const Choice &, const ArenaLimits & = {});
Plan evaluate(const StepGraph &, const Choice &, const ArenaLimits & = {});
// Packed quickly, good enough to choose by; packed as what is shipped is, with more work where holes cost bytes.
Plan evaluateQuickly(const GraphIndex &, const Choice &);
Plan evaluateWell(const GraphIndex &, const Choice &);
// Within a two-thousandth of what is alive, or within a page: more work would give nothing.
bool isPackedWell(const StepGraph &, int64_t arenaBytes, int64_t peakLive);
bool isPackedWell(const StepGraph &, const Plan &);

// The main loop as the graph lists it: nothing recomputed.
std::vector<int> plainLoop(const StepGraph &);
// Of a positive number, ascending.
std::vector<int64_t> divisors(int64_t);
// Micro-batches to consider, ascending: divisors of the batch that are multiples of the grain.
std::vector<int64_t> microbatches(const StepGraph &);

// A live buffer at a moment, for people.
struct LiveBuffer {
  std::string name;
  int line = 0;
  int64_t bytes = 0;
  bool recomputed = false;
};
// What is alive during run `run` of a plan, largest first.
std::vector<LiveBuffer> alive(const StepGraph &, const Plan &, int run);

} // namespace cinch::solve
#endif
