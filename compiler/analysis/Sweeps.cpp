// Sweeps.cpp: two walks over the ops. The first finds how many sums must be complete before an op can run, the second in which sweeps
// each is needed; then what is needed in several is copied.
#include "compiler/analysis/Sweeps.h"

#include "dialects/nn/NN.h"

#include "mlir/IR/IRMapping.h"

#include <set>

using namespace mlir;

namespace cinch::analysis {
namespace {

class Separation {
public:
  explicit Separation(func::FuncOp function) : function(function) {
    for (Operation &op : function.getBody().front().without_terminator())
      ops.push_back(&op);
  }

  Sweeps run() {
    sweeps.count = countSweeps();
    for (Operation *op : llvm::reverse(ops))
      nn::touchesBatch(op) ? placeInSweeps(op) : placeBetween(op);
    copy();
    return std::move(sweeps);
  }

private:
  static bool isSum(Value value) { return nn::touchesBatch(value.getDefiningOp()) && !nn::hasBatch(value); }

  // One more than the longest chain of sums, each of which needs the one before.
  int countSweeps() {
    llvm::DenseMap<Operation *, int> earliest;
    int deepest = 0;
    for (Operation *op : ops) {
      int sweep = 0;
      for (Value operand : op->getOperands())
        if (Operation *def = operand.getDefiningOp())
          sweep = std::max(sweep, earliest.lookup(def) + int(isSum(operand)));
      earliest[op] = sweep;
      if (nn::touchesBatch(op))
        deepest = std::max(deepest, sweep);
    }
    return deepest + 1;
  }

  // The sweep before which a value without the batch axis is needed; `count`: none.
  int neededBefore(Value value) const {
    int before = sweeps.count;
    for (Operation *user : value.getUsers()) {
      if (auto it = needed.find(user); it != needed.end())
        before = std::min(before, *it->second.begin());
      else if (auto part = sweeps.part.find(user); part != sweeps.part.end())
        before = std::min(before, part->second / 2);
    }
    return before;
  }

  void placeBetween(Operation *op) {
    int before = sweeps.count;
    for (Value result : op->getResults())
      before = std::min(before, neededBefore(result));
    sweeps.part[op] = 2 * before;
  }

  void placeInSweeps(Operation *op) {
    std::set<int> &in = needed[op];
    for (Value result : op->getResults()) {
      if (!nn::hasBatch(result)) {
        in.insert(neededBefore(result) - 1);
        continue;
      }
      for (Operation *user : result.getUsers())
        if (auto it = needed.find(user); it != needed.end())
          in.insert(it->second.begin(), it->second.end());
        else
          in.insert(sweeps.count - 1); // it leaves the function
    }
    if (in.empty())
      in.insert(sweeps.count - 1);
  }

  // The op itself stands in the last sweep that needs it, copies in the others. A sum is read where it is complete first.
  void copy() {
    std::map<int, IRMapping> copies; // of each sweep
    for (Operation *op : ops) {
      auto it = needed.find(op);
      if (it == needed.end()) {
        useEarlySums(op);
        continue;
      }
      int last = *it->second.rbegin();
      OpBuilder builder(op);
      for (int sweep : it->second)
        if (sweep != last) {
          Operation *twin = builder.clone(*op, copies[sweep]);
          useEarlySums(twin);
          sweeps.part[twin] = 2 * sweep + 1;
          for (auto [result, other] : llvm::zip(op->getResults(), twin->getResults()))
            if (!nn::hasBatch(result) && neededBefore(result) - 1 == sweep)
              early[result] = other;
        }
      for (OpOperand &operand : op->getOpOperands()) // what lasts longer than this op has a copy here
        operand.set(copies[last].lookupOrDefault(operand.get()));
      useEarlySums(op);
      sweeps.part[op] = 2 * last + 1;
    }
    useEarlySums(function.getBody().front().getTerminator());
  }

  void useEarlySums(Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      if (Value other = early.lookup(operand.get()))
        operand.set(other);
  }

  func::FuncOp function;
  std::vector<Operation *> ops;
  Sweeps sweeps;
  std::map<Operation *, std::set<int>> needed; // work on examples -> the sweeps that need it
  llvm::DenseMap<Value, Value> early;          // sums that a copy completes before the op itself
};

} // namespace

Sweeps separateSweeps(func::FuncOp function) { return Separation(function).run(); }

} // namespace cinch::analysis
