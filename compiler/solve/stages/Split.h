// Split.h: where a model is cut into stages, and what each stage keeps or computes again, so that the schedule's table ends first and
// every worker keeps its budget.
//
// A model is a list of segments (kernels, layers, blocks) in an order in which they can run, and of values that segments hand to later
// ones. A stage is a run of consecutive segments, never an empty one. Each segment offers ways to run: what it keeps of a micro-batch
// in flight, and the seconds of recomputation that its backward then needs. A schedule holds more micro-batches in flight on some stages
// than on others (1f1b: p on the first, one on the last), so early stages keep less: cut and ways are chosen together.
//
// A value that is read several stages later is handed on from stage to stage, as is its gradient: messages go between neighbours only.
//
// Bytes of a stage of the segments i .. j - 1, with n slots and l late slots (Schedule.h):
//
//   fixed       segments' fixed bytes, parameters that are shared, further versions and accumulators (2bw)
//   n x held    what the ways keep, and the values received that the stage itself reads; these once more if n is less than the number
//               of micro-batches, for the message that arrives meanwhile
//   l x late    between I and W
//   buffers     values sent, their gradients received, gradients sent: one micro-batch of each
//   work        the most that a way of the stage needs while it runs; with several chunks the most of all of the worker's
#ifndef CINCH_COMPILER_SOLVE_STAGES_SPLIT_H
#define CINCH_COMPILER_SOLVE_STAGES_SPLIT_H

#include "compiler/solve/stages/Simulate.h"

namespace cinch::solve {

struct Segment {
  std::string name;
  double forward = 0, input = 0, weight = 0; // seconds a micro-batch of F, I and W
  double update = 0;                         // seconds a step
  int64_t fixed = 0;                         // bytes held always: parameters, accumulators, optimizer state
  int64_t parameters = 0;                    // bytes of one copy: what a further version or accumulator takes
  int64_t late = 0;                          // bytes of a micro-batch between I and W
  struct Way {
    double seconds = 0;        // of recomputation a micro-batch, before I
    int64_t held = 0, work = 0; // bytes a micro-batch in flight; bytes while the segment's backward runs
  };
  std::vector<Way> ways = {Way()};
};

// What segment `source` computes and the segments `targets`, all later, read.
struct SegmentValue {
  int source = 0;
  std::vector<int> targets;
  int64_t bytes = 0;
  int64_t gradientBytes = 0; // negative: no gradient goes back
};

struct SplitProblem {
  std::vector<Segment> segments;
  std::vector<SegmentValue> values;
  struct Shared {
    int64_t bytes = 0; // held once on every stage that has one of the segments
    std::vector<int> segments;
  };
  std::vector<Shared> shared;
  ScheduleRequest request;
  std::vector<int64_t> budgets; // bytes of each worker
  // Before which segments a stage has to begin: any of the later stages (kAnyStage), or this one. Empty: nowhere.
  static constexpr int kAnyStage = -1;
  std::vector<std::pair<int, int>> forced; // (segment, stage), by segments
  bool cutExists(int stages) const; // that has stages begin so
  // May the segments i .. j - 1 be a stage?
  bool allows(int i, int j, int stage) const;
  double latency = 0, bandwidth = std::numeric_limits<double>::infinity();

  int size() const { return int(segments.size()); }
};
std::string check(const SplitProblem &);

struct Split {
  std::vector<int> cuts; // first segment of stages 1, 2, ..
  std::vector<int> ways; // of each segment
};
// Seconds and bytes of every stage, for `simulate`. `table`: of the problem's request.
TableCosts costsOf(const SplitProblem &, const ScheduleTable &table, const Split &);
// Bytes that the worker needs when every slot is taken, at most.
int64_t bytesOf(const ScheduleTable &, const TableCosts &, int worker);

struct SplitLimits {
  int64_t work = 60'000'000; // simulated actions, about: some seconds; deterministic
};
struct SplitSolution {
  enum Status { Optimal, Feasible, Infeasible, Unknown } status = Unknown;
  Split split;
  double makespan = 0;
  double bound = 0;         // proven: no split that keeps the budgets ends sooner
  int64_t leastBudget = 0;  // smallest budget, the same for every worker, for which a split is known
  bool leastProved = false; // there is none below it
};
// Best-first search over cuts from the first stage on. Its bound for a partial split is the larger of two: the rows of the known
// stages simulated, the rest taken as a delay; and a dynamic program over the rest, whose stages are each as fast as the
// budget lets them be, that minimizes the largest of (seconds before a stage + its work + seconds after it). One chunk a worker:
// which way is the fastest within the budget is then a question of each stage alone. Several chunks share a budget, and all
// undominated ways of the earlier ones are branched on; with two, the search of PairSearch.h comes first, which seldom leaves anything to this one.
SplitSolution solve(const SplitProblem &, const SplitLimits & = {});

// Empty if the split is legal, keeps the budgets, and ends when it says. Shares no code with `solve`.
std::string verify(const SplitProblem &, const SplitSolution &);

// The command `solve stages`; the arguments follow these two words. Returns the exit code.
int solveStagesMain(const std::vector<std::string> &arguments);

} // namespace cinch::solve
#endif
