// StageEntries.cpp: the chosen division takes the place of the program: the step, evaluation and prediction, and where all lies.
#include "compiler/phases/StagePlanner.h"

#include "compiler/analysis/Cost.h"

#include <numeric>
#include <set>

using namespace mlir;

namespace cinch {

void StagePlanner::discard() {
  for (Division &division : divisions) {
    division.train.erase();
    for (Divided &divided : division.others)
      divided.erase();
  }
}

bool StagePlanner::choose() {
  if (options.bound && !findBound())
    return false;
  bool plain = train.getName() == nn::kTrainName; // its loops keep every trip
  Division chosen = std::move(divisions[best->division]);
  divisions.erase(divisions.begin() + ptrdiff_t(best->division));
  discard();
  WorkersPlan &workers = c.workers;
  workers.seconds = best->makespan;
  workers.request.schedule = options.schedule;
  workers.request.workers = options.stages, workers.request.chunks = options.chunks;
  workers.request.microbatches = int(examples() / best->microbatch);
  workers.late = best->late, workers.addsSums = chosen.layout.addsSums, workers.handsOut = chosen.layout.handsOut;
  workers.ownSteps = chosen.layout.makesOwnSteps() ? chosen.layout.ownSteps : OwnSteps::None;
  workers.each.resize(size_t(workers.count));
  describeStages(chosen);
  for (auto [need, outcome] : llvm::zip(chosen.othersNeed, best->outcomes))
    needs.push_back(without(need, outcome));
  for (auto [channel, boxes] : llvm::zip(chosen.train.channels, best->boxes))
    channel.boxes = boxes;
  for (Channel &channel : chosen.train.channels)
    if (channel.inLoop && channel.fromPart >= 0 && !channel.pieces)
      channel.action = actionOfPart(chosen.layout, stageWorker(channel.from), channel.fromPart);
  if (!takeStep(chosen.train))
    return false;
  for (Divided &divided : chosen.others)
    if (!chooseEntry(divided, chosen.train.functions))
      return false;
  for (StringRef name : {StringRef(nn::kTrainName), StringRef(nn::kEvaluationName), StringRef(nn::kPredictionName)})
    if (auto function = c.module->lookupSymbol<func::FuncOp>(name))
      function.erase();
  if (!plain)
    train.erase();
  placeWorkers();
  return true;
}

bool StagePlanner::liesAlike(func::FuncOp function, Attribute decision, func::FuncOp first, Attribute itsDecision) {
  auto places = [](func::FuncOp of, Attribute decided) {
    std::map<StringRef, int64_t> all;
    for (BlockArgument argument : of.getArguments())
      for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
        if (auto name = of.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
          all[name.getValue()] = cast<plan::DecisionAttr>(decided).getArguments()[argument.getArgNumber()];
    return all;
  };
  return places(function, decision) == places(first, itsDecision);
}

bool StagePlanner::takeStep(Divided &divided) {
  for (int w = 0; w < workers(); ++w) {
    func::FuncOp function = divided.functions[size_t(w)];
    size_t first = size_t(w % options.stages);
    if (sharesPages() && !liesAlike(function, best->decisions[size_t(w)], divided.functions[first], best->decisions[first]))
      return internal("replicas that share their parameters have them at different places");
    if (partsOf(function) > 1)
      mainLoop(function).setActionsAttr(attributeOf(&c.context, best->actions[size_t(w)]));
    function->setAttr(kDecisionAttr, best->decisions[size_t(w)]);
    EntryPlan plan{"train", "", std::move(best->outcomes[size_t(w)]), 0, w};
    plan.arenaBytes = plan.outcome.result.plan.decision.arenaBytes;
    take(std::move(plan), divided, best->microbatch);
  }
  addChannels(divided, best->microbatch);
  return true;
}

void StagePlanner::take(EntryPlan plan, const Divided &divided, int64_t microbatch) {
  auto function = func::FuncOp(divided.functions[size_t(plan.worker)]);
  plan.function = function.getName().split("_of_").first.str();
  if (plan.name == "train") // whatever its loops keep
    plan.function = (nn::kTrainName + "_" + Twine(plan.worker)).str();
  function.setName(plan.function);
  needs[size_t(plan.worker)].include({plan.arenaBytes, messageBytes(divided.channels, boxesOf(divided), plan.worker, microbatch)});
  c.entries.push_back(std::move(plan));
}

void StagePlanner::addChannels(const Divided &divided, int64_t microbatch) {
  for (Channel channel : divided.channels) {
    channel.messageBytes = channel.bytes(microbatch);
    c.workers.channels.push_back(std::move(channel));
  }
  lastOfEntry.push_back(c.workers.channels.size());
}

void StagePlanner::describeStages(const Division &division) {
  const StageLayout &layout = division.layout;
  std::set<std::string> once;
  for (BlockArgument argument : func::FuncOp(train).getArguments())
    if (homes.liesOnce(argument))
      once.insert(func::FuncOp(train).getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr).getValue().str());
  for (int w = 0; w < workers(); ++w) {
    WorkersPlan::Worker &worker = c.workers.each[size_t(w)];
    func::FuncOp function = division.train.functions[size_t(w)];
    for (BlockArgument argument : function.getArguments())
      if (auto slot = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr);
          slot && once.count(slot.getValue().str()))
        worker.once += analysis::bytesOf(argument);
    const PlanSeconds &seconds = best->seconds[size_t(w)];
    worker.before = (overlaps() ? 2 : 1) * seconds.before, worker.behind = seconds.behind; // for two steps
    worker.busy = best->run.busy[size_t(w)] + worker.before + worker.behind;
    size_t i = 0;
    for (const solve::Action &action : best->rows[size_t(w)])
      if (action.kind != solve::Action::Update) {
        const solve::ChannelRun::Work &work = best->run.work[size_t(w)][i++];
        worker.actions.push_back({action, work.begin, work.end});
      }
    const std::vector<double> &parts = best->seconds[size_t(w)].parts;
    for (size_t part = 0; part < parts.size(); ++part)
      (int(part) < options.chunks ? worker.forward : worker.backward) += parts[part];
    for (int segment = 0; segment < segments(); ++segment) {
      if (layout.worker(segment) != stageWorker(w) * options.shards)
        continue;
      auto kernel = cast<plan::KernelOp>(step.parts[size_t(homes.segments[size_t(segment)])].op);
      worker.ends = analysis::nameOf(analysis::computedBy(kernel->getResult(0)));
      if (worker.begins.empty())
        worker.begins = worker.ends;
    }
  }
}

