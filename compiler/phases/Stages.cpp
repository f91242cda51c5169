// Stages.cpp: decides how several workers share a program: where the model is cut, the micro-batch, and what each worker keeps.
//
// For each micro-batch, `solve` for stage splits proposes the cut from the kernels' seconds and bytes. The step is divided there, each
// worker's part is planned by the one planner, with as many micro-batches in flight as the schedule's table has, and what is chosen is the
// micro-batch with which the table ends first when it is run with the plans' seconds.
//
// Replicas run the same table on their own examples. A replica's sums wait for those of the one before; its gradients of parameters may
// wait while later micro-batches go on, for which their operands are kept. How many, is tried from all of them down to none.
#include "compiler/phases/Compile.h"
#include "compiler/phases/StageHints.h"
#include "compiler/phases/StageTables.h"

#include "compiler/analysis/StageProblem.h"
#include "compiler/solve/Evaluate.h"
#include "compiler/solve/Search.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <numeric>

using namespace mlir;

namespace cinch {
namespace {

// Bytes of a worker's arena: of its plans, and for messages.
struct Need {
  int64_t planned = 0, messages = 0;
  int64_t total() const { return planned + messages; }
  void include(const Need &other) {
    planned = std::max(planned, other.planned);
    messages = std::max(messages, other.messages);
  }
};

// The program cut at one layout.
struct Division {
  StageLayout layout;
  Divided train;
  std::vector<Divided> others;  // evaluation and prediction
  std::vector<Need> othersNeed; // of each worker, at one example at a time
};

// A plan of all workers for one micro-batch.
struct Candidate {
  size_t division = 0;
  int64_t microbatch = 1;
  int late = 0; // micro-batches that a replica's gradients of parameters wait for
  std::vector<std::vector<solve::Action>> rows;        // of each worker
  std::vector<std::vector<solve::PartAction>> actions; // the same, by the parts of its loop
  std::vector<int> boxes;                              // of each channel
  std::vector<DecideOutcome> outcomes;
  std::vector<Attribute> decisions;
  std::vector<PlanSeconds> seconds;
  solve::ChannelRun run;
  double makespan = 0;
};

} // namespace

class StagePlanner {
public:
  StagePlanner(Compilation &compilation, const DecideOptions &base, const solve::Strategy &strategy)
      : c(compilation), options(compilation.options), base(base), strategy(strategy),
        train(c.module->lookupSymbol<func::FuncOp>(nn::kTrainName)), step(train), homes(step),
        problem(analysis::buildStepProblem(step, base.threads, 0, base.target, &base.costs)) {
    if (options.budget)
      room = std::max<int64_t>(0, *options.budget - c.allowance());
  }

  // False after an internal error was reported.
  bool run() {
    if (!problem.error.empty())
      return internal(problem.error);
    c.workers.count = workers(), c.workers.replicas = options.replicas;
    c.workers.transportReserve = options.transportReserve;
    c.workers.smallest = INT64_MAX;
    c.workers.bound = boundOfAnyCut();
    std::vector<int64_t> sizes = sizesToTry();
    if (!c.refused && !readHints())
      return false;
    if (!c.refused && options.onlyFits && room && c.workers.bound > *room)
      return c.refused = true;
    // Cuts for this budget; if none fits, those that need least whatever the budget is, so that the smallest budget that is named compiles.
    for (bool least : {false, true})
      for (int64_t microbatch : llvm::reverse(sizes))
        if (!c.refused && !(least && best) && !tryMicrobatch(microbatch, least))
          return false;
    if (c.refused)
      return true;
    if (best)
      return choose();
    if (c.workers.smallest == INT64_MAX)
      return refuse(whyNot.empty() ? "no cut of the model into " + std::to_string(stages()) + " stages was found" : whyNot);
    c.refused = true;
    c.entries.push_back({"train", nn::kTrainName.str(), std::move(neediest), 0, 0});
    return true;
  }

private:
  int stages() const { return options.stages * options.chunks; }
  int workers() const { return options.workers(); }
  int64_t examples() const { return problem.graph.batch / options.replicas; } // of a replica
  int segments() const { return int(homes.segments.size()); }
  bool internal(const Twine &what) {
    train.emitError() << "internal error: stages: " << what;
    return false;
  }
  bool refuse(std::string why) {
    c.refusal = std::move(why);
    return c.refused = true;
  }

