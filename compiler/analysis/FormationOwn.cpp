// FormationOwn.cpp: kernels that one op has for itself: products, convolutions, attention, pools, loops along an axis.
#include "compiler/analysis/Formation.h"
#include "compiler/analysis/KernelSpec.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"

using namespace mlir;

namespace cinch::analysis {

// A kernel of one op, at one extent, if those values lie in memory that `isThere` names.
bool Formation::tryOwn(KernelGroup &group, Operation *op, const Extent &extent, Value &blocker, llvm::function_ref<bool(Value)> isThere) {
  group.kind = plan::kindOf(op);
  group.reads.clear();
  auto inputOf = [&](Value value) {
    if (!isThere(value))
      return -1;
    group.reads.insert(value);
    return 0;
  };
  if (group.kind == plan::KernelKind::Scan) { // the kernels of its body take its operands as they lie in memory
    for (Value operand : op->getOperands())
      if (inputOf(operand) < 0) {
        blocker = operand;
        return false;
      }
    return true;
  }
  TracedWork traced;
  bool good = traceWork({group.kind, op->getResults(), {}, inputOf, [](size_t) { return false; }, 1}, extent, traced);
  group.ops = std::move(traced.ops);
  blocker = traced.blocker;
  return good;
}

bool Formation::placeOwn(Operation *op, plan::KernelKind kind) {
  KernelGroup group;
  group.kind = kind;
  group.part = partOf(op);
  group.backward = op->hasAttr(nn::kBackwardAttr);
  for (size_t i = 0; i < extents.size();) {
    Value blocker;
    KernelGroup fewer = group;
    if (tryOwn(i == 0 ? group : fewer, op, extents[i], blocker, [&](Value value) { return inMemory(value); })) {
      ++i;
      continue;
    }
    if (!blocker || inMemory(blocker) || !isLoopOp(blocker.getDefiningOp()) || !place(blocker))
      return succeeded(internal(op->getResult(0), "an operand cannot be brought into memory"));
    i = 0;
  }
  group.ops.insert(op);
  for (Value result : op->getResults()) {
    if (result.use_empty() && kind == plan::KernelKind::Scan) // a carried value that ends with the loop
      continue;
    group.stores.push_back(result);
    producer[result] = int(groups.size());
  }
  if (!group.stores.empty())
    groups.push_back(std::move(group));
  return true;
}

} // namespace cinch::analysis
