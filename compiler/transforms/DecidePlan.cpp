// DecidePlan.cpp: builds the planner's problem from a function, has it solved and checked, and writes the decision down.
// Assumes decomposed ops; changes none.
#include "compiler/analysis/Formation.h"
#include "compiler/solve/Explain.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Search.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/Remarks.h"
#include "llvm/Support/FormatVariadic.h"

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

// Says why: micro-batch, what is fused, what is kept and what is recomputed, each with its bytes and its price.
static void remarkOn(func::FuncOp function, const analysis::Formation &formation, const solve::StepGraph &graph,
                     const solve::SearchResult &result) {
  const solve::Decision &decision = result.plan.decision;
  auto remark = [&](Location loc, StringRef name, StringRef category, const std::string &text) {
    remark::passed(loc, remark::RemarkOpts::name(name).category(category).function(function.getName())) << text;
  };
  auto mib = [](double bytes) { return llvm::formatv("{0:F2} MiB", bytes / (1 << 20)).str(); };
  remark(function.getLoc(), "Microbatch", "plan",
         llvm::formatv("{0} micro-batches of {1} examples: of the plans that fit, the least predicted time ({2:F4} s, "
                       "at least {3:F4} s), arena {4}",
                       decision.count, decision.microbatch, result.plan.seconds, result.secondsBound,
                       mib(double(decision.arenaBytes))));
  std::vector<int> runs(graph.kernels.size(), 0);
  for (const solve::Run &run : decision.runs)
    ++runs[run.kernel];
  std::vector<bool> savedByLoop(graph.buffers.size(), false);
  for (const solve::Kernel &kernel : graph.kernels)
    if (kernel.section == solve::Section::Loop && kernel.backward)
      for (int buffer : kernel.reads)
        savedByLoop[buffer] = true;
  for (auto [k, group] : llvm::enumerate(formation.groups)) {
    if (group.stores.empty())
      continue;
    const solve::Kernel &kernel = graph.kernels[k];
    Location loc = group.stores.front().getLoc();
    if (group.kind == analysis::KernelGroup::Loop && group.ops.size() > 1)
      remark(loc, "Fuse", "kernels",
             llvm::formatv("{0} operations in one kernel; {1} values are stored, since other kernels read them",
                           group.ops.size(), group.stores.size()));
    if (kernel.section != solve::Section::Loop || kernel.backward)
      continue;
    double bytes = 0;
    for (int buffer : kernel.writes)
      if (savedByLoop[buffer])
        bytes += double(graph.buffers[buffer].bytes(decision.microbatch));
    if (runs[k] > 1)
      remark(loc, "Recompute", "remat",
             llvm::formatv("computed {0} times instead of holding {1} until the backward sweep; that "
                           "costs {2:F3} ms a micro-batch",
                           runs[k], mib(bytes), 1e3 * (runs[k] - 1) * kernel.seconds.at(decision.microbatch)));
    else if (bytes > 0)
      remark(loc, "Keep", "remat",
             llvm::formatv("kept for the backward sweep: {0}; computing it again would cost {1:F3} ms a micro-batch",
                           mib(bytes), 1e3 * kernel.seconds.at(decision.microbatch)));
  }
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
  solve::Planner planner(problem.graph, options.orderSeed);
  outcome.result = planner.search(options.search);
  if (options.tradeOff) {
    outcome.tradeOff = planner.tradeOff(options.search);
    outcome.named = solve::namedStrategies(problem.graph);
  }
  if (outcome.result.error.empty() && outcome.result.feasible) {
    solve::ScheduledProgram program = solve::scheduledProgram(problem.graph, outcome.result.plan.decision);
    program.peakLive = outcome.result.plan.peakLive;
    std::string wrong = solve::checkPlan(problem.graph, program);
    if (!wrong.empty()) {
      function.emitError() << "internal error: the plan checker refuses the plan: " << wrong;
      outcome.internal = true;
      return outcome;
    }
    remarkOn(function, formation, problem.graph, outcome.result);
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
