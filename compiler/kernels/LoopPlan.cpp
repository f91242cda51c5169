// LoopPlan.cpp: finds levels and sweeps, chooses blocks and scratch. What is known of single loads is found in LoopLoads.cpp.
#include "compiler/kernels/LoopPlan.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>
#include <functional>

namespace cinch::kernels {
namespace {

using Strides = std::vector<int64_t>;

int64_t productOf(const std::vector<int64_t> &dims) {
  int64_t product = 1;
  for (int64_t dim : dims)
    product *= dim;
  return product;
}

void findLevels(LoopPlan &plan) {
  const LoopSpec &spec = plan.spec;
  size_t count = spec.nodes.size(), outer = spec.outer.size();
  auto walksChain = [&](const Strides &s) {
    return std::any_of(s.begin() + outer, s.end() - 1, [](int64_t stride) { return stride != 0; });
  };
  auto walksOuter = [&](const Strides &s) {
    return std::any_of(s.begin(), s.begin() + outer, [](int64_t stride) { return stride != 0; });
  };
  plan.constant.assign(count, false);
  plan.variesRow.assign(count, false);
  plan.variesCol.assign(count, false);
  plan.needed.assign(count, false);
  plan.sweep.assign(count, 0);
  // A chain that goes on from what is stored along the columns varies over them. One that begins is planned as if it went on: the planner does not know
  // which it will be, and counts its scratch.
  std::vector<bool> storedInColumns(count, false);
  for (const LoopStore &store : spec.stores)
    storedInColumns[store.node] = storedInColumns[store.node] || store.view.strides.back() != 0;
  for (size_t n = 0; n < count; ++n) {
    const LoopNode &node = spec.nodes[n];
    bool row = false, col = false, constant = node.op != LoopOp::ReduceChain && !reducesColumns(node.op);
    for (int arg : node.args) {
      constant = constant && plan.constant[arg];
      row = row || plan.variesRow[arg];
      col = col || plan.variesCol[arg];
      plan.sweep[n] = std::max(plan.sweep[n], plan.sweep[arg]);
    }
    constant = constant && !(hasView(node) && walksOuter(node.view.strides)) &&
               !(node.usesExample && walksOuter(node.exampleStrides));
    if (hasView(node)) {
      row = row || walksChain(node.view.strides);
      col = col || node.view.strides.back() != 0;
    }
    if (node.usesExample) {
      row = row || walksChain(node.exampleStrides);
      col = col || node.exampleStrides.back() != 0;
    }
    if (reducesColumns(node.op))
      col = plan.rowColumns > 0;
    if (node.op == LoopOp::ReduceChain) {
      row = false;
      col = col || storedInColumns[n];
      ++plan.sweep[n];
    }
    plan.variesRow[n] = row;
    plan.variesCol[n] = col;
    plan.constant[n] = constant && !row && !col;
  }
  std::function<void(int)> need = [&](int n) {
    if (plan.needed[n])
      return;
    plan.needed[n] = true;
    for (int arg : spec.nodes[n].args)
      need(arg);
  };
  for (const LoopStore &store : spec.stores) {
    need(store.node);
    plan.storeInRow.push_back(plan.hasChain && (plan.variesRow[store.node] || walksChain(store.view.strides)));
    plan.storeVector.push_back(plan.variesCol[store.node] || store.view.strides.back() != 0);
  }
  if (spec.addAt.present) {
    need(spec.addAt.node);
    plan.addAtVector = plan.variesCol[spec.addAt.node] || spec.addAt.view.strides.back() != 0;
    for (int arg : spec.addAt.args) {
      need(arg);
      plan.addAtVector = plan.addAtVector || plan.variesCol[arg];
    }
  }
  for (size_t n = 0; n < count; ++n)
    if (plan.needed[n] && spec.nodes[n].op == LoopOp::ReduceChain)
      plan.sweeps = std::max(plan.sweeps, plan.sweep[n]);
  for (size_t i = 0; i < spec.stores.size(); ++i)
    if (plan.storeInRow[i])
      plan.sweeps = std::max(plan.sweeps, plan.sweep[spec.stores[i].node] + 1);
  if (plan.hasChain)
    plan.sweeps = std::max(plan.sweeps, 1);
}

// Rows without a chain: in which passes each value is evaluated, from the sinks back.
void findKept(LoopPlan &plan) {
  constexpr int64_t kMostBytes = 256 * 1024; // in the second-level cache
  const LoopSpec &spec = plan.spec;
  size_t count = spec.nodes.size();
  plan.keptBy.assign(count, -1);
  if (plan.hasChain || plan.teams) // of a GPU: a row of scratch would be as far away as what the value is computed from
    return;
  std::vector<int> depth(count, 0);
  std::vector<uint64_t> passes(count, 0); // bit p: evaluated in pass p
  int last = 0;
  for (size_t n = 0; n < count; ++n) {
    if (!plan.needed[n])
      continue;
    for (int arg : spec.nodes[n].args)
      depth[n] = std::max(depth[n], depth[arg]);
    if (plan.isReduction(int(n))) {
      int arg = spec.nodes[n].args[0];
      last = std::max(last, depth[arg]);
      passes[arg] |= uint64_t(1) << std::min(depth[arg], 63);
      ++depth[n];
    }
  }
  for (size_t i = 0; i < spec.stores.size(); ++i)
    if (plan.storeVector[i])
      last = std::max(last, depth[spec.stores[i].node]);
  if (last == 0 || last > 60)
    return;
  for (size_t i = 0; i < spec.stores.size(); ++i)
    if (plan.storeVector[i])
      passes[spec.stores[i].node] |= uint64_t(1) << last;
  for (size_t n = count; n-- > 0;) {
    uint64_t lowest = passes[n] & -passes[n];
    bool several = passes[n] != lowest;
    if (several && plan.variesCol[n] && costOf(spec.nodes[n].op) > 1 &&
        spec.cols * bytesOf(spec.nodes[n].elem) <= kMostBytes) {
      passes[n] = lowest;
      plan.keptBy[n] = __builtin_ctzll(lowest);
    }
    if (plan.isReduction(int(n)))
      continue;
    for (int arg : spec.nodes[n].args)
      passes[arg] |= passes[n];
  }
}

// Columns of the table of places that AddAt sums a block in: few, since there is a table a thread.
constexpr int64_t kTableCols = 32;

void chooseBlocks(LoopPlan &plan) {
  const LoopSpec &spec = plan.spec;
  plan.blockCols = spec.cols;
  bool reduces = false, scalarSink = spec.addAt.present && !plan.addAtVector, rowDraws = false;
  if (spec.addAt.present && spec.blockRows > 0)
    plan.tableCols = kTableCols;
  int chains = 0, cost = 0;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!plan.needed[n])
      continue;
    reduces = reduces || plan.isReduction(int(n));
    rowDraws = rowDraws || plan.drawsRow(int(n));
    cost += costOf(spec.nodes[n].op);
    if (spec.nodes[n].op == LoopOp::ReduceChain) {
      ++chains;
      scalarSink = scalarSink || !plan.variesCol[n];
    }
  }
  for (bool vector : plan.storeVector)
    scalarSink = scalarSink || !vector;
  if (reduces && plan.tableCols > 0)
    plan.tableCols = std::max(kTableCols, (spec.cols + kLoopLanes - 1) / kLoopLanes * kLoopLanes);
  if (reduces || scalarSink)
    return;
  if (chains > 0 && plan.sweeps == 1 && !spec.addAt.present && !rowDraws)
    plan.directVectors = chains > 4 || cost > 40 ? 1 : chains > 2 || cost > 15 ? 2 : 4;
  // Enough items for any number of threads, not so small that starting one shows. Teams of a GPU are many.
  const int64_t items = plan.teams ? kItemsOfTeams : 64, round = !plan.teams ? 64 : plan.hasChain ? kLoopLanes : 8 * kLoopLanes;
  int64_t least = plan.hasChain ? 64 : 512, most = plan.hasChain && !plan.directVectors ? 1024 : 4096;
  if (plan.teams) {
    plan.directVectors = std::min(plan.directVectors, 1);
    least = plan.hasChain ? kLoopLanes : 8 * kLoopLanes;
  }
  if (plan.tableCols > 0)
    least = most = plan.tableCols;
  int64_t width = spec.cols * plan.outerCount / items;
  width = std::min(std::max((width + round - 1) / round * round, least), most);
  if (width < spec.cols) {
    plan.blockCols = width;
    plan.blocks = (spec.cols + width - 1) / width;
  }
}

