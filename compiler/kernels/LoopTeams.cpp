// LoopTeams.cpp: how the teams of a GPU share the work of a loop kernel: a block of threads for few columns, several columns a thread, places
// shared among teams.
#include "compiler/kernels/LoopPlan.h"

#include <algorithm>

namespace cinch::kernels {
namespace {

void chooseGang(LoopPlan &plan) {
  constexpr int64_t kTeams = 32, kMostRows = 8, kFewestRows = 64, kMostChains = 8, kSharedBytes = 36 * 1024;
  // So many items keep a GPU busy with a team each: they read as fast as its memory can.
  if (plan.directVectors != 1 || plan.items() > kItemsOfTeams / 8 || plan.rows < kFewestRows)
    return;
  int64_t chains = 0, bytes = 0;
  for (size_t n = 0; n < plan.spec.nodes.size(); ++n) {
    if (!plan.needed[n] || plan.spec.nodes[n].op != LoopOp::ReduceChain)
      continue;
    ++chains;
    bytes += 2 * kTeams * kLoopLanes * bytesOf(plan.spec.nodes[n].elem);
  }
  if (chains > kMostChains)
    return;
  int64_t walked = plan.spec.blockRows > 0 ? plan.spec.blockRows : plan.rows;
  int64_t rows = std::min({kMostRows, (walked + kTeams - 1) / kTeams, kSharedBytes / bytes});
  if (rows > 0)
    plan.gang = {kTeams, rows, chains};
}

// A team that reads one element of bf16 a thread asks memory for 32 bytes, and for the next ones when these have come: so few are on their way that
// memory waits. A thread that reads 16 bytes of each of several rows at once keeps it busy. But teams are to be many, too, and what a thread reads
// and sums has to fit into its registers. The code of a round is kept short.
void chooseTogether(LoopPlan &plan) {
  constexpr int64_t kFewTeams = 1 << 12, kMostRows = 16, kMostSums = 16, kRegisters = 32, kRegistersBesideDraws = 16, kMostCost = 512;
  const LoopSpec &spec = plan.spec;
  if (plan.directVectors != 1 || plan.gang.teams > 0)
    return;
  bool isShort = false, draws = false;
  int64_t cost = 0, chains = 0, numbers = 0; // numbers: of a row, the same for all columns
  std::vector<const LoopNode *> loads;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    chains += plan.needed[n] && node.op == LoopOp::ReduceChain;
    if (!plan.needed[n] || !plan.variesRow[n])
      continue;
    cost += costOf(node.op);
    draws = draws || plan.isDraw(int(n));
    if (node.op != LoopOp::Load)
      continue;
    if (plan.variesCol[n])
      loads.push_back(&node);
    else
      ++numbers;
    isShort = isShort || (plan.variesCol[n] && bytesOf(node.elem) <= 2);
  }
  const int64_t teams = plan.outerCount * spec.cols / kLoopLanes;
  for (int64_t together = isShort ? 8 : 4; !loads.empty() && together > 1 && plan.together == 1; together /= 2)
    if (spec.cols % together == 0 && spec.cols >= together * kLoopLanes && teams / together >= kFewTeams && chains * together <= kMostSums &&
        std::all_of(loads.begin(), loads.end(), [&](const LoopNode *node) { return isOneAccess(node->view, node->elem, together); }))
      plan.together = together;
  int64_t registers = numbers;
  for (const LoopNode *node : loads)
    registers += std::max<int64_t>(1, plan.together * bytesOf(node->elem) / 4);
  auto fits = [&](int64_t rows) {
    return rows <= std::min(plan.rows, kMostRows) && rows * registers <= (draws ? kRegistersBesideDraws : kRegisters) &&
           rows * plan.together * cost <= kMostCost;
  };
  while (fits(plan.rowsAhead * 2))
    plan.rowsAhead *= 2;
  const int64_t round = plan.together * kLoopLanes;
  if (plan.blocks > 1)
    plan.blockCols = (plan.blockCols + round - 1) / round * round;
  plan.blocks = (spec.cols + plan.blockCols - 1) / plan.blockCols;
}

void chooseShares(LoopPlan &plan) {
  constexpr int64_t kItems = 1 << 13, kFewestRows = 256;
  const LoopSpec &spec = plan.spec;
  if (!spec.addAt.present || !plan.addAtVector || spec.blockRows > 0 || plan.sweeps != 1 || plan.rows < kFewestRows ||
      !spec.stores.empty())
    return;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && (spec.nodes[n].op == LoopOp::ReduceChain || plan.isReduction(int(n))))
      return;
  for (int arg : spec.addAt.args)
    if (plan.variesCol[arg])
      return;
  while (plan.items() * 2 <= kItems)
    plan.shares *= 2;
}

} // namespace

void chooseTeams(LoopPlan &plan) {
  if (!plan.teams)
    return;
  chooseGang(plan);
  chooseTogether(plan);
  chooseShares(plan);
}

bool isOneAccess(const View &view, Elem elem, int64_t columns) {
  auto whole = [&](int64_t number) { return number % columns == 0; };
  return elem != Elem::F64 && view.strides.back() == 1 && whole(view.offset) &&
         std::all_of(view.strides.begin(), view.strides.end() - 1, whole);
}

} // namespace cinch::kernels
