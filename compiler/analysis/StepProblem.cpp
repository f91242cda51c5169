// StepProblem.cpp: kernels and values become the solvers' graph.
#include "compiler/analysis/StepProblem.h"

#include "compiler/analysis/RowWise.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace cinch::analysis {

// ---- The parts of a function -------------------------------------------------------------------------------------------
Step::Step(func::FuncOp function) : function(function), batch(nn::batchOf(function)) {
  grain = nn::examplesTogether(function);
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (auto loop = dyn_cast<plan::MicrobatchesOp>(op)) {
      for (Operation &inner : loop.getBody().front().without_terminator())
        parts.push_back({&inner, 2 * int(loops.size()) + 1});
      loops.push_back(loop);
      continue;
    }
    parts.push_back({&op, 2 * int(loops.size())});
  }
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

solve::Section Step::sectionOf(int part) const {
  int last = 2 * int(loops.size()) - 1;
  return part < last ? solve::Section::Prologue : part == last ? solve::Section::Loop : solve::Section::Epilogue;
}

Value Step::inMemory(Value value) const {
  if (auto loop = value.getDefiningOp<plan::MicrobatchesOp>())
    return loop.getBody().front().getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
  return value;
}

// ---- The graph ---------------------------------------------------------------------------------------------------------
StepProblem buildStepProblem(const Step &step, int threads, int64_t reservedBytes, const kernels::TargetInfo &target,
                             const MachineCosts *costs) {
  StepProblem problem;
  solve::StepGraph &graph = problem.graph;
  graph.batch = step.batch;
  graph.grain = step.grain;
  graph.threads = threads;
  // Parameters first, state behind them: every function of a program finds them at the same bytes.
  func::FuncOp function = step.function;
  auto addArguments = [&](auto &&wanted) {
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
  addArguments([](bool parameter, bool) { return parameter; });
  if (reservedBytes > 0) {
    solve::Buffer reserved;
    reserved.kind = solve::Buffer::Persistent;
    reserved.fixedBytes = reservedBytes;
    reserved.name = "optimizer state";
    graph.buffers.push_back(reserved);
  }
  addArguments([](bool, bool slot) { return slot; });
  addArguments([](bool parameter, bool slot) { return !parameter && !slot; });
  for (auto [i, part] : llvm::enumerate(step.parts)) {
    plan::KernelOp op = part.kernel();
    if (!op)
      continue;
    for (OpResult result : op->getResults()) {
      if (BlockArgument argument = step.homeOf(result)) {
        problem.buffer[result] = problem.buffer.lookup(argument);
        continue;
      }
      problem.buffer[result] = int(graph.buffers.size());
      solve::Buffer buffer = bufferFor(result, computedBy(result), step.batch);
      bool sum = op.getAccumulates() && (*op.getAccumulates())[result.getResultNumber()];
      buffer.kind = sum ? solve::Buffer::Accumulator : solve::Buffer::Value;
      buffer.producer = int(i);
      graph.buffers.push_back(buffer);
    }
  }
  problem.kernels = std::make_shared<KernelProblems>(
      KernelContext{step.batch, step.grain, threads, target, (costs ? *costs : MachineCosts()).at(threads)});
  std::vector<int> sweepOf;
  int lastSweep = 2 * int(step.loops.size()) - 1;
  for (const Step::Part &part : step.parts) {
    bool inLoop = isSweep(part.part);
    sweepOf.push_back(inLoop && part.part < lastSweep ? part.part / 2 : -1);
    solve::Kernel kernel;
    kernel.section = step.sectionOf(part.part);
    for (Value value : part.op->getOperands())
      if (int buffer = problem.buffer.lookup(step.inMemory(value)); !llvm::is_contained(kernel.reads, buffer))
        kernel.reads.push_back(buffer);
    for (OpResult result : part.op->getResults()) {
      int buffer = problem.buffer.lookup(result);
      kernel.writes.push_back(buffer);
      if (graph.buffers[buffer].kind != solve::Buffer::Value)
        kernel.recomputable = false;
    }
    if (plan::KernelOp op = part.kernel()) {
      if (!problem.kernels->describe(op, inLoop, [&](Value value) { return step.inMemory(value); },
                                     [&](Value value) { return problem.buffer.lookup(value); }, kernel)) {
        problem.error = problem.kernels->error;
        return problem;
      }
    } else {
      kernel.recomputable = false;
      kernel.work = solve::Kernel::Nothing;
      kernel.name = isa<plan::GateOp>(part.op) ? "gate" : "results";
    }
    graph.kernels.push_back(std::move(kernel));
  }
  solve::FoldedStep folded = solve::foldSweeps(graph, sweepOf);
  problem.error = folded.error;
  problem.graph = std::move(folded.graph);
  problem.original = std::move(folded.original);
  problem.sweeps = std::move(folded.sweeps);
  markRows(step, problem);
  return problem;
}

} // namespace cinch::analysis
