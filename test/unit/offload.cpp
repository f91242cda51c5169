// LINK: cinch_solve
// State on the host: the simulation of copies beside kernels, the order of the copies beside all orders there are, plans with copies proved
// by the plan checker, and every fault that can be planted in the copies refused.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/Engines.h"
#include "compiler/solve/OffloadSearch.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Search.h"

#include <cmath>
#include <functional>
#include <random>

using namespace cinch::solve;

static std::vector<int> behind(const StepGraph &g) {
  std::vector<int> list;
  for (size_t k = 0; k < g.kernels.size(); ++k)
    if (g.kernels[k].section > g.mainLoop())
      list.push_back(int(k));
  return list;
}

static std::string prove(const StepGraph &g, const Plan &plan, int64_t hostBudget) {
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(g, plan.decision);
  program.peakLive = plan.peakLive, program.hostBudget = hostBudget;
  return checkPlan(g, program);
}

// Updates alone, of the given bytes and seconds, each with one state.
static StepGraph updatesOf(const std::vector<int64_t> &bytes, const std::vector<double> &seconds) {
  GraphBuilder b;
  b.section = 2, b.backward = true;
  for (size_t i = 0; i < bytes.size(); ++i) {
    int m = b.persistent("m", bytes[i]);
    b.kernel("update", {}, {m}, 0, true);
    b.g.kernels.back().seconds = {seconds[i], 0};
  }
  b.g.link = {1e3, 1e3, 0.01};
  return b.g;
}

// By hand: two states of one size go through two places without a gap.
static void testEngines() {
  StepGraph g = updatesOf({640, 640, 640, 640}, {0.1, 0.1, 0.1, 0.1});
  g.link.latency = 0;
  EngineTimes plain = runEngines(g, behind(g), 1);
  expect(std::abs(plain.end - 0.4) < 1e-12 && plain.waited() < 1e-12 && plain.bytes == 0, "kernels alone take their time");
  auto timesOf = [&](int64_t window) {
    StepGraph moved = withOffload(g, {movableState(g), window}).graph;
    return runEngines(moved, behind(moved), 1);
  };
  // In, update, out, one after the other: 4 * (0.64 + 0.1 + 0.64).
  EngineTimes one = timesOf(640), two = timesOf(1280), all = timesOf(4 * 640);
  expect(std::abs(one.end - 4 * 1.38) < 1e-9, "one place: nothing beside anything, " + std::to_string(one.end));
  // The second comes while the first is updated and leaves: its place is free when that has left, 1.38, and so on.
  expect(two.end < 4.1 && two.end > 3.2, "two places: both directions at once, " + std::to_string(two.end));
  // As many places as states: the copies in take 2.56 without a gap, then an update and a copy out.
  expect(std::abs(all.end - (4 * 0.64 + 0.1 + 0.64)) < 1e-9, "places for all: " + std::to_string(all.end));
  expect(std::abs(all.in - 2.56) < 1e-9 && std::abs(all.out - 2.56) < 1e-9 && all.bytes == 4 * 640, "what is copied");
}

// The end of the best order of copies in and of waits for copies out, if no more than `window` bytes are there.
static double bestOrder(const std::vector<int64_t> &bytes, const std::vector<double> &seconds, int64_t window, const HostLink &link) {
  size_t n = bytes.size();
  double best = 1e300;
  std::vector<double> in(n), out(n);
  std::function<void(size_t, size_t, size_t, int64_t, double, double, double)> go = [&](size_t fetched, size_t updated, size_t left, int64_t held,
                                                                                        double now, double freeIn, double freeOut) {
    if (left == n) {
      best = std::min(best, std::max({now, freeIn, freeOut}));
      return;
    }
    if (fetched < n && held + bytes[fetched] <= window) {
      in[fetched] = std::max(freeIn, now) + link.seconds(Kernel::Fetch, bytes[fetched]);
      go(fetched + 1, updated, left, held + bytes[fetched], now, in[fetched], freeOut);
    }
    if (updated < fetched) {
      double end = std::max(now, in[updated]) + seconds[updated];
      out[updated] = std::max(freeOut, end) + link.seconds(Kernel::Store, bytes[updated]);
      go(fetched, updated + 1, left, held, end, freeIn, out[updated]);
    }
    if (left < updated)
      go(fetched, updated, left + 1, held - bytes[left], std::max(now, out[left]), freeIn, freeOut);
  };
  go(0, 0, 0, 0, 0, 0, 0);
  return best;
}

