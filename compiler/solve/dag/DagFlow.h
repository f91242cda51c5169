// DagFlow.h: the maximum flow that the bounds compute minimum cuts with.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGFLOW_H
#define CINCH_COMPILER_SOLVE_DAG_DAGFLOW_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cinch::solve::detail {

// Maximum flow (Dinic) on doubles.
class Flow {
public:
  void reset(int n) { first.assign(n, -1), edges.clear(); }
  void add(int from, int to, double capacity) {
    edges.push_back({to, first[from], capacity});
    first[from] = int(edges.size()) - 1;
    edges.push_back({from, first[to], 0});
    first[to] = int(edges.size()) - 1;
  }
  double run(int source, int sink, int64_t &work) {
    double flow = 0;
    while (levels(source, sink, work)) {
      next = first;
      for (double f; (f = push(source, sink, 1e300, work)) > 0;)
        flow += f;
    }
    return flow;
  }
  // After run: lies v on the source's side?
  bool reached(int v) const { return level[v] >= 0; }

private:
  struct Edge {
    int to, next;
    double capacity;
  };
  bool levels(int source, int sink, int64_t &work) {
    level.assign(first.size(), -1);
    level[source] = 0;
    queue.assign(1, source);
    for (size_t i = 0; i < queue.size(); ++i)
      for (int e = first[queue[i]]; e >= 0; e = edges[e].next, --work)
        if (edges[e].capacity > 1e-12 && level[edges[e].to] < 0) {
          level[edges[e].to] = level[queue[i]] + 1;
          queue.push_back(edges[e].to);
        }
    return level[sink] >= 0;
  }
  double push(int v, int sink, double limit, int64_t &work) {
    if (v == sink)
      return limit;
    for (int &e = next[v]; e >= 0; e = edges[e].next, --work) {
      Edge &edge = edges[e];
      if (edge.capacity <= 1e-12 || level[edge.to] != level[v] + 1)
        continue;
      double f = push(edge.to, sink, std::min(limit, edge.capacity), work);
      if (f > 0) {
        edge.capacity -= f, edges[e ^ 1].capacity += f;
        return f;
      }
    }
    return 0;
  }
  std::vector<int> first, next, level, queue;
  std::vector<Edge> edges;
};

} // namespace cinch::solve::detail
#endif
