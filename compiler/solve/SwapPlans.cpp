// SwapPlans.cpp: see SwapPlans.h.
#include "compiler/solve/SwapPlans.h"
#include "compiler/solve/Engines.h"
#include "compiler/solve/SwapSearch.h"

#include <algorithm>
#include <map>
#include <memory>

namespace cinch::solve {

namespace {

// How much work it may be. A try is a simulation of the loop.
constexpr int kMostSearched = 48, kMostSmallest = 12; // ways in all; where nothing fits
constexpr double kRuns = 6e6;                         // of kernels, simulated for a way
constexpr int kMostTries = 4000, kLeastTries = 200;
constexpr int kPackings = 4;                          // of a way: what packing wastes is taken from its room

class SwapPlans {
public:
  SwapPlans(const std::vector<Variant> &variants, std::vector<LadderSchedule> schedules, const SearchOptions &options, int64_t hostBudget,
            const MayLeave &allowed, const std::vector<Offload> &states, OffloadAnswer &answer)
      : variants(variants), ladder(std::move(schedules)), options(options), hostBudget(hostBudget), allowed(allowed), states(states), answer(answer) {}

  void run() {
    std::vector<Way> ways = allWays();
    std::stable_sort(ways.begin(), ways.end(), [](const Way &a, const Way &b) { return a.seconds < b.seconds; });
    int searched = 0;
    for (const Way &way : ways) {
      if (answer.result.feasible && way.seconds >= answer.result.plan.seconds)
        break;
      if (searched < kMostSearched)
        searched += search(way, *options.arenaBudget);
    }
  }

  // With as much away as may be, what needs least.
  void findSmallest() {
    struct Least {
      const Way *way;
      int64_t room;
    };
    std::vector<Way> ways = allWays();
    std::vector<Least> least;
    for (const Way &way : ways)
      least.push_back({&way, searchOf(way).smallestRoom(hostBytesBeside(way))});
    std::stable_sort(least.begin(), least.end(), [](const Least &a, const Least &b) { return a.room < b.room; });
    for (size_t i = 0; i < least.size() && i < size_t(kMostSmallest) && !answer.result.feasible && least[i].room < answer.result.smallestArena; ++i) {
      const Way &way = *least[i].way;
      SwapAnswer found = searchOf(way).solve(least[i].room, hostBytesBeside(way), 0);
      if (found.fits && leaves(way, found))
        take(way, found.swaps);
    }
  }

private:
  // A schedule of the ladder with some of the state on the host.
  struct Way {
    const LadderSchedule *schedule;
    size_t state;
    double seconds; // of a step, if no value leaves
  };
  // The step of a variant with the state's copies in it.
  struct Step {
    StepGraph graph;
    std::vector<int> original;
    std::unique_ptr<GraphIndex> index;
  };

  std::vector<Way> allWays() {
    std::vector<Way> ways;
    for (size_t s = 0; s < states.size(); ++s)
      for (const LadderSchedule &schedule : ladder)
        ways.push_back({&schedule, s, predictedSeconds(*stepOf(schedule.variant, s).index, schedule.point.microbatch, schedule.loop)});
    return ways;
  }

  const Step &stepOf(int variant, size_t state) {
    Step &step = steps[{variant, state}];
    if (!step.index) {
      const RowBlocked &rows = variants[size_t(variant)].rows;
      Offload offload = states[state];
      offload.moved = stateOfGraph(rows.graph, offload.moved, allowed.state);
      Offloaded made = withOffload(rows.graph, offload, rows.original);
      step.graph = std::move(made.graph), step.original = std::move(made.original);
      step.index = std::make_unique<GraphIndex>(step.graph);
    }
    return step;
  }

