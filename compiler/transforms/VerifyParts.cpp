// VerifyParts.cpp: what follows from the order in which a worker runs the parts of a loop body.
#include "compiler/transforms/ScheduleLives.h"

using namespace mlir;

namespace cinch {

bool overlaps(plan::LoopOp loop) {
  return loop.getActions() && !loop.getLags() && llvm::any_of(loop.getActionsAttr().getList(), [&](const plan::Action &action) {
           return action.microbatch >= int64_t(loop.getCount());
         });
}

bool inTurns(plan::LoopOp loop) {
  if (auto lags = loop.getLags())
    return lags->back() == 0;
  if (!loop.getActions())
    return true;
  auto marks = loop.block().getOps<plan::PartOp>();
  int64_t parts = 1 + std::distance(marks.begin(), marks.end()), turn = 0;
  plan::Action first; // of the turn
  for (const plan::Action &action : loop.getActionsAttr().getList()) {
    first = turn == 0 ? action : first;
    if (action.part != turn || action.microbatch != first.microbatch)
      return false;
    turn = (turn + 1) % parts;
  }
  return true;
}

// What is before it was done with the step before.
static int64_t firstOf(plan::LoopOp loop, int part) {
  int64_t first = INT64_MAX;
  for (const plan::Action &action : loop.getActionsAttr().getList())
    first = action.part == part ? std::min(first, action.microbatch) : first;
  return first;
}

bool alwaysBehind(plan::LoopOp loop, int from, int to) {
  if (auto lags = loop.getLags())
    return (*lags)[to] >= (*lags)[from];
  int64_t done = firstOf(loop, from); // the first micro-batch that part `from` has not run
  for (const plan::Action &action : loop.getActionsAttr().getList()) {
    done += action.part == from;
    if (action.part == to && action.microbatch >= done)
      return false;
  }
  return true;
}

int64_t mostWaiting(plan::LoopOp loop, int from, int to) {
  if (auto lags = loop.getLags())
    return (*lags)[to] - (*lags)[from] + 1;
  int64_t begun = firstOf(loop, from) - firstOf(loop, to), most = begun;
  for (const plan::Action &action : loop.getActionsAttr().getList()) {
    begun += action.part == from;
    most = std::max(most, begun);
    begun -= action.part == to;
  }
  return most;
}

} // namespace cinch
