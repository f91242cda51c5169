// HostCode.cpp: kernels from plan.kernel ops, and the calls in the LLVM dialect.
#include "compiler/phases/HostCode.h"

#include "compiler/phases/KernelBody.h"
#include "compiler/transforms/Decision.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

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

// How the buffers of a kernel move from block to block of rows: inputs, then outputs. Nothing outside such a loop.
static SmallVector<plan::RowBlocksOp::Steps> stepsOf(plan::KernelOp kernel) {
  SmallVector<plan::RowBlocksOp::Steps> steps;
  auto rows = dyn_cast<plan::RowBlocksOp>(kernel->getParentOp());
  if (!rows)
    return steps;
  for (ValueRange values : {ValueRange(kernel.getInputs()), ValueRange(kernel.getOutputs())})
    for (Value value : values) {
      auto argument = dyn_cast<BlockArgument>(value);
      if (argument && argument.getOwner() == &rows.getBody().front())
        steps.push_back(rows.stepsOfOperand(argument.getArgNumber()));
      else if (auto result = rows.resultFilledBy(value))
        steps.push_back(rows.stepsOfResult(*result));
      else
        steps.push_back({});
    }
  return steps;
}

// What a failed step is replayed with, if the kernel can be described so: its body, and the ops behind its nodes.
void HostCode::describeBody(plan::KernelOp kernel, const analysis::KernelSpec &spec, LaunchInfo &info) {
  Operation *root = kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp();
  if (auto *contract = std::get_if<ContractSpec>(&spec.work)) {
    auto op = cast<nn::ContractOp>(root);
    int64_t batch = nn::batchAxis(op.getResult());
    info.body = bodyNumber(kernelBody(loopOfContract(*contract), 4, dimOfAxis(op, *contract, batch),
                                      batch == 0 ? dimOfAxis(op, *contract, 1) : -1));
    info.operations = operationsNumber(operationsOf(kernel, {nullptr, nullptr, root, root}));
  } else if (auto *loop = std::get_if<LoopSpec>(&spec.work)) {
    std::vector<Operation *> origins = spec.origins;
    origins.resize(loop->nodes.size());
    if (loop->addAt.present)
      origins.push_back(root); // behind the last node
    int words = int(kernel.getNumOperands() + kernel.getNumResults()) + 1;
    info.body = bodyNumber(kernelBody(*loop, words, spec.batchDim, spec.positionDim, spec.examplesOfGroup));
    info.operations = operationsNumber(operationsOf(kernel, origins));
  }
}

