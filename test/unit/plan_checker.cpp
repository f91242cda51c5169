// LINK: cinch_solve
// The plan checker accepts right programs and rejects every kind of wrong one, at every place where it can be planted.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Search.h"

#include <algorithm>
#include <functional>
#include <map>

using namespace cinch::solve;

// Hands every mutant to the checker. `mutate(program, n)` plants fault number n and returns false when there is none
// left.
static void reject(const StepGraph &g, const ScheduledProgram &good, const char *kind,
                   const std::function<bool(ScheduledProgram &, int)> &mutate) {
  int planted = 0, accepted = 0;
  for (int n = 0; n < 400; ++n) {
    ScheduledProgram bad = good;
    if (!mutate(bad, n))
      break;
    ++planted;
    accepted += checkPlan(g, bad).empty();
  }
  expect(planted > 0 && accepted == 0,
         std::string(kind) + ": " + std::to_string(accepted) + " of " + std::to_string(planted) + " mutants accepted");
}

// The n-th launch for which `wanted` holds.
static Launch *pick(ScheduledProgram &p, int n, const std::function<bool(const Launch &)> &wanted) {
  for (Launch &l : p.launches)
    if (wanted(l) && n-- == 0)
      return &l;
  return nullptr;
}

// Does launch `at` write the very bytes that an earlier run of its kernel wrote? If nothing overwrote them in
// between, the program is right without it, so such places get no faults that take it away.
static bool writesWhereBefore(const std::vector<Launch> &launches, size_t at) {
  for (size_t i = 0; i < at; ++i)
    if (launches[i].kernel == launches[at].kernel &&
        launches[i].writes.front().offset == launches[at].writes.front().offset)
      return true;
  return false;
}

static bool inLoop(const ScheduledProgram &p, size_t at) {
  return std::any_of(p.loops.begin(), p.loops.end(), [&](const LaunchLoop &l) { return l.begin <= int(at) && int(at) < l.end; });
}

// The loops keep their other launches.
static void erase(ScheduledProgram &p, size_t at) {
  p.launches.erase(p.launches.begin() + long(at));
  for (LaunchLoop &l : p.loops)
    l.begin -= l.begin > int(at), l.end -= l.end > int(at);
}
// Once more, right before itself.
static void repeat(ScheduledProgram &p, size_t at) {
  p.launches.insert(p.launches.begin() + long(at), Launch(p.launches[at]));
  for (LaunchLoop &l : p.loops)
    l.begin += l.begin > int(at), l.end += l.end > int(at);
}

