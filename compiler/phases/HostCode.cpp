// HostCode.cpp: kernels from plan.kernel ops, and the entry points that launch them.
#include "compiler/phases/HostCode.h"

#include "compiler/phases/BodyEmitter.h"
#include "compiler/kernels/TensorMap.h"
#include "compiler/phases/KernelBody.h"
#include "compiler/phases/OperandPlaces.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/TwoSteps.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include <optional>

using namespace mlir;

namespace cinch {

using namespace kernels;

std::string HostCode::shared(const std::string &key, llvm::function_ref<func::FuncOp(const std::string &)> build) {
  auto [it, fresh] = functions.try_emplace(key);
  if (fresh) {
    it->second = "kernel_" + std::to_string(functions.size());
    build(it->second).setPrivate();
  }
  return it->second;
}

// The ops of a kernel that its nodes compute (`origins`, one a node), in the order of the program.
static KernelOperations operationsOf(plan::KernelOp kernel, ArrayRef<Operation *> origins) {
  KernelOperations list;
  DenseMap<Operation *, int> numbers;
  for (Operation &op : kernel.getBody().front()) {
    if (!llvm::is_contained(origins, &op) || isa<nn::ConstantOp>(op))
      continue;
    KernelOperations::Operation entry;
    entry.name = nn::nameOf(&op);
    if (auto place = nn::userPlace(op.getLoc())) {
      entry.file = place.getFilename().str();
      entry.line = int(place.getLine());
    }
    entry.ofExamples = nn::hasBatch(op.getResult(0));
    auto same = [&](const KernelOperations::Operation &other) {
      return std::tie(other.name, other.file, other.line, other.ofExamples) ==
             std::tie(entry.name, entry.file, entry.line, entry.ofExamples);
    };
    auto known = llvm::find_if(list.operations, same);
    numbers[&op] = int(known - list.operations.begin());
    if (known == list.operations.end())
      list.operations.push_back(std::move(entry));
  }
  for (Operation *origin : origins) {
    auto found = numbers.find(origin);
    list.ofNode.push_back(found == numbers.end() ? -1 : found->second);
  }
  return list;
}

int HostCode::bodyNumber(std::vector<int64_t> body) {
  auto [it, fresh] = bodyNumbers.try_emplace(body, int(bodies.size()));
  if (fresh)
    bodies.push_back(std::move(body));
  return it->second;
}

int HostCode::operationsNumber(KernelOperations list) {
  std::string key;
  llvm::raw_string_ostream out(key);
  for (int number : list.ofNode)
    out << number << ' ';
  for (const KernelOperations::Operation &op : list.operations)
    out << op.name << '\n' << op.file << '\n' << op.line << ' ' << op.ofExamples << '\n';
  auto [it, fresh] = operationsNumbers.try_emplace(key, int(operations.size()));
  if (fresh)
    operations.push_back(std::move(list));
  return it->second;
}

// The dim of a product's rows and columns (batch.., m.., n..) that walks an axis of its result; -1: none, or of one step.
static int dimOfAxis(nn::ContractOp op, const ContractSpec &spec, int64_t axis) {
  auto shape = analysis::shapeOf(op.getResult());
  if (axis < 0 || axis >= int64_t(shape.size()) || shape[axis] == 1)
    return -1;
  int64_t stride = 1;
  for (size_t later = size_t(axis) + 1; later < shape.size(); ++later)
    stride *= shape[later];
  for (auto [dim, step] : llvm::enumerate(spec.c.strides))
    if (step == stride)
      return int(dim);
  return -1;
}

// What a failed step is replayed with, if the kernel can be described so: its body, and the ops behind its nodes.
void HostCode::describeBody(plan::KernelOp kernel, const analysis::KernelSpec &spec, LaunchInfo &info) {
  Operation *root = kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp();
  if (auto *contract = std::get_if<ContractSpec>(&spec.work)) {
    auto op = cast<nn::ContractOp>(root);
    int64_t batch = nn::batchAxis(op.getResult());
    info.body = bodyNumber(kernelBody(loopOfContract(*contract), 4, dimOfAxis(op, *contract, batch),
                                      batch == 0 ? dimOfAxis(op, *contract, 1) : -1));
    info.operations = operationsNumber(operationsOf(kernel, {nullptr, nullptr, root, root, root}));
  } else if (auto *loop = std::get_if<LoopSpec>(&spec.work)) {
    SmallVector<Operation *> ops, origins;
    for (Operation &op : kernel.getBody().front())
      ops.push_back(&op);
    for (int number : spec.origins)
      origins.push_back(number < 0 ? nullptr : ops[number]);
    origins.resize(loop->nodes.size());
    if (loop->addAt.present)
      origins.push_back(root); // behind the last node
    int words = int(kernel.getNumOperands() + kernel.getNumResults()) + 1;
    info.body = bodyNumber(kernelBody(spec.loopWithNumbers(), words, spec.batchDim, spec.positionDim, spec.examplesOfGroup));
    info.operations = operationsNumber(operationsOf(kernel, origins));
  }
}

// Where a loop moves buffers to places that no 16-byte access may begin at, the kernel is another one. Which instructions compute it, and what they
// add, is the same.
static std::optional<analysis::KernelSpec> ofMovedBuffers(plan::KernelOp kernel, const analysis::KernelSpec &spec) {
  SmallVector<int64_t> alignments;
  for (int buffer : spec.buffers) {
    const unsigned inputs = kernel.getNumOperands(), number = unsigned(buffer);
    alignments.push_back(alignmentOf(number < inputs ? kernel.getInputs()[number] : kernel.getOutputs()[number - inputs]));
  }
  if (llvm::all_of(alignments, [](int64_t bytes) { return bytes % kWidestAccess == 0; }))
    return std::nullopt;
  return spec.withAlignments(alignments);
}

// Its scratch was planned, and for as many threads as there may be.
static LogicalResult checkScratch(plan::KernelOp kernel, int64_t perThread, int threads) {
  if (perThread > 0 && kernel.getScratch().value_or(-1) < 0)
    return kernel.emitError("internal error: lowering: no scratch was planned, ") << perThread << " bytes are needed";
  auto planned = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr);
  if (perThread > 0 && (!planned || planned.getInt() < perThread * threads))
    return kernel.emitError("internal error: lowering: the kernel needs ")
           << perThread * threads << " bytes of scratch, planned were " << (planned ? planned.getInt() : 0);
  return success();
}

