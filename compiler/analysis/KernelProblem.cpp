// KernelProblem.cpp: what the solvers want to know of a kernel: bytes, price, scratch, and what may share bytes.
#include "compiler/analysis/KernelProblem.h"

#include "compiler/analysis/Cost.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cinch::analysis {

// "blocks.3.ff: mul" and the source line, for people.
std::string nameOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (!function)
      return "an operand of the loop";
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
  name += isa<plan::LoopOp>(op) ? "scan" : op->getName().stripDialect(); // people know a loop along an axis as they write it
  if (op->hasAttr(nn::kBackwardAttr))
    name += " (gradient)";
  return name;
}

int lineOf(Value value) { return isa<BlockArgument>(value) ? 0 : lineOf(value.getLoc()); }

int lineOf(Location loc) {
  auto place = nn::userPlace(loc);
  // A line of the prelude is no line of the user's file.
  return place && place.getFilename().getValue() != "prelude.cinch" ? int(place.getLine()) : 0;
}

// A line of the prelude where the op is written there.
static int libraryLineOf(Value value) {
  if (isa<BlockArgument>(value))
    return 0;
  auto place = nn::sourcePlace(value.getLoc());
  return place && place.getFilename().getValue() == "prelude.cinch" ? int(place.getLine()) : 0;
}

// `value` lies in the buffer; people know it as `named`.
solve::Buffer bufferFor(Value value, Value named, int64_t batch) {
  solve::Buffer buffer;
  int64_t bytes = bytesOf(value);
  if (batchAxisOf(value) >= 0)
    buffer.perExampleBytes = bytes / batch;
  else
    buffer.fixedBytes = bytes;
  buffer.name = nameOf(named);
  buffer.line = lineOf(named);
  buffer.libraryLine = libraryLineOf(named);
  return buffer;
}

Value computedBy(OpResult result) {
  return cast<plan::KernelOp>(result.getOwner()).getBody().front().getTerminator()->getOperand(result.getResultNumber());
}

bool isBackward(plan::KernelOp kernel) { return computedBy(kernel->getResult(0)).getDefiningOp()->hasAttr(nn::kBackwardAttr); }

// ---- Specs -------------------------------------------------------------------------------------------------------------
KernelProblems::KernelProblems(const KernelContext &context) : context(context) {
  solve::StepGraph sizes;
  sizes.batch = context.batch, sizes.grain = context.grain;
  microbatches = solve::microbatches(sizes);
}

// Empty: at some micro-batch there is none.
KernelProblems::Specs KernelProblems::find(plan::KernelOp kernel, bool inLoop) {
  Specs found;
  for (int64_t examples : llvm::reverse(microbatches)) {
    const KernelSpec *spec = specs.find(kernel, {examples});
    if (!spec)
      return {};
    found.push_back({examples, spec});
    if (!inLoop)
      break;
  }
  return found;
}

