// WaysToTrain.cpp: the steps that training may be planned as, and the best of their plans.
#include "compiler/analysis/Cost.h"
#include "compiler/phases/Compile.h"
#include "compiler/transforms/CutLoops.h"
#include "compiler/transforms/CutUpdates.h"
#include "compiler/transforms/HoldSums.h"
#include "compiler/transforms/NarrowWeights.h"
#include "compiler/transforms/PackWeights.h"
#include "compiler/transforms/PlanProblem.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cinch {

static constexpr llvm::StringLiteral kWithoutCopies = "_without_copies";

// What loops along an axis keep for their backward loops: every trip, states before runs of trips, before runs of runs. And of replicas that
// have several grains, what waits for the replica before: the operands of gradients, or the grains' sums. And large updates whole, or in runs of
// rows that replicas share. Each is a step of its own to the planner. On a GPU all of them have copies of weights, and so they have on a CPU for
// products in loops along an axis. Behind them come those without, for budgets that have little room for the copies.
std::vector<func::FuncOp> Compilation::waysToTrain(const solve::Strategy &strategy) {
  std::vector<func::FuncOp> ways{module->lookupSymbol<func::FuncOp>(nn::kTrainName)};
  bool free = strategy.kind == solve::Strategy::Auto || strategy.kind == solve::Strategy::Optimal;
  for (int levels : {1, 2}) {
    if (!free || ways.front().getOps<nn::ScanOp>().empty())
      break;
    auto copy = cast<func::FuncOp>(ways.front()->clone());
    copy.setName((nn::kTrainName + "_in_runs_" + Twine(levels)).str());
    module->push_back(copy);
    if (cutLoops(copy, levels))
      ways.push_back(copy);
    else
      copy.erase();
  }
  int64_t grain = nn::grainOf(func::FuncOp(ways.front()));
  // On a GPU another kernel may serve a product of grains, with other bits.
  if (free && options.replicas > 1 && !options.target.isDevice() && grain > 0 && program.batch / options.replicas > grain) {
    auto copy = cast<func::FuncOp>(ways.front()->clone());
    copy.setName((nn::kTrainName + "_held").str());
    module->push_back(copy);
    if (holdSums(copy))
      ways.push_back(copy);
    else
      copy.erase();
  }
  bool shareUpdates = program.train.combine == Combine::Exact || program.train.combine == Combine::Reduce;
  if (options.replicas > 1 && options.shards == 1 && shareUpdates) {
    auto copy = cast<func::FuncOp>(ways.front()->clone());
    copy.setName((nn::kTrainName + "_rows").str());
    module->push_back(copy);
    if (cutUpdates(copy, options.replicas * options.stages)) {
      ways.push_back(copy);
      countOperations(copy.getName()); // it has most
    } else {
      copy.erase();
    }
  }
  const bool hasCopies = options.target.isDevice() || !ways.front().getOps<nn::ScanOp>().empty();
  for (size_t i = 0, count = ways.size(); hasCopies && i < count; ++i) {
    auto plain = cast<func::FuncOp>(ways[i]->clone());
    plain.setName((ways[i].getName() + kWithoutCopies).str());
    if (options.target.isDevice() ? narrowWeights(ways[i]) : packWeights(ways[i], options.target.cpu.kernels.amx)) {
      module->push_back(plain);
      ways.push_back(plain);
    } else {
      plain.erase();
    }
  }
  return ways;
}

bool Compilation::lacksCopies(func::FuncOp way) { return way.getName().ends_with(kWithoutCopies); }

// The way that has copies where this one has none; itself, if it has them.
static size_t withCopies(ArrayRef<func::FuncOp> ways, size_t way) {
  StringRef name = func::FuncOp(ways[way]).getName();
  if (!name.consume_back(kWithoutCopies))
    return way;
  return size_t(llvm::find_if(ways, [&](func::FuncOp other) { return other.getName() == name; }) - ways.begin());
}

int Compilation::levelsOf(ArrayRef<func::FuncOp> ways, size_t way) { return int(withCopies(ways, way)); }

// The ladders of several steps together: the plans that no other beats.
static void join(std::vector<solve::LadderPoint> &ladder, const std::vector<solve::LadderPoint> &other) {
  ladder.insert(ladder.end(), other.begin(), other.end());
  llvm::stable_sort(ladder, [](const solve::LadderPoint &a, const solve::LadderPoint &b) {
    return std::tie(a.arenaBytes, a.seconds) < std::tie(b.arenaBytes, b.seconds);
  });
  std::vector<solve::LadderPoint> kept;
  for (const solve::LadderPoint &point : ladder)
    if (kept.empty() || point.seconds < kept.back().seconds)
      kept.push_back(point);
  ladder = std::move(kept);
}

// Prices a step without copies of weights. That products round what they read takes registers and instructions which the price of a product does not
// count, so that it may say that copies are worth nothing. On an H200 and on CPUs steps with them were quicker: without a limit of memory, a step without them
// is priced no lower than the one with them. What a profile prints of its kernels is priced likewise.
void Compilation::makeDearerWithoutCopies(ArrayRef<func::FuncOp> ways, size_t way, const DecideOptions &wanted) {
  if (!lacksCopies(ways[way]))
    return;
  func::FuncOp function = ways[way];
  const double with = PlanProblem(ways[withCopies(ways, way)], wanted).leastSeconds(), without = PlanProblem(function, wanted).leastSeconds();
  if (without > 0 && with > without)
    function->setAttr(analysis::kDearerAttr, OpBuilder(function).getF64FloatAttr(with / without));
}

static constexpr double kAlike = 1 - 1e-9; // steps that are priced alike differ by roundings

DecideOutcome Compilation::decideTraining(std::vector<func::FuncOp> ways, const DecideOptions &wanted) {
  DecideOutcome best = decidePlan(ways.front(), wanted);
  size_t chosen = 0;
  for (size_t i = 1; i < ways.size() && !best.internal && best.result.error.empty(); ++i) {
    makeDearerWithoutCopies(ways, i, wanted);
    PlanProblem problem(ways[i], wanted);
    if (best.result.feasible && !wanted.tradeOff && problem.leastSeconds() >= best.result.plan.seconds) {
      best.result.bound = std::min(best.result.bound, problem.bound()); // what is said of any plan counts this way, too
      continue;
    }
    DecideOutcome other = problem.decide();
    if (other.internal)
      return other;
    bool better = other.result.feasible != best.result.feasible ? other.result.feasible
                  : best.result.feasible                        ? other.result.plan.seconds < best.result.plan.seconds * kAlike
                                                                : other.result.smallestArena < best.result.smallestArena;
    if (!other.result.error.empty())
      continue;
    if (better)
      std::swap(best, other), chosen = i;
    best.result.smallestArena = std::min(best.result.smallestArena, other.result.smallestArena);
    best.result.bound = std::min(best.result.bound, other.result.bound);
    best.result.secondsBound = std::min(best.result.secondsBound, other.result.secondsBound);
    join(best.tradeOff, other.tradeOff);
  }
  loopLevels = levelsOf(ways, chosen);
  for (size_t i = 0; i < ways.size(); ++i)
    if (i != chosen)
      ways[i].erase();
  ways[chosen].setName(nn::kTrainName);
  return best;
}

} // namespace cinch