bool StagePlanner::chooseEntry(Divided &divided, ArrayRef<func::FuncOp> steps) {
  int64_t least = leastExamples(divided);
  std::vector<int64_t> sizes = solve::divisors(problem.graph.batch);
  for (int64_t size : llvm::reverse(sizes)) {
    if (size % least || (size > best->microbatch && size != least))
      continue;
    std::vector<EntryPlan> plans;
    if (!planEntry(divided, steps, size, size == least ? ArrayRef<Need>() : ArrayRef<Need>(needs), plans))
      return false;
    if (plans.empty())
      continue;
    for (EntryPlan &plan : plans)
      take(std::move(plan), divided, size);
    addChannels(divided, size);
    return true;
  }
  return internal("an entry has no plan");
}

std::vector<int> StagePlanner::boxesOf(const Divided &divided) {
  std::vector<int> boxes;
  for (const Channel &channel : divided.channels)
    boxes.push_back(channel.boxes);
  return boxes;
}

int64_t StagePlanner::leastExamples(const Divided &divided) {
  int64_t least = 1;
  for (func::FuncOp function : divided.functions)
    least = std::lcm(least, nn::examplesTogether(function));
  return least;
}

bool StagePlanner::planEntry(Divided &divided, ArrayRef<func::FuncOp> steps, int64_t size, ArrayRef<Need> within, std::vector<EntryPlan> &plans) {
  if (!setLags(divided, size))
    return false;
  for (int w = 0; w < workersOfReplica(); ++w) {
    func::FuncOp function = divided.functions[size_t(w)];
    int64_t messages = messageBytes(divided.channels, boxesOf(divided), w, size);
    DecideOptions wanted = base;
    wanted.search.microbatch = size;
    wanted.search.strategy.kind = solve::Strategy::None;
    wanted.reservedBytes = c.bytesOfState(func::FuncOp(steps[size_t(w)]).getName()) + bytesToFillPage(steps[size_t(w)]);
    if (size_t(w) < c.entries.size()) // the step has been decided
      wanted.reservedBytes -= c.entries[size_t(w)].outcome.stateOnHost;
    wanted.callerCounts = true;
    wanted.rowBlocks = -1;
    bool fits = within.empty() || messages <= within[size_t(w)].messages;
    wanted.search.arenaBudget = within.empty() ? 0 : within[size_t(w)].planned;
    DecideOutcome outcome = decidePlan(function, wanted);
    if (!outcome.internal && outcome.result.error.empty() && within.empty()) {
      wanted.search.arenaBudget = outcome.result.smallestArena;
      outcome = decidePlan(function, wanted);
    }
    if (outcome.internal)
      return false;
    if (!outcome.result.error.empty())
      return internal(outcome.result.error);
    if (!fits || !outcome.result.feasible) {
      plans.clear();
      return true;
    }
    plans.push_back({divided.name, function.getName().str(), std::move(outcome), 0, w});
    plans.back().arenaBytes = plans.back().outcome.result.plan.decision.arenaBytes;
  }
  return true;
}

