// LINK: cinch_solve
// Rematerialization on any graph: equal to brute force on small random graphs at every budget for both orders; the
// verifier rejects wrong schedules; larger graphs give right schedules and bounds. Arguments: graphs, nodes: only the
// comparison.
#include "test/unit/Expect.h"
#include "compiler/solve/dag/Dag.h"
#include "test/unit/DagGraphs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <queue>
#include <set>

using namespace cinch::solve;

struct Rng {
  uint64_t state;
  int below(int n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return int((state >> 33) % uint64_t(n));
  }
};

static void addEdge(Dag &d, int u, int v) {
  if (std::find(d.nodes[v].sources.begin(), d.nodes[v].sources.end(), u) != d.nodes[v].sources.end())
    return;
  d.nodes[v].sources.push_back(u), d.nodes[u].users.push_back(v);
}

static Dag randomDag(Rng &rng, int n) {
  Dag d;
  d.nodes.resize(n);
  int density = 1 + rng.below(3), costs = rng.below(3) ? 10 : 2, sizes = rng.below(3) ? 8 : 2;
  for (int v = 0; v < n; ++v) {
    d.nodes[v].id = v, d.nodes[v].cost = rng.below(costs), d.nodes[v].bytes = rng.below(sizes) + rng.below(2);
    if (v && rng.below(3))
      addEdge(d, v - 1, v);
    for (int k = rng.below(density + 1); v && k > 0; --k)
      addEdge(d, rng.below(v), v);
  }
  return d;
}

// Every state (computed once, held) with every computation and every single free, cheapest first. Returns -1 if
// impossible.
static double bruteForce(const Dag &d, Order order, int64_t budget) {
  int n = d.size();
  std::map<std::pair<int, int>, double> cost;
  using Entry = std::pair<double, std::pair<int, int>>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
  cost[{0, 0}] = 0;
  queue.push({0, {0, 0}});
  while (!queue.empty()) {
    auto [c, s] = queue.top();
    queue.pop();
    auto [done, held] = s;
    if (cost[s] < c)
      continue;
    if (done == (1 << n) - 1)
      return c;
    int64_t bytes = 0;
    for (int v = 0; v < n; ++v)
      if (held >> v & 1)
        bytes += d.nodes[v].bytes;
    auto go = [&](int done2, int held2, double c2) {
      auto it = cost.find({done2, held2});
      if (it != cost.end() && it->second <= c2)
        return;
      cost[{done2, held2}] = c2;
      queue.push({c2, {done2, held2}});
    };
    for (int v = 0; v < n; ++v) {
      if (held >> v & 1) {
        go(done, held & ~(1 << v), c);
        continue;
      }
      bool ready = bytes + d.nodes[v].bytes <= budget;
      for (int u : d.nodes[v].sources)
        ready &= held >> u & 1;
      bool first = !(done >> v & 1);
      if (first && order == Order::Given)
        ready &= done == (1 << v) - 1;
      if (ready)
        go(done | 1 << v, held | 1 << v, c + d.nodes[v].cost);
    }
  }
  return -1;
}

// How many of the lower bounds lie above the least extra cost.
static int boundsAbove(const Dag &d, Order order, int64_t budget, double extra, const std::string &name, bool print) {
  int above = 0;
  for (int method = 0; method < 5; ++method) {
    int64_t work = 2'000'000;
    double bound = method == 0   ? detail::cutBound(d, order, budget, work, 0)
                   : method == 1 ? detail::windowBound(d, order, budget, extra + 1, work, 0)
                   : method == 2 ? detail::intervalBound(d, order, budget, extra + 1, work, 0)
                   : method == 3 ? detail::gateBound(d, order, budget, extra + 1, work, 0)
                                 : detail::exactBound(d, order, budget, extra + 1, work, 0);
    if (bound <= extra + 1e-9)
      continue;
    ++above;
    if (print)
      std::printf("  %s, %d nodes, budget %lld: bound %d is %g, least %g\n", name.c_str(), d.size(), (long long)budget,
                  method, bound, extra);
  }
  return above;
}

