// StepProblem.cpp: kernels and values become the solvers' graph.
#include "compiler/analysis/Cost.h"
#include "compiler/analysis/RowWise.h"
#include "compiler/analysis/Specs.h"
#include "dialects/nn/Grain.h"

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

static solve::Buffer bufferFor(Value value, int64_t batch) {
  solve::Buffer buffer;
  int64_t bytes = bytesOf(value);
  if (batchAxisOf(value) >= 0)
    buffer.perExampleBytes = bytes / batch;
  else
    buffer.fixedBytes = bytes;
  buffer.name = nameOf(value);
  buffer.line = lineOf(value);
  return buffer;
}

int64_t scratchBytes(const KernelGroup &group, const Formation &formation, int64_t batch,
                     const kernels::TargetInfo &target) {
  // What products pack depends on the sizes, and a smaller micro-batch may need more.
  int64_t bytes = 0;
  int64_t grain = std::max<int64_t>(1, nn::grainOf(formation.function));
  for (int64_t examples = group.kind == KernelGroup::Contract ? grain : batch; examples <= batch; examples += grain)
    if (batch % examples == 0)
      bytes = std::max(bytes, scratchBytesOfBlock(group, formation, examples, 0, target));
  return bytes;
}

int64_t scratchBytesOfBlock(const KernelGroup &group, const Formation &formation, int64_t examples, int64_t positions,
                            const kernels::TargetInfo &target) {
  llvm::DenseMap<Value, int> number;
  for (Value read : group.reads)
    number.try_emplace(read, int(number.size()));
  auto readsOf = [&](Value value) {
    auto it = number.find(value);
    return it == number.end() ? -1 : it->second;
  };
  llvm::DenseMap<Value, int> all = number;
  for (Value store : group.stores)
    all.try_emplace(store, int(all.size()));
  auto allOf = [&](Value value) {
    auto it = all.find(value);
    return it == all.end() ? -1 : it->second;
  };
  Value blocker;
  switch (group.kind) {
  case KernelGroup::Loop: {
    LoopTracer tracer(group.domain, readsOf); // scratch of the whole batch serves fewer examples and positions
    for (auto [i, store] : llvm::enumerate(group.stores))
      tracer.store(store, int(group.reads.size() + i), formation.accumulates(store));
    return kernels::scratchBytesPerThread(tracer.spec);
  }
  case KernelGroup::Contract: {
    auto op = cast<nn::ContractOp>(group.stores.front().getDefiningOp());
    kernels::ContractSpec spec;
    contractSpec(op, allOf, formation.accumulates(op.getResult()), spec, blocker, nullptr, examples, positions);
    return kernels::scratchBytesPerThread(spec, target);
  }
  case KernelGroup::Attend: {
    kernels::AttendSpec spec;
    attendSpec(cast<nn::AttendOp>(group.stores.front().getDefiningOp()), allOf, spec, blocker);
    return kernels::scratchBytesPerThread(spec);
  }
  case KernelGroup::AttendGrad: {
    kernels::AttendGradSpec spec;
    attendGradSpec(cast<nn::AttendGradOp>(group.stores.front().getDefiningOp()), allOf, spec, blocker);
    return kernels::scratchBytesPerThread(spec);
  }
  case KernelGroup::Gate:
  case KernelGroup::Results:
    return 0;
  }
  return 0;
}

