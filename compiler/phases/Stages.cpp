// Stages.cpp: decides how several workers share a program: where the model is cut, the micro-batch, and what each worker keeps.
//
// For each micro-batch, `solve` for stage splits proposes the cut from the kernels' seconds and bytes. The step is divided there, each
// worker's part is planned by the one planner, with as many micro-batches in flight as the schedule's table has, and what is chosen is the
// micro-batch with which the table ends first when it is run with the plans' seconds.
//
// Replicas run the same table on their own examples. A replica's sums wait for those of the one before; its gradients of parameters may
// wait while later micro-batches go on, for which their operands are kept. How many, is tried from all of them down to none. Or the sums of
// its grains wait, which is another step to plan (HoldSums.h).
//
// What provably needs too much is not planned: so a refusal takes little more than a plan.
#include "compiler/phases/StagePlanner.h"

#include "dialects/nn/Grain.h"
#include "dialects/nn/Held.h"
#include "dialects/nn/Pieces.h"
#include "dialects/nn/TensorCores.h"

#include <numeric>
#include <set>

using namespace mlir;

namespace cinch {

bool StagePlanner::prepare() {
  if (!problem.error.empty())
    return internal(problem.error);
  c.workers.count = workers(), c.workers.replicas = options.replicas, c.workers.shards = options.shards;
  c.workers.transportReserve = options.transportReserve;
  c.workers.bound = boundOfAnyCut();
  sizes = sizesToTry();
  if (!c.refused && !readHints())
    return false;
  if (!c.refused && options.onlyFits && room && c.workers.bound > *room)
    c.refused = true;
  return true;
}

bool StagePlanner::search(bool least, double fastest) {
  rival = fastest;
  // What fits is sought from the fastest on, what needs least from the smallest: so the bounds rule most of the others out.
  std::vector<int64_t> order = sizes;
  if (!least && !options.onlyFits)
    std::reverse(order.begin(), order.end());
  for (int64_t microbatch : order)
    if (!c.refused && !(options.onlyFits && best) && !tryMicrobatch(microbatch, least))
      return false;
  return c.refused || deepen();
}

void StagePlanner::refuseAll() {
  if (options.onlyFits && hasCut) {
    c.refused = true;
    return;
  }
  if (c.workers.smallest == INT64_MAX) {
    refuse("no cut of the model into " + std::to_string(stages()) + " stages was found");
    return;
  }
  c.refused = true;
  c.entries.push_back({"train", nn::kTrainName.str(), std::move(neediest), 0, 0});
}

std::vector<int64_t> StagePlanner::sizesToTry() {
  for (const std::string &wrong : {wrongStages(), wrongReplicas(), wrongOwnSteps(), overlaps() ? wrongOverlap() : std::string()})
    if (!wrong.empty()) {
      refuse(wrong);
      return {};
    }
  std::vector<int64_t> sizes = mayCutGrain() ? sizesInGrain() : solve::microbatches(problem.graph);
  llvm::erase_if(sizes, [&](int64_t size) { return examples() % size != 0; });
  if (options.microbatch > 0) {
    if (!llvm::is_contained(sizes, options.microbatch)) {
      refuse(wrongMicrobatch(sizes));
      return {};
    }
    sizes = {options.microbatch};
  } else if (options.schedule == solve::Schedule::Naive) { // one micro-batch, by definition
    sizes = {examples()};
  } else if (options.rowBlocks > 0) {
    sizes = sizesOfBlocks(std::move(sizes));
  }
  return c.refused ? sizes : sizesWithTable(std::move(sizes));
}

solve::ScheduleRequest StagePlanner::requestOf(int64_t microbatches) const {
  solve::ScheduleRequest request;
  request.schedule = options.schedule;
  request.workers = options.stages, request.chunks = options.chunks;
  request.microbatches = int(microbatches);
  return request;
}

// A schedule may need many micro-batches: if there is none, the smallest ones are the nearest to it.
std::vector<int64_t> StagePlanner::sizesWithTable(std::vector<int64_t> sizes) {
  std::string wrong = solve::check(requestOf(examples() / sizes.front()));
  if (!wrong.empty() && options.microbatch <= 0 && sizes.front() > 1)
    wrong += llvm::formatv("; no micro-batch has fewer than {0} examples{1}", sizes.front(), whatKeepsTogether());
  llvm::erase_if(sizes, [&](int64_t size) { return !solve::check(requestOf(examples() / size)).empty(); });
  if (sizes.empty())
    refuse(wrong);
  return sizes;
}

std::vector<int64_t> StagePlanner::sizesOfBlocks(std::vector<int64_t> sizes) {
  std::string error;
  std::vector<solve::Variant> variants = planVariants(step, problem, base, error);
  if (!error.empty()) {
    refuse(error);
    return {};
  }
  int64_t together = variants.front().rows.block.examples;
  llvm::erase_if(sizes, [&](int64_t size) { return size % together != 0; });
  if (sizes.empty())
    refuse(llvm::formatv("a block of {0} rows holds {1} examples, of which the {2} of a replica are no multiple; expected smaller blocks, or another number "
                         "of replicas",
                         options.rowBlocks, together, examples()));
  return sizes;
}

bool StagePlanner::holdsSums() const { return func::FuncOp(train)->hasAttr(nn::kHeldAttr); }

bool StagePlanner::onlyAdds() const {
  WalkResult others = func::FuncOp(train).walk([](nn::ReduceOp reduce) {
    bool plain = reduce.getReduction() == nn::Reduction::Sum || nn::batchAxis(reduce.getX().getType()) < 0 ||
                 nn::batchAxis(reduce.getResult().getType()) >= 0;
    return plain ? WalkResult::advance() : WalkResult::interrupt();
  });
  return !others.wasInterrupted();
}

bool StagePlanner::isOneGrain() const { return options.replicas > 1 && nn::grainOf(func::FuncOp(train)) == examples() && onlyAdds(); }

// Products of bf16 and of tf32 sum blocks along a grain, over the border of two examples: micro-batches cut no grain then.
bool StagePlanner::sumsPairs() const { return nn::sumsBlocks(func::FuncOp(train)); }

// On a GPU another kernel may serve a product of one grain than that of a batch, with other bits: there exact sums go on from one replica to the next.
bool StagePlanner::mayAddSums() const {
  return options.replicas > 1 && (c.program.train.combine == Combine::Reduce || (!options.target.isDevice() && isOneGrain()));
}

bool StagePlanner::mayCutGrain() const {
  bool hasOwnSums = mayAddSums() || ownSteps() != OwnSteps::None;
  return hasOwnSums && isOneGrain() && !sumsPairs();
}

OwnSteps StagePlanner::ownSteps() const {
  switch (c.program.train.combine) {
  case Combine::Exact:
  case Combine::Reduce:
    break;
  case Combine::RingAverage:
    return OwnSteps::RingAverage;
  case Combine::Async:
    return OwnSteps::Async;
  case Combine::Hogwild:
    return OwnSteps::Hogwild;
  }
  return OwnSteps::None;
}

std::vector<int64_t> StagePlanner::sizesInGrain() const {
  int64_t groups = nn::examplesOfGroups(func::FuncOp(train));
  std::vector<int64_t> sizes;
  for (int64_t size : solve::divisors(examples()))
    if (size % groups == 0)
      sizes.push_back(size);
  return sizes;
}

bool StagePlanner::readHints() {
  StageHints hints = stageHints(step, homes, stages());
  forced = hints.forced;
  return hints.wrong.empty() || refuse(hints.wrong);
}

// What lives through the main loop: sums that only loops before it need may follow each other in the same bytes.
int64_t StagePlanner::boundOfAnyCut() const {
  const solve::GraphIndex index(problem.graph);
  int64_t bytes = 0;
  for (auto [number, buffer] : llvm::enumerate(problem.graph.buffers))
    if (buffer.perExampleBytes == 0 && ((buffer.kind == solve::Buffer::Accumulator && index.livesThroughLoop(int(number), 1)) ||
                                        (buffer.kind == solve::Buffer::Persistent && buffer.producer < 0)))
      bytes += buffer.fixedBytes;
  if (options.hostBudget) // all state may lie there
    return std::max<int64_t>(0, bytes - c.bytesOfState(func::FuncOp(train).getName())) / workersOfReplica();
  // What lies once may be shared by the replicas.
  int64_t once = mayHandOut() ? bytesOnce() : 0;
  return (bytes - once + once / options.replicas) / workersOfReplica();
}

int64_t StagePlanner::bytesOnce() const {
  int64_t bytes = 0;
  func::FuncOp function = train;
  for (BlockArgument argument : function.getArguments())
    if (homes.liesOnce(argument))
      bytes += problem.graph.buffers[size_t(problem.buffer.lookup(argument))].fixedBytes;
  return bytes;
}

bool StagePlanner::updatesMatter(const Candidate &candidate) const {
  double behind = 0;
  for (const PlanSeconds &seconds : candidate.seconds)
    behind = std::max(behind, seconds.behind);
  return behind * (options.replicas - 1) / options.replicas > 0.01 * candidate.makespan;
}

bool StagePlanner::tableOf(int64_t microbatch, solve::ScheduleTable &table) {
  solve::ScheduleRequest several = requestOf(examples() / microbatch);
  several.steps = overlaps() ? 3 : 1;
  table = solve::generate(several);
  if (std::string wrong = solve::verify(table); !wrong.empty())
    return internal("the schedule's table: " + wrong);
  if (overlaps())
    table = steadyStep(table);
  return true;
}

bool StagePlanner::tryMicrobatch(int64_t microbatch, bool least) {
  solve::ScheduleTable table;
  if (!tableOf(microbatch, table))
    return false;
  bool fits = false, fitsHanded = false;
  if (func::FuncOp(train)->hasAttr(nn::kRowsAttr)) // updates that are cut for nothing else
    return tryCuts(table, microbatch, true, least, fitsHanded);
  if (!tryCuts(table, microbatch, false, least, fits))
    return false;
  if (c.refused || !mayHandOut() || (fits && !least && !lacksRoom && !updatesMatter(*best)))
    return true;
  return tryCuts(table, microbatch, true, least, fitsHanded);
}

bool StagePlanner::tryCuts(const solve::ScheduleTable &table, int64_t microbatch, bool handsOut, bool least, bool &fits) {
  std::vector<int> stageOf;
  AskedCut asked{handsOut, false, least, forced};
  if (!tryCut(table, microbatch, asked, least, stageOf, fits))
    return false;
  bool fitsToo = false;
  if (asked.stateLeaves = true; options.hostBudget && room && !c.refused && !tryCut(table, microbatch, asked, least, stageOf, fitsToo))
    return false;
  fits |= fitsToo;
  // What a cut needs is guessed from its kernels. Where room is short, the one that needs least may leave the plans more of it.
  asked.stateLeaves = false, asked.leastNeeded = true;
  if (!least && room && lacksRoom && !options.onlyFits && !c.refused && !tryCut(table, microbatch, asked, false, stageOf, fitsToo))
    return false;
  fits |= fitsToo;
  return true;
}

bool StagePlanner::searchNearLeast() {
  int left = kCutsNearLeast;
  std::set<std::vector<int>> tried;
  while (neediestCut && !best && !c.refused) {
    const NeediestCut from = *neediestCut;
    tried.insert(from.stageOf);
    solve::ScheduleTable table;
    if (!tableOf(from.microbatch, table))
      return false;
    const int64_t smallest = c.workers.smallest;
    for (const std::vector<int> &stageOf : cutsNear(from, table)) {
      if (left == 0 || best || c.refused || c.workers.smallest < smallest)
        break;
      if (!tried.insert(stageOf).second)
        continue;
      --left;
      AskedCut asked{from.handsOut, false, true, forced};
      for (int i = 1; i < segments(); ++i)
        if (stageOf[size_t(i)] != stageOf[size_t(i) - 1])
          asked.begins.push_back({i, stageOf[size_t(i)]});
      bool fits = false;
      std::vector<int> before;
      if (!tryCut(table, from.microbatch, asked, true, before, fits))
        return false;
    }
    if (c.workers.smallest == smallest)
      break;
  }
  return c.refused || deepen();
}

// Each border of a stage of the worker that needs most, moved by 1, 2, 4, .. segments; the nearest come first.
std::vector<std::vector<int>> StagePlanner::cutsNear(const NeediestCut &cut, const solve::ScheduleTable &table) const {
  const std::vector<int> &stageOf = cut.stageOf;
  std::vector<int> first; // of stages 1, 2, ..
  for (int i = 1; i < segments(); ++i)
    if (stageOf[size_t(i)] != stageOf[size_t(i) - 1])
      first.push_back(i);
  std::vector<std::vector<int>> near;
  for (int distance = 1; distance < segments(); distance *= 2)
    for (size_t border = 0; border < first.size(); ++border)
      for (int by : {-distance, distance}) {
        int begin = first[border] + by;
        if (table.workerOf[border] != cut.worker && table.workerOf[border + 1] != cut.worker)
          continue;
        if (begin <= (border ? first[border - 1] : 0) || begin >= (border + 1 < first.size() ? first[border + 1] : segments()))
          continue;
        std::vector<int> moved = stageOf;
        for (int i = std::min(begin, first[border]); i < std::max(begin, first[border]); ++i)
          moved[size_t(i)] += by < 0 ? 1 : -1;
        near.push_back(std::move(moved));
      }
  return near;
}

bool StagePlanner::tryCut(const solve::ScheduleTable &table, int64_t microbatch, const AskedCut &asked, bool least, std::vector<int> &stageOf, bool &fits) {
  analysis::StageProblem stageProblem = analysis::buildStageProblem(step, problem, homes, microbatch, stages(), options.shards,
                                                                    asked.handsOut ? options.replicas : 1, asked.stateLeaves, asked.begins);
  stageProblem.split.request = table.request, stageProblem.split.request.steps = 1;
  solve::SplitSolution split = splitInto(stageProblem, asked.leastNeeded);
  bool cut = int(split.split.cuts.size()) == stages() - 1 && !split.split.ways.empty();
  hasCut |= cut;
  // The bound is of a step alone, and of kernels one by one: plans were seen to end up to 8 % before it.
  constexpr double kPlansBelow = 1.1;
  if (!cut || (!overlaps() && split.bound >= kPlansBelow * std::min(rival, makespan())))
    return true;
  StageLayout layout{workersOfReplica(), options.replicas, stageProblem.stagesOf(split.split, segments()), table.workerOf,
                     solve::splitsBackward(options.schedule)};
  layout.shards = options.shards, layout.handsOut = asked.handsOut;
  if (layout.stageOf == stageOf) // has been tried
    return true;
  stageOf = layout.stageOf;
  auto tryLate = [&](int late, bool &fits) {
    StageLayout own = layout;
    own.splitsBackward |= late > 0 || holdsSums();
    return tryTable(table, own, late, microbatch, guessedSeconds(table, own, stageProblem.split, split.split), least, fits);
  };
  layout.isOneGrain = mayCutGrain();
  if (layout.ownSteps = ownSteps(); layout.makesOwnSteps())
    return tryLate(0, fits);
  int all = table.request.microbatches - 1;
  if (mayAddSums()) {
    layout.addsSums = true;
    // A largest value of the batch goes on from one replica to the next all the same.
    if (!tryLate(overlaps() && !onlyAdds() ? all : 0, fits))
      return false;
    if (fits || c.refused || overlaps() || !isOneGrain() || microbatch < examples())
      return true;
    layout.addsSums = layout.isOneGrain = false; // a chain from replica to replica needs no room for what comes
  }
  // Where steps overlap, a sum that did not wait for the end of its step would wait for the next step of the replica before.
  if (options.replicas > 1 && overlaps())
    return tryLate(all, fits);
  if (options.replicas > 1)
    for (int late = all; late > 0 && !fits && !c.refused; late /= 2)
      if (!tryLate(late, fits))
        return false;
  return c.refused || (holdsSums() && all > 0) || tryLate(0, fits);
}

solve::SplitSolution StagePlanner::splitInto(analysis::StageProblem &stageProblem, bool least) const {
  solve::SplitLimits limits;
  limits.work = 2'000'000; // simulated actions: a second at most
  stageProblem.split.budgets.assign(size_t(options.stages), least ? 1 : room ? *room : INT64_MAX / 4);
  solve::SplitSolution split = solve::solve(stageProblem.split, limits);
  bool onlyWay = stages() == 1 && split.split.ways.empty(); // there is nothing to cut: what its plan needs, the planner says
  if ((!least && !onlyWay) || split.leastBudget <= 0)
    return split;
  stageProblem.split.budgets.assign(size_t(options.stages), split.leastBudget);
  return solve::solve(stageProblem.split, limits);
}

std::vector<std::vector<double>> StagePlanner::guessedSeconds(const solve::ScheduleTable &table, const StageLayout &layout,
                                                const solve::SplitProblem &split, const solve::Split &cuts) const {
  solve::TableCosts costs = solve::costsOf(split, table, cuts);
  std::vector<std::vector<double>> seconds(size_t(options.stages),
                                           std::vector<double>(size_t(options.chunks * (layout.splitsBackward ? 3 : 2)), 0));
  std::vector<int> chunk(size_t(options.stages), 0);
  for (size_t stage = 0; stage < table.workerOf.size(); ++stage) {
    size_t w = size_t(table.workerOf[stage]);
    seconds[w][size_t(layout.forwardPart(chunk[w]))] = costs.stages[stage].forward;
    seconds[w][size_t(layout.backwardPart(options.chunks, chunk[w]++))] = costs.stages[stage].input;
  }
  return seconds;
}

// The ways in which loops along an axis may keep values are steps of their own; the plain one comes first. Without a budget it is the fastest.
// Steps without copies of weights are tried where those with them lack room: what the copies take may be worth more elsewhere. Cuts for this
// budget; if none fits, those that need least whatever the budget is, so that the smallest budget that is named compiles.
bool Compilation::decideStages(const DecideOptions &base, const solve::Strategy &strategy, std::vector<func::FuncOp> ways) {
  std::vector<std::unique_ptr<StagePlanner>> planners(ways.size());
  workers.smallest = INT64_MAX;
  StagePlanner *best = nullptr, *neediest = nullptr;
  // `way`: has a plan now that ends before `fastest` seconds.
  auto takeIfBetter = [&](size_t way, double fastest) {
    if (planners[way]->makespan() >= fastest)
      return;
    best = planners[way].get();
    loopLevels = ways[way]->hasAttr(nn::kHeldAttr) || ways[way]->hasAttr(nn::kRowsAttr) ? 0 : levelsOf(ways, way);
  };
  auto lackRoom = [&] { return llvm::any_of(planners, [](auto &planner) { return planner && planner->roomMatters(); }); };
  for (bool least : {false, true})
    for (size_t i = 0; i < ways.size() && !refused && !(least && best); ++i) {
      bool holds = ways[i]->hasAttr(nn::kHeldAttr);
      bool inRows = ways[i]->hasAttr(nn::kRowsAttr);
      if (best && lacksCopies(ways[i]) && (options.onlyFits || !lackRoom()))
        continue;
      if (inRows ? best && !best->updatesMatter() : i > 0 && !holds && !options.budget)
        continue;
      int64_t smallest = workers.smallest;
      if (!least) {
        makeDearerWithoutCopies(ways, i, base);
        planners[i] = std::make_unique<StagePlanner>(*this, base, strategy, ways[i]);
        if (!planners[i]->prepare())
          return false;
      }
      const double fastest = best ? best->makespan() : std::numeric_limits<double>::infinity();
      if (!planners[i]->search(least, fastest))
        return false;
      takeIfBetter(i, fastest);
      if (workers.smallest < smallest)
        neediest = planners[i].get();
    }
  if (!best && neediest && !refused && !options.onlyFits) {
    if (!neediest->searchNearLeast())
      return false;
    for (size_t i = 0; i < ways.size(); ++i)
      if (planners[i].get() == neediest)
        takeIfBetter(i, std::numeric_limits<double>::infinity());
  }
  if (refused)
    return true;
  for (auto &planner : planners)
    if (best && planner && planner.get() != best)
      planner->discard();
  for (func::FuncOp way : ArrayRef(ways).drop_front())
    if (!best || !best->isOf(way))
      way.erase();
  if (best)
    return best->choose();
  (neediest ? neediest : planners.front().get())->refuseAll();
  return true;
}

} // namespace cinch
