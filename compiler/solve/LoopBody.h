// LoopBody.h: what a kernel that is a loop does in one trip: over blocks of rows (RowBlocks.h), along an axis (analysis/KernelProblem.h).
//
// To its surroundings such a loop is one kernel (Kernel::body). Its scratch holds two places for each carried value that lies nowhere
// else, and behind them what a trip needs, packed by the one `evaluate` and proved by the one plan checker on the graph of a trip, in
// which kernels may be loops again. Nothing in it is recomputed. Operands lie where the surroundings have them.
#ifndef CINCH_COMPILER_SOLVE_LOOPBODY_H
#define CINCH_COMPILER_SOLVE_LOOPBODY_H

#include "compiler/solve/Evaluate.h"

#include <optional>

namespace cinch::solve {

struct LoopBody {
  StepGraph trip;            // what is not local has no bytes
  std::vector<bool> local;   // of its buffers: they lie in the scratch
  std::vector<Buffer> slots; // carried values that lie in the scratch: a trip reads the one place, writes the other, and the next trip vice versa
  std::optional<Plan> packed; // of a trip that is the same under every micro-batch

  Plan plan(int64_t microbatch) const {
    return packed ? *packed : evaluateQuickly(GraphIndex(trip), {microbatch, plainLoop(trip)});
  }
  int64_t slotBytes(int64_t microbatch) const {
    int64_t bytes = 0;
    for (const Buffer &slot : slots)
      bytes += 2 * slot.bytes(microbatch);
    return bytes;
  }
  // Of all threads; a kernel's scratch is counted a thread, in whole cache lines.
  int64_t scratchBytes(int64_t microbatch) const { return slotBytes(microbatch) + plan(microbatch).decision.arenaBytes; }
  int64_t scratchBytesPerThread(int64_t microbatch) const {
    int64_t unit = int64_t(64) * trip.threads;
    return (scratchBytes(microbatch) + unit - 1) / unit * 64;
  }
};

} // namespace cinch::solve
#endif