LogicalResult HostCode::addKernel(Operation *op, bool replayed) {
  auto kernel = cast<plan::KernelOp>(op);
  auto results = cast<plan::ReturnOp>(kernel.getBody().front().getTerminator());
  Operation *root = results.getValues().front().getDefiningOp();
  size_t inputs = kernel.getNumOperands();
  std::optional<analysis::KernelSpec> spec = analysis::specOf(kernel);
  if (!spec)
    return kernel.emitError("internal error: lowering: the kernel has no spec");
  int64_t scratch = spec->scratchBytesPerThread(target);
  if (scratch > 0 && kernel.getScratch().value_or(-1) < 0)
    return kernel.emitError("internal error: lowering: no scratch was planned, ") << scratch << " bytes are needed";
  auto planned = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr);
  if (scratch > 0 && (!planned || planned.getInt() < scratch * maxThreads))
    return kernel.emitError("internal error: lowering: the kernel needs ")
           << scratch * maxThreads << " bytes of scratch, planned were " << (planned ? planned.getInt() : 0);
  Call call;
  LaunchInfo info;
  call.launch = int(launches.size());
  if (replayed)
    describeBody(kernel, *spec, info);
  OpBuilder builder(module.getContext());
  call.kernel = shared(spec->key(), [&](const std::string &name) { return spec->build(builder, module, name, target); });
  ArrayRef<int64_t> reads = *kernel.getReads(), writes = *kernel.getWrites();
  auto offsetOf = [&](int buffer) { return size_t(buffer) < inputs ? reads[buffer] : writes[buffer - inputs]; };
  const SmallVector<int> &order = spec->buffers;
  SmallVector<plan::RowBlocksOp::Steps> steps = stepsOf(kernel);
  for (int buffer : order) {
    call.words.push_back(offsetOf(buffer) + (steps.empty() ? 0 : steps[buffer].first));
    call.values.push_back(size_t(buffer) < inputs ? kernel.getInputs()[buffer] : kernel.getOutputs()[buffer - inputs]);
    if (!steps.empty())
      call.steps.push_back({steps[buffer].example, steps[buffer].position});
  }
  call.words.push_back(scratch > 0 ? int64_t(*kernel.getScratch()) : 0);
  call.words.append(spec->keys);
  if (target.isDevice() && (deviceKernels.empty() || llvm::none_of(deviceKernels, [&](auto &known) { return known.name == call.kernel; }))) {
    kernels::Grid grid = spec->grid(target);
    deviceKernels.push_back({call.kernel, grid.workers, grid.lanes, grid.block, int64_t(call.words.size())});
  }
  info.kernel = call.kernel;
  info.text = kernel.getLabel().value_or("").str();
  if (auto place = nn::userPlace(kernel.getLoc())) {
    info.file = place.getFilename().str();
    info.line = int(place.getLine());
  }
  auto bufferInfo = [&](Value value, size_t number) {
    int word = int(llvm::find(order, int(number)) - order.begin());
    return LaunchInfo::Buffer{word, analysis::elementsOf(value), analysis::elemOf(value)};
  };
  if (replayed && info.body < 0) {
    info.operations = operationsNumber(operationsOf(kernel, {root}));
    for (auto [i, value] : llvm::enumerate(kernel.getInputs()))
      if (Elem elem = analysis::elemOf(value); elem == Elem::F32 || elem == Elem::F64)
        info.inputs.push_back(bufferInfo(value, i));
    if (Value first = results.getValues().front(); nn::batchAxis(first) == 0)
      info.examples = analysis::shapeOf(first).front();
  }
  for (auto [i, value] : llvm::enumerate(results.getValues())) {
    // Where a row of attention has no key, lse is -inf and o is 0; what is wrong with lse is wrong with o, too.
    auto attend = dyn_cast<nn::AttendOp>(value.getDefiningOp());
    if (replayed && (!attend || value == attend.getO()))
      info.outputs.push_back(bufferInfo(value, inputs + i));
    // Sums at computed places that do not go on from before start from zero each time.
    bool goesOn = kernel.getAccumulates() && (*kernel.getAccumulates())[i];
    auto grad = dyn_cast<nn::AttendGradOp>(value.getDefiningOp());
    if ((isa<nn::ScatterAddOp>(value.getDefiningOp()) || (grad && value == grad.getDbias())) && !goesOn) {
      call.zeroed.push_back({writes[i], analysis::elementsOf(value) * bytesOf(analysis::elemOf(value))});
      call.zeroedValues.push_back(kernel.getOutputs()[i]);
    }
  }
  launches.push_back(std::move(info));
  launched.push_back(op);
  calls[op] = std::move(call);
  return success();
}

std::pair<int64_t, int64_t> HostCode::clearedLater(ArrayRef<std::pair<int64_t, int64_t>> ranges) {
  int64_t first = int64_t(cleared.size()) / 2;
  for (auto [offset, bytes] : ranges)
    cleared.append({offset, bytes});
  return {first, int64_t(cleared.size()) / 2};
}

LogicalResult HostCode::addKernels(func::FuncOp function) {
  bool replayed = function.getName() == nn::kTrainName || function.getName().starts_with((nn::kTrainName + "_").str());
  WalkResult walked = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    replayed = replayed && !isa<plan::GateOp>(op);
    if (auto zeroed = isa<plan::MicrobatchesOp>(op) ? op->getAttrOfType<DenseI64ArrayAttr>(kZeroedAttr) : DenseI64ArrayAttr()) {
      SmallVector<std::pair<int64_t, int64_t>> ranges;
      for (size_t i = 0; i + 1 < size_t(zeroed.size()); i += 2)
        ranges.push_back({zeroed[i], zeroed[i + 1]});
      clearedBefore[op] = clearedLater(ranges);
    }
    auto kernel = dyn_cast<plan::KernelOp>(op);
    if (!kernel || analysis::scanOf(kernel)) // a loop is the kernels in it
      return WalkResult::advance();
    return succeeded(addKernel(op, replayed)) ? WalkResult::advance() : WalkResult::interrupt();
  });
  return failure(walked.wasInterrupted());
}

// ---- Calls -------------------------------------------------------------------------------------------------------------
void HostCode::addText(StringRef symbol, StringRef text) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  Type type = LLVM::LLVMArrayType::get(builder.getI8Type(), text.size() + 1);
  LLVM::GlobalOp::create(builder, builder.getUnknownLoc(), type, true, LLVM::Linkage::External, symbol,
                         builder.getStringAttr(text + Twine('\0')));
}

namespace {
// Emits one entry point.
class EntryEmitter {
public:
  // `numbers`: how many i64 arguments follow the context.
  EntryEmitter(ModuleOp module, StringRef symbol, int entry, unsigned numbers)
      : builder(module.getContext()), loc(builder.getUnknownLoc()), module(module), entry(entry) {
    pointer = LLVM::LLVMPointerType::get(module.getContext());
    i32 = builder.getI32Type();
    i64 = builder.getI64Type();
    none = LLVM::LLVMVoidType::get(module.getContext());
    builder.setInsertionPointToEnd(module.getBody());
    SmallVector<Type> arguments{pointer};
    arguments.append(numbers, i64);
    function = LLVM::LLVMFuncOp::create(builder, loc, symbol, LLVM::LLVMFunctionType::get(none, arguments));
    Block *block = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    context = block->getArgument(0);
  }

