// StagePlans.cpp: the program divided by a layout, the plans of its workers, and their price.
#include "compiler/phases/StagePlanner.h"

#include "compiler/transforms/PlanProblem.h"

using namespace mlir;

namespace cinch {

bool StagePlanner::tryTable(const solve::ScheduleTable &table, const StageLayout &layout, int late, int64_t microbatch,
              const std::vector<std::vector<double>> &seconds, bool least, bool &fits) {
  Candidate candidate;
  candidate.microbatch = microbatch, candidate.late = late;
  if (!divide(layout, candidate))
    return false;
  std::vector<std::vector<double>> ofAll;
  for (int w = 0; w < workers(); ++w) {
    // The first replica waits for nobody.
    bool splits = layout.splitsBackward && !solve::splitsBackward(options.schedule); // there is one action for both
    solve::ScheduleTable own = late > 0 || splits ? withLateGradients(table, w < workersOfReplica() ? 0 : late) : table;
    candidate.actions.push_back(actionsOf(own, layout, stageWorker(w)));
    candidate.rows.push_back(own.rows[size_t(stageWorker(w))]);
    // Where no gradient needs the examples (all that is trained stands apart from them), the loop has no backward parts.
    if (size_t parts = partsOf(divisions[candidate.division].train.functions[size_t(w)]); parts == size_t(layout.chunks(w % workersOfReplica()))) {
      llvm::erase_if(candidate.actions.back(), [&](const solve::PartAction &action) { return size_t(action.part) >= parts; });
      llvm::erase_if(candidate.rows.back(), [](const solve::Action &action) {
        return action.kind != solve::Action::Forward && action.kind != solve::Action::Update;
      });
    }
    ofAll.push_back(seconds[size_t(stageWorker(w))]);
  }
  solve::ChannelProblem problem = channelProblem(divisions[candidate.division].train, candidate.actions, ofAll);
  if (overlaps()) {
    OverlappingSteps steps(problem, 0);
    candidate.boxes = solve::findBoxes(steps.problem);
    candidate.boxes.resize(std::min(candidate.boxes.size(), steps.channels));
  } else {
    candidate.boxes = solve::findBoxes(problem);
  }
  if (candidate.boxes.size() != divisions[candidate.division].train.channels.size())
    return internal("the workers of a schedule wait for one another");
  return plan(candidate, least, fits);
}

bool StagePlanner::divide(const StageLayout &layout, Candidate &candidate) {
  auto [place, fresh] = divisionOf.try_emplace({layout.stageOf, layout.splitsBackward, layout.addsSums, layout.handsOut}, divisions.size());
  candidate.division = place->second;
  if (!fresh)
    return true;
  Division division{layout, {}, {}, std::vector<Need>(size_t(workers()))};
  if (!divideFunction("train", step, homes, layout, 0, division.train))
    return false;
  size_t channels = division.train.channels.size();
  StageLayout first = layout; // the other entries run on the first replica
  first.replicas = 1;
  for (auto [name, symbol] : {std::pair{"eval", nn::kEvaluationName}, std::pair{"predict", nn::kPredictionName}})
    if (auto function = c.module->lookupSymbol<func::FuncOp>(symbol)) {
      analysis::Step entryStep(function);
      analysis::StageHomes entryHomes(entryStep, &homes.owners);
      Divided &divided = division.others.emplace_back();
      if (!divideFunction(name, entryStep, entryHomes, first, channels, divided))
        return false;
      channels += divided.channels.size();
      std::vector<EntryPlan> plans;
      int64_t least = leastExamples(divided);
      if (!planEntry(divided, division.train.functions, least, {}, plans))
        return false;
      for (auto [w, plan] : llvm::enumerate(plans))
        division.othersNeed[w].include({plan.outcome.result.smallestArena, messageBytes(divided.channels, boxesOf(divided), int(w), least)});
    }
  divisions.push_back(std::move(division));
  return true;
}

bool StagePlanner::divideFunction(StringRef name, const analysis::Step &whole, const analysis::StageHomes &wholeHomes, const StageLayout &layout,
                    size_t first, Divided &divided) {
  divided.name = name.str();
  divided.first = first;
  auto functions = partitionStages(whole, wholeHomes, layout, first, divided.channels);
  if (failed(functions))
    return false;
  divided.functions = *functions;
  for (func::FuncOp function : divided.functions) // several divisions stand side by side for a while
    function.setName((function.getName() + "_of_" + Twine(divisions.size())).str());
  return true;
}

Need StagePlanner::without(Need need, const DecideOutcome &outcome) {
  need.planned = std::max<int64_t>(0, need.planned - outcome.stateOnHost);
  return need;
}

int64_t StagePlanner::mostOfInterest(bool least) const {
  int64_t most = room.value_or(INT64_MAX);
  return least && !options.onlyFits ? std::max(most, c.workers.smallest - 1) : most;
}

Need StagePlanner::messagesOf(const Candidate &candidate, int w) const {
  const Division &division = divisions[candidate.division];
  Need need = division.othersNeed[size_t(w)];
  need.include({0, messageBytes(division.train.channels, candidate.boxes, w, candidate.microbatch)});
  return need;
}

bool StagePlanner::isAsTheNext(const Candidate &candidate, int w) const {
  int next = w + workersOfReplica();
  return !divisions[candidate.division].layout.handsOut && w >= workersOfReplica() && next < workers() - 2 * workersOfReplica() &&
         (!room || candidate.messages[size_t(w)] == candidate.messages[size_t(next)]);
}

std::optional<int64_t> StagePlanner::arenaBudgetOf(const Candidate &candidate, int w) const {
  if (!room)
    return base.search.arenaBudget;
  return std::max<int64_t>(0, *room - candidate.messages[size_t(w)]);
}

const StagePlanner::Planned *StagePlanner::plannedBefore(const Candidate &candidate, int w) const {
  auto found = llvm::find_if(planned, [&](const Planned &before) {
    return before.division == candidate.division && before.worker == w && before.microbatch == candidate.microbatch &&
           before.arenaBudget == arenaBudgetOf(candidate, w) && before.deeply == candidate.deeply && before.actions == candidate.actions[size_t(w)];
  });
  return found == planned.end() ? nullptr : &*found;
}

// From the last worker on: of replicas it has most, as a rule, so that what does not fit is known soon.
bool StagePlanner::pose(Candidate &candidate, int64_t most, std::vector<Posed> &problems) {
  problems.resize(size_t(workers()));
  for (int w = workers() - 1; w >= 0; --w) {
    func::FuncOp function = divisions[candidate.division].train.functions[size_t(w)];
    if (partsOf(function) > 1) // one part alone runs in the order of the micro-batches
      mainLoop(function).setActionsAttr(attributeOf(&c.context, candidate.actions[size_t(w)]));
    int64_t messages = candidate.messages[size_t(w)] = messagesOf(candidate, w).messages;
    if (isAsTheNext(candidate, w) || plannedBefore(candidate, w))
      continue;
    DecideOptions &wanted = problems[size_t(w)].options = base;
    wanted.search.microbatch = candidate.microbatch;
    wanted.search.strategy = strategy;
    wanted.search.deep = candidate.deeply;
    wanted.planCache = options.planCache;
    wanted.rowsAsked = options.rowBlocks > 0 ? problem.graph.positions : 0;
    wanted.reservedBytes = bytesToFillPage(function);
    wanted.search.arenaBudget = arenaBudgetOf(candidate, w);
    wanted.hostBudget = options.hostBudget;
    problems[size_t(w)].problem.emplace(function, wanted);
    if (room && problems[size_t(w)].problem->bound() > most - messages)
      return false;
  }
  return true;
}

bool StagePlanner::planWorkers(Candidate &candidate, int64_t most, bool &fits) {
  Divided &divided = divisions[candidate.division].train;
  fits = true;
  candidate.needs.assign(size_t(workers()), 0);
  candidate.messages.resize(size_t(workers()));
  candidate.outcomes.resize(size_t(workers()));
  candidate.decisions.resize(size_t(workers()));
  std::vector<Posed> problems;
  if (!pose(candidate, most, problems)) {
    fits = false, lacksRoom = true;
    candidate.needs.clear();
    return true;
  }
  for (int w = workers() - 1; w >= 0; --w) {
    func::FuncOp function = divided.functions[size_t(w)];
    Need need = messagesOf(candidate, w);
    std::optional<PlanProblem> &own = problems[size_t(w)].problem;
    DecideOptions &wanted = problems[size_t(w)].options;
    const bool known = !own;
    const Planned *before = known && !isAsTheNext(candidate, w) ? plannedBefore(candidate, w) : nullptr;
    if (Attribute decision = before ? before->decision : known ? candidate.decisions[size_t(w + workersOfReplica())] : Attribute())
      function->setAttr(kDecisionAttr, decision);
    const double fastest = room && own ? own->leastSeconds() : 0;
    DecideOutcome outcome = before ? before->outcome : known ? candidate.outcomes[size_t(w + workersOfReplica())] : own->decide();
    if (outcome.internal)
      return false;
    if (!outcome.result.error.empty())
      return refuse(outcome.result.error);
    // Evaluation and prediction hold the state that training leaves on the device.
    if (Need others = without(need, outcome); room && !known && others.total() > *room && outcome.result.feasible && options.hostBudget) {
      wanted.allStateOnHost = true;
      if (DecideOutcome all = decidePlan(function, wanted); all.internal)
        return false;
      else if (all.result.feasible)
        outcome = std::move(all);
    }
    need = without(need, outcome);
    need.include({outcome.result.smallestArena, 0});
    const int64_t bytes = candidate.needs[size_t(w)] = inPages(need.total());
    fits &= outcome.result.feasible && (!room || bytes <= *room);
    lacksRoom |= !fits || (room && own && outcome.result.plan.seconds > fastest * (1 + 1e-9));
    candidate.outcomes[size_t(w)] = std::move(outcome);
    candidate.decisions[size_t(w)] = function->getAttr(kDecisionAttr);
    if (own && options.replicas > 1 && w < workersOfReplica())
      planned.push_back({candidate.division, w, candidate.microbatch, candidate.deeply, candidate.actions[size_t(w)], wanted.search.arenaBudget,
                         candidate.outcomes[size_t(w)], candidate.decisions[size_t(w)]});
    own.reset();
    if (room && bytes > most) {
      fits = false;
      return true;
    }
  }
  if (fits)
    price(candidate);
  return true;
}

bool StagePlanner::plan(Candidate &candidate, bool least, bool &fits) {
  candidate.deeply = !searchesTwice();
  if (!planWorkers(candidate, mostOfInterest(least), fits))
    return false;
  const auto most = std::max_element(candidate.needs.begin(), candidate.needs.end());
  if (least && most != candidate.needs.end() && *most < c.workers.smallest) {
    const auto worker = size_t(most - candidate.needs.begin());
    c.workers.smallest = *most;
    neediest = candidate.outcomes[worker];
    const StageLayout &layout = divisions[candidate.division].layout;
    neediestCut = NeediestCut{candidate.microbatch, layout.handsOut, stageWorker(int(worker)), layout.stageOf};
  }
  if (!fits)
    return true;
  if (!candidate.deeply)
    keepToDeepen(candidate);
  if (!best || candidate.makespan < best->makespan)
    best = std::move(candidate);
  return true;
}

void StagePlanner::price(Candidate &candidate) const {
  const Divided &divided = divisions[candidate.division].train;
  candidate.seconds.clear();
  for (auto [outcome, function] : llvm::zip(candidate.outcomes, divided.functions))
    candidate.seconds.push_back(secondsOf(outcome, partsOf(function)));
  runTable(candidate);
}

void StagePlanner::runTable(Candidate &candidate) const {
  const Divided &divided = divisions[candidate.division].train;
  std::vector<std::vector<double>> seconds;
  std::vector<double> begin;
  double before = 0, behind = 0; // the gate, where all wait for all, stands between the loop and the updates
  for (const PlanSeconds &own : candidate.seconds) {
    seconds.push_back(own.parts);
    begin.push_back(own.before);
    before = std::max(before, own.before), behind = std::max(behind, own.behind);
  }
  // Replicas hand sums on in the midst of a part's work, and shards exchange what they have.
  solve::ChannelProblem table = channelProblem(divided, candidate.actions, seconds,
                                               options.replicas * options.shards > 1 ? ArrayRef<PlanSeconds>(candidate.seconds) : ArrayRef<PlanSeconds>());
  table.travel.assign(table.travel.size(), problem.secondsOfMessage());
  if (overlaps()) { // what is before the loop is computed for two steps
    OverlappingSteps steps(table, 2 * before + behind);
    candidate.run = steps.steady(solve::run(steps.problem, steps.withMeetings(candidate.boxes)));
    for (auto &row : candidate.run.work)
      for (solve::ChannelRun::Work &work : row)
        work.begin += 2 * before, work.end += 2 * before;
    candidate.makespan = candidate.run.makespan;
    return;
  }
  table.begin = std::move(begin);
  candidate.run = solve::run(table, candidate.boxes);
  candidate.makespan = candidate.run.makespan + behind;
}

} // namespace cinch