static void testMutants(const StepGraph &g, const char *strategy, int64_t microbatch) {
  SearchOptions options;
  std::string error;
  parseStrategy(strategy, options.strategy, error);
  options.microbatch = microbatch;
  SearchResult r = Planner(g).search(options);
  ScheduledProgram good = scheduledProgram(g, r.plan.decision);
  good.peakLive = r.plan.peakLive;
  expect(checkPlan(g, good).empty(), std::string("accepts ") + strategy + ": " + checkPlan(g, good));

  auto isValue = [&](int b) { return g.buffers[b].kind == Buffer::Value && g.buffers[b].producer >= 0; };
  auto anyRead = [](const Launch &l) { return !l.reads.empty(); };
  auto all = [](const Launch &) { return true; };
  std::map<int, int> runs;
  for (const Launch &l : good.launches)
    ++runs[l.kernel];
  auto behind = size_t(good.loops.back().end); // the first launch behind the loops

  reject(g, good, "a read from the next bytes", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, anyRead);
    return l && (l->reads.front().offset += 64, true);
  });
  reject(g, good, "a read from another buffer's bytes", [&](ScheduledProgram &p, int n) {
    Launch *l =
        pick(p, n, [](const Launch &x) { return x.reads.size() > 1 && x.reads[0].offset != x.reads[1].offset; });
    return l && (l->reads[0].offset = l->reads[1].offset, true);
  });
  reject(g, good, "a write to the bytes before", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [](const Launch &x) { return x.writes.front().offset >= 64; });
    return l && (l->writes.front().offset -= 64, true);
  });
  reject(g, good, "a write over a persistent buffer", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [&](const Launch &x) { return isValue(x.writes.front().buffer); });
    return l && (l->writes.front().offset = 0, true);
  });
  reject(g, good, "a missing launch", [&](ScheduledProgram &p, int n) {
    for (size_t i = 0; i < p.launches.size(); ++i)
      if (!writesWhereBefore(p.launches, i) && n-- == 0)
        return erase(p, i), true;
    return false;
  });
  auto anyAgain = [&] {
    for (size_t i = 0; i < good.launches.size(); ++i)
      if (runs[good.launches[i].kernel] > 1 && !writesWhereBefore(good.launches, i))
        return true;
    return false;
  };
  if (g.loops == 1 || anyAgain())
  reject(g, good, "a missing recomputation", [&](ScheduledProgram &p, int n) {
    std::map<int, int> seen;
    for (size_t i = 0; i < p.launches.size(); ++i)
      if (seen[p.launches[i].kernel]++ && !writesWhereBefore(p.launches, i) && n-- == 0)
        return erase(p, i), true;
    return false;
  });
  reject(g, good, "a sum that goes on twice", [&](ScheduledProgram &p, int n) {
    for (size_t i = 0; i < p.launches.size(); ++i)
      for (const Place &w : p.launches[i].writes)
        if (inLoop(p, i) && g.buffers[w.buffer].kind == Buffer::Accumulator && n-- == 0)
          return repeat(p, i), true;
    return false;
  });
  reject(g, good, "an update that runs twice", [&](ScheduledProgram &p, int n) {
    for (size_t i = behind + 1; i < p.launches.size(); ++i)
      if (n-- == 0)
        return repeat(p, i), true;
    return false;
  });
  reject(g, good, "a launch before what it needs", [&](ScheduledProgram &p, int n) {
    for (size_t i = 1; i < p.launches.size(); ++i)
      for (const Place &x : p.launches[i].reads)
        for (const Place &w : p.launches[i - 1].writes)
          if (x.buffer == w.buffer && x.offset == w.offset && !writesWhereBefore(p.launches, i - 1) && n-- == 0) {
            std::swap(p.launches[i], p.launches[i - 1]);
            return true;
          }
    return false;
  });
  reject(g, good, "an arena claimed too small",
         [&](ScheduledProgram &p, int n) { return n == 0 && (p.arenaBytes -= 64, true); });
  reject(g, good, "an arena larger than its budget", [&](ScheduledProgram &p, int n) { return n == 0 && (p.arenaBudget = p.arenaBytes - 1, true); });
  reject(g, good, "an arena claimed too large",
         [&](ScheduledProgram &p, int n) { return n == 0 && (p.arenaBytes += 64, true); });
  reject(g, good, "a peak claimed too small",
         [&](ScheduledProgram &p, int n) { return n == 0 && (p.peakLive -= 64, true); });
  reject(g, good, "a peak claimed too large",
         [&](ScheduledProgram &p, int n) { return n == 0 && (p.peakLive += 64, true); });
  reject(g, good, "a size cut short", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, all);
    return l && (l->writes.front().bytes -= 64, true);
  });
  reject(g, good, "a misaligned offset", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, all);
    return l && (l->writes.back().offset += 32, true);
  });
  reject(g, good, "a negative offset", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, anyRead);
    return l && (l->reads.back().offset = -64, true);
  });
  reject(g, good, "bytes beyond the arena", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, all);
    return l && (l->writes.back().offset = p.arenaBytes, true);
  });
  // Of the n-th sum that is zeroed: its loop and its place there.
  auto zeroed = [](ScheduledProgram &p, int n) {
    for (LaunchLoop &l : p.loops)
      for (size_t i = 0; i < l.zeroed.size(); ++i)
        if (n-- == 0)
          return std::pair(&l, i);
    return std::pair<LaunchLoop *, size_t>(nullptr, 0);
  };
  reject(g, good, "an accumulator that is not zeroed", [&](ScheduledProgram &p, int n) {
    auto [loop, i] = zeroed(p, n);
    return loop && (loop->zeroed.erase(loop->zeroed.begin() + long(i)), true);
  });
  reject(g, good, "an accumulator zeroed twice", [&](ScheduledProgram &p, int n) {
    auto [loop, i] = zeroed(p, n);
    return loop && (loop->zeroed.push_back(Place(loop->zeroed[i])), true);
  });
  reject(g, good, "the wrong bytes zeroed", [&](ScheduledProgram &p, int n) {
    auto [loop, i] = zeroed(p, n);
    return loop && (loop->zeroed[i].offset = 0, true);
  });
  reject(g, good, "a value zeroed", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [&](const Launch &x) { return isValue(x.writes.front().buffer); });
    return l && (p.loops.back().zeroed.push_back(l->writes.front()), true);
  });
  if (g.loops > 1) {
    reject(g, good, "a sum zeroed before another loop", [&](ScheduledProgram &p, int n) {
      auto [loop, i] = zeroed(p, n);
      if (!loop)
        return false;
      LaunchLoop &other = loop == &p.loops.front() ? p.loops.back() : p.loops.front();
      Place place = loop->zeroed[i];
      loop->zeroed.erase(loop->zeroed.begin() + long(i));
      other.zeroed.push_back(place);
      return true;
    });
    reject(g, good, "a missing loop", [&](ScheduledProgram &p, int n) { return n == 0 && (p.loops.erase(p.loops.begin()), true); });
    reject(g, good, "a loop that ends late", [&](ScheduledProgram &p, int n) { return n == 0 && (++p.loops.front().end, true); });
    reject(g, good, "a loop that begins late", [&](ScheduledProgram &p, int n) { return n < g.loops && (++p.loops[size_t(n)].begin, true); });
  }
  reject(g, good, "too few micro-batches", [&](ScheduledProgram &p, int n) { return n == 0 && (p.count -= 1, true); });
  reject(g, good, "a micro-batch of another size", [&](ScheduledProgram &p, int n) {
    if (n || p.count < 2)
      return n == 0 && (p.microbatch += 1, true);
    p.microbatch *= 2, p.count /= 2;
    return true;
  });
  reject(g, good, "a persistent buffer without a place", [&](ScheduledProgram &p, int n) {
    return n < int(p.persistent.size()) && (p.persistent.erase(p.persistent.begin() + n), true);
  });
  reject(g, good, "a persistent buffer on another's bytes", [&](ScheduledProgram &p, int n) {
    return n + 1 < int(p.persistent.size()) && (p.persistent[n].offset = p.persistent[n + 1].offset, true);
  });
  reject(g, good, "a launch in the wrong section", [&](ScheduledProgram &p, int n) {
    LaunchLoop &loop = p.loops.back();
    if (loop.begin + n >= loop.end)
      return false;
    std::rotate(p.launches.begin() + loop.begin, p.launches.begin() + loop.begin + n, p.launches.begin() + loop.begin + n + 1);
    ++loop.begin;
    return true;
  });
  reject(g, good, "a read of another buffer", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, anyRead);
    return l && (l->reads.front().buffer = (l->reads.front().buffer + 1) % int(g.buffers.size()), true);
  });
  reject(g, good, "another kernel", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, all);
    return l && (l->kernel = (l->kernel + 1) % int(g.kernels.size()), true);
  });
  reject(g, good, "a kernel that does not exist", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, all);
    return l && (l->kernel = int(g.kernels.size()), true);
  });
  reject(g, good, "an operand too many", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, anyRead);
    return l && (l->reads.push_back(Place(l->reads.front())), true);
  });
  reject(g, good, "a result on bytes that the launch reads", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [&](const Launch &x) {
      const Kernel &k = g.kernels[x.kernel];
      for (const Place &y : x.reads)
        if (std::find(k.inPlace.begin(), k.inPlace.end(), std::make_pair(x.writes[0].buffer, y.buffer)) !=
            k.inPlace.end())
          return false;
      return !x.reads.empty() && isValue(x.writes[0].buffer) && isValue(x.reads[0].buffer) && x.writes[0].bytes > 0;
    });
    return l && (l->writes[0].offset = l->reads[0].offset, true);
  });
  auto withScratch = [](const Launch &l) { return l.hasScratch; };
  bool anyScratch = pick(good, 0, withScratch);
  if (anyScratch) {
    reject(g, good, "missing scratch", [&](ScheduledProgram &p, int n) {
      Launch *l = pick(p, n, withScratch);
      return l && (l->hasScratch = false, true);
    });
    reject(g, good, "scratch too small", [&](ScheduledProgram &p, int n) {
      Launch *l = pick(p, n, withScratch);
      return l && (l->scratch.bytes -= 64, true);
    });
    reject(g, good, "scratch on what is read", [&](ScheduledProgram &p, int n) {
      Launch *l = pick(p, n, withScratch);
      return l && (l->scratch.offset = l->reads.front().offset, true);
    });
    reject(g, good, "scratch on what is written", [&](ScheduledProgram &p, int n) {
      Launch *l = pick(p, n, withScratch);
      return l && (l->scratch.offset = l->writes.front().offset, true);
    });
    reject(g, good, "scratch on parameters", [&](ScheduledProgram &p, int n) {
      Launch *l = pick(p, n, withScratch);
      return l && (l->scratch.offset = 0, true);
    });
  }
  reject(g, good, "an accumulator that moves", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [&](const Launch &x) {
      return g.buffers[x.writes.back().buffer].kind == Buffer::Accumulator && x.writes.back().bytes > 0;
    });
    return l && (l->writes.back().offset += 64, true);
  });
  reject(g, good, "updates before the norm", [&](ScheduledProgram &p, int n) {
    if (behind + size_t(n) + 1 >= p.launches.size())
      return false;
    std::swap(p.launches[behind], p.launches[behind + size_t(n) + 1]);
    return true;
  });
}

