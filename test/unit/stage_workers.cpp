// LINK: cinch_solve
// What one worker of several plans: boxes of channels against a dry run and against the simulated tables, and plans of a loop body in
// parts, proved by the plan checker, which must refuse them with too few copies, shared bytes or another list of actions.
#include "compiler/solve/ParameterWork.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Random.h"
#include "compiler/solve/Search.h"
#include "compiler/solve/stages/Channels.h"
#include "compiler/solve/stages/Exchanges.h"
#include "compiler/solve/stages/Held.h"
#include "compiler/solve/stages/Simulate.h"
#include "test/unit/Expect.h"
#include "test/unit/PartBodies.h"

#include <cmath>
#include <numeric>

using namespace cinch::solve;

static void boxesOfTables() {
  for (Schedule schedule : {Schedule::Naive, Schedule::GPipe, Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZBH1, Schedule::ZBV})
    for (int p = 1; p <= 4; ++p)
      for (int m : {1, 2, 3, 5, 8}) {
        ScheduleRequest request;
        request.schedule = schedule, request.workers = p, request.microbatches = m;
        request.chunks = schedule == Schedule::Interleaved || schedule == Schedule::ZBV ? 2 : 1;
        if (!check(request).empty())
          continue;
        Case one;
        std::string who = std::string(name(schedule)) + " p=" + std::to_string(p) + " m=" + std::to_string(m);
        ScheduleTable table = generate(request);
        ChannelProblem problem = chainOf(table, 1, 2);
        std::vector<int> boxes = findBoxes(problem);
        expect(boxes.size() == problem.travel.size(), who + ": no boxes");
        if (boxes.size() != problem.travel.size())
          continue;
        ChannelRun found = run(problem, boxes);
        TableCosts costs;
        costs.stages.assign(table.stages(), {});
        for (StageCost &stage : costs.stages)
          stage.forward = 1.0 / request.chunks, stage.input = stage.weight = 1.0 / request.chunks;
        costs.transfers = chainTransfers(table.stages());
        expect(found.finished, who + ": does not finish");
        expect(std::abs(found.makespan - makespan(table, costs)) < 1e-9, who + ": ends at " + std::to_string(found.makespan) +
                                                                             ", the table at " + std::to_string(makespan(table, costs)));
        for (size_t i = 0; i < boxes.size(); ++i) { // one box fewer is too few
          if (boxes[i] == 1)
            continue;
          --boxes[i];
          ChannelRun fewer = run(problem, boxes);
          expect(!fewer.finished || fewer.makespan > found.makespan + 1e-9, who + ": a box too many");
          ++boxes[i];
        }
      }
}

// Each sends twice before it receives twice.
static void crossing() {
  ChannelProblem problem;
  problem.actions = {{{0, 0}}, {{0, 0}}};
  problem.seconds = {{1}, {1}};
  problem.travel = {0, 0};
  problem.messages = {{{{0, true}, {0, true}, {1, false}, {1, false}}}, {{{1, true}, {1, true}, {0, false}, {0, false}}}};
  expect(!run(problem, {1, 1}).finished, "two workers that wait for one another finish");
  expect(run(problem, {2, 1}).finished, "one channel that holds both messages is enough");
  problem.messages[1][0].erase(problem.messages[1][0].begin(), problem.messages[1][0].begin() + 2);
  expect(findBoxes(problem).empty(), "a message that nobody sends is received");
}

