// LINK: cinch_solve
// Row blocks: which ranges are found, what one costs and holds, byte for byte, and that wrong ones are refused.
#include "test/unit/Expect.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Variants.h"

#include <cmath>

using namespace cinch::solve;

static void same(int64_t got, int64_t want, const std::string &what) {
  expect(got == want, what + ": expected " + std::to_string(want) + ", got " + std::to_string(got));
}

namespace {
// Writes graphs of a few kernels.
struct Builder {
  StepGraph g;
  Builder(int64_t batch, int64_t positions) {
    g.batch = batch;
    g.positions = positions;
    g.threads = 2;
  }
  int persistent(int64_t fixed, int64_t perExample) { return add(Buffer::Persistent, fixed, perExample); }
  int accumulator(int64_t bytes) { return add(Buffer::Accumulator, bytes, 0); }
  int rows(int64_t width) { return add(Buffer::Value, 0, width * g.positions); } // bytes a row
  int kernel(std::vector<int> reads, std::vector<int> writes, bool rowWise, bool backward = false) {
    Kernel k;
    k.reads = std::move(reads);
    k.writes = std::move(writes);
    k.rows = rowWise;
    k.backward = backward;
    k.seconds = {1, 16};
    k.name = "k" + std::to_string(g.kernels.size());
    for (int b : k.writes) {
      k.recomputable &= g.buffers[b].kind == Buffer::Value;
      g.buffers[b].producer = g.buffers[b].kind == Buffer::Persistent ? -1 : int(g.kernels.size());
    }
    g.kernels.push_back(k);
    return int(g.kernels.size()) - 1;
  }

private:
  int add(Buffer::Kind kind, int64_t fixed, int64_t perExample) {
    Buffer b;
    b.kind = kind;
    b.fixedBytes = fixed;
    b.perExampleBytes = perExample;
    b.name = "b" + std::to_string(g.buffers.size());
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  }
};

// x -> scores (wide) -> their gradient in place -> dx, dw; beside it the loss, which is no work on rows.
struct Head : Builder {
  int w, labels, x, scores, score, d, dx, dw, loss;
  Head() : Builder(4, 8) {
    w = persistent(4096, 0), labels = persistent(0, 36);
    x = rows(64), scores = rows(1024), score = rows(8), d = rows(1024), dx = rows(64);
    dw = accumulator(4096), loss = accumulator(64);
    kernel({labels}, {x}, false);
    kernel({x, w}, {scores}, true);
    kernel({scores, labels}, {score}, true);
    int grad = kernel({scores, labels}, {d}, true);
    g.kernels[grad].inPlace = {{d, scores}};
    kernel({score}, {loss}, false);
    kernel({d, w}, {dx}, true, true);
    kernel({x, d}, {dw}, true, true);
    kernel({dx}, {accumulator(64)}, false, true);
    for (Kernel &k : g.kernels)
      k.scratch = 0;
  }
};

// Two layers of a wide middle with work between them that mixes rows.
struct Feed : Builder {
  Feed() : Builder(4, 8) {
    int w = persistent(4096, 0), data = persistent(0, 512);
    std::vector<int> in, wide;
    int x = rows(64);
    kernel({data}, {x}, false);
    for (int layer = 0; layer < 2; ++layer) {
      in.push_back(x);
      int up = rows(512), act = rows(512), down = rows(64), mixed = rows(64);
      kernel({x, w}, {up}, true);
      kernel({up}, {act}, true);
      kernel({act, w}, {down}, true);
      kernel({down}, {mixed}, false);
      wide.push_back(up), wide.push_back(act);
      x = mixed;
    }
    int dy = rows(64);
    kernel({x}, {dy}, false, true);
    for (int layer = 1; layer >= 0; --layer) {
      int dact = rows(512), dup = rows(512), dx = rows(64), before = rows(64);
      kernel({dy, w}, {dact}, true, true);
      kernel({dy, wide[2 * layer + 1]}, {accumulator(4096)}, true, true);
      int grad = kernel({wide[2 * layer], dact}, {dup}, true, true);
      g.kernels[grad].inPlace = {{dup, dact}};
      kernel({dup, w}, {dx}, true, true);
      kernel({dup, in[layer]}, {accumulator(4096)}, true, true);
      kernel({dx}, {before}, false, true);
      dy = before;
    }
    kernel({dy}, {accumulator(64)}, false, true);
  }
};

int64_t noScratch(int, const KernelRows *) { return 0; }

bool near(double a, double b) { return std::fabs(a - b) < 1e-9; }
} // namespace

