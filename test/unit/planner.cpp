// LINK: cinch_solve
// The planner on training graphs: every strategy gives a plan that the checker proves, `auto` is never worse than a
// named strategy, larger budgets are never slower, refusals say what they must. With an argument it prints what it
// measures; an argument above 1 adds GPT-2's shape with that many blocks.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Search.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace cinch::solve;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
static double mib(int64_t bytes) { return double(bytes) / 1048576; }

static std::string prove(const StepGraph &g, const Plan &plan) {
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(g, plan.decision);
  program.peakLive = plan.peakLive;
  return checkPlan(g, program);
}

static const char *kNamed[] = {"none", "all", "sqrt", "every:1", "every:3", "marked", "cheap"};

static void testGraph(const std::string &name, const StepGraph &g, bool verbose) {
  Planner planner(g);
  std::vector<SearchResult> named;
  for (const char *text : kNamed) {
    SearchOptions options;
    std::string error;
    expect(parseStrategy(text, options.strategy, error), name + ": " + text + " parses");
    for (int64_t b : microbatches(g)) {
      Case one;
      options.microbatch = b;
      double start = now();
      SearchResult r = planner.search(options);
      double took = now() - start;
      std::string why = r.feasible ? prove(g, r.plan) : "infeasible without a budget " + r.error;
      expect(why.empty(), name + ": " + text + " at micro-batch " + std::to_string(b) + ": " + why);
      if (verbose)
        std::printf(
            "%s %-8s b=%-3lld live %.1f MiB arena %.1f bound %.1f seconds %.4f runs %zu recomputed %d; %.2f s\n",
            name.c_str(), text, (long long)b, mib(r.plan.peakLive), mib(r.plan.decision.arenaBytes), mib(r.bound),
            r.plan.seconds, r.plan.decision.runs.size(), r.plan.recomputed, took);
      expect(r.bound <= r.plan.peakLive, name + ": the bound is not above a plan");
      named.push_back(std::move(r));
    }
  }
  double start = now();
  SearchResult smallest = planner.search({0, 0, {}});
  if (verbose)
    std::printf("%s smallest %.1f MiB, bound %.1f MiB, found in %.2f s: %s\n", name.c_str(),
                mib(smallest.smallestArena), mib(smallest.bound), now() - start, smallest.name.c_str());
  expect(!smallest.feasible && !smallest.holders.empty() && smallest.advice.empty(),
         name + ": a budget of 0 is refused");
  // With the largest micro-batch and nothing recomputed, the smallest budget asks for a change of both.
  SearchResult fixed = planner.search({smallest.smallestArena, g.batch, {Strategy::None, 0}});
  expect(!fixed.feasible && fixed.advice.find("strategy auto instead of none") != std::string::npos,
         name + ": a change is advised: " + fixed.advice);
  int64_t low = smallest.smallestArena, high = 0;
  for (const SearchResult &r : named)
    high = std::max(high, r.plan.decision.arenaBytes);
  expect(!planner.search({low - 1, 0, {}}).feasible, name + ": one byte less than the smallest is refused");
  double last = 1e300;
  for (int i = 0; i <= 12; ++i) {
    Case one;
    int64_t budget = low + (high - low) * i / 12;
    start = now();
    SearchResult r = planner.search({budget, 0, {}});
    double took = now() - start;
    std::string why = r.feasible ? prove(g, r.plan) : "refused";
    expect(why.empty(), name + ": auto at " + std::to_string(budget) + ": " + why);
    expect(r.plan.decision.arenaBytes <= budget, name + ": auto keeps the budget");
    expect(r.plan.seconds <= last, name + ": a larger budget is not slower");
    last = r.plan.seconds;
    if (verbose)
      std::printf("%s auto at %.1f MiB: arena %.1f live %.1f b=%lld %.4f s (+%.2f %%), %s; %.2f s\n", name.c_str(),
                  mib(budget), mib(r.plan.decision.arenaBytes), mib(r.plan.peakLive), (long long)r.choice.microbatch,
                  r.plan.seconds, 100 * (r.plan.seconds / r.secondsBound - 1), r.name.c_str(), took);
    for (const SearchResult &other : named)
      if (other.plan.decision.arenaBytes <= budget)
        expect(r.plan.seconds <= other.plan.seconds, name + ": auto is not worse than " + other.name);
  }
}

