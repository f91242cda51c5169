// Swap.h: values of the main loop that wait on the host: what a schedule of the loop is with their copies in it.
//
// A value that the forward sweep leaves for the backward sweep lies in the arena between two uses that are far apart. It may be stored in pinned
// memory meanwhile: behind the kernel that makes it a copy out begins, its bytes are free once that has been waited for, and a copy in brings it
// back before the use. Kernels run on beside the copies. The way is a StepGraph like any other, in which the copies are kernels of the main
// loop and the fetched value is one more instance of its buffer, as if it had been computed again. So lifetimes, bytes, places, price and
// proof are those of any step. Each micro-batch takes the same places on the host.
#ifndef CINCH_COMPILER_SOLVE_SWAP_H
#define CINCH_COMPILER_SOLVE_SWAP_H

#include "compiler/solve/Offload.h"

namespace cinch::solve {

// A value that waits on the host. Moments are places in the schedule: right before run `t` of the loop.
struct Swap {
  int buffer = -1;
  int store = 0; // the copy out begins
  int gone = 0;  // it is waited for; the value's bytes are free from here on
  int fetch = 0; // the copy in begins
  int use = 0;   // it is waited for: this run reads the value
  bool operator==(const Swap &o) const { return buffer == o.buffer && store == o.store && gone == o.gone && fetch == o.fetch && use == o.use; }
};

// A schedule of the main loop with copies. Buffers and the kernels of the loop keep their numbers; those of the copies follow them. `original`: as of Offloaded.
struct Swapped {
  StepGraph graph;
  std::vector<int> original;
  std::vector<int> loop;
};
Swapped withSwaps(const StepGraph &, const std::vector<int> &loop, const std::vector<Swap> &, const std::vector<int> &before = {});

} // namespace cinch::solve
#endif
