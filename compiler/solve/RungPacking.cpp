// RungPacking.cpp: how many bytes of the arena a rung takes.
//
// Packing well takes a second where many values lie in little room, and a search asks it of dozens of rungs. So a rung is packed quickly first, then
// with more work, and well only where that may serve. What serves depends on the bytes that are asked for, but whether a rung fits into them depends
// on nothing else: it never fits into some bytes and not into more.
#include "compiler/solve/Search.h"

#include <algorithm>

namespace cinch::solve {

static constexpr int64_t kShare = 8; // of the work of packing well: packed longer
// Packed well, a rung counts as wasting at least this part of what it wastes packed longer. Nearly all rungs of a U-Net waste so much anyway.
static constexpr int64_t kLeastWaste = 4;

const Plan &Planner::packed(int rung) {
  Rung &r = rungs[size_t(rung)];
  if (!r.plan) {
    r.plan = std::make_shared<Plan>(evaluateQuickly(index, {r.microbatch, r.loop}));
    r.packings.quick = r.plan->decision.arenaBytes;
    if (isPackedWell(graph, *r.plan))
      r.packings.longer = r.packings.well = r.packings.quick;
  }
  return *r.plan;
}

// With more and more work, until it is at most `wanted`. INT64_MAX: it cannot be packed.
int64_t Planner::bytesOf(int rung, int64_t wanted) {
  if (!packed(rung).error.empty())
    return INT64_MAX;
  Rung &r = rungs[size_t(rung)];
  auto pack = [&](int64_t share) {
    ArenaLimits limits;
    limits.work /= share;
    Plan plan = evaluate(index, {r.microbatch, r.loop}, limits);
    int64_t bytes = plan.error.empty() ? plan.decision.arenaBytes : INT64_MAX;
    if (bytes < r.plan->decision.arenaBytes)
      *r.plan = std::move(plan);
    return bytes;
  };
  Packings &p = r.packings;
  if (p.quick <= wanted)
    return p.quick;
  if (!p.longer)
    p.longer = std::min(p.quick, pack(kShare));
  int64_t least = r.peakLive + (p.longer - r.peakLive) / kLeastWaste;
  if (p.longer <= wanted || (wanted != kAsFewAsPossible && least > wanted))
    return p.longer;
  if (!p.well)
    p.well = std::min(p.longer, std::max(least, pack(1)));
  return p.well;
}

} // namespace cinch::solve
