// VerifyPhase.cpp: what must hold at the border behind a phase. Reads only, runs always.
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/VerifySchedule.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {
#define GEN_PASS_DEF_VERIFYPHASE
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

// Straight-line functions of nn ops on static tensors, every op with its source place.
static LogicalResult verifyOnlyNN(ModuleOp module, Phase phase) {
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    bool known = isa<ModuleOp, func::FuncOp, func::ReturnOp>(op) || isa_and_nonnull<nn::NNDialect>(op->getDialect());
    if (!known)
      return op->emitOpError() << "does not belong to phase '" << phaseName(phase) << "', which has only 'nn' and 'func'";
    if (isa_and_nonnull<nn::NNDialect>(op->getDialect()) && !nn::sourcePlace(op->getLoc()))
      return op->emitOpError() << "has no source place";
    if (auto function = dyn_cast<func::FuncOp>(op); function && !function.getBody().hasOneBlock())
      return op->emitOpError() << "expected one block, got " << function.getBody().getBlocks().size();
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult verifyResults(ModuleOp module, StringRef name, bool withBatch) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function)
    return success();
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if ((nn::batchAxis(type) >= 0) != withBatch)
      return function.emitOpError() << "result " << i << " of type " << type << (withBatch ? " lacks" : " has")
                                    << " the batch axis";
  return success();
}

static LogicalResult verifyEntries(ModuleOp module) {
  return success(succeeded(verifyResults(module, nn::kEvaluationName, false)) &&
                 succeeded(verifyResults(module, nn::kPredictionName, true)));
}

static LogicalResult verifyParsed(ModuleOp module) {
  auto step = module.lookupSymbol<func::FuncOp>(nn::kStepName);
  unsigned losses = 0;
  for (unsigned i = 0; step && i < step.getNumResults(); ++i)
    losses += !step.getResultAttr(i, nn::kPathAttr);
  if (step && (losses != 1 || !step->hasAttrOfType<nn::TrainingAttr>(nn::kTrainingAttr)))
    return step.emitOpError() << "expected one result beside new states, the loss, and '" << nn::kTrainingAttr << "'";
  if (failed(verifyResults(module, nn::kStepName, false)))
    return failure();
  return verifyEntries(module);
}

// Every result of @train says what it is, and every new value of a parameter or of state has an old one of its type.
static LogicalResult verifyDifferentiated(ModuleOp module) {
  if (auto step = module.lookupSymbol<func::FuncOp>(nn::kStepName))
    return step.emitOpError() << "should have become @" << nn::kTrainName << " by Differentiate";
  if (auto train = module.lookupSymbol<func::FuncOp>(nn::kTrainName)) {
    DenseMap<Attribute, Type> old;
    for (unsigned i = 0; i < train.getNumArguments(); ++i)
      for (StringRef role : {nn::kPathAttr, nn::kSlotAttr})
        if (Attribute name = train.getArgAttr(i, role))
          old[name] = train.getArgumentTypes()[i];
    for (unsigned i = 0; i < train.getNumResults(); ++i) {
      Attribute path = train.getResultAttr(i, nn::kPathAttr), slot = train.getResultAttr(i, nn::kSlotAttr);
      Attribute name = path ? path : slot;
      if (!name && !train.getResultAttr(i, nn::kNameAttr))
        return train.emitOpError() << "result " << i << " has no name";
      if (name && old.lookup(name) != train.getResultTypes()[i])
        return train.emitOpError() << "result " << i << ", the new " << name << ", has no argument of its type "
                                   << train.getResultTypes()[i];
    }
    if (failed(verifyResults(module, nn::kTrainName, false)))
      return failure();
  }
  return verifyEntries(module);
}

// Loops over the same micro-batches; every kernel is a run, and runs stand in their order.
static LogicalResult verifyPlanned(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>()) {
    auto loops = function.getOps<plan::LoopOp>();
    if (loops.empty() || llvm::any_of(loops, [](plan::LoopOp loop) { return !loop.examples(); }))
      return function.emitOpError() << "expected a plan.loop over examples, and no other loop beside it";
    for (plan::LoopOp loop : loops) {
      if (loop.examples().getSize() != (*loops.begin()).examples().getSize() || loop.getCount() != (*loops.begin()).getCount())
        return loop.emitOpError() << "has other micro-batches than the loop before it";
      if (int64_t together = nn::examplesTogether(function); loop.examples().getSize() % together)
        return function.emitOpError() << "works on " << together << " examples together, which a micro-batch of "
                                      << loop.examples().getSize() << " cuts";
    }
    WalkResult whole = function.walk([&](plan::LoopOp loop) -> WalkResult {
      if (loop.axis() && !isa<plan::KernelOp>(loop->getParentOp()))
        return loop.emitOpError() << "along an axis stands in no kernel, whose work it would be";
      plan::RowBlocksAttr rows = loop.rowBlocks();
      int64_t grain = nn::grainOf(function);
      if (rows && grain > 0 && (rows.getPositions() != rows.getOf() || rows.getExamples() % grain))
        return loop.emitOpError() << "cuts the blocks of " << grain << " examples that are summed";
      return WalkResult::advance();
    });
    if (whole.wasInterrupted())
      return failure();
    int64_t last = -1;
    WalkResult result = function.walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
      if (isa<func::FuncOp, func::ReturnOp, plan::LoopOp, plan::YieldOp, plan::FetchOp, plan::StoreOp, plan::AwaitOp>(op) ||
          op->getParentOfType<plan::KernelOp>()) {
        if (isa<nn::ScanOp>(op))
          return op->emitOpError() << "should have become a plan.loop by FormKernels";
        return WalkResult::advance();
      }
      auto run = op->getAttrOfType<IntegerAttr>(kRunAttr);
      if (!run)
        return op->emitOpError() << "belongs to no run";
      if (run.getInt() < last)
        return op->emitOpError() << "of run " << run.getInt() << " stands behind run " << last;
      last = run.getInt();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

namespace {
struct VerifyPhase : cinch::impl::VerifyPhaseBase<VerifyPhase> {
  using VerifyPhaseBase::VerifyPhaseBase;

  LogicalResult verify() {
    switch (phase) {
    case Phase::Parsed:
      return success(succeeded(verifyOnlyNN(getOperation(), phase)) && succeeded(verifyParsed(getOperation())));
    case Phase::Differentiated:
      return success(succeeded(verifyOnlyNN(getOperation(), phase)) && succeeded(verifyDifferentiated(getOperation())));
    case Phase::Planned:
      return verifyPlanned(getOperation());
    case Phase::Scheduled:
      for (auto function : getOperation().getOps<func::FuncOp>())
        if (failed(verifySchedule(function)))
          return failure();
      return success();
    default:
      return getOperation().emitError() << "internal error: phase '" << phaseName(phase) << "' has no verifier";
    }
  }

  void runOnOperation() final {
    if (failed(verify()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
