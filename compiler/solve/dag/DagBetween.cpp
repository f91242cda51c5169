// DagBetween.cpp: the fewest bytes that lie there while a kernel is computed between two stops.
//
// In the flow, that a value is missing comes from the gate that makes it, or from a value that is missing and read for it. Holding the
// value, for its bytes, stops that. No flow comes to what is wanted where it all can be had.
#include "compiler/solve/dag/DagBetween.h"

namespace cinch::solve::detail {

double Between::leastBytes(int f, const std::vector<int> &there, const std::vector<int> &wanted, const Marks &isGate, int64_t &work) {
  constexpr double kNoLimit = 1e290;
  int n = d.size(), gates = 2 * n, want = 2 * n + 1;
  Marks lies(size_t(n), 0), seen(size_t(n), 0);
  for (int v : d.nodes[f].sources)
    lies[v] = 1;
  for (int v = f; v < d.endOfKernel(f); ++v)
    lies[v] = 1;
  for (int v : there)
    lies[v] = 1;
  flow.reset(2 * n + 2);
  std::vector<int> stack;
  for (int v : wanted)
    if (!lies[v])
      flow.add(2 * v + 1, want, kNoLimit), stack.push_back(v);
  while (!stack.empty()) {
    int v = stack.back();
    stack.pop_back();
    if (seen[v])
      continue;
    seen[v] = 1;
    flow.add(2 * v, 2 * v + 1, double(d.nodes[v].bytes));
    if (isGate[unit[v]]) {
      flow.add(gates, 2 * v, kNoLimit);
      continue;
    }
    for (int s : sources[v])
      if (!lies[s])
        flow.add(2 * s + 1, 2 * v, kNoLimit), stack.push_back(s);
  }
  work -= n;
  return flow.run(gates, want, work);
}

} // namespace cinch::solve::detail
