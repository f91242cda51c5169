// LINK: cinch_solve
// Schedules by nested structure: levels of known graphs; what their borders say counted again from the graph; schedules
// right and within the budget, for both orders; as cheap as exact search on most small chains of blocks, never cheaper;
// equal layers found once.
#include "compiler/solve/dag/DagNest.h"
#include "compiler/solve/Memory.h"
#include "test/unit/DagGraphs.h"

#include <cstdio>
#include <functional>

using namespace cinch::solve;

static int passed = 0, failed = 0;
static void expect(bool ok, const std::string &what) {
  ok ? ++passed : ++failed;
  if (!ok)
    std::printf("FAIL %s\n", what.c_str());
}

static std::vector<int> listed(const Dag &d) {
  std::vector<int> order;
  for (int v = 0; v < d.size(); ++v)
    order.push_back(v);
  return order;
}

// Levels lie inside each other, and their borders are what the edges say.
static void testLevels() {
  for (const char *family : {"chain", "unet", "transformer", "dense", "residual"})
    for (int size : {50, 100, 200}) {
      Dag d = trainingDag(family, size);
      int64_t work = INT64_MAX / 4;
      std::vector<detail::Level> levels = detail::findLevels(d, listed(d), work);
      std::string name = family + std::to_string(size);
      expect(levels.size() >= 3, name + " has levels");
      bool nested = true, borders = true;
      for (size_t j = 0; j < levels.size(); ++j) {
        const detail::Level &l = levels[j];
        if (j)
          nested &= levels[j - 1].begin < l.begin && l.begin <= l.end && l.end <= levels[j - 1].end;
        std::vector<int> in, out;
        for (int v = 0; v < d.size(); ++v) {
          bool inside = v >= l.begin && v < l.end;
          const std::vector<int> &users = d.nodes[v].users;
          auto readBy = [&](auto within) { return std::any_of(users.begin(), users.end(), within); };
          if (v < l.begin && readBy([&](int w) { return w >= l.begin && w < l.end; }))
            in.push_back(v);
          if (inside && readBy([&](int w) { return w >= l.end; }))
            out.push_back(v);
        }
        borders &= in == l.in && out == l.out;
      }
      expect(nested, name + ": each level lies in the one before");
      expect(borders, name + ": values cross the borders as the levels say");
      if (std::string(family) == "transformer" || std::string(family) == "chain")
        expect(std::all_of(levels.begin() + 1, levels.end(),
                           [](const detail::Level &l) { return l.in.size() == 1 && l.out.size() == 1; }),
               name + ": one value crosses each way");
    }
}

static void testSchedules() {
  for (const char *family : {"chain", "unet", "transformer", "dense", "residual"})
    for (int size : {50, 100, 200})
      for (Order order : {Order::Free, Order::Given}) {
        Dag d = trainingDag(family, size);
        int64_t high = simulate(d, listed(d)).peak, low = detail::memoryBound(d);
        for (double share : {0.9, 0.5, 0.2, 0.05}) {
          int64_t budget = low + int64_t(share * double(high - low)), work = 100'000'000;
          std::string name = family + std::to_string(size) + " at " + std::to_string(share) +
                             (order == Order::Free ? " free" : " given");
          std::vector<Runs> found = detail::nestedRuns(d, order, listed(d), budget, work, 0);
          for (const Runs &runs : found) {
            std::string wrong = verify(d, order, budget, withFrees(d, runs), simulate(d, runs));
            expect(wrong.empty(), name + ": " + wrong);
          }
          bool regular = std::string(family) != "dense" && std::string(family) != "unet";
          if (regular && share > 0.1)
            expect(!found.empty(), name + ": there is a schedule");
        }
      }
  // Where the gradient in front of a sum is cheaper to hold than the sum's own, and what a block reads has to be got
  // back in its middle.
  for (int size : {50, 100, 200, 400}) {
    Dag d = trainingDag("residual", size);
    int64_t work = INT64_MAX / 4, budget = detail::memoryBound(d) * 21 / 20;
    expect(!detail::nestedRuns(d, Order::Free, listed(d), budget, work, 0).empty(),
           "residual" + std::to_string(size) + " within 1.05 of the bound");
  }
}

