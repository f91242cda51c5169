// DecidePlan.cpp: builds the planner's problem from a function, has it solved and checked, and writes the decision down.
// Assumes kernels (form-kernels); changes none.
#include "compiler/analysis/StepProblem.h"
#include "compiler/solve/Explain.h"
#include "compiler/solve/MemoryBound.h"
#include "compiler/solve/OffloadSearch.h"
#include "compiler/solve/PlanCache.h"
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Units.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/PlanProblem.h"
#include "compiler/transforms/TwoSteps.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/Remarks.h"
#include "llvm/Support/FormatVariadic.h"

namespace cinch {
#define GEN_PASS_DEF_DECIDEPLAN
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {
// The decision in terms of kernel numbers and byte offsets.
class Describer {
public:
  Describer(const analysis::Step &step, const analysis::StepProblem &problem, const DecideOutcome &outcome)
      : step(step), problem(problem), outcome(outcome), original(outcome.rows.original),
        decision(outcome.result.plan.decision) {}

  Decided describe(bool callerCounts) {
    decided.microbatch = decision.microbatch;
    decided.count = callerCounts ? 0 : decision.count;
    decided.batch = problem.graph.batch;
    decided.arenaBytes = decision.arenaBytes;
    decided.rowPositions = problem.graph.positions;
    decided.heights = problem.heights;
    decided.hostBytes = decision.hostBytes;
    decided.runs.reserve(decision.runs.size());
    int described = 0;
    for (const solve::LoopRuns &runs : decision.loops) {
      describeRuns(described, runs.begin);
      DecidedLoop loop;
      loop.first = int64_t(decided.runs.size());
      describeRuns(runs.begin, described = runs.end);
      loop.last = int64_t(decided.runs.size());
      loop.zeroed = placesOf(runs.zeroed);
      decided.loops.push_back(std::move(loop));
    }
    describeRuns(described, int(decision.runs.size()));
    DenseMap<int, int64_t> offsetOf;
    for (const solve::Instance &instance : decision.instances)
      if (instance.buffer >= 0 && outcome.rows.graph.buffers[instance.buffer].kind == solve::Buffer::Persistent)
        offsetOf[instance.buffer] = instance.offset;
    for (BlockArgument argument : func::FuncOp(step.function).getArguments())
      decided.arguments.push_back(offsetOf.lookup(problem.buffer.lookup(argument)));
    return std::move(decided);
  }

private:
  // (offset, bytes) pairs.
  SmallVector<int64_t> placesOf(const std::vector<int> &instances) const {
    SmallVector<int64_t> places;
    for (int instance : instances)
      places.append({decision.instances[instance].offset, decision.instances[instance].bytes});
    return places;
  }

  void describeRuns(int first, int last) {
    for (int t = first; t < last; ++t) {
      const solve::Run &run = decision.runs[t];
      if (original[run.kernel] == solve::kCopy)
        describeMove(run);
      else if (original[run.kernel] < 0)
        describeRows(run);
      else
        decided.runs.push_back(describeRun(run));
    }
  }

  // A copy from or to the host, or the wait for its end: of which argument, or which result of which kernel, and where it lies.
  void describeMove(const solve::Run &run) {
    const solve::Kernel &kernel = outcome.rows.graph.kernels[run.kernel];
    bool fetch = kernel.copy == solve::Kernel::Fetch, awaits = kernel.copy == solve::Kernel::Await;
    const solve::Instance &there = decision.instances[fetch ? run.writes.front() : run.reads.front()];
    if (outcome.rows.graph.inMainLoop(run.kernel)) {
      auto [part, result] = resultOf(there.buffer);
      DecidedMove move{int64_t(decided.runs.size()), kernel.copy, -1, there.offset, part, result};
      if (!awaits)
        move.host = decision.instances[fetch ? run.reads.front() : run.writes.front()].offset;
      decided.moves.push_back(move);
      return;
    }
    if (kernel.copy != solve::Kernel::Await)
      homeOf[there.buffer] = fetch ? kernel.reads.front() : kernel.writes.front();
    int home = homeOf.lookup(there.buffer);
    for (BlockArgument argument : func::FuncOp(step.function).getArguments())
      if (problem.buffer.lookup(argument) == home)
        decided.moves.push_back({int64_t(decided.runs.size()), kernel.copy, int64_t(argument.getArgNumber()), there.offset});
  }

  // What a buffer of the loop is in the function.
  std::pair<int64_t, int64_t> resultOf(int buffer) const {
    for (auto [value, number] : problem.buffer)
      if (auto result = dyn_cast<OpResult>(value); result && number == buffer)
        for (auto [k, part] : llvm::enumerate(step.parts))
          if (part.op == result.getOwner())
            return {int64_t(k), int64_t(result.getResultNumber())};
    return {-1, -1};
  }

  // The instances of the buffers that a run reads and writes.
  DenseMap<int, const solve::Instance *> instancesOf(const solve::Run &run) const {
    const solve::Kernel &kernel = outcome.rows.graph.kernels[run.kernel];
    DenseMap<int, const solve::Instance *> instances;
    for (auto [i, buffer] : llvm::enumerate(kernel.reads))
      instances[buffer] = &decision.instances[run.reads[i]];
    for (auto [i, buffer] : llvm::enumerate(kernel.writes))
      instances[buffer] = &decision.instances[run.writes[i]];
    return instances;
  }

  static void addWrite(DecidedRun &run, int64_t offset, int64_t copies) {
    run.writes.push_back(offset);
    if (copies > 1)
      run.copies.resize(run.writes.size() - 1, 1), run.copies.push_back(copies);
    else if (!run.copies.empty())
      run.copies.push_back(1);
  }

  // A run of a plan that lies in scratch. `outside` gives the instance of a buffer that lies elsewhere, null for those inside.
  static DecidedRun describeInside(const solve::Run &run, const solve::Decision &inner, int64_t scratch, int64_t kernel,
                                   llvm::function_ref<const solve::Instance *(int)> outside) {
    auto place = [&](int instance) {
      const solve::Instance &at = inner.instances[instance];
      const solve::Instance *elsewhere = outside(at.buffer);
      return elsewhere ? std::pair(elsewhere->offset, elsewhere->copies) : std::pair(scratch + at.offset, int64_t(1));
    };
    DecidedRun placed;
    placed.kernel = kernel;
    for (int instance : run.reads)
      placed.reads.push_back(place(instance).first);
    for (int instance : run.writes)
      addWrite(placed, place(instance).first, place(instance).second);
    if (run.scratch >= 0) {
      placed.scratch = scratch + inner.instances[run.scratch].offset;
      placed.scratchBytes = inner.instances[run.scratch].bytes;
    }
    return placed;
  }

  DecidedRun describeRun(const solve::Run &run) const {
    DecidedRun placed;
    placed.kernel = original[run.kernel];
    placed.recompute = run.recomputed;
    for (int instance : run.reads)
      placed.reads.push_back(decision.instances[instance].offset);
    for (int instance : run.writes)
      addWrite(placed, decision.instances[instance].offset, decision.instances[instance].copies);
    if (run.scratch >= 0) {
      placed.scratch = decision.instances[run.scratch].offset;
      placed.scratchBytes = decision.instances[run.scratch].bytes;
    }
    placed.zeroed = placesOf(run.zeroed);
    describeLoop(placed);
    return placed;
  }

  // If the kernel is a loop along an axis: what lies where inside of it.
  void describeLoop(DecidedRun &placed) const {
    auto scan = problem.kernels->scans.find(step.parts[placed.kernel].op);
    if (scan != problem.kernels->scans.end())
      describeTrip(*scan->second, placed);
  }

  // What a loop along an axis has in its scratch: slots of carried values, and behind them the work of a trip.
  void describeTrip(const analysis::ScanProblem &scan, DecidedRun &placed) const {
    int64_t microbatch = decision.microbatch, offset = placed.scratch;
    for (const solve::Buffer &buffer : scan.slots)
      for (int slot = 0; slot < 2; ++slot, offset += buffer.bytes(microbatch))
        placed.slots.push_back(offset);
    solve::Plan plan = scan.plan(microbatch);
    auto place = [&](int instance) {
      const solve::Instance &at = plan.decision.instances[instance];
      return scan.local[at.buffer] ? offset + at.offset : int64_t(-1);
    };
    for (const solve::Run &run : plan.decision.runs) {
      DecidedRun &inner = placed.inside.emplace_back();
      inner.kernel = run.kernel;
      for (int instance : run.reads)
        inner.reads.push_back(place(instance));
      for (int instance : run.writes)
        inner.writes.push_back(place(instance));
      if (run.scratch >= 0) {
        inner.scratch = offset + plan.decision.instances[run.scratch].offset;
        inner.scratchBytes = plan.decision.instances[run.scratch].bytes;
      }
      if (auto loop = scan.inner.find(run.kernel); loop != scan.inner.end())
        describeTrip(*loop->second, inner);
    }
  }

  // A range: the runs of one block, their values inside the range's scratch, everything else where the range has it.
  void describeRows(const solve::Run &run) {
    const solve::RowKernel *rows = nullptr;
    for (const solve::RowKernel &candidate : outcome.rows.ranges)
      if (candidate.kernel == run.kernel)
        rows = &candidate;
    const solve::Decision &inner = rows->packed->decision;
    auto instances = instancesOf(run);
    int64_t scratch = run.scratch >= 0 ? decision.instances[run.scratch].offset : 0;
    decided.rows.push_back({int64_t(decided.runs.size()), int64_t(decided.runs.size() + inner.runs.size()),
                            outcome.rows.block.examples, outcome.rows.block.positions, placesOf(run.zeroed)});
    for (const solve::Run &part : inner.runs) {
      int work = rows->work[part.kernel], reader = part.kernel;
      while (rows->work[reader] < 0)
        ++reader; // a band is copied right before it is read
      int64_t kernel = rows->range.kernels[rows->work[reader]];
      decided.runs.push_back(describeInside(part, inner, scratch, kernel, [&](int buffer) {
        return rows->local[buffer] ? nullptr : instances.lookup(rows->buffers[buffer]);
      }));
      DecidedRun &described = decided.runs.back();
      described.recompute = run.recomputed || rows->work[reader] < rows->range.again;
      if (!rows->rows.empty())
        described.rows = rows->rows[part.kernel];
      if (work < 0)
        described.band = llvm::find(rows->trip.kernels[reader].reads, rows->trip.kernels[part.kernel].writes.front()) -
                         rows->trip.kernels[reader].reads.begin();
    }
  }

  const analysis::Step &step;
  const analysis::StepProblem &problem;
  const DecideOutcome &outcome;
  const std::vector<int> &original; // kernels of the chosen graph -> of the problem; -1: a range
  const solve::Decision &decision;
  Decided decided;
  DenseMap<int, int> homeOf; // of what is copied: the buffer on the host
};
} // namespace

// Says why: micro-batch, what is fused, what is kept and what is recomputed, each with its bytes and its price.
static void remarkOn(const analysis::Step &step, const analysis::StepProblem &problem, const DecideOutcome &outcome) {
  func::FuncOp function = step.function;
  const std::vector<int> &original = outcome.rows.original;
  const solve::StepGraph &graph = outcome.rows.graph;
  const solve::SearchResult &result = outcome.result;
  const solve::Decision &decision = result.plan.decision;
  auto remark = [&](Location loc, StringRef name, StringRef category, const std::string &text) {
    remark::passed(loc, remark::RemarkOpts::name(name).category(category).function(function.getName())) << text;
  };
  remark(function.getLoc(), "Microbatch", "plan",
         llvm::formatv("{0} micro-batches of {1} examples: of the plans that fit, the least predicted time ({2:F4} s, "
                       "at least {3:F4} s), arena {4}",
                       decision.count, decision.microbatch, result.plan.seconds, result.secondsBound,
                       solve::bytesText(decision.arenaBytes)));
  std::vector<int> runs(graph.kernels.size(), 0);
  for (const solve::Run &run : decision.runs)
    ++runs[run.kernel];
  std::vector<bool> savedByLoop(graph.buffers.size(), false);
  for (const solve::Kernel &kernel : graph.kernels)
    if (kernel.section == graph.mainLoop() && kernel.backward)
      for (int buffer : kernel.reads)
        savedByLoop[buffer] = true;
  for (const solve::RowKernel &rows : outcome.rows.ranges) {
    solve::RowSummary summary = solve::summaryOf(rows, outcome.rows, decision);
    remark(step.parts[rows.range.kernels.front()].op->getLoc(), "RowBlocks", "plan",
           llvm::formatv("{0} kernels run in {1} blocks of {2} x {3} rows: values of {4} take the place of {5}; that costs "
                         "{6:F3} ms a step",
                         rows.range.kernels.size(), summary.blocks, outcome.rows.block.examples,
                         outcome.rows.block.positions, solve::bytesText(summary.bytes), solve::bytesText(summary.instead),
                         1e3 * summary.seconds));
  }
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    plan::KernelOp op = original[k] < 0 ? plan::KernelOp() : step.parts[original[k]].kernel();
    if (!op)
      continue;
    const solve::Kernel &kernel = graph.kernels[k];
    Location loc = op.getLoc();
    size_t operations = op.getBody().front().getOperations().size() - 1;
    if (op.getKind() == plan::KernelKind::Loop && operations > 1)
      remark(loc, "Fuse", "kernels",
             llvm::formatv("{0} operations in one kernel; {1} values are stored, since other kernels read them",
                           operations, op->getNumResults()));
    if (kernel.section != graph.mainLoop() || kernel.backward)
      continue;
    double bytes = 0;
    for (int buffer : kernel.writes)
      if (savedByLoop[buffer])
        bytes += double(graph.buffers[buffer].bytes(decision.microbatch));
    if (runs[k] > 1)
      remark(loc, "Recompute", "remat",
             llvm::formatv("computed {0} times instead of holding {1} until the backward sweep; that "
                           "costs {2:F3} ms a micro-batch",
                           runs[k], solve::bytesText(int64_t(bytes)), 1e3 * (runs[k] - 1) * kernel.seconds.at(decision.microbatch)));
    else if (bytes > 0)
      remark(loc, "Keep", "remat",
             llvm::formatv("kept for the backward sweep: {0}; computing it again would cost {1:F3} ms a micro-batch",
                           solve::bytesText(int64_t(bytes)), 1e3 * kernel.seconds.at(decision.microbatch)));
  }
}

