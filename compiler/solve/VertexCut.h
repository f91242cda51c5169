// VertexCut.h: the cheapest set of nodes of a graph through which every path to some nodes leads: what to save of a loop's trip, so that
// everything the backward loop reads can be computed from it.
#ifndef CINCH_COMPILER_SOLVE_VERTEXCUT_H
#define CINCH_COMPILER_SOLVE_VERTEXCUT_H

#include <vector>

namespace cinch::solve {

struct CutNode {
  double cost = 0;           // of taking it into the cut
  bool source = false;       // cannot be computed from its operands: it is in the cut, or nothing behind it is asked for
  std::vector<int> operands; // earlier nodes
};

// The cut of least cost that separates the sources from the nodes `wanted`, which may lie in it; of several such cuts the one nearest to the
// sources: one wide value is kept rather than the narrow ones that are computed from it, and its gradient may take its bytes. Ascending.
std::vector<int> cheapestCut(const std::vector<CutNode> &, const std::vector<int> &wanted);

} // namespace cinch::solve
#endif