StepProblem buildStepProblem(const Formation &formation, int64_t batch, int threads,
                             int64_t reservedBytes, const kernels::TargetInfo &target, const MachineCosts *costs) {
  StepProblem problem;
  solve::StepGraph &graph = problem.graph;
  graph.batch = batch;
  graph.grain = std::max<int64_t>(1, nn::grainOf(formation.function));
  graph.threads = threads;
  // Parameters first, state behind them: every function of a program finds them at the same bytes.
  func::FuncOp function = formation.function;
  auto addArguments = [&](auto &&wanted) {
    for (BlockArgument argument : function.getArguments()) {
      bool parameter = bool(function.getArgAttr(argument.getArgNumber(), nn::kPathAttr));
      bool slot = bool(function.getArgAttr(argument.getArgNumber(), nn::kSlotAttr));
      if (!wanted(parameter, slot))
        continue;
      problem.buffer[argument] = int(graph.buffers.size());
      solve::Buffer buffer = bufferFor(argument, batch);
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
  for (auto [i, group] : llvm::enumerate(formation.groups))
    for (Value value : group.stores) {
      if (auto it = formation.home.find(value); it != formation.home.end()) {
        problem.buffer[value] = problem.buffer.lookup(it->second);
        continue;
      }
      problem.buffer[value] = int(graph.buffers.size());
      solve::Buffer buffer = bufferFor(value, batch);
      buffer.kind = formation.accumulates(value) ? solve::Buffer::Accumulator : solve::Buffer::Value;
      buffer.producer = int(i);
      graph.buffers.push_back(buffer);
    }
  MachineRates machine = (costs ? *costs : MachineCosts()).at(threads);
  for (const KernelGroup &group : formation.groups) {
    solve::Kernel kernel;
    kernel.section = group.section;
    kernel.backward = group.backward;
    kernel.cheap = group.kind == KernelGroup::Loop;
    for (Value value : group.reads)
      kernel.reads.push_back(problem.buffer.lookup(value));
    for (Value value : group.stores) {
      int buffer = problem.buffer.lookup(value);
      kernel.writes.push_back(buffer);
      if (graph.buffers[buffer].kind != solve::Buffer::Value)
        kernel.recomputable = false;
      Operation *op = value.getDefiningOp();
      kernel.keepHint |= op->hasAttr(nn::kKeepAttr);
      kernel.recomputeHint |= op->hasAttr(nn::kRecomputeAttr);
      if (auto block = op->getAttrOfType<IntegerAttr>(nn::kBlockAttr))
        kernel.block = int(block.getInt());
      kernel.blockEnd |= op->hasAttr(nn::kBlockEndAttr);
    }
    if (group.kind == KernelGroup::Gate || group.kind == KernelGroup::Results) {
      kernel.recomputable = false;
      kernel.name = group.kind == KernelGroup::Gate ? "gate" : "results";
    } else {
      kernel.name = nameOf(group.stores.front());
      kernel.line = lineOf(group.stores.front());
    }
    kernel.scratchBytesPerThread = scratchBytes(group, formation, batch, target);
    priceKernel(group, machine, batch, kernel);
    // One full store may take the bytes of an operand that is read at the same places.
    if (group.kind == KernelGroup::Loop && group.domain.chain.empty()) {
      llvm::SmallVector<int> fullStores;
      int64_t full = 1;
      for (int64_t size : group.domain.sizes())
        full *= size;
      for (auto [i, value] : llvm::enumerate(group.stores))
        if (elementsOf(value) == full)
          fullStores.push_back(int(i));
      if (fullStores.size() == 1 && group.section == solve::Section::Loop) {
        Value value = group.stores[fullStores[0]];
        // Read places are those of the final trace: identical strides and offset.
        llvm::DenseMap<Value, int> number;
        LoopTracer tracer(group.domain, [&](Value v) {
          if (!group.reads.contains(v))
            return -1;
          return number.try_emplace(v, int(number.size())).first->second;
        });
        bool good = true;
        for (auto [i, store] : llvm::enumerate(group.stores))
          good &= tracer.store(store, int(1000 + i), false);
        for (auto [r, read] : llvm::enumerate(group.reads)) {
          if (!good || bytesOf(read) != bytesOf(value) || isa<BlockArgument>(read) ||
              formation.accumulates(read) || batchAxisOf(read) < 0)
            continue;
          bool same = true;
          const kernels::View *target = nullptr;
          for (const kernels::LoopStore &store : tracer.spec.stores)
            if (store.view.buffer == 1000 + fullStores[0])
              target = &store.view;
          for (const kernels::LoopNode &node : tracer.spec.nodes)
            if ((node.op == kernels::LoopOp::Load || node.op == kernels::LoopOp::LoadAt) &&
                node.view.buffer == number.lookup(read))
              same &= node.op == kernels::LoopOp::Load && target && node.view.strides == target->strides &&
                      node.view.offset == target->offset;
          if (same)
            kernel.inPlace.push_back({problem.buffer.lookup(value), problem.buffer.lookup(read)});
        }
      }
    }
    graph.kernels.push_back(std::move(kernel));
  }
  markRows(formation, problem);
  return problem;
}

} // namespace cinch::analysis
