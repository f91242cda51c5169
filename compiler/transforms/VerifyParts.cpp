// VerifyParts.cpp: what follows from the order in which a worker runs the parts of a loop body.
#include "compiler/transforms/ScheduleLives.h"

using namespace mlir;

namespace cinch {

// A part of the loop body, run for one micro-batch.
struct Action {
  int64_t part = 0, microbatch = 0;
};
static SmallVector<Action> actionsOf(plan::LoopOp loop) {
  SmallVector<Action> list;
  ArrayRef<int64_t> pairs = *loop.getActions();
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    list.push_back({pairs[i], pairs[i + 1]});
  return list;
}

bool overlaps(plan::LoopOp loop) {
  return loop.getActions() && !loop.getLags() && llvm::any_of(actionsOf(loop), [&](const Action &action) {
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
  Action first; // of the turn
  for (const Action &action : actionsOf(loop)) {
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
  for (const Action &action : actionsOf(loop))
    first = action.part == part ? std::min(first, action.microbatch) : first;
  return first;
}

bool alwaysBehind(plan::LoopOp loop, int from, int to) {
  if (auto lags = loop.getLags())
    return (*lags)[to] >= (*lags)[from];
  int64_t done = firstOf(loop, from); // the first micro-batch that part `from` has not run
  for (const Action &action : actionsOf(loop)) {
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
  for (const Action &action : actionsOf(loop)) {
    begun += action.part == from;
    most = std::max(most, begun);
    begun -= action.part == to;
  }
  return most;
}

} // namespace cinch
