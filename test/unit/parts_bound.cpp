// LINK: cinch_solve
// Bounds of a worker of several and of a table: work in parts against every way of sharing it out, what has to be repeated against every loop of
// small bodies and against the planner's at many budgets.
#include "compiler/solve/PartsBound.h"
#include "compiler/solve/Search.h"
#include "compiler/solve/stages/TableBound.h"
#include "test/unit/Expect.h"
#include "test/unit/PartBodies.h"

#include <cmath>
#include <functional>
#include <limits>

using namespace cinch::solve;

// ---- Tables ------------------------------------------------------------------------------------------------------------
// The earliest end of all in which each piece of work lies in one of its parts.
static double earliestByTrying(ChannelProblem problem, const std::vector<int> &boxes, const std::vector<std::vector<PartWork>> &work) {
  std::vector<std::pair<size_t, PartWork>> pieces;
  for (size_t w = 0; w < work.size(); ++w) {
    std::fill(problem.seconds[w].begin(), problem.seconds[w].end(), 0.0);
    for (const PartWork &piece : work[w])
      pieces.push_back({w, piece});
  }
  double best = std::numeric_limits<double>::infinity();
  std::function<void(size_t)> next = [&](size_t i) {
    if (i == pieces.size()) {
      best = std::min(best, run(problem, boxes).makespan);
      return;
    }
    auto &[w, piece] = pieces[i];
    for (int part = piece.first; part <= piece.last; ++part) {
      problem.seconds[w][size_t(part)] += piece.seconds;
      next(i + 1);
      problem.seconds[w][size_t(part)] -= piece.seconds;
    }
  };
  next(0);
  return best;
}

static void boundsOfTables() {
  Random random = Random::seeded(3);
  double least = 1, sum = 0;
  int tables = 0;
  for (int round = 0; round < 150; ++round) {
    Case one;
    ScheduleRequest request;
    const Schedule schedules[] = {Schedule::GPipe, Schedule::OneFOneB, Schedule::ZBH1, Schedule::ZBV, Schedule::Interleaved};
    request.schedule = schedules[random.below(5)];
    request.chunks = request.schedule == Schedule::ZBV || request.schedule == Schedule::Interleaved ? 2 : 1;
    request.workers = 1 + int(random.below(3)), request.microbatches = 1 + int(random.below(5));
    if (!check(request).empty())
      continue;
    ChannelProblem problem = chainOf(generate(request), 1, 2);
    std::vector<int> boxes = findBoxes(problem);
    bool fixed = random.below(3) == 0;
    std::vector<std::vector<PartWork>> work(problem.seconds.size());
    for (size_t w = 0; w < work.size(); ++w) {
      int parts = splitsBackward(request.schedule) ? 3 * request.chunks : 2 * request.chunks, wide = 0;
      for (int part = 0; part < parts; ++part)
        work[w].push_back({double(1 + random.below(4)), part, part});
      for (; !fixed && wide < 2; ++wide) {
        int first = int(random.below(parts)), last = first + int(random.below(parts - first));
        work[w].push_back({double(1 + random.below(4)), first, last});
      }
    }
    double bound = earliestEnd(problem, boxes, work), found = earliestByTrying(problem, boxes, work);
    expect(bound <= found * (1 + 1e-9), "a table that ends at " + std::to_string(found) + " has the bound " + std::to_string(bound));
    expect(!fixed || bound > found * (1 - 1e-9), "with all work at its place the table's end is known: " + std::to_string(bound) + ", not " + std::to_string(found));
    least = std::min(least, bound / found), sum += bound / found, ++tables;
  }
  std::printf("%d tables: bounds of %.3f of the best, at least %.3f\n", tables, sum / tables, least);
  expect(sum > 0.97 * tables, "bounds of tables are near what can be reached");
}

