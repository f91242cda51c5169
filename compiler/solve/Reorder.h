// Reorder.h: a better order of the same runs costs nothing: runs of a loop list move to where less is alive.
#ifndef CINCH_COMPILER_SOLVE_REORDER_H
#define CINCH_COMPILER_SOLVE_REORDER_H

#include "compiler/solve/Timeline.h"

#include <memory>

namespace cinch::solve {

// The same runs in an order whose peak of live bytes is no higher: every run still reads the copies that it read.
// `apart`: no kernel of the backward sweep goes before one of the forward sweep. `passes`: how often every run is
// tried at most.
std::vector<int> reorder(const GraphIndex &, int64_t microbatch, const std::vector<int> &loop, bool apart,
                         int passes = 4);

// The same for who asks often at one micro-batch: the tables of one loop serve the next.
class RunOrder;
class Reorderer {
public:
  Reorderer(const GraphIndex &, int64_t microbatch);
  ~Reorderer();
  std::vector<int> operator()(const std::vector<int> &loop, bool apart, int passes);

private:
  int64_t microbatch;
  Timeline line;
  std::unique_ptr<RunOrder> order;
};

// Any legal order, drawn from a seed: for tests, whose bits must not depend on the order. Keeps the sweeps apart.
std::vector<int> shuffled(const GraphIndex &, const std::vector<int> &loop, uint64_t seed);

} // namespace cinch::solve
#endif