// In a step: of the loop's trips, and of what is behind it.
static CopyTimes copiesOf(const solve::StepGraph &graph, const solve::Decision &decision) {
  solve::GraphIndex index(graph);
  std::vector<int> loop;
  for (int t = decision.loopBegin(); t < decision.loopEnd(); ++t)
    loop.push_back(decision.runs[size_t(t)].kernel);
  solve::EngineTimes behind = solve::runEngines(graph, index.behind, decision.microbatch), trip = solve::runEngines(graph, loop, decision.microbatch);
  auto trips = double(decision.count);
  return {behind.in + trips * trip.in, behind.out + trips * trip.out, behind.waited() + trips * trip.waited(), behind.bytes + decision.count * trip.bytes};
}

// Of buffers: state of an optimizer, which may lie on the host.
static std::vector<bool> stateThatMayLeave(func::FuncOp function, const analysis::StepProblem &problem) {
  std::vector<bool> state(problem.graph.buffers.size(), false);
  for (BlockArgument argument : function.getArguments())
    state[size_t(problem.buffer.lookup(argument))] = bool(function.getArgAttr(argument.getArgNumber(), nn::kSlotAttr));
  return state;
}

// .. and values that may wait there: of a loop that is one part and has no messages, so that its micro-batches come one after the other.
static std::vector<bool> valuesThatMayLeave(const analysis::Step &step, const analysis::StepProblem &problem) {
  std::vector<bool> values(problem.graph.buffers.size(), false);
  if (!problem.graph.actions.empty() || llvm::any_of(problem.graph.kernels, [](const solve::Kernel &kernel) { return kernel.message; }))
    return values;
  for (const analysis::Step::Part &part : step.parts)
    if (plan::KernelOp kernel = part.kernel())
      for (Value result : kernel.getOutputs())
        values[size_t(problem.buffer.lookup(result))] = true;
  return values;
}

