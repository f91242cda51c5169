// FormKernels.cpp: the ops of each run move into one plan.kernel, isolated from what is around it. Assumes the runs stand in
// order (rematerialize).
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace cinch {
#define GEN_PASS_DEF_FORMKERNELS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// "blocks.3.ff: mul" for the value a kernel is named after.
std::string labelOf(Operation *op) {
  StringRef path = nn::instancePath(op->getLoc());
  std::string label = path.empty() ? std::string() : path.str() + ": ";
  label += op->getName().stripDialect();
  return op->hasAttr(nn::kBackwardAttr) ? label + " (gradient)" : label;
}

struct FormKernels : cinch::impl::FormKernelsBase<FormKernels> {
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    FailureOr<Decided> decided = readDecision(function);
    if (failed(decided))
      return signalPassFailure();
    SmallVector<SmallVector<Operation *>> runs(decided->runs.size());
    function.walk([&](Operation *op) {
      auto run = op->getAttrOfType<IntegerAttr>(kRunAttr);
      if (run && !isa<plan::GateOp, plan::ResultsOp>(op) && run.getInt() < int64_t(runs.size()))
        runs[run.getInt()].push_back(op);
    });
    for (auto [number, ops] : llvm::enumerate(runs))
      if (!ops.empty() && failed(form(int64_t(number), ops, decided->kernels[decided->runs[number].kernel])))
        return signalPassFailure();
  }

  LogicalResult form(int64_t number, ArrayRef<Operation *> ops, const DecidedKernel &kernel) {
    llvm::SetVector<Value> inputs;
    llvm::DenseSet<Operation *> inside(ops.begin(), ops.end());
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (!operand.getDefiningOp() || !inside.contains(operand.getDefiningOp()))
          inputs.insert(operand);
    SmallVector<Value> outputs;
    SmallVector<bool> accumulates;
    bool inLoop = isa<plan::MicrobatchesOp, plan::RowBlocksOp>(ops.front()->getParentOp());
    for (size_t i = 0; i < kernel.stores.size(); i += 2) {
      auto found = llvm::find_if(ops, [&](Operation *op) {
        return op->getAttrOfType<IntegerAttr>(kOpAttr).getInt() == kernel.stores[i];
      });
      if (found == ops.end())
        return ops.front()->emitError("internal error: a stored value is missing from its run");
      Value value = (*found)->getResult(unsigned(kernel.stores[i + 1]));
      outputs.push_back(value);
      accumulates.push_back(inLoop && !nn::hasBatch(value) && nn::touchesBatch(*found));
    }
    OpBuilder builder(ops.back()->getBlock(), std::next(Block::iterator(ops.back())));
    Builder attributes(&getContext());
    Operation *named = outputs.front().getDefiningOp();
    auto op = plan::KernelOp::create(
        builder, named->getLoc(), ValueRange(outputs).getTypes(), inputs.getArrayRef(),
        ops.front()->hasAttr(kRecomputeAttr) ? attributes.getUnitAttr() : UnitAttr(),
        llvm::is_contained(accumulates, true) ? attributes.getDenseBoolArrayAttr(accumulates) : DenseBoolArrayAttr(),
        DenseI64ArrayAttr(), DenseI64ArrayAttr(), IntegerAttr(), attributes.getStringAttr(labelOf(named)));
    op->setAttr(kRunAttr, attributes.getI64IntegerAttr(number));
    for (auto [output, result] : llvm::zip(outputs, op.getOutputs())) {
      Value value = output;
      value.replaceUsesWithIf(result, [&](OpOperand &use) { return !inside.contains(use.getOwner()); });
    }
    Block *body = builder.createBlock(&op.getBody());
    for (Value input : inputs) {
      BlockArgument argument = body->addArgument(input.getType(), input.getLoc());
      input.replaceUsesWithIf(argument, [&](OpOperand &use) { return inside.contains(use.getOwner()); });
    }
    for (Operation *inner : ops) {
      inner->moveBefore(body, body->end());
      for (StringRef mark : {kRunAttr, kRecomputeAttr, kOpAttr})
        inner->removeAttr(mark);
    }
    builder.setInsertionPointToEnd(body);
    plan::ReturnOp::create(builder, op.getLoc(), outputs);
    return success();
  }
};

} // namespace
