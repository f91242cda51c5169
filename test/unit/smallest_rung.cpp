// LINK: cinch_solve
// The lower end of the ladder: what a search begins from is within its bytes; at the smallest rung only loops count that are packed into its
// room, which the plan checker proves; and what comes of that is a faster plan in the same bytes.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Random.h"
#include "compiler/solve/Search.h"
#include "compiler/solve/SmallestRung.h"
#include "compiler/solve/Variants.h"

#include <algorithm>
#include <map>

using namespace cinch::solve;

static std::string prove(const StepGraph &g, const Plan &plan) {
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(g, plan.decision);
  program.peakLive = plan.peakLive;
  return checkPlan(g, program);
}

static int accepted = 0, refused = 0;

// Loops of the named strategies and what local search makes of them, the slowest first; each in the very bytes that are alive in it.
static void testPackedInto(const std::string &name, const StepGraph &g) {
  GraphIndex index(g);
  int64_t b = g.batch;
  Timeline line(index);
  Loops loops;
  for (const RematCandidate &candidate : candidates(Sweep(index), b))
    if (line.build(b, candidate.loop))
      loops.push_back(candidate.loop);
  auto seconds = [&](const std::vector<int> &loop) { return predictedSeconds(index, b, loop); };
  std::stable_sort(loops.begin(), loops.end(), [&](auto &x, auto &y) { return seconds(x) > seconds(y); });
  for (const std::vector<int> &roomOf : loops) {
    Case one;
    line.build(b, roomOf);
    int64_t room = line.peak;
    PackedInto packed(index, b, room, 0, 1'000'000, 1000);
    double least = 1e300;
    for (const std::vector<int> &loop : loops) {
      bool takes = packed(loop) == Serves::Yes;
      takes ? ++accepted : ++refused;
      if (takes && seconds(loop) < least)
        least = seconds(loop), expect(packed.bestLoop == loop, name + ": what it takes is the best");
      expect(!packed.best || packed.best->seconds == least, name + ": what it refuses changes nothing");
    }
    if (!packed.best)
      continue;
    std::string why = prove(g, *packed.best);
    expect(why.empty() && packed.best->decision.arenaBytes <= room, name + ": packed into " + std::to_string(room) + ": " +
           std::to_string(packed.best->decision.arenaBytes) + " " + why);
    expect(packed(loops.front()) == Serves::Yes, name + ": what is no faster passes, on the way to something faster");
    // Of what is faster than that none counts; nor does anything when no packing is left.
    PackedInto slower(index, b, room, least * (1 + 1e-9), 1'000'000, 1000), never(index, b, room, 0, 0, 1000);
    expect(slower(packed.bestLoop) == Serves::No && never(packed.bestLoop) == Serves::NoneWill, name + ": too fast, or too late");
  }
}

static void testStarts(const std::string &name, const StepGraph &g) {
  GraphIndex index(g);
  int64_t b = g.batch;
  Timeline line(index);
  Refiner refiner(index, b);
  Loops above;
  std::vector<int> own;
  int64_t least = INT64_MAX;
  for (const RematCandidate &candidate : candidates(Sweep(index), b))
    if (line.build(b, candidate.loop)) {
      above.push_back(candidate.loop);
      if (line.peak < least)
        least = line.peak, own = candidate.loop;
    }
  for (int64_t target : {least, least + least / 8})
    for (size_t most : {size_t(1), size_t(4)}) {
      Case one;
      Loops starts = startsOf(refiner, own, above, target, 400, most);
      expect(starts.front() == own && starts.size() == most, name + ": " + std::to_string(starts.size()) + " starts of " + std::to_string(most));
      for (const std::vector<int> &loop : starts)
        expect(line.build(b, loop) && line.peak <= target && prove(g, evaluate(g, {b, loop})).empty(), name + ": a start within its bytes");
    }
}