static int64_t bytesOf(const std::vector<solve::UpdateState> &states) { return solve::Offload{states, 0}.bytes(); }

// State and values of the loop may lie on the host, if there is memory for it and that makes the plan faster, or makes one fit.
static void offload(func::FuncOp function, const analysis::Step &step, const analysis::StepProblem &problem, solve::VariantPlanner &planner, bool searched,
                    const DecideOptions &options, DecideOutcome &outcome) {
  const solve::SearchResult &plain = outcome.result;
  bool hasLink = planner.variant(0).rows.graph.link.in > 0, fastest = plain.feasible && plain.plan.recomputed == 0;
  bool asked = options.hostBudget.has_value(), advice = !asked && options.hostAdvice && !plain.feasible;
  if (!hasLink || !options.search.arenaBudget || !(asked || advice) || (fastest && plain.plan.seconds <= plain.secondsBound && !options.allStateOnHost))
    return;
  solve::MayLeave allowed{stateThatMayLeave(function, problem), valuesThatMayLeave(step, problem), options.allStateOnHost};
  const int64_t movable = bytesOf(solve::movableState(planner.variant(0).rows.graph, allowed.state));
  if (advice && plain.bound - movable > *options.search.arenaBudget)
    return;
  if (int chosen; !searched) // what was found in the plan cache has left no ladder
    planner.search(options.search, false, chosen);
  std::vector<solve::Variant> variants;
  for (int i = 0; i < planner.count(); ++i)
    variants.push_back(planner.variant(i));
  solve::OffloadAnswer answer = solve::searchOffload(variants, plain, planner.ladder(options.search), options.search, options.hostBudget.value_or(INT64_MAX), allowed);
  if (answer.rows.graph.kernels.empty())
    return;
  if (advice) {
    outcome.hostWouldDo = answer.result.feasible ? answer.result.plan.decision.hostBytes : 0;
    return;
  }
  outcome.result = std::move(answer.result);
  outcome.rows = std::move(answer.rows);
  outcome.copies = copiesOf(outcome.rows.graph, outcome.result.plan.decision);
  outcome.stateOnHost = answer.offload.bytes(), outcome.valuesOnHost = int(answer.swaps.size());
  const solve::Decision &decision = outcome.result.plan.decision;
  outcome.copyRuns = int(std::count_if(decision.runs.begin() + decision.loopBegin(), decision.runs.begin() + decision.loopEnd(),
                                       [&](const solve::Run &run) { return outcome.rows.graph.kernels[size_t(run.kernel)].copy != solve::Kernel::NoCopy; }));
}