// Random lists of exchanges against the same workers one message at a time, in random turns: each ends in the same place.
static void exchangesInTurns() {
  Random random = Random::seeded(11);
  int stuck = 0, unread = 0;
  for (int round = 0; round < 2000; ++round) {
    Case one;
    int workers = 2 + int(random.below(3)), channels = workers * (workers - 1);
    std::vector<std::vector<Exchange>> lists(static_cast<size_t>(workers));
    std::vector<int> boxes;
    for (int channel = 0; channel < channels; ++channel)
      boxes.push_back(1 + int(random.below(3)));
    for (int i = 0, count = 1 + int(random.below(8)); i < count; ++i) {
      int from = int(random.below(workers)), to = (from + 1 + int(random.below(workers - 1))) % workers;
      int channel = from * (workers - 1) + (to > from ? to - 1 : to);
      Exchange exchange{channel, true, 1 + int64_t(random.below(3))};
      auto insert = [&](std::vector<Exchange> &list, const Exchange &one) { // last, or before the last
        list.insert(list.end() - ptrdiff_t(list.empty() ? 0 : random.below(2)), one);
      };
      insert(lists[size_t(from)], exchange);
      exchange.sent = false, exchange.messages -= exchange.messages > 1 && random.below(40) == 0;
      insert(lists[size_t(to)], exchange);
    }
    ExchangesEnd end = run(lists, boxes);
    for (int order = 0; order < 3; ++order) {
      std::vector<size_t> at(lists.size(), 0);
      std::vector<int64_t> done(lists.size(), 0), held(boxes.size(), 0);
      for (int idle = 0; idle < 400;) {
        size_t w = random.below(lists.size());
        ++idle;
        if (at[w] == lists[w].size())
          continue;
        const Exchange &exchange = lists[w][at[w]];
        int64_t &in = held[size_t(exchange.channel)];
        if (exchange.sent ? in == boxes[size_t(exchange.channel)] : in == 0)
          continue;
        in += exchange.sent ? 1 : -1;
        idle = 0;
        if (++done[w] == exchange.messages)
          ++at[w], done[w] = 0;
      }
      expect(at == end.at && held == end.unread, "another order of turns ends elsewhere");
    }
    stuck += !end.finished;
    unread += end.finished && !end.isGood();
  }
  expect(stuck > 100 && stuck < 1900 && unread > 5, "the lists show too little: " + std::to_string(stuck) + " stand still, in " + std::to_string(unread) +
                                                     " a message is left");
}

// ---- Plans of a body in parts ------------------------------------------------------------------------------------------
// What is held from action to action: never more than the plan's peak, and nothing waits when all is done.
static void heldInTurn(const StepGraph &g, const Plan &plan) {
  auto sum = [](const ClassBytes &bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t(0)); };
  HeldBytes held = heldBytes(g, plan.decision);
  expect(held.actions.size() == g.actions.size(), "an entry for each action");
  int64_t most = 0;
  for (size_t i = 0; i < held.actions.size(); ++i) {
    most = std::max(most, sum(held.actions[i].during));
    for (const ClassBytes &bytes : {held.actions[i].during, held.actions[i].after})
      expect(std::all_of(bytes.begin(), bytes.end(), [](int64_t b) { return b >= 0; }), "less than nothing is held");
    expect(sum(held.actions[i].after) <= sum(held.actions[i].during), "more is held behind an action than while it runs");
    expect(i == 0 || sum(held.actions[i - 1].after) <= sum(held.actions[i].during), "bytes vanish between two actions");
  }
  expect(most <= plan.peakLive, "more is held than the peak");
  expect(held.actions.back().after[size_t(MemoryClass::Stored)] == 0, "a value of the forward sweep is left over");
}

// A plan under a budget, which must be there and be right; nothing if it is not there.
static std::optional<std::pair<Plan, ScheduledProgram>> rightPlan(const StepGraph &g, Planner &planner, const SearchOptions &options) {
  SearchResult found = planner.search(options);
  expect(found.feasible, "no plan in " + std::to_string(*options.arenaBudget) + " bytes");
  if (!found.feasible)
    return std::nullopt;
  ScheduledProgram program = scheduledProgram(g, found.plan.decision);
  program.peakLive = found.plan.peakLive;
  std::string wrong = checkPlan(g, program);
  expect(wrong.empty(), "a plan is refused: " + wrong);
  heldInTurn(g, found.plan);
  return std::pair(std::move(found.plan), std::move(program));
}