// The words of a launch: where the buffers of the spec lie, then the scratch, then the spec's own.
static void addWords(plan::KernelOp kernel, const analysis::KernelSpec &spec, bool hasScratch, HostCode::Call &call) {
  const size_t inputs = kernel.getNumOperands();
  ArrayRef<int64_t> reads = *kernel.getReads(), writes = *kernel.getWrites();
  for (int buffer : spec.buffers) {
    const bool isInput = size_t(buffer) < inputs;
    call.words.push_back(isInput ? reads[buffer] : writes[buffer - inputs]);
    call.values.push_back(isInput ? kernel.getInputs()[buffer] : kernel.getOutputs()[buffer - inputs]);
  }
  call.words.push_back(hasScratch ? int64_t(*kernel.getScratch()) : 0);
  call.words.append(spec.words);
}

// Each grid of a kernel of a GPU is a launch of its own.
void HostCode::addDeviceKernel(const analysis::KernelSpec &spec, const Call &call) {
  if (!target.isDevice() || llvm::any_of(deviceKernels, [&](auto &known) { return known.name == call.kernel; }))
    return;
  for (auto [number, grid] : llvm::enumerate(spec.grids(target))) {
    std::string name = kernels::nameOfLaunch(call.kernel, number);
    deviceKernels.push_back({name, grid.workers, grid.lanes, grid.block, int64_t(call.words.size()), grid.shared, number > 0, spec.approximates(),
                             spec.multipliesInTF32()});
    if (auto maps = dyn_cast_or_null<DenseI64ArrayAttr>(module.lookupSymbol(name)->removeAttr(kernels::kMapsAttr)))
      deviceKernels.back().maps = maps.asArrayRef().vec();
  }
}

// What a replay of a failed step looks at.
void HostCode::describeOperands(plan::KernelOp kernel, const analysis::KernelSpec &spec, LaunchInfo &info) {
  ValueRange results = kernel.getBody().front().getTerminator()->getOperands();
  auto bufferInfo = [&](Value value, size_t number) {
    int word = int(llvm::find(spec.buffers, int(number)) - spec.buffers.begin());
    auto type = nn::tensorOf(value);
    LaunchInfo::Buffer buffer{word, nn::elementsInMemory(type), analysis::elemOf(value)};
    if (buffer.count != type.getNumElements())
      buffer.columns = type.getShape().back(), buffer.pitch = nn::rowPitch(type);
    return buffer;
  };
  if (info.body < 0) {
    info.operations = operationsNumber(operationsOf(kernel, {results.front().getDefiningOp()}));
    for (auto [i, value] : llvm::enumerate(kernel.getInputs()))
      if (Elem elem = analysis::elemOf(value); elem == Elem::F32 || elem == Elem::F64 || elem == Elem::BF16)
        info.inputs.push_back(bufferInfo(value, i));
    if (nn::batchAxis(results.front()) == 0)
      info.examples = analysis::shapeOf(results.front()).front();
  }
  for (auto [i, value] : llvm::enumerate(results)) {
    // Where a row of attention has no key, lse is -inf and o is 0; what is wrong with lse is wrong with o, too.
    auto attend = dyn_cast<nn::AttendOp>(value.getDefiningOp());
    if (!attend || value == attend.getO())
      info.outputs.push_back(bufferInfo(value, kernel.getNumOperands() + i));
  }
}

