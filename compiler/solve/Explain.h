// Explain.h: a plan in answers: what is kept, what is computed again and how often, what each costs, and which bytes
// are what at every moment. Read from the finished plan alone, so that the table, the JSON and the report's pictures
// show what is shipped.
#ifndef CINCH_COMPILER_SOLVE_EXPLAIN_H
#define CINCH_COMPILER_SOLVE_EXPLAIN_H

#include "compiler/solve/Search.h"

#include <array>

namespace cinch::solve {

enum class MemoryClass {
  State,       // persistent buffers: parameters, optimizer state, data of the batch
  Accumulator, // gradients of parameters, and other sums over the batch
  Stored,      // values of the forward sweep, from their first computation
  Recomputed,  // the same, computed again
  Working,     // values of the backward sweep and outside the loop
  Scratch,     // of the kernel that runs
};
constexpr int kMemoryClasses = 6;
const char *str(MemoryClass);

MemoryClass classOf(const StepGraph &, const Decision &, const Instance &);
// Bytes of each class during each run; bytes that a kernel writes in place belong to what it writes. Their sum at the
// peak is the plan's peak.
std::vector<std::array<int64_t, kMemoryClasses>> occupancy(const StepGraph &, const Decision &);

// First run of the loop that belongs to the backward sweep (the loop's end if there is none).
int turnOf(const StepGraph &, const Decision &);

// A forward value that waits for the backward sweep.
struct KeptValue {
  int buffer = -1;
  int64_t bytes = 0;
  double seconds = 0; // what running its kernel again once, in every micro-batch, would cost a step; of several values
                      // of one kernel the first has the price
};
std::vector<KeptValue> keptValues(const StepGraph &, const Decision &); // largest first

// A value of the loop that waits on the host.
struct HostValue {
  int buffer = -1;
  int64_t bytes = 0;  // of its place there, which every micro-batch takes
  double seconds = 0; // that copying it takes a step, both ways; mostly beside work
};
std::vector<HostValue> hostValues(const StepGraph &, const Decision &); // largest first

// A kernel that runs again in the loop.
struct Recomputation {
  int kernel = -1;
  int times = 0;      // beyond the first, in one micro-batch
  int64_t bytes = 0;  // what would be kept otherwise: what it writes and the backward sweep reads
  double seconds = 0; // of a step
};
std::vector<Recomputation> recomputations(const StepGraph &, const Decision &); // dearest first

// Every strategy that has a name, at every micro-batch: bytes alive at the peak (no arena is smaller) and time.
std::vector<LadderPoint> namedStrategies(const StepGraph &);

} // namespace cinch::solve
#endif