  Value argument(unsigned at) { return function.getArgument(at + 1); } // behind the context
  void finish() { LLVM::ReturnOp::create(builder, loc, ValueRange{}); }
  Value number(Type type, int64_t value) {
    return LLVM::ConstantOp::create(builder, loc, type, builder.getIntegerAttr(type, value));
  }
  Value address(StringRef symbol) { return LLVM::AddressOfOp::create(builder, loc, pointer, symbol); }
  Value call(StringRef name, Type result, ArrayRef<Value> arguments) {
    LLVM::LLVMFuncOp &callee = callees[name]; // a look-up in the module walks all its symbols
    if (!callee)
      callee = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
    if (!callee) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToEnd(module.getBody());
      SmallVector<Type> types = llvm::map_to_vector(arguments, [](Value v) { return v.getType(); });
      callee = LLVM::LLVMFuncOp::create(builder, loc, name, LLVM::LLVMFunctionType::get(result, types));
    }
    auto op = LLVM::CallOp::create(builder, loc, callee, arguments);
    return op.getNumResults() ? op.getResult() : Value();
  }
  // A counted loop: `emit` gets the number of the pass.
  void loop(Value count, llvm::function_ref<void(Value)> emit) { loop(number(i64, 0), count, emit); }
  void loop(Value first, Value end, llvm::function_ref<void(Value)> emit) {
    Block *before = builder.getInsertionBlock();
    Block *head = newBlock();
    Value index = head->addArgument(i64, loc);
    Block *body = newBlock(), *after = newBlock();
    builder.setInsertionPointToEnd(before);
    LLVM::BrOp::create(builder, loc, ValueRange{first}, head);
    builder.setInsertionPointToEnd(head);
    Value more = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::slt, index, end);
    LLVM::CondBrOp::create(builder, loc, more, body, ValueRange{}, after, ValueRange{});
    builder.setInsertionPointToEnd(body);
    emit(index);
    Value next = LLVM::AddOp::create(builder, loc, index, number(i64, 1));
    LLVM::BrOp::create(builder, loc, ValueRange{next}, head);
    builder.setInsertionPointToEnd(after);
  }
  void when(Value condition, llvm::function_ref<void()> emit) {
    Block *before = builder.getInsertionBlock(), *then = newBlock(), *after = newBlock();
    builder.setInsertionPointToEnd(before);
    LLVM::CondBrOp::create(builder, loc, condition, then, ValueRange{}, after, ValueRange{});
    builder.setInsertionPointToEnd(then);
    emit();
    LLVM::BrOp::create(builder, loc, ValueRange{}, after);
    builder.setInsertionPointToEnd(after);
  }
  Value compare(LLVM::ICmpPredicate how, Value a, Value b) { return LLVM::ICmpOp::create(builder, loc, how, a, b); }
  // Memory on the stack for so many words, there for the whole call.
  Value stack(size_t words) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&function.getBody().front());
    return LLVM::AllocaOp::create(builder, loc, pointer, i64, number(i64, int64_t(words)));
  }
  // Words of the context stand first in it.
  Value word(size_t at) {
    Value place = LLVM::GEPOp::create(builder, loc, pointer, i64, context, ArrayRef<LLVM::GEPArg>{int32_t(at)});
    return LLVM::LoadOp::create(builder, loc, i64, place);
  }
  // The address of table[at], and what stands there.
  Value placeIn(StringRef table, Type type, Value at) {
    return LLVM::GEPOp::create(builder, loc, pointer, type, address(table), ArrayRef<LLVM::GEPArg>{at});
  }
  Value entryOf(StringRef table, Type type, Value at) {
    return LLVM::LoadOp::create(builder, loc, type, placeIn(table, type, at));
  }
  // words[at] = value
  void set(Value words, size_t at, Value value) {
    Value place = LLVM::GEPOp::create(builder, loc, pointer, i64, words, ArrayRef<LLVM::GEPArg>{int32_t(at)});
    LLVM::StoreOp::create(builder, loc, value, place);
  }
  Value plus(Value a, Value b, int64_t factor) {
    if (factor == 0)
      return a;
    return LLVM::AddOp::create(builder, loc, a, LLVM::MulOp::create(builder, loc, b, number(i64, factor)));
  }
  Block *newBlock() { return builder.createBlock(&function.getBody(), function.getBody().end()); }

  OpBuilder builder;
  Location loc;
  ModuleOp module;
  LLVM::LLVMFuncOp function;
  Type pointer, i32, i64, none;
  Value context;
  int entry;

