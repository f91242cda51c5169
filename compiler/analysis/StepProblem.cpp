// StepProblem.cpp: kernels and values become the solvers' graph.
#include "compiler/analysis/StepProblem.h"

#include "compiler/analysis/RowWise.h"
#include "compiler/solve/Evaluate.h"
#include "compiler/solve/Timeline.h"
#include "dialects/nn/Held.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/StringMap.h"

#include <map>

using namespace mlir;

namespace cinch::analysis {

// ---- The parts of a function -------------------------------------------------------------------------------------------
Step::Step(func::FuncOp function) : function(function), batch(nn::batchOf(function)) {
  grain = nn::examplesTogether(function);
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (auto loop = dyn_cast<plan::LoopOp>(op)) {
      for (Operation &inner : loop.block().without_terminator())
        parts.push_back({&inner, 2 * int(loops.size()) + 1});
      loops.push_back(loop);
      continue;
    }
    parts.push_back({&op, 2 * int(loops.size())});
  }
  // A worker may have no value of the examples at all.
  if (!loops.empty() && loops.back().getCount() > 0)
    batch = int64_t(loops.back().getCount()) * loops.back().examples().getSize();
  llvm::StringMap<BlockArgument> byName;
  for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr}) {
    for (BlockArgument argument : function.getArguments())
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
        byName[(kind + name.getValue()).str()] = argument;
    for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
      if (auto name = function.getResultAttrOfType<StringAttr>(unsigned(i), kind); name && value.getDefiningOp())
        home[value] = byName.lookup((kind + name.getValue()).str());
  }
}

Value Step::inMemory(Value value) const {
  if (auto loop = value.getDefiningOp<plan::LoopOp>())
    return loop.yieldedFor(value);
  return value;
}

// ---- Several workers ---------------------------------------------------------------------------------------------------
std::vector<solve::PartAction> actionsOf(plan::LoopOp loop) {
  std::vector<solve::PartAction> list;
  if (auto actions = loop.getActionsAttr())
    for (const plan::Action &action : actions.getList())
      list.push_back({int(action.part), action.microbatch});
  return list;
}

// The gate, results, parts of the loop body and messages: no kernels, but they have their place in the order.
static void describeMarker(Operation *op, const StepProblem &problem, solve::Kernel &kernel) {
  kernel.recomputable = false;
  kernel.work = solve::Kernel::Nothing;
  kernel.newPart = isa<plan::PartOp>(op);
  kernel.message = isa<plan::SendOp, plan::ReceiveOp>(op);
  kernel.name = isa<plan::GateOp>(op) ? "gate" : isa<plan::PartOp>(op) ? "part" : "results";
  if (auto send = dyn_cast<plan::SendOp>(op))
    kernel.name = ("send " + send.getLabel()).str();
  if (auto receive = dyn_cast<plan::ReceiveOp>(op))
    kernel.name = ("receive " + receive.getLabel()).str();
  if (!isa<plan::SendOp, plan::ReceiveOp>(op))
    return;
  kernel.line = lineOf(op->getLoc());
  const solve::Buffer &message = problem.graph.buffers[isa<plan::SendOp>(op) ? kernel.reads.front() : kernel.writes.front()];
  auto receive = dyn_cast<plan::ReceiveOp>(op);
  if (auto send = dyn_cast<plan::SendOp>(op); (send && send.getLast()) || (receive && receive.getBegins()))
    return; // once a step
  double copied = problem.secondsOfMessageByte();
  kernel.seconds = {double(message.fixedBytes) * copied, double(message.perExampleBytes) * copied};
  kernel.traffic = {2 * double(message.fixedBytes), 2 * double(message.perExampleBytes)};
}

bool Step::Part::isBackward() const { return kernel() && analysis::isBackward(kernel()); }

bool Step::Part::isHeld() const {
  return kernel() && llvm::any_of(kernel().getOutputs(), [](Value result) {
           return computedBy(cast<OpResult>(result)).getDefiningOp()->hasAttr(nn::kHeldAttr);
         });
}

