// Compile.cpp: the phases, in order. What each leaves behind stands in Phase.h and in the README's table.
#include "compiler/phases/Compile.h"
#include "compiler/phases/ProgramHash.h"
#include "compiler/transforms/Approximate.h"
#include "compiler/transforms/ChooseWinograd.h"
#include "compiler/transforms/EmitNN.h"
#include "compiler/transforms/MultiplyInTF32.h"
#include "compiler/transforms/NarrowOperands.h"
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/PadRows.h"
#include "compiler/transforms/ShardValues.h"
#include "compiler/transforms/SumInBlocks.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;

namespace cinch {

// Ops and phase are checked here and nowhere between: the passes of a phase run without MLIR's check behind each of them,
// which costs a deep program more than the passes do.
bool Compilation::verify(Phase phase) {
  if (failed(mlir::verify(*module)))
    return false;
  PassManager manager(&context);
  manager.enableVerifier(false);
  VerifyPhaseOptions verifyOptions;
  verifyOptions.phase = phase;
  manager.addPass(createVerifyPhase(verifyOptions));
  return succeeded(manager.run(*module));
}

bool Compilation::parse() {
  module = emitNN(context, program, sources);
  return module && verify(Phase::Parsed);
}

static LogicalResult differentiateModule(ModuleOp module) {
  PassManager manager(module.getContext());
  manager.enableVerifier(false);
  manager.addPass(createSinkGroups()); // products of the examples of a group are products, and their gradients too
  manager.addPass(createChooseLayouts()); // gradients are of the layouts that are chosen
  manager.addPass(createRoundValues());
  manager.addPass(createDifferentiate());
  return manager.run(module);
}

// Shards are no part of what a program computes: its hash is that of the program of one worker.
bool Compilation::share() {
  OwningOpRef<ModuleOp> plain = module->clone();
  if (failed(differentiateModule(*plain)))
    return false;
  programHash = hashOfTraining(*plain, program);
  ShardedProgram sharded = shardValues(*module, options.shards);
  if (!sharded.fault.empty()) {
    emitError(UnknownLoc::get(&context)) << "internal error: shards: " << sharded.fault;
    return false;
  }
  workers.shardNotes = std::move(sharded.notes);
  refusal = std::move(sharded.wrong);
  refused = !refusal.empty();
  return refused || verify(Phase::Parsed);
}

bool Compilation::differentiate() {
  if (!options.target.isDevice() && !program.train.bf16)
    chooseWinograd(*module); // gradients are marked as what they are gradients of, and shards as the whole
  if (options.shards > 1 && !share())
    return false;
  if (refused)
    return true;
  if (failed(differentiateModule(*module)) || !verify(Phase::Differentiated))
    return false;
  if (options.shards == 1)
    programHash = hashOfTraining(*module, program);
  narrowOperands(*module, options.target.isDevice());
  PassManager decompose(&context);
  decompose.enableVerifier(false);
  if (options.target.isDevice() && options.workers() == 1) // of several, each has some of the gradients
    decompose.addPass(createJoinSquares());
  decompose.addPass(createHoistRoundings());
  decompose.addPass(createCrossLoops());
  decompose.addPass(createDecomposeOps());
  decompose.addPass(createSinkSplits());
  decompose.addPass(createReadMaxima());
  if (failed(decompose.run(*module)))
    return false;
  if (options.target.isDevice() && program.train.bf16) {
    sumInBlocks(module->lookupSymbol<func::FuncOp>(nn::kTrainName));
    approximate(*module);
    if (options.shards == 1)
      for (auto function : module->getOps<func::FuncOp>())
        padRows(function);
  }
  if (options.target.isDevice() && program.train.tf32)
    multiplyInTF32(*module);
  if (options.shards > 1) {
    markShards(*module);
    spreadSums(*module);
    countAllReduces();
  }
  countOperations(nn::kTrainName);
  return true;
}

// Of the work on examples.
void Compilation::countAllReduces() {
  auto train = module->lookupSymbol<func::FuncOp>(nn::kTrainName);
  train.walk([&](Operation *op) {
    if (op->hasAttr(nn::kAllReduceAttr) && nn::touchesBatch(op))
      ++workers.allReduces[op->hasAttr(nn::kBackwardAttr)];
  });
}

bool Compilation::runPasses(llvm::function_ref<void(OpPassManager &)> onFunctions) {
  PassManager manager(&context);
  manager.enableVerifier(false);
  onFunctions(manager.nest<func::FuncOp>());
  return succeeded(manager.run(*module));
}

bool Compilation::applyPlan(Phase upTo) {
  // The decisions are written on the functions: the graphs in which they were found serve nobody any longer.
  for (EntryPlan &entry : entries) {
    entry.outcome.rows = {};
    solve::Decision &decision = entry.outcome.result.plan.decision;
    std::vector<solve::Run>().swap(decision.runs);
    std::vector<solve::Instance>().swap(decision.instances);
  }
  if (!runPasses([](OpPassManager &functions) {
        functions.addPass(createFormMicrobatches());
        functions.addPass(createRematerialize());
        functions.addPass(createFormRowBlocks());
      }) ||
      !verify(Phase::Planned))
    return false;
  if (upTo == Phase::Planned)
    return true;
  return runPasses([](OpPassManager &functions) {
           functions.addPass(createAssignMemory());
         }) &&
         verify(Phase::Scheduled) && verifyMessages();
}

} // namespace cinch