// Graphs at the edge of what is one: every strategy still gives a plan that is proved.
static void testDegenerate() {
  std::vector<std::pair<std::string, StepGraph>> graphs;
  graphs.push_back({"no kernel", StepGraph()});
  {
    GraphBuilder b; // an update alone
    b.g.batch = 4;
    int p = b.persistent("p", 256), d = b.accumulator("d", 256);
    addUpdate(b, {{p, d}});
    graphs.push_back({"nothing in the loop", b.g});
  }
  {
    GraphBuilder b; // evaluation: no backward sweep, a value made before the loop that the loop reads, a sum as the result
    b.g.batch = 12, b.g.grain = 2;
    int p = b.persistent("p", 256), x = b.persistent("x", 0, 128), sum = b.accumulator("sum", 64);
    b.section = 0;
    int w = b.value("w", 0, 256);
    b.kernel("prepare", {p}, {w}, 0, true);
    b.section = 1;
    int y = b.value("y", 512), z = b.value("z", 512);
    b.kernel("forward", {x, w}, {y}, 100, false);
    b.kernel("again", {y, w}, {z}, 100, false);
    b.kernel("add", {z}, {sum}, 1, true);
    graphs.push_back({"evaluation", b.g});
  }
  {
    GraphBuilder b; // the backward sweep reads the data alone, a buffer without bytes
    b.g.batch = 3, b.backward = true;
    int x = b.persistent("x", 0, 128), d = b.accumulator("d", 64), empty = b.value("empty", 0);
    b.kernel("gradient", {x}, {d, empty}, 1, false);
    graphs.push_back({"backward alone", b.g});
  }
  for (auto &[name, g] : graphs) {
    Planner planner(g);
    for (const char *text : {"none", "all", "sqrt", "every:2", "marked", "cheap", "auto"}) {
      SearchOptions options;
      std::string error;
      parseStrategy(text, options.strategy, error);
      SearchResult r = planner.search(options);
      std::string why = r.feasible ? prove(g, r.plan) : "refused " + r.error;
      expect(why.empty(), name + ", " + text + ": " + why);
      options.arenaBudget = r.bound - 1;
      if (r.bound > 0)
        expect(!planner.search(options).feasible, name + ", " + text + ": less than the bound is refused");
    }
  }
  // Requests that are wrong whatever the budget.
  StepGraph g = denseChain(3, 12, 64);
  SearchOptions options;
  options.microbatch = 5;
  SearchResult r = Planner(g).search(options);
  expect(!r.feasible && r.error.find("nearest: 4 and 6") != std::string::npos, "a micro-batch of 5: " + r.error);
  for (const char *text : {"", "every", "every:", "every:0", "every:x", "most", "None"}) {
    std::string error;
    Strategy s;
    expect(!parseStrategy(text, s, error) && !error.empty(), std::string("`") + text + "` is no strategy");
  }
  g.kernels[0].reads.push_back(1000);
  r = Planner(g).search({});
  expect(!r.feasible && !r.error.empty(), "a buffer that does not exist: " + r.error);
}

// Against counting; of a large prime, at once.
static void testDivisors() {
  for (int64_t n = 1; n <= 300; ++n) {
    std::vector<int64_t> counted;
    for (int64_t d = 1; d <= n; ++d)
      if (n % d == 0)
        counted.push_back(d);
    expect(divisors(n) == counted, "divisors of " + std::to_string(n));
  }
  expect(divisors(2147483647) == std::vector<int64_t>{1, 2147483647}, "divisors of 2^31 - 1");
  StepGraph g;
  g.batch = 24, g.grain = 4;
  expect(microbatches(g) == std::vector<int64_t>{4, 8, 12, 24}, "micro-batches of whole grains");
}

int main(int argc, char **argv) {
  bool verbose = argc > 1;
  testDivisors();
  testDegenerate();
  testGraph("dense 9", denseChain(9, 8, 64), verbose);
  testGraph("dense 9, no in-place work", denseChain(9, 8, 64, false), verbose);
  testGraph("transformer 3", transformer(3, 64, 32, 256, 8), verbose);
  if (verbose && std::atoi(argv[1]) > 1)
    testGraph("gpt2", transformer(std::atoi(argv[1]), 768, 1024, 50257, 8), verbose);

  // sqrt on a chain: activations at 4n layers are at most 2.1 times those at n.
  auto activations = [](int layers) {
    StepGraph g = denseChain(layers, 1, 4096);
    SearchOptions options;
    options.strategy.kind = Strategy::Sqrt;
    Plan plan = Planner(g).search(options).plan;
    int64_t fixed = plan.decision.persistentBytes;
    for (const Buffer &b : g.buffers)
      if (b.kind == Buffer::Accumulator)
        fixed += b.bytes(1);
    return plan.decision.arenaBytes - fixed;
  };
  for (int n = 16; n <= 64; n *= 2) {
    double ratio = double(activations(4 * n)) / double(activations(n));
    if (verbose)
      std::printf("sqrt: %d -> %d layers: %.3f\n", n, 4 * n, ratio);
    expect(ratio <= 2.1, "sqrt at " + std::to_string(4 * n) + " layers: " + std::to_string(ratio));
  }
  return tally();
}