// One full store may take the bytes of an operand that is read at the same places, whatever the micro-batch.
void KernelProblems::findInPlace(plan::KernelOp op, const Specs &specs, bool inLoop, llvm::function_ref<Value(Value)> inMemory, BufferOf bufferOf,
                                 solve::Kernel &kernel) {
  SmallVector<int> full;
  const auto *whole = std::get_if<kernels::LoopSpec>(&specs.front().second->work);
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
  // A trip of the loop finds what is one to a step as the trip before has left it. Around the loop everything runs once.
  for (auto [r, operand] : llvm::enumerate(op.getInputs())) {
    Value read = inMemory(operand);
    auto producer = read.getDefiningOp<plan::KernelOp>();
    bool sum = producer && producer.getAccumulates() &&
               (*producer.getAccumulates())[cast<OpResult>(read).getResultNumber()];
    if (!producer || bytesOf(read) != bytesOf(value) || (inLoop && (sum || batchAxisOf(read) < 0)))
      continue;
    if (llvm::all_of(specs, [&](auto &at) {
          return readsWhereItWrites(std::get<kernels::LoopSpec>(at.second->work), int(r), int(op.getNumOperands()) + full[0]);
        }))
      kernel.inPlace.push_back({bufferOf(value), bufferOf(read)});
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
  kernel.backward = isBackward(op);
  kernel.name = nameOf(first);
  kernel.line = lineOf(first);
  kernel.libraryLine = libraryLineOf(first);
}

bool KernelProblems::describe(plan::KernelOp op, bool inLoop, llvm::function_ref<Value(Value)> inMemory, BufferOf bufferOf,
                              solve::Kernel &kernel) {
  analysis::describe(op, kernel);
  kernel.cheap = op.getKind() == plan::KernelKind::Loop;
  if (op.getKind() == plan::KernelKind::Scan)
    return describeScan(op, inLoop, inMemory, bufferOf, kernel);
  Specs specs = find(op, inLoop);
  if (specs.empty()) {
    error = "a kernel has no spec at some micro-batch: " + kernel.name;
    return false;
  }
  kernel.scratch = specs.front().second->scratchBytesPerThread(context.target);
  for (auto &[examples, spec] : specs)
    if (int64_t bytes = spec->scratchBytesPerThread(context.target); bytes != kernel.scratch.otherwise)
      kernel.scratch.exactly.push_back({examples, bytes});
  priceKernel(op, specs, inLoop, {context.machine, context.target}, kernel);
  findInPlace(op, specs, inLoop, inMemory, bufferOf, kernel);
  return true;
}

// ---- Loops along an axis -----------------------------------------------------------------------------------------------
// Does a trip read its part of the slice `read` only before it writes its part of the stacked result `written`? Then the result may take the
// bytes of the operand, part by part.
static bool diesPartByPart(plan::LoopOp loop, unsigned read, Value written) {
  Value part = loop.part(read);
  Operation *writer = written.getDefiningOp();
  return llvm::all_of(part.getUsers(), [&](Operation *user) {
    return user->getBlock() == writer->getBlock() && user->isBeforeInBlock(writer);
  });
}

// May result `result` take the bytes of input `read`, part by part? That is one of the slices, and nothing else of the loop.
static bool readsPartByPart(plan::KernelOp op, unsigned read, unsigned result) {
  plan::LoopOp loop = loopOf(op);
  BlockArgument argument = op.getBody().getArgument(read);
  if (argument.getType() != op.getOutputs()[result].getType())
    return false;
  auto returned = cast<OpResult>(op.getBody().front().getTerminator()->getOperand(result));
  for (auto [i, slice] : llvm::enumerate(loop.getSlices()))
    if (slice == argument)
      return loop.isStacked(returned) && argument.hasOneUse() && llvm::count(op.getInputs(), op.getInputs()[read]) == 1 &&
             diesPartByPart(loop, unsigned(i), loop.yieldedFor(returned));
  return false;
}

static void findPartByPart(plan::KernelOp op, llvm::function_ref<Value(Value)> inMemory, KernelProblems::BufferOf bufferOf,
                           solve::Kernel &kernel) {
  for (OpResult result : op->getResults())
    for (Value slice : loopOf(op).getSlices()) {
      auto argument = dyn_cast<BlockArgument>(slice);
      Value read = argument ? inMemory(op.getInputs()[argument.getArgNumber()]) : Value();
      if (read && read.getDefiningOp<plan::KernelOp>() && read.getType() == result.getType() && batchAxisOf(read) >= 0 &&
          readsPartByPart(op, argument.getArgNumber(), result.getResultNumber()))
        kernel.inPlace.push_back({bufferOf(result), bufferOf(read)});
    }
}

bool readsBeforeItWrites(plan::KernelOp kernel, unsigned read, unsigned result, KernelSpecs &specs) {
  if (loopOf(kernel))
    return readsPartByPart(kernel, read, result);
  const KernelSpec *spec = specs.find(kernel);
  const auto *work = spec ? std::get_if<kernels::LoopSpec>(&spec->work) : nullptr;
  return work && readsWhereItWrites(*work, int(read), int(kernel.getNumOperands() + result));
}

bool KernelProblems::describeScan(plan::KernelOp op, bool inLoop, llvm::function_ref<Value(Value)> inMemory, BufferOf bufferOf,
                                  solve::Kernel &kernel) {
  std::shared_ptr<ScanProblem> problem = buildTrip(loopOf(op), inLoop, kernel);
  if (!problem)
    return false;
  if (inLoop)
    findPartByPart(op, inMemory, bufferOf, kernel);
  for (int64_t b : microbatches)
    kernel.scratch.exactly.push_back({b, problem->scratchBytesPerThread(b)});
  kernel.body = problem;
  scans[op] = std::move(problem);
  return true;
}

// The graph of a trip. What lies outside the scratch has no bytes in it: the operands, and what is stacked or carried.
std::shared_ptr<ScanProblem> KernelProblems::buildTrip(plan::LoopOp loop, bool inLoop, solve::Kernel &trips) {
  auto problem = std::make_shared<ScanProblem>();
  solve::StepGraph &graph = problem->trip;
  graph.batch = context.batch, graph.grain = context.grain, graph.threads = context.threads;
  llvm::DenseMap<Value, int> buffer;
  auto add = [&](Value value, bool local, int producer) {
    buffer[value] = int(graph.buffers.size());
    solve::Buffer entry = bufferFor(value, isa<BlockArgument>(value) ? value : computedBy(cast<OpResult>(value)), context.batch);
    entry.producer = local ? producer : -1;
    if (!local) {
      entry.kind = solve::Buffer::Persistent;
      entry.fixedBytes = entry.perExampleBytes = 0;
    }
    graph.buffers.push_back(entry);
    problem->local.push_back(local);
  };
  for (BlockArgument argument : loop.block().getArguments())
    add(argument, false, -1);
  for (Operation &op : loop.block().without_terminator()) {
    auto kernel = cast<plan::KernelOp>(op);
    for (Value input : kernel.getInputs())
      if (!buffer.contains(input)) // whole
        add(input, false, -1);
    for (Value result : kernel.getOutputs())
      add(result, !loop.resultOf(result), int(problem->kernels.size()));
    problem->kernels.push_back(kernel);
  }
  auto count = double(loop.getCount());
  trips.seconds = {}, trips.flops = trips.traffic = {};
  trips.work = solve::Kernel::Nothing;
  for (auto [i, op] : llvm::enumerate(problem->kernels)) {
    solve::Kernel kernel;
    kernel.recomputable = false;
    for (Value value : op.getInputs())
      if (int b = buffer.lookup(value); !llvm::is_contained(kernel.reads, b))
        kernel.reads.push_back(b);
    for (Value value : op.getOutputs())
      kernel.writes.push_back(buffer.lookup(value));
    if (!describe(op, inLoop, [](Value value) { return value; }, [&](Value value) { return buffer.lookup(value); }, kernel))
      return nullptr;
    if (auto found = scans.find(op); found != scans.end()) {
      problem->inner[int(i)] = std::move(found->second);
      scans.erase(found);
    }
    std::vector<std::pair<int, int>> inPlace;
    for (auto &[to, from] : kernel.inPlace)
      if (problem->local[to] && problem->local[from])
        inPlace.push_back({to, from});
    kernel.inPlace = std::move(inPlace);
    trips.seconds.add(kernel.seconds, count), trips.flops.add(kernel.flops, count), trips.traffic.add(kernel.traffic, count);
    graph.kernels.push_back(std::move(kernel));
  }
  for (unsigned i = 0; i < loop.getInits().size(); ++i)
    if (loop.hasSlots(i))
      problem->slots.push_back(bufferFor(loop.carried(i), loop.carried(i), context.batch));
  return problem;
}

} // namespace cinch::analysis
