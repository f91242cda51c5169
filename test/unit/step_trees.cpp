// LINK: cinch_solve
// Steps that are trees of loops: random orders with random recomputation, and the planner's own plans. Each is run on symbols, in the bytes
// it plans, every loop unrolled, and must compute what the step computes without a plan; what `evaluate` says it holds and costs is counted
// again by plain code; the plan checker must accept it. The planner is compared with the cheapest schedule of all: its bounds are
// never above it, its plans never below. The same of the tree with work on parameters in the main loop. Arguments: trees, seed.
#include "test/unit/Expect.h"
#include "test/unit/StepCount.h"
#include "test/unit/TreeMachine.h"
#include "compiler/solve/ParameterWork.h"
#include "compiler/solve/Search.h"
#include "compiler/solve/StepBound.h"

#include <cstdlib>

using namespace cinch::solve;

namespace {

// The loop in a random order, with some of it computed again.
std::vector<int> randomSchedule(const GraphIndex &index, Random &random) {
  const StepGraph &g = index.graph;
  std::vector<int> loop, waiting = index.loop;
  std::vector<char> made(g.buffers.size(), 0);
  while (!waiting.empty()) {
    std::vector<int> ready;
    for (int k : waiting)
      if (std::all_of(g.kernels[k].reads.begin(), g.kernels[k].reads.end(),
                      [&](int r) { return !index.values[r] || index.bornIn[r] != g.mainLoop() || made[r]; }))
        ready.push_back(k);
    int k = ready[size_t(random.below(int64_t(ready.size())))];
    waiting.erase(std::find(waiting.begin(), waiting.end(), k));
    loop.push_back(k);
    for (int w : g.kernels[k].writes)
      made[w] = 1;
    int other = loop[size_t(random.below(int64_t(loop.size())))];
    if (index.mayRecompute[other] && random.below(3) == 0)
      loop.push_back(other);
  }
  return loop;
}

struct Tallies {
  int trees = 0, moved = 0, smaller = 0, loops = 0, nested = 0, early = 0, ranges = 0, schedules = 0, plans = 0, cheapest = 0, refused = 0, leastBytes = 0, boundMet = 0;
};

void testPlan(const std::string &who, const StepTree &tree, const Plan &plan, const std::vector<int> &loop, const std::vector<Symbol> &want) {
  ScheduledProgram program = scheduledProgram(tree.graph(), plan.decision);
  program.peakLive = plan.peakLive;
  std::string wrong = checkPlan(tree.graph(), program);
  auto [peak, seconds] = Count(tree.graph(), plan.decision.microbatch).of(loop);
  if (wrong.empty() && peak != plan.peakLive)
    wrong = "expected " + std::to_string(peak) + " bytes alive at the peak, got " + std::to_string(plan.peakLive);
  if (wrong.empty() && std::abs(seconds - plan.seconds) > 1e-9 * seconds)
    wrong = "expected " + std::to_string(seconds) + " seconds, got " + std::to_string(plan.seconds);
  if (wrong.empty() && Machine(tree).planned(program) != want)
    wrong = "it computes something else";
  expect(wrong.empty(), who + ": " + wrong);
}

// Returns the smallest arena.
int64_t testTree(const std::string &name, const StepTree &tree, Random &random, Tallies &all) {
  const StepGraph &g = tree.graph();
  int64_t smallestOfAll = INT64_MAX;
  all.loops += int(tree.loops.size()), all.early += g.loops - 1, all.ranges += int(tree.rows.ranges.size());
  std::vector<Symbol> want = Machine(tree).expected();
  for (auto &[k, l] : tree.loops)
    all.nested += int(l->inner.size());
  GraphIndex index(g);
  expect(index.error.empty(), name + ": " + index.error);
  Planner planner(g);
  for (int64_t b : microbatches(g)) {
    std::string who = name + ", micro-batch " + std::to_string(b);
    for (int i = 0; i < 2; ++i) {
      std::vector<int> loop = randomSchedule(index, random);
      Plan plan = evaluate(index, {b, loop});
      expect(plan.error.empty(), who + ", a random schedule: " + plan.error);
      if (plan.error.empty())
        testPlan(who + ", a random schedule", tree, plan, loop, want), ++all.schedules;
    }
    SearchOptions options;
    options.microbatch = b;
    SearchResult largest = planner.search(options);
    options.arenaBudget = 0;
    SearchResult smallest = planner.search(options);
    int64_t low = smallest.smallestArena, high = largest.plan.decision.arenaBytes;
    Count count(g, b);
    double unreachable = count.cheapest(planner.memoryBound(b) - kCell, index.mayRecompute);
    expect(std::isinf(unreachable), who + ": there is a schedule below the bound on bytes");
    all.leastBytes += std::isinf(count.cheapest(low - kCell, index.mayRecompute));
    for (int64_t budget : {low, (low + high) / 2 / kCell * kCell, high}) {
      options.arenaBudget = budget;
      SearchResult r = planner.search(options);
      expect(r.feasible, who + ": no plan within " + std::to_string(budget) + " bytes");
      if (!r.feasible)
        continue;
      testPlan(who + ", " + std::to_string(budget) + " bytes", tree, r.plan, r.choice.loop, want);
      double best = count.cheapest(budget, index.mayRecompute);
      expect(best <= r.plan.seconds * (1 + 1e-9), who + ": a plan of " + std::to_string(r.plan.seconds) + " s, and " + std::to_string(best) + " is the least");
      expect(r.secondsBound <= best * (1 + 1e-9), who + ": a bound of " + std::to_string(r.secondsBound) + " s, and " + std::to_string(best) + " is the least");
      DagLimits little;
      little.work = 300'000;
      StepBound bound = stepBound(g, b, budget, r.plan.seconds, little);
      expect(bound.fault.empty() && bound.seconds <= best * (1 + 1e-9), who + ": a bound with effort of " + std::to_string(bound.seconds) + " s, and " + std::to_string(best) + " is the least");
      ++all.plans, all.cheapest += r.plan.seconds <= best * (1 + 1e-9), all.boundMet += bound.seconds >= best * (1 - 1e-9);
    }
    ++all.refused;
    smallestOfAll = std::min(smallestOfAll, low);
  }
  return smallestOfAll;
}

void testTree(int number, TreeMaker &maker, Random &random, Tallies &all) {
  Case one;
  ++all.trees;
  StepTree tree = maker.next();
  std::string name = "tree " + std::to_string(number);
  int64_t smallest = testTree(name, tree, random, all);
  for (RowBlocked &rows : withParameterWorkInLoop(tree.rows)) {
    StepTree moved = tree;
    moved.rows = std::move(rows);
    int64_t inLoop = testTree(name + ", work on parameters in its loop", moved, random, all);
    ++all.moved, all.smaller += inLoop < smallest;
  }
}

} // namespace