// ---- Loop bodies -------------------------------------------------------------------------------------------------------
// The fastest loop within so many live bytes that repeats `more` kernels at most; infinite: none.
static double fastestByTrying(const StepGraph &g, int64_t bytes, size_t more) {
  GraphIndex index(g);
  Timeline line(index);
  std::vector<int> loop, runs(g.kernels.size(), 0);
  std::vector<char> there(g.buffers.size(), 0);
  size_t first = 0;
  double best = std::numeric_limits<double>::infinity(), seconds = 0;
  std::function<void()> next = [&] {
    if (first == index.loop.size()) {
      if (seconds < best && line.build(1, loop) && line.peak <= bytes)
        best = seconds;
      return;
    }
    for (int k : index.loop) {
      if (runs[k] && (!index.mayRecompute[k] || loop.size() - first >= more))
        continue;
      if (std::any_of(g.kernels[k].reads.begin(), g.kernels[k].reads.end(), [&](int r) { return index.values[r] && !there[r]; }))
        continue;
      std::vector<char> before = there;
      for (int w : g.kernels[k].writes)
        there[w] = 1;
      first += runs[k]++ == 0, seconds += g.kernels[k].seconds.at(1);
      loop.push_back(k);
      next();
      loop.pop_back();
      first -= --runs[k] == 0, seconds -= g.kernels[k].seconds.at(1);
      there = before;
    }
  };
  next();
  return best;
}

static double secondsOfLoop(const StepGraph &g, const Plan &plan) {
  double seconds = 0;
  for (int t = plan.decision.loopBegin(); t < plan.decision.loopEnd(); ++t)
    seconds += g.kernels[size_t(plan.decision.runs[size_t(t)].kernel)].seconds.at(1);
  return seconds;
}

static void boundsOfSmallBodies() {
  Random random = Random::seeded(5);
  int exact = 0, tried = 0;
  for (int round = 0; round < 40; ++round) {
    Case one;
    int64_t count = 1 + int64_t(random.below(4));
    StepGraph g = randomBody(random, twoParts(count, int64_t(random.below(count))), 2);
    GraphIndex index(g);
    Timeline line(index);
    line.build(1, index.loop);
    for (int64_t bytes = line.peak; bytes > 0; bytes -= 64) {
      double fastest = fastestByTrying(g, bytes, 2);
      if (std::isinf(fastest))
        break;
      DagLimits limits;
      limits.work = 1'000'000;
      PartsBound bound = partsBound(g, 1, bytes, fastest, limits);
      expect(bound.fault.empty(), bound.fault);
      ++tried, exact += bound.seconds > fastest * (1 - 1e-6);
    }
  }
  std::printf("small bodies: %d of %d bounds are reached\n", exact, tried);
  expect(4 * exact > tried, "a quarter of the bounds of small bodies is reached");
}

// The planner's loops at several budgets, of bodies in two parts and in six.
static void boundsOfPlans() {
  Random random = Random::seeded(6);
  int plans = 0, repeats = 0, proven = 0;
  for (int round = 0; round < 120; ++round) {
    Case one;
    int64_t count = 1 + int64_t(random.below(6));
    StepGraph g;
    if (round % 2) {
      g = randomBody(random, twoParts(count, int64_t(random.below(count))));
    } else {
      ScheduleRequest request;
      request.schedule = Schedule::ZBV, request.workers = 1 + int(random.below(3)), request.chunks = 2, request.microbatches = int(count);
      size_t w = size_t(random.below(request.workers));
      g = ChunkBody(random, chainOf(generate(request), 1, 2).actions[w], int(w) == request.workers - 1).g;
    }
    Planner planner(g);
    SearchOptions options;
    options.microbatch = 1;
    SearchResult free = planner.search(options);
    options.arenaBudget = 0;
    free.smallestArena = planner.search(options).smallestArena;
    for (int step = 0; step < 4; ++step) {
      options.arenaBudget = free.smallestArena + (free.plan.decision.arenaBytes - free.smallestArena) * step / 4;
      SearchResult found = planner.search(options);
      if (!found.feasible)
        continue;
      DagLimits limits;
      limits.work = 1'000'000;
      PartsBound bound = partsBound(g, 1, options.arenaBudget, secondsOfLoop(g, found.plan), limits);
      expect(bound.fault.empty(), bound.fault);
      ++plans, repeats += found.plan.recomputed > 0;
      proven += found.plan.recomputed > 0 && bound.seconds > secondsOfLoop(g, free.plan) * (1 + 1e-6);
    }
  }
  std::printf("%d plans, %d compute something again; of %d it is proven that some have to\n", plans, repeats, proven);
  expect(repeats > plans / 4 && 2 * proven > repeats, "bounds know of repetition");
}

int main() {
  boundsOfTables();
  boundsOfSmallBodies();
  boundsOfPlans();
  return tally();
}