static void testHead() {
  Head h;
  std::vector<RowWork> work = findRowWork(h.g);
  same(int64_t(work.size()), 1, "the head: pieces of work");
  if (work.size() != 1 || work[0].ranges.size() != 1)
    return expect(false, "the head is one range");
  expect(work[0].ranges[0].kernels == std::vector<int>({1, 2, 3, 5, 6}), "the head: what touches a wide value");
  same(work[0].width, 1024, "the head: width");

  std::vector<int64_t> scratch(h.g.kernels.size(), 0);
  scratch[6] = 128;
  RowBlocked b = withRowBlocks(h.g, work[0].ranges, {1, 2}, [&](int k, const KernelRows *) { return scratch[size_t(k)]; });
  expect(b.error.empty(), "the head in blocks: " + b.error);
  if (!b.error.empty())
    return;
  const RowKernel &r = b.ranges[0];
  const Kernel &k = b.graph.kernels[r.kernel];
  same(int64_t(b.graph.kernels.size()), 4, "the head in blocks: kernels");
  same(b.graph.buffers[h.scores].bytes(4) + b.graph.buffers[h.d].bytes(4), 0, "wide values are nowhere whole");
  expect(k.reads == std::vector<int>({h.x, h.w, h.labels}), "the range reads x, w, labels");
  expect(k.writes == std::vector<int>({h.score, h.dx, h.dw}), "the range writes score, dx, dw");
  // Two rows of the scores, their gradient in the same bytes, and the scratch of two threads.
  same(r.packed->decision.arenaBytes, 2 * 1024 + 256, "bytes of a block");
  same(k.scratch.at(1) * h.g.threads, 2 * 1024 + 256, "scratch of the range");
  expect(near(k.seconds.fixed, 0) && near(k.seconds.perExample, 5 * (16 + 4 * 1)), "five kernels, four blocks an example");
  expect(checkTrip(r, 1).empty(), "the block is proved: " + checkTrip(r, 1));

  // What the plan holds at its peak: without blocks the scores, with blocks the scratch.
  for (int64_t m : {1, 2, 4}) {
    Plan plain = evaluate(h.g, {m, plainLoop(h.g)}), rows = evaluate(b.graph, {m, plainLoop(b.graph)});
    ScheduledProgram program = scheduledProgram(b.graph, rows.decision);
    program.peakLive = rows.peakLive;
    expect(rows.error.empty() && checkPlan(b.graph, program).empty(), "the step in blocks is proved");
    // The scores of the labels wait for the end of the range; without blocks the loss is there before dx is.
    int64_t score = h.g.buffers[h.score].bytes(m);
    same(plain.peakLive - rows.peakLive, m * 8 * 1024 - (2 * 1024 + 256) - score,
         "micro-batch " + std::to_string(m) + ": bytes won");
  }
}

// Every fault that can be planted in the work of a block is seen.
static void testMutants(const RowKernel &good, const std::string &name) {
  ScheduledProgram right = scheduledProgram(good.trip, good.packed->decision);
  right.peakLive = good.packed->peakLive;
  int planted = 0, accepted = 0;
  auto reject = [&](ScheduledProgram bad) { ++planted, accepted += checkPlan(good.trip, bad).empty(); };
  for (size_t i = 0; i < right.launches.size(); ++i) {
    auto local = [&](const Place &p) { return p.bytes > 0 && good.local[p.buffer]; };
    for (size_t j = 0; j < right.launches[i].reads.size(); ++j)
      if (local(right.launches[i].reads[j])) {
        ScheduledProgram bad = right;
        bad.launches[i].reads[j].offset += 64;
        reject(bad);
      }
    for (size_t j = 0; j < right.launches[i].writes.size(); ++j)
      if (local(right.launches[i].writes[j])) {
        ScheduledProgram bad = right;
        bad.launches[i].writes[j].offset += 64;
        reject(bad);
        bad = right;
        bad.launches[i].writes[j].bytes -= 64;
        reject(bad);
        bad = right;
        bad.launches.erase(bad.launches.begin() + i);
        --bad.loops.front().end;
        reject(bad);
      }
    if (i > 0 && !right.launches[i - 1].writes.empty())
      for (const Place &p : right.launches[i].reads)
        if (local(p) && p.buffer == right.launches[i - 1].writes[0].buffer) {
          ScheduledProgram bad = right;
          std::swap(bad.launches[i], bad.launches[i - 1]);
          reject(bad);
        }
  }
  for (int64_t by : {-64, 64}) {
    ScheduledProgram bad = right;
    bad.arenaBytes += by;
    reject(bad);
    bad = right;
    bad.peakLive += by;
    reject(bad);
  }
  expect(planted > 8 && accepted == 0,
         name + ": " + std::to_string(accepted) + " of " + std::to_string(planted) + " mutants accepted");
}

