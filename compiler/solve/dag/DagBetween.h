// DagBetween.h: what is computed between two stops of the gates (DagGates.cpp) has to find its room, too.
//
// Let kernel f be computed in between, and let some values be wanted behind that, before the next stop or at it. Each of them lies there
// while f is computed, or is computed behind it, and then so lies or is what that reads. A gate is not computed in between: what it makes
// lies there. The fewest bytes that can lie there are a minimum cut between what only gates make and what is wanted. If they have no room
// beside what f reads and makes, f is not computed between the two stops for what it is wanted for.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGBETWEEN_H
#define CINCH_COMPILER_SOLVE_DAG_DAGBETWEEN_H

#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/dag/DagFlow.h"
#include "compiler/solve/dag/DagMoments.h"

namespace cinch::solve::detail {

class Between {
public:
  // `unit`: of nodes, the first of their kernel. `sources`: of nodes, what has to be there for them.
  Between(const Dag &d, const std::vector<int> &unit, const std::vector<std::vector<int>> &sources) : d(d), unit(unit), sources(sources) {}

  // The fewest bytes beside what f reads and makes and beside `there`, which lie there, too. `wanted`: values that exist at some time
  // behind the computation of f. `isGate`: of kernels, not computed behind it.
  double leastBytes(int f, const std::vector<int> &there, const std::vector<int> &wanted, const Marks &isGate, int64_t &work);

private:
  const Dag &d;
  const std::vector<int> &unit;
  const std::vector<std::vector<int>> &sources;
  Flow flow;
};

} // namespace cinch::solve::detail
#endif