private:
  llvm::StringMap<LLVM::LLVMFuncOp> callees;
};
} // namespace

// Emits a loop along an axis: its kernels, launched in each trip, and where their operands lie in it.
class ScanEmitter {
public:
  // `moved`: the offset of an operand or result of the loop, in the micro-batch that runs.
  ScanEmitter(EntryEmitter &e, llvm::DenseMap<Operation *, HostCode::Call> &calls, llvm::function_ref<Value(Value, int64_t)> moved)
      : e(e), calls(calls), moved(moved) {}

  void emit(plan::KernelOp kernel) {
    nn::ScanOp scan = analysis::scanOf(kernel);
    e.loop(e.number(e.i64, int64_t(scan.getTrips())), [&](Value trip) {
      trips[scan] = trip;
      for (Operation &op : scan.block().without_terminator()) {
        auto part = cast<plan::KernelOp>(op);
        analysis::scanOf(part) ? emit(part) : launch(part);
      }
    });
  }

private:
  void launch(plan::KernelOp part) {
    const HostCode::Call &call = calls[part];
    for (auto [range, value] : llvm::zip(call.zeroed, call.zeroedValues))
      e.call("cinch_zero", e.none, {e.context, offsetOf(value), e.number(e.i64, range.second)});
    Value offsets = e.stack(call.words.size());
    for (auto [i, word] : llvm::enumerate(call.words))
      e.set(offsets, i, i < call.values.size() ? offsetOf(call.values[i]) : e.number(e.i64, word));
    e.call("cinch_launch", e.none, {e.context, e.number(e.i32, call.launch), e.address(call.kernel), offsets});
  }

  // Of a value that a kernel of a loop's body reads or writes, in the trip that runs.
  Value offsetOf(Value value) {
    auto scan = cast<nn::ScanOp>(value.getParentBlock()->getParentOp());
    Value trip = trips.lookup(scan);
    if (auto result = dyn_cast<OpResult>(value)) {
      for (unsigned i = scan.getNumResults(); i-- > 0;)
        if (scan.yield()->getOperand(i) == value)
          return i < scan.carriedCount() ? slot(scan, i, trip) : part(scan, scan.getResult(i), position(scan, trip));
      return e.number(e.i64, (*cast<plan::KernelOp>(result.getOwner()).getWrites())[result.getResultNumber()]);
    }
    unsigned number = cast<BlockArgument>(value).getArgNumber();
    if (number < scan.carriedCount())
      return select(isZero(trip), ofOperand(scan, scan.getInits()[number]), behindTrip(scan, number, minusOne(trip)));
    number -= scan.carriedCount();
    if (number < scan.getSlices().size())
      return part(scan, scan.getSlices()[number], position(scan, trip));
    number -= scan.getSlices().size();
    if (number < scan.getStacks().size()) {
      Value at = position(scan, trip);
      return select(isZero(at), ofOperand(scan, scan.getFirsts()[number]), part(scan, scan.getStacks()[number], minusOne(at)));
    }
    return ofOperand(scan, scan.getWholes()[number - scan.getStacks().size()]);
  }

  // Where a trip leaves a carried value.
  Value behindTrip(nn::ScanOp scan, unsigned carried, Value trip) {
    int stack = analysis::stackOfCarried(scan, carried);
    return stack >= 0 ? part(scan, scan.getResult(unsigned(stack)), position(scan, trip)) : slot(scan, carried, trip);
  }
  // Two slots take turns; if the last value is asked for, it is left where it belongs.
  Value slot(nn::ScanOp scan, unsigned carried, Value trip) {
    ArrayRef<int64_t> slots = scan->getAttrOfType<DenseI64ArrayAttr>(kSlotsAttr);
    size_t first = 0;
    for (unsigned i = 0; i < carried; ++i)
      first += analysis::stackOfCarried(scan, i) < 0 ? 2 : 0;
    Value last = scan.getResult(carried).use_empty() ? e.number(e.i64, slots[first]) : ofOperand(scan, scan.getResult(carried));
    Value left = LLVM::SubOp::create(e.builder, e.loc, e.number(e.i64, int64_t(scan.getTrips()) - 1), trip);
    Value odd = LLVM::AndOp::create(e.builder, e.loc, left, e.number(e.i64, 1));
    return select(isZero(odd), last, e.number(e.i64, slots[first + 1]));
  }
  // Part number `at` of a stacked operand or result.
  Value part(nn::ScanOp scan, Value stacked, Value at) {
    auto type = nn::tensorOf(stacked);
    int64_t bytes = type.getNumElements() / int64_t(scan.getTrips()) * std::max<int64_t>(8, type.getElementTypeBitWidth()) / 8;
    return e.plus(ofOperand(scan, stacked), at, bytes);
  }
  // An operand or result of the loop, as the kernel that it is has it.
  Value ofOperand(nn::ScanOp scan, Value value) {
    auto kernel = cast<plan::KernelOp>(scan->getParentOp());
    bool nested = isa<nn::ScanOp>(kernel->getParentOp());
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      unsigned number = argument.getArgNumber();
      return nested ? offsetOf(kernel.getInputs()[number]) : moved(kernel.getInputs()[number], (*kernel.getReads())[number]);
    }
    auto returned = kernel.getBody().front().getTerminator()->getOperands();
    unsigned number = unsigned(llvm::find(returned, value) - returned.begin());
    return nested ? offsetOf(kernel.getResult(number)) : moved(kernel.getResult(number), (*kernel.getWrites())[number]);
  }
  Value position(nn::ScanOp scan, Value trip) {
    if (!scan.getReverse())
      return trip;
    return LLVM::SubOp::create(e.builder, e.loc, e.number(e.i64, int64_t(scan.getTrips()) - 1), trip);
  }
  Value minusOne(Value x) { return LLVM::SubOp::create(e.builder, e.loc, x, e.number(e.i64, 1)); }
  Value isZero(Value x) { return LLVM::ICmpOp::create(e.builder, e.loc, LLVM::ICmpPredicate::eq, x, e.number(e.i64, 0)); }
  Value select(Value condition, Value a, Value b) { return LLVM::SelectOp::create(e.builder, e.loc, condition, a, b); }

  EntryEmitter &e;
  llvm::DenseMap<Operation *, HostCode::Call> &calls;
  llvm::function_ref<Value(Value, int64_t)> moved;
  llvm::DenseMap<Operation *, Value> trips; // of the loops that run
};

