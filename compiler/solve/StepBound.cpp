// StepBound.cpp: the loop as a graph of values, and the bounds of dag/ on it, the quick ones first.
#include "compiler/solve/StepBound.h"
#include "compiler/solve/Timeline.h"

#include <algorithm>

namespace cinch::solve {

namespace {

// The most that what a kernel writes may take over from what it reads: a value serves one of them.
int64_t takenOver(const GraphIndex &index, const Kernel &kernel, int64_t b) {
  const StepGraph &g = index.graph;
  int64_t bytes = 0;
  for (int w : kernel.writes)
    if (index.values[w] && std::any_of(kernel.inPlace.begin(), kernel.inPlace.end(), [&](auto &pair) {
          return pair.first == w && !index.livesThroughLoop(pair.second) && g.buffers[pair.second].bytes(b) == g.buffers[w].bytes(b);
        }))
      bytes += g.buffers[w].bytes(b);
  return bytes;
}

} // namespace

LoopDag loopDag(const StepGraph &g, int64_t b, int64_t arenaBytes) {
  GraphIndex index(g);
  LoopDag loop;
  loop.room = arenaBytes;
  for (size_t v = 0; v < g.buffers.size(); ++v)
    if (index.livesThroughLoop(int(v)))
      loop.room -= g.buffers[v].bytes(b);
  std::vector<int> nodeOf(g.buffers.size(), -1);
  for (int k : index.loop) {
    const Kernel &kernel = g.kernels[k];
    std::vector<int> sources, written;
    for (int r : kernel.reads)
      if (nodeOf[r] >= 0)
        sources.push_back(nodeOf[r]);
    int64_t all = 0, working = g.scratchBytes(kernel, b) - takenOver(index, kernel, b);
    for (int w : kernel.writes)
      if (index.values[w])
        written.push_back(w), all += g.buffers[w].bytes(b);
    auto add = [&](int buffer, int64_t bytes, double share, int64_t others) {
      Dag::Node node;
      node.id = loop.dag.size();
      node.name = kernel.name;
      node.cost = kernel.seconds.at(double(b)) * share;
      node.bytes = bytes;
      node.working = working + others;
      node.sources = sources;
      for (int s : sources)
        loop.dag.nodes[s].users.push_back(loop.dag.size());
      if (buffer >= 0)
        nodeOf[buffer] = loop.dag.size();
      loop.dag.nodes.push_back(std::move(node));
    };
    if (written.empty())
      add(-1, 0, 1, 0);
    for (int w : written) {
      int64_t bytes = g.buffers[w].bytes(b);
      add(w, bytes, all ? double(bytes) / double(all) : 1.0 / double(written.size()), w == written.front() ? all - bytes : 0);
    }
  }
  return loop;
}

StepBound stepBound(const StepGraph &g, int64_t b, std::optional<int64_t> arenaBytes, double known, const DagLimits &limits) {
  StepBound result;
  GraphIndex index(g);
  double plain = predictedSeconds(index, b, index.loop), trips = double(g.batch / b);
  result.seconds = plain;
  if (arenaBytes && known > plain) {
    LoopDag loop = loopDag(g, b, *arenaBytes);
    // Everything is computed once: the bounds are on what is repeated in a trip.
    double target = (known - plain) / trips;
    double again = detail::repetitionBound(loop.dag, Order::Free, loop.room, target, limits);
    result.seconds += again * trips;
  }
  constexpr double kRounding = 1e-9; // the same costs are added up in other orders
  if (result.seconds > known * (1 + kRounding))
    result.fault = "a plan of " + std::to_string(known) + " s is known, and none below " + std::to_string(result.seconds) +
                   " s was proven to exist";
  return result;
}

} // namespace cinch::solve