// Training graphs of every family, scaled down: where repetition is repeated, every bound against the exact search at
// every budget.
static void testSmallTraining() {
  using F = ForwardGraph;
  int above = 0, cases = 0, repeated = 0;
  for (int kind = 0; kind < 5; ++kind)
    for (uint64_t seed = 1; seed <= 9; ++seed) {
      bool farApart = seed > 6; // some values are much larger than others
      F g(seed * 31 + uint64_t(kind));
      auto cost = [&] { return std::round(g.around(6, 4)); };
      auto bytes = [&] { return 1 + std::floor(4 * g.unit()); };
      int h = g.add("x", 1, bytes(), {}, F::Nothing);
      if (kind == 0) { // chain
        for (int i = 0; i < 5; ++i)
          h = g.add("f", cost(), bytes(), {h}, i % 2 ? F::Output : F::Inputs);
      } else if (kind == 1) { // U-shape
        int across = g.add("down", cost(), 4, {h}, F::Inputs);
        h = g.add("low", cost(), 1, {across}, F::Output);
        h = g.add("up", cost(), 2, {h}, F::Inputs);
        h = g.add("concat", 1, 6, {h, across}, F::Nothing, 1);
        h = g.add("conv", cost(), 2, {h}, F::Inputs);
      } else if (kind == 2) { // attention and what is added to its input
        int y = g.add("qkv", cost(), 3, {h}, F::Inputs);
        int o = g.add("attend", cost(), 1, {y}, F::Inputs);
        h = g.add("add", 1, 1, {h, o}, F::Nothing, 1);
        h = g.add("up", cost(), 4, {h}, F::Inputs);
        h = g.add("down", cost(), 1, {h}, F::Inputs);
      } else if (kind == 3) { // dense block
        std::vector<int> all{h};
        for (int i = 0; i < 4; ++i)
          all.push_back(g.add("f", cost(), bytes(), all, F::Inputs));
        h = g.add("concat", 1, 4, all, F::Nothing, 1);
      } else { // residual
        for (int b = 0; b < 2; ++b) {
          int c = g.add("conv", cost(), bytes(), {h}, F::Inputs);
          h = g.add("add", 1, bytes(), {c, h}, F::Output, 1);
        }
      }
      g.add("loss", 1, 1, {h}, F::Inputs, 1);
      Dag d = g.train();
      Runs all;
      for (int v = 0; v < d.size(); ++v) {
        all.push_back(v);
        d.nodes[v].bytes += farApart && v % 3 ? 40 : 0;
      }
      std::string name = "training graph " + std::to_string(kind) + "." + std::to_string(seed);
      for (Order order : {Order::Given, Order::Free})
        for (int64_t budget = detail::memoryBound(d), high = simulate(d, all).peak; budget < high; budget += farApart ? 5 : 1) {
          int64_t work = 400'000'000;
          detail::ExactResult r = detail::searchExact(d, order, budget, 1e300, work, 0);
          if (!r.found)
            continue;
          ++cases;
          double extra = simulate(d, r.runs).cost - detail::totalCost(d);
          std::vector<int> times(d.size(), 0);
          for (int v : r.runs)
            ++times[v];
          repeated += *std::max_element(times.begin(), times.end()) > 2;
          above += boundsAbove(d, order, budget, extra, name, above < 5);
        }
    }
  expect(above == 0, std::to_string(above) + " bounds of training graphs lie above the least cost");
  expect(cases > 100 && repeated > 10, "training graphs: " + std::to_string(cases) + " cases, " +
                                          std::to_string(repeated) + " that compute a value three times");
}

