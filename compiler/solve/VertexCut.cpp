// VertexCut.cpp: a minimum vertex cut as a maximum flow. Each node is an edge of its cost between two halves.
#include "compiler/solve/VertexCut.h"

#include "compiler/solve/dag/DagFlow.h"

namespace cinch::solve {

std::vector<int> cheapestCut(const std::vector<CutNode> &nodes, const std::vector<int> &wanted) {
  constexpr double endless = 1e30;
  int n = int(nodes.size()), from = 2 * n, to = 2 * n + 1;
  auto in = [](int node) { return 2 * node; };
  auto out = [](int node) { return 2 * node + 1; };
  detail::Flow flow;
  flow.reset(2 * n + 2);
  for (int i = 0; i < n; ++i) {
    flow.add(in(i), out(i), nodes[i].cost);
    if (nodes[i].source)
      flow.add(from, in(i), endless);
    else
      for (int operand : nodes[i].operands)
        flow.add(out(operand), in(i), endless);
  }
  for (int node : wanted)
    flow.add(out(node), to, endless);
  int64_t work = 0;
  flow.run(from, to, work);
  // Nodes that something wanted is computed from.
  std::vector<bool> needed(n, false);
  for (int node : wanted)
    needed[node] = true;
  for (int i = n; i-- > 0;)
    if (needed[i] && !nodes[i].source)
      for (int operand : nodes[i].operands)
        needed[operand] = true;
  // What the flow still reaches is the side of the sources, as small as can be.
  std::vector<int> cut;
  for (int i = 0; i < n; ++i)
    if (needed[i] && flow.reached(in(i)) && !flow.reached(out(i)))
      cut.push_back(i);
  return cut;
}

} // namespace cinch::solve
