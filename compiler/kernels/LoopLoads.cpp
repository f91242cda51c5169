// LoopLoads.cpp: loads whose columns lie one behind the other though their place is computed, and loads that are turned in squares.
#include "compiler/kernels/LoopPlan.h"

#include <algorithm>

namespace cinch::kernels {
namespace {

bool constantOf(const LoopSpec &spec, int node, double &number) {
  number = spec.nodes[node].number;
  return spec.nodes[node].op == LoopOp::Const;
}

// Whether the columns of a load lie one behind the other, at a place that scalars tell.
bool loadsContiguous(const LoopPlan &plan, int node) {
  const LoopNode &n = plan.spec.nodes[node];
  if (plan.selectsAddress[node])
    return true;
  if ((n.op != LoopOp::Load && n.op != LoopOp::LoadAt) || n.view.strides.back() != 1 || !plan.walksColumns(node))
    return false;
  return std::none_of(n.args.begin(), n.args.end(), [&](int arg) { return plan.variesCol[arg]; });
}

LoopPlan::Clamped findClamp(const LoopPlan &plan, int node) {
  const LoopSpec &spec = plan.spec;
  const LoopNode &load = spec.nodes[node];
  LoopPlan::Clamped none, found;
  int at = -1;
  for (size_t i = 0; i < load.args.size(); ++i) {
    if (!plan.variesCol[load.args[i]])
      continue;
    if (at >= 0 || load.atStrides[i] != 1 || load.view.strides.back() != 0)
      return none;
    at = load.args[i];
  }
  double number;
  if (at < 0 || spec.nodes[at].op != LoopOp::Min || !constantOf(spec, spec.nodes[at].args[1], number))
    return none;
  found.last = int64_t(number);
  at = spec.nodes[at].args[0];
  if (spec.nodes[at].op != LoopOp::Max || !constantOf(spec, spec.nodes[at].args[1], number) || number != 0)
    return none;
  at = spec.nodes[at].args[0];
  if (spec.nodes[at].op == LoopOp::Sub && constantOf(spec, spec.nodes[at].args[1], number)) {
    found.shift = int64_t(number);
    at = spec.nodes[at].args[0];
  }
  if (spec.nodes[at].op != LoopOp::Index || spec.nodes[at].view.strides.back() != 1)
    return none;
  found.index = at;
  return found;
}

} // namespace

void findLoads(LoopPlan &plan) {
  const LoopSpec &spec = plan.spec;
  plan.selectsAddress.assign(spec.nodes.size(), false);
  plan.clamped.assign(spec.nodes.size(), LoopPlan::Clamped());
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (node.op == LoopOp::Select && spec.cols > 1)
      plan.selectsAddress[n] = !plan.variesCol[node.args[0]] && loadsContiguous(plan, node.args[1]) &&
                               loadsContiguous(plan, node.args[2]);
    else if (node.op == LoopOp::LoadAt)
      plan.clamped[n] = findClamp(plan, int(n));
  }
}

// A lane of a vector of f32 holds it, in registers.
static bool isOfLane(Elem elem) { return bytesOf(elem) == 4 || elem == Elem::BF16; }

// Both ranges are as long as a vector where further dims follow.
void findTransposition(LoopPlan &plan, int lanes) {
  const LoopSpec &spec = plan.spec;
  LoopPlan::Transposition found;
  found.turned.assign(spec.nodes.size(), false);
  std::vector<const View *> turned, straight;
  if (plan.teams || plan.hasChain || plan.rowColumns > 0 || spec.addAt.present || anyNode(spec, reducesColumns))
    return;
  for (const LoopStore &store : spec.stores) {
    if (store.copies != 1 || !isOfLane(spec.nodes[store.node].elem) || store.view.strides.back() != 1)
      return;
    straight.push_back(&store.view);
  }
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!plan.needed[n] || plan.constant[n] || !hasView(node))
      continue;
    if (node.op != LoopOp::Load || !isOfLane(node.elem) || node.view.strides.back() == 0)
      return;
    found.turned[n] = node.view.strides.back() != 1;
    (found.turned[n] ? turned : straight).push_back(&node.view);
  }
  // Each line of a square has code of its own, so that what computes much would be long, and is waiting for its arithmetic anyway.
  constexpr int kMostCost = 16;
  int cost = 0;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    cost += plan.needed[n] && !plan.constant[n] && !hasView(spec.nodes[n]) ? costOf(spec.nodes[n].op) : 0;
  if (turned.empty() || cost > kMostCost)
    return;
  std::vector<size_t> &left = found.rest;
  for (size_t i = 0; i <= spec.outer.size(); ++i)
    left.push_back(i);
  auto extend = [&](std::vector<size_t> &range, const std::vector<const View *> &views) {
    auto next = std::find_if(left.begin(), left.end(), [&](size_t dim) {
      return std::all_of(views.begin(), views.end(), [&](const View *view) { return view->strides[dim] == plan.sizeOf(range); });
    });
    if (next == left.end())
      return false;
    range.push_back(*next);
    left.erase(next);
    return true;
  };
  bool both = extend(found.across, straight) && extend(found.along, turned);
  while (both && ((plan.sizeOf(found.along) < lanes && extend(found.along, turned)) ||
                  (plan.sizeOf(found.across) < lanes && extend(found.across, straight))))
    ;
  if (!both || plan.sizeOf(found.along) < lanes || plan.sizeOf(found.across) < lanes)
    return;
  found.lanes = lanes;
  plan.transposition = found;
}

} // namespace cinch::kernels