// Row l of the table of launches, whose number for the runtime is l: its kernel, where its offsets begin, and which ranges are
// cleared first.
enum LaunchColumn { kKernel, kWords, kClearedFirst, kClearedEnd, kColumns };

static void addTable(ModuleOp module, StringRef symbol, Type type, Attribute value) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  LLVM::GlobalOp::create(builder, builder.getUnknownLoc(), type, true, LLVM::Linkage::Internal, symbol, value);
}

template <typename Integer> static void addTable(ModuleOp module, StringRef symbol, ArrayRef<Integer> numbers) {
  Type type = IntegerType::get(module.getContext(), 8 * sizeof(Integer));
  addTable(module, symbol, LLVM::LLVMArrayType::get(type, numbers.size()),
           DenseElementsAttr::get(RankedTensorType::get({int64_t(numbers.size())}, type), numbers));
}

// A table of the addresses of globals; attributes name functions only.
static void addAddresses(ModuleOp module, StringRef symbol, ArrayRef<Attribute> symbols) {
  OpBuilder b(module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  Location loc = b.getUnknownLoc();
  auto pointer = LLVM::LLVMPointerType::get(module.getContext());
  Type type = LLVM::LLVMArrayType::get(pointer, symbols.size());
  auto table = LLVM::GlobalOp::create(b, loc, type, true, LLVM::Linkage::Internal, symbol, Attribute());
  b.createBlock(&table.getInitializerRegion());
  Value array = LLVM::UndefOp::create(b, loc, type);
  for (auto [i, name] : llvm::enumerate(symbols))
    array = LLVM::InsertValueOp::create(b, loc, array, LLVM::AddressOfOp::create(b, loc, pointer, cast<FlatSymbolRefAttr>(name).getValue()), int64_t(i));
  LLVM::ReturnOp::create(b, loc, ValueRange{array});
}

void HostCode::addTables() {
  for (auto [number, kernel] : llvm::enumerate(deviceKernels))
    addTable<int64_t>(module, kernel.name, {int64_t(number), kernel.blocks(), kernel.block, kernel.words});
  std::vector<int64_t> words;
  std::vector<int32_t> rows;
  llvm::StringMap<int> numbers;
  SmallVector<Attribute> kernels;
  for (Operation *op : launched) {
    const Call &call = calls[op];
    auto [kernel, fresh] = numbers.try_emplace(call.kernel, int(kernels.size()));
    if (fresh)
      kernels.push_back(FlatSymbolRefAttr::get(module.getContext(), call.kernel));
    auto [first, end] = clearedLater(call.zeroed);
    rows.insert(rows.end(), {kernel->second, int32_t(words.size()), int32_t(first), int32_t(end)});
    words.insert(words.end(), call.words.begin(), call.words.end());
  }
  if (cleared.empty())
    cleared.append({0, 0}); // a table has at least one row
  if (target.isDevice())
    addAddresses(module, "kernels", kernels);
  else
    addTable(module, "kernels", LLVM::LLVMArrayType::get(LLVM::LLVMPointerType::get(module.getContext()), kernels.size()),
             ArrayAttr::get(module.getContext(), kernels));
  addTable<int32_t>(module, "launches", rows);
  addTable<int64_t>(module, "offsets", words);
  addTable<int64_t>(module, "cleared", cleared);

  EntryEmitter c(module, "clear_ranges", 0, 2); // first, end
  c.function.setLinkage(LLVM::Linkage::Internal);
  c.loop(c.argument(0), c.argument(1), [&](Value range) {
    Value at = c.plus(c.number(c.i64, 0), range, 2);
    Value behind = c.plus(at, c.number(c.i64, 1), 1);
    c.call("cinch_zero", c.none, {c.context, c.entryOf("cleared", c.i64, at), c.entryOf("cleared", c.i64, behind)});
  });
  c.finish();
  EntryEmitter l(module, "launch_rows", 0, 2); // first, end
  l.function.setLinkage(LLVM::Linkage::Internal);
  l.loop(l.argument(0), l.argument(1), [&](Value row) {
    auto column = [&](LaunchColumn column) {
      Value at = l.plus(l.number(l.i64, column), row, kColumns);
      return LLVM::SExtOp::create(l.builder, l.loc, l.i64, l.entryOf("launches", l.i32, at)).getResult();
    };
    l.call("clear_ranges", l.none, {l.context, column(kClearedFirst), column(kClearedEnd)});
    l.call("cinch_launch", l.none,
           {l.context, LLVM::TruncOp::create(l.builder, l.loc, l.i32, row), l.entryOf("kernels", l.pointer, column(kKernel)),
            l.placeIn("offsets", l.i64, column(kWords))});
  });
  l.finish();
}

// Copies of what waits from one part of the loop body to a later one: micro-batch k has its own `stride` bytes times (k mod count) behind
// the first.
namespace {
struct Copies {
  int64_t count = 1, stride = 0;
};
} // namespace

static Copies copiesOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto rows = dyn_cast<plan::RowBlocksOp>(argument.getOwner()->getParentOp());
    return rows ? copiesOf(rows.getRows()[argument.getArgNumber()]) : Copies();
  }
  auto result = cast<OpResult>(value);
  if (auto rows = dyn_cast<plan::RowBlocksOp>(result.getOwner()))
    return copiesOf(rows.getBody().front().getTerminator()->getOperand(result.getResultNumber()));
  auto copies = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr);
  if (!copies || copies[result.getResultNumber()] == 1)
    return {};
  Value whole = value; // rows of one block: of all
  if (auto rows = dyn_cast<plan::RowBlocksOp>(result.getOwner()->getParentOp()))
    if (auto filled = rows.resultFilledBy(value))
      whole = rows.getResult(*filled);
  int64_t bytes = analysis::elementsOf(whole) * bytesOf(analysis::elemOf(whole));
  return {copies[result.getResultNumber()], (bytes + 63) / 64 * 64};
}

