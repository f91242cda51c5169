// PairBound.h: a dynamic program over the workers of a table with two chunks each. Both of a worker's stages are chosen together, so what they share,
// the worker's seconds and its bytes, is known exactly; what the others do to it is bounded.
#ifndef CINCH_COMPILER_SOLVE_STAGES_PAIRBOUND_H
#define CINCH_COMPILER_SOLVE_STAGES_PAIRBOUND_H

#include "compiler/solve/stages/Intervals.h"

#include <functional>

namespace cinch::solve::detail {

// Worker w of p has the stages w and p + w (`interleaved`), or w and 2p - 1 - w (`zbv`). Once the first w workers are settled, what is left of
// the segments is known from two numbers: where the next first chunk begins, and where the next second one begins (`interleaved`; given also where
// the first of them does) or ends (`zbv`). So the least that the largest cost of a worker can be is found over all cuts and all ways.
class Pairs {
public:
  Pairs(const SplitProblem &, const ScheduleTable &, const Intervals &);
  // Of cuts and ways within the budgets, the least of the largest over the workers of the larger of
  //
  //   seconds of one F through the stages before  +  m x (F + I + W of both stages)  +  those of one B through the stages before
  //   seconds of one F through the stages before  +  m x (F + I of both stages)      +  those of one I through the stages before
  //
  // The last I (or B) of a worker's first chunk is its last action but for W, and goes back from there. Where the backward is split the first
  // line is without its last term; where over some cut no gradient goes back, none of the last terms is there. `enough` if there is none below
  // it; negative: `work` ran out.
  double makespan(double enough, int64_t &work);
  // The smallest budget, the same for all workers, likewise.
  int64_t leastBudget(int64_t enough, int64_t &work);
  // Of the last answer, the first segments of stages 1, 2, ..; empty: it was `enough`, or `work` ran out.
  const std::vector<int> &cuts() const { return best; }

private:
  struct Pair { // a worker's two stages
    int worker, first, firstEnd, second, secondEnd;
  };
  struct Cost {
    std::function<double(const Pair &)> least; // of the exact cost; grows with the stages
    std::function<double(const Pair &, double enough, int64_t &work)> exact; // or anything from `enough` on
    bool isWork = false;                                       // what is left must be done by the other workers
  };
  double solve(const Cost &, double enough, int64_t &work);
  void walk(const Cost &, int border, int64_t &work);
  void follow(const std::vector<std::vector<std::pair<int, int>>> &from, const Pair &last);
  double leftToOthers(const Pair &, int border) const;
  double leastSeconds(const Pair &) const;
  double recomputed(const Pair &, double enough, int64_t &work) const; // a micro-batch
  double smallest(const Pair &, double enough, int64_t &work);
  const std::vector<Choice> &smallestOf(int i, int j);
  int secondStage(int worker) const { return isV ? 2 * p - 1 - worker : p + worker; }
  size_t key(int i, int k) const { return size_t(i) * (n + 1) + k; }
  const SplitProblem &problem;
  const ScheduleTable &table;
  const Intervals &intervals;
  int p, n;
  bool isV, splits, returns;
  double m;
  // Sums over the segments before.
  std::vector<double> forward, input, weight, recomputation, fixed;
  std::vector<std::vector<Choice>> smallestChoices; // of intervals, once they were asked for
  double least = 0;                                 // found so far
  std::vector<int> best;
};

} // namespace cinch::solve::detail
#endif