static void testOrders() {
  std::mt19937_64 random(3);
  double worst = 1, sum = 0;
  int cases = 0, equal = 0;
  for (int i = 0; i < 300; ++i) {
    size_t n = 1 + random() % 5;
    std::vector<int64_t> bytes;
    std::vector<double> seconds;
    int64_t largest = 0, all = 0;
    for (size_t k = 0; k < n; ++k) {
      bytes.push_back(64 * int64_t(1 + random() % 20));
      seconds.push_back(0.01 * double(random() % 20));
      largest = std::max(largest, bytes.back()), all += bytes.back();
    }
    int64_t window = largest + int64_t(random() % uint64_t(all - largest + 1));
    StepGraph g = updatesOf(bytes, seconds);
    StepGraph moved = withOffload(g, {movableState(g), window}).graph;
    double mine = runEngines(moved, behind(moved), 1).end, best = bestOrder(bytes, seconds, window, g.link);
    expect(mine >= best - 1e-9, "no order is faster than the best, " + std::to_string(mine) + " " + std::to_string(best));
    worst = std::max(worst, mine / best), sum += mine / best, ++cases, equal += mine <= best + 1e-9;
  }
  std::printf("orders of copies: %d of %d as good as the best, on average %.4f of it, worst %.4f\n", equal, cases, sum / cases, worst);
  expect(worst < 1.35 && sum / cases < 1.03, "the order of the copies is near the best");
}

// ---- Plans -------------------------------------------------------------------------------------------------------------

struct Asked {
  SearchResult plain;
  OffloadAnswer answer;
};
static Asked ask(const StepGraph &g, int64_t budget, int64_t hostBudget) {
  Variant plain;
  plain.rows.graph = g;
  for (size_t k = 0; k < g.kernels.size(); ++k)
    plain.rows.original.push_back(int(k));
  VariantPlanner planner({plain});
  SearchOptions options;
  options.arenaBudget = budget;
  Asked asked;
  int chosen = 0;
  asked.plain = planner.search(options, false, chosen);
  asked.answer = searchOffload({plain}, asked.plain, planner.ladder(options), options, hostBudget);
  return asked;
}

// At budgets from what the step needs with all of its state on the host up to where nothing is recomputed.
static void testPlans(const std::string &name, StepGraph g, double bytesPerSecond) {
  g.link = {bytesPerSecond, bytesPerSecond, 1e-5};
  Planner planner(g);
  SearchOptions options;
  int64_t high = planner.search(options).plan.decision.arenaBytes, state = Offload{movableState(g), 0}.bytes();
  options.arenaBudget = 0;
  int64_t smallest = planner.search(options).smallestArena;
  Asked least = ask(g, 0, INT64_MAX);
  int64_t low = least.answer.result.smallestArena;
  expect(!least.answer.result.feasible && low < smallest && least.answer.result.bound <= low && least.answer.result.bound + state <= smallest,
         name + ": what lies on the host lowers the smallest arena, " + std::to_string(low) + " of " + std::to_string(smallest));
  double before = 1e300;
  int faster = 0, found = 0;
  for (int i = 0; i <= 6; ++i) {
    int64_t budget = low + (high - low) * i / 6;
    Case one;
    Asked asked = ask(g, budget, INT64_MAX);
    const SearchResult &result = asked.answer.result;
    std::string which = name + " in " + std::to_string(budget) + " bytes";
    bool moved = !asked.answer.rows.graph.kernels.empty();
    expect(result.feasible && result.plan.decision.arenaBytes <= budget, which + " has a plan");
    expect(!asked.plain.feasible || result.plan.seconds <= asked.plain.plan.seconds, which + " is not slower than without");
    expect(result.plan.seconds >= result.secondsBound && result.plan.seconds <= before * 1.001, which + " is not slower than in less memory");
    before = result.plan.seconds;
    std::string wrong = moved ? prove(asked.answer.rows.graph, result.plan, result.plan.decision.hostBytes) : prove(g, result.plan, 0);
    expect(wrong.empty(), which + ": " + wrong);
    if (moved) {
      ++found, faster += asked.plain.feasible;
      // No more than there is; with a byte less there is another plan, or none.
      int64_t host = result.plan.decision.hostBytes;
      expect(host > 0, which + " has its state in pinned memory");
      Asked short_ = ask(g, budget, host - 1);
      expect(!short_.answer.result.feasible || short_.answer.result.plan.decision.hostBytes < host, which + " keeps the host's budget");
    }
  }
  expect(found > 1, name + ": state is moved at small budgets");
  std::printf("%s: smallest arena %.2f of that without; state on the host at %d of 7 budgets, at %d of them it is faster than recomputation alone\n",
              name.c_str(), double(low) / double(smallest), found, faster);
}

// ---- Faults ------------------------------------------------------------------------------------------------------------

