// StageTables.h: what the main loops of several workers look like to schedules and dry runs, and the other way round.
#ifndef CINCH_COMPILER_PHASES_STAGETABLES_H
#define CINCH_COMPILER_PHASES_STAGETABLES_H

#include "compiler/solve/stages/Channels.h"
#include "compiler/solve/stages/Schedule.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/PartitionStages.h"

namespace cinch {

// A function that is divided among the workers.
struct Divided {
  std::string name;                    // of the entry
  std::vector<mlir::func::FuncOp> functions; // of each worker
  std::vector<Channel> channels;       // numbered from `first` on
  size_t first = 0;
  void erase() {
    for (mlir::func::FuncOp function : functions)
      function.erase();
  }
};

// The last loop over the micro-batches.
plan::LoopOp mainLoop(mlir::func::FuncOp);

// Parts of a worker's main loop.
size_t partsOf(mlir::func::FuncOp);

// The table of a worker of a replica: gradients of parameters wait for so many later micro-batches at most, or to the end of their step. Of
// steps that overlap (steadyStep), all of them wait if any does.
solve::ScheduleTable withLateGradients(const solve::ScheduleTable &, int late);

// Of a table of 2bw with at least three steps: what its workers do from one update to the next, once all are under way. Micro-batches of the
// step behind are numbered on.
solve::ScheduleTable steadyStep(const solve::ScheduleTable &);

// The list of actions of one worker (of those without shards), by the parts of its loop body.
std::vector<solve::PartAction> actionsOf(const solve::ScheduleTable &, const StageLayout &, int worker);
// The other way round: the stage and kind of a worker's part of a training step, "2F".
std::string actionOfPart(const StageLayout &, int worker, int part);
// How far the parts of a loop run behind its first one: a worker's next chunk when the first one's work has gone round all workers, and what
// is handed out when it has gone through all chunks. And the actions of so many micro-batches that run so.
std::vector<int64_t> lagsOf(int parts, int workers);
std::vector<solve::PartAction> actionsOfLags(llvm::ArrayRef<int64_t> lags, int64_t count);
plan::ActionsAttr attributeOf(mlir::MLIRContext *, llvm::ArrayRef<solve::PartAction>);

// Seconds of each part of the loop body, and of what stands before and behind the loop, by a plan.
struct PlanSeconds {
  std::vector<double> parts;
  std::vector<std::vector<double>> shares; // of each part's work that is done before each of its messages
  double before = 0, behind = 0;
};
PlanSeconds secondsOf(const DecideOutcome &, size_t parts);

// The main loops of a divided function, for a dry run in which messages take no time on their way.
solve::ChannelProblem channelProblem(const Divided &, const std::vector<std::vector<solve::PartAction>> &actions,
                                     std::vector<std::vector<double>> seconds, llvm::ArrayRef<PlanSeconds> shares = {});

// Steps that overlap, as the workers run them: one that begins with nothing done, some in between, and one that goes no further than its end.
// All meet behind each (the gate); what no worker does meanwhile takes `between` seconds.
struct OverlappingSteps {
  OverlappingSteps(const solve::ChannelProblem &, double between);
  solve::ChannelProblem problem; // channels of the meetings are behind those that it was made of
  size_t channels = 0;           // of which it was made
  // Of a run: from one meeting to the next. `makespan` is the time between them.
  solve::ChannelRun steady(const solve::ChannelRun &) const;
  std::vector<int> withMeetings(llvm::ArrayRef<int> boxes) const;

private:
  std::vector<size_t> steadyBegin; // of each worker: the meeting that such a step begins behind, among its actions
};

// Bytes of a worker for messages: boxes of what it reads, one of each that it writes.
int64_t messageBytes(const std::vector<Channel> &, llvm::ArrayRef<int> boxes, int worker, int64_t microbatch);

} // namespace cinch
#endif