// Searches a plan, or finds it again. What the search needed is gone behind it: of a deep step that is much.
static DecideOutcome searchPlan(std::vector<solve::Variant> variants, const DecideOptions &options,
                                llvm::function_ref<std::string(const solve::StepGraph &, const solve::SearchResult &)> wrongWith,
                                llvm::function_ref<void(solve::VariantPlanner &, bool searched, DecideOutcome &)> offload) {
  DecideOutcome outcome;
  solve::VariantPlanner planner(std::move(variants), options.orderSeed);
  solve::PlanCache cache(options.planCache);
  solve::PlanCache::Graphs graphs;
  for (int i = 0; i < planner.count(); ++i)
    graphs.push_back(&planner.variant(i).rows.graph);
  int chosen = 0;
  auto cached = cache.find(graphs, options.search, options.orderSeed);
  bool hit = cached && (!options.tradeOff || !cached->tradeOff.empty());
  if (hit) {
    chosen = cached->variant;
    outcome.result = std::move(cached->result);
    outcome.tradeOff = std::move(cached->tradeOff);
    hit = wrongWith(*graphs[size_t(chosen)], outcome.result).empty();
  }
  if (!hit) {
    outcome.result = planner.search(options.search, options.tradeOff, chosen);
    if (options.tradeOff)
      outcome.tradeOff = planner.tradeOff(options.search);
    cache.keep(graphs, options.search, options.orderSeed, {chosen, outcome.result, outcome.tradeOff});
  }
  outcome.rows = planner.variant(chosen).rows;
  if (outcome.result.error.empty())
    offload(planner, !hit, outcome);
  return outcome;
}

