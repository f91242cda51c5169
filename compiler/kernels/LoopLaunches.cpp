// LoopLaunches.cpp: how a loop kernel is launched: once, or, for column sums in blocks of rows on a GPU, twice.
//
//     sum over rows r of x[r, c], in blocks of 32      first launch:  sums[j, c] = sum over i < 32 of x[32 j + i, c]      from +0.0, j side by side
//                                                      second launch: sum over j of sums[j, c]                           from what there was
//
// 768 columns are 48 teams of 16, or 48 blocks of threads where a block takes the place of a team: a third of an H100's multiprocessors, each of
// which would have to ask for 80 KB at a time to keep memory busy. The blocks of the first launch are as many as there are rows for, so that
// all multiprocessors read, and divide and draw where the summands ask for it. What it leaves is a 16th of what it read, if that was bf16: for 32,768 rows
// the second launch adds 1,024 numbers a column, four cycles each, some microseconds with the launch itself. One launch in which blocks wait
// for each other would save little of that, and would need counters in memory that somebody clears.
//
// Both launches are specs that any plan may serve: in the first the blocks are outer dims, in the second they are the chain. So the order of
// additions is that of LoopSpec::blockRows, whoever sums what.
#include "compiler/kernels/Device.h"
#include "compiler/kernels/LoopPlan.h"
#include "compiler/kernels/Simt.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>

namespace cinch::kernels {
namespace {

using Strides = std::vector<int64_t>;

// Longer blocks are few, and their rows better evaluated side by side (LoopGang.cpp).
constexpr int64_t kMostRows = 64, kFewestBlocks = 4;

// A plan in one launch, whose chains go on in blocks, as two specs.
class Halves {
public:
  explicit Halves(const LoopPlan &plan) : plan(plan), whole(plan.spec), outer(whole.outer.size()) {}

  // Where the chain is cut into blocks: steps of its dim `cut`, whose every `step`-th begins a block. False: blocks end within a dim.
  bool findCut() {
    int64_t within = 1;
    for (cut = whole.chain.size(); cut-- > 0; within *= whole.chain[cut]) {
      if (whole.blockRows % within != 0)
        return false;
      step = whole.blockRows / within;
      if (whole.chain[cut] % step == 0)
        return true;
    }
    return false;
  }

  void write() {
    Strides blocks(whole.chain.begin(), whole.chain.begin() + cut);
    blocks.push_back(whole.chain[cut] / step);
    sums.outer = whole.outer;
    sums.outer.insert(sums.outer.end(), blocks.begin(), blocks.end());
    sums.chain.assign(whole.chain.begin() + cut, whole.chain.end());
    sums.chain.front() = step;
    total.outer = whole.outer;
    total.chain = blocks;
    sums.cols = total.cols = whole.cols;
    placeOf.assign(whole.nodes.size(), -1);
    for (size_t n = 0; n < whole.nodes.size(); ++n)
      if (plan.needed[n] && whole.nodes[n].op == LoopOp::ReduceChain)
        views.push_back({int(n), placeSums(int(n))});
    for (auto &[chain, view] : views)
      sums.stores.push_back({copy(chain), alongSums(view)});
    storesOf(sums, /*inRow=*/true);
    isTotal = true;
    placeOf.assign(whole.nodes.size(), -1);
    storesOf(total, /*inRow=*/false);
  }

  LoopSpec sums, total;
  int64_t bytes = 0; // of the sums

private:
  // A row of sums a block, from a multiple of 64 bytes on. Strides are those of `total`.
  View placeSums(int chain) {
    const Elem elem = whole.nodes[chain].elem;
    const int64_t each = bytesOf(elem);
    View view{plan.buffers, elem, bytes / each, Strides(outer + total.chain.size() + 1, 1)};
    int64_t stride = solve::roundUp(whole.cols * each) / each;
    for (size_t dim = view.strides.size() - 1; dim-- > 0;) {
      view.strides[dim] = stride;
      stride *= dim < outer ? total.outer[dim] : total.chain[dim - outer];
    }
    bytes += stride * each;
    return view;
  }
  // In the first launch no dim of a block's rows counts.
  View alongSums(View view) const {
    view.strides.insert(view.strides.end() - 1, sums.chain.size(), 0);
    return view;
  }
  // The dim that is cut becomes two; in the second launch nothing but the sums varies over the blocks.
  void follow(Strides &strides) const {
    if (isTotal) {
      strides.erase(strides.begin() + outer, strides.end() - 1);
      strides.insert(strides.begin() + outer, total.chain.size(), 0);
    } else {
      strides.insert(strides.begin() + outer + cut, strides[outer + cut] * step);
    }
  }
  int copy(int node) {
    if (placeOf[node] >= 0)
      return placeOf[node];
    LoopNode copied = whole.nodes[node];
    follow(copied.view.strides);
    follow(copied.exampleStrides);
    LoopSpec &spec = isTotal ? total : sums;
    if (isTotal && copied.op == LoopOp::ReduceChain) {
      LoopNode load;
      load.op = LoopOp::Load;
      load.elem = copied.elem;
      load.view = std::find_if(views.begin(), views.end(), [&](auto &view) { return view.first == node; })->second;
      load.exampleStrides.assign(load.view.strides.size(), 0);
      copied.args = {int(spec.nodes.size())};
      spec.nodes.push_back(load);
    } else {
      for (int &arg : copied.args)
        arg = copy(arg);
      if (copied.op == LoopOp::ReduceChain) {
        copied.hasInit = false;
        copied.view = {0, copied.elem, 0, Strides(copied.view.strides.size(), 0)};
      }
    }
    spec.nodes.push_back(copied);
    return placeOf[node] = int(spec.nodes.size()) - 1;
  }
  void storesOf(LoopSpec &spec, bool inRow) {
    for (size_t i = 0; i < whole.stores.size(); ++i)
      if (plan.storeInRow[i] == inRow) {
        LoopStore store = whole.stores[i];
        store.node = copy(store.node);
        follow(store.view.strides);
        spec.stores.push_back(store);
      }
  }

