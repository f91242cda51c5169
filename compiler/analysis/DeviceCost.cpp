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

struct Pricer {
  const DeviceRates &rates;
  const double processors;

  // Of tiles: all that a multiprocessor has at once go through a step together. Their products are one after another on its tensor cores, or
  // what they read and write of its shared memory is; but a tile's own products follow what it has read. By wgmma they do not, and another
  // warpgroup brings what comes next.
  double secondsOf(const TileWalk &walk) const {
    const bool groups = walk.cores == TileWalk::Groups;
    const double rate = groups ? rates.groups : walk.cores == TileWalk::Sync ? rates.sync : rates.singles;
    const double products = walk.products / rate, longest = std::max(products, walk.lines);
    const double alone = (groups ? longest : products + walk.lines) + (walk.waits ? rates.latency * rates.clock : 0);
    auto cyclesOf = [&](double tiles) { return tiles > 0 ? std::max(tiles * longest, alone) : 0; };
    const int64_t tiles = int64_t(std::ceil(double(walk.tiles) / processors)); // of the busiest multiprocessor
    const double cycles = double(walk.steps) * (double(tiles / walk.together) * cyclesOf(double(walk.together)) + cyclesOf(double(tiles % walk.together)));
    return cycles / (groups ? rates.groupsClock : rates.clock);
  }

  // Instructions of so many threads at a time are begun on all multiprocessors that have work.
  double secondsOf(double instructions, double busy) const { return instructions / (rates.issued * rates.clock * busy); }

  double secondsOf(const AttendWalk &walk) const {
    const double turns = std::ceil(double(walk.items) / processors), busy = double(walk.items) / turns;
    const double products = walk.scores * walk.products / ((walk.tensorCores ? rates.sync : rates.singles) * rates.clock * busy);
    const double each = (walk.backward ? rates.scoreBackward : rates.scoreForward) + (walk.draws ? rates.scoreDraw : 0);
    return products + secondsOf(walk.scores * each, busy);
  }
};

} // namespace

DevicePrice priceOnDevice(const KernelSpec &spec, const DeviceWork &work, const TargetInfo &target, const MachineRates &machine) {
  const DeviceRates &rates = machine.device;
  const Pricer pricer{rates, double(target.processors)};
  DevicePrice price;
  price.traffic = work.bytes / machine.bytes;
  std::vector<TileWalk> walks;
  if (auto *contract = std::get_if<ContractSpec>(&spec.work))
    walks = walksOf({*contract}, target);
  else if (auto *conv = std::get_if<ConvSpec>(&spec.work))
    walks = walksOf(conv->parts, target);
  for (const TileWalk &walk : walks)
    price.arithmetic += pricer.secondsOf(walk);
  if (auto *attend = std::get_if<AttendSpec>(&spec.work))
    price.arithmetic = pricer.secondsOf(walkOf(*attend, target));
  if (auto *grad = std::get_if<AttendGradSpec>(&spec.work))
    price.arithmetic = pricer.secondsOf(walkOf(*grad, target));
  const double instructions = work.operations + rates.access * work.accesses;
  if (std::holds_alternative<PoolSpec>(spec.work))
    price.arithmetic = pricer.secondsOf(instructions, pricer.processors);
  if (auto *loop = std::get_if<LoopSpec>(&spec.work)) {
    LoopWalk walk = walkOf(*loop, target);
    const double busy = std::min(pricer.processors, std::ceil(double(walk.threads) / kBusyThreads));
    price.arithmetic = pricer.secondsOf(instructions, busy);
    price.traffic = std::max(price.traffic, walk.rounds * rates.roundTrip);
  }
  return price;
}

} // namespace cinch::analysis