static void compare(int graphs, int most) {
  Rng rng{4711};
  int wrong = 0, cases = 0, bounds = 0;
  for (int k = 0; k < graphs; ++k) {
    Dag d = randomDag(rng, 1 + rng.below(most));
    for (Order order : {Order::Given, Order::Free}) {
      std::string name = "graph " + std::to_string(k) + (order == Order::Given ? " given" : " free");
      // Every budget from just too small to what keep-all needs.
      Runs all;
      for (int v = 0; v < d.size(); ++v)
        all.push_back(v);
      int64_t high = simulate(d, all).peak, low = detail::memoryBound(d);
      int64_t least = -1;
      for (int64_t budget = std::max<int64_t>(0, low - 1); budget <= high; ++budget) {
        double best = bruteForce(d, order, budget);
        if (best >= 0 && least < 0)
          least = budget;
        DagSolution s = solve(d, order, budget);
        ++cases;
        bool ok;
        if (best < 0)
          ok = s.status == DagSolution::Infeasible && s.leastBudget > budget;
        else
          ok = s.status == DagSolution::Optimal && std::abs(s.cost.cost - best) < 1e-9 && s.leastBudget == least &&
               verify(d, order, budget, withFrees(d, s.runs), s.cost).empty();
        // None of the bounds is needed on small graphs.
        if (best >= 0 && k % 4 == 0)
          bounds += boundsAbove(d, order, budget, best - detail::totalCost(d), name, bounds < 5);
        if (!ok && ++wrong <= 5)
          std::printf("  %s, %d nodes, budget %lld: status %d cost %g bound %g least %lld (%lld), brute force %g; %s\n",
                      name.c_str(), d.size(), (long long)budget, int(s.status), s.cost.cost, s.bound,
                      (long long)s.leastBudget, (long long)least, best,
                      verify(d, order, budget, withFrees(d, s.runs), s.cost).c_str());
      }
    }
  }
  expect(wrong == 0, std::to_string(wrong) + " of " + std::to_string(cases) + " cases differ from brute force");
  expect(bounds == 0, std::to_string(bounds) + " bounds lie above the least cost");
}

// A bound is compared with the cost that was found, never cut down to it.
static void testJudge() {
  auto judged = [](double bound, bool complete) {
    DagSolution s;
    s.cost.cost = 1000;
    detail::judge(s, bound, complete);
    return s;
  };
  DagSolution below = judged(900, false), equal = judged(1000, false), rounded = judged(1000 + 1e-9, false);
  expect(below.status == DagSolution::Feasible && below.bound == 900 && below.fault.empty(), "a bound below the cost");
  expect(equal.status == DagSolution::Optimal && equal.bound == 1000 && equal.fault.empty(), "a bound that is the cost");
  expect(rounded.status == DagSolution::Optimal && rounded.bound == 1000 && rounded.fault.empty(), "a bound rounded up");
  expect(judged(900, true).status == DagSolution::Optimal && judged(900, true).bound == 1000, "a complete search");
  for (bool complete : {false, true}) {
    DagSolution wrong = judged(1000.01, complete);
    expect(wrong.status == DagSolution::Unknown && wrong.fault.find("below the bound") != std::string::npos,
           "a bound above the cost is a fault");
  }
}

// A training graph in the shape of a chain: gradient i needs the gradient before it and two activations.
static Dag trainingChain(int layers, Rng &rng) {
  Dag d;
  int n = 2 * layers + 1;
  d.nodes.resize(n);
  for (int v = 0; v < n; ++v)
    d.nodes[v].id = v, d.nodes[v].cost = 1 + rng.below(20), d.nodes[v].bytes = 100 + rng.below(900);
  for (int v = 1; v < n; ++v)
    addEdge(d, v - 1, v);
  for (int i = 0; i < layers; ++i) {
    addEdge(d, layers - 1 - i, layers + 1 + i);
    if (i + 1 < layers)
      addEdge(d, layers - 2 - i, layers + 1 + i);
  }
  return d;
}