// The smallest budget, and one half of the way to a plan without a budget.
static std::vector<int64_t> someBudgets(Planner &planner, SearchOptions options) {
  options.arenaBudget.reset();
  SearchResult free = planner.search(options);
  expect(free.feasible, "no plan without a budget: " + free.error);
  options.arenaBudget = 0;
  const int64_t smallest = planner.search(options).smallestArena;
  return {smallest, (smallest + free.plan.decision.arenaBytes) / 2};
}

static void plansInParts() {
  Random random = Random::seeded(7);
  int refused = 0, tried = 0;
  for (int round = 0; round < 200; ++round) {
    Case one;
    int64_t count = 1 + int64_t(random.below(6)), ahead = int64_t(random.below(count));
    StepGraph g = randomBody(random, twoParts(count, ahead));
    Planner planner(g);
    SearchOptions options;
    options.microbatch = 1;
    for (int64_t budget : someBudgets(planner, options)) {
      options.arenaBudget = budget;
      auto found = rightPlan(g, planner, options);
      if (!found)
        continue;
      ScheduledProgram &program = found->second;
      // Wrong answers: one copy too few of what waits.
      for (const Launch &writer : program.launches)
        for (const Place &place : writer.writes) {
          if (place.copies < 2 || place.bytes == 0)
            continue;
          ScheduledProgram mutant = program;
          for (Launch &launch : mutant.launches)
            for (std::vector<Place> *list : {&launch.reads, &launch.writes})
              for (Place &other : *list)
                if (other.buffer == place.buffer && other.offset == place.offset)
                  other.copies = place.copies - 1;
          mutant.peakLive = -1;
          ++tried;
          refused += !checkPlan(g, mutant).empty();
        }
      // Actions that skip a micro-batch, or take one twice.
      StepGraph other = g;
      other.actions.pop_back();
      expect(!checkPlan(other, program).empty(), "a list of actions without its last one is accepted");
      other = g;
      other.actions.push_back(other.actions.back());
      expect(!checkPlan(other, program).empty(), "an action that runs twice is accepted");
    }
  }
  expect(tried > 100 && refused == tried, std::to_string(tried - refused) + " of " + std::to_string(tried) +
                                               " plans with a copy too few are accepted");
}

// A body in parts whose work reads what is made of parameters before the loop: the same made in the parts that read it.
static void plansWithWorkOnParameters() {
  Random random = Random::seeded(13);
  int plans = 0, smaller = 0, rounds = 150;
  for (int round = 0; round < rounds; ++round) {
    Case one;
    int64_t count = 1 + int64_t(random.below(6)), ahead = int64_t(random.below(count));
    RowBlocked step;
    StepGraph &g = step.graph;
    g = randomBody(random, twoParts(count, ahead));
    const int made = 1 + int(random.below(3));
    for (Buffer &buffer : g.buffers)
      buffer.producer += made;
    std::vector<Kernel> before(static_cast<size_t>(made));
    for (int i = 0; i < made; ++i) {
      Buffer parameter, value;
      parameter.kind = Buffer::Persistent, parameter.fixedBytes = value.fixedBytes = 64 * (1 + int64_t(random.below(4)));
      value.producer = i, value.name = "of a parameter";
      before[size_t(i)].section = 0, before[size_t(i)].name = "before";
      before[size_t(i)].reads = {int(g.buffers.size())}, before[size_t(i)].writes = {int(g.buffers.size()) + 1};
      g.buffers.push_back(parameter), g.buffers.push_back(value);
      for (Kernel &kernel : g.kernels)
        if (!kernel.newPart && !kernel.message && random.below(3) == 0)
          kernel.reads.push_back(before[size_t(i)].writes.front());
    }
    g.kernels.insert(g.kernels.begin(), before.begin(), before.end());
    step.original.resize(g.kernels.size());
    std::iota(step.original.begin(), step.original.end(), 0);
    SearchOptions options;
    options.microbatch = 1, options.arenaBudget = 0;
    const int64_t smallest = Planner(g).search(options).smallestArena;
    for (const RowBlocked &moved : withParameterWorkInLoop(step)) {
      Planner planner(moved.graph);
      std::vector<int64_t> budgets = someBudgets(planner, options);
      for (int64_t budget : budgets) {
        options.arenaBudget = budget;
        rightPlan(moved.graph, planner, options);
      }
      ++plans, smaller += budgets.front() < smallest;
    }
  }
  expect(plans > rounds && smaller > plans / 4, std::to_string(plans) + " steps have work on parameters in their parts, " + std::to_string(smaller) + " of them need less");
}

