// Decision.h: everything that is decided about a step, as plain data: which kernel runs when, on which copy of each
// buffer, at which bytes of the arena. The passes after the planner only apply it.
//
// Time is the number of the run. The body of a loop over the micro-batches stands once, as the runs [begin, end), and is repeated `count`
// times; the runs outside of loops run once. A kernel that runs twice in the body of the main loop is recomputed: its second run writes
// new instances of its buffers. An instance is alive in [lower, upper). Instances that share bytes on purpose (in-place work) belong to
// one storage, which is what gets an offset.
#ifndef CINCH_COMPILER_SOLVE_DECISION_H
#define CINCH_COMPILER_SOLVE_DECISION_H

#include <cstdint>
#include <vector>

namespace cinch::solve {

struct Instance {
  int buffer = -1;          // of the StepGraph; -1: scratch of run `run`
  int run = -1;             // the run that writes it; -1: persistent, or an accumulator (many runs write it)
  int64_t bytes = 0;        // of one copy, rounded up to 64
  int64_t copies = 1;       // micro-batch k has its copy at offset + (k mod copies) * bytes
  int lower = 0, upper = 0; // alive in runs [lower, upper)
  int storage = -1;
  int64_t offset = 0; // in the arena
};

struct Storage {
  int64_t bytes = 0;
  int lower = 0, upper = 0;
  int64_t offset = 0;
};

struct Run {
  int kernel = -1;
  std::vector<int> reads, writes; // instances, in the order of Kernel::reads and Kernel::writes
  int scratch = -1;               // instance, the scratch of all threads; -1: none
  bool recomputed = false;        // not the first run of this kernel in its section
  std::vector<int> zeroed;        // instances of accumulators that begin here, zeroed right before it
};

// A loop over the micro-batches.
struct LoopRuns {
  int begin = 0, end = 0;
  std::vector<int> zeroed; // instances of accumulators to be zeroed right before it, each step, but for those that begin with a run
};

struct Decision {
  int64_t microbatch = 1, count = 1; // microbatch * count = batch
  std::vector<Run> runs;
  std::vector<LoopRuns> loops; // in their order; the last is the main one
  // Of the main loop; without any loop, all runs come behind it.
  int loopBegin() const { return loops.empty() ? 0 : loops.back().begin; }
  int loopEnd() const { return loops.empty() ? 0 : loops.back().end; }
  std::vector<Instance> instances;
  std::vector<Storage> storages;
  int64_t persistentBytes = 0; // the first bytes of the arena, never freed
  int64_t arenaBytes = 0;
  int64_t hostBytes = 0; // of pinned memory, where buffers of Buffer::Host have their offsets
};

} // namespace cinch::solve
#endif