// A chain of layers that is divided by a sum over the whole batch: a loop of its own, and work between the loops.
static StepGraph masked() {
  GraphBuilder b;
  b.g.batch = 12, b.g.loops = 2;
  int x = b.persistent("x", 0, 256), w = b.persistent("w", 512);
  b.section = 0;
  int prepared = b.value("prepared", 0, 512);
  b.kernel("prepare", {w}, {prepared}, 0, true);
  b.section = 1;
  int chosen = b.value("chosen", 128), count = b.accumulator("count", 64);
  b.kernel("choose", {x, prepared}, {chosen}, 10, true);
  b.kernel("count", {chosen}, {count}, 1, true);
  b.section = 2;
  int divisor = b.value("divisor", 0, 64);
  b.kernel("divide", {count}, {divisor}, 0, true);
  b.section = 3;
  int h = b.value("h", 512), y = b.value("y", 512), d = b.value("d", 512), dw = b.accumulator("dw", 512);
  b.kernel("first", {x, prepared}, {h}, 1000, false);
  b.kernel("second", {h}, {y}, 1000, true);
  b.inPlace(y, h);
  b.backward = true;
  b.kernel("loss", {y, divisor}, {d}, 10, true);
  b.kernel("gradient", {d, h, x}, {dw}, 1000, false);
  b.section = 4;
  int norm = b.value("norm", 0, 64);
  b.kernel("norm", {dw, count}, {norm}, 0, true);
  b.kernel("update", {norm, dw, w}, {w}, 0, false);
  return b.g;
}

