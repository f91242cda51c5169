// Summary.cpp: the lines about a plan that `cinch` prints, and that a trained program's `info` repeats.
#include "compiler/phases/Compile.h"
#include "compiler/solve/Units.h"
#include "dialects/nn/Held.h"
#include "dialects/nn/Pieces.h"

#include "llvm/Support/FormatVariadic.h"

namespace cinch {
using solve::bytesText, solve::secondsText;

static void addLoopLine(std::vector<std::string> &lines, int levels) {
  if (levels > 0)
    lines.push_back(std::string("loops        states are kept before each run of trips") + (levels > 1 ? ", and before runs of these" : "") +
                    "; the trips of a run are computed again");
}

// What lies there, for people.
static std::string onHost(const DecideOutcome &outcome) {
  int64_t values = outcome.result.plan.decision.hostBytes - outcome.stateOnHost;
  std::string state = outcome.stateOnHost > 0 ? bytesText(outcome.stateOnHost) + " of state" : "";
  std::string waiting = llvm::formatv("{0} of {1} value{2} of the loop", bytesText(values), outcome.valuesOnHost, outcome.valuesOnHost == 1 ? "" : "s");
  return values <= 0 ? state : state.empty() ? waiting : state + " and " + waiting;
}

static std::string nothingOnHost(const CompileOptions &options) {
  return std::string("host         nothing lies in pinned memory: ") +
         (options.budget ? "nothing there would make the step faster" : "the device has no --memory-budget");
}

std::vector<std::string> Compilation::summary() const {
  if (!said.empty())
    return said;
  if (workers.count > 1)
    return summaryOfWorkers();
  const EntryPlan &step = entries.front();
  const solve::SearchResult &result = step.outcome.result;
  const solve::Decision &decision = result.plan.decision;
  std::vector<std::string> lines;
  std::string budget = options.budget ? "; budget " + bytesText(*options.budget) : std::string();
  if (options.target.isDevice())
    lines.push_back(llvm::formatv("memory       {0} on the device in one piece{1}; beside it the driver's context and the code", bytesText(arenaBytes()), budget));
  else
    lines.push_back(llvm::formatv("memory       {0} = arena {1} + {2} for code, stacks and runtime{3}",
                                  bytesText(arenaBytes() + allowance()), bytesText(arenaBytes()), bytesText(allowance()), budget));
  lines.push_back(llvm::formatv("             {0} parameters and state, peak of live bytes {1}; proven lower bound of any budget {2}",
                                bytesText(persistentBytes()), bytesText(result.plan.peakLive), bytesText(budgetBound())));
  lines.push_back(llvm::formatv("micro-batch  {0} x {1} examples", decision.count, decision.microbatch));
  if (result.plan.recomputed == 0)
    lines.push_back(llvm::formatv("recomputed   nothing: every value that the backward sweep needs is kept{1} (strategy {0})", result.name,
                                  step.outcome.valuesOnHost > 0 ? ", or waits on the host" : ""));
  else
    lines.push_back(llvm::formatv("recomputed   {1} of {2} kernel runs of the loop are done again instead of keeping their results, "
                                  "{3:F1} % of the step (strategy {0})",
                                  result.name, result.plan.recomputed,
                                  decision.loopEnd() - decision.loopBegin() - step.outcome.copyRuns,
                                  100 * result.plan.recomputeSeconds / std::max(1e-12, result.plan.seconds)));
  addLoopLine(lines, loopLevels);
  if (options.hostBudget && decision.hostBytes == 0)
    lines.push_back(nothingOnHost(options));
  if (const CopyTimes &copies = step.outcome.copies; decision.hostBytes > 0)
    lines.push_back(llvm::formatv("host         {0} in pinned memory, copied in {1} and out {2} a step, of which {3} are not hidden by work{4}",
                                  onHost(step.outcome), secondsText(copies.in), secondsText(copies.out), secondsText(copies.waited),
                                  options.hostBudget ? "; budget " + bytesText(*options.hostBudget) : std::string()));
  std::string price = llvm::formatv("step         {0} predicted, {1} proven lower bound; {2}", secondsText(result.plan.seconds),
                                   secondsText(result.secondsBound), options.target.sourceOfRates());
  if (!options.target.isDevice())
    price += llvm::formatv(", {0} threads", options.target.cpu.costs.threads(options.target.cpu.threads)).str();
  lines.push_back(std::move(price));
  return lines;
}

// One line about all workers; the worker that waits longest for copies counts.
void Compilation::addHostLineOfWorkers(std::vector<std::string> &lines) const {
  int64_t most = 0, all = 0;
  CopyTimes longest;
  for (size_t w = 0; w < workers.each.size(); ++w) {
    const DecideOutcome &outcome = entries[w].outcome;
    most = std::max(most, workers.each[w].hostBytes), all += workers.each[w].hostBytes;
    if (outcome.copies.waited >= longest.waited)
      longest = outcome.copies;
  }
  if (all > 0)
    lines.push_back(llvm::formatv("host         {0} of state in pinned memory, {1} of a worker at most, copied in {2} and out {3} a step, of which {4} are not hidden by "
                                  "work; budget {5} a worker",
                                  bytesText(all), bytesText(most), secondsText(longest.in), secondsText(longest.out), secondsText(longest.waited),
                                  bytesText(*options.hostBudget)));
  else if (options.hostBudget)
    lines.push_back(nothingOnHost(options));
}

std::vector<std::string> Compilation::summaryOfWorkers() const {
  const solve::Decision &decision = entries.front().outcome.result.plan.decision;
  int64_t most = 0;
  double busy = 0;
  for (const WorkersPlan::Worker &worker : workers.each) {
    most = std::max(most, worker.bytes);
    busy += worker.busy / double(workers.each.size());
  }
  std::vector<std::string> lines;
  std::string budget = options.budget ? "; budget " + bytesText(*options.budget) + " a worker" : std::string();
  if (options.target.isDevice())
    lines.push_back(llvm::formatv("memory       {0} workers, a device each, on it {1} at most in one piece{2}; beside it the driver's context and the code",
                                  workers.count, bytesText(most), budget));
  else
    lines.push_back(llvm::formatv("memory       {0} workers, each with {1} at most = arena {2} + {3} for code, stacks and runtime{4}",
                                  workers.count, bytesText(most + allowance()), bytesText(most), bytesText(allowance()), budget));
  lines.push_back(llvm::formatv("micro-batch  {0} x {1} examples, schedule {2}", decision.count, decision.microbatch,
                                solve::name(options.schedule)));
  addLoopLine(lines, loopLevels);
  int stages = workers.count / workers.replicas;
  for (size_t i = 0; i < workers.shardNotes.size(); ++i)
    lines.push_back((i == 0 ? "shards       " : "             ") + workers.shardNotes[i]);
  if (workers.shards > 1)
    lines.push_back(llvm::formatv("             {0} all-reduces a micro-batch, forward {1} and backward {2}; a shard sends {3} at most to the others of its stage",
                                  workers.allReduces[0] + workers.allReduces[1], workers.allReduces[0], workers.allReduces[1],
                                  bytesText(workers.bytesToShards())));
  if (workers.replicas > 1) {
    auto step = mlir::ModuleOp(module.get()).lookupSymbol<mlir::func::FuncOp>(entries.front().function);
    std::string late = step->hasAttr(nn::kHeldAttr) ? llvm::formatv("; each sums its grains at once, and holds the sums of {0} micro-batches at most until then", workers.late + 1).str()
                       : workers.late > 0 ? llvm::formatv("; gradients of parameters wait while {0} more micro-batches go on", workers.late).str() : "";
    static const char *const own[] = {"", "each makes its steps with its own parameters, which are averaged with those of its neighbours in the ring",
                                      "each updates the parameters in its turn, with gradients at those that it left behind before",
                                      "all update the same parameters at once, without locks: two runs may differ"};
    lines.push_back(llvm::formatv("replicas     {0} of {1} examples and {2} worker{3}; {4}{5}", workers.replicas,
                                  decision.count * decision.microbatch, stages, stages > 1 ? "s" : "",
                                  workers.ownSteps != OwnSteps::None ? own[int(workers.ownSteps)]
                                  : workers.addsSums ? "each sums its own, and the sums are added while the last micro-batch's backward pass goes on"
                                                     : "sums over the examples go on from one to the next", late));
    if (workers.handsOut)
      lines.push_back(llvm::formatv("             updates are handed out: each replica has the optimizer's state of some parameters{2}, {0} a worker at most, which "
                                    "frees {1} of the last replica's workers",
                                    bytesText(workers.mostOnce(true)), bytesText(workers.mostOnce(false) - workers.mostOnce(true)),
                                    step->hasAttr(nn::kRowsAttr) ? " or of some rows of them" : ""));
  }
  for (size_t w = 0; w < workers.each.size(); ++w) {
    const WorkersPlan::Worker &worker = workers.each[w];
    std::string held = workers.shards > 1 ? " (" + bytesText(entries[w].persistentBytes) + " parameters and state)" : std::string();
    const solve::Plan &plan = entries[w].outcome.result.plan;
    lines.push_back(llvm::formatv("worker {0,-5} arena {1}{8}, forward {2} and backward {3} a micro-batch, {4} of {5} kernel runs done again: {6} .. {7}",
                                  w, bytesText(worker.bytes), secondsText(worker.forward), secondsText(worker.backward), plan.recomputed,
                                  plan.decision.loopEnd() - plan.decision.loopBegin(), worker.begins, worker.ends, held));
  }
  addHostLineOfWorkers(lines);
  std::string price = llvm::formatv("step         {0} predicted, of which the workers wait {1:F0} % on average; {2}",
                                    secondsText(workers.seconds), 100 * (1 - busy / std::max(1e-12, workers.seconds)), options.target.sourceOfRates());
  if (!options.target.isDevice())
    price += llvm::formatv(", {0} threads a worker", options.target.cpu.costs.threads(options.target.cpu.threads)).str();
  lines.push_back(std::move(price));
  return lines;
}

} // namespace cinch