static void testVerify() {
  Rng rng{99};
  Dag d = trainingChain(6, rng);
  int64_t budget = detail::memoryBound(d) + 900;
  DagSolution s = solve(d, Order::Given, budget);
  expect(s.status == DagSolution::Optimal && s.runs.size() > size_t(d.size()), "the chain needs repetition");
  std::vector<int> good = withFrees(d, s.runs);
  expect(verify(d, Order::Given, budget, good, s.cost).empty(),
         "verify accepts: " + verify(d, Order::Given, budget, good, s.cost));
  auto reject = [&](const char *kind, const std::function<bool(std::vector<int> &, Cost &, size_t)> &mutate) {
    int planted = 0, accepted = 0;
    for (size_t i = 0; i < good.size(); ++i) {
      std::vector<int> bad = good;
      Cost claimed = s.cost;
      if (!mutate(bad, claimed, i))
        continue;
      ++planted;
      accepted += verify(d, Order::Given, budget, bad, claimed).empty();
    }
    expect(planted > 0 && !accepted,
           std::string(kind) + ": " + std::to_string(accepted) + " of " + std::to_string(planted) + " accepted");
  };
  using S = std::vector<int>;
  reject("a computation left out", [](S &b, Cost &, size_t i) { return b[i] >= 0 && (b.erase(b.begin() + i), true); });
  reject("a computation twice",
         [](S &b, Cost &, size_t i) { return b[i] >= 0 && (b.insert(b.begin() + i, int(b[i])), true); });
  reject("a free twice", [](S &b, Cost &, size_t i) { return b[i] < 0 && (b.insert(b.begin() + i, int(b[i])), true); });
  reject("a free too early", [](S &b, Cost &, size_t i) {
    return i > 0 && b[i] < 0 && b[i - 1] >= 0 && (std::swap(b[i], b[i - 1]), true);
  });
  reject("a free before any computation",
         [](S &b, Cost &, size_t i) { return b[i] < 0 && (b.insert(b.begin(), int(b[i])), true); });
  reject("a node that does not exist", [&](S &b, Cost &, size_t i) { return b[i] >= 0 && (b[i] = d.size(), true); });
  reject("a free of a node that does not exist",
         [&](S &b, Cost &, size_t i) { return b[i] < 0 && (b[i] = ~d.size(), true); });
  reject("another node computed",
         [&](S &b, Cost &, size_t i) { return b[i] >= 0 && (b[i] = (b[i] + 1) % d.size(), true); });
  reject("another node freed",
         [&](S &b, Cost &, size_t i) { return b[i] < 0 && (b[i] = ~((~b[i] + 3) % d.size()), true); });
  reject("computed instead of freed", [](S &b, Cost &, size_t i) { return b[i] < 0 && (b[i] = ~b[i], true); });
  reject("freed instead of computed", [](S &b, Cost &, size_t i) { return b[i] >= 0 && (b[i] = ~b[i], true); });
  reject("a cost too small", [](S &, Cost &c, size_t i) { return i == 0 && (c.cost -= 1, true); });
  reject("a cost too large", [](S &, Cost &c, size_t i) { return i == 0 && (c.cost += 1, true); });
  reject("a peak too small", [](S &, Cost &c, size_t i) { return i == 0 && (c.peak -= 1, true); });
  reject("a peak too large", [](S &, Cost &c, size_t i) { return i == 0 && (c.peak += 1, true); });
  reject("a schedule cut short", [](S &b, Cost &, size_t i) {
    return std::any_of(b.begin() + i, b.end(), [](int v) { return v >= 0; }) && (b.resize(i), true);
  });
  reject("a schedule that starts late",
         [](S &b, Cost &, size_t i) { return i > 0 && (b.erase(b.begin(), b.begin() + i), true); });
  reject("a schedule twice",
         [](S &b, Cost &, size_t i) { return i == 0 && (b.insert(b.end(), b.begin(), b.begin() + b.size()), true); });
  reject("a schedule backwards",
         [](S &b, Cost &, size_t i) { return i == 0 && (std::reverse(b.begin(), b.end()), true); });
  reject("an empty schedule", [](S &b, Cost &, size_t i) { return i == 0 && (b.clear(), true); });
  reject("nothing freed", [](S &b, Cost &, size_t i) {
    b.erase(std::remove_if(b.begin(), b.end(), [](int v) { return v < 0; }), b.end());
    return i == 0;
  });
  std::string over = verify(d, Order::Given, s.cost.peak - 1, good, s.cost);
  expect(!over.empty(), "verify rejects a budget that the schedule breaks");
  // The order of first computations: two independent nodes swapped are right when the order is free and wrong when
  // given.
  Dag pair;
  pair.nodes.resize(2);
  pair.nodes[1].id = 1;
  expect(verify(pair, Order::Free, 0, {1, 0}, {0, 0}).empty(), "a free order is free");
  for (int64_t empty : {0, 10}) {
    DagSolution nothing = solve(Dag(), Order::Free, empty);
    expect(nothing.status == DagSolution::Optimal && nothing.runs.empty() && nothing.cost.cost == 0 && nothing.cost.peak == 0,
           "a graph without nodes has an empty schedule");
    expect(verify(Dag(), Order::Free, empty, {}, nothing.cost).empty(), "the empty schedule of a graph without nodes is right");
  }
  expect(!verify(pair, Order::Given, 0, {1, 0}, {0, 0}).empty(), "a given order is given");
}

