// SplitBound.h: lower bounds of a partial split, and the smallest budget.
#ifndef CINCH_COMPILER_SOLVE_STAGES_SPLITBOUND_H
#define CINCH_COMPILER_SOLVE_STAGES_SPLITBOUND_H

#include "compiler/solve/stages/Intervals.h"

namespace cinch::solve::detail {

// One chunk a worker. Every stage runs its m micro-batches after the first has come through the stages before it, and the last gradient
// goes back through them, so for each stage s
//
//   makespan >= seconds of one F through stages < s  +  m x (F + I + W of s)  +  seconds of one I (or B) through stages < s
//
// With a split backward the W need not precede what follows, so there m x (F + I) counts, and m x (F + I + W) without the third term.
class SuffixBound {
public:
  SuffixBound(const SplitProblem &, const ScheduleTable &, const Intervals &);
  // Bound on the makespan if stages `stage`, .. take the segments from `first` on, and one micro-batch needs `there` seconds forward
  // and `back` seconds backward through the stages before; infinity if no split of them keeps the budgets.
  double at(int stage, int first, double there, double back) const;
  // The cut that the dynamic program takes there.
  int cut(int stage, int first) const { return cuts[key(stage, first)]; }

private:
  size_t key(int stage, int first) const { return size_t(stage) * (segments + 1) + first; }
  int segments;
  bool returns;
  std::vector<double> through, apart; // with and without the way back
  std::vector<int> cuts;
};

// Several chunks a worker, p workers. The average over the workers of what each must take,
//
//   seconds of one F through the stages before its first  +  m x (F + I + W of its stages)  +  the same way back (fused backwards only)
//
// bounds the makespan; so does that plus `price` x (bytes of all workers - their budgets) for any price (Lagrangian relaxation). Both
// are sums over stages, so a dynamic program finds their minimum over all splits of the rest, and the best price is searched for at
// the root.
class AverageBound {
public:
  AverageBound(const SplitProblem &, const ScheduleTable &, const Intervals &);
  // What a stage adds to the bound.
  double ofStage(const StageCost &, int stage) const;
  // The least that stages `stage`, .. add if they take the segments from `first` on.
  double ofRest(int stage, int first) const { return rest[key(stage, first)]; }
  double budgets() const { return price * bytes; } // to be taken off
private:
  size_t key(int stage, int first) const { return size_t(stage) * (problem.size() + 1) + first; }
  void tabulate();
  const SplitProblem &problem;
  const ScheduleTable &table;
  const Intervals &intervals;
  double price = 0, bytes = 0;
  std::vector<double> rest;
};

// Smallest budget for all workers, and whether it is proven to be. `work` counts down.
int64_t leastBudget(const SplitProblem &, const ScheduleTable &, const Intervals &, int64_t &work, bool &proved,
                    std::vector<int> &cuts);

} // namespace cinch::solve::detail
#endif
