// Evaluate.cpp: builds the timeline of a choice, packs its storages and prices it.
#include "compiler/solve/Evaluate.h"

#include <algorithm>

namespace cinch::solve {

std::vector<int> plainLoop(const StepGraph &g) {
  std::vector<int> loop;
  for (size_t k = 0; k < g.kernels.size(); ++k)
    if (g.inMainLoop(int(k)))
      loop.push_back(int(k));
  return loop;
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d <= n / d; ++d)
    if (n % d == 0) {
      low.push_back(d);
      if (d != n / d)
        high.push_back(n / d);
    }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<int64_t> microbatches(const StepGraph &g) {
  std::vector<int64_t> sizes;
  for (int64_t d : divisors(g.batch / g.grain))
    sizes.push_back(d * g.grain);
  return sizes;
}

Plan evaluate(const StepGraph &g, const Choice &choice, const ArenaLimits &limits) {
  return evaluate(GraphIndex(g), choice, limits);
}

// What is wrong with a choice; empty: nothing. Every kernel of the loop runs, those that write accumulators or may not be repeated
// exactly once.
static std::string faultOf(const GraphIndex &index, const Choice &choice) {
  const StepGraph &g = index.graph;
  int64_t b = choice.microbatch;
  if (!index.error.empty())
    return index.error;
  if (b < 1 || g.batch % b || b % g.grain)
    return "micro-batch " + std::to_string(b) + " does not divide the batch " + std::to_string(g.batch) +
           " or is no multiple of " + std::to_string(g.grain) + ", the examples that belong together (grain, groups)";
  std::vector<int> count(g.kernels.size(), 0);
  for (int k : choice.loop) {
    if (k < 0 || k >= int(g.kernels.size()) || !g.inMainLoop(k))
      return "the schedule runs kernel " + std::to_string(k) + ", which is not in the main loop";
    ++count[k];
  }
  for (int k : index.loop)
    if (count[k] == 0 || (count[k] > 1 && !index.mayRecompute[k]))
      return "kernel " + std::to_string(k) + " (" + g.kernels[k].name + ") runs " + std::to_string(count[k]) + " times";
  return "";
}

// The runs of the timeline, and what those cost that repeat another.
static void takeRuns(const Timeline &line, Plan &plan) {
  const StepGraph &g = line.index.graph;
  Decision &d = plan.decision;
  std::vector<bool> ran(g.kernels.size(), false);
  for (int t = 0; t < line.end; ++t) {
    Run run;
    run.kernel = line.runs[t];
    run.reads.assign(line.readInstances.begin() + line.firstRead[t], line.readInstances.begin() + line.firstRead[t + 1]);
    run.writes.assign(line.writeInstances.begin() + line.firstWrite[t], line.writeInstances.begin() + line.firstWrite[t + 1]);
    run.scratch = line.scratch[t];
    run.recomputed = ran[run.kernel];
    ran[run.kernel] = true;
    if (run.recomputed) {
      ++plan.recomputed;
      plan.recomputeSeconds += g.kernels[run.kernel].seconds.at(d.microbatch) * double(d.count);
    }
    d.runs.push_back(std::move(run));
  }
}

static void takeInstances(const Timeline &line, Decision &d) {
  d.storages.resize(line.storageBytes.size());
  for (size_t i = 0; i < line.instances.size(); ++i) {
    const Timeline::Life &life = line.instances[i];
    d.instances.push_back({life.buffer, life.run, line.bytes(int(i)), life.copies, life.lower, life.upper, life.storage, 0});
    d.storages[life.storage] = {line.storageBytes[life.storage], line.storageLower[life.storage], line.storageUpper[life.storage], -1};
  }
}

// Offsets of all storages: persistent ones first, in their order; the rest is packed above them. Returns what is wrong.
// What may be wasted above so many bytes that are alive.
static int64_t wasteOf(int64_t bytes, const StepGraph &graph) { return std::max(bytes / 2000, graph.page); }

static std::string placeStorages(const GraphIndex &index, const ArenaLimits &limits, Decision &d) {
  for (Instance &i : d.instances) {
    Storage &s = d.storages[i.storage];
    if (i.buffer >= 0 && index.persistent[i.buffer]) {
      s.offset = d.persistentBytes;
      d.persistentBytes += s.bytes;
    }
  }
  ArenaProblem problem;
  std::vector<int> packed;
  for (size_t s = 0; s < d.storages.size(); ++s)
    if (d.storages[s].offset < 0) {
      problem.buffers.push_back({d.storages[s].bytes, d.storages[s].lower, d.storages[s].upper, -1});
      packed.push_back(int(s));
    }
  // Within a two-thousandth of the bound, or a page, is near enough: the search for the rest would cost more than it gives.
  ArenaLimits enough = limits;
  if (!enough.capacity) {
    int64_t bound = lowerBound(problem);
    enough.capacity = bound + roundDown(wasteOf(bound + d.persistentBytes, index.graph));
  }
  ArenaSolution solution = solve(problem, enough);
  for (size_t i = 0; i < packed.size(); ++i)
    d.storages[packed[i]].offset = d.persistentBytes + solution.offsets[i];
  d.arenaBytes = d.persistentBytes + solution.height;
  for (Instance &i : d.instances) {
    i.offset = d.storages[i.storage].offset;
    if (i.buffer >= 0 && index.graph.buffers[size_t(i.buffer)].space == Buffer::Host)
      i.offset = d.hostBytes, d.hostBytes += i.bytes;
  }
  return verify(problem, solution);
}

// The loops, and the sums that each begins, or one of its runs.
static void takeLoops(const Timeline &line, Decision &d) {
  for (const Timeline::Span &span : line.spans)
    d.loops.push_back({span.begin, span.end, {}});
  for (size_t i = 0; i < d.instances.size(); ++i) {
    int buffer = d.instances[i].buffer;
    if (buffer < 0 || line.index.graph.buffers[buffer].kind != Buffer::Accumulator || d.loops.empty() || line.index.begun[buffer])
      continue;
    if (line.index.beginsLate(buffer, line.microbatch))
      d.runs[size_t(d.instances[i].lower)].zeroed.push_back(int(i));
    else
      d.loops[size_t(line.index.summedIn[buffer] / 2)].zeroed.push_back(int(i));
  }
}

Plan evaluate(const GraphIndex &index, const Choice &choice, const ArenaLimits &limits) {
  const StepGraph &g = index.graph;
  Plan plan;
  plan.error = faultOf(index, choice);
  if (!plan.error.empty())
    return plan;
  Timeline line(index);
  if (!line.build(choice.microbatch, choice.loop)) {
    plan.error = line.error;
    return plan;
  }
  Decision &d = plan.decision;
  d.microbatch = choice.microbatch, d.count = g.batch / choice.microbatch;
  plan.peakLive = line.peak, plan.peakRun = line.peakRun;
  takeRuns(line, plan);
  plan.seconds = predictedSeconds(index, choice.microbatch, choice.loop);
  takeInstances(line, d);
  takeLoops(line, d);
  plan.error = placeStorages(index, limits, d);
  return plan;
}

Plan evaluateQuickly(const GraphIndex &index, const Choice &choice) {
  ArenaLimits limits;
  limits.work /= 40;
  return evaluate(index, choice, limits);
}

bool isPackedWell(const StepGraph &graph, int64_t arenaBytes, int64_t peakLive) { return arenaBytes <= peakLive + wasteOf(peakLive, graph); }
bool isPackedWell(const StepGraph &graph, const Plan &plan) { return isPackedWell(graph, plan.decision.arenaBytes, plan.peakLive); }

Plan evaluateWell(const GraphIndex &index, const Choice &choice) {
  Plan plan = evaluateQuickly(index, choice);
  if (!plan.error.empty() || isPackedWell(index.graph, plan))
    return plan;
  Plan better = evaluate(index, choice);
  return better.error.empty() && better.decision.arenaBytes < plan.decision.arenaBytes ? better : plan;
}

std::vector<LiveBuffer> alive(const StepGraph &g, const Plan &plan, int run) {
  std::vector<LiveBuffer> live;
  for (const Instance &i : plan.decision.instances) {
    if (i.lower > run || i.upper <= run || i.bytes == 0 || (i.buffer >= 0 && g.buffers[size_t(i.buffer)].space == Buffer::Host))
      continue;
    LiveBuffer entry;
    entry.bytes = i.bytes;
    const Run *by = i.run >= 0 ? &plan.decision.runs[i.run] : nullptr;
    entry.recomputed = by && by->recomputed;
    if (i.buffer >= 0) {
      entry.name = g.buffers[i.buffer].name, entry.line = g.buffers[i.buffer].line;
    } else {
      entry.name = "scratch of " + g.kernels[by->kernel].name, entry.line = g.kernels[by->kernel].line;
    }
    live.push_back(std::move(entry));
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const LiveBuffer &a, const LiveBuffer &b) { return a.bytes > b.bytes; });
  return live;
}

} // namespace cinch::solve
