// Rematerialize.cpp: puts the runs in the decided order. Each run gets copies of the ops that its kernel computes; a kernel
// that runs again is recomputed, and uses behind it read the new copy. Assumes the micro-batch loop is formed.
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/IRMapping.h"

namespace cinch {
#define GEN_PASS_DEF_REMATERIALIZE
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

class Scheduler {
public:
  Scheduler(func::FuncOp function, const Decided &decided) : function(function), decided(decided) {
    function.walk([&](Operation *op) {
      if (auto number = op->getAttrOfType<IntegerAttr>(kOpAttr))
        original[number.getInt()] = op;
    });
  }

  LogicalResult run() {
    auto oldLoop = *function.getOps<plan::MicrobatchesOp>().begin();
    Operation *exit = function.getBody().front().getTerminator();
    SmallVector<Operation *> old;
    for (Operation &op : function.getBody().front().without_terminator())
      old.push_back(&op);
    for (BlockArgument argument : function.getArguments())
      current.map(argument, argument);

    OpBuilder builder(exit);
    int64_t total = int64_t(decided.runs.size());
    for (int64_t run = 0; run < decided.loopBegin; ++run)
      if (failed(emit(builder, run)))
        return failure();
    auto oldYield = cast<plan::YieldOp>(oldLoop.getBody().front().getTerminator());
    // Of the sums only those that a kernel stores leave the loop; the others were views of them.
    SmallVector<Value> sums;
    for (Value value : oldYield.getValues())
      if (isStored(value))
        sums.push_back(value);
    auto loop = plan::MicrobatchesOp::create(builder, oldLoop.getLoc(), ValueRange(sums).getTypes(),
                                             uint64_t(decided.count), uint64_t(decided.microbatch));
    {
      OpBuilder::InsertionGuard guard(builder);
      Block *inner = builder.createBlock(&loop.getBody());
      builder.setInsertionPointToEnd(inner);
      for (int64_t run = decided.loopBegin; run < decided.loopEnd; ++run)
        if (failed(emit(builder, run)))
          return failure();
      SmallVector<Value> yielded;
      for (Value value : sums)
        yielded.push_back(current.lookup(value));
      plan::YieldOp::create(builder, oldLoop.getLoc(), yielded);
    }
    for (auto [i, value] : llvm::enumerate(sums)) {
      current.map(value, loop.getResult(unsigned(i)));
    }
    for (auto [i, value] : llvm::enumerate(oldYield.getValues()))
      if (current.contains(value))
        current.map(oldLoop.getResult(unsigned(i)), current.lookup(value));
    for (int64_t run = decided.loopEnd; run < total; ++run)
      if (failed(emit(builder, run)))
        return failure();
    for (OpOperand &operand : exit->getOpOperands())
      operand.set(current.lookupOrDefault(operand.get()));
    for (Operation *op : llvm::reverse(old)) {
      op->dropAllUses();
      op->erase();
    }
    return success();
  }

private:
  bool isStored(Value value) const {
    Operation *op = value.getDefiningOp();
    int64_t number = op->getAttrOfType<IntegerAttr>(kOpAttr).getInt();
    int64_t result = cast<OpResult>(value).getResultNumber();
    for (const DecidedKernel &kernel : decided.kernels)
      for (size_t i = 0; i + 1 < kernel.stores.size(); i += 2)
        if (kernel.stores[i] == number && kernel.stores[i + 1] == result)
          return true;
    return false;
  }

  Value resolve(int64_t op, int64_t result) {
    Value value = op < 0 ? Value(function.getArgument(unsigned(result))) : Value(original[op]->getResult(unsigned(result)));
    return current.lookupOrNull(value);
  }

  LogicalResult emit(OpBuilder &builder, int64_t number) {
    const DecidedRun &run = decided.runs[number];
    const DecidedKernel &kernel = decided.kernels[run.kernel];
    Builder attributes(function.getContext());
    auto mark = [&](Operation *op) {
      op->setAttr(kRunAttr, attributes.getI64IntegerAttr(number));
      if (run.recompute)
        op->setAttr(kRecomputeAttr, attributes.getUnitAttr());
    };
    if (kernel.kind == analysis::KernelGroup::Gate || kernel.kind == analysis::KernelGroup::Results) {
      SmallVector<Value> values;
      for (size_t i = 0; i < kernel.reads.size(); i += 2)
        values.push_back(resolve(kernel.reads[i], kernel.reads[i + 1]));
      if (llvm::is_contained(values, Value()))
        return function.emitError("internal error: a result is read before it is computed");
      mark(placeMarker(builder, kernel, values));
      return success();
    }
    IRMapping local;
    llvm::DenseSet<int64_t> inside(kernel.ops.begin(), kernel.ops.end());
    for (int64_t opNumber : kernel.ops) {
      Operation *op = original[opNumber];
      for (Value operand : op->getOperands()) {
        if (local.contains(operand))
          continue;
        Value now = current.lookupOrNull(operand);
        if (!now)
          return op->emitError("internal error: run ") << number << " reads what no earlier run stores";
        local.map(operand, now);
      }
      // Operands computed in this kernel were mapped by their own clone, which comes first.
      Operation *clone = builder.clone(*op, local);
      mark(clone);
    }
    for (size_t i = 0; i < kernel.stores.size(); i += 2) {
      Value value = original[kernel.stores[i]]->getResult(unsigned(kernel.stores[i + 1]));
      current.map(value, local.lookup(value));
    }
    return success();
  }

  Operation *placeMarker(OpBuilder &builder, const DecidedKernel &kernel, ArrayRef<Value> values) {
    plan::ResultsOp old;
    function.walk([&](plan::ResultsOp op) {
      if (!op->hasAttr(kRunAttr))
        old = op;
    });
    SmallVector<Value> named = llvm::map_to_vector(old.getValues(), [&](Value v) { return current.lookupOrDefault(v); });
    if (kernel.kind == analysis::KernelGroup::Results)
      return plan::ResultsOp::create(builder, function.getLoc(), named, old.getNames(), DenseI64ArrayAttr());
    Value loss, norm;
    for (auto [value, name] : llvm::zip(named, old.getNames())) {
      if (cast<StringAttr>(name).getValue() == "loss")
        loss = value;
      if (cast<StringAttr>(name).getValue() == "norm")
        norm = value;
    }
    return plan::GateOp::create(builder, function.getLoc(), loss, norm, DenseI64ArrayAttr());
  }

  func::FuncOp function;
  const Decided &decided;
  DenseMap<int64_t, Operation *> original;
  IRMapping current;
};

struct Rematerialize : cinch::impl::RematerializeBase<Rematerialize> {
  void runOnOperation() final {
    FailureOr<Decided> decided = readDecision(getOperation());
    if (failed(decided))
      return signalPassFailure();
    if (getOperation().getOps<plan::MicrobatchesOp>().empty()) {
      getOperation().emitError("has no micro-batch loop: run form-microbatches first");
      return signalPassFailure();
    }
    if (failed(Scheduler(getOperation(), *decided).run()))
      signalPassFailure();
  }
};

} // namespace
