// DeviceWalk.h: how kernels of a GPU go through their work, in the numbers that their prices are made of (analysis/DeviceCost.cpp). Nothing here is
// a time. What a kernel does is decided by its plan (ContractDevice.h, LoopPlan.h, AttendDevice.h), which is asked here.
#ifndef CINCH_COMPILER_KERNELS_DEVICEWALK_H
#define CINCH_COMPILER_KERNELS_DEVICEWALK_H

#include "compiler/kernels/Kernels.h"

namespace cinch::kernels {

// A contraction: tiles of outputs, each of which goes through its sums in steps.
struct TileWalk {
  enum Cores { Singles, Sync, SyncTF32, Groups } cores = Singles; // single FMAs, mma.sync of bf16 and of tf32, wgmma
  int64_t tiles = 1;    // equal pieces of work, a block of threads each
  int64_t together = 1; // blocks that a multiprocessor holds at once
  int64_t steps = 1;    // of a tile, one after the other
  double products = 0;  // FMAs of a step
  double lines = 0;     // of 128 bytes, that a step writes to shared memory and reads there
  // An operand comes through registers, so that a step waits for memory: copies, which are begun some steps ahead, do not wait.
  bool waits = false;
};
// Contractions that one kernel computes one after the other.
std::vector<TileWalk> walksOf(const std::vector<ContractSpec> &parts, const TargetInfo &);

// Attention: heads, or blocks of the queries of heads, of equal work.
struct AttendWalk {
  bool tensorCores = false, groups = false, backward = false, draws = false; // groups: by wgmma
  int64_t items = 1;
  double scores = 0;   // that are looked at, in all items
  double products = 0; // FMAs that each of them takes
};
AttendWalk walkOf(const AttendSpec &, const TargetInfo &);
AttendWalk walkOf(const AttendGradSpec &, const TargetInfo &);

// A launch of a loop. Column sums may have a second one, which adds what the first has summed in blocks (LoopLaunches.cpp).
struct LoopWalk {
  int64_t threads = 1; // of the GPU that have work
  // Of column sums by whole blocks of threads: reads from memory that a block waits for one after the other, in all of its turns. 0: of another loop,
  // whose threads are so many that some read while others wait.
  double rounds = 0;
  double sumBytes = 0; // of the sums of blocks, which the first launch writes and the second reads
};
std::vector<LoopWalk> walksOf(const LoopSpec &, const TargetInfo &);

} // namespace cinch::kernels
#endif
