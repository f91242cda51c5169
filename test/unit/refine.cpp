// LINK: cinch_solve
// Local search on loop lists: what `fill` and `shrink` return keeps the target and is proved by the plan checker, and
// costs no more than it claims. Small forward and backward graphs are compared with the exact solver of
// `cinch solve remat`; and the whole search is monotone at random budgets, whatever was asked before.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Refine.h"
#include "compiler/solve/Reorder.h"
#include "compiler/solve/Search.h"

#include <cmath>
#include <cstdio>
#include <random>

using namespace cinch::solve;

static std::string prove(const StepGraph &g, const Plan &plan) {
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(g, plan.decision);
  program.peakLive = plan.peakLive;
  return checkPlan(g, program);
}

static void testTargets(const std::string &name, const StepGraph &g) {
  GraphIndex index(g);
  Sweep sweep(index);
  Timeline line(index);
  int64_t b = g.batch;
  Refiner refiner(index, b); // one for all loops: what it keeps of one changes nothing for the next
  expect(line.build(b, index.loop), name + " is a graph");
  int64_t high = line.peak;
  int lowered = 0, filled = 0, shaken = 0, faster = 0;
  for (const RematCandidate &candidate : candidates(sweep, b)) {
    if (!line.build(b, candidate.loop))
      continue;
    int64_t peak = line.peak;
    double seconds = predictedSeconds(index, b, candidate.loop);
    for (int64_t target : {peak, peak + (high - peak) / 3, peak - peak / 16}) {
      std::string which = name + ", " + candidate.name + " at " + std::to_string(target);
      if (target >= peak) {
        std::vector<int> loop = refiner.fill(candidate.loop, target);
        Plan plan = evaluate(g, {b, loop});
        std::string why = prove(g, plan);
        expect(why.empty() && plan.peakLive <= target && plan.seconds <= seconds, which + ", filled: " + why);
        filled += plan.seconds < seconds;
        if (seconds > 1.1 * predictedSeconds(index, b, index.loop) && shaken < 8) {
          std::vector<int> other = refiner.shake(loop, target, 30, 100, uint64_t(shaken));
          Plan best = evaluate(g, {b, other});
          std::string reason = prove(g, best);
          expect(reason.empty() && best.peakLive <= target && best.seconds <= plan.seconds, which + ", shaken: " + reason);
          expect(other == Refiner(index, b).shake(loop, target, 30, 100, uint64_t(shaken)), which + ": the same again");
          ++shaken, faster += best.seconds < plan.seconds;
        }
      } else if (std::vector<int> loop = refiner.shrink(candidate.loop, target, 100); !loop.empty()) {
        Plan plan = evaluate(g, {b, loop});
        std::string why = prove(g, plan);
        expect(why.empty() && plan.peakLive <= target, which + ", shrunk: " + why);
        ++lowered;
      }
    }
  }
  expect(lowered + filled > 0, name + ": some schedules can be filled or shrunk");
  std::printf("%s: %d of %d are faster when shaken\n", name.c_str(), faster, shaken);
}