// With the deep search: no slower, in no more bytes. Returns whether it is faster.
static bool testSmallest(const std::string &name, const StepGraph &g) {
  Case one;
  Planner planner(g);
  SearchOptions options;
  options.microbatch = g.batch, options.arenaBudget = 0;
  options.arenaBudget = planner.search(options).smallestArena;
  SearchOptions shallow = options;
  shallow.deep = false;
  SearchResult without = planner.search(shallow), with = planner.search(options);
  std::string why = prove(g, with.plan);
  expect(with.feasible && why.empty() && with.plan.decision.arenaBytes <= *options.arenaBudget, name + ": the smallest budget is met: " + why);
  expect(with.plan.seconds <= without.plan.seconds, name + ": no slower");
  expect(with.plan.seconds == without.plan.seconds || with.name == "searched and packed", name + ": " + with.name);
  std::printf("%s: %.6f s, without the deep search %.6f s\n", name.c_str(), with.plan.seconds, without.plan.seconds);
  return with.plan.seconds < without.plan.seconds * 0.999;
}

// A search that is not deep says what a deep one could find at most. Returns whether the deep one finds something.
static bool testDeeperBound(const std::string &name, const StepGraph &g, double times) {
  Case one;
  Variant whole;
  whole.rows.graph = g;
  SearchOptions options;
  options.arenaBudget = 0;
  options.arenaBudget = int64_t(double(Planner(g).search(options).smallestArena) * times);
  int chosen = 0;
  SearchResult deep = VariantPlanner({whole}).search(options, false, chosen);
  options.deep = false;
  SearchResult quick = VariantPlanner({whole}).search(options, false, chosen);
  const double bound = quick.deeperBound;
  expect(deep.feasible && quick.feasible && bound > 0 && bound <= deep.plan.seconds && bound <= quick.plan.seconds && deep.deeperBound == deep.plan.seconds,
         name + ": " + std::to_string(bound) + " s at least, found " + std::to_string(deep.plan.seconds) + " and quickly " + std::to_string(quick.plan.seconds));
  expect(times < 100 || bound == quick.plan.seconds, name + ": with memory for all there is nothing to find");
  return deep.plan.seconds < quick.plan.seconds;
}

// Every micro-batch has a smallest rung of its own. What one budget lets search changes no answer to another, and a larger budget is not slower.
static void testBudgets(const std::string &name, const StepGraph &g, const std::vector<double> &all = {1.3, 1.05, 1.02, 1.0, 1.003, 1.01, 1.007}) {
  SearchOptions options;
  options.arenaBudget = 0;
  int64_t smallest = Planner(g).search(options).smallestArena;
  Planner asked(g);
  std::map<int64_t, double> seconds; // of each budget
  double wasted = 0;
  for (double times : all) {
    Case one;
    options.arenaBudget = int64_t(double(smallest) * times);
    SearchResult again = asked.search(options), alone = Planner(g).search(options);
    expect(again.feasible && alone.feasible && again.plan.seconds == alone.plan.seconds && again.name == alone.name &&
               again.plan.decision.arenaBytes == alone.plan.decision.arenaBytes,
           name + " at " + std::to_string(times) + " of the smallest budget: " + again.name + " beside " + alone.name);
    seconds[*options.arenaBudget] = again.plan.seconds;
    wasted = std::max(wasted, double(alone.plan.decision.arenaBytes) / double(alone.plan.peakLive) - 1);
  }
  std::printf("%s: smallest budget %lld, at most %.2f %% more than what is alive\n", name.c_str(), (long long)smallest, 100 * wasted);
  double least = 1e300;
  for (auto [bytes, slower] : seconds)
    expect(slower <= least, name + ": slower in more bytes"), least = slower;
}