// Sums at computed places that do not go on from before start from zero each time; so do those of a loop that begin with this kernel.
static void addZeroed(plan::KernelOp kernel, HostCode::Call &call) {
  ArrayRef<int64_t> writes = *kernel.getWrites();
  auto zeroed = kernel->getAttrOfType<DenseI64ArrayAttr>(kZeroedAttr);
  for (auto [i, value] : llvm::enumerate(kernel.getBody().front().getTerminator()->getOperands())) {
    bool goesOn = kernel.getAccumulates() && (*kernel.getAccumulates())[i];
    auto grad = dyn_cast<nn::AttendGradOp>(value.getDefiningOp());
    bool begins = (isa<nn::ScatterAddOp>(value.getDefiningOp()) || (grad && value == grad.getDbias())) && !goesOn;
    for (int64_t at = 0; zeroed && at < zeroed.size(); at += 2)
      begins |= zeroed[at] == writes[i];
    if (!begins)
      continue;
    call.zeroed.push_back({writes[i], analysis::bytesOf(value)});
    call.zeroedValues.push_back(kernel.getOutputs()[i]);
  }
}

LogicalResult HostCode::addKernel(Operation *op, bool replayed) {
  auto kernel = cast<plan::KernelOp>(op);
  const analysis::KernelSpec *spec = specs.find(kernel);
  if (!spec)
    return kernel.emitError("internal error: lowering: the kernel has no spec");
  std::optional<analysis::KernelSpec> moved = target.isDevice() ? ofMovedBuffers(kernel, *spec) : std::nullopt;
  if (moved)
    spec = &*moved;
  int64_t scratch = spec->scratchBytesPerThread(target);
  if (failed(checkScratch(kernel, scratch, maxThreads)))
    return failure();
  Call call;
  LaunchInfo info;
  call.launch = int(launches.size());
  info.price = analysis::priceOfLaunch(kernel, *spec, bool(plan::LoopOp::overExamplesAround(kernel)), {machine, target});
  call.alone = info.price.alone;
  if (replayed)
    describeBody(kernel, *spec, info);
  OpBuilder builder(module.getContext());
  call.kernel = shared(spec->key(), [&](const std::string &name) { return spec->build(builder, module, name, target); });
  addWords(kernel, *spec, scratch > 0, call);
  addDeviceKernel(*spec, call);
  info.kernel = call.kernel;
  info.text = kernel.getLabel().value_or("").str();
  if (auto place = nn::userPlace(kernel.getLoc())) {
    info.file = place.getFilename().str();
    info.line = int(place.getLine());
  }
  if (replayed)
    describeOperands(kernel, *spec, info);
  addZeroed(kernel, call);
  launches.push_back(std::move(info));
  launched.push_back(op);
  calls[op] = std::make_unique<Call>(std::move(call));
  return success();
}

std::pair<int64_t, int64_t> HostCode::clearedLater(ArrayRef<std::pair<int64_t, int64_t>> ranges) {
  int64_t first = int64_t(cleared.size()) / 2;
  for (auto [offset, bytes] : ranges)
    cleared.append({offset, bytes});
  return {first, int64_t(cleared.size()) / 2};
}

// The bits that what a loop or a kernel accumulates starts from, by its offset; a sum starts from 0.
static DenseMap<int64_t, int64_t> firstWords(Operation *work) {
  DenseMap<int64_t, int64_t> words;
  work->walk([&](plan::KernelOp kernel) {
    auto flags = kernel.getAccumulates();
    for (size_t i = 0; flags && i < flags->size(); ++i) {
      Value value = kernel.getBody().front().getTerminator()->getOperand(unsigned(i));
      auto reduce = value.getDefiningOp<nn::ReduceOp>();
      if ((*flags)[i] && reduce)
        words[(*kernel.getWrites())[i]] = kernels::firstWord(analysis::reduceOf(reduce.getReduction()), analysis::elemOf(value));
    }
  });
  return words;
}