// ---- Steps that overlap ------------------------------------------------------------------------------------------------
// The body of a worker, between work that runs once: before it a value of the step, behind it an update, which leaves the parameter as it was
// in the place of the previous one.
struct Overlapping {
  StepGraph g;
  std::vector<std::pair<int, int>> newer;
};
static Overlapping randomSteps(Random &random, int64_t count, int64_t forwards, int64_t backwards) {
  std::vector<PartAction> actions;
  for (int64_t i = 0; i < count; ++i)
    actions.push_back({0, forwards + i}), actions.push_back({1, backwards + i});
  Overlapping out;
  StepGraph &g = out.g;
  g = randomBody(random, actions);
  g.batch = count;
  for (Buffer &buffer : g.buffers)
    ++buffer.producer;
  auto buffer = [&](Buffer::Kind kind, int producer, const char *name) {
    Buffer b;
    b.kind = kind, b.producer = producer, b.fixedBytes = 64 * (1 + int64_t(random.below(3))), b.name = name;
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  };
  int newer = buffer(Buffer::Persistent, -1, "newer"), older = buffer(Buffer::Persistent, -1, "older");
  g.buffers[older].fixedBytes = g.buffers[newer].fixedBytes;
  out.newer = {{older, newer}};
  Kernel before;
  before.section = 0, before.name = "before", before.scratch = 64 * int64_t(random.below(4));
  before.reads = {older};
  before.writes = {buffer(Buffer::Value, 0, "of the step")};
  g.kernels.insert(g.kernels.begin(), before);
  std::vector<int> sums;
  for (Kernel &kernel : g.kernels) {
    if (kernel.section == 1 && !kernel.newPart && random.below(2))
      kernel.reads.push_back(random.below(2) ? older : before.writes.front());
    for (int w : kernel.writes)
      if (g.buffers[w].kind == Buffer::Accumulator)
        sums.push_back(w);
  }
  Kernel keep, update;
  keep.section = update.section = 2, keep.recomputable = update.recomputable = false;
  keep.name = "keep", keep.reads = {newer}, keep.writes = {older};
  update.name = "update", update.reads = sums, update.writes = {newer}, update.scratch = 64 * int64_t(1 + random.below(8));
  update.reads.push_back(newer), update.reads.push_back(before.writes.front());
  update.inPlace = {{newer, newer}};
  g.kernels.push_back(keep), g.kernels.push_back(update);
  return out;
}

