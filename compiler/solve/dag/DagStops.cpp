// DagStops.cpp: what each kernel takes, which of them are stops, and what has been computed for certain between them.
#include "compiler/solve/dag/DagStops.h"

#include <algorithm>

namespace cinch::solve::detail {
namespace {

struct StopLimits {
  double small = 0.1;     // of the largest value's bytes: values up to there are small
  double narrow = 0.4;    // of the budget: kernels that leave no more to others are looked at where they are computed in between
  size_t mostNarrow = 40; // of these, the tightest
};
constexpr StopLimits kLimits;

} // namespace

StopGraph::StopGraph(const Dag &d, Order order, int64_t budget, bool strict)
    : d(d), order(order), budget(budget), strict(strict), n(d.size()), unit(size_t(n)), sources(size_t(n)), cost(size_t(n), 0),
      at(size_t(n), 0), isGate(size_t(n), 0), isStop(size_t(n), 0), isSmall(size_t(n), 0) {
  int64_t largest = 0;
  for (const Dag::Node &node : d.nodes)
    largest = std::max(largest, node.bytes);
  for (int v = 0; v < n; ++v) {
    int u = unit[v] = d.firstOfKernel(v);
    cost[u] += d.nodes[v].cost, at[u] += d.nodes[v].bytes;
    for (int s : d.nodes[v].sources) {
      at[u] += u == v ? d.nodes[s].bytes : 0;
      if (strict ? d.nodes[s].bytes > 0 : double(d.nodes[s].bytes) > kLimits.small * double(largest))
        sources[v].push_back(s);
    }
    isSmall[v] = double(d.nodes[v].bytes) <= kLimits.small * double(largest);
    if (isSmall[v] && d.nodes[v].bytes > 0)
      smallest = std::min(smallest, d.nodes[v].bytes);
    if (v + 1 == d.endOfKernel(v))
      at[u] += d.nodes[v].working;
  }
  for (int v : longestPath(d, order))
    if (whole.empty() || unit[v] != whole.back())
      whole.push_back(unit[v]);
}

void StopGraph::divide(const std::vector<int> &others, int64_t &work) {
  // Of kernels that are no gates, those that leave few bytes to others.
  narrow.clear(), isStop.assign(size_t(n), 0);
  for (int f : others)
    if (strict && narrow.size() < kLimits.mostNarrow && double(budget - at[f]) <= kLimits.narrow * double(budget))
      narrow.push_back(f);
  for (int f : narrow)
    isStop[f] = at[f] == at[narrow.front()];
  // Of the longest path: stops, and nodes that read something which the node before neither reads nor makes.
  path.clear();
  for (size_t i = 0; i < whole.size(); ++i) {
    bool stays = isGate[whole[i]] || isStop[whole[i]] || i + 1 == whole.size();
    for (int s : sources[whole[i]])
      stays |= i && unit[s] != whole[i - 1] && !std::count(sources[whole[i - 1]].begin(), sources[whole[i - 1]].end(), s);
    if (stays)
      path.push_back(whole[i]);
  }
  size_t K = path.size();
  repeated.assign(K + 1, Marks(size_t(n), 0)), possible.assign(K + 1, Marks(size_t(n), 1)), stopBefore.assign(K + 1, 0);
  for (size_t k = 0; k < K; ++k) {
    Marks before = everBeside(d, order, path[k], true), after = everBeside(d, order, path[k], false);
    stopBefore[k + 1] = isGate[path[k]] || isStop[path[k]] ? int(k) + 1 : stopBefore[k];
    for (int v = 0; v < n; ++v) {
      bool own = unit[v] == path[k];
      if (before[v] || own)
        repeated[k + 1][unit[v]] = 1;
      for (int u = unit[v]; (after[v] || own) && u < d.endOfKernel(v); ++u)
        possible[k][u] = 0;
    }
    work -= n;
  }
}

int64_t StopGraph::bytesBeside(int kernel, const std::vector<int> &values) const {
  int64_t bytes = 0;
  const std::vector<int> &reads = d.nodes[kernel].sources;
  for (int v : values)
    if (unit[v] != kernel && std::find(reads.begin(), reads.end(), v) == reads.end())
      bytes += d.nodes[v].bytes;
  return bytes;
}

} // namespace cinch::solve::detail