// What runs once a step stands in the graph's order, even where no bytes say so: a gate, which writes nothing, before the updates.
static void testGate() {
  StepGraph g = masked();
  Kernel gate = g.kernels.back();
  gate.name = "gate", gate.reads.resize(1), gate.writes.clear();
  g.kernels.insert(g.kernels.end() - 1, gate);
  ScheduledProgram good = scheduledProgram(g, Planner(g).search({}).plan.decision);
  expect(checkPlan(g, good).empty(), "accepts a gate: " + checkPlan(g, good));
  ScheduledProgram bad = good;
  std::swap(bad.launches[bad.launches.size() - 2], bad.launches.back());
  expect(checkPlan(g, bad).find("runs behind") != std::string::npos, "an update before the gate is refused: " + checkPlan(g, bad));
}

// With one micro-batch a sum begins with its first work, which clears it, and its bytes are others' before.
static void testLateSums(StepGraph g) {
  SearchOptions options;
  options.microbatch = g.batch;
  SearchResult early = Planner(g).search(options);
  g.sumsBeginLate = true;
  SearchResult late = Planner(g).search(options);
  expect(late.plan.peakLive < early.plan.peakLive, "sums that begin late need fewer bytes: " + std::to_string(late.plan.peakLive) + " and " +
                                                       std::to_string(early.plan.peakLive));
  ScheduledProgram good = scheduledProgram(g, late.plan.decision);
  good.peakLive = late.plan.peakLive;
  expect(checkPlan(g, good).empty() && good.loops.back().zeroed.empty(), "accepts sums that begin late: " + checkPlan(g, good));
  auto begins = [](const Launch &l) { return !l.zeroed.empty(); };
  reject(g, good, "a sum that goes on from other bytes", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, begins);
    return l && (l->zeroed.pop_back(), true);
  });
  reject(g, good, "a sum that is cleared behind its work", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, begins);
    if (!l)
      return false;
    (l + 1)->zeroed.push_back(l->zeroed.back());
    l->zeroed.pop_back();
    return true;
  });
  reject(g, good, "a sum that is cleared by the loop", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, begins);
    return l && (p.loops.back().zeroed.push_back(l->zeroed.back()), true);
  });
  reject(g, good, "a sum in bytes that are alive when it begins", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [&](const Launch &x) { return begins(x) && !x.reads.empty(); });
    if (!l)
      return false;
    const Place &read = l->reads.front();
    for (Launch &launch : p.launches)
      for (auto *places : {&launch.reads, &launch.writes, &launch.zeroed})
        for (Place &place : *places)
          if (place.buffer == l->zeroed.front().buffer)
            place.offset = read.offset;
    return true;
  });
  // With several their order is not one that was made for late sums.
  options.microbatch = 1;
  SearchResult several = Planner(g).search(options);
  expect(several.plan.decision.loops.back().zeroed.size() > 0, "several micro-batches find their sums cleared");
  g.sumsBeginLate = false;
  expect(several.plan.peakLive == Planner(g).search(options).plan.peakLive, "several micro-batches need what they need without late sums");
}

int main() {
  testLateSums(transformer(2, 64, 32, 256, 4));
  testGate();
  testMutants(masked(), "none", 4);
  testMutants(masked(), "all", 1);
  testMutants(transformer(2, 64, 32, 256, 4), "sqrt", 2);
  testMutants(transformer(2, 64, 32, 256, 4), "every:1", 1);
  testMutants(transformer(2, 64, 32, 256, 4), "all", 4);
  testMutants(denseChain(6, 6, 64), "every:3", 2);
  return tally();
}
