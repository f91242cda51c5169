// StepBound.h: how fast can any plan of a step be that uses this micro-batch and these blocks of rows, in an arena of so many
// bytes? In any order of the loop, whatever is computed again. Planning asks quicker bounds (Planner::secondsBound); this one
// takes seconds and shows what is left to gain.
#ifndef CINCH_COMPILER_SOLVE_STEPBOUND_H
#define CINCH_COMPILER_SOLVE_STEPBOUND_H

#include "compiler/solve/StepGraph.h"
#include "compiler/solve/dag/Dag.h"

#include <optional>

namespace cinch::solve {

struct GraphIndex;

// The loop as a graph for the bounds of dag/, and what of the arena its values may take. Its schedules that fit cost no more than
// those of the loop:
//   - A node is a value. What a kernel of several values costs is shared out among them by their bytes. Run one after the other in
//     its place they need no more than it does: the first one all the bytes that the kernel writes, the others their own.
//   - A kernel without values of its own (a sum over the examples) is a node of no bytes.
//   - Scratch counts while a node is computed, and bytes that it may take over from a value that dies there do not (Node::working).
//   - What lives through the whole loop is taken off the arena: persistent buffers, sums, values made before it that it or anything behind it reads.
struct LoopDag {
  Dag dag;
  int64_t room = 0;
};
LoopDag loopDag(const StepGraph &, int64_t microbatch, int64_t arenaBytes);

// The most bytes that what a kernel writes may take over from what it reads.
int64_t takenOver(const GraphIndex &, const Kernel &, int64_t microbatch);

// These limits with what does not matter of a trip that is predicted to take so long (DagLimits::near).
DagLimits nearTo(double seconds, DagLimits);

struct StepBound {
  double seconds = 0;  // proven: no plan is predicted faster
  std::string fault;   // not empty: the plan that is known is faster, and one of the two is wrong
};
// `known`: seconds of a plan that fits; what is proven beyond it is of no use. No arena: nothing has to be computed again.
StepBound stepBound(const StepGraph &, int64_t microbatch, std::optional<int64_t> arenaBytes, double known, const DagLimits & = {});

} // namespace cinch::solve
#endif
