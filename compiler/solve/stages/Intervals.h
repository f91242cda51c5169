// Intervals.h: what a stage of the segments i .. j - 1 costs, for all i < j: the ways it can run, none better than another in all of
// seconds, bytes held and bytes of work.
#ifndef CINCH_COMPILER_SOLVE_STAGES_INTERVALS_H
#define CINCH_COMPILER_SOLVE_STAGES_INTERVALS_H

#include "compiler/solve/stages/Split.h"

namespace cinch::solve::detail {

// One choice of ways for all segments of an interval.
struct Choice {
  double seconds = 0;         // of recomputation, together
  int64_t held = 0, work = 0; // held: the sum; work: the most
};

class Intervals {
public:
  // Choices that hold more than `most` bytes are left out.
  Intervals(const SplitProblem &, const ScheduleTable &, int64_t most);

  bool allows(int i, int j, int stage) const { return problem.allows(i, j, stage); }
  // Seconds, and all bytes but those of the ways, of the interval as stage `stage`.
  StageCost plain(int i, int j, int stage) const;
  // By seconds, ascending.
  const std::vector<Choice> &choices(int i, int j) const { return fronts[key(i, j)]; }
  // The fastest choice whose bytes are at most `room` over `stage`'s slots, with at least `work` bytes of work; -1 if there is none.
  int fastest(int i, int j, int stage, int64_t room, int64_t work = 0) const;
  // Ways of the segments i .. j - 1 that make up a choice.
  std::vector<int> waysOf(int i, int j, int choice) const;
  // Bytes that a choice takes as stage `stage`, without work.
  int64_t heldBytes(const Choice &c, int stage) const { return c.held * table.slots[stage]; }
  // Undominated (held, work) of the interval, whatever they cost.
  std::vector<Choice> smallest(int i, int j) const;

  int64_t bytesAt(int i) const { return sent[i]; }          // values that cross from segment i - 1 to i
  int64_t gradientBytesAt(int i) const { return returned[i]; } // their gradients; -1 if none has one
  bool gradientsReturn() const; // over every cut
  // False if a list of choices, or this one, grew too long and was thinned out: then a split that needs another choice may have been missed.
  bool complete() const { return whole; }
  bool complete(int i, int j) const { return !thinned[key(i, j)]; }

private:
  void addUp();
  void findReadAndShared();
  void extend(int i, int j, int64_t most);
  size_t key(int i, int j) const { return size_t(i) * (problem.size() + 1) + j; }
  const SplitProblem &problem;
  const ScheduleTable &table;
  std::vector<std::vector<Choice>> fronts;
  std::vector<std::vector<std::pair<int, int>>> origins; // of each choice: the choice of (i, j - 1), the way of j - 1
  std::vector<int64_t> read, shared; // bytes, of intervals
  std::vector<int64_t> sent, returned, fixedUpTo, parametersUpTo, lateUpTo;
  std::vector<double> forwardUpTo, inputUpTo, weightUpTo, updateUpTo;
  std::vector<char> thinned; // of intervals
  bool whole = true;
};

} // namespace cinch::solve::detail
#endif