  const LoopPlan &plan;
  const LoopSpec &whole;
  const size_t outer;
  size_t cut = 0;
  int64_t step = 1;
  bool isTotal = false;             // nodes are copied into that one
  std::vector<int> placeOf;         // per node of the whole, where it has been copied to
  std::vector<std::pair<int, View>> views; // of the chains, where their sums lie
};

bool suitsTwoLaunches(const LoopPlan &plan) {
  const LoopSpec &spec = plan.spec;
  if (!plan.teams || plan.directVectors != 1 || spec.blockRows < 1 || spec.blockRows > kMostRows || plan.rows < kFewestBlocks * spec.blockRows)
    return false;
  for (size_t n = 0; n < spec.nodes.size(); ++n) // sums are stored as they are, not rounded
    if (plan.needed[n] && spec.nodes[n].op == LoopOp::ReduceChain && spec.nodes[n].elem == Elem::BF16)
      return false;
  return true;
}

} // namespace

// Some times as many teams as the GPU holds at once, if there is work for them. How many it holds depends on the registers of a thread: if these are
// ten of the sixteen blocks that there are places for, one round of sixteen would leave a second round of six. Blocks that begin as others end
// keep all places busy to the last. Each team has its own scratch, though, and where there is some, the teams are one round.
Grid gridOf(const LoopPlan &plan, const TargetInfo &target) {
  constexpr int64_t kRounds = 4;
  if (plan.gang.teams > 0)
    return gridOfBlocks(plan.items(), plan.gang.threads(), target);
  const int64_t held = target.processors * (kThreadsOfProcessor / simt::kTeam), most = plan.scratchBytes > 0 ? held : kRounds * held;
  return {std::clamp<int64_t>(plan.items(), 1, most), simt::kTeam, 128};
}

LoopLaunches planLaunches(const LoopSpec &spec, const TargetInfo &target) {
  LoopLaunches one;
  one.plans.push_back(planLoop(spec, target));
  const LoopPlan &plan = one.plans.front();
  Halves halves(plan);
  if (!suitsTwoLaunches(plan) || !halves.findCut())
    return one;
  halves.write();
  LoopLaunches two;
  two.sumBytes = halves.bytes;
  for (const LoopSpec *half : {&halves.sums, &halves.total}) {
    two.plans.push_back(planLoop(*half, target));
    two.plans.back().buffers = plan.buffers; // the sums lie in the scratch
    if (two.plans.back().scratchBytes > 0)
      return one;
  }
  return two;
}

int64_t scratchBytesPerThread(const LoopSpec &spec, const TargetInfo &target) { return planLoop(spec, target).scratchBytes; }

int64_t itemsOf(const LoopSpec &spec, const TargetInfo &target) { return planLoop(spec, target).items(); }

int64_t scratchBytesOnDevice(const LoopSpec &spec, const TargetInfo &target) {
  LoopLaunches launches = planLaunches(spec, target);
  const LoopPlan &first = launches.plans.front();
  return launches.sumBytes + (first.scratchBytes > 0 ? first.scratchBytes * gridOf(first, target).workers : 0);
}

std::vector<Grid> gridsOf(const LoopSpec &spec, const TargetInfo &target) {
  std::vector<Grid> grids;
  for (const LoopPlan &plan : planLaunches(spec, target).plans)
    grids.push_back(gridOf(plan, target));
  return grids;
}

} // namespace cinch::kernels
