// HostMemory.cpp: pinned memory of the host beside a device, and the entries of a program that share it.
#include "compiler/phases/Compile.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {

int64_t Compilation::hostAt() const {
  return llvm::alignTo(arenaBytes(), solve::kPage);
}

int64_t Compilation::hostBytes() const {
  if (!workers.each.empty()) { // with what fills up pages between them
    bool any = llvm::any_of(workers.each, [](const WorkersPlan::Worker &worker) { return worker.hostBytes > 0; });
    return any ? workers.each.back().hostAt + workers.each.back().hostBytes - hostAt() : 0;
  }
  return entries.empty() ? 0 : entries.front().outcome.result.plan.decision.hostBytes;
}

// Evaluation and prediction hold all state that training leaves on the device. Where values of the loop are on the host instead of state, training may
// fit and they may not. Then training is planned anew with all state on the host that may lie there.
bool Compilation::moveAllState(const DecideOptions &base, DecideOptions forTrain) {
  forTrain.allStateOnHost = true;
  EntryPlan step{"train", nn::kTrainName.str(), {}, 0, 0};
  step.outcome = decidePlan(module->lookupSymbol<func::FuncOp>(nn::kTrainName), forTrain);
  const solve::SearchResult &result = step.outcome.result;
  if (step.outcome.internal || !result.error.empty() || !result.feasible || step.outcome.stateOnHost <= entries.front().outcome.stateOnHost)
    return !step.outcome.internal;
  step.arenaBytes = result.plan.decision.arenaBytes;
  const int64_t chosen = result.plan.decision.microbatch, room = step.arenaBytes;
  entries.clear();
  entries.push_back(std::move(step));
  refused = false;
  return decideOthers(base, chosen, room, forTrain.search.arenaBudget);
}

} // namespace cinch