// Emits the body of an entry point.
class BodyEmitter {
public:
  BodyEmitter(HostCode &host, EntryEmitter &e, bool counted) : host(host), e(e), b(e.builder), counted(counted) {}

  void emit(Block &block) { emit(block.begin(), block.end()); }
  void finish() {
    if (!end)
      return;
    LLVM::BrOp::create(b, e.loc, ValueRange{}, end);
    b.setInsertionPointToEnd(end);
  }

private:
  void emit(Block::iterator from, Block::iterator to) {
    for (Operation &op : llvm::make_range(from, to)) {
      if (auto kernel = dyn_cast<plan::KernelOp>(op); kernel && !analysis::scanOf(kernel) && !isMoved(kernel)) {
        int64_t launch = host.calls[&op].launch;
        if (launch != behind) {
          launchAll();
          first = launch;
        }
        behind = launch + 1;
        continue;
      }
      launchAll();
      emit(op);
    }
    launchAll();
  }

  void emit(Operation &op) {
    if (auto kernel = dyn_cast<plan::KernelOp>(op)) {
      if (analysis::scanOf(kernel))
        ScanEmitter(e, host.calls, [&](Value value, int64_t offset) { return moved(value, e.number(e.i64, offset)); }).emit(kernel);
      else
        launchMoved(kernel);
    } else if (auto loop = dyn_cast<plan::MicrobatchesOp>(op)) {
      emitLoop(loop);
    } else if (auto rows = dyn_cast<plan::RowBlocksOp>(op)) {
      emitRows(rows);
    } else if (auto send = dyn_cast<plan::SendOp>(op)) {
      message("cinch_send", send.getChannel(), send.getValue(), send.getReads()->front());
    } else if (auto receive = dyn_cast<plan::ReceiveOp>(op)) {
      message("cinch_receive", receive.getChannel(), receive.getValue(), receive.getWrites()->front());
    } else if (isa<plan::ResultsOp>(op) && isa<plan::MicrobatchesOp>(op.getParentOp())) {
      e.call("cinch_emit", e.none, {e.context, e.number(e.i32, e.entry), index});
    } else if (isa<plan::GateOp>(op)) {
      emitGate();
    }
  }

