// DeviceCost.cpp: how long multiprocessors multiply, compute and wait.
//
// Work comes in pieces of equal size, and a multiprocessor takes one after another: where these are few, some multiprocessors have a piece
// more than others, which wait. So a product of few tiles takes as long as one whose tiles fill the last turn.
#include "compiler/analysis/DeviceCost.h"

#include "compiler/kernels/DeviceWalk.h"

#include <algorithm>
#include <cmath>

using namespace cinch::kernels;

namespace cinch::analysis {
namespace {

// Threads that begin as many instructions as a multiprocessor can: a quarter of those that it holds, assumed.
constexpr double kBusyThreads = 512;

// Prices a spec of each kind.
struct Pricer {
  const DeviceWork &work;
  const TargetInfo &target;
  const MachineRates &machine;
  const DeviceRates &rates = machine.device;
  const double processors = double(target.processors);
  const double instructions = work.operations + rates.access * work.accesses;

  DevicePrice launched(double arithmetic, double traffic) const { return {arithmetic, traffic, std::max(arithmetic, traffic) + machine.launch}; }

  // Instructions that each of the multiprocessors that have work begins, so many a cycle.
  double issued(double instructions, double each, double busy) const { return instructions / (each * rates.clock * busy); }

  // Of tiles: all that a multiprocessor has at once go through a step together, and wait for memory together. By wgmma, shared memory is read
  // while the tensor cores multiply, and another warpgroup brings what comes next. By mma.sync a warp's products follow what it has read, and
  // two warps that share tensor cores are not enough to hide the one behind the other: an H200 says so, on which they took longer still.
  double secondsOf(const TileWalk &walk) const {
    const bool groups = walk.cores == TileWalk::Groups;
    const double rate = groups ? rates.groups : walk.cores == TileWalk::Sync ? rates.sync : walk.cores == TileWalk::SyncTF32 ? rates.syncTF32 : rates.singles;
    const double products = walk.products / rate, step = groups ? std::max(products, walk.lines) : products + walk.lines;
    const double alone = step + (walk.waits ? rates.latency * rates.clock : 0);
    auto cyclesOf = [&](int64_t tiles) { return tiles > 0 ? std::max(double(tiles) * step, alone) : 0; };
    const int64_t tiles = int64_t(std::ceil(double(walk.tiles) / processors)); // of the busiest multiprocessor
    const double cycles = double(walk.steps) * (double(tiles / walk.together) * cyclesOf(walk.together) + cyclesOf(tiles % walk.together));
    return cycles / (groups ? rates.groupsClock : rates.clock);
  }
  DevicePrice priceOf(const std::vector<TileWalk> &walks) const {
    double seconds = 0;
    for (const TileWalk &walk : walks)
      seconds += secondsOf(walk);
    return launched(seconds, work.bytes / machine.bytes);
  }
  DevicePrice operator()(const ContractSpec &spec) const { return priceOf(walksOf({spec}, target)); }
  DevicePrice operator()(const ConvSpec &spec) const { return priceOf(walksOf(spec.parts, target)); }

  DevicePrice priceOf(const AttendWalk &walk) const {
    const double turns = std::ceil(double(walk.items) / processors), busy = double(walk.items) / turns;
    const double rate = walk.groups ? rates.groups : walk.tensorCores ? rates.sync : rates.singles;
    const double products = walk.scores * walk.products / (rate * rates.clock * busy);
    const DeviceRates::Scores &beside = walk.groups ? rates.scoresOfGroups : rates.scores;
    const double draw = walk.backward ? rates.drawBackward : rates.drawForward;
    const double each = (walk.backward ? beside.backward : beside.forward) + (walk.draws ? draw : 0);
    return launched(products + issued(walk.scores * each, beside.issued, busy), work.bytes / machine.bytes);
  }
  DevicePrice operator()(const AttendSpec &spec) const { return priceOf(walkOf(spec, target)); }
  DevicePrice operator()(const AttendGradSpec &spec) const { return priceOf(walkOf(spec, target)); }

  DevicePrice operator()(const PoolSpec &) const { return launched(issued(instructions, rates.issued, processors), work.bytes / machine.bytes); }

  // Of column sums in two launches, the first one computes; the second one reads what that has left, and adds it.
  DevicePrice operator()(const LoopSpec &spec) const {
    DevicePrice all;
    double computed = instructions, moved = work.bytes;
    for (const LoopWalk &walk : walksOf(spec, target)) {
      const double busy = std::min(processors, std::ceil(double(walk.threads) / kBusyThreads));
      all += launched(issued(computed, rates.issued, busy), std::max((moved + walk.sumBytes) / machine.bytes, walk.rounds * rates.roundTrip));
      computed = moved = 0;
    }
    return all;
  }
};

} // namespace

DevicePrice priceOnDevice(const KernelSpec &spec, const DeviceWork &work, const TargetInfo &target, const MachineRates &machine) {
  return std::visit(Pricer{work, target, machine}, spec.work);
}

} // namespace cinch::analysis