int main(int argc, char **argv) {
  int trees = argc > 1 ? std::atoi(argv[1]) : 2000;
  uint64_t seed = argc > 2 ? uint64_t(std::atoll(argv[2])) : 1;
  TreeMaker maker(seed);
  Random random = Random::seeded(seed + 1);
  Tallies all;
  for (int i = 0; i < trees; ++i)
    testTree(i, maker, random, all);
  std::printf("%d trees with %d loops (%d in loops), %d loops before, %d ranges in blocks of rows: %d random schedules, %d plans\n", all.trees,
              all.loops, all.nested, all.early, all.ranges, all.schedules, all.plans);
  std::printf("%d times with work on parameters in the main loop, %d of them in less memory\n", all.moved, all.smaller);
  std::printf("%d plans are the cheapest there are, the bound with effort is the least of %d; %d of %d smallest arenas are the smallest there are\n",
              all.cheapest, all.boundMet, all.leastBytes, all.refused);
  expect(all.cheapest > all.plans * 9 / 10, "most plans are the cheapest there are");
  expect(all.moved > all.trees / 4 && all.smaller > all.moved / 8, "many trees have work on parameters that may move, and some need less then");
  expect(all.leastBytes > all.refused * 9 / 10, "most smallest arenas are the smallest there are");
  return tally();
}
