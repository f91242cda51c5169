// Sweeps.cpp: a loop over the micro-batches becomes one kernel.
#include "compiler/solve/Sweeps.h"

#include "compiler/solve/PlanChecker.h"

#include <algorithm>

namespace cinch::solve {
namespace {

void addOnce(std::vector<int> &list, int x) {
  if (std::find(list.begin(), list.end(), x) == list.end())
    list.push_back(x);
}

// A value that one of the kernels makes and only they read.
bool isLocal(const StepGraph &g, const std::vector<int> &sweepOf, int sweep, int buffer) {
  const Buffer &b = g.buffers[buffer];
  if (b.kind != Buffer::Value || b.producer < 0 || sweepOf[b.producer] != sweep)
    return false;
  for (size_t k = 0; k < g.kernels.size(); ++k)
    if (sweepOf[k] != sweep && std::count(g.kernels[k].reads.begin(), g.kernels[k].reads.end(), buffer))
      return false;
  return true;
}

void buildTrip(const StepGraph &g, const std::vector<int> &sweepOf, int sweep, SweepKernel &out) {
  StepGraph &trip = out.trip;
  trip.batch = g.batch, trip.grain = g.grain, trip.threads = g.threads;
  std::vector<int> number(g.buffers.size(), -1);
  auto bufferOf = [&](int b) {
    if (number[b] >= 0)
      return number[b];
    number[b] = int(trip.buffers.size());
    Buffer buffer = g.buffers[b];
    bool local = isLocal(g, sweepOf, sweep, b);
    if (local) {
      buffer.producer = int(std::find(out.kernels.begin(), out.kernels.end(), buffer.producer) - out.kernels.begin());
    } else {
      buffer.kind = Buffer::Persistent;
      buffer.producer = -1;
      buffer.fixedBytes = buffer.perExampleBytes = 0;
    }
    trip.buffers.push_back(buffer);
    out.buffers.push_back(b);
    out.local.push_back(local);
    return number[b];
  };
  for (int k : out.kernels) {
    Kernel kernel = g.kernels[k];
    for (std::vector<int> *list : {&kernel.reads, &kernel.writes})
      for (int &b : *list)
        b = bufferOf(b);
    std::vector<std::pair<int, int>> inPlace;
    for (auto &[to, from] : g.kernels[k].inPlace)
      if (number[to] >= 0 && number[from] >= 0 && out.local[number[to]] && out.local[number[from]])
        inPlace.push_back({number[to], number[from]});
    kernel.inPlace = std::move(inPlace);
    kernel.section = Section::Loop;
    kernel.recomputable = false;
    trip.kernels.push_back(std::move(kernel));
  }
}

// What the rest of the step sees of it.
Kernel summarize(const StepGraph &g, const SweepKernel &sweep, std::string &error) {
  Kernel kernel;
  kernel.section = Section::Prologue;
  kernel.everyMicrobatch = true;
  kernel.recomputable = false;
  kernel.work = Kernel::Nothing;
  auto add = [](Linear &to, const Linear &from) { to.fixed += from.fixed, to.perExample += from.perExample; };
  for (const Kernel &part : sweep.trip.kernels) {
    for (int b : part.reads)
      if (!sweep.local[b])
        addOnce(kernel.reads, sweep.buffers[b]);
    for (int b : part.writes)
      if (!sweep.local[b])
        addOnce(kernel.writes, sweep.buffers[b]);
    add(kernel.seconds, part.seconds), add(kernel.flops, part.flops), add(kernel.traffic, part.traffic);
  }
  for (int b : kernel.writes) // a sum is no operand of its own loop
    kernel.reads.erase(std::remove(kernel.reads.begin(), kernel.reads.end(), b), kernel.reads.end());
  const Kernel &last = sweep.trip.kernels.back();
  kernel.name = "loop for " + last.name, kernel.line = last.line, kernel.libraryLine = last.libraryLine;
  int64_t unit = int64_t(64) * g.threads; // scratch is counted a thread
  for (int64_t b : microbatches(g)) {
    Plan plan = sweep.plan(b);
    if (!plan.error.empty())
      error = plan.error;
    int64_t bytes = (plan.decision.arenaBytes + unit - 1) / unit * 64;
    kernel.scratch.exactly.push_back({b, bytes});
  }
  return kernel;
}

} // namespace

FoldedStep foldSweeps(const StepGraph &g, const std::vector<int> &sweepOf) {
  FoldedStep out;
  out.graph = g;
  out.graph.kernels.clear();
  std::vector<int> number(g.kernels.size(), -1);
  for (size_t k = 0; k < g.kernels.size(); ++k) {
    int sweep = sweepOf[k];
    if (sweep < 0) {
      number[k] = int(out.graph.kernels.size());
      out.original.push_back(int(k));
      out.graph.kernels.push_back(g.kernels[k]);
      continue;
    }
    if (sweep < int(out.sweeps.size())) { // was folded with the first of its loop
      number[k] = out.sweeps[sweep].kernel;
      continue;
    }
    SweepKernel folded;
    folded.kernel = number[k] = int(out.graph.kernels.size());
    for (size_t other = k; other < g.kernels.size(); ++other)
      if (sweepOf[other] == sweep)
        folded.kernels.push_back(int(other));
    buildTrip(g, sweepOf, sweep, folded);
    out.original.push_back(-1);
    out.graph.kernels.push_back(summarize(g, folded, out.error));
    for (int b : out.graph.kernels.back().writes)
      if (g.buffers[b].kind == Buffer::Accumulator) {
        folded.sums.push_back(b);
        out.graph.buffers[b].kind = Buffer::Value;
      }
    out.sweeps.push_back(std::move(folded));
  }
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    Buffer &buffer = out.graph.buffers[b];
    if (buffer.producer < 0)
      continue;
    if (int sweep = sweepOf[buffer.producer]; sweep >= 0 && isLocal(g, sweepOf, sweep, int(b)))
      buffer.fixedBytes = buffer.perExampleBytes = 0;
    buffer.producer = number[buffer.producer];
  }
  return out;
}

std::string checkTrip(const LoopBody &body, int64_t microbatch) {
  Plan plan = body.plan(microbatch);
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(body.trip, plan.decision);
  program.peakLive = plan.peakLive;
  return checkPlan(body.trip, program);
}

} // namespace cinch::solve
