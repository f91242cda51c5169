// PairSearch.h: with two chunks a worker, is there a split whose table ends before the best one that is known?
//
// A table ends with the longest of its chains of work and messages (CriticalChain, Simulate.h), each a sum over the stages, and few of
// the many chains are ever the longest. So the search asks for a split all of whose known chains are shorter than the best makespan. It takes
// worker after worker (PairBound.h: which of the segments are left is then known from two numbers), with every cut and every way of both its
// stages that the worker's budget allows. A split that passes is simulated: it is better than the best one, or its longest chain is not, and is known
// from then on.
//
// What fails is not tried again. When a state (workers that are settled, segments that are left) cannot be completed, the search notes why:
// lengths of some chains up to there such that every completion makes one of them too long. Whoever comes to that state with chains no shorter
// than these fails as well, however the workers before were cut:
//
//   chain 0: 40 so far, every way to go on adds 60 or more, or makes chain 3, now 70, at least 100    ->    fails from (40, 70) on
//
// Gradients must return over every cut, else which chains there are depends on the cuts.
#ifndef CINCH_COMPILER_SOLVE_STAGES_PAIRSEARCH_H
#define CINCH_COMPILER_SOLVE_STAGES_PAIRSEARCH_H

#include "compiler/solve/stages/ChainBound.h"

#include <functional>
#include <unordered_map>

namespace cinch::solve::detail {

struct StageChoice {
  int first, end; // segments
  int choice;     // Intervals::choices
};

class PairSearch {
public:
  // Simulates a split of all stages, lowers `best` if it ends before, and returns its longest chain.
  using Attempt = std::function<CriticalChain(const std::vector<StageChoice> &)>;
  // `work` counts down.
  PairSearch(const SplitProblem &, const ScheduleTable &, const Intervals &, const ChainSeconds &, const double &best, int64_t &work, Attempt);
  // A chain, or a mean of some, which is no longer than the longest of them.
  void know(const CriticalChain &);
  // True: no split ends before `best`. False: `work` ran out, or a list of choices was thinned out that mattered.
  bool prove();

private:
  struct Pair { // a worker's two stages
    int first, firstEnd, second, secondEnd;
  };
  struct Ways { // of a pair, within the worker's budget; none has fewer seconds in both stages than another
    int choices[2];
    double seconds[2];
  };
  using Tables = std::vector<std::vector<double>>; // for each number of settled workers
  struct Chain {
    CriticalChain counts;
    double messages; // seconds of its hops
    // The least that stages add, whatever the budgets: those that are left, from where they begin to where they end (of `interleaved` the first
    // chunks; `tail`: the second ones), and those that are settled.
    Tables rest, tail, head, upper;
  };
  struct Need { // a chain, no shorter than
    int chain;
    double least;
  };
  using Needs = std::vector<Need>;

  Needs explore(int worker, int i, int k);
  void settle(int worker, const Pair &, const Ways &, Needs &);
  std::vector<Pair> pairsOf(int worker, int i, int k) const;
  const std::vector<Ways> &waysOf(int worker, const Pair &);
  bool isTooLong(int worker, const Pair &, const double *recomputed, Needs &, double *longest = nullptr);
  const Needs *failure(uint64_t state, int settled);
  void raise(Needs &, int chain, double least, int settled, const Pair &next) const;
  void extend(int settled);
  double added(const Chain &, int worker, const Pair &, const double *recomputed) const;
  double left(const Chain &, int settled, int i, int k) const;
  double settledLeast(const Chain &, int settled, const Pair &next) const;
  int secondStage(int worker) const { return isV ? 2 * p - 1 - worker : p + worker; }
  int nextOf(const Pair &pair) const { return isV ? pair.second : pair.secondEnd; }
  double limit() const { return best * (1 - 1e-12); }
  size_t key(int i, int k) const { return size_t(i) * (n + 1) + k; }

  const SplitProblem &problem;
  const ScheduleTable &table;
  const Intervals &intervals;
  const ChainSeconds &stageSeconds;
  const double &best;
  int64_t &work;
  Attempt attempt;
  int p, n, border = 0; // `interleaved`: where the second chunks begin
  bool isV, missed = false;
  std::vector<Chain> chains;
  std::vector<int> order;                                    // of chains: those that were too long last come first
  std::vector<std::vector<double>> lengths;                  // of chains, up to so many settled workers
  std::vector<StageChoice> stages;                           // of the settled workers
  std::unordered_map<uint64_t, std::vector<Needs>> failures; // by state
  std::unordered_map<uint64_t, std::vector<Ways>> ways;      // of pairs, once they were asked for
};

} // namespace cinch::solve::detail
#endif
