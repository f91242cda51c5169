// LINK: cinch_solve
// Values of the main loop that wait on the host: which and when, compared with all choices and all moments on small random loops; schedules with
// copies proved by the plan checker; and every fault that can be planted in the copies refused.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/Engines.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/SwapSearch.h"
#include "compiler/solve/Evaluate.h"

#include <cmath>
#include <functional>
#include <random>

using namespace cinch::solve;

static std::string prove(const StepGraph &g, const Plan &plan, int64_t hostBudget) {
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(g, plan.decision);
  program.peakLive = plan.peakLive, program.hostBudget = hostBudget;
  return checkPlan(g, program);
}

// A forward chain and a backward one that reads what the first has left, all sizes and times drawn.
static StepGraph chainOf(std::mt19937_64 &random, int layers) {
  GraphBuilder b;
  auto bytes = [&] { return 64 * int64_t(1 + random() % 12); };
  auto timed = [&](int kernel) { b.g.kernels[size_t(kernel)].seconds = {0.02 * double(1 + random() % 20), 0}; };
  int x = b.persistent("x", 64), sum = b.accumulator("sum", 64), h = x;
  std::vector<int> kept;
  for (int i = 0; i < layers; ++i) {
    int a = b.value("a" + std::to_string(i), 0, bytes());
    timed(b.kernel("forward" + std::to_string(i), {h}, {a}, 0, false));
    kept.push_back(a), h = a;
  }
  b.backward = true;
  int d = b.value("d", 0, bytes());
  timed(b.kernel("turn", {h}, {d}, 0, false));
  for (int i = layers - 1; i >= 0; --i) {
    int next = b.value("d" + std::to_string(i), 0, bytes());
    timed(b.kernel("backward" + std::to_string(i), {d, kept[size_t(i)]}, {next}, 0, false));
    d = next;
  }
  timed(b.kernel("sum", {d}, {sum}, 0, false));
  b.g.link = {1e3, 1e3, 0.01};
  return b.g;
}

// The least seconds of the body over all values that leave, and all moments of their copies; 1e300: none fits.
static double best(const StepGraph &g, const std::vector<int> &loop, const std::vector<IdleValue> &values, int64_t arena, int64_t host) {
  GraphIndex plain(g);
  double least = 1e300;
  std::vector<Swap> swaps;
  std::function<void(size_t, int64_t)> go = [&](size_t v, int64_t left) {
    if (v < values.size()) {
      go(v + 1, left);
      const IdleValue &value = values[v];
      if (value.bytes > left)
        return;
      for (int store : {value.made + 1, value.from + 1})
        for (int gone = value.from + 1; gone <= value.to && (store == value.made + 1 || value.made != value.from); ++gone)
          for (int fetch = gone; fetch <= value.to; ++fetch) {
            swaps.push_back({value.buffer, store, gone, fetch, value.to});
            go(v + 1, left - value.bytes);
            swaps.pop_back();
          }
      return;
    }
    // Copies of one moment begin in any order; so do those that the search makes.
    std::vector<Swap> order = swaps;
    std::sort(order.begin(), order.end(), [](const Swap &a, const Swap &b) { return a.buffer < b.buffer; });
    do {
      Swapped made = withSwaps(g, loop, order);
      double seconds = runEngines(made.graph, made.loop, 1).end;
      if (seconds >= least)
        continue;
      GraphIndex index(made.graph);
      Timeline line(index);
      if (line.build(1, made.loop) && line.peak <= arena)
        least = seconds;
    } while (std::next_permutation(order.begin(), order.end(), [](const Swap &a, const Swap &b) { return a.buffer < b.buffer; }));
  };
  go(0, host);
  return least;
}

static void testBruteForce() {
  std::mt19937_64 random(5);
  int cases = 0, equal = 0;
  double sum = 0, worst = 1;
  for (int i = 0; i < 120; ++i) {
    StepGraph g = chainOf(random, 3 + int(i % 4 == 0));
    GraphIndex index(g);
    SwapSearch search(index, 1, index.loop);
    Timeline line(index);
    line.build(1, index.loop);
    int64_t low = search.leastBytes(), high = line.peak, hostAll = 0;
    for (const IdleValue &value : search.values())
      hostAll += value.bytes;
    int64_t arena = low + int64_t(random() % uint64_t(high - low + 1)), host = random() % 3 ? hostAll : int64_t(random() % uint64_t(hostAll + 1));
    double least = best(g, index.loop, search.values(), arena, host);
    SwapAnswer mine = search.solve(arena, host, 2000);
    Case one;
    std::string which = "loop " + std::to_string(i);
    expect(mine.fits == (least < 1e300), which + (mine.fits ? " fits, brute force finds nothing" : " has a plan that is not found"));
    if (!mine.fits)
      continue;
    Swapped made = withSwaps(g, index.loop, mine.swaps);
    Plan plan = evaluate(made.graph, {1, made.loop});
    expect(plan.peakLive <= arena && plan.decision.hostBytes <= host && plan.decision.hostBytes == mine.hostBytes, which + " keeps both budgets");
    expect(std::abs(plan.seconds - mine.seconds) < 1e-9, which + ": the search counts as the simulation, " + std::to_string(mine.seconds) + " " + std::to_string(plan.seconds));
    expect(mine.seconds >= least - 1e-9 && mine.seconds >= search.leastSeconds(arena) - 1e-9, which + " is not faster than the best");
    std::string wrong = prove(made.graph, plan, host);
    expect(wrong.empty(), which + ": " + wrong);
    ++cases, equal += mine.seconds <= least + 1e-9, sum += mine.seconds / least, worst = std::max(worst, mine.seconds / least);
  }
  std::printf("%d of %d loops as good as the best, on average %.4f of it, worst %.4f\n", equal, cases, sum / cases, worst);
  expect(sum / cases < 1.02 && worst < 1.25, "the choices are near the best");
}

