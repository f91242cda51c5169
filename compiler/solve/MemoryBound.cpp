// MemoryBound.cpp: what lives through the loop in any order and the operands of the neediest kernel, and the exact peak outside of the loop.
#include "compiler/solve/MemoryBound.h"

#include <algorithm>

namespace cinch::solve {

int64_t memoryBound(const GraphIndex &index, int64_t b) {
  const StepGraph &g = index.graph;
  // Before and after the loop the order is the graph's, so its exact peak counts. Inside it every kernel needs its
  // operands, besides what lives through the loop in any order.
  Timeline line(index);
  std::vector<int> loop = plainLoop(g);
  if (!line.build(b, loop))
    return 0;
  std::vector<int64_t> profile = line.profile();
  int64_t bound = 0, through = 0;
  for (int t = 0; t < int(profile.size()); ++t)
    if (t < line.loopBegin || t >= line.loopEnd)
      bound = std::max(bound, profile[t]);
  std::vector<bool> isThrough(line.storageBytes.size(), false);
  for (size_t s = 0; s < line.storageBytes.size(); ++s)
    if (line.storageLower[s] <= line.loopBegin && line.storageUpper[s] >= line.loopEnd &&
        line.loopEnd > line.loopBegin) {
      isThrough[s] = true;
      through += line.storageBytes[s];
    }
  // A storage that happens to span the loop because of its order alone is not certain to: it holds what a kernel of the loop makes, or a sum
  // that begins with its first work.
  for (size_t i = 0; i < line.instances.size(); ++i) {
    const Timeline::Life &life = line.instances[i];
    const bool ofOrder = (life.run >= line.loopBegin && life.run < line.loopEnd) || (life.buffer >= 0 && index.beginsLate(life.buffer, b));
    if (ofOrder && isThrough[life.storage]) {
      isThrough[life.storage] = false;
      through -= line.storageBytes[life.storage];
    }
  }
  for (int t = line.loopBegin; t < line.loopEnd; ++t) {
    const Kernel &kernel = g.kernels[line.runs[t]];
    int64_t bytes = through;
    auto add = [&](int i) {
      if (!isThrough[line.instances[i].storage])
        bytes += line.bytes(i);
    };
    for (int i = line.firstRead[t]; i < line.firstRead[t + 1]; ++i)
      add(line.readInstances[i]);
    for (int i = line.firstWrite[t]; i < line.firstWrite[t + 1]; ++i)
      add(line.writeInstances[i]);
    if (line.scratch[t] >= 0)
      bytes += line.bytes(line.scratch[t]);
    // Every write may at best take the bytes of a read.
    std::vector<int> taken;
    for (int w : kernel.writes)
      for (auto &[to, from] : kernel.inPlace)
        if (to == w && g.buffers[from].bytes(b) == g.buffers[w].bytes(b) && !index.persistent[from] &&
            g.buffers[from].kind == Buffer::Value && index.bornIn[from] == g.mainLoop() &&
            std::find(taken.begin(), taken.end(), from) == taken.end()) {
          bytes -= g.buffers[w].bytes(b);
          taken.push_back(from);
          break;
        }
    bound = std::max(bound, bytes);
  }
  return bound;
}

int64_t memoryBound(const std::vector<Variant> &variants, int64_t microbatch) {
  int64_t least = INT64_MAX;
  for (const Variant &variant : variants) {
    const StepGraph &graph = variant.rows.graph;
    if (microbatch % graph.grain != 0) // blocks of several examples need micro-batches of whole blocks
      continue;
    GraphIndex index(graph);
    least = std::min(least, index.error.empty() ? memoryBound(index, microbatch) : 0);
  }
  return least == INT64_MAX ? 0 : least;
}

} // namespace cinch::solve
