// DeviceWalk.cpp: the plans of kernels of a GPU, as numbers.
#include "compiler/kernels/DeviceWalk.h"

#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/ContractTensor.h"
#include "compiler/kernels/Device.h"
#include "compiler/kernels/LoopPlan.h"

#include <algorithm>

namespace cinch::kernels {

using device::GroupTiles;
using device::Plan;
using device::TensorTiles;

static int64_t ceilDiv(int64_t all, int64_t each) { return (all + each - 1) / each; }

// ---- Products ----------------------------------------------------------------------------------------------------------
// Blocks of so many threads whose registers a multiprocessor has at once. A thread has its sums and, as ptxas assembles it, about 80 registers
// more.
static int64_t blocksOfProcessor(const Plan &plan, int64_t threads) {
  constexpr int64_t kRegisters = 65536, kBesideSums = 80;
  return std::max<int64_t>(1, kRegisters / (threads * (plan.tileM * plan.tileN / threads + kBesideSums)));
}

// Runs of k one after the other: blocks of sums start anew behind each.
static int64_t runsOf(const Plan &plan, int64_t length) { return device::countOf(plan.runs) * std::max<int64_t>(1, plan.K / std::max<int64_t>(1, length)); }

// Each warpgroup reads its 64 rows and all columns, both of which were written there.
static TileWalk walkOfGroups(const ContractSpec &spec, const TargetInfo &target) {
  Plan plan(spec, target.processors);
  GroupTiles tiles(plan);
  TileWalk walk;
  walk.cores = TileWalk::Groups;
  walk.tiles = plan.items();
  walk.steps = runsOf(plan, tiles.length) * tiles.steps;
  walk.products = double(plan.tileM * plan.tileN * device::kGroupStep);
  walk.lines = double(2 * (64 + plan.tileN) + plan.tileM + tiles.linesOf(1, plan.tileN));
  for (int i : {0, 1})
    walk.waits = walk.waits || !(tiles.isMapped(i) || tiles.operand[i].copied);
  return walk;
}

// Four warps have a quarter of a tile each, eight an eighth: they read their rows and their columns, which were written there once.
static TileWalk walkOfSync(const ContractSpec &spec, int64_t threads) {
  Plan plan(spec);
  TensorTiles tiles(plan);
  const int64_t warps = threads / 32, read = warps * (plan.tileM / 2 + 2 * plan.tileN / warps), written = plan.tileM + plan.tileN;
  TileWalk walk;
  walk.cores = spec.tf32 ? TileWalk::SyncTF32 : TileWalk::Sync;
  walk.tiles = plan.items();
  walk.together = blocksOfProcessor(plan, threads);
  walk.steps = runsOf(plan, tiles.length) * tiles.steps;
  walk.products = double(plan.tileM * plan.tileN * tiles.step);
  walk.lines = double((read + written) * device::kTensorStepBytes) / 128;
  walk.waits = !tiles.operand[0].copied || !tiles.operand[1].copied;
  return walk;
}

static TileWalk walkOfSingles(const ContractSpec &spec) {
  constexpr int64_t kStep = 16;
  Plan plan(spec);
  TileWalk walk;
  walk.tiles = plan.items();
  walk.together = blocksOfProcessor(plan, device::kThreads);
  walk.steps = device::countOf(plan.runs) * ceilDiv(plan.K, kStep);
  walk.products = double(plan.tileM * plan.tileN * kStep) * (spec.elem == Elem::F64 ? 2 : 1); // f64: half of the rate
  return walk;
}

std::vector<TileWalk> walksOf(const std::vector<ContractSpec> &parts, const TargetInfo &target) {
  std::vector<TileWalk> walks;
  for (const ContractSpec &part : parts)
    walks.push_back(device::isOfWarpgroups(parts, target) ? walkOfGroups(part, target)
                    : device::isOfTensorCores(part)       ? walkOfSync(part, device::threadsOf(parts))
                                                          : walkOfSingles(part));
  return walks;
}

// ---- Attention ---------------------------------------------------------------------------------------------------------
static AttendWalk walkOfScores(const AttendSpec &spec) {
  AttendWalk walk;
  walk.tensorCores = isOfTensorCores(spec);
  walk.draws = spec.dropout > 0;
  walk.scores = double(headsOf(spec)) * double(spec.T) * double(spec.S) / (spec.causal ? 2 : 1);
  return walk;
}

AttendWalk walkOf(const AttendSpec &spec, const TargetInfo &target) {
  AttendWalk walk = walkOfScores(spec);
  walk.items = gridOfAttend(spec, target).workers;
  walk.groups = walk.tensorCores && attendsByGroups(spec, target);
  walk.products = double(spec.K + spec.E);
  return walk;
}

// Scores again, and then the gradients of values, shares, queries and keys.
AttendWalk walkOf(const AttendGradSpec &grad, const TargetInfo &target) {
  AttendWalk walk = walkOfScores(grad.forward);
  walk.backward = true;
  walk.items = walk.tensorCores ? itemsOfTensorAttend(grad, target) : gridOfAttend(grad, target).workers;
  walk.groups = walk.tensorCores && attendsByGroups(grad, target);
  walk.products = double(3 * grad.forward.K + 2 * grad.forward.E);
  return walk;
}

// ---- Loops -------------------------------------------------------------------------------------------------------------
// Batches of rows that a block of threads walks one after the other, a turn for each of its items. Blocks of a chain begin a batch each.
static int64_t roundsOf(const LoopPlan &plan, const TargetInfo &target) {
  if (plan.gang.teams == 0)
    return 0;
  const int64_t turns = ceilDiv(plan.items(), target.processors * (kThreadsOfProcessor / plan.gang.threads()));
  const int64_t walked = plan.spec.blockRows > 0 ? plan.spec.blockRows : plan.rows;
  return turns * (plan.rows / walked) * ceilDiv(walked, plan.gang.batch());
}

std::vector<LoopWalk> walksOf(const LoopSpec &spec, const TargetInfo &target) {
  const LoopLaunches launches = planLaunches(spec, target);
  std::vector<LoopWalk> walks;
  for (const LoopPlan &plan : launches.plans) {
    Grid grid = gridOf(plan, target);
    LoopWalk walk;
    walk.threads = std::min<int64_t>(grid.workers * grid.lanes, target.processors * kThreadsOfProcessor);
    walk.rounds = double(roundsOf(plan, target));
    walk.sumBytes = double(launches.sumBytes);
    walks.push_back(walk);
  }
  return walks;
}

} // namespace cinch::kernels