  void launchAll() {
    if (first < behind)
      e.call("launch_rows", e.none, {e.context, e.number(e.i64, first), e.number(e.i64, behind)});
    first = behind;
  }

  // Are there operands or results that lie elsewhere in each block of rows, or in each micro-batch?
  static bool isMoved(plan::KernelOp kernel) {
    auto waits = [](Value value) { return copiesOf(value).count > 1; };
    return isa<plan::RowBlocksOp>(kernel->getParentOp()) || llvm::any_of(kernel.getInputs(), waits) ||
           llvm::any_of(kernel.getOutputs(), waits);
  }

  // The offset of a value in the micro-batch that runs.
  Value moved(Value value, Value offset) {
    Copies copies = copiesOf(value);
    if (copies.count == 1)
      return offset;
    Value copy = LLVM::SRemOp::create(b, e.loc, index, e.number(e.i64, copies.count));
    return e.plus(offset, copy, copies.stride);
  }

  void launchMoved(plan::KernelOp kernel) {
    auto rows = dyn_cast<plan::RowBlocksOp>(kernel->getParentOp());
    const HostCode::Call &call = host.calls[kernel];
    for (auto [range, value] : llvm::zip(call.zeroed, call.zeroedValues))
      e.call("cinch_zero", e.none, {e.context, moved(value, e.number(e.i64, range.first)), e.number(e.i64, range.second)});
    Value offsets = e.stack(call.words.size());
    for (auto [i, word] : llvm::enumerate(call.words)) {
      auto [perExample, perPosition] = i < call.steps.size() ? call.steps[i] : std::pair<int64_t, int64_t>();
      Value offset = e.number(e.i64, word);
      if (i < call.values.size())
        offset = moved(call.values[i], offset);
      if (rows)
        offset = e.plus(e.plus(offset, example, perExample * int64_t(rows.getExamples())), position,
                        perPosition * int64_t(rows.getPositions()));
      e.set(offsets, i, offset);
    }
    e.call("cinch_launch", e.none, {e.context, e.number(e.i32, call.launch), e.address(call.kernel), offsets});
  }

  void emitRows(plan::RowBlocksOp rows) {
    int64_t inExample = int64_t(rows.getOf() / rows.getPositions()); // blocks of one example
    // Draws are numbered by example and position, and a number that is not finite is reported with its example.
    Value firstExample = e.word(kFirstExample);
    e.loop(e.number(e.i64, int64_t(rows.getCount())), [&](Value pass) {
      Value blocks = e.number(e.i64, inExample);
      example = LLVM::SDivOp::create(b, e.loc, pass, blocks);
      position = LLVM::SRemOp::create(b, e.loc, pass, blocks);
      e.set(e.context, kFirstExample, e.plus(firstExample, example, int64_t(rows.getExamples())));
      e.set(e.context, kFirstPosition, e.plus(e.number(e.i64, 0), position, int64_t(rows.getPositions())));
      emit(rows.getBody().front());
    });
    e.set(e.context, kFirstExample, firstExample);
    e.set(e.context, kFirstPosition, e.number(e.i64, 0));
  }

  void emitLoop(plan::MicrobatchesOp loop) {
    if (auto ranges = host.clearedBefore.lookup(loop); ranges.first < ranges.second)
      e.call("clear_ranges", e.none, {e.context, e.number(e.i64, ranges.first), e.number(e.i64, ranges.second)});
    Value count = counted ? e.argument(0) : e.number(e.i64, int64_t(loop.getCount()));
    if (loop.getLags() && counted)
      return emitLags(loop, count);
    if (loop.getActions())
      return emitActions(loop);
    e.loop(count, [&](Value pass) { emitPart(loop, 0, pass, loop.getBody().front().begin(), loop.getBody().front().end()); });
  }

  // A part of the loop body for one micro-batch.
  void emitPart(plan::MicrobatchesOp loop, int, Value microbatch, Block::iterator from, Block::iterator to) {
    index = microbatch;
    auto isData = [](Value value) {
      auto argument = dyn_cast<BlockArgument>(value);
      auto function = argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : func::FuncOp();
      return function && (function.getArgAttr(argument.getArgNumber(), nn::kFieldAttr) ||
                          function.getArgAttr(argument.getArgNumber(), nn::kValidRowsAttr));
    };
    bool readsData = !loop.getActions(); // a whole body fills what it has
    for (Operation &op : llvm::make_range(from, to))
      op.walk([&](Operation *inner) { readsData |= llvm::any_of(inner->getOperands(), isData); });
    if (readsData)
      e.call("cinch_fill", e.none, {e.context, e.number(e.i32, e.entry), index});
    else
      e.set(e.context, kFirstExample, e.plus(e.number(e.i64, 0), index, int64_t(loop.getSize())));
    emit(from, to);
    index = {};
  }

