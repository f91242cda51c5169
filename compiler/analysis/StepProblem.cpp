// StepProblem.cpp: kernels and values become the solvers' graph.
#include "compiler/analysis/StepProblem.h"

#include "compiler/analysis/Cost.h"
#include "compiler/analysis/RowWise.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/StringMap.h"

#include <deque>
#include <unordered_map>

using namespace mlir;

namespace cinch::analysis {

// "blocks.3.ff: mul" and the source line, for people.
static std::string nameOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
        return name.getValue().str();
    if (auto field = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), nn::kFieldAttr))
      return "data, field " + std::to_string(field.getInt());
    return "valid rows";
  }
  Operation *op = value.getDefiningOp();
  StringRef path = nn::instancePath(op->getLoc());
  std::string name = path.empty() ? "" : path.str() + ": ";
  name += op->getName().stripDialect();
  if (op->hasAttr(nn::kBackwardAttr))
    name += " (gradient)";
  return name;
}

static int lineOf(Value value) {
  if (isa<BlockArgument>(value))
    return 0;
  auto place = nn::userPlace(value.getLoc());
  // A line of the prelude is no line of the user's file.
  return place && place.getFilename().getValue() != "prelude.cinch" ? int(place.getLine()) : 0;
}

// `value` lies in the buffer; people know it as `named`.
static solve::Buffer bufferFor(Value value, Value named, int64_t batch) {
  solve::Buffer buffer;
  int64_t bytes = bytesOf(value);
  if (batchAxisOf(value) >= 0)
    buffer.perExampleBytes = bytes / batch;
  else
    buffer.fixedBytes = bytes;
  buffer.name = nameOf(named);
  buffer.line = lineOf(named);
  return buffer;
}

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

Value computedBy(OpResult result) {
  return cast<plan::KernelOp>(result.getOwner()).getBody().front().getTerminator()->getOperand(result.getResultNumber());
}

// ---- The graph ---------------------------------------------------------------------------------------------------------
namespace {

// Specs of a kernel at the whole batch and at every smaller micro-batch.
struct Specs {
  std::vector<std::pair<int64_t, KernelSpec>> at;
};

// Finds specs once for all kernels that are alike: hints and the number of the block are no part of a spec.
class SpecFinder {
  static constexpr auto kAlike = OperationEquivalence::IgnoreLocations | OperationEquivalence::IgnoreDiscardableAttrs;

public:
  SpecFinder(const Step &step) {
    solve::StepGraph sizes;
    sizes.batch = step.batch, sizes.grain = step.grain;
    microbatches = solve::microbatches(sizes);
  }
  // Null: at some micro-batch there is none.
  const Specs *find(plan::KernelOp kernel, bool inLoop) {
    llvm::hash_code hash = hashOf(kernel);
    for (auto &[other, specs] : known[hash])
      if (OperationEquivalence::isRegionEquivalentTo(&other.getBody(), &kernel.getBody(), kAlike) &&
          other.getDomainAttr() == kernel.getDomainAttr() && other.getAccumulatesAttr() == kernel.getAccumulatesAttr())
        return specs.at.empty() ? nullptr : &specs;
    auto &[first, specs] = known[hash].emplace_back(kernel, Specs());
    for (int64_t examples : llvm::reverse(microbatches)) {
      auto spec = specOf(kernel, {examples});
      if (!spec) {
        specs.at.clear();
        return nullptr;
      }
      specs.at.push_back({examples, std::move(*spec)});
      if (!inLoop)
        break;
    }
    return &specs;
  }

private:
  static llvm::hash_code hashOf(plan::KernelOp kernel) {
    llvm::hash_code hash = llvm::hash_value(kernel.getNumResults());
    for (Operation &op : kernel.getBody().front())
      hash = llvm::hash_combine(hash, OperationEquivalence::computeHash(&op, OperationEquivalence::ignoreHashValue,
                                                                        OperationEquivalence::ignoreHashValue, kAlike));
    return hash;
  }

  std::vector<int64_t> microbatches;
  std::unordered_map<size_t, std::deque<std::pair<plan::KernelOp, Specs>>> known;
};

} // namespace

// One full store may take the bytes of an operand that is read at the same places, whatever the micro-batch.
static void findInPlace(plan::KernelOp op, const Step &step, const Specs &specs, const StepProblem &problem,
                        solve::Kernel &kernel) {
  SmallVector<int> full;
  const auto *whole = std::get_if<kernels::LoopSpec>(&specs.at.front().second.work);
  if (!whole || !whole->chain.empty())
    return;
  int64_t domain = whole->cols;
  for (int64_t size : whole->outer)
    domain *= size;
  for (auto [i, value] : llvm::enumerate(op.getOutputs()))
    if (elementsOf(value) == domain)
      full.push_back(int(i));
  if (full.size() != 1)
    return;
  Value value = op.getOutputs()[full[0]];
  for (auto [r, operand] : llvm::enumerate(op.getInputs())) {
    Value read = step.inMemory(operand);
    auto producer = read.getDefiningOp<plan::KernelOp>();
    bool sum = producer && producer.getAccumulates() &&
               (*producer.getAccumulates())[cast<OpResult>(read).getResultNumber()];
    if (!producer || sum || bytesOf(read) != bytesOf(value) || batchAxisOf(read) < 0)
      continue;
    if (llvm::all_of(specs.at, [&](auto &at) {
          return readsWhereItWrites(std::get<kernels::LoopSpec>(at.second.work), int(r), int(op.getNumOperands()) + full[0]);
        }))
      kernel.inPlace.push_back({problem.buffer.lookup(value), problem.buffer.lookup(read)});
  }
}

// What a kernel is called and where it stands, its hints, and its block, from the ops whose results it writes.
static void describe(plan::KernelOp op, solve::Kernel &kernel) {
  for (OpResult result : op->getResults()) {
    Operation *inner = computedBy(result).getDefiningOp();
    kernel.keepHint |= inner->hasAttr(nn::kKeepAttr);
    kernel.recomputeHint |= inner->hasAttr(nn::kRecomputeAttr);
    if (auto block = inner->getAttrOfType<IntegerAttr>(nn::kBlockAttr))
      kernel.block = int(block.getInt());
    kernel.blockEnd |= inner->hasAttr(nn::kBlockEndAttr);
  }
  Value first = computedBy(op->getResult(0));
  kernel.backward = first.getDefiningOp()->hasAttr(nn::kBackwardAttr);
  kernel.name = nameOf(first);
  kernel.line = lineOf(first);
}

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
  MachineRates machine = (costs ? *costs : MachineCosts()).at(threads);
  SpecFinder finder(step);
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
      describe(op, kernel);
      kernel.cheap = kindOf(op) == KernelKind::Loop;
      const Specs *specs = finder.find(op, inLoop);
      if (!specs) {
        problem.error = "a kernel has no spec at some micro-batch: " + kernel.name;
        return problem;
      }
      kernel.scratch = specs->at.front().second.scratchBytesPerThread(target);
      for (auto &[examples, spec] : specs->at)
        if (int64_t bytes = spec.scratchBytesPerThread(target); bytes != kernel.scratch.otherwise)
          kernel.scratch.exactly.push_back({examples, bytes});
      priceKernel(op, inLoop, machine, step.batch, kernel);
      if (inLoop)
        findInPlace(op, step, *specs, problem, kernel);
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
