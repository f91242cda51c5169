// DagMoments.h: moments of a schedule that follow each other whatever it does, for the bounds that look at several.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGMOMENTS_H
#define CINCH_COMPILER_SOLVE_DAG_DAGMOMENTS_H

#include "compiler/solve/dag/Dag.h"

namespace cinch::solve::detail {

using Marks = std::vector<char>; // one a node

// A node is computed: for the first time, or again, right before another one needs it.
struct Moment {
  int node = -1;
  bool again = false;
  int64_t bytes = 0;   // the least that lies there: its own, those of its sources and of the other values of its kernel, scratch
  Marks before, after; // first computed before the moment for certain, and behind it
  Marks there;         // lies there for certain, and is counted: the sources; of a node that is computed again, it and its kernel's values
};

// First computations that follow each other in every order.
std::vector<Moment> pathMoments(const Dag &, Order, const std::vector<int> &path);

// Those, and the computations that `budget` forces: what a node of the path reads and what does not fit beside an earlier moment is computed
// again between the two, at a moment of its own, and then so is what that reads. While such a value waits for its reader, nothing
// is computed that has no room beside it, which settles what comes first. A moment leaves the list where a tighter one
// comes in no certain order with it.
std::vector<Moment> forcedMoments(const Dag &, const std::vector<Moment> &path, int64_t budget);

} // namespace cinch::solve::detail
#endif