static void testFaults() {
  StepGraph g = denseChain(4, 8, 32);
  g.link = {1e9, 1e9, 1e-6};
  std::vector<UpdateState> all = movableState(g);
  StepGraph moved = withOffload(g, {all, 2 * all.front().bytes}).graph;
  Plan plan = evaluate(moved, {4, plainLoop(moved)});
  const ScheduledProgram good = [&] {
    ScheduledProgram p = scheduledProgram(moved, plan.decision);
    p.hostBudget = p.hostBytes;
    return p;
  }();
  expect(plan.error.empty() && checkPlan(moved, good).empty(), "the plan with copies is right: " + checkPlan(moved, good));
  auto copyOf = [&](const Launch &l) { return moved.kernels[size_t(l.kernel)].copy; };
  int planted = 0;
  auto refused = [&](const std::string &what, ScheduledProgram bad) {
    ++planted;
    expect(!checkPlan(moved, bad).empty(), "refused: " + what);
  };
  auto takes = [](const Launch &l, const Launch &copy) { // the value in the arena that an Await waits for
    for (const auto *list : {&l.reads, &l.writes})
      for (const Place &place : *list)
        if (place.buffer == copy.reads.front().buffer)
          return true;
    return false;
  };
  for (size_t i = 0; i < good.launches.size(); ++i) {
    const Launch &l = good.launches[i];
    std::string who = moved.kernels[size_t(l.kernel)].name;
    if (copyOf(l) == Kernel::Await) {
      // A wait that comes before its copy, or for a copy in behind its reader.
      ScheduledProgram bad = good;
      size_t begin = i;
      while (begin > 0 && !takes(good.launches[begin - 1], l))
        --begin;
      std::rotate(bad.launches.begin() + int64_t(begin) - 1, bad.launches.begin() + int64_t(i), bad.launches.begin() + int64_t(i) + 1);
      refused(who + " before its copy", bad);
      size_t use = i + 1;
      while (use < good.launches.size() && !takes(good.launches[use], l))
        ++use;
      if (use < good.launches.size()) {
        bad = good;
        std::rotate(bad.launches.begin() + int64_t(i), bad.launches.begin() + int64_t(i) + 1, bad.launches.begin() + int64_t(use) + 1);
        refused(who + " behind the update", bad);
      }
    }
    if (copyOf(l) == Kernel::Store) {
      ScheduledProgram bad = good; // before the update
      std::swap(bad.launches[i], bad.launches[i - 1]);
      if (copyOf(good.launches[i - 1]) == Kernel::NoCopy)
        refused(who + " before the update", bad);
      bad = good; // the other state's place on the host
      for (Place &place : bad.launches[i].writes)
        place.offset = place.offset ? 0 : good.hostBytes - place.bytes;
      refused(who + " to another place on the host", bad);
    }
    if (copyOf(l) == Kernel::Fetch) {
      ScheduledProgram bad = good; // into what another copy, or a gradient, has
      for (Place &place : bad.launches[i].writes)
        place.offset = place.offset ? 0 : 64;
      refused(who + " to another place in the arena", bad);
      bad = good;
      bad.launches[i].reads.front().offset += 64;
      refused(who + " from another place on the host", bad);
    }
  }
  for (size_t i = 0; i < good.persistent.size(); ++i)
    if (moved.buffers[size_t(good.persistent[i].buffer)].space == Buffer::Host) {
      ScheduledProgram bad = good;
      bad.persistent[i].offset = bad.persistent[i].offset ? 0 : 64;
      refused("state on the host over other state", bad);
    }
  ScheduledProgram bad = good;
  bad.hostBudget = bad.hostBytes - 1;
  refused("more pinned memory than there may be", bad);
  bad = good, bad.hostBytes += 64, bad.hostBudget += 64;
  refused("pinned memory that nobody uses", bad);
  // A copy that is begun before its place is free: the places of all states on top of one another.
  for (size_t i = 0; i < good.launches.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (copyOf(good.launches[i]) == Kernel::Fetch && copyOf(good.launches[j]) == Kernel::Await && i == j + 1 &&
          good.launches[i].writes.front().offset == good.launches[j].reads.front().offset) {
        bad = good;
        std::swap(bad.launches[i], bad.launches[j]);
        refused("a copy into a place that is not free yet", bad);
      }
  std::printf("%d faults planted in copies\n", planted);
  expect(planted > 60, "faults are planted");

  // Graphs that are none.
  auto fault = [&](const char *what, const std::function<void(StepGraph &)> &change) {
    StepGraph other = moved;
    change(other);
    expect(!GraphIndex(other).error.empty(), std::string("no graph: ") + what);
  };
  fault("a kernel works on the host's memory", [&](StepGraph &o) { o.kernels.back().copy = Kernel::NoCopy, o.kernels.back().reads[0] = all[0].buffers[0]; });
  fault("a value lies on the host", [&](StepGraph &o) { o.buffers.back().space = Buffer::Host; });
  fault("a copy between places of two sizes", [&](StepGraph &o) { o.buffers.back().fixedBytes += 64; });
}

int main() {
  testEngines();
  testOrders();
  testFaults();
  testPlans("chain", denseChain(6, 16, 64), 2e9);
  testPlans("chain, slow bus", denseChain(6, 16, 64), 2e7);
  testPlans("transformer", transformer(3, 64, 32, 256, 8), 5e9);
  return tally();
}