// ---- Faults ------------------------------------------------------------------------------------------------------------

// A loop of several trips, whose values all go through the host.
static void testFaults() {
  StepGraph g = denseChain(5, 12, 32);
  g.link = {1e9, 1e9, 1e-6};
  GraphIndex index(g);
  SwapSearch search(index, 3, index.loop);
  int64_t all = 0;
  for (const IdleValue &value : search.values())
    all += value.bytes;
  SwapAnswer found = search.solve(search.leastBytes(), all, 500);
  Swapped made = withSwaps(g, index.loop, found.swaps);
  Plan plan = evaluate(made.graph, {3, made.loop});
  const ScheduledProgram good = [&] {
    ScheduledProgram p = scheduledProgram(made.graph, plan.decision);
    p.hostBudget = p.hostBytes;
    return p;
  }();
  expect(found.swaps.size() > 2 && plan.error.empty() && checkPlan(made.graph, good).empty(), "the plan with copies is right: " + checkPlan(made.graph, good));
  int planted = 0;
  auto refused = [&](const std::string &what, const ScheduledProgram &bad) {
    ++planted;
    expect(!checkPlan(made.graph, bad).empty(), "refused: " + what);
  };
  auto copyOf = [&](size_t i) { return made.graph.kernels[size_t(good.launches[i].kernel)].copy; };
  auto uses = [&](size_t i, int buffer) {
    for (const auto *list : {&good.launches[i].reads, &good.launches[i].writes})
      for (const Place &place : *list)
        if (place.buffer == buffer)
          return true;
    return false;
  };
  auto moved = [&](size_t from, size_t to) { // launch `from` stands behind, or before, what stood at `to`
    ScheduledProgram bad = good;
    auto begin = bad.launches.begin();
    from < to ? std::rotate(begin + int64_t(from), begin + int64_t(from) + 1, begin + int64_t(to) + 1)
              : std::rotate(begin + int64_t(to), begin + int64_t(from), begin + int64_t(from) + 1);
    return bad;
  };
  for (size_t i = 0; i < good.launches.size(); ++i) {
    if (copyOf(i) == Kernel::NoCopy)
      continue;
    const std::string who = made.graph.kernels[size_t(good.launches[i].kernel)].name;
    const int buffer = copyOf(i) == Kernel::Fetch ? good.launches[i].writes.front().buffer : good.launches[i].reads.front().buffer;
    size_t before = i, behind = i + 1;
    while (before > 0 && (!uses(before - 1, buffer) || (copyOf(i) == Kernel::Await && copyOf(before - 1) == Kernel::NoCopy)))
      --before;
    while (behind < good.launches.size() && !uses(behind, buffer))
      ++behind;
    ScheduledProgram bad = good;
    if (copyOf(i) == Kernel::Await) {
      refused(who + " before its copy", moved(i, before - 1));
      refused(who + " behind the next use", moved(i, behind));
      bad.launches.erase(bad.launches.begin() + int64_t(i));
      bad.loops.back().end -= 1;
      refused(who + " left out", bad);
      continue;
    }
    refused(who + " before what it needs", moved(i, before - 1));
    bad = good;
    auto &host = copyOf(i) == Kernel::Store ? bad.launches[i].writes.front() : bad.launches[i].reads.front();
    host.offset = host.offset ? 0 : good.hostBytes - host.bytes;
    refused(who + ", another value's place on the host", bad);
    bad = good;
    for (const Launch &other : good.launches)
      if (copyOf(size_t(&other - good.launches.data())) == copyOf(i) && other.kernel != good.launches[i].kernel)
        (copyOf(i) == Kernel::Store ? bad.launches[i].reads : bad.launches[i].writes).front().offset =
            (copyOf(i) == Kernel::Store ? other.reads : other.writes).front().offset;
    if ((copyOf(i) == Kernel::Store ? bad.launches[i].reads.front().offset != good.launches[i].reads.front().offset
                                    : bad.launches[i].writes.front().offset != good.launches[i].writes.front().offset))
      refused(who + ", another place in the arena", bad);
  }
  // Bytes that are taken before what leaves them is waited for: each write that lies where a value lay.
  for (size_t i = 0; i < good.launches.size(); ++i)
    if (copyOf(i) == Kernel::Await && i + 1 < good.launches.size()) {
      const Place &left = good.launches[i].reads.front();
      for (size_t t = i + 1; t < size_t(good.loops.back().end); ++t)
        if (copyOf(t) == Kernel::NoCopy && !good.launches[t].writes.empty() && good.launches[t].writes.front().offset == left.offset &&
            !uses(t, left.buffer)) {
          refused("the bytes of " + made.graph.buffers[size_t(left.buffer)].name + " are taken before it has left", moved(i, t));
          break;
        }
    }
  // A sum is cleared in bytes that are on their way.
  for (size_t i = 0; i + 1 < good.launches.size(); ++i) {
    Place sum = good.loops.back().zeroed.back();
    if (copyOf(i) == Kernel::Store && copyOf(i + 1) == Kernel::NoCopy) {
      sum.offset = std::max<int64_t>(0, good.launches[i].reads.front().offset + good.launches[i].reads.front().bytes - sum.bytes);
      ScheduledProgram bad = good;
      bad.loops.back().zeroed.pop_back();
      bad.launches[i + 1].zeroed.push_back(sum);
      ++planted;
      std::string wrong = checkPlan(made.graph, bad);
      expect(wrong.find("clears") != std::string::npos, "a sum is cleared where a copy is under way: " + wrong);
      break;
    }
  }
  ScheduledProgram bad = good;
  bad.hostBudget = bad.hostBytes - 1;
  refused("more pinned memory than there may be", bad);
  std::printf("%d faults planted in copies\n", planted);
  expect(planted > 40, "faults are planted");

  // Graphs that are none.
  auto fault = [&](const char *what, const std::function<void(StepGraph &)> &change) {
    StepGraph other = made.graph;
    change(other);
    expect(!GraphIndex(other).error.empty(), std::string("no graph: ") + what);
  };
  int slot = int(g.buffers.size()), store = made.graph.buffers[size_t(slot)].producer;
  fault("a kernel works on the host's memory", [&](StepGraph &o) { o.kernels[0].reads.push_back(slot); });
  fault("a value on the host that no copy leaves there", [&](StepGraph &o) { o.buffers[size_t(slot)].producer = 0, o.kernels[size_t(store)].writes.clear(); });
  fault("a copy between places of two sizes", [&](StepGraph &o) { o.buffers[size_t(slot)].perExampleBytes += 64; });
  fault("a parameter is copied in the loop", [&](StepGraph &o) { o.kernels[size_t(store)].reads[0] = 0; });
  fault("a copy in a loop that runs in parts", [&](StepGraph &o) { o.actions = {{0, 0}, {1, 0}}; });
}

