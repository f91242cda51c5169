// Sweeps.h: loops over the micro-batches that come before the one that is planned (the count by which a loss is divided, say).
//
// To the rest of the step such a loop is one kernel: its scratch holds what a trip needs, packed by the one `evaluate` and proved by the
// one plan checker on the graph of a trip. Nothing in it is recomputed, and what it sums up lies outside.
#ifndef CINCH_COMPILER_SOLVE_SWEEPS_H
#define CINCH_COMPILER_SOLVE_SWEEPS_H

#include "compiler/solve/Evaluate.h"

namespace cinch::solve {

// The work of one trip of a loop. To the loop's surroundings it is one kernel.
struct LoopBody {
  StepGraph trip;            // what is not local has no bytes
  std::vector<bool> local;   // of its buffers: they lie in the scratch
  Plan plan(int64_t microbatch) const { return evaluateQuickly(GraphIndex(trip), {microbatch, plainLoop(trip)}); }
};
// Proves the work of a trip right; empty if it is.
std::string checkTrip(const LoopBody &, int64_t microbatch);

struct SweepKernel : LoopBody {
  int kernel = -1;           // of the folded graph
  std::vector<int> kernels;  // of the graph before folding, in their order, as `trip` numbers them
  std::vector<int> buffers;  // of `trip` -> of the step
  std::vector<int> sums;     // buffers of the step that are cleared before the loop
};
struct FoldedStep {
  std::string error;
  StepGraph graph;            // buffers keep their numbers; those of a trip alone have no bytes
  std::vector<int> original;  // kernel of the folded graph -> before; -1: a sweep
  std::vector<SweepKernel> sweeps;
};

// `sweepOf`: of each kernel, the number of the early loop it belongs to; -1: none. Kernels of a loop stand together.
FoldedStep foldSweeps(const StepGraph &, const std::vector<int> &sweepOf);

} // namespace cinch::solve
#endif