static void testFeed() {
  Feed f;
  std::vector<RowWork> work = findRowWork(f.g);
  same(int64_t(work.size()), 2, "two layers: pieces of work");
  if (work.size() != 2 || work[0].ranges.size() != 2)
    return expect(false, "each layer is a forward and a backward range");
  const RowRange &forward = work[0].ranges[0], &backward = work[0].ranges[1];
  int first = forward.kernels.front();
  expect((first == 1 || first == 5) && forward.kernels == std::vector<int>({first, first + 1, first + 2}) &&
             forward.again == 0,
         "forward: up, activation, down");
  same(backward.again, 2, "backward: up and activation again");
  same(int64_t(backward.kernels.size()), 7, "backward: kernels");
  std::vector<RowRange> ranges;
  for (const RowWork &w : work)
    ranges.insert(ranges.end(), w.ranges.begin(), w.ranges.end());
  for (RowBlock block : {RowBlock{1, 1}, RowBlock{1, 4}, RowBlock{1, 8}, RowBlock{2, 8}}) {
    RowBlocked b = withRowBlocks(f.g, ranges, block, noScratch);
    std::string name = std::to_string(block.examples) + " x " + std::to_string(block.positions);
    expect(b.error.empty(), name + ": " + b.error);
    if (!b.error.empty())
      continue;
    same(b.graph.grain, block.examples, name + ": micro-batches of whole blocks");
    // Up, activation, and the gradients of both: the activation dies before its gradient is replaced.
    int64_t wide = 512 * block.examples * block.positions;
    same(b.ranges[0].packed->decision.arenaBytes, 2 * wide, name + ": a block forward");
    same(b.ranges[1].packed->decision.arenaBytes, 3 * wide, name + ": a block backward");
    for (const RowKernel &r : b.ranges) {
      expect(checkTrip(r, 1).empty(), name + ": the block is proved");
      testMutants(r, name);
    }
    Plan plan = evaluate(b.graph, {4, plainLoop(b.graph)});
    ScheduledProgram program = scheduledProgram(b.graph, plan.decision);
    program.peakLive = plan.peakLive;
    expect(plan.error.empty() && checkPlan(b.graph, program).empty(), name + ": the step is proved");
  }
}

