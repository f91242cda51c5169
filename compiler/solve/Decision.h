// Decision.h: everything that is decided about a step, as plain data: which kernel runs when, on which copy of each
// buffer, at which bytes of the arena. The passes after the planner only apply it.
//
// Time is the number of the run: prologue [0, loopBegin), loop body [loopBegin, loopEnd), epilogue [loopEnd,
// runs.size()). The loop body stands once and is repeated `count` times. A kernel that runs twice in the body is
// recomputed: its second run writes new instances of its buffers. An instance is alive in [lower, upper). Instances
// that share bytes on purpose (in-place work) belong to one storage, which is what gets an offset.
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
};

struct Decision {
  int64_t microbatch = 1, count = 1; // microbatch * count = batch
  std::vector<Run> runs;
  int loopBegin = 0, loopEnd = 0;
  std::vector<Instance> instances;
  std::vector<Storage> storages;
  std::vector<int> zeroed;     // instances of accumulators to be zeroed right before the loop, each step
  int64_t persistentBytes = 0; // the first bytes of the arena, never freed
  int64_t arenaBytes = 0;
};

} // namespace cinch::solve
#endif
