// LINK: cinch_solve
// plan_cache.cpp: an entry is believed only as far as it can be checked: choices that are no plan, do not fit or are of
// another problem are not found again, though their checksum is right.
#include "test/unit/Expect.h"
#include "compiler/solve/PlanCache.h"
#include "test/unit/TrainingGraphs.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"

#include <cstdio>
#include <set>

using namespace cinch::solve;

int main() {
  llvm::SmallString<128> folder;
  if (llvm::sys::fs::createUniqueDirectory("cinch-plan-cache", folder)) {
    std::printf("no temporary folder\n0 passed, 1 failed\n");
    return 1;
  }
  PlanCache cache(folder.str().str()), none("");
  StepGraph graph = denseChain(6, 256, 128), other = denseChain(7, 256, 128);
  PlanCache::Graphs graphs = {&graph}, both = {&other, &graph};
  SearchOptions options;
  Planner planner(graph);
  SearchResult free = planner.search(options);
  options.arenaBudget = free.plan.decision.arenaBytes * 3 / 4;
  SearchResult result = planner.search(options);
  expect(free.feasible && result.feasible, "the planner finds a plan to keep");

  expect(!cache.find(graphs, options, 0), "an empty cache finds nothing");
  cache.keep(graphs, options, 0, {0, result, planner.tradeOff(options)});
  auto found = cache.find(graphs, options, 0);
  expect(found.has_value(), "what was kept is found");
  if (found) {
    expect(found->result.choice.loop == result.choice.loop && found->result.choice.microbatch == result.choice.microbatch,
           "the same choice");
    expect(found->result.plan.seconds == result.plan.seconds &&
               found->result.plan.decision.arenaBytes == result.plan.decision.arenaBytes &&
               found->result.plan.peakLive == result.plan.peakLive,
           "the same plan");
    expect(found->result.bound == result.bound && found->result.smallestArena == result.smallestArena &&
               found->result.secondsBound == result.secondsBound && found->result.name == result.name,
           "the same bounds");
    auto curve = planner.tradeOff(options);
    bool same = found->tradeOff.size() == curve.size();
    for (size_t i = 0; same && i < curve.size(); ++i)
      same = found->tradeOff[i].seconds == curve[i].seconds && found->tradeOff[i].arenaBytes == curve[i].arenaBytes &&
             found->tradeOff[i].name == curve[i].name;
    expect(same, "the same curve");
  }
  cache.keep(both, options, 0, {1, result, {}});
  found = cache.find(both, options, 0);
  expect(found && found->variant == 1, "the graph that was chosen among several");
  none.keep(graphs, options, 0, {0, result, {}});
  expect(!none.find(graphs, options, 0), "without a folder nothing is kept");

  // Right checksums, wrong contents.
  auto refused = [&](const char *what, auto &&spoil) {
    CachedSearch wrong{0, result, {}};
    spoil(wrong);
    cache.keep(graphs, options, 0, wrong);
    expect(!cache.find(graphs, options, 0), what);
  };
  refused("a kernel that never runs", [](CachedSearch &c) { c.result.choice.loop.pop_back(); });
  refused("a kernel that does not exist", [](CachedSearch &c) { c.result.choice.loop.push_back(100000); });
  refused("a kernel that must not run twice", [](CachedSearch &c) { c.result.choice.loop.push_back(c.result.choice.loop.back()); });
  refused("kernels in an order that cannot be", [](CachedSearch &c) {
    std::reverse(c.result.choice.loop.begin(), c.result.choice.loop.end());
  });
  refused("no kernels", [](CachedSearch &c) { c.result.choice.loop.clear(); });
  refused("a micro-batch that does not divide", [](CachedSearch &c) { c.result.choice.microbatch = 5; });
  refused("a micro-batch of zero", [](CachedSearch &c) { c.result.choice.microbatch = 0; });
  refused("a plan that does not fit", [&](CachedSearch &c) { c.result.choice = free.choice; });
  refused("a graph that is not there", [](CachedSearch &c) { c.variant = 1; });
  refused("an infeasible result is not kept, the wrong entry stays wrong", [](CachedSearch &c) { c.result.feasible = false; });

  // The key: everything that decides, nothing else.
  std::set<std::string> keys = {PlanCache::keyOf(graphs, options, 0)};
  auto differs = [&](const char *what, auto &&change) {
    StepGraph changed = graph;
    SearchOptions asked = options;
    uint64_t seed = 0;
    change(changed, asked, seed);
    expect(keys.insert(PlanCache::keyOf({&changed}, asked, seed)).second, what);
  };
  differs("the batch", [](StepGraph &g, SearchOptions &, uint64_t &) { g.batch *= 2; });
  differs("the threads", [](StepGraph &g, SearchOptions &, uint64_t &) { g.threads += 1; });
  differs("bytes", [](StepGraph &g, SearchOptions &, uint64_t &) { g.buffers[3].perExampleBytes += 64; });
  differs("a kind", [](StepGraph &g, SearchOptions &, uint64_t &) { g.buffers[3].kind = g.buffers[3].kind == Buffer::Value ? Buffer::Accumulator : Buffer::Value; });
  differs("seconds", [](StepGraph &g, SearchOptions &, uint64_t &) { g.kernels[2].seconds.fixed *= 1.01; });
  differs("reads", [](StepGraph &g, SearchOptions &, uint64_t &) { g.kernels[2].reads.push_back(0); });
  differs("work in place", [](StepGraph &g, SearchOptions &, uint64_t &) { g.kernels[2].inPlace.push_back({1, 2}); });
  differs("hints", [](StepGraph &g, SearchOptions &, uint64_t &) { g.kernels[2].keepHint = true; });
  differs("scratch", [](StepGraph &g, SearchOptions &, uint64_t &) { g.kernels[2].scratch.otherwise += 64; });
  differs("scratch at a micro-batch", [](StepGraph &g, SearchOptions &, uint64_t &) { g.kernels[2].scratch.exactly = {{2, 64}}; });
  differs("the order of kernels", [](StepGraph &g, SearchOptions &, uint64_t &) { std::swap(g.kernels[2], g.kernels[3]); });
  differs("the budget", [](StepGraph &, SearchOptions &o, uint64_t &) { *o.arenaBudget += 64; });
  differs("the micro-batch", [](StepGraph &, SearchOptions &o, uint64_t &) { o.microbatch = 2; });
  differs("the strategy", [](StepGraph &, SearchOptions &o, uint64_t &) { o.strategy.kind = Strategy::All; });
  differs("the seed of the order", [](StepGraph &, SearchOptions &, uint64_t &s) { s = 1; });
  expect(PlanCache::keyOf(both, options, 0) != PlanCache::keyOf(graphs, options, 0), "key: one more graph");
  StepGraph renamed = graph;
  for (Kernel &k : renamed.kernels)
    k.name += "'", k.line += 7;
  for (Buffer &b : renamed.buffers)
    b.name += "'", b.line += 7;
  expect(PlanCache::keyOf({&renamed}, options, 0) == PlanCache::keyOf(graphs, options, 0), "names and lines are no problem");

  llvm::sys::fs::remove_directories(folder);
  return tally();
}
