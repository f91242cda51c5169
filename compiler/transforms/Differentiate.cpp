// Differentiate.cpp: reverse-mode differentiation of @step and the update of its parameters. Assumes phase `parsed`,
// leaves phase `differentiated`. The sweep itself stands in GradientSweep.cpp.
#include "compiler/transforms/GradientSweep.h"
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/Updates.h"
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Versions.h"
#include "dialects/nn/Reversible.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cinch {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

// Gradients of the trained parameters; an argument that the loss does not reach has none.
static FailureOr<DenseMap<Value, Value>> gradientsOf(Value loss, func::FuncOp function, nn::GradientBuilder &builder) {
  Block &block = function.getBody().front();
  DenseSet<Value> active;
  for (BlockArgument argument : function.getArguments())
    if (isTrained(function, argument))
      active.insert(argument);
  GradientSweep::grow(active, block);
  if (!active.contains(loss)) {
    function.emitError() << "the loss depends on no parameter that is trained";
    return failure();
  }
  GradientSweep sweep(builder, std::move(active));
  builder.setLocation(loss.getLoc());
  sweep.contribute(loss, 0, 0, builder.like(loss, 1));
  if (failed(sweep.visit(block)))
    return failure();
  DenseMap<Value, Value> gradients;
  for (BlockArgument argument : function.getArguments())
    if (Value gradient = sweep.isActive(argument) ? sweep.gradientOf(argument) : Value())
      gradients[argument] = gradient;
  return gradients;
}

// What neither a result nor a later op reads.
static void eraseDead(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty() && isMemoryEffectFree(op))
      op->erase();
}

// Where no derivative is left to take, a value with derivative 0 is the value: one, not two to keep. Of an argument it stays, as the copy that a
// state needs whose new value is another state's old one.
static void dropStops(ModuleOp module) {
  module->walk([](nn::StopGradientOp stop) {
    if (isa<BlockArgument>(stop.getX()))
      return;
    stop.replaceAllUsesWith(stop.getX());
    stop->erase();
  });
}

namespace {
struct Differentiate : cinch::impl::DifferentiateBase<Differentiate> {
  void runOnOperation() final {
    auto step = getOperation().lookupSymbol<func::FuncOp>(nn::kStepName);
    auto training = step ? step->getAttrOfType<nn::TrainingAttr>(nn::kTrainingAttr) : nn::TrainingAttr();
    if (!training || !step.getBody().hasOneBlock()) {
      getOperation().emitError() << "expected a function @" << nn::kStepName << " with '" << nn::kTrainingAttr << "'";
      return signalPassFailure();
    }
    auto exit = cast<func::ReturnOp>(step.getBody().front().getTerminator());
    Value loss;
    unsigned lossAt = 0;
    for (auto [i, value] : llvm::enumerate(exit.getOperands())) {
      if (step.getResultAttr(unsigned(i), nn::kPathAttr)) // the new value of a state
        continue;
      if (loss || !isFloatTensor(value) || nn::tensorOf(value).getRank() != 0) {
        step.emitError() << "expected one result beside states, the loss, a scalar";
        return signalPassFailure();
      }
      loss = value;
      lossAt = unsigned(i);
    }
    if (!loss) {
      step.emitError() << "expected the loss among the results";
      return signalPassFailure();
    }
    OpBuilder opBuilder(exit);
    nn::GradientBuilder builder(opBuilder);
    auto gradients = gradientsOf(loss, step, builder);
    if (failed(gradients))
      return signalPassFailure();
    loss = exit.getOperand(lossAt); // that of a loop, which the sweep may have replaced
    buildUpdates(step, training, loss, *gradients, builder);
    for (Operation *op : builder.made())
      op->walk([&](Operation *inner) { inner->setAttr(nn::kBackwardAttr, UnitAttr::get(&getContext())); });
    getOperation()->walk([](nn::AddOp add) { add->removeDiscardableAttr(nn::kStreamAttr); });
    dropStops(getOperation());
    eraseDead(step.getBody().front());
    step->removeAttr(nn::kTrainingAttr);
    step->removeAttr(nn::kRunValuesAttr);
    step->removeAttr(nn::kDelayAttr);
    step->removeAttr(nn::kStaleAttr);
    step.setName(nn::kTrainName);
  }
};
} // namespace
