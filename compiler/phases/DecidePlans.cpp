// DecidePlans.cpp: the plans of all entries of one worker: training first, then what shares its arena.
#include "compiler/phases/Compile.h"
#include "compiler/solve/StepBound.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cinch {

bool Compilation::decide() {
  if (!decideEntries())
    return false;
  for (EntryPlan &entry : entries)
    if (func::FuncOp function = functionOf(entry))
      entry.persistentBytes = persistentBytes(function);
  return true;
}

bool Compilation::decideEntries() {
  if (refused)
    return true;
  solve::Strategy strategy;
  if (!solve::parseStrategy(options.remat, strategy, refusal)) {
    refused = true;
    return true;
  }
  std::vector<func::FuncOp> ways = waysToTrain(strategy);
  FormKernelsOptions forming;
  forming.joinsMore = options.target.isDevice();
  if (!runPasses([&](OpPassManager &functions) { functions.addPass(createFormKernels(forming)); }))
    return false;
  stateBytes = bytesOfState(nn::kTrainName);
  std::optional<int64_t> room; // for the arena
  if (options.budget)
    room = std::max<int64_t>(0, *options.budget - allowance());
  DecideOptions base;
  base.orderSeed = options.orderSeed;
  base.rowBlocks = options.rowBlocks;
  base.target = options.target;
  if (options.workers() > 1)
    return decideStages(base, strategy, std::move(ways));

  EntryPlan step{"train", nn::kTrainName.str(), {}, 0, 0};
  DecideOptions forTrain = base;
  forTrain.search.arenaBudget = options.leanestIn ? options.leanestIn : room;
  forTrain.search.microbatch = options.microbatch;
  forTrain.hostBudget = options.hostBudget;
  forTrain.hostAdvice = options.target.isDevice();
  forTrain.tradeOff = options.tradeOff;
  forTrain.planCache = options.planCache;
  forTrain.search.strategy = strategy;
  step.outcome = decideTraining(std::move(ways), forTrain);
  if (step.outcome.internal)
    return false;
  step.arenaBytes = step.outcome.result.plan.decision.arenaBytes;
  if (!step.outcome.result.error.empty()) {
    refusal = step.outcome.result.error;
    refused = true;
    return true;
  }
  if (options.leanestIn && room)
    step.outcome.result.feasible = step.arenaBytes <= *room;
  refused = !step.outcome.result.feasible;
  if (options.bound && !refused && !findBound(step.outcome, room))
    return false;
  int64_t chosen = step.outcome.result.plan.decision.microbatch;
  int64_t roomForOthers = refused ? step.outcome.result.smallestArena : step.arenaBytes;
  entries.push_back(std::move(step));
  const bool fits = !refused;
  if (!decideOthers(base, chosen, roomForOthers, room))
    return false;
  return !(fits && refused && options.hostBudget) || moveAllState(base, forTrain);
}

bool Compilation::findBound(const DecideOutcome &outcome, std::optional<int64_t> room) {
  const solve::Plan &plan = outcome.result.plan;
  if (outcome.valuesOnHost > 0) { // then what the budget has no room for need not be computed again
    fixedBound = outcome.result.secondsBound;
    return true;
  }
  solve::StepBound bound = solve::stepBound(outcome.rows.graph, plan.decision.microbatch, room, plan.seconds);
  if (!bound.fault.empty()) {
    emitError(UnknownLoc::get(&context)) << "internal error: the bound on the time: " << bound.fault;
    return false;
  }
  fixedBound = bound.seconds;
  return true;
}

// The micro-batches that evaluation or prediction may have, in the order in which they are tried: that of training and smaller ones, then larger ones,
// which may need fewer bytes (the scratch of a product does not always grow with its rows). Groups that only a metric compares may be larger than a
// micro-batch of training.
static std::vector<int64_t> sizesOfOthers(func::FuncOp function, int64_t batch, int64_t chosen) {
  const int64_t examples = nn::batchOf(function), least = nn::examplesTogether(function); // examples: 1, it reads none
  std::vector<int64_t> sizes = solve::divisors(batch);
  llvm::erase_if(sizes, [&](int64_t size) { return examples % size != 0 || size % least != 0; });
  auto larger = llvm::find_if(sizes, [&](int64_t size) { return size > chosen; });
  std::reverse(sizes.begin(), larger);
  return sizes;
}

// Evaluation and prediction share the arena: the first of these micro-batches that fits what training needs. If none does, the one that needs least, and
// then the arena, or the refusal, is its.
bool Compilation::decideOthers(const DecideOptions &base, int64_t chosen, int64_t roomForOthers, std::optional<int64_t> room) {
  for (auto [name, function] : {std::pair{"eval", nn::kEvaluationName}, std::pair{"predict", nn::kPredictionName}}) {
    auto func = module->lookupSymbol<func::FuncOp>(function);
    if (!func)
      continue;
    EntryPlan entry{name, function.str(), {}, 0, 0};
    DecideOptions forEntry = base, leanest = base;
    forEntry.search.strategy.kind = solve::Strategy::None;
    forEntry.reservedBytes = stateBytes - entries.front().outcome.stateOnHost;
    forEntry.callerCounts = true;
    forEntry.search.arenaBudget = roomForOthers;
    std::optional<int64_t> least; // bytes that one needs at least which does not fit
    bool fits = false;
    for (int64_t size : sizesOfOthers(func, program.batch, chosen)) {
      forEntry.search.microbatch = size;
      forEntry.rowBlocks = base.rowBlocks;
      entry.outcome = decidePlan(func, forEntry);
      if (!entry.outcome.internal && !entry.outcome.result.error.empty()) { // blocks of more examples than these
        forEntry.rowBlocks = -1;
        entry.outcome = decidePlan(func, forEntry);
      }
      if (entry.outcome.internal)
        return false;
      fits = entry.outcome.result.feasible;
      if (fits)
        break;
      if (int64_t bytes = entry.outcome.result.smallestArena; entry.outcome.result.error.empty() && bytes < least.value_or(INT64_MAX))
        leanest = forEntry, least = bytes;
    }
    if (!fits && least) {
      leanest.search.arenaBudget = least;
      entry.outcome = decidePlan(func, leanest);
      if (entry.outcome.internal)
        return false;
    }
    entry.arenaBytes = entry.outcome.result.plan.decision.arenaBytes;
    refused |= room && entry.arenaBytes > *room;
    entries.push_back(std::move(entry));
  }
  return true;
}

} // namespace cinch
