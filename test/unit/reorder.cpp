// LINK: cinch_solve
// The order of the loop: what `reorder` returns are the same runs, proved by the plan checker, with a peak that is no
// higher; from random legal orders of training graphs it comes back near the peak of the best order known; on small
// graphs it is compared with every order there is; no run keeps others' bytes waiting to stand where little is alive.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Reorder.h"
#include "compiler/solve/Search.h"

#include <cstdio>
#include <random>

using namespace cinch::solve;

static int64_t peakOf(const GraphIndex &index, int64_t b, const std::vector<int> &loop) {
  Timeline line(index);
  return line.build(b, loop) ? line.peak : -1;
}

static void prove(const StepGraph &g, int64_t b, const std::vector<int> &loop, const std::string &name) {
  Plan plan = evaluate(g, {b, loop});
  std::string why = plan.error;
  if (why.empty()) {
    ScheduledProgram program = scheduledProgram(g, plan.decision);
    program.peakLive = plan.peakLive;
    why = checkPlan(g, program);
  }
  expect(why.empty(), name + ": " + why);
}

// Random orders, and schedules with recomputation, of a training graph.
static void testTraining(const std::string &name, const StepGraph &g, double near) {
  GraphIndex index(g);
  int64_t b = g.batch;
  std::vector<int> known = reorder(index, b, index.loop, true);
  int64_t best = peakOf(index, b, known);
  expect(best > 0 && best <= peakOf(index, b, index.loop), name + ": not above the order of the file");
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::string which = name + ", seed " + std::to_string(seed);
    std::vector<int> drawn = shuffled(index, index.loop, seed), a = drawn, c = index.loop;
    prove(g, b, drawn, which + " as drawn");
    std::vector<int> better = reorder(index, b, drawn, true);
    std::sort(a.begin(), a.end()), std::sort(c.begin(), c.end());
    expect(a == c, which + ": a permutation");
    prove(g, b, better, which + " reordered");
    int64_t before = peakOf(index, b, drawn), after = peakOf(index, b, better);
    expect(after <= before, which + ": not above what it was");
    expect(double(after) <= near * double(best),
           which + ": " + std::to_string(after) + " from " + std::to_string(before) + ", known " + std::to_string(best));
    // The whole search from a drawn order keeps what it promises.
    Planner planner(g, seed);
    SearchResult small = planner.search({0, 0, {}}), r = planner.search({small.smallestArena, 0, {}});
    expect(r.feasible && r.plan.decision.arenaBytes <= small.smallestArena, which + ": the smallest budget is met");
    prove(g, r.choice.microbatch, r.choice.loop, which + " planned");
  }
  Sweep sweep(index);
  for (const RematCandidate &candidate : candidates(sweep, b)) {
    std::vector<int> better = reorder(index, b, candidate.loop, false);
    int64_t before = peakOf(index, b, candidate.loop), after = peakOf(index, b, better);
    expect(after >= 0 && after <= before, name + ", " + candidate.name + ": not above what it was");
    if (better != candidate.loop)
      prove(g, b, better, name + ", " + candidate.name);
  }
}

// Random graphs of up to 8 kernels: all orders.
static void testSmall() {
  std::mt19937_64 random(7);
  int equal = 0, graphs = 400;
  for (int i = 0; i < graphs; ++i) {
    GraphBuilder b;
    int n = 4 + int(random() % 5);
    std::vector<int> values;
    for (int k = 0; k < n; ++k) {
      std::vector<int> reads;
      for (int v : values)
        if (random() % 3 == 0)
          reads.push_back(v);
      int64_t bytes = 64 * int64_t(1 + random() % 8);
      int w = b.value("v" + std::to_string(k), 0, bytes);
      b.kernel("k" + std::to_string(k), reads, {w}, 1, true);
      for (int r : reads)
        if (b.g.buffers[r].fixedBytes == bytes && random() % 2)
          b.inPlace(w, r);
      values.push_back(w);
    }
    GraphIndex index(b.g);
    std::vector<int> order = index.loop;
    int64_t least = INT64_MAX, start = peakOf(index, 1, index.loop);
    do {
      std::vector<int> at(n);
      bool legal = true;
      for (int p = 0; p < n; ++p)
        at[order[p]] = p;
      for (int k = 0; k < n && legal; ++k)
        for (int r : b.g.kernels[k].reads)
          legal &= at[b.g.buffers[r].producer] < at[k];
      if (legal)
        least = std::min(least, peakOf(index, 1, order));
    } while (std::next_permutation(order.begin(), order.end()));
    int64_t got = peakOf(index, 1, reorder(index, 1, index.loop, false, 20));
    expect(got <= start && got >= least, "graph " + std::to_string(i) + ": between the best order and the file's");
    equal += got == least;
  }
  std::printf("small graphs: the best order is found on %d of %d\n", equal, graphs);
  expect(equal >= graphs * 7 / 10, "the best order is found on most small graphs");
}

// Layers that keep wide values for the backward sweep, whose gradients are narrow. Each gradient is read by the layer before and by a sum. The later
// a sum runs, the less is alive beside it, but its gradient waits for it: it stays with the layer.
static void testReadersStay() {
  constexpr int kLayers = 8;
  GraphBuilder b;
  int x = b.persistent("x", 64);
  std::vector<int> wide;
  for (int i = 0; i < kLayers; ++i) {
    wide.push_back(b.value("wide", 0, 6400));
    b.kernel("forward", {i ? wide[size_t(i) - 1] : x}, {wide.back()}, 1, true);
  }
  b.backward = true;
  std::vector<int> layers, sums;
  int gradient = b.value("gradient", 0, 640);
  b.kernel("loss", {wide.back()}, {gradient}, 1, true);
  for (int i = kLayers; i-- > 0;) {
    int next = b.value("gradient", 0, 640);
    layers.push_back(b.kernel("backward", {gradient, wide[size_t(i)]}, {next}, 1, true));
    sums.push_back(b.kernel("sum", {gradient}, {b.accumulator("sum", 64)}, 1, true));
    gradient = next;
  }
  GraphIndex index(b.g);
  std::vector<int> order = reorder(index, 1, index.loop, true);
  auto placeOf = [&](int kernel) { return std::find(order.begin(), order.end(), kernel) - order.begin(); };
  for (size_t i = 0; i + 1 < sums.size(); ++i)
    expect(placeOf(sums[i]) < placeOf(layers[i + 1]), "the sum of layer " + std::to_string(i) + " runs before the next layer");
}

int main() {
  testSmall();
  testReadersStay();
  testTraining("dense 9", denseChain(9, 8, 64), 1.02);
  testTraining("transformer 3", transformer(3, 64, 32, 256, 8), 1.15);
  return tally();
}
