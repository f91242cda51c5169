// DecidePlan.cpp: builds the planner's problem from a function, has it solved and checked, and writes the decision down.
// Assumes decomposed ops; changes none.
#include "compiler/analysis/Formation.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Search.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/plan/Plan.h"

namespace cinch {
#define GEN_PASS_DEF_DECIDEPLAN
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// The decision in terms of op numbers and byte offsets.
Decided describe(func::FuncOp function, const analysis::Formation &formation, const analysis::StepProblem &problem,
                 const solve::Plan &plan, bool callerCounts) {
  Decided decided;
  const solve::Decision &decision = plan.decision;
  decided.microbatch = decision.microbatch;
  decided.count = callerCounts ? 0 : decision.count;
  decided.batch = problem.graph.batch;
  decided.arenaBytes = decision.arenaBytes;
  decided.loopBegin = decision.loopBegin;
  decided.loopEnd = decision.loopEnd;
  DenseMap<Operation *, int64_t> number;
  for (Operation &op : function.getBody().front())
    number.try_emplace(&op, int64_t(number.size()));
  auto reference = [&](SmallVectorImpl<int64_t> &list, Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      list.append({-1, int64_t(argument.getArgNumber())});
      return;
    }
    list.append({number.lookup(value.getDefiningOp()), int64_t(cast<OpResult>(value).getResultNumber())});
  };
  for (const analysis::KernelGroup &group : formation.groups) {
    DecidedKernel kernel;
    kernel.kind = group.kind;
    kernel.section = group.section;
    for (Operation *op : group.ops)
      kernel.ops.push_back(number.lookup(op));
    llvm::sort(kernel.ops);
    for (Value value : group.stores)
      reference(kernel.stores, value);
    for (Value value : group.reads)
      reference(kernel.reads, value);
    decided.kernels.push_back(std::move(kernel));
  }
  for (const solve::Run &run : decision.runs) {
    DecidedRun placed;
    placed.kernel = run.kernel;
    placed.recompute = run.recomputed;
    for (int instance : run.reads)
      placed.reads.push_back(decision.instances[instance].offset);
    for (int instance : run.writes)
      placed.writes.push_back(decision.instances[instance].offset);
    if (run.scratch >= 0)
      placed.scratch = decision.instances[run.scratch].offset;
    decided.runs.push_back(std::move(placed));
  }
  for (int instance : decision.zeroed)
    decided.zeroed.append({decision.instances[instance].offset, decision.instances[instance].bytes});
  DenseMap<int, int64_t> offsetOf;
  for (const solve::Instance &instance : decision.instances)
    if (instance.buffer >= 0 && problem.graph.buffers[instance.buffer].kind == solve::Buffer::Persistent)
      offsetOf[instance.buffer] = instance.offset;
  for (BlockArgument argument : function.getArguments())
    decided.arguments.push_back(offsetOf.lookup(problem.buffer.lookup(argument)));
  return decided;
}

struct DecidePlan : cinch::impl::DecidePlanBase<DecidePlan> {
  using DecidePlanBase::DecidePlanBase;

  void runOnOperation() final {
    func::FuncOp function = getOperation();
    analysis::Formation formation(function);
    if (failed(formation.form()))
      return signalPassFailure();
    analysis::StepProblem problem =
        analysis::buildStepProblem(formation, batchOf(function), grain, threads, reserved);
    solve::SearchOptions options;
    options.arenaBudget = arenaBudget;
    options.microbatch = microbatch;
    std::string error;
    if (!solve::parseStrategy(remat, options.strategy, error)) {
      function.emitError() << error;
      return signalPassFailure();
    }
    solve::Planner planner(problem.graph);
    solve::SearchResult result = planner.search(options);
    if (!result.error.empty()) {
      function.emitError() << result.error;
      return signalPassFailure();
    }
    if (!result.feasible) {
      function.emitError() << "no plan fits into an arena of " << arenaBudget << " bytes; the smallest needs "
                           << result.smallestArena;
      return signalPassFailure();
    }
    std::string wrong =
        solve::checkPlan(problem.graph, solve::scheduledProgram(problem.graph, result.plan.decision));
    if (!wrong.empty()) {
      function.emitError() << "internal error: the plan checker refuses the plan: " << wrong;
      return signalPassFailure();
    }
    Decided decided = describe(function, formation, problem, result.plan, callerCounts);
    writeDecision(function, decided);
  }
};

} // namespace