// Exactly what the code of this plan writes: a row of a block's columns for each chain that does not fit into registers, each kept value
// and each row of draws.
void assignScratch(LoopPlan &plan) {
  const LoopSpec &spec = plan.spec;
  plan.scratchOf.assign(spec.nodes.size(), -1);
  plan.totalOf.assign(spec.nodes.size(), -1);
  auto take = [&](int64_t bytes) {
    int64_t at = plan.scratchBytes;
    plan.scratchBytes += solve::roundUp(bytes);
    return at;
  };
  int64_t padded = (plan.blockCols + kLoopLanes - 1) / kLoopLanes * kLoopLanes;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!plan.needed[n])
      continue;
    bool chain = spec.nodes[n].op == LoopOp::ReduceChain && plan.variesCol[n] && !plan.directVectors;
    if (chain || plan.keptBy[n] >= 0)
      plan.scratchOf[n] = take(padded * bytesOf(spec.nodes[n].elem));
    else if (plan.drawsRow(int(n)))
      plan.scratchOf[n] = take(drawRowBytes(plan.drawOf(int(n)), spec.nodes[n].elem, plan.blockCols));
    if (chain && spec.blockRows > 0)
      plan.totalOf[n] = take(padded * bytesOf(spec.nodes[n].elem));
  }
  if (plan.tableCols > 0) {
    int64_t places = 1;
    plan.tableStrides.assign(spec.addAt.args.size(), 0);
    for (size_t i = spec.addAt.args.size(); i-- > 0; places *= spec.addAt.atSizes[i])
      plan.tableStrides[i] = places * plan.tableCols;
    plan.tableAt = take(places * plan.tableCols * bytesOf(spec.nodes[spec.addAt.node].elem));
  }
}

} // namespace

