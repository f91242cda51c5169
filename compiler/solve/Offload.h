// Offload.h: state that stays in pinned memory of the host beside a device, and comes to the arena only for its update.
//
// Of optimizers, state is read and written once a step, by one kernel behind the main loop: its update. Such state may lie on the host. Then it is
// copied in before its update and out behind it, while the updates of other state run, in places that the arena has free there: work on
// examples is done by then. The more places, the more copies are under way; `window` bounds their bytes. Every way is a StepGraph like any
// other, in which the copies are kernels, so that lifetimes, bytes, places, price and proof are those of any step.
#ifndef CINCH_COMPILER_SOLVE_OFFLOAD_H
#define CINCH_COMPILER_SOLVE_OFFLOAD_H

#include "compiler/solve/StepGraph.h"

namespace cinch::solve {

// What one update reads and writes and nobody else does.
struct UpdateState {
  int kernel = -1;
  std::vector<int> buffers; // persistent
  int64_t bytes = 0;
};
// In the order of the updates. `allowed`: of buffers, whether nobody but the step reads them (evaluation reads averages and statistics); empty: all.
std::vector<UpdateState> movableState(const StepGraph &, const std::vector<bool> &allowed = {});

// The same state, by the kernels of another variant of the step.
std::vector<UpdateState> stateOfGraph(const StepGraph &, const std::vector<UpdateState> &, const std::vector<bool> &allowed);

struct Offload {
  std::vector<UpdateState> moved; // in the order of the updates
  int64_t window = 0;             // bytes of moved state that lie in the arena at once, or are on their way; the largest state has room always
  int64_t bytes() const {
    int64_t sum = 0;
    for (const UpdateState &state : moved)
      sum += state.bytes;
    return sum;
  }
};

// The step in which the state is copied. Buffers keep their numbers, and so do kernels before the end of the main loop. `original`: of each kernel its number in
// the old graph, through `before` if that is not empty; kCopy for copies.
constexpr int kCopy = -2;
// A kernel that is a copy, of `section`.
Kernel copyKernel(const StepGraph &, Kernel::Copy, int section, std::vector<int> reads, std::vector<int> writes);
struct Offloaded {
  StepGraph graph;
  std::vector<int> original;
};
Offloaded withOffload(const StepGraph &, const Offload &, const std::vector<int> &before = {});

// Windows worth trying for this state, the fastest first, of equally fast ones the smaller; what a larger window makes faster by less than
// a thousandth of the copies is left out.
std::vector<int64_t> windowsFor(const StepGraph &, const std::vector<UpdateState> &moved);

// Of the movable state as little as has `bytes` in all, large state first, but for the last, which is the smallest that suffices. Empty: there is not as much.
std::vector<UpdateState> stateOf(const std::vector<UpdateState> &movable, int64_t bytes);

} // namespace cinch::solve
#endif