// ---- Schedules of a training step --------------------------------------------------------------------------------------

// Down from what a transformer's loop holds: each budget is kept, proved, and with a fast link costs no time at first.
static void testTransformer() {
  StepGraph g = transformer(4, 64, 32, 256, 8);
  for (double rate : {1e11, 5e9}) {
    g.link = {rate, rate, 1e-5};
    GraphIndex index(g);
    SwapSearch search(index, 4, index.loop);
    Timeline line(index);
    line.build(4, index.loop);
    double before = 1e300;
    int away = 0;
    for (int i = 0; i <= 8; ++i) {
      int64_t room = search.leastBytes() + (line.peak - search.leastBytes()) * i / 8;
      SwapAnswer found = search.solve(room, INT64_MAX, 2000);
      Case one;
      std::string which = "transformer in " + std::to_string(room);
      Swapped made = withSwaps(g, index.loop, found.swaps);
      Plan plan = evaluate(made.graph, {4, made.loop});
      expect(found.fits && plan.peakLive <= room && prove(made.graph, plan, found.hostBytes).empty(), which + " has a plan: " + prove(made.graph, plan, found.hostBytes));
      expect(std::abs(plan.seconds - (predictedSeconds(index, 4, index.loop) + 2 * (found.seconds - search.leastSeconds(line.peak)))) < 1e-9, which + " is priced by its simulation");
      expect(found.seconds <= before * 1.03, which + " is not slower than in less");
      before = found.seconds, away += !found.swaps.empty();
    }
    expect(away == 8 && before <= search.leastSeconds(line.peak) + 1e-12, "where all fits nothing leaves");
  }
}

int main() {
  testFaults();
  testTransformer();
  testBruteForce();
  return tally();
}
