// Schedule.h: in which order each of several workers runs its stages' micro-batches, as a table: one row a worker, one
// entry an action. A table is generated, verified, simulated, printed, and only then lowered.
//
// A model is cut into p * v stages. Worker w runs v of them, its chunks: stage s lies on worker s mod p, or, for `zbv`,
// on the way down and up again (stages p - 1 and p on one worker). Workers run their rows in order; an action waits until
// what it reads has been computed and has arrived:
//
//   kF    forward of micro-batch k              reads the outputs of the stages before
//   kI    gradient of the stage's inputs        reads kF of its own stage and kI (or kB) of the stages after
//   kW    gradient of the stage's parameters    reads kI of its own stage; adds into the accumulators
//   kB    kI and kW in one action
//   U     update: reads the accumulators of the worker's stages after the last micro-batch of a step
//
// For example 1f1b with p = 2, m = 3, each F taking one and each B two units of time:
//
//   worker 0  0F0 0F1 .   .   0B0 0B0 0F2 0B1 0B1 .   0B2 0B2 U
//   worker 1  .   1F0 1B0 1B0 1F1 1B1 1B1 1F2 1B2 1B2 .   .   U
//
// Invariants of a table, each tested by `verify`:
//   1. Every stage lies on one worker, and every worker has v of them.
//   2. For every stage and micro-batch there is one F, and either one B or one I and one W, all in the row of the stage's worker.
//   3. Run in order, every row comes to its end (sends do not block).
//   4. On every stage the F, the I and the W take the micro-batches in ascending order, so that every accumulator adds them up in
//      the order in which one worker would: the same bits.
//   5. A worker updates once a step, after the last gradient of that step and before an accumulator is needed again.
//   6. Each forward and backward action finds the version of the parameters that its step reads.
//   7. `slots` and `lateSlots` are what the rows need.
//
// Sources: Huang et al. 2019 (GPipe); Narayanan et al. 2019, 2021a (1F1B, 2BW), 2021b (interleaved); Qi et al. 2023, 2024
// (ZB-H1, ZBV); the actions' names are those of torch.distributed.pipelining.
#ifndef CINCH_COMPILER_SOLVE_STAGES_SCHEDULE_H
#define CINCH_COMPILER_SOLVE_STAGES_SCHEDULE_H

#include <cstdint>
#include <string>
#include <vector>

namespace cinch::solve {

enum class Schedule { Naive, GPipe, OneFOneB, TwoBW, Interleaved, ZBH1, ZBV };
const std::vector<Schedule> &allSchedules();
const char *name(Schedule);                              // "1f1b"
bool parseSchedule(const std::string &, Schedule &);
std::string scheduleNames();                             // "naive, gpipe, ..", for messages
bool splitsBackward(Schedule);                           // input and weight gradients are actions of their own

struct Action {
  enum Kind : uint8_t { Forward, InputGradient, WeightGradient, Backward, Update } kind = Forward;
  int stage = 0;      // Update: -1
  int microbatch = 0; // counted on from step to step: step t has t * m .. t * m + m - 1; Update: its step
  bool operator==(const Action &o) const { return kind == o.kind && stage == o.stage && microbatch == o.microbatch; }
};
std::string text(const Action &); // "2F0"; the update of step 3 is "U3"

struct ScheduleRequest {
  Schedule schedule = Schedule::GPipe;
  int workers = 1;      // p
  int microbatches = 1; // m, a step
  int chunks = 1;       // v, stages a worker: 2 for `zbv`, at least 1 for `interleaved`, 1 for all others
  int steps = 1;        // `2bw` does not wait between steps: its table may hold several; others hold one
  // The update of a step waits for a test of all workers' gradients (norm, NaN). Synchronous schedules always have it. With
  // `2bw` workers go on with the next step until then, and each parameter has two accumulators.
  bool gate = true;
};
// Empty if there is such a table, else why not.
std::string check(const ScheduleRequest &);

struct ScheduleTable {
  ScheduleRequest request;
  std::vector<int> workerOf;              // of each stage
  std::vector<std::vector<Action>> rows;  // of each worker
  // Declared for each stage: micro-batches whose forward has begun and whose last gradient has not ended, at most; and those
  // between the end of their I and the end of their W.
  std::vector<int> slots, lateSlots;
  int accumulators = 1; // of each parameter
  int versions = 1;     // of each parameter

  int stages() const { return int(workerOf.size()); }
  int microbatchesOfAllSteps() const { return request.microbatches * request.steps; }
};

// The request must pass `check`.
ScheduleTable generate(const ScheduleRequest &);

// Empty if all invariants hold, else the first that does not, naming worker and action. Shares no code with `generate`.
std::string verify(const ScheduleTable &);

// For people: a row a worker, a column a unit of time (every F, I and W takes one, every B two), wrapped at `width`.
std::string print(const ScheduleTable &, int width = 120);

} // namespace cinch::solve
#endif