// Layers whose values have bytes that do not fit each other, and read what lies several layers back: hard to pack.
static StepGraph tangle(uint64_t seed, int layers) {
  Random random = Random::seeded(seed);
  GraphBuilder b;
  b.g.batch = 4;
  int x = b.persistent("x", 0, 64), loss = b.accumulator("loss", 64), p = b.persistent("p", 640);
  std::vector<int> values{x}, others{x};
  auto drawn = [&] { return 64 * (1 + int64_t(random.below(97))); };
  for (int i = 0; i < layers; ++i) {
    int last = values.back(), other = values[size_t(std::max<int64_t>(0, int64_t(values.size()) - 2 - int64_t(random.below(7))))];
    values.push_back(b.value("v" + std::to_string(i), drawn()));
    others.push_back(other);
    b.kernel("f" + std::to_string(i), {last, other, p}, {values.back()}, double(random.below(900000)), false);
  }
  b.backward = true;
  int d = b.value("d", drawn());
  b.kernel("loss", {values.back()}, {d, loss}, 0, true);
  std::vector<std::pair<int, int>> parameters{{p, b.accumulator("dp", 640)}};
  for (int i = layers; i > 0; --i) {
    int next = b.value("d" + std::to_string(i), drawn()), beside = b.value("e" + std::to_string(i), drawn());
    b.kernel("g" + std::to_string(i), {d, values[size_t(i)], others[size_t(i)]}, {next, beside}, double(random.below(900000)), false);
    d = b.value("s" + std::to_string(i), drawn());
    b.kernel("s" + std::to_string(i), {next, beside}, {d}, 0, true);
  }
  b.kernel("dp", {d}, {parameters[0].second}, 0, false);
  addUpdate(b, parameters);
  return b.g;
}

// Waste below a page is none: it is not worth the search for a better packing. The smallest budget grows by less than that, and stays the smallest.
static void testPage(const std::string &name, StepGraph g) {
  Case one;
  SearchOptions options;
  options.arenaBudget = 0;
  const int64_t exact = Planner(g).search(options).smallestArena;
  int coarse = 0;
  for (int64_t page : {1024, 4096}) {
    g.page = page;
    SearchResult least = Planner(g).search(options);
    expect(least.smallestArena <= exact + page, name + ": " + std::to_string(least.smallestArena) + " in pages of " +
           std::to_string(page) + ", exactly " + std::to_string(exact));
    coarse += !isPackedWell(StepGraph(), least.plan);
    SearchOptions within = options;
    within.arenaBudget = least.smallestArena;
    SearchResult fits = Planner(g).search(within);
    expect(fits.feasible && prove(g, fits.plan).empty(), name + ": the smallest budget is met");
  }
  expect(coarse > 0, name + ": a page leaves packings as they were found quickly");
}

int main() {
  testPackedInto("dense 9", denseChain(9, 8, 64));
  testPackedInto("transformer 3", transformer(3, 64, 32, 256, 8));
  expect(accepted > 100 && refused > 100, "packed into: " + std::to_string(accepted) + " accepted, " + std::to_string(refused) + " refused");
  testStarts("dense 24", denseChain(24, 64, 32));
  testStarts("transformer 3", transformer(3, 64, 32, 256, 8));
  testBudgets("dense 40", denseChain(40, 4096, 32));
  testBudgets("tangle", tangle(2, 26), {1.05, 1.0, 1.01});
  testPage("tangle", tangle(3, 20));
  int deeper = 0;
  for (double times : {1.0, 1.1, 100.0}) {
    deeper += testDeeperBound("dense 40", denseChain(40, 4096, 32), times);
    deeper += testDeeperBound("transformer 4", transformer(4, 64, 64, 128, 32), times);
  }
  expect(deeper > 0, "a deep search finds something");
  int faster = 0;
  faster += testSmallest("dense 40", denseChain(40, 4096, 32));
  faster += testSmallest("dense 9", denseChain(9, 8, 64));
  faster += testSmallest("transformer 4", transformer(4, 64, 64, 128, 32));
  expect(faster == 2, "where much is repeated the deep search finds a faster plan: " + std::to_string(faster));
  return tally();
}
