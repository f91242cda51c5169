// Explain.cpp: reads a finished plan.
#include "compiler/solve/Explain.h"

#include <algorithm>

namespace cinch::solve {

const char *str(MemoryClass c) {
  static const char *names[kMemoryClasses] = {"state", "accumulators", "stored", "recomputed", "working", "scratch"};
  return names[int(c)];
}

MemoryClass classOf(const StepGraph &g, const Decision &d, const Instance &i) {
  if (i.buffer < 0)
    return MemoryClass::Scratch;
  const Buffer &buffer = g.buffers[i.buffer];
  if (buffer.kind == Buffer::Accumulator)
    return MemoryClass::Accumulator;
  if (buffer.kind == Buffer::Persistent || i.run < 0)
    return MemoryClass::State;
  const Run &run = d.runs[i.run];
  if (run.recomputed)
    return MemoryClass::Recomputed;
  const Kernel &kernel = g.kernels[run.kernel];
  return kernel.section == g.mainLoop() && !kernel.backward ? MemoryClass::Stored : MemoryClass::Working;
}

std::vector<std::array<int64_t, kMemoryClasses>> occupancy(const StepGraph &g, const Decision &d) {
  std::vector<std::array<int64_t, kMemoryClasses>> at(d.runs.size() + 1);
  // A storage belongs to the instance that was written last: each owns it until the next one is born.
  std::vector<std::vector<int>> owners(d.storages.size());
  for (size_t i = 0; i < d.instances.size(); ++i)
    owners[d.instances[i].storage].push_back(int(i));
  for (size_t s = 0; s < d.storages.size(); ++s) {
    std::stable_sort(owners[s].begin(), owners[s].end(),
                     [&](int a, int b) { return d.instances[a].lower < d.instances[b].lower; });
    for (size_t o = 0; o < owners[s].size(); ++o) {
      int c = int(classOf(g, d, d.instances[owners[s][o]]));
      int lower = o == 0 ? d.storages[s].lower : d.instances[owners[s][o]].lower;
      int upper = o + 1 < owners[s].size() ? d.instances[owners[s][o + 1]].lower : d.storages[s].upper;
      at[std::min<size_t>(lower, d.runs.size())][c] += d.storages[s].bytes;
      at[std::min<size_t>(upper, d.runs.size())][c] -= d.storages[s].bytes;
    }
  }
  for (size_t t = 1; t < at.size(); ++t)
    for (int c = 0; c < kMemoryClasses; ++c)
      at[t][c] += at[t - 1][c];
  at.pop_back();
  return at;
}

int turnOf(const StepGraph &g, const Decision &d) {
  for (int t = d.loopBegin(); t < d.loopEnd(); ++t)
    if (g.kernels[d.runs[t].kernel].backward)
      return t;
  return d.loopEnd();
}

std::vector<KeptValue> keptValues(const StepGraph &g, const Decision &d) {
  std::vector<KeptValue> kept;
  int turn = turnOf(g, d);
  std::vector<bool> priced(g.kernels.size(), false);
  for (const Instance &i : d.instances) {
    if (i.run < d.loopBegin() || i.run >= turn || i.upper <= turn || i.buffer < 0 ||
        classOf(g, d, i) != MemoryClass::Stored)
      continue;
    int kernel = d.runs[i.run].kernel;
    if (g.kernels[kernel].copy != Kernel::NoCopy) // on the host, or back from there
      continue;
    double seconds = priced[kernel] ? 0 : g.kernels[kernel].seconds.at(d.microbatch) * double(d.count);
    priced[kernel] = true;
    kept.push_back({i.buffer, i.bytes, seconds});
  }
  std::stable_sort(kept.begin(), kept.end(), [](const KeptValue &a, const KeptValue &b) { return a.bytes > b.bytes; });
  return kept;
}

std::vector<HostValue> hostValues(const StepGraph &g, const Decision &d) {
  std::vector<HostValue> values;
  for (int t = d.loopBegin(); t < d.loopEnd(); ++t)
    if (const Run &run = d.runs[t]; g.kernels[run.kernel].copy == Kernel::Store) {
      const Instance &value = d.instances[run.reads.front()];
      double seconds = g.link.seconds(Kernel::Store, value.bytes) + g.link.seconds(Kernel::Fetch, value.bytes);
      values.push_back({value.buffer, value.bytes, seconds * double(d.count)});
    }
  std::stable_sort(values.begin(), values.end(), [](const HostValue &a, const HostValue &b) { return a.bytes > b.bytes; });
  return values;
}

std::vector<Recomputation> recomputations(const StepGraph &g, const Decision &d) {
  std::vector<bool> readByBackward(g.buffers.size(), false);
  for (const Kernel &kernel : g.kernels)
    if (kernel.section == g.mainLoop() && kernel.backward)
      for (int b : kernel.reads)
        readByBackward[b] = true;
  std::vector<Recomputation> again(g.kernels.size());
  for (const Run &run : d.runs)
    again[run.kernel].times += run.recomputed;
  for (size_t k = 0; k < again.size(); ++k) {
    again[k].kernel = int(k);
    again[k].seconds = g.kernels[k].seconds.at(d.microbatch) * double(d.count) * again[k].times;
    for (int b : g.kernels[k].writes)
      if (readByBackward[b])
        again[k].bytes += g.buffers[b].bytes(d.microbatch);
  }
  again.erase(std::remove_if(again.begin(), again.end(), [](const Recomputation &r) { return r.times == 0; }),
              again.end());
  std::stable_sort(again.begin(), again.end(),
                   [](const Recomputation &a, const Recomputation &b) { return a.seconds > b.seconds; });
  return again;
}

std::vector<LadderPoint> namedStrategies(const StepGraph &g) {
  std::vector<LadderPoint> points;
  GraphIndex index(g);
  if (!index.error.empty())
    return points;
  Sweep sweep(index);
  Timeline line(index);
  std::vector<int64_t> sizes = microbatches(g);
  for (const char *name : {"none", "cheap", "every:2", "sqrt", "marked", "all"}) {
    Strategy strategy;
    std::string error;
    if (!parseStrategy(name, strategy, error))
      continue;
    std::vector<int> loop = schedule(sweep, strategy);
    for (int64_t b : sizes)
      if (line.build(b, loop))
        points.push_back({line.peak, line.peak, predictedSeconds(index, b, loop), b, name});
  }
  return points;
}

} // namespace cinch::solve