// Messages keep their order and stay in their part of the loop body, whatever else moves: each reads a mark, a buffer without bytes, of the
// one before it. The dry run of the channels counts on it (solve/stages/Channels.h). Sums stay in their part, too: the work of the first
// part shall be done there, and not with the second's, where nobody would wait for it any longer. So do sums of grains. Where parts take turns it is all one.
// Where micro-batches differ in the order of the parts, all work stays in its part.
// A sum that goes on from another worker's comes behind its receipt, and before it is sent on; one to which another worker's is added comes
// before that.
static void keepParts(const Step &step, solve::StepGraph &graph) {
  bool keepSums = !solve::copiesBetweenParts(graph.actions).empty(), keepAll = !solve::partsKeepOrder(graph.actions);
  int before = -1, part = -1;   // marks of the last message or part, and of the last part
  std::vector<int> sums;        // marks of the part's sums
  auto mark = [&](size_t k) {
    solve::Buffer buffer;
    buffer.producer = int(k);
    buffer.name = graph.kernels[k].name;
    graph.kernels[k].writes.push_back(int(graph.buffers.size()));
    graph.buffers.push_back(buffer);
    return graph.kernels[k].writes.back();
  };
  std::map<int, int> begun, ended; // sums: marks of their receipts; of the work, for those that are sent on
  for (const Step::Part &part : step.parts) {
    const solve::Kernel &kernel = graph.kernels[size_t(&part - step.parts.data())];
    if (auto send = dyn_cast<plan::SendOp>(part.op); send && send.getLast())
      ended[kernel.reads.front()] = -1;
    if (auto receive = dyn_cast<plan::ReceiveOp>(part.op); receive && receive.getAdds())
      ended[kernel.writes.front()] = -1;
  }
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    solve::Kernel &kernel = graph.kernels[k];
    if (!graph.inMainLoop(int(k)))
      continue;
    auto receive = dyn_cast<plan::ReceiveOp>(step.parts[k].op);
    auto send = dyn_cast<plan::SendOp>(step.parts[k].op);
    std::vector<int> written = kernel.writes;
    if (send && send.getLast())
      kernel.reads.push_back(ended.at(kernel.reads.front()));
    if (receive && receive.getAdds())
      kernel.reads.push_back(ended.at(written.front()));
    for (int b : written)
      if (auto start = begun.find(b); start != begun.end())
        kernel.reads.push_back(start->second);
    bool sum = keepSums && (step.parts[k].isHeld() ||
                            llvm::any_of(kernel.writes, [&](int b) { return graph.buffers[b].kind == solve::Buffer::Accumulator; }));
    if (isa<plan::SendOp, plan::ReceiveOp, plan::PartOp>(step.parts[k].op)) {
      if (before >= 0)
        kernel.reads.push_back(before);
      if (kernel.newPart)
        kernel.reads.insert(kernel.reads.end(), sums.begin(), sums.end()), sums.clear();
      before = mark(k);
      if (receive && receive.getBegins() && !receive.getAdds())
        begun[written.front()] = before;
      part = kernel.newPart ? before : part;
    } else if (sum || keepAll) {
      if (part >= 0)
        kernel.reads.push_back(part);
      sums.push_back(mark(k));
    }
    if (!receive)
      for (int b : written)
        if (auto end = ended.find(b); end != ended.end())
          end->second = mark(k);
  }
}

// ---- The graph ---------------------------------------------------------------------------------------------------------
// Arguments, parameters first, state behind them: every function of a program finds them at the same bytes.
static void addArguments(const Step &step, int64_t reservedBytes, StepProblem &problem) {
  solve::StepGraph &graph = problem.graph;
  func::FuncOp function = step.function;
  auto add = [&](auto &&wanted) {
    for (BlockArgument argument : function.getArguments()) {
      bool parameter = bool(function.getArgAttr(argument.getArgNumber(), nn::kPathAttr));
      bool slot = bool(function.getArgAttr(argument.getArgNumber(), nn::kSlotAttr));
      if (!wanted(parameter, slot))
        continue;
      problem.buffer[argument] = int(graph.buffers.size());
      solve::Buffer buffer = bufferFor(argument, argument, step.batch);
      buffer.kind = solve::Buffer::Persistent;
      graph.buffers.push_back(buffer);
    }
  };
  add([](bool parameter, bool) { return parameter; });
  if (reservedBytes > 0) {
    solve::Buffer reserved;
    reserved.kind = solve::Buffer::Persistent;
    reserved.fixedBytes = reservedBytes;
    reserved.name = "optimizer state";
    graph.buffers.push_back(reserved);
  }
  add([](bool, bool slot) { return slot; });
  add([](bool parameter, bool slot) { return !parameter && !slot; });
}