  std::vector<int64_t> sizesToTry() {
    if (segments() < stages()) {
      refuse(llvm::formatv("the forward pass of the model has {0} kernel{1}, too few for {2} stages; expected at most --stages {3}",
                           segments(), segments() == 1 ? "" : "s", stages(), segments() / options.chunks));
      return {};
    }
    if (std::string wrong = wrongReplicas(); !wrong.empty()) {
      refuse(std::move(wrong));
      return {};
    }
    std::vector<int64_t> sizes = solve::microbatches(problem.graph);
    llvm::erase_if(sizes, [&](int64_t size) { return examples() % size != 0; });
    if (options.microbatch > 0) {
      if (!llvm::is_contained(sizes, options.microbatch))
        refuse(solve::Planner(problem.graph).search({std::nullopt, options.microbatch, strategy}).error);
      return {options.microbatch};
    }
    if (options.schedule == solve::Schedule::Naive) // one micro-batch, by definition
      return {examples()};
    return sizes;
  }

  // Every replica has as many examples, whole micro-batches, grains and groups; empty: these do.
  std::string wrongReplicas() const {
    if (options.replicas > 1 && c.program.train.delay > 0)
      return "replicas of a program with `delay` are not there yet: each would keep the previous parameters, too; expected --replicas 1";
    int64_t together = std::max<int64_t>(problem.graph.grain, options.microbatch > 0 ? options.microbatch : 1);
    if (problem.graph.batch % together)
      return ""; // said elsewhere
    int64_t parts = problem.graph.batch / together, below = 0, above = 0; // of the batch, that stay whole
    if (parts % options.replicas == 0)
      return "";
    for (int64_t fits : solve::divisors(parts))
      if (fits < options.replicas)
        below = fits;
      else if (above == 0)
        above = fits;
    std::string whole;
    if (together > 1)
      whole = llvm::formatv(options.microbatch > 1 ? " in micro-batches of {0}" : " of which {0} belong together (grain, groups)", together);
    return llvm::formatv("a batch of {0} examples{1} cannot be divided among {2} replicas; expected --replicas {3}{4}", problem.graph.batch, whole,
                         options.replicas, below, above ? llvm::formatv(" or {0}", above).str() : std::string());
  }

  // Where the user's `@stage` hints have stages begin. What no hint can mean is refused.
  bool readHints() {
    StageHints hints = stageHints(step, homes, stages());
    forced = hints.forced;
    if (!hints.wrong.empty())
      return refuse(hints.wrong);
    solve::SplitProblem all;
    all.segments.resize(size_t(segments()));
    all.forced = forced;
    return forced.empty() || all.cutExists(stages()) ||
           refuse(llvm::formatv("with {0} stages the `@stage` hints of the program leave a stage empty; its forward pass has {1} kernels",
                                stages(), segments()));
  }

  // Parameters, their state and sums that live through the loop lie somewhere: on one worker a P-th of them at least.
  int64_t boundOfAnyCut() const {
    int64_t bytes = 0;
    for (const solve::Buffer &buffer : problem.graph.buffers)
      if (buffer.perExampleBytes == 0 &&
          (buffer.kind == solve::Buffer::Accumulator || (buffer.kind == solve::Buffer::Persistent && buffer.producer < 0)))
        bytes += buffer.fixedBytes;
    return bytes / options.stages;
  }

