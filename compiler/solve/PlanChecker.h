// PlanChecker.h: proves a scheduled program right, from the program alone. It shares no code with any planner.
//
// What it does: it runs the step twice on symbols. First as the StepGraph lists it, every buffer in bytes of its own:
// each kernel's result is a symbol made from the kernel and the symbols it read. Then as the scheduled program says,
// in the arena: a map from byte ranges to symbols, where each launch must find exactly the symbol it expects in every
// byte that it reads. A value that was overwritten, never computed, computed from something else, freed and reused,
// or left over from the last micro-batch is a different symbol. At the end every persistent buffer and every
// accumulator must hold the symbols of the first run. A loop's body is run up to three times: what holds from the
// second to the third holds from each to the next. The main loop of a worker of several is run by its whole list of actions
// (StepGraph::actions). A kernel that is a loop itself (Kernel::body) has a scheduled program of its own, the trip's, which is proved
// likewise; its scratch must have the bytes that a trip needs. Where the steps of a worker overlap, three calls are run: one that begins with
// nothing done, one in between, and one that goes no further than its step.
//
// A copy from or to the host is under way from where it begins to its Await: nobody may read or write where it goes before that, nor write
// what it takes. All are waited for when the step ends, and state that goes back to the host lies where it came from: there a closed gate leaves what
// it was. A value that the loop stores there and fetches again is the same symbol on its way; what another trip left in its place is another one.
//
// Beside that: everything lies inside the arena, the claimed sizes are the bytes really touched, no launch writes
// what it reads or writes twice (but for declared in-place work), kernels that must not be repeated run once, and what runs once a
// step, loops before the main one, messages and the beginnings of parts stand in the graph's order, whether or not bytes say so (the gate
// before the updates).
#ifndef CINCH_COMPILER_SOLVE_PLANCHECKER_H
#define CINCH_COMPILER_SOLVE_PLANCHECKER_H

#include "compiler/solve/Decision.h"
#include "compiler/solve/StepGraph.h"

#include <string>

namespace cinch::solve {

struct RowBlocked;

struct Place {
  int buffer = -1; // of the StepGraph; -1: scratch
  int64_t offset = 0, bytes = 0;
  // Micro-batch k has its own at offset + (k mod copies) * bytes. Where steps overlap, sums and what is computed before the loop have two:
  // that of this step, and that of the next one.
  int64_t copies = 1;
};

struct Launch {
  int kernel = -1;
  std::vector<Place> reads, writes; // in the order of the kernel's
  std::vector<Place> zeroed;        // accumulators that begin here, zeroed before it
  bool hasScratch = false;
  Place scratch;
};

// A loop over the micro-batches: its launches [begin, end) run once a micro-batch.
struct LaunchLoop {
  int begin = 0, end = 0;
  std::vector<Place> zeroed; // accumulators zeroed before it
};

struct ScheduledProgram {
  int64_t arenaBytes = 0; // claimed: the end of the last byte any launch touches
  int64_t hostBytes = 0;  // claimed: the end of the last byte of pinned memory; places of buffers of Buffer::Host count from its begin
  int64_t arenaBudget = INT64_MAX, hostBudget = 0; // what each may have: without a budget the arena may have any size, and nothing lies on the host
  int64_t peakLive = -1;  // claimed most bytes alive at one launch; < 0: no claim
  int64_t microbatch = 1, count = 1;
  std::vector<Place> persistent; // of every persistent buffer
  std::vector<Launch> launches;
  std::vector<LaunchLoop> loops; // in order; the last is the main one
  // Where steps overlap: a persistent buffer, and the one in whose place the next step finds it, whose bits a step leaves in the first one.
  std::vector<std::pair<int, int>> newer;
};

ScheduledProgram scheduledProgram(const StepGraph &, const Decision &);

// Empty if the program is proved, else the first thing that is wrong.
std::string checkPlan(const StepGraph &, const ScheduledProgram &);
// The same of a trip of a loop alone.
std::string checkTrip(const LoopBody &, int64_t microbatch);
// Of ranges in blocks of rows: does each row of an image find the rows around it, and is what leaves a block made once? `whole` is the
// graph before there were blocks.
std::string checkRows(const StepGraph &whole, const RowBlocked &);

} // namespace cinch::solve
#endif