  using Part = std::pair<Block::iterator, Block::iterator>;
  static SmallVector<Part> partsOf(plan::MicrobatchesOp loop) {
    Block &body = loop.getBody().front();
    SmallVector<Part> parts{{body.begin(), body.end()}};
    for (Operation &op : body)
      if (isa<plan::PartOp>(op)) {
        parts.back().second = op.getIterator();
        parts.push_back({std::next(op.getIterator()), body.end()});
      }
    return parts;
  }

  // The worker goes through its list of actions.
  void emitActions(plan::MicrobatchesOp loop) {
    ArrayRef<int64_t> actions = *loop.getActions();
    std::string table = (e.function.getName() + "_actions").str();
    addTable<int64_t>(e.module, table, actions);
    SmallVector<Part> parts = partsOf(loop);
    e.loop(e.number(e.i64, int64_t(actions.size() / 2)), [&](Value row) {
      Value at = e.plus(e.number(e.i64, 0), row, 2);
      Value part = e.entryOf(table, e.i64, at), microbatch = e.entryOf(table, e.i64, e.plus(at, e.number(e.i64, 1), 1));
      for (auto [number, range] : llvm::enumerate(parts))
        e.when(e.compare(LLVM::ICmpPredicate::eq, part, e.number(e.i64, int64_t(number))),
               [&] { emitPart(loop, int(number), microbatch, range.first, range.second); });
    });
  }

  // Part i runs lags[i] micro-batches behind the first.
  void emitLags(plan::MicrobatchesOp loop, Value count) {
    ArrayRef<int64_t> lags = *loop.getLags();
    SmallVector<Part> parts = partsOf(loop);
    Value none = e.number(e.i64, 0), ticks = e.plus(count, e.number(e.i64, lags.back()), 1);
    e.loop(ticks, [&](Value tick) {
      for (auto [number, range] : llvm::enumerate(parts)) {
        Value microbatch = LLVM::SubOp::create(b, e.loc, tick, e.number(e.i64, lags[number]));
        Value begun = e.compare(LLVM::ICmpPredicate::sge, microbatch, none);
        Value left = e.compare(LLVM::ICmpPredicate::slt, microbatch, count);
        e.when(LLVM::AndOp::create(b, e.loc, begun, left),
               [&] { emitPart(loop, int(number), microbatch, range.first, range.second); });
      }
    });
  }

  void message(StringRef call, uint64_t channel, Value value, int64_t offset) {
    e.call(call, e.none, {e.context, e.number(e.i32, int64_t(channel)), moved(value, e.number(e.i64, offset))});
  }

  void emitGate() {
    Value open = e.call("cinch_gate", e.i32, {e.context});
    Value good = e.compare(LLVM::ICmpPredicate::ne, open, e.number(e.i32, 0));
    Block *here = b.getInsertionBlock(), *update = e.newBlock();
    if (!end)
      end = e.newBlock();
    b.setInsertionPointToEnd(here);
    LLVM::CondBrOp::create(b, e.loc, good, update, ValueRange{}, end, ValueRange{});
    b.setInsertionPointToEnd(update);
  }

  HostCode &host;
  EntryEmitter &e;
  OpBuilder &b;
  bool counted;
  Block *end = nullptr;           // where a closed gate leads
  Value index, example, position; // of the micro-batch; of the block of rows, in blocks
  int64_t first = 0, behind = 0;  // launches that are still to be called
};

void HostCode::addFunction(func::FuncOp function, StringRef symbol, int entry, bool counted) {
  EntryEmitter e(module, symbol, entry, counted ? 1 : 0);
  BodyEmitter body(*this, e, counted);
  body.emit(function.getBody().front());
  body.finish();
  e.finish();
}

void HostCode::addEntry(ArrayRef<func::FuncOp> functions, StringRef symbol, int entry, bool counted) {
  if (functions.size() == 1)
    return addFunction(functions.front(), symbol, entry, counted);
  auto nameOf = [&](size_t worker) { return (symbol + "_" + Twine(worker)).str(); };
  for (auto [worker, function] : llvm::enumerate(functions))
    addFunction(function, nameOf(worker), entry, counted);
  EntryEmitter e(module, symbol, entry, counted ? 1 : 0);
  Value mine = e.word(kWorker);
  SmallVector<Value> arguments{e.context};
  if (counted)
    arguments.push_back(e.argument(0));
  for (size_t worker = 0; worker < functions.size(); ++worker)
    e.when(e.compare(LLVM::ICmpPredicate::eq, mine, e.number(e.i64, int64_t(worker))),
           [&] { e.call(nameOf(worker), e.none, arguments); });
  e.finish();
}

} // namespace cinch