static void plansOverlap() {
  Random random = Random::seeded(11);
  int refused = 0, tried = 0;
  std::string accepted;
  for (int round = 0; round < 120; ++round) {
    Case one;
    int64_t count = 1 + int64_t(random.below(6)), forwards = 1 + int64_t(random.below(count));
    int64_t least = std::max<int64_t>(0, forwards - count + 1); // no more micro-batches wait than a step has
    int64_t backwards = least + int64_t(random.below(forwards - least + 1));
    Overlapping steps = randomSteps(random, count, forwards, backwards);
    const StepGraph &g = steps.g;
    std::string who = std::to_string(count) + " micro-batches, " + std::to_string(forwards) + " and " + std::to_string(backwards) + " ahead: ";
    Planner planner(g);
    SearchOptions options;
    options.microbatch = 1;
    SearchResult found = planner.search(options);
    expect(found.feasible, who + "no plan: " + found.error);
    options.arenaBudget = found.smallestArena;
    found = planner.search(options);
    expect(found.feasible, who + "no plan in the smallest arena");
    if (!found.feasible)
      continue;
    ScheduledProgram program = scheduledProgram(g, found.plan.decision);
    program.peakLive = found.plan.peakLive, program.newer = steps.newer;
    std::string wrong = checkPlan(g, program);
    expect(wrong.empty(), who + "a plan is refused: " + wrong);
    HeldBytes held = heldBytes(g, found.plan.decision);
    for (const HeldBytes::Action &action : held.actions)
      expect(std::all_of(action.after.begin(), action.after.end(), [](int64_t b) { return b >= 0; }), who + "less than nothing is held");
    auto refuse = [&](const ScheduledProgram &mutant, const std::string &what) {
      ++tried;
      bool right = checkPlan(g, mutant).empty();
      refused += !right;
      accepted += right ? who + what + "; " : "";
    };
    ScheduledProgram mutant = program;
    mutant.newer.clear();
    bool reads = false; // in the loop
    for (const Kernel &kernel : g.kernels)
      for (int r : kernel.reads)
        reads |= kernel.section < 2 && r == steps.newer.front().first;
    if (reads)
      refuse(mutant, "the next step reads the previous parameter");
    for (const Launch &writer : program.launches)
      for (const Place &place : writer.writes) {
        if (place.copies < 2 || place.bytes == 0)
          continue;
        mutant = program;
        mutant.peakLive = -1;
        auto lower = [&](std::vector<Place> &list) {
          for (Place &other : list)
            if (other.buffer == place.buffer && other.offset == place.offset)
              other.copies = place.copies - 1;
        };
        for (Launch &launch : mutant.launches)
          lower(launch.reads), lower(launch.writes);
        lower(mutant.loops.front().zeroed);
        refuse(mutant, g.buffers[place.buffer].name + " with a copy too few");
        // The update's scratch where something waits for the next step.
        mutant = program;
        mutant.peakLive = -1;
        if (g.buffers[place.buffer].kind == Buffer::Accumulator) {
          mutant.launches.back().scratch.offset = place.offset + place.bytes;
          refuse(mutant, "scratch over the next step's " + g.buffers[place.buffer].name);
        }
      }
  }
  expect(tried > 100 && refused == tried, std::to_string(tried - refused) + " of " + std::to_string(tried) + " wrong plans are accepted: " + accepted);
}

// ---- Parts in more than one order --------------------------------------------------------------------------------------
// Worker w of p with the table of zbv, whose micro-batches run gradients of parameters before or behind other chunks' gradients of inputs.
static std::vector<PartAction> actionsOfZbv(int p, int w, int m) {
  ScheduleRequest request;
  request.schedule = Schedule::ZBV, request.workers = p, request.chunks = 2, request.microbatches = m;
  return chainOf(generate(request), 1, 2).actions[size_t(w)];
}

// Copies of a value that some micro-batch reads before they are computed: a plan that reads them is refused.
static void mutateReaders(const StepGraph &g, const ScheduledProgram &program, int &tried, int &refused) {
  GraphIndex index(g);
  std::vector<int> partOf;
  int part = 0;
  for (const Launch &launch : program.launches)
    partOf.push_back(part += g.kernels[size_t(launch.kernel)].newPart);
  for (size_t t = 0; t < program.launches.size(); ++t)
    for (size_t r = 0; r < program.launches[t].reads.size(); ++r)
      for (size_t u = 0; u < t; ++u)
        for (const Place &other : program.launches[u].writes) {
          const Place &mine = program.launches[t].reads[r];
          if (other.buffer != mine.buffer || other.bytes == 0 || other.offset == mine.offset || index.sees(partOf[u], partOf[t]))
            continue;
          ScheduledProgram mutant = program;
          mutant.launches[t].reads[r].offset = other.offset, mutant.launches[t].reads[r].copies = other.copies;
          mutant.peakLive = -1;
          ++tried, refused += !checkPlan(g, mutant).empty();
        }
}