  bool tryMicrobatch(int64_t microbatch, bool least) {
    solve::ScheduleRequest request;
    request.schedule = options.schedule;
    request.workers = options.stages, request.chunks = options.chunks;
    request.microbatches = int(examples() / microbatch);
    if (std::string wrong = solve::check(request); !wrong.empty()) {
      whyNot = wrong;
      return true;
    }
    solve::ScheduleTable table = solve::generate(request);
    if (std::string wrong = solve::verify(table); !wrong.empty())
      return internal("the schedule's table: " + wrong);
    analysis::StageProblem stageProblem = analysis::buildStageProblem(step, problem, homes, microbatch, stages(), forced);
    stageProblem.split.request = request;
    solve::SplitSolution split = splitInto(stageProblem, least);
    bool cut = int(split.split.cuts.size()) == stages() - 1 && !split.split.ways.empty();
    if (!cut || (best && split.bound >= best->makespan))
      return true;
    StageLayout layout{options.stages, options.replicas, stageProblem.stagesOf(split.split, segments()), table.workerOf,
                       solve::splitsBackward(options.schedule)};
    auto tryLate = [&](int late, bool &fits) {
      StageLayout own = layout;
      own.splitsBackward |= late > 0;
      return tryTable(table, own, late, microbatch, guessedSeconds(table, own, stageProblem.split, split.split), least, fits);
    };
    bool fits = false;
    if (options.replicas > 1)
      for (int late = request.microbatches - 1; late > 0 && !fits && !c.refused && !least; late /= 2)
        if (!tryLate(late, fits))
          return false;
    return c.refused || tryLate(0, fits);
  }

  bool tryTable(const solve::ScheduleTable &table, const StageLayout &layout, int late, int64_t microbatch,
                const std::vector<std::vector<double>> &seconds, bool least, bool &fits) {
    Candidate candidate;
    candidate.microbatch = microbatch, candidate.late = late;
    if (!divide(layout, candidate))
      return false;
    std::vector<std::vector<double>> ofAll;
    for (int w = 0; w < workers(); ++w) {
      // The first replica waits for nobody.
      solve::ScheduleTable own = late > 0 ? withLateGradients(table, w < options.stages ? 0 : late) : table;
      candidate.actions.push_back(actionsOf(own, layout, w % options.stages));
      candidate.rows.push_back(own.rows[size_t(w % options.stages)]);
      // Where no gradient needs the examples (all that is trained stands apart from them), the loop has no backward parts.
      if (size_t parts = partsOf(divisions[candidate.division].train.functions[size_t(w)]); parts == size_t(layout.chunks(w % options.stages))) {
        llvm::erase_if(candidate.actions.back(), [&](const solve::PartAction &action) { return size_t(action.part) >= parts; });
        llvm::erase_if(candidate.rows.back(), [](const solve::Action &action) {
          return action.kind != solve::Action::Forward && action.kind != solve::Action::Update;
        });
      }
      ofAll.push_back(seconds[size_t(w % options.stages)]);
    }
    candidate.boxes = solve::findBoxes(channelProblem(divisions[candidate.division].train, candidate.actions, ofAll));
    if (candidate.boxes.size() != divisions[candidate.division].train.channels.size())
      return internal("the workers of a schedule wait for one another");
    return plan(candidate, least, fits);
  }

  // The best cut by the kernels' seconds and bytes, under the budget or under the least for which there is one.
  solve::SplitSolution splitInto(analysis::StageProblem &stageProblem, bool least) const {
    solve::SplitLimits limits;
    limits.work = 2'000'000; // simulated actions: a second at most
    stageProblem.split.budgets.assign(size_t(options.stages), least ? 1 : room.value_or(INT64_MAX / 4));
    solve::SplitSolution split = solve::solve(stageProblem.split, limits);
    bool onlyWay = stages() == 1 && split.split.ways.empty(); // there is nothing to cut: what its plan needs, the planner says
    if ((!least && !onlyWay) || split.leastBudget <= 0)
      return split;
    stageProblem.split.budgets.assign(size_t(options.stages), split.leastBudget);
    return solve::solve(stageProblem.split, limits);
  }

