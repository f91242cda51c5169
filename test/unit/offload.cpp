// LINK: cinch_solve
// State on the host: the simulation of copies beside kernels, the order of the copies beside all orders there are, plans with copies proved
// by the plan checker, and every fault that can be planted in the copies refused.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/Engines.h"
#include "compiler/solve/Offload.h"
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

int main() {
  testEngines();
  testOrders();
  return tally();
}