static void testRefused() {
  Head h;
  Feed f;
  auto refused = [&](const StepGraph &g, RowRange range, RowBlock block, const std::string &why) {
    expect(!withRowBlocks(g, {range}, block, noScratch).error.empty(), why);
  };
  refused(h.g, {{1, 4}, 0}, {1, 2}, "a kernel that is no work on rows");
  refused(h.g, {{1, 2, 3, 5, 6}, 0}, {1, 3}, "three positions of eight");
  refused(h.g, {{1, 2, 3, 5, 6}, 0}, {2, 4}, "half of two examples");
  refused(h.g, {{1, 2, 3, 5, 6}, 0}, {3, 8}, "three examples of four");
  refused(h.g, {{6, 5}, 1}, {1, 2}, "a sum over rows again");
  // Layer one's activation and the gradient that needs the layers behind it.
  refused(f.g, {{1, 2, 3, 16, 17, 18, 19, 20}, 0}, {1, 2}, "a range that needs what needs it");
  expect(!withRowBlocks(h.g, {{{1, 2}, 0}, {{2, 3}, 0}}, {1, 2}, noScratch).error.empty(), "a kernel in two ranges");
  Head grained;
  grained.g.grain = 2;
  refused(grained.g, {{1, 2, 3, 5, 6}, 0}, {1, 8}, "half a grain");
  expect(withRowBlocks(grained.g, {{{1, 2, 3, 5, 6}, 0}}, {2, 8}, noScratch).error.empty(), "a whole grain");

  RowBlock block;
  std::string error;
  expect(rowBlockOf(h.g, 4, block, error) && block.examples == 1 && block.positions == 4, "4 rows: positions");
  expect(rowBlockOf(h.g, 16, block, error) && block.examples == 2 && block.positions == 8, "16 rows: examples");
  expect(!rowBlockOf(h.g, 5, block, error) && error.find("nearest: 4 and 8") != std::string::npos, "5 rows: " + error);
  for (int64_t positions : {1, 7, 30, 1024})
    for (int64_t batch : {1, 6, 64}) {
      Head other;
      other.g.positions = positions, other.g.batch = batch;
      for (RowBlock b : rowBlockSizes(other.g))
        expect(positions % b.positions == 0 && batch % b.examples == 0 && (b.examples == 1 || b.positions == positions) &&
                   b.examples * b.positions < batch * positions,
               "sizes divide");
      std::vector<RowBlock> possible = possibleRowBlocks(other.g);
      for (size_t i = 0; i < possible.size(); ++i) {
        RowBlock b = possible[i], found;
        int64_t rows = b.examples * b.positions;
        expect(i == 0 ? rows == 1 : rows > possible[i - 1].examples * possible[i - 1].positions, "blocks that are possible begin with a row and grow");
        expect(rowBlockOf(other.g, rows, found, error) && found.examples == b.examples && found.positions == b.positions, "each may be asked for");
      }
      same(possible.back().examples * possible.back().positions, batch * positions, "the last is the batch");
    }
}

// The search over plain and blocked graphs: never worse than the plain one, monotone, within its budget.
static void testVariants() {
  Feed f;
  Head h;
  for (const StepGraph *g : {&f.g, &h.g}) {
    auto variants = [&]() {
      Variant plain;
      plain.rows.graph = *g;
      std::vector<Variant> list{plain};
      std::vector<RowRange> ranges;
      for (const RowWork &w : findRowWork(*g))
        ranges.insert(ranges.end(), w.ranges.begin(), w.ranges.end());
      for (RowBlock block : {RowBlock{1, 1}, RowBlock{1, 2}, RowBlock{1, 8}}) {
        Variant v;
        v.name = "blocks";
        v.rows = withRowBlocks(*g, ranges, block, noScratch);
        expect(v.rows.error.empty(), "a variant");
        list.push_back(v);
      }
      return list;
    };
    VariantPlanner all(variants());
    Planner plain(*g);
    SearchOptions options;
    int chosen = 0;
    options.arenaBudget = 1;
    SearchResult least = all.search(options, true, chosen);
    SearchResult plainLeast = plain.search(options);
    expect(!least.feasible && least.smallestArena < plainLeast.smallestArena, "blocks reach smaller budgets");
    expect(least.bound <= least.smallestArena, "the bound is below");
    double before = 1e300;
    bool blocked = false;
    for (int64_t budget = least.smallestArena; budget <= plainLeast.smallestArena * 4; budget += 512) {
      Case one;
      options.arenaBudget = budget;
      SearchResult r = all.search(options, true, chosen), p = plain.search(options);
      int again = 0;
      SearchResult quick = all.search(options, false, again);
      expect(again == chosen && quick.plan.seconds == r.plan.seconds &&
                 quick.plan.decision.arenaBytes == r.plan.decision.arenaBytes,
             "what cannot win is left out, nothing else");
      expect(r.feasible && r.plan.decision.arenaBytes <= budget, "fits " + std::to_string(budget));
      expect(r.plan.seconds <= before, "a larger budget is not slower");
      expect(!p.feasible || r.plan.seconds <= p.plan.seconds, "not slower than without blocks");
      expect(r.plan.seconds >= r.secondsBound - 1e-9, "not faster than the bound");
      before = r.plan.seconds;
      blocked |= chosen > 0;
    }
    expect(blocked, "blocks are chosen somewhere");
    options.arenaBudget.reset();
    all.search(options, true, chosen);
    same(chosen, 0, "without a budget: no blocks");
    double last = 1e300;
    for (const LadderPoint &p : all.tradeOff(options)) {
      expect(p.seconds < last, "the curve falls");
      last = p.seconds;
    }
  }
}