int64_t StagePlanner::bytesToFillPage(func::FuncOp function) const {
  int64_t bytes = c.persistentBytes(function);
  return inPages(bytes) - bytes;
}

bool StagePlanner::setLags(Divided &divided, int64_t size) {
  // There may be more micro-batches than a batch has: at least as many as are in flight at once.
  int64_t count = std::max<int64_t>(problem.graph.batch / size, int64_t(options.chunks + 1) * options.stages + 2);
  std::vector<std::vector<solve::PartAction>> actions;
  std::vector<std::vector<double>> seconds;
  for (func::FuncOp function : divided.functions) {
    int parts = int(partsOf(function));
    // On one stage results are handed out where they are made, at once.
    std::vector<int64_t> lags = lagsOf(parts, options.stages > 1 ? options.stages : 0);
    actions.push_back(actionsOfLags(lags, count));
    seconds.push_back(std::vector<double>(size_t(parts), 1.0));
    if (parts > 1) {
      mainLoop(function).setLagsAttr(DenseI64ArrayAttr::get(&c.context, lags));
      mainLoop(function).setActionsAttr(attributeOf(&c.context, actions.back()));
    }
  }
  std::vector<int> boxes = solve::findBoxes(channelProblem(divided, actions, seconds));
  if (boxes.size() != divided.channels.size())
    return internal("the workers of an evaluation wait for one another");
  for (auto [channel, box] : llvm::zip(divided.channels, boxes))
    channel.boxes = box;
  return true;
}

void StagePlanner::placeWorkers() {
  WorkersPlan &workers = c.workers;
  int64_t at = 0;
  for (auto [worker, need] : llvm::zip(workers.each, needs)) {
    worker.at = at;
    worker.planned = need.planned, worker.messages = need.messages;
    worker.bytes = inPages(need.total());
    if (sharesPages())
      worker.shared = inPages(c.persistentBytes(c.functionOf(c.entries[size_t(&worker - workers.each.data())])));
    at += worker.bytes;
    c.refused |= room && worker.bytes > *room;
  }
  // Pinned memory of all of them begins behind all arenas, that of each on a whole page.
  for (auto [w, worker] : llvm::enumerate(workers.each)) {
    worker.hostBytes = c.entries[w].outcome.result.plan.decision.hostBytes;
    worker.hostAt = at = llvm::alignTo(at, kPage);
    at += worker.hostBytes;
  }
  workers.places.resize(workers.channels.size());
  std::vector<int64_t> taken(workers.each.size(), 0);
  for (size_t i = 0; i < workers.channels.size(); ++i) {
    if (llvm::is_contained(lastOfEntry, i))
      taken.assign(workers.each.size(), 0);
    const Channel &channel = workers.channels[i];
    int64_t message = solve::roundUp(channel.messageBytes);
    auto take = [&](int w, int64_t bytes) {
      const WorkersPlan::Worker &worker = workers.each[size_t(w)];
      int64_t offset = worker.at + worker.planned + taken[size_t(w)];
      taken[size_t(w)] += bytes;
      return offset;
    };
    workers.places[i].boxes = take(channel.to, message * channel.boxes);
    workers.places[i].staging = take(channel.from, message);
  }
}

} // namespace cinch
