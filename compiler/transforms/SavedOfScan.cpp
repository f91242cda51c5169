// SavedOfScan.cpp: see SavedOfScan.h.
#include "compiler/transforms/SavedOfScan.h"

#include "compiler/solve/VertexCut.h"

using namespace mlir;

namespace cinch {

bool isSameInEachTrip(Value value) {
  return value.getDefiningOp() && isa<nn::ConstantOp, nn::VectorOp, nn::RangeOp>(value.getDefiningOp());
}

int stackOf(nn::ScanOp scan, Value value) {
  for (unsigned i = scan.carriedCount(); i < scan.getNumResults(); ++i)
    if (scan.yield()->getOperand(i) == value)
      return int(i);
  return -1;
}

static double bytesOf(Value value) {
  auto type = nn::tensorOf(value);
  return double(type.getNumElements()) * std::max<unsigned>(8, type.getElementTypeBitWidth()) / 8;
}

DenseSet<Value> cheapestToSave(nn::ScanOp scan, const llvm::SetVector<Value> &read, const llvm::SetVector<Value> &kept) {
  std::vector<solve::CutNode> nodes;
  SmallVector<Value> values;
  DenseMap<Value, int> number;
  auto add = [&](Value value, double cost, bool source) {
    number[value] = int(nodes.size());
    values.push_back(value);
    nodes.push_back({cost, source, {}});
  };
  for (unsigned i = 0; i < scan.carriedCount(); ++i)
    add(scan.carried(i), stackOf(scan, scan.yield()->getOperand(i)) >= 0 ? 0 : bytesOf(scan.carried(i)), true);
  for (unsigned j = 0; j < scan.getSlices().size(); ++j)
    add(scan.part(j), bytesOf(scan.part(j)), true);
  for (Operation &op : scan.block().without_terminator()) {
    bool again = op.getNumResults() == 1 && !isa<nn::ContractOp, nn::ConvOp, nn::ScanOp, nn::AttendOp>(op);
    for (Value result : op.getResults()) {
      bool free = kept.contains(result) || isSameInEachTrip(result) || stackOf(scan, result) >= 0;
      add(result, free ? 0 : bytesOf(result), !again);
      if (again)
        for (Value operand : op.getOperands())
          if (auto it = number.find(operand); it != number.end())
            nodes.back().operands.push_back(it->second);
    }
  }
  std::vector<int> targets;
  for (Value value : read)
    if (auto it = number.find(value); it != number.end())
      targets.push_back(it->second);
  DenseSet<Value> cut;
  for (int node : solve::cheapestCut(nodes, targets))
    if (!isSameInEachTrip(values[node]))
      cut.insert(values[node]);
  return cut;
}

void addStacked(nn::ScanOp scan, const llvm::SetVector<Value> &read, DenseSet<Value> &cut) {
  DenseSet<Value> needed(read.begin(), read.end());
  for (Operation &op : llvm::reverse(scan.block().without_terminator())) {
    for (Value result : op.getResults())
      if (needed.contains(result) && !isSameInEachTrip(result) && stackOf(scan, result) >= 0)
        cut.insert(result);
    if (llvm::any_of(op.getResults(), [&](Value result) { return needed.contains(result) && !cut.contains(result); }))
      needed.insert(op.operand_begin(), op.operand_end());
  }
}

void computeAgain(nn::ScanOp scan, const llvm::SetVector<Value> &read, Block &backward, SmallVectorImpl<Value> &yields, IRMapping &inside) {
  DenseSet<Value> needed(read.begin(), read.end());
  SmallVector<Operation *> ops;
  for (Operation &op : llvm::reverse(scan.block().without_terminator()))
    if (llvm::any_of(op.getResults(), [&](Value value) { return needed.contains(value) && !inside.contains(value); })) {
      ops.push_back(&op);
      needed.insert(op.operand_begin(), op.operand_end());
    }
  OpBuilder front(scan.getContext());
  front.setInsertionPointToStart(&backward);
  for (Operation *op : llvm::reverse(ops))
    front.clone(*op, inside);
  for (Operation &op : backward)
    for (OpOperand &operand : op.getOpOperands())
      operand.set(inside.lookupOrDefault(operand.get()));
  for (Value &value : yields)
    value = inside.lookupOrDefault(value);
}

} // namespace cinch