PlanProblem::PlanProblem(func::FuncOp function, const DecideOptions &options) : function(function), options(options), step(function) {
  if (step.loops.empty())
    return;
  problem = analysis::buildStepProblem(step, options.reservedBytes, options.target);
  problem.graph.page = solve::kPage;
  // A caller that counts the micro-batches may have many; what replicas add up is there from the begin.
  problem.graph.sumsBeginLate =
      !options.callerCounts && llvm::none_of(problem.graph.kernels, [](const solve::Kernel &kernel) { return kernel.message; });
  if (problem.error.empty())
    variants = planVariants(step, problem, options, refused);
}

int64_t PlanProblem::bound() {
  if (!refused.empty())
    return 0;
  if (proven)
    return *proven;
  int64_t onHost = 0; // at most; values that wait there change no bound
  if (options.hostBudget)
    onHost = std::min(*options.hostBudget, bytesOf(solve::movableState(problem.graph, stateThatMayLeave(function, problem))));
  int64_t least = INT64_MAX;
  for (int64_t microbatch : solve::microbatches(problem.graph))
    if (options.search.microbatch <= 0 || microbatch == options.search.microbatch)
      least = std::min(least, solve::memoryBound(variants, microbatch));
  least = std::min(least, boundOfRowBlocks(step, problem, options));
  proven = least == INT64_MAX ? 0 : std::max<int64_t>(0, least - onHost);
  return *proven;
}

