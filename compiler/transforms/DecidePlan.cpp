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

// The decision in terms of op numbers and byte offsets.
static Decided describe(func::FuncOp function, const analysis::Formation &formation, const analysis::StepProblem &problem,
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
    if (run.scratch >= 0)
      placed.scratchBytes = decision.instances[run.scratch].bytes;
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

DecideOutcome cinch::decidePlan(func::FuncOp function, const DecideOptions &options) {
  DecideOutcome outcome;
  analysis::Formation formation(function);
  if (failed(formation.form())) {
    outcome.internal = true;
    return outcome;
  }
  analysis::StepProblem problem = analysis::buildStepProblem(formation, batchOf(function), options.grain,
                                                             options.threads, options.reservedBytes, options.target);
  solve::Planner planner(problem.graph);
  outcome.result = planner.search(options.search);
  if (options.tradeOff)
    outcome.tradeOff = planner.tradeOff(options.search);
  if (outcome.result.error.empty() && outcome.result.feasible) {
    std::string wrong =
        solve::checkPlan(problem.graph, solve::scheduledProgram(problem.graph, outcome.result.plan.decision));
    if (!wrong.empty()) {
      function.emitError() << "internal error: the plan checker refuses the plan: " << wrong;
      outcome.internal = true;
      return outcome;
    }
    writeDecision(function, describe(function, formation, problem, outcome.result.plan, options.callerCounts));
  }
  outcome.graph = std::move(problem.graph);
  return outcome;
}

namespace {
struct DecidePlan : cinch::impl::DecidePlanBase<DecidePlan> {
  using DecidePlanBase::DecidePlanBase;

  void runOnOperation() final {
    func::FuncOp function = getOperation();
    DecideOptions options;
    options.search.arenaBudget = arenaBudget;
    options.search.microbatch = microbatch;
    options.grain = grain;
    options.threads = threads;
    options.reservedBytes = reserved;
    options.target.lanes = lanes;
    options.callerCounts = callerCounts;
    std::string error;
    if (!solve::parseStrategy(remat, options.search.strategy, error)) {
      function.emitError() << error;
      return signalPassFailure();
    }
    DecideOutcome outcome = decidePlan(function, options);
    if (outcome.internal)
      return signalPassFailure();
    if (!outcome.result.error.empty()) {
      function.emitError() << outcome.result.error;
      return signalPassFailure();
    }
    if (!outcome.result.feasible) {
      function.emitError() << "no plan fits into an arena of " << options.search.arenaBudget << " bytes; the smallest needs "
                           << outcome.result.smallestArena;
      return signalPassFailure();
    }
  }
};
} // namespace
