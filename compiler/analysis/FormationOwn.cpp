// FormationOwn.cpp: kernels that one op has for itself: products, convolutions, attention, pools, loops along an axis.
#include "compiler/analysis/Formation.h"
#include "compiler/analysis/Specs.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"

using namespace mlir;

namespace cinch::analysis {

// A product, attention or a loop, at one extent, if those values lie in memory that `isThere` names.
bool Formation::tryOwn(KernelGroup &group, Operation *op, const Extent &extent, Value &blocker, llvm::function_ref<bool(Value)> isThere) {
  group.reads.clear();
  group.ops.clear();
  llvm::DenseMap<Value, int> number;
  auto bufferOf = [&](Value value) {
    bool result = value.getDefiningOp() == op;
    if (!result && !isThere(value))
      return -1;
    if (!result)
      group.reads.insert(value);
    return number.try_emplace(value, int(number.size())).first->second;
  };
  if (isa<nn::ScanOp>(op)) { // the kernels of its body take its operands as they lie in memory
    for (Value operand : op->getOperands())
      if (bufferOf(operand) < 0) {
        blocker = operand;
        return false;
      }
    return true;
  }
  if (auto contract = dyn_cast<nn::ContractOp>(op)) {
    kernels::ContractSpec spec;
    return contractSpec(contract, bufferOf, false, spec, blocker, &group.ops, extent);
  }
  if (auto attend = dyn_cast<nn::AttendOp>(op)) {
    kernels::AttendSpec spec;
    return attendSpec(attend, bufferOf, spec, blocker, &group.ops, extent);
  }
  if (auto conv = dyn_cast<nn::ConvOp>(op)) {
    kernels::ConvSpec spec;
    return convSpec(conv, bufferOf, false, spec, blocker, &group.ops, extent);
  }
  if (isPool(op)) {
    kernels::PoolSpec spec;
    return poolSpec(op, bufferOf, spec, blocker, &group.ops, extent);
  }
  kernels::AttendGradSpec spec;
  return attendGradSpec(cast<nn::AttendGradOp>(op), bufferOf, spec, blocker, &group.ops, extent);
}

bool Formation::placeOwn(Operation *op, KernelKind kind) {
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
    if (result.use_empty() && kind == KernelKind::Scan) // a carried value that ends with the loop
      continue;
    group.stores.push_back(result);
    producer[result] = int(groups.size());
  }
  if (!group.stores.empty())
    groups.push_back(std::move(group));
  return true;
}

} // namespace cinch::analysis