static void testLarger() {
  Rng rng{5};
  for (int layers : {12, 25, 50}) {
    Dag d = trainingChain(layers, rng);
    Runs all;
    for (int v = 0; v < d.size(); ++v)
      all.push_back(v);
    int64_t high = simulate(d, all).peak, low = detail::memoryBound(d);
    for (int percent : {90, 50, 20}) {
      int64_t budget = low + (high - low) * percent / 100;
      DagLimits limits;
      limits.work = 30'000'000;
      DagSolution s = solve(d, Order::Given, budget, limits), again = solve(d, Order::Given, budget, limits);
      std::string name = "chain of " + std::to_string(layers) + " at " + std::to_string(percent) + " %: ";
      bool has = s.status == DagSolution::Optimal || s.status == DagSolution::Feasible;
      expect(has, name + "a schedule is found");
      expect(verify(d, Order::Given, budget, withFrees(d, s.runs), s.cost).empty(), name + "the schedule is right");
      expect(s.bound <= s.cost.cost, name + "the bound is one");
      expect(s.runs == again.runs, name + "the answer is deterministic");
    }
  }
}

// Sums of costs and bytes stay finite: what could overflow is refused.
static void testLimits() {
  auto refused = [](const std::string &why, double cost, int64_t bytes, int nodes) {
    Dag d;
    d.nodes.resize(nodes);
    for (int v = 0; v < nodes; ++v)
      d.nodes[v].id = v, d.nodes[v].cost = cost, d.nodes[v].bytes = bytes;
    std::string wrong = check(d, Order::Free);
    expect(why.empty() ? wrong.empty() : wrong.find(why) != std::string::npos, "expected a refusal with `" + why + "`, got `" + wrong + "`");
  };
  refused("must be finite", INFINITY, 4, 1);
  refused("must be finite", NAN, 4, 1);
  refused("node 1: more than 2^60 bytes or a cost above 1e100", 6e99, 4, 2);
  refused("node 128: more than 2^60 bytes", 1, int64_t(1) << 53, 129);
  refused("", 1e15, int64_t(1) << 53, 128);
}

int main(int argc, char **argv) {
  if (argc == 3) {
    compare(std::atoi(argv[1]), std::atoi(argv[2]));
  } else {
    testVerify();
    testLimits();
    testJudge();
    compare(200, 8);
    testSmallTraining();
    testLarger();
  }
  return tally();
}
