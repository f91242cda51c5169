// Simulate.h: when every action of a table begins and ends, and which bytes each worker holds meanwhile.
#ifndef CINCH_COMPILER_SOLVE_STAGES_SIMULATE_H
#define CINCH_COMPILER_SOLVE_STAGES_SIMULATE_H

#include "compiler/solve/stages/Schedule.h"

#include <limits>
#include <utility>

namespace cinch::solve {

// What one stage costs a micro-batch, in seconds and bytes.
struct StageCost {
  double forward = 0, input = 0, weight = 0; // of F, I and W; B takes input + weight
  double update = 0;                         // once a step
  int64_t fixed = 0;                         // held always: parameters, accumulators, optimizer state, buffers
  int64_t held = 0;                          // a slot: from the begin of F to the end of W (or B)
  int64_t late = 0;                          // a late slot: from the end of I to the end of W
  int64_t forwardWork = 0, backwardWork = 0; // while F, while I, W or B runs
};

// A value that stage `from` computes and stage `to` reads, for each micro-batch; its gradient goes back.
struct Transfer {
  int from = 0, to = 1;
  int64_t bytes = 0;
  int64_t gradientBytes = 0; // negative: the value has no gradient, and I of `from` does not wait
};

struct TableCosts {
  std::vector<StageCost> stages;
  std::vector<Transfer> transfers;
  double latency = 0;                                          // seconds a message
  double bandwidth = std::numeric_limits<double>::infinity(); // bytes a second of each directed pair of workers
};

// Stage s to s + 1, nothing else.
std::vector<Transfer> chainTransfers(int stages, int64_t bytes = 0);

struct Span {
  double begin = 0, end = 0;
};
struct Simulation {
  double makespan = 0;
  std::vector<std::vector<Span>> spans; // as the rows of the table
  std::vector<double> busy;             // of each worker, seconds
  double bubble = 0;                    // share of all workers' time up to the makespan in which they wait
  // Of each worker: bytes from a moment on, until the next.
  std::vector<std::vector<std::pair<double, int64_t>>> bytes;
  std::vector<int64_t> peak;
};

// The table must pass `verify`. Rows run in order; a worker computes while its messages travel; the messages from one worker
// to another share a link and keep their order; chunks of one worker hand values over at no cost. Every time is a maximum of sums of
// the costs, so no cost can grow and the makespan shrink.
Simulation simulate(const ScheduleTable &, const TableCosts &);

// The makespan alone.
double makespan(const ScheduleTable &, const TableCosts &);

// What one of the longest chains of work and messages of a run consists of. Which chains there are is a matter of the table, so with any other
// costs, as long as the same transfers have gradients, the run ends no earlier than this one's sum:
//
//   seconds of the counted actions (a B is an I and a W)  +  hops x latency  +  counted messages x their bytes / bandwidth
struct CriticalChain {
  std::vector<double> forward, input, weight; // actions, of each stage
  std::vector<double> update;                 // of each worker
  std::vector<double> sent, returned;         // messages of each transfer, and of its gradient
  double hops = 0;
};
CriticalChain criticalChain(const ScheduleTable &, const TableCosts &);

// A lower bound on the makespan when only the first `known` stages' costs are known: the actions of the others are left out; what the
// last known one sends comes back after `rest` seconds.
double makespanOfFirst(const ScheduleTable &, const TableCosts &, int known, double rest);

} // namespace cinch::solve
#endif
