// StepBound.cpp: the loop as a graph of values, and the bounds of dag/ on it, the quick ones first.
#include "compiler/solve/StepBound.h"
#include "compiler/solve/Timeline.h"

#include <algorithm>
#include <map>
#include <set>

namespace cinch::solve {

namespace {

// The most that what a kernel writes may take over from what it reads: a value serves one of them. Both are of the same bytes, so that as many
// pairs as possible are found size by size.
class TakenOver {
public:
  TakenOver(const GraphIndex &index, const Kernel &kernel, int64_t b) : index(index), kernel(kernel), b(b) {
    for (int w : kernel.writes)
      if (tried.clear(); index.values[w] && place(w))
        bytes += index.graph.buffers[w].bytes(b);
  }
  int64_t bytes = 0;

private:
  // Finds bytes for w; who has them may have to look for others.
  bool place(int w) {
    for (auto &[to, from] : kernel.inPlace) {
      if (to != w || index.livesThroughLoop(from, b) || index.graph.buffers[from].bytes(b) != index.graph.buffers[w].bytes(b) || !tried.insert(from).second)
        continue;
      if (auto owner = taken.find(from); owner == taken.end() || place(owner->second)) {
        taken[from] = w;
        return true;
      }
    }
    return false;
  }

  const GraphIndex &index;
  const Kernel &kernel;
  int64_t b;
  std::map<int, int> taken; // what is read -> what is written there
  std::set<int> tried;
};

} // namespace

DagLimits nearTo(double seconds, DagLimits limits) {
  constexpr double kNear = 1e-3; // of what is predicted: closer than that nobody asks
  limits.near = kNear * seconds;
  return limits;
}

int64_t takenOver(const GraphIndex &index, const Kernel &kernel, int64_t b) { return TakenOver(index, kernel, b).bytes; }

LoopDag loopDag(const StepGraph &g, int64_t b, int64_t arenaBytes) {
  GraphIndex index(g);
  LoopDag loop;
  loop.room = arenaBytes;
  for (size_t v = 0; v < g.buffers.size(); ++v)
    if (index.livesThroughLoop(int(v), b))
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
      else if (index.beginsLate(w, b))
        working += g.buffers[w].bytes(b);
    auto add = [&](int buffer, int64_t bytes, double share, int64_t others) {
      Dag::Node node;
      node.id = loop.dag.size();
      node.name = kernel.name;
      node.cost = kernel.seconds.at(double(b)) * share;
      node.bytes = bytes;
      node.working = working + others;
      node.kernel = written.size() > 1 ? k : -1;
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
  constexpr double kRounding = 1e-9; // the same costs are added up in other orders
  if (arenaBytes && known > plain * (1 + kRounding)) {
    LoopDag loop = loopDag(g, b, *arenaBytes);
    // Everything is computed once: the bounds are on what is repeated in a trip.
    double target = (known - plain) / trips;
    double again = detail::repetitionBound(loop.dag, Order::Free, loop.room, target, nearTo(known / trips, limits));
    result.seconds += again * trips;
  }
  if (result.seconds > known * (1 + kRounding))
    result.fault = "a plan of " + std::to_string(known) + " s is known, and none below " + std::to_string(result.seconds) +
                   " s was proven to exist";
  return result;
}

} // namespace cinch::solve