double PlanProblem::leastSeconds() const {
  double least = 1e300;
  for (const solve::Variant &variant : variants) {
    const solve::StepGraph &graph = variant.rows.graph;
    solve::GraphIndex index(graph);
    if (!index.error.empty())
      return 0;
    for (int64_t microbatch : solve::microbatches(graph))
      if (options.search.microbatch <= 0 || microbatch == options.search.microbatch)
        least = std::min(least, solve::predictedSeconds(index, microbatch, index.loop));
  }
  return variants.empty() ? 0 : least;
}

DecideOutcome cinch::decidePlan(func::FuncOp function, const DecideOptions &options) { return PlanProblem(function, options).decide(); }

DecideOutcome PlanProblem::decide() {
  DecideOutcome outcome;
  if (step.loops.empty()) {
    function.emitError("has no kernels: run form-kernels first");
    outcome.internal = true;
    return outcome;
  }
  if (!problem.error.empty()) {
    function.emitError() << "internal error: " << problem.error;
    outcome.internal = true;
    return outcome;
  }
  // Empty if the plan is proved.
  auto wrongWith = [&](const solve::StepGraph &graph, const solve::SearchResult &result) {
    solve::ScheduledProgram program = solve::scheduledProgram(graph, result.plan.decision);
    program.peakLive = result.plan.peakLive;
    if (result.feasible)
      program.arenaBudget = options.search.arenaBudget.value_or(INT64_MAX);
    program.hostBudget = options.hostBudget.value_or(0);
    if (overlappingLoop(function))
      for (auto [older, newer] : newerParameters(function))
        program.newer.push_back({problem.buffer.lookup(older), problem.buffer.lookup(newer)});
    return solve::checkPlan(graph, program);
  };
  if (!refused.empty()) {
    outcome.result.error = refused;
    return outcome;
  }
  const int64_t least = bound(); // of the variants, too, which move into the search
  outcome = searchPlan(std::move(variants), options, wrongWith,
                       [&](solve::VariantPlanner &planner, bool searched, DecideOutcome &found) {
                         offload(function, step, problem, planner, searched, options, found);
                       });
  if (options.tradeOff)
    // They have neither copies of values on the host nor work on parameters in the loop.
    outcome.named = solve::namedStrategies(solve::GraphIndex(outcome.rows.graph).swaps || outcome.rows.movesParameterWork ? problem.graph : outcome.rows.graph);
  if (!outcome.result.error.empty())
    return outcome;
  outcome.result.bound = std::min(outcome.result.bound, least);
  std::string wrong = wrongWith(outcome.rows.graph, outcome.result);
  if (wrong.empty())
    wrong = solve::checkRows(problem.graph, outcome.rows);
  if (!wrong.empty()) {
    function.emitError() << "internal error: the plan checker refuses the plan: " << wrong;
    outcome.internal = true;
    return outcome;
  }
  if (outcome.result.feasible)
    remarkOn(step, problem, outcome);
  writeDecision(function, Describer(step, problem, outcome).describe(options.callerCounts));
  return outcome;
}

namespace {
struct DecidePlan : cinch::impl::DecidePlanBase<DecidePlan> {
  using DecidePlanBase::DecidePlanBase;

  void runOnOperation() final {
    func::FuncOp function = getOperation();
    DecideOptions options;
    if (arenaBudget >= 0)
      options.search.arenaBudget = arenaBudget;
    options.search.microbatch = microbatch;
    options.rowBlocks = rowBlocks;
    options.target.cpu.threads = threads;
    options.reservedBytes = reserved;
    options.target.cpu.kernels.lanes = lanes;
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
      function.emitError() << "no plan fits into an arena of " << *options.search.arenaBudget << " bytes; the smallest needs "
                           << outcome.result.smallestArena;
      return signalPassFailure();
    }
  }
};
} // namespace
