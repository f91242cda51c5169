// LINK: cinch_solve
// The plan checker accepts right programs and rejects every kind of wrong one, at every place where it can be planted.
#include "test/unit/Expect.h"
#include "TrainingGraphs.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Search.h"

#include <functional>
#include <map>

using namespace cinch::solve;

using Part = std::vector<Launch> ScheduledProgram::*;

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

static const Part kParts[] = {&ScheduledProgram::prologue, &ScheduledProgram::loop, &ScheduledProgram::epilogue};

// The n-th launch for which `wanted` holds.
static Launch *pick(ScheduledProgram &p, int n, const std::function<bool(const Launch &)> &wanted) {
  for (Part part : kParts)
    for (Launch &l : p.*part)
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
  for (const Launch &l : good.loop)
    ++runs[l.kernel];

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
    for (Part part : kParts)
      for (size_t i = 0; i < (p.*part).size(); ++i)
        if (!writesWhereBefore(p.*part, i) && n-- == 0) {
          (p.*part).erase((p.*part).begin() + i);
          return true;
        }
    return false;
  });
  reject(g, good, "a missing recomputation", [&](ScheduledProgram &p, int n) {
    std::map<int, int> seen;
    for (size_t i = 0; i < p.loop.size(); ++i)
      if (seen[p.loop[i].kernel]++ && !writesWhereBefore(p.loop, i) && n-- == 0) {
        p.loop.erase(p.loop.begin() + i);
        return true;
      }
    return false;
  });
  reject(g, good, "a sum that goes on twice", [&](ScheduledProgram &p, int n) {
    for (size_t i = 0; i < p.loop.size(); ++i)
      for (const Place &w : p.loop[i].writes)
        if (g.buffers[w.buffer].kind == Buffer::Accumulator && n-- == 0) {
          p.loop.insert(p.loop.begin() + i, Launch(p.loop[i]));
          return true;
        }
    return false;
  });
  reject(g, good, "an update that runs twice", [&](ScheduledProgram &p, int n) {
    for (size_t i = 1; i < p.epilogue.size(); ++i)
      if (n-- == 0) {
        p.epilogue.insert(p.epilogue.begin() + i, Launch(p.epilogue[i]));
        return true;
      }
    return false;
  });
  reject(g, good, "a launch before what it needs", [&](ScheduledProgram &p, int n) {
    for (Part part : {kParts[1], kParts[2]})
      for (size_t i = 1; i < (p.*part).size(); ++i)
        for (const Place &x : (p.*part)[i].reads)
          for (const Place &w : (p.*part)[i - 1].writes)
            if (x.buffer == w.buffer && x.offset == w.offset && !writesWhereBefore(p.*part, i - 1) && n-- == 0) {
              std::swap((p.*part)[i], (p.*part)[i - 1]);
              return true;
            }
    return false;
  });
  reject(g, good, "an arena claimed too small",
         [&](ScheduledProgram &p, int n) { return n == 0 && (p.arenaBytes -= 64, true); });
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
  reject(g, good, "an accumulator that is not zeroed", [&](ScheduledProgram &p, int n) {
    return n < int(p.zeroed.size()) && (p.zeroed.erase(p.zeroed.begin() + n), true);
  });
  reject(g, good, "an accumulator zeroed twice", [&](ScheduledProgram &p, int n) {
    return n < int(p.zeroed.size()) && (p.zeroed.push_back(Place(p.zeroed[n])), true);
  });
  reject(g, good, "the wrong bytes zeroed",
         [&](ScheduledProgram &p, int n) { return n < int(p.zeroed.size()) && (p.zeroed[n].offset = 0, true); });
  reject(g, good, "a value zeroed", [&](ScheduledProgram &p, int n) {
    Launch *l = pick(p, n, [&](const Launch &x) { return isValue(x.writes.front().buffer); });
    return l && (p.zeroed.push_back(l->writes.front()), true);
  });
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
    if (n >= int(p.loop.size()))
      return false;
    p.prologue.push_back(p.loop[n]);
    p.loop.erase(p.loop.begin() + n);
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
    if (n + 1 >= int(p.epilogue.size()))
      return false;
    std::swap(p.epilogue[0], p.epilogue[n + 1]);
    return true;
  });
}

int main() {
  testMutants(transformer(2, 64, 32, 256, 4), "sqrt", 2);
  testMutants(transformer(2, 64, 32, 256, 4), "every:1", 1);
  testMutants(transformer(2, 64, 32, 256, 4), "all", 4);
  testMutants(denseChain(6, 6, 64), "every:3", 2);
  return tally();
}