// What the parts of the step make.
static void addResults(const Step &step, StepProblem &problem) {
  solve::StepGraph &graph = problem.graph;
  for (auto [i, part] : llvm::enumerate(step.parts)) {
    plan::KernelOp op = part.kernel();
    for (OpResult result : part.op->getResults()) {
      if (BlockArgument argument = step.homeOf(result)) {
        problem.buffer[result] = problem.buffer.lookup(argument);
        continue;
      }
      if (auto receive = dyn_cast<plan::ReceiveOp>(part.op); receive && receive.getBegins())
        continue; // the sum's
      problem.buffer[result] = int(graph.buffers.size());
      solve::Buffer buffer = bufferFor(result, op ? computedBy(result) : Value(result), step.batch);
      bool sum = op && op.getAccumulates() && (*op.getAccumulates())[result.getResultNumber()];
      buffer.kind = sum ? solve::Buffer::Accumulator : solve::Buffer::Value;
      buffer.producer = int(i);
      graph.buffers.push_back(buffer);
    }
  }
  for (const Step::Part &part : step.parts)
    if (auto receive = dyn_cast<plan::ReceiveOp>(part.op); receive && receive.getBegins())
      problem.buffer[receive.getValue()] = problem.buffer.lookup(receive.sum());
}

// One part of the step as a kernel. False if it cannot be one; the problem says why.
static bool addKernel(const Step &step, const Step::Part &part, StepProblem &problem) {
  solve::Kernel kernel;
  kernel.section = part.part;
  for (Value value : part.op->getOperands())
    if (int buffer = problem.buffer.lookup(step.inMemory(value)); !llvm::is_contained(kernel.reads, buffer))
      kernel.reads.push_back(buffer);
  for (OpResult result : part.op->getResults()) {
    int buffer = problem.buffer.lookup(result);
    kernel.writes.push_back(buffer);
    if (problem.graph.buffers[buffer].kind != solve::Buffer::Value)
      kernel.recomputable = false;
  }
  if (plan::KernelOp op = part.kernel()) {
    if (!problem.kernels->describe(op, solve::isLoop(part.part), [&](Value value) { return step.inMemory(value); },
                                   [&](Value value) { return problem.buffer.lookup(value); }, kernel)) {
      problem.error = problem.kernels->error;
      return false;
    }
  } else {
    describeMarker(part.op, problem, kernel);
  }
  problem.graph.kernels.push_back(std::move(kernel));
  return true;
}

StepProblem buildStepProblem(const Step &step, int64_t reservedBytes, const Target &target) {
  StepProblem problem;
  solve::StepGraph &graph = problem.graph;
  graph.batch = step.batch;
  graph.grain = step.grain;
  graph.threads = target.threads();
  const MachineRates machine = target.rates();
  graph.link = {machine.hostIn, machine.hostOut, machine.hostLatency};
  graph.loops = int(step.loops.size());
  if (!step.loops.empty())
    graph.actions = actionsOf(step.loops.back());
  addArguments(step, reservedBytes, problem);
  addResults(step, problem);
  problem.kernels = std::make_shared<KernelProblems>(
      KernelContext{step.batch, step.grain, target.threads(), target.kernels(), machine});
  graph.secondsOfCopy = 2 / machine.bytes;
  graph.kernels.reserve(step.parts.size());
  for (const Step::Part &part : step.parts)
    if (!addKernel(step, part, problem))
      return problem;
  keepParts(step, graph);
  markRows(step, problem, !target.isDevice());
  return problem;
}

} // namespace cinch::analysis