  // The program divided by this layout, once.
  bool divide(const StageLayout &layout, Candidate &candidate) {
    auto [place, fresh] = divisionOf.try_emplace({layout.stageOf, layout.splitsBackward}, divisions.size());
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
          division.othersNeed[w].include({plan.arenaBytes, messageBytes(divided.channels, boxesOf(divided), int(w), least)});
      }
    divisions.push_back(std::move(division));
    return true;
  }

  bool divideFunction(StringRef name, const analysis::Step &whole, const analysis::StageHomes &wholeHomes, const StageLayout &layout,
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

  // Seconds of the parts of each worker's loop, before there are plans.
  std::vector<std::vector<double>> guessedSeconds(const solve::ScheduleTable &table, const StageLayout &layout,
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

  // `fits`: within the budget.
  bool plan(Candidate &candidate, bool least, bool &fits) {
    Division &division = divisions[candidate.division];
    Divided &divided = division.train;
    fits = true;
    int64_t smallest = 0;
    for (int w = 0; w < workers(); ++w) {
      func::FuncOp function = divided.functions[size_t(w)];
      if (partsOf(function) > 1) // one part alone runs in the order of the micro-batches
        mainLoop(function).setActionsAttr(attributeOf(&c.context, candidate.actions[size_t(w)]));
      Need need = division.othersNeed[size_t(w)];
      need.include({0, messageBytes(divided.channels, candidate.boxes, w, candidate.microbatch)});
      DecideOptions wanted = base;
      wanted.search.microbatch = candidate.microbatch;
      wanted.search.strategy = strategy;
      wanted.planCache = options.planCache;
      if (room)
        wanted.search.arenaBudget = std::max<int64_t>(0, *room - need.messages);
      // Replicas that have two on either side are alike.
      bool known = w >= 2 * options.stages && w < workers() - 2 * options.stages;
      if (Attribute decision = known ? candidate.decisions[size_t(w - options.stages)] : Attribute())
        function->setAttr(kDecisionAttr, decision);
      DecideOutcome outcome = known ? candidate.outcomes[size_t(w - options.stages)] : decidePlan(function, wanted);
      if (outcome.internal)
        return false;
      if (!outcome.result.error.empty())
        return refuse(outcome.result.error);
      need.include({outcome.result.smallestArena, 0});
      smallest = std::max(smallest, need.total());
      fits &= outcome.result.feasible && (!room || need.total() <= *room);
      candidate.outcomes.push_back(std::move(outcome));
      candidate.decisions.push_back(function->getAttr(kDecisionAttr));
    }
    if (least && smallest < c.workers.smallest) {
      c.workers.smallest = smallest;
      neediest = *llvm::max_element(candidate.outcomes, [](const DecideOutcome &a, const DecideOutcome &b) {
        return a.result.smallestArena < b.result.smallestArena;
      });
    }
    if (!fits)
      return true;
    price(candidate);
    if (!best || candidate.makespan < best->makespan)
      best = std::move(candidate);
    return true;
  }

  // When the table ends with the seconds of these plans.
  void price(Candidate &candidate) const {
    const Divided &divided = divisions[candidate.division].train;
    std::vector<std::vector<double>> seconds;
    std::vector<double> begin;
    double behind = 0; // the gate, where all wait for all, stands between the loop and the updates
    for (auto [outcome, function] : llvm::zip(candidate.outcomes, divided.functions)) {
      candidate.seconds.push_back(secondsOf(outcome, partsOf(function)));
      seconds.push_back(candidate.seconds.back().parts);
      begin.push_back(candidate.seconds.back().before);
      behind = std::max(behind, candidate.seconds.back().behind);
    }
    // Replicas hand sums on in the midst of a part's work.
    solve::ChannelProblem table = channelProblem(divided, candidate.actions, seconds,
                                                 options.replicas > 1 ? ArrayRef<PlanSeconds>(candidate.seconds) : ArrayRef<PlanSeconds>());
    table.begin = std::move(begin);
    candidate.run = solve::run(table, candidate.boxes);
    candidate.makespan = candidate.run.makespan + behind;
  }

  // The best candidate's division takes the place of the program.
  bool choose() {
    Division chosen = std::move(divisions[best->division]);
    for (size_t i = 0; i < divisions.size(); ++i)
      if (i != best->division) {
        divisions[i].train.erase();
        for (Divided &divided : divisions[i].others)
          divided.erase();
      }
    WorkersPlan &workers = c.workers;
    workers.seconds = best->makespan;
    workers.request.schedule = options.schedule;
    workers.request.workers = options.stages, workers.request.chunks = options.chunks;
    workers.request.microbatches = int(examples() / best->microbatch);
    workers.late = best->late;
    workers.each.resize(size_t(workers.count));
    describeStages(chosen.layout);
    needs = chosen.othersNeed;
    for (auto [channel, boxes] : llvm::zip(chosen.train.channels, best->boxes))
      channel.boxes = boxes;
    for (Channel &channel : chosen.train.channels)
      if (channel.inLoop && channel.fromPart >= 0 && !channel.pieces)
        channel.action = actionOfPart(chosen.layout, channel.from % chosen.layout.workers, channel.fromPart);
    takeStep(chosen.train);
    for (Divided &divided : chosen.others)
      if (!chooseEntry(divided, chosen.train.functions))
        return false;
    for (StringRef name : {StringRef(nn::kTrainName), StringRef(nn::kEvaluationName), StringRef(nn::kPredictionName)})
      if (auto function = c.module->lookupSymbol<func::FuncOp>(name))
        function.erase();
    placeWorkers();
    return true;
  }

  void takeStep(Divided &divided) {
    for (int w = 0; w < workers(); ++w) {
      func::FuncOp function = divided.functions[size_t(w)];
      if (partsOf(function) > 1)
        mainLoop(function).setActionsAttr(attributeOf(&c.context, best->actions[size_t(w)]));
      function->setAttr(kDecisionAttr, best->decisions[size_t(w)]);
      EntryPlan plan{"train", "", std::move(best->outcomes[size_t(w)]), 0, w};
      plan.arenaBytes = plan.outcome.result.plan.decision.arenaBytes;
      take(std::move(plan), divided, best->microbatch);
    }
    addChannels(divided, best->microbatch);
  }

  // Its function gets the name that it keeps.
  void take(EntryPlan plan, const Divided &divided, int64_t microbatch) {
    auto function = func::FuncOp(divided.functions[size_t(plan.worker)]);
    plan.function = function.getName().split("_of_").first.str();
    function.setName(plan.function);
    needs[size_t(plan.worker)].include({plan.arenaBytes, messageBytes(divided.channels, boxesOf(divided), plan.worker, microbatch)});
    c.entries.push_back(std::move(plan));
  }

  void addChannels(const Divided &divided, int64_t microbatch) {
    for (Channel channel : divided.channels) {
      channel.messageBytes = channel.bytes(microbatch);
      c.workers.channels.push_back(std::move(channel));
    }
    lastOfEntry.push_back(c.workers.channels.size());
  }

  void describeStages(const StageLayout &layout) {
    for (int w = 0; w < workers(); ++w) {
      WorkersPlan::Worker &worker = c.workers.each[size_t(w)];
      const PlanSeconds &seconds = best->seconds[size_t(w)];
      worker.before = seconds.before, worker.behind = seconds.behind;
      worker.busy = best->run.busy[size_t(w)] + seconds.before + seconds.behind;
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
        if (layout.worker(segment) != w % options.stages)
          continue;
        auto kernel = cast<plan::KernelOp>(step.parts[size_t(homes.segments[size_t(segment)])].op);
        worker.ends = analysis::nameOf(analysis::computedBy(kernel->getResult(0)));
        if (worker.begins.empty())
          worker.begins = worker.ends;
      }
    }
  }

  // Evaluation and prediction have their own functions, with the parameters where the step has them: the largest micro-batch, up to that
  // of training, that fits where the step lies. One example at a time, or one group of those that are compared, decides itself what it needs.
  bool chooseEntry(Divided &divided, ArrayRef<func::FuncOp> steps) {
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

  // One, or a group of those that are compared.
  static int64_t leastExamples(const Divided &divided) {
    int64_t least = 1;
    for (func::FuncOp function : divided.functions)
      least = std::lcm(least, nn::examplesTogether(function));
    return least;
  }

  static std::vector<int> boxesOf(const Divided &divided) {
    std::vector<int> boxes;
    for (const Channel &channel : divided.channels)
      boxes.push_back(channel.boxes);
    return boxes;
  }

  // Plans of all workers for `size` examples at a time. `within`: no worker may need more; empty: each as little as it can. No plans: they
  // do not fit.
  bool planEntry(Divided &divided, ArrayRef<func::FuncOp> steps, int64_t size, ArrayRef<Need> within, std::vector<EntryPlan> &plans) {
    if (!setLags(divided, size))
      return false;
    for (int w = 0; w < options.stages; ++w) {
      func::FuncOp function = divided.functions[size_t(w)];
      int64_t messages = messageBytes(divided.channels, boxesOf(divided), w, size);
      DecideOptions wanted = base;
      wanted.search.microbatch = size;
      wanted.search.strategy.kind = solve::Strategy::None;
      wanted.reservedBytes = c.bytesOfState(func::FuncOp(steps[size_t(w)]).getName());
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

  // The order in which the workers run their parts, and the boxes that it needs.
  bool setLags(Divided &divided, int64_t size) {
    // There may be more micro-batches than a batch has: at least as many as are in flight at once.
    int64_t count = std::max<int64_t>(problem.graph.batch / size, int64_t(options.chunks + 1) * options.stages + 2);
    std::vector<std::vector<solve::PartAction>> actions;
    std::vector<std::vector<double>> seconds;
    for (func::FuncOp function : divided.functions) {
      int parts = int(partsOf(function));
      std::vector<int64_t> lags = lagsOf(parts, options.stages);
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

  // Where the workers' arenas lie in the whole one, and the channels in them. Entries take turns in the bytes for messages.
  void placeWorkers() {
    WorkersPlan &workers = c.workers;
    int64_t at = 0;
    for (auto [worker, need] : llvm::zip(workers.each, needs)) {
      worker.at = at;
      worker.planned = need.planned, worker.messages = need.messages;
      worker.bytes = need.total();
      at += worker.bytes;
      c.refused |= room && worker.bytes > *room;
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

  Compilation &c;
  const CompileOptions &options;
  const DecideOptions &base;
  const solve::Strategy &strategy;
  func::FuncOp train;
  analysis::Step step;
  analysis::StageHomes homes;
  analysis::StepProblem problem;
  std::optional<int64_t> room; // for a worker's arena
  std::vector<std::pair<int, int>> forced; // (segment, stage): what the user's hints ask for
  std::vector<Division> divisions;
  std::map<std::pair<std::vector<int>, bool>, size_t> divisionOf;
  std::optional<Candidate> best;
  DecideOutcome neediest;          // of the smallest plan, if none fits
  std::string whyNot;              // there is no table
  std::vector<Need> needs;         // of each worker, as far as the entries are chosen
  std::vector<size_t> lastOfEntry; // channels: behind which the next entry's begin
};

bool Compilation::decideStages(const DecideOptions &base, const solve::Strategy &strategy) {
  return StagePlanner(*this, base, strategy).run();
}

} // namespace cinch