static void testAgainstExact() {
  int cases = 0, equal = 0, cheaper = 0, missing = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    ForwardGraph g(seed);
    using F = ForwardGraph;
    int h = g.add("x", 1, g.around(40, 2), {}, F::Nothing);
    // Layers of one or two operations; some with a sum around them.
    for (int layer = 0; layer < 3; ++layer) {
      int c = g.add("conv", g.around(100, 4), g.around(60, 3), {h}, F::Inputs);
      if (seed % 3 == 0 && layer < 2)
        c = g.add("sum", 5, g.around(60, 2), {c, h}, F::Nothing, 1);
      h = seed % 2 ? c : g.add("act", 4, g.around(60, 2), {c}, F::Output, 1);
    }
    Dag d = g.train();
    int64_t high = simulate(d, listed(d)).peak, low = detail::memoryBound(d);
    for (int step = 0; step <= 8; ++step) {
      int64_t budget = low + (high - low) * step / 8, work = INT64_MAX / 4, left = 20'000'000;
      detail::ExactResult exact = detail::searchExact(d, Order::Given, budget, 1e300, left, 0);
      if (!exact.complete)
        continue;
      std::vector<Runs> found = detail::nestedRuns(d, Order::Given, listed(d), budget, work, 0);
      if (!exact.found) {
        expect(found.empty(), "a schedule where there is none");
        continue;
      }
      ++cases;
      if (found.empty()) {
        ++missing;
        continue;
      }
      double best = simulate(d, exact.runs).cost, cost = simulate(d, found[0]).cost;
      equal += cost <= best + 1e-9, cheaper += cost < best - 1e-9;
    }
  }
  expect(cases > 150, "cases with an exact answer: " + std::to_string(cases));
  expect(cheaper == 0, std::to_string(cheaper) + " schedules cheaper than the cheapest");
  std::printf("%d cases, %d equal, %d missing\n", cases, equal, missing);
  expect(equal * 10 >= cases * 8,
         "as cheap as exact search in " + std::to_string(equal) + " of " + std::to_string(cases));
  expect(missing * 10 <= cases, "none found in " + std::to_string(missing) + " of " + std::to_string(cases));
}

// Twice the layers are no more than twelve times the work: equal blocks are looked at once.
static void testEqualLayers() {
  int64_t used[2];
  for (int k = 0; k < 2; ++k) {
    Dag d = trainingDag("transformer", k ? 800 : 400);
    int64_t work = INT64_MAX / 4, budget = simulate(d, listed(d)).peak / 4;
    std::vector<Runs> found = detail::nestedRuns(d, Order::Free, listed(d), budget, work, 0);
    used[k] = INT64_MAX / 4 - work;
    expect(!found.empty() && simulate(d, found[0]).peak <= budget, "a transformer of many layers");
  }
  expect(used[1] < 12 * used[0],
         "work for twice the layers: " + std::to_string(used[0]) + ", " + std::to_string(used[1]));
}

// So many levels that rows of blocks are taken as one: what block ways of a row say is checked by the schedules.
static void testManyLevels() {
  for (const char *family : {"chain", "transformer", "unet", "residual"})
    for (Order order : {Order::Free, Order::Given}) {
      Dag d = trainingDag(family, std::string(family) == "residual" ? 3000 : 1500);
      int64_t high = simulate(d, listed(d)).peak, low = detail::memoryBound(d);
      for (double share : {0.5, 0.05, 0.005}) {
        int64_t budget = low + int64_t(share * double(high - low)), work = 60'000'000;
        std::string name = family + std::string(" of many levels at ") + std::to_string(share);
        std::vector<Runs> found = detail::nestedRuns(d, order, listed(d), budget, work, 0);
        expect(share < 0.01 || !found.empty(), name + ": there is a schedule");
        for (const Runs &runs : found) {
          std::string wrong = verify(d, order, budget, withFrees(d, runs), simulate(d, runs));
          expect(wrong.empty(), name + ": " + wrong);
        }
      }
    }
}

int main() {
  testLevels();
  testSchedules();
  testAgainstExact();
  testEqualLayers();
  testManyLevels();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