bool hasView(const LoopNode &node) {
  switch (node.op) {
  case LoopOp::Load: case LoopOp::LoadAt: case LoopOp::Index: case LoopOp::RandomUniform: case LoopOp::RandomNormal:
  case LoopOp::RandomInt: case LoopOp::RandomBool: return true;
  case LoopOp::ReduceChain: return node.hasInit;
  default: return false;
  }
}

int costOf(LoopOp op) {
  switch (op) {
#define FORMULA(KIND, FUNCTION, OPERANDS, WEIGHT)                                                                      \
  case LoopOp::KIND: return WEIGHT >= 10 ? 20 : 1;
#include "dialects/ops/Ops.inc"
  default: return 1;
  }
}

bool reducesColumns(LoopOp op) {
  return op == LoopOp::ReduceCols || op == LoopOp::ArgMaxCols || op == LoopOp::ArgMinCols;
}

bool readsBuffer(const LoopNode &node) {
  return node.op == LoopOp::Load || node.op == LoopOp::LoadAt || (node.op == LoopOp::ReduceChain && node.hasInit);
}

bool anyNode(const LoopSpec &spec, bool (*test)(LoopOp)) {
  return std::any_of(spec.nodes.begin(), spec.nodes.end(), [&](const LoopNode &node) { return test(node.op); });
}

bool LoopPlan::isReduction(int node) const { return rowColumns == 0 && reducesColumns(spec.nodes[node].op); }

bool LoopPlan::isDraw(int node) const {
  LoopOp op = spec.nodes[node].op;
  return op == LoopOp::RandomUniform || op == LoopOp::RandomNormal || op == LoopOp::RandomInt ||
         op == LoopOp::RandomBool;
}

Draw LoopPlan::drawOf(int node) const {
  LoopOp op = spec.nodes[node].op;
  return op == LoopOp::RandomBool ? Draw::Bits16 : op == LoopOp::RandomNormal ? Draw::Normal : Draw::Word;
}

bool LoopPlan::drawsRow(int node) const {
  const LoopNode &n = spec.nodes[node];
  return !teams && isDraw(node) && spec.cols > 1 && n.view.strides.back() == 1 &&
         !(n.usesExample && n.exampleStrides.back() != 0);
}

int64_t LoopPlan::squares() const {
  auto count = [&](const std::vector<size_t> &dims) { return (sizeOf(dims) + transposition.lanes - 1) / transposition.lanes; };
  return count(transposition.along) * count(transposition.across) * sizeOf(transposition.rest);
}

int64_t LoopPlan::sizeOf(const std::vector<size_t> &dims) const {
  int64_t product = 1;
  for (size_t dim : dims)
    product *= dim < spec.outer.size() ? spec.outer[dim] : spec.cols;
  return product;
}

static LoopPlan planDomain(const LoopSpec &original, const TargetInfo &target, bool joinsRows) {
  LoopPlan plan;
  plan.teams = target.isDevice();
  plan.spec = original;
  auto names = [&](int buffer) { plan.buffers = std::max(plan.buffers, buffer + 1); };
  for (const LoopNode &node : original.nodes)
    if (readsBuffer(node))
      names(node.view.buffer);
  for (const LoopStore &store : original.stores)
    names(store.view.buffer);
  if (original.addAt.present)
    names(original.addAt.view.buffer);

  simplifyLoop(plan.spec);
  if (joinsRows)
    joinRows(plan);
  plan.hasChain = !plan.spec.chain.empty() || plan.spec.addAt.present ||
                  anyNode(plan.spec, [](LoopOp op) { return op == LoopOp::ReduceChain; });
  plan.outerCount = productOf(plan.spec.outer);
  plan.rows = productOf(plan.spec.chain);
  findLevels(plan);
  findLoads(plan);
  findKept(plan);
  findTransposition(plan, target.lanes);
  chooseBlocks(plan);
  chooseTeams(plan);
  assignScratch(plan);
  return plan;
}

// Rows are joined where that takes no more scratch.
LoopPlan planLoop(const LoopSpec &original, const TargetInfo &target) {
  LoopPlan plan = planDomain(original, target, /*joinsRows=*/false);
  if (plan.teams || plan.spec.cols > kLoopLanes || plan.transposition.found())
    return plan;
  LoopPlan joined = planDomain(original, target, /*joinsRows=*/true);
  return joined.rowColumns == 0 || joined.scratchBytes > plan.scratchBytes ? plan : joined;
}

} // namespace cinch::kernels
