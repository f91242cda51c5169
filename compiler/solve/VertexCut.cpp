// VertexCut.cpp: a minimum vertex cut as a maximum flow. Each node is an edge of its cost between two halves.
#include "compiler/solve/VertexCut.h"

#include "compiler/solve/DagFlow.h"

namespace cinch::solve {

std::vector<int> cheapestCut(const std::vector<CutNode> &nodes, const std::vector<int> &wanted) {
  // The flow runs backwards, from what is wanted to the sources: what it reaches at the end is the side of `wanted`, as small as can be.
  constexpr double endless = 1e30;
  int n = int(nodes.size()), from = 2 * n, to = 2 * n + 1;
  auto in = [](int node) { return 2 * node; };      // where the flow leaves a node
  auto out = [](int node) { return 2 * node + 1; }; // where it enters
  detail::Flow flow;
  flow.reset(2 * n + 2);
  for (int i = 0; i < n; ++i) {
    flow.add(out(i), in(i), nodes[i].cost);
    if (nodes[i].source)
      flow.add(in(i), to, endless);
    else
      for (int operand : nodes[i].operands)
        flow.add(in(i), out(operand), endless);
  }
  for (int node : wanted)
    flow.add(from, out(node), endless);
  int64_t work = 0;
  flow.run(from, to, work);
  std::vector<int> cut;
  for (int i = 0; i < n; ++i)
    if (flow.reached(out(i)) && !flow.reached(in(i)))
      cut.push_back(i);
  return cut;
}

} // namespace cinch::solve
