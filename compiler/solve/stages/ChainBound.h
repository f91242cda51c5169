// ChainBound.h: a lower bound on the makespan from the chains of work and messages of a table, whichever schedule and however many chunks.
//
// A table ends with the longest of its chains (CriticalChain, Simulate.h), each a sum over the stages. A mean of chains is no longer than the
// longest of them, and is a sum over the stages as well, so a dynamic program finds the cuts for which it is shortest: no split ends before that.
// Which mean bounds best is a game for two: one chooses cuts and wants the longest chain short, the other chooses a chain and wants it long. Its
// value is found with few of either,
//
//   the best weights of the known chains against the known cuts    ->  the cuts for which that mean is shortest are known from then on
//   the best weights of the known cuts against the known chains    ->  a chain that is longest for that mean of cuts is known from then on
//
// until neither is new. Memory is left out: the bound holds for any budget, and is best where little is computed again.
//
// Gradients must return over every cut, else which chains there are depends on the cuts.
#ifndef CINCH_COMPILER_SOLVE_STAGES_CHAINBOUND_H
#define CINCH_COMPILER_SOLVE_STAGES_CHAINBOUND_H

#include "compiler/solve/stages/Intervals.h"

namespace cinch::solve::detail {

// What stages add to a chain.
class ChainSeconds {
public:
  ChainSeconds(const SplitProblem &, const ScheduleTable &, const Intervals &);
  // The segments i .. j - 1 as stage `stage` without recomputation, with the messages over the border behind it.
  double ofStage(const CriticalChain &, int stage, int i, int j) const;
  double ofHops(const CriticalChain &chain) const { return chain.hops * problem.latency; }
  // Seconds of recomputation of the segments i .. j - 1 at least.
  double leastRecomputed(int i, int j) const { return recomputed[j] - recomputed[i]; }
  // Of each end, the least that the stages `stage` .. `last` add if they take the segments from `i` on up to there, whatever the budgets.
  // `cuts`: of the stages and ends, where the stage begins then.
  std::vector<double> cover(const CriticalChain &, int stage, int last, int i, std::vector<std::vector<int>> *cuts = nullptr) const;
  // With the cuts of the weights' mean, to the byte.
  TableCosts meanOf(const std::vector<std::vector<int>> &cuts, const std::vector<double> &weights) const;

private:
  const SplitProblem &problem;
  const ScheduleTable &table;
  const Intervals &intervals;
  std::vector<double> forward, input, weight, update, recomputed; // sums over the segments before
};

CriticalChain meanOf(const std::vector<CriticalChain> &, const std::vector<double> &weights);

struct ChainBound {
  double seconds = 0;    // no split ends before
  CriticalChain mean;    // that is so long at least
  std::vector<int> cuts; // first segments of stages 1, 2, .. near the mean of the best cuts
};
// `work` counts down; the bound holds wherever it stops.
ChainBound boundOfChains(const SplitProblem &, const ScheduleTable &, const ChainSeconds &, int64_t &work);

// Weights with which the mean of the rows is largest in its smallest column, and those of columns whose mean is smallest in its largest row.
struct MatrixGame {
  std::vector<double> rows, columns;
};
MatrixGame solveGame(const std::vector<std::vector<double>> &, int64_t &work);

} // namespace cinch::solve::detail
#endif