static void plansOutOfOrder() {
  Random random = Random::seeded(17);
  int again = 0, smaller = 0, tried = 0, refused = 0, rounds = 150;
  for (int round = 0; round < rounds; ++round) {
    Case one;
    int p = 1 + int(random.below(3)), w = int(random.below(p)), m = 2 + int(random.below(5));
    StepGraph g = ChunkBody(random, actionsOfZbv(p, w, m), w == p - 1).g;
    Planner planner(g);
    SearchOptions options, kept;
    options.microbatch = kept.microbatch = 1;
    kept.strategy.kind = Strategy::None;
    SearchResult free = planner.search(options), none = planner.search(kept);
    expect(free.feasible && none.feasible, "no plan without a budget: " + free.error + none.error);
    options.arenaBudget = 0;
    free.smallestArena = planner.search(options).smallestArena;
    smaller += free.smallestArena < none.plan.decision.arenaBytes;
    for (int64_t budget : {free.smallestArena, (free.smallestArena + free.plan.decision.arenaBytes) / 2}) {
      options.arenaBudget = budget;
      auto found = rightPlan(g, planner, options);
      if (!found)
        continue;
      again += found->first.recomputed > 0;
      mutateReaders(g, found->second, tried, refused);
    }
  }
  std::printf("parts in several orders: %d plans compute something again, %d of %d graphs need fewer bytes so, %d copies that come too late\n", again, smaller,
              rounds, tried);
  expect(again > rounds / 2 && smaller > rounds / 2, "budgets make plans of parts in several orders compute something again");
  expect(tried > 20 && refused == tried, std::to_string(tried - refused) + " of " + std::to_string(tried) + " plans that read a copy too early are accepted");
}

// Two replicas of two micro-batches: the second one's sums begin, in its first micro-batch, with what the first one sends in its last.
static void sumsGoOn() {
  using Message = ChannelProblem::Message;
  ChannelProblem problem;
  std::vector<PartAction> turns = {{0, 0}, {1, 0}, {0, 1}, {1, 1}}, late = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  problem.actions = {turns, turns};
  problem.seconds = {{2, 1}, {2, 1}};
  problem.travel = {0};
  problem.messages = {{{}, {{0, true, Message::Last}}}, {{}, {{0, false, Message::First}}}};
  expect(run(problem, {1}).finished && run(problem, {1}).makespan == 10, "the second replica does not wait for the first one's end");
  problem.actions[1] = late;
  expect(run(problem, {1}).makespan == 8, "gradients that wait do not let other work go on");
  // Two layers: the first layer's sum is sent when half of the work is done.
  Message first{0, true, Message::Last, 0.5}, second{0, true, Message::Last, 1};
  problem.messages[0][1] = {first, second};
  problem.messages[1][1] = {{0, false, Message::First, 0}, {0, false, Message::First, 0.5}};
  expect(run(problem, {1}).makespan == 7.5, "layers do not follow one another");
  expect(findBoxes(problem) == std::vector<int>{1}, "one box is enough for sums in turn");
  problem.messages[1][1].push_back({0, false, Message::First});
  expect(findBoxes(problem).empty(), "a sum that nobody sends is received");
}

int main() {
  boxesOfTables();
  crossing();
  exchangesInTurns();
  exchangesInTurns();
  sumsGoOn();
  plansInParts();
  plansWithWorkOnParameters();
  plansOutOfOrder();
  plansOverlap();
  return tally();
}