LogicalResult HostCode::addKernels(func::FuncOp function) {
  size_t count = launches.size();
  function.walk([&](plan::KernelOp) { ++count; });
  launches.reserve(count);
  specs = {};
  bool replayed = function.getName() == nn::kTrainName || function.getName().starts_with((nn::kTrainName + "_").str());
  WalkResult walked = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    replayed = replayed && !isa<plan::GateOp>(op);
    auto work = dyn_cast<plan::KernelOp>(op);
    auto zeroed = op->getAttrOfType<DenseI64ArrayAttr>(kZeroedAttr);
    if (zeroed && (!work || analysis::loopOf(work))) { // of other kernels the launch clears them
      SmallVector<std::pair<int64_t, int64_t>> ranges;
      Start &start = starts[op];
      DenseMap<int64_t, int64_t> words = firstWords(op);
      for (size_t i = 0; i + 1 < size_t(zeroed.size()); i += 2)
        if (int64_t word = words.lookup(zeroed[i]))
          start.set.push_back({zeroed[i], zeroed[i + 1], word});
        else
          ranges.push_back({zeroed[i], zeroed[i + 1]});
      start.cleared = clearedLater(ranges);
      if (overlappingLoop(function) == op) {
        for (size_t i = 0; i + 1 < size_t(zeroed.size()); i += 2)
          start.sums.push_back({zeroed[i], zeroed[i + 1]});
        for (auto &[offset, bytes] : ranges)
          offset += bytes;
        start.clearedNext = clearedLater(ranges);
      }
    }
    auto kernel = dyn_cast<plan::KernelOp>(op);
    if (!kernel || analysis::loopOf(kernel)) // a loop is the kernels in it
      return WalkResult::advance();
    return succeeded(addKernel(op, replayed)) ? WalkResult::advance() : WalkResult::interrupt();
  });
  return failure(walked.wasInterrupted());
}

// ---- Calls -------------------------------------------------------------------------------------------------------------
void addText(ModuleOp module, StringRef symbol, const std::string &text) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  StringRef ended(text.c_str(), text.size() + 1);
  LLVM::GlobalOp::create(builder, builder.getUnknownLoc(), LLVM::LLVMArrayType::get(builder.getI8Type(), ended.size()), true,
                         LLVM::Linkage::External, symbol, builder.getStringAttr(ended));
}

void requireSymbol(ModuleOp module, StringRef symbol) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  Location loc = builder.getUnknownLoc();
  auto outside = LLVM::GlobalOp::create(builder, loc, builder.getI8Type(), true, LLVM::Linkage::External, symbol, Attribute());
  auto pointer = LLVM::LLVMPointerType::get(module.getContext());
  auto reference = LLVM::GlobalOp::create(builder, loc, pointer, true, LLVM::Linkage::External, "cinch_requires_device", Attribute());
  builder.createBlock(&reference.getInitializerRegion());
  LLVM::ReturnOp::create(builder, loc, ValueRange{LLVM::AddressOfOp::create(builder, loc, outside)});
}

void HostCode::addFunction(func::FuncOp function, StringRef symbol, int entry, bool counted) {
  EntryEmitter e(module, symbol, entry, counted ? 1 : 0);
  emitBody(*this, e, function.getBody().front(), counted);
  e.finish();
}

void HostCode::addEntry(ArrayRef<func::FuncOp> functions, StringRef symbol, int entry, bool counted) {
  if (functions.size() == 1)
    return addFunction(functions.front(), symbol, entry, counted);
  auto nameOf = [&](size_t worker) { return (symbol + "_" + Twine(worker)).str(); };
  for (auto [worker, function] : llvm::enumerate(functions))
    if (function)
      addFunction(function, nameOf(worker), entry, counted);
  EntryEmitter e(module, symbol, entry, counted ? 1 : 0);
  Value mine = e.word(kWorker);
  SmallVector<Value> arguments{e.context};
  if (counted)
    arguments.push_back(e.argument(0));
  for (size_t worker = 0; worker < functions.size(); ++worker)
    if (functions[worker])
      e.when(e.compare(LLVM::ICmpPredicate::eq, mine, e.number(e.i64, int64_t(worker))),
             [&] { e.call(nameOf(worker), e.none, arguments); });
  e.finish();
}

} // namespace cinch