// One layer of a worker whose backward pass is split: forward, gradients of inputs, gradients of parameters are parts of their own, each with
// a message or a sum that stays there. Two micro-batches are in flight.
struct SplitFeed : Builder {
  std::vector<int> marks;
  int part = -1;
  SplitFeed() : Builder(4, 8) {
    g.actions = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {2, 0}, {0, 3}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {2, 3}};
    int w = persistent(4096, 0), data = persistent(0, 512);
    int x = rows(64), up = rows(512), act = rows(512), down = rows(64), dy = rows(64), dact = rows(512), dup = rows(512), dx = rows(64);
    kernel({data}, {x}, false); // 0
    kernel({x, w}, {up}, true);
    kernel({up}, {act}, true);
    kernel({act, w}, {down}, true);
    stays(kernel({down}, {}, false)); // 4: sent on
    beginPart();                      // 5
    stays(kernel({part}, {dy}, false)); // 6: received
    kernel({dy, w}, {dact}, true, true);
    int grad = kernel({up, dact}, {dup}, true, true);
    g.kernels[grad].inPlace = {{dup, dact}};
    kernel({dup, w}, {dx}, true, true);
    stays(kernel({dx}, {}, false, true)); // 10: sent on
    beginPart();                          // 11
    stays(kernel({dy, act, part}, {accumulator(4096)}, true, true));
    stays(kernel({dup, x, part}, {accumulator(4096)}, true, true));
    for (int once : {0, 4, 6, 10})
      g.kernels[once].recomputable = false;
  }

private:
  int mark(int k) {
    int b = rows(0);
    g.buffers[b].producer = k;
    g.kernels[k].writes.push_back(b);
    return b;
  }
  void stays(int k) { marks.push_back(mark(k)); }
  void beginPart() {
    int k = kernel(marks, {}, false);
    g.kernels[k].newPart = true, g.kernels[k].recomputable = false;
    part = mark(k);
    marks = {part};
  }
};

static void testParts() {
  SplitFeed feed;
  std::vector<RowWork> work = findRowWork(feed.g);
  if (work.size() != 1 || work[0].ranges.size() != 3)
    return expect(false, "work of three parts has a range in each");
  const std::vector<RowRange> &ranges = work[0].ranges;
  expect(ranges[0].kernels == std::vector<int>({1, 2, 3}) && ranges[0].again == 0, "the forward part");
  expect(ranges[1].kernels == std::vector<int>({1, 7, 8, 9}) && ranges[1].again == 1, "gradients of inputs compute what is wide again");
  expect(ranges[2].kernels == std::vector<int>({1, 2, 7, 8, 12, 13}) && ranges[2].again == 4, "so do those of parameters, of both other parts");
  RowBlocked rows = withRowBlocks(feed.g, ranges, {1, 2}, noScratch);
  expect(rows.error.empty(), "three ranges stand in their parts: " + rows.error);
  Choice choice{1, plainLoop(rows.graph)};
  Plan blocked = evaluate(rows.graph, choice), whole = evaluate(feed.g, {1, plainLoop(feed.g)});
  expect(blocked.error.empty() && whole.error.empty(), "plans of parts: " + blocked.error + whole.error);
  expect(2 * blocked.peakLive < whole.peakLive, "nothing wide waits between the parts: " + std::to_string(blocked.peakLive) + " of " + std::to_string(whole.peakLive));
  ScheduledProgram program = scheduledProgram(rows.graph, blocked.decision);
  program.peakLive = blocked.peakLive;
  expect(checkPlan(rows.graph, program).empty(), "a plan with ranges in three parts is refused: " + checkPlan(rows.graph, program));
}

int main() {
  testParts();
  testHead();
  testFeed();
  testRefused();
  testVariants();
  return tally();
}
