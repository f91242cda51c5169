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

// Smallest budget for all workers, and whether it is proven to be. `work` counts down.
int64_t leastBudget(const SplitProblem &, const ScheduleTable &, const Intervals &, int64_t &work, bool &proved,
                    std::vector<int> &cuts);

} // namespace cinch::solve::detail
#endif