// A forward and a backward sweep of up to six kernels each, with skips, without in-place work or scratch: the same
// problem as a graph for `solve remat`.
static void testExact() {
  std::mt19937_64 random(11);
  double logs = 0, tight = 0;
  int cases = 0, equal = 0, missed = 0;
  for (int i = 0; i < 60; ++i) {
    GraphBuilder b;
    int n = 3 + int(random() % 3);
    std::vector<int> forward;
    auto kernel = [&](std::vector<int> reads) {
      int w = b.value("v", 0, 64 * int64_t(1 + random() % 6));
      b.kernel("k", std::move(reads), {w}, 1, true);
      b.g.kernels.back().seconds = {1e-3 * double(1 + random() % 9), 0};
      return w;
    };
    for (int k = 0; k < n; ++k) {
      std::vector<int> reads;
      if (k)
        reads.push_back(forward.back());
      if (k > 1 && random() % 3 == 0)
        reads.push_back(forward[random() % (k - 1)]);
      forward.push_back(kernel(reads));
    }
    b.backward = true;
    int d = forward.back();
    for (int k = n - 1; k >= 0; --k)
      d = kernel(k + 1 < n ? std::vector<int>{d, forward[k]} : std::vector<int>{d});
    Dag dag;
    dag.nodes.resize(b.g.kernels.size());
    for (size_t k = 0; k < b.g.kernels.size(); ++k) {
      dag.nodes[k] = {int64_t(k), "", b.g.kernels[k].seconds.fixed, b.g.buffers[k].fixedBytes, b.g.kernels[k].reads, {}};
      for (int r : b.g.kernels[k].reads)
        dag.nodes[r].users.push_back(int(k));
    }
    Planner planner(b.g);
    int64_t least = planner.search({0, 1, {}}).plan.peakLive,
            most = planner.search({std::nullopt, 1, {Strategy::None, 0}}).plan.peakLive;
    for (int64_t budget : {least, (least + most) / 2 / 64 * 64}) {
      DagSolution best = solve(dag, Order::Free, budget);
      SearchResult r = planner.search({budget, 1, {}});
      if (best.status != DagSolution::Optimal || !r.feasible)
        continue;
      expect(r.plan.seconds >= best.cost.cost * (1 - 1e-9), "graph " + std::to_string(i) + ": no plan beats the optimum");
      expect(r.secondsBound <= best.cost.cost * (1 + 1e-9),
             "graph " + std::to_string(i) + ": the bound on time is not above the optimum");
      tight += r.secondsBound / best.cost.cost;
      logs += std::log(r.plan.seconds / best.cost.cost);
      equal += r.plan.seconds <= best.cost.cost * (1 + 1e-9);
      ++cases;
    }
    DagSolution below = solve(dag, Order::Free, least - 64);
    missed += below.status == DagSolution::Optimal || below.status == DagSolution::Feasible;
  }
  double mean = std::exp(logs / std::max(1, cases));
  std::printf("beside the exact solver: %d of %d optimal, geometric mean %.4f, the bound is %.3f of the optimum, "
              "smaller budgets exist on %d of 60\n",
              equal, cases, mean, tight / std::max(1, cases), missed);
  expect(cases >= 60 && mean <= 1.05, "near the optimum");
}

// A smaller budget never peaks higher, a larger one is never slower, and what was asked before plays no part.
// Of long loops, some of the answers come from between two rungs of the ladder (`wantsGaps`).
static void testMonotone(const std::string &name, const StepGraph &g, uint64_t seed, bool wantsGaps = false) {
  std::mt19937_64 random(seed);
  Planner planner(g);
  int64_t low = planner.search({0, 0, {}}).smallestArena, high = planner.search({std::nullopt, 0, {}}).plan.decision.arenaBytes;
  std::vector<std::pair<int64_t, SearchResult>> found;
  const size_t budgets = wantsGaps ? 8 : 24;
  for (size_t i = 0; i < budgets; ++i) {
    int64_t budget = low + int64_t(double(high - low) * std::pow(double(random() % 1000) / 1000, 2));
    found.push_back({budget, planner.search({budget, 0, {}})});
    expect(found.back().second.feasible && found.back().second.plan.decision.arenaBytes <= budget,
           name + ": a budget above the smallest is met");
    const SearchResult &r = found.back().second;
    expect(r.secondsBound <= r.plan.seconds * (1 + 1e-12), name + ": the bound on time is not above the plan");
  }
  std::sort(found.begin(), found.end(), [](auto &x, auto &y) { return x.first < y.first; });
  for (size_t i = 1; i < found.size(); ++i) {
    expect(found[i].second.plan.seconds <= found[i - 1].second.plan.seconds, name + ": a larger budget is not slower");
    expect(found[i - 1].second.plan.decision.arenaBytes <= found[i].second.plan.decision.arenaBytes,
           name + ": a smaller budget does not peak higher");
  }
  auto isBetween = [](auto &asked) { return asked.second.name == "between rungs"; };
  expect(!wantsGaps || std::any_of(found.begin(), found.end(), isBetween), name + ": some budgets lie between rungs that are far apart");
  for (size_t i = 0; i < found.size(); i += budgets == 8 ? 4 : 8) {
    SearchResult fresh = Planner(g).search({found[i].first, 0, {}});
    expect(fresh.choice.loop == found[i].second.choice.loop && fresh.choice.microbatch == found[i].second.choice.microbatch,
           name + ": the same answer from a planner that was asked nothing else");
  }
}

int main() {
  testTargets("dense 9", denseChain(9, 8, 64));
  testTargets("transformer 3", transformer(3, 64, 32, 256, 8));
  testExact();
  testMonotone("dense 9", denseChain(9, 8, 64), 1);
  testMonotone("dense 24", denseChain(24, 64, 32), 2);
  testMonotone("transformer 2", transformer(2, 64, 32, 256, 4), 3);
  testMonotone("dense 80", denseChain(80, 64, 2), 4, true);
  return tally();
}