  // Was it worth a search?
  bool search(const Way &way, int64_t room) {
    const std::vector<int> &loop = way.schedule->loop;
    const int64_t microbatch = way.schedule->point.microbatch;
    const Step &step = stepOf(way.schedule->variant, way.state);
    SwapSearch swaps = searchOf(way);
    if (swaps.leastBytes() > room)
      return false;
    double body = 0;
    for (int k : loop)
      body += step.graph.kernels[size_t(k)].seconds.at(double(microbatch));
    const double trips = double(step.graph.batch / microbatch);
    auto isBeaten = [&](double ofBody) {
      return answer.result.feasible && way.seconds + trips * (ofBody - body) >= answer.result.plan.seconds;
    };
    if (isBeaten(swaps.leastSeconds(room)))
      return false;
    int tries = int(std::clamp(kRuns / double(loop.size()), double(kLeastTries), double(kMostTries)));
    int64_t least = swaps.leastBytes();
    for (int i = 0; i < kPackings && room >= least; ++i) {
      SwapAnswer found = swaps.solve(room, hostBytesBeside(way), tries);
      if (!found.fits || !leaves(way, found) || isBeaten(found.seconds))
        break;
      int64_t wasted = take(way, found.swaps);
      if (wasted <= 0)
        break;
      room -= wasted;
    }
    return true;
  }

  // A plan that counts only if it is packed into the budget. Returns by how many bytes it is not.
  int64_t take(const Way &way, const std::vector<Swap> &found) {
    const Step &step = stepOf(way.schedule->variant, way.state);
    Swapped made = withSwaps(step.graph, way.schedule->loop, found, step.original);
    GraphIndex index(made.graph);
    Choice choice{way.schedule->point.microbatch, made.loop};
    Plan plan = evaluateQuickly(index, choice);
    if (plan.error.empty() && plan.decision.arenaBytes > *options.arenaBudget)
      plan = evaluateWell(index, choice);
    if (!plan.error.empty())
      return 0;
    int64_t over = plan.decision.arenaBytes - *options.arenaBudget;
    bool fits = over <= 0, better = fits ? !answer.result.feasible || plan.seconds < answer.result.plan.seconds
                                         : !answer.result.feasible && plan.decision.arenaBytes < answer.result.smallestArena;
    if (!better)
      return over;
    SearchResult &result = answer.result;
    result.feasible = fits;
    result.plan = fits && !isPackedWell(index.graph, plan) ? evaluateWell(index, choice) : std::move(plan);
    result.choice = std::move(choice);
    result.name = way.schedule->point.name;
    result.smallestArena = std::min(result.smallestArena, result.plan.decision.arenaBytes);
    if (!fits)
      result.holders = alive(made.graph, result.plan, result.plan.peakRun);
    answer.rows = variants[size_t(way.schedule->variant)].rows;
    answer.rows.graph = std::move(made.graph), answer.rows.original = std::move(made.original);
    answer.offload = states[way.state];
    answer.offload.moved = stateOfGraph(variants[size_t(way.schedule->variant)].rows.graph, answer.offload.moved, allowed.state);
    answer.swaps = found;
    return over;
  }

  SwapSearch searchOf(const Way &way) {
    return SwapSearch(*stepOf(way.schedule->variant, way.state).index, way.schedule->point.microbatch, way.schedule->loop, allowed.values);
  }
  int64_t hostBytesBeside(const Way &way) const { return hostBudget - states[way.state].bytes(); }
  bool leaves(const Way &way, const SwapAnswer &found) const { return !found.swaps.empty() || !states[way.state].moved.empty(); }

  const std::vector<Variant> &variants;
  const std::vector<LadderSchedule> ladder;
  const SearchOptions &options;
  const int64_t hostBudget;
  const MayLeave &allowed;
  const std::vector<Offload> &states;
  OffloadAnswer &answer;
  std::map<std::pair<int, size_t>, Step> steps;
};

} // namespace

void searchSwaps(const std::vector<Variant> &variants, const std::vector<LadderSchedule> &ladder, const SearchOptions &options, int64_t hostBudget,
                 const MayLeave &allowed, const std::vector<Offload> &states, OffloadAnswer &answer) {
  SwapPlans(variants, ladder, options, hostBudget, allowed, states, answer).run();
}

void searchSmallestSwaps(const std::vector<Variant> &variants, const SearchOptions &options, int64_t hostBudget, const MayLeave &allowed,
                         const std::vector<Offload> &states, OffloadAnswer &answer) {
  VariantPlanner planner(variants);
  SearchOptions least = options;
  least.arenaBudget = 0, least.ship = least.advises = false;
  int chosen = 0;
  planner.search(least, false, chosen);
  SwapPlans(variants, planner.ladder(least), options, hostBudget, allowed, states, answer).findSmallest();
}

} // namespace cinch::solve
