// LINK: cinch_solve
// The bound on the time of a step never exceeds a plan: on random small steps with skips, work in place, scratch, kernels of two
// values, sums over the examples and values made before the loop, at budgets from the smallest that has a plan, for each micro-batch.
#include "test/unit/Expect.h"
#include "compiler/solve/Random.h"
#include "compiler/solve/Search.h"
#include "compiler/solve/StepBound.h"
#include "TrainingGraphs.h"

#include <cstdlib>

using namespace cinch::solve;

// A sweep there and back over values of random sizes: gradients read what they need of the way there.
static StepGraph randomStep(Random &random) {
  StepGraph g;
  g.batch = 4;
  g.threads = 1;
  auto buffer = [&](Buffer::Kind kind, int64_t fixed, int64_t perExample, int producer) {
    Buffer b;
    b.kind = kind, b.fixedBytes = fixed, b.perExampleBytes = perExample, b.producer = producer;
    b.name = "v" + std::to_string(g.buffers.size());
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  };
  auto kernel = [&](int section, std::vector<int> reads, bool backward) {
    Kernel k;
    k.section = section, k.reads = std::move(reads), k.backward = backward;
    k.seconds = {double(1 + random.below(3)), double(1 + random.below(5))};
    if (random.below(2))
      k.seconds.near.push_back({double(1 + random.below(3)), 0.5 * k.seconds.perExample});
    if (random.below(3) == 0)
      k.seconds.uneven.push_back({double(1 + random.below(4)), double(random.below(4))});
    k.scratch = 64 * random.below(3);
    k.name = "k" + std::to_string(g.kernels.size());
    g.kernels.push_back(k);
    return int(g.kernels.size()) - 1;
  };
  auto write = [&](int k, int64_t perExample) {
    int b = buffer(Buffer::Value, 0, perExample, k);
    g.kernels[k].writes.push_back(b);
    for (int r : g.kernels[k].reads)
      if (g.buffers[r].kind == Buffer::Value && g.buffers[r].perExampleBytes == perExample && random.below(2))
        g.kernels[k].inPlace.push_back({b, r});
    return b;
  };
  auto size = [&] { return 64 * (1 + random.below(4)); };
  int weights = buffer(Buffer::Persistent, 256, 0, -1), x = buffer(Buffer::Persistent, 0, 64, -1);
  int before = kernel(0, {weights}, false), prepared = buffer(Buffer::Value, 128, 0, before);
  g.kernels[before].writes.push_back(prepared);
  int layers = 3 + int(random.below(5));
  std::vector<int> values{x};
  for (int i = 0; i < layers; ++i) {
    std::vector<int> reads{values.back(), random.below(2) ? weights : prepared};
    if (i > 1 && random.below(3) == 0)
      reads.push_back(values[1 + size_t(random.below(i - 1))]);
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    int k = kernel(1, reads, false);
    values.push_back(write(k, size()));
    if (random.below(4) == 0)
      write(k, size()); // a second value, for the way back
  }
  int gradient = write(kernel(1, {values.back()}, true), size());
  int after = kernel(2, {}, true);
  g.kernels[after].recomputable = false;
  for (int i = layers; i > 0; --i) {
    std::vector<int> reads{gradient, values[size_t(i) - 1]};
    for (int w : g.kernels[g.buffers[values[i]].producer].writes)
      if (random.below(2))
        reads.push_back(w);
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    int sum = buffer(Buffer::Accumulator, 64, 0, -1), k = kernel(1, reads, true);
    g.kernels[k].writes.push_back(sum), g.kernels[k].recomputable = false;
    g.buffers[sum].producer = k;
    g.kernels[after].reads.push_back(sum);
    gradient = write(kernel(1, reads, true), size());
  }
  std::stable_partition(g.kernels.begin(), g.kernels.end(), [](const Kernel &k) { return k.section != 2; });
  std::vector<int> place(g.kernels.size());
  for (int k = 0; k < int(g.kernels.size()); ++k)
    place[std::atoi(g.kernels[k].name.c_str() + 1)] = k;
  for (Buffer &b : g.buffers)
    if (b.producer >= 0)
      b.producer = place[b.producer];
  return g;
}

int main(int argc, char **argv) {
  int graphs = argc > 1 ? std::atoi(argv[1]) : 400;
  Random random = Random::seeded(11);
  int plans = 0, exact = 0, repeats = 0;
  for (int i = 0; i < graphs; ++i) {
    Case one;
    StepGraph g = randomStep(random);
    g.sumsBeginLate = i % 2 == 1; // counts at the micro-batch of all examples
    Planner planner(g);
    for (int64_t b : {int64_t(1), int64_t(4)}) {
      SearchOptions options;
      options.microbatch = b;
      SearchResult free = planner.search(options);
      expect(free.feasible, "graph " + std::to_string(i) + " has a plan without a budget: " + free.error);
      if (!free.feasible)
        continue;
      options.arenaBudget = 0;
      int64_t low = planner.search(options).smallestArena, high = free.plan.decision.arenaBytes;
      for (int step = 0; step < 3; ++step) {
        options.arenaBudget = low + (high - low) * step / 3;
        SearchResult r = planner.search(options);
        if (!r.feasible)
          continue;
        DagLimits limits;
        limits.work = 3'000'000;
        StepBound bound = stepBound(g, b, options.arenaBudget, r.plan.seconds, limits);
        expect(bound.fault.empty(), "graph " + std::to_string(i) + ", micro-batch " + std::to_string(b) + ", " +
                                        std::to_string(*options.arenaBudget) + " bytes: " + bound.fault);
        expect(bound.seconds >= free.plan.seconds * (1 - 1e-9) || free.plan.recomputed > 0, "and is not below the step without repetition");
        double plain = stepBound(g, b, {}, r.plan.seconds).seconds;
        expect(stepBound(g, b, options.arenaBudget, plain * (1 + 1e-12), limits).seconds == plain, "what differs by rounding alone is not repetition");
        ++plans, repeats += r.plan.recomputed > 0, exact += bound.seconds >= r.plan.seconds * (1 - 1e-6);
      }
    }
  }
  std::printf("%d plans, %d of them compute something again, %d are proven to be the fastest\n", plans, repeats, exact);
  expect(repeats > plans / 10, "budgets make plans compute something again");
  return tally();
}
