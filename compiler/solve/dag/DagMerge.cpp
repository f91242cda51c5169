// DagMerge.cpp: chains that the bounds need not tell apart.
//
// A value c that only u reads, while u reads nothing else and is no larger, is never worth holding: u is. So both are
// one node, computed when c is. In every schedule without needless computations whatever comes from c comes from u, and
// u is computed at least as often; where c is held, u could count as held, and is no larger. Its moment is the first
// computation of the head of such a chain, whose sources are all that come from outside.
#include "compiler/solve/dag/Dag.h"

namespace cinch::solve {

Dag detail::merged(const Dag &d) {
  int n = d.size();
  std::vector<int> into(n), number(n, -1);
  for (int v = 0; v < n; ++v)
    into[v] = v;
  auto target = [&](int v) {
    while (into[v] != v)
      v = into[v];
    return v;
  };
  auto alone = [](const Dag::Node &node) { return node.kernel < 0 && node.earlier.empty() && node.later.empty(); };
  for (int c = 0; c < n; ++c)
    if (const std::vector<int> &users = d.nodes[c].users; users.size() == 1 && alone(d.nodes[c]))
      if (const Dag::Node &u = d.nodes[users[0]]; u.sources.size() == 1 && u.bytes <= d.nodes[c].bytes && alone(u))
        into[c] = users[0];
  Dag result;
  for (int v = 0; v < n; ++v)
    if (into[v] == v) {
      number[v] = result.size();
      result.nodes.push_back(d.nodes[v]);
      result.nodes.back().cost = 0;
      result.nodes.back().sources.clear(), result.nodes.back().users.clear();
    }
  for (Dag::Node &node : result.nodes)
    for (auto *list : {&node.earlier, &node.later})
      for (int &v : *list)
        v = number[v];
  for (int v = 0; v < n; ++v) {
    int t = number[target(v)];
    result.nodes[t].cost += d.nodes[v].cost;
    const std::vector<int> &sources = d.nodes[v].sources;
    if (sources.empty() || into[sources.front()] == sources.front()) // v is the head
      result.nodes[t].working = d.nodes[v].needs() - result.nodes[t].bytes;
    for (int s : d.nodes[v].sources)
      if (into[s] == s) // else v and s are one
        result.nodes[t].sources.push_back(number[s]), result.nodes[number[s]].users.push_back(t);
  }
  return result;
}

} // namespace cinch::solve
