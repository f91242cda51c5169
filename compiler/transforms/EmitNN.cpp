// EmitNN.cpp: Program -> nn, one op each, made from the table, but for two: a power with a constant exponent is products or
// roots where it can be, and a constant that is repeated along axes or reshaped is a constant.
#include "compiler/transforms/EmitNN.h"
#include "compiler/transforms/EmitTraining.h"
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Reversible.h"
#include "dialects/nn/Scan.h"
#include "dialects/nn/Shards.h"
#include "dialects/nn/Versions.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

#include <set>

using namespace mlir;

namespace cinch {

namespace {

class Emitter {
public:
  Emitter(MLIRContext &context, const Program &program, const SourceList &sources)
      : program(program), sources(sources), builder(&context) {}

  OwningOpRef<ModuleOp> run();

private:
  RankedTensorType type(TensorType type) {
    if (type.dtype == DType::F32 && program.train.f64)
      type.dtype = DType::F64;
    return nn::typeOf(type, builder.getContext());
  }
  Location location(Span span, StringRef path, int instance = -1);
  void nameOps(const Op &op, ArrayRef<Operation *> made);
  int calledFrom(int instance) const;

  func::FuncOp openFunction(StringRef name, bool withValidRows);
  LogicalResult emitOps(const Graph &graph, int loop, nn::GradientBuilder &b);
  LogicalResult emitLoop(const Graph &graph, int loop, int result);
  void noteRounded(const Graph &graph, nn::ScanOp scan, ArrayRef<int> finals, ArrayRef<int> stacks);
  Value emitOp(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x);
  void noteHints(const Op &op, int64_t number, ArrayRef<Operation *> made, Value result);
  void noteUserHints(const Op &op, int64_t number, Operation *last);
  LogicalResult emitFunction(StringRef name, const Graph &graph, ArrayRef<NamedValue> results, bool withValidRows);

  const Program &program;
  const SourceList &sources;
  OpBuilder builder;
  ModuleOp module;
  func::FuncOp function;
  SmallVector<int> home;      // of the ops of the graph: the innermost loop that they belong to; -1: none
  SmallVector<Value> values;  // of the ops of the graph
};

} // namespace

// Text of the prelude also gets the place in the user's file from which its instance was reached.
Location Emitter::location(Span span, StringRef path, int instance) {
  auto placeOf = [&](Span at) -> Location {
    if (!sources.valid(at))
      return FileLineColLoc::get(builder.getStringAttr("cinch"), 0, 0);
    std::string_view name = sources.name(at.file);
    LineColumn place = sources.locate(at);
    return FileLineColLoc::get(builder.getStringAttr(StringRef(name.data(), name.size())), place.line, place.column);
  };
  Location inFile = placeOf(span);
  if (int caller = span.file == 0 ? calledFrom(instance) : -1; caller >= 0)
    inFile = CallSiteLoc::get(inFile, placeOf(program.instances[caller].use));
  return path.empty() ? inFile : Location(NameLoc::get(builder.getStringAttr(path), inFile));
}

// The instance that the user's own text calls, of those that lead to `instance`; -1: none.
int Emitter::calledFrom(int instance) const {
  int count = int(program.instances.size());
  while (instance >= 0 && instance < count && program.instances[instance].use.file == 0)
    instance = program.instances[instance].parent;
  return instance >= 0 && instance < count && program.instances[instance].use.file > 0 ? instance : -1;
}

// What several ops are made for is called as it is written; an op of the prelude is told by the layer that the user wrote.
void Emitter::nameOps(const Op &op, ArrayRef<Operation *> made) {
  std::string written = op.kind == OpKind::Pow ? "^" : op.written;
  int caller = op.span.file == 0 ? calledFrom(op.instance) : -1;
  std::string inside = caller >= 0 ? " in " + program.instances[caller].layer : "";
  if (written.empty() && inside.empty())
    return;
  for (Operation *each : made)
    each->setLoc(nn::called(each->getLoc(), (written.empty() ? nn::nameOf(each) : written) + inside));
}

func::FuncOp Emitter::openFunction(StringRef name, bool withValidRows) {
  SmallVector<Type> types;
  SmallVector<Location> places;
  SmallVector<DictionaryAttr> attributes;
  for (const Parameter &parameter : program.parameters) {
    types.push_back(type(parameter.type));
    places.push_back(location(parameter.span, parameter.path));
    attributes.push_back(parameterAttributes(builder, program, parameter));
  }
  const Dataset &dataset = program.datasets[program.train.dataset];
  for (auto [i, field] : llvm::enumerate(dataset.fields)) {
    types.push_back(type(field.type));
    places.push_back(location(field.span, field.name));
    attributes.push_back(
        builder.getDictionaryAttr({builder.getNamedAttr(nn::kFieldAttr, builder.getI64IntegerAttr(i)),
                                   builder.getNamedAttr(nn::kNameAttr, builder.getStringAttr(field.name))}));
  }
  if (withValidRows) {
    types.push_back(nn::tensorType({program.batch}, builder.getI1Type(), 0));
    places.push_back(location(Span(), "valid"));
    attributes.push_back(builder.getDictionaryAttr(builder.getNamedAttr(nn::kValidRowsAttr, builder.getUnitAttr())));
  }
  builder.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(builder, location(program.datasets[program.train.dataset].span, ""), name,
                                       builder.getFunctionType(types, {}));
  Block *block = &function.getBody().emplaceBlock();
  for (auto [type, place] : llvm::zip_equal(types, places))
    block->addArgument(type, place);
  function.setAllArgAttrs(attributes); // one by one, each would write the list of all anew
  builder.setInsertionPointToEnd(block);
  return function;
}

Value Emitter::emitOp(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x) {
  switch (op.kind) {
  case OpKind::Parameter: return function.getArgument(op.integer(Key::Index));
  case OpKind::Field: return function.getArgument(program.parameters.size() + op.integer(Key::Index));
  case OpKind::ValidRows: return function.getArguments().back();
  case OpKind::Constant: return b.constant(type(op.type), op.number(Key::Number));
  case OpKind::Broadcast:
  case OpKind::Reshape:
    if (auto number = nn::splatNumber(x[0]))
      return b.constant(type(op.type), *number);
    break;
  case OpKind::Pow:
    if (auto exponent = nn::splatNumber(x[1]))
      return b.power(x[0], *exponent);
    break;
  default: break;
  }
  return b.make(op.kind, x, op.attributes, type(op.type))->getResult(0);
}

void Emitter::noteHints(const Op &op, int64_t number, ArrayRef<Operation *> made, Value result) {
  if (op.block >= 0)
    for (Operation *each : made)
      each->setAttr(nn::kBlockAttr, builder.getI64IntegerAttr(op.block));
  if (program.train.bf16 && op.span.file == 0)
    for (Operation *each : made)
      each->setAttr(nn::kLayerAttr, builder.getI64IntegerAttr(op.instance));
  Operation *last = result.getDefiningOp();
  if (!last)
    return;
  if (program.train.bf16 && op.named && op.stream < 0 && op.type.dtype == DType::F32 && !nn::splatNumber(result))
    last->setAttr(nn::kRoundedAttr, builder.getUnitAttr());
  if (op.blockEnd)
    last->setAttr(nn::kBlockEndAttr, builder.getUnitAttr());
  if (op.stream >= 0)
    last->setAttr(nn::kStreamAttr, builder.getI64IntegerAttr(op.stream));
  noteUserHints(op, number, last);
}

// What the user's text says before the definition of a value.
void Emitter::noteUserHints(const Op &op, int64_t number, Operation *last) {
  if (op.keep)
    last->setAttr(nn::kKeepAttr, builder.getUnitAttr());
  if (op.recompute)
    last->setAttr(nn::kRecomputeAttr, builder.getUnitAttr());
  if (op.shard)
    last->setAttr(nn::kShardHintAttr, builder.getI64IntegerAttr(*op.shard));
  if (op.endsStage)
    last->setAttr(nn::kStageAttr, builder.getDenseI64ArrayAttr({*op.endsStage, number}));
}

// An op belongs to the loops whose states or slices it is computed from. Inner loops have larger numbers.
static SmallVector<int> homesOf(const Graph &graph) {
  SmallVector<int> homes;
  std::vector<std::set<int>> loops;
  for (const Op &op : graph.ops) {
    std::set<int> in;
    for (int operand : op.operands)
      if (operand >= 0)
        in.insert(loops[operand].begin(), loops[operand].end());
    if (op.kind == OpKind::LoopState || op.kind == OpKind::LoopSlice)
      in.insert(int(op.integer(Key::Index)));
    else if (op.kind == OpKind::LoopStack || op.kind == OpKind::LoopFinal)
      in.erase(int(op.integer(Key::Index)));
    homes.push_back(in.empty() ? -1 : *in.rbegin());
    loops.push_back(std::move(in));
  }
  return homes;
}

// x with its axes permuted, where what computes x can give them so: a product labels its result otherwise, and sums of products and of what
// is repeated follow. Null: it cannot. No bit depends on the order of the axes of a result.
static Value withAxes(Value x, ArrayRef<int64_t> order, OpBuilder &builder) {
  Operation *op = x.getDefiningOp();
  if (!op || !x.hasOneUse())
    return {};
  auto type = nn::tensorOf(x);
  SmallVector<int64_t> place(order.size()), shape;
  int64_t batch = -1;
  for (auto [i, axis] : llvm::enumerate(order)) {
    place[axis] = int64_t(i);
    shape.push_back(type.getDimSize(unsigned(axis)));
    if (axis == nn::batchAxis(type))
      batch = int64_t(i);
  }
  auto permuted = nn::tensorType(shape, type.getElementType(), batch, nn::batchGroup(type));
  auto moved = [&](ArrayRef<int64_t> labels) {
    return llvm::map_to_vector(labels, [&](int64_t label) { return label < int64_t(place.size()) ? place[label] : label; });
  };
  if (op->hasAttr(nn::kRoundedAttr)) // a definition
    return {};
  Value made;
  if (auto contract = dyn_cast<nn::ContractOp>(op))
    made = nn::ContractOp::create(builder, op->getLoc(), permuted, contract.getLhs(), contract.getRhs(), moved(contract.getLhsLabels()),
                                  moved(contract.getRhsLabels()));
  else if (auto broadcast = dyn_cast<nn::BroadcastOp>(op)) {
    SmallVector<int64_t> axes = moved(broadcast.getAxes());
    made = llvm::is_sorted(axes) ? nn::BroadcastOp::create(builder, op->getLoc(), permuted, broadcast.getX(), axes) : Value();
  } else if (auto add = dyn_cast<nn::AddOp>(op)) {
    Value a = withAxes(add.getA(), order, builder), b = a ? withAxes(add.getB(), order, builder) : Value();
    made = b ? nn::AddOp::create(builder, op->getLoc(), a, b) : Value();
  }
  for (StringRef said : {nn::kLayerAttr, nn::kKeepAttr, nn::kRecomputeAttr, nn::kStageAttr, nn::kShardHintAttr})
    if (Attribute value = made ? op->getAttr(said) : Attribute())
      made.getDefiningOp()->setAttr(said, value);
  return made;
}

// Which results of the loop are rounded.
void Emitter::noteRounded(const Graph &graph, nn::ScanOp scan, ArrayRef<int> finals, ArrayRef<int> stacks) {
  SmallVector<int64_t> results;
  for (ArrayRef<int> list : {finals, stacks})
    for (int number : list)
      if (const Op &op = graph.ops[number]; program.train.bf16 && op.named && op.type.dtype == DType::F32) {
        auto result = dyn_cast_or_null<OpResult>(values[number]);
        if (result && result.getOwner() == scan)
          results.push_back(result.getResultNumber());
        else if (result)
          result.getOwner()->setAttr(nn::kRoundedAttr, builder.getUnitAttr());
      }
  if (!results.empty())
    scan->setAttr(nn::kRoundedAttr, builder.getDenseI64ArrayAttr(results));
}

// The loop whose results op number `result` and others are, with all that belongs to it.
LogicalResult Emitter::emitLoop(const Graph &graph, int loop, int result) {
  const Op &first = graph.ops[result];
  nn::ScanParts parts;
  parts.trips = first.integer(Key::Trips);
  auto block = std::make_unique<Block>();
  SmallVector<int> places; // of the carried values among the states
  for (OpKind kind : {OpKind::LoopState, OpKind::LoopSlice})
    for (auto [number, op] : llvm::enumerate(graph.ops)) {
      if (op.kind != kind || op.integer(Key::Index) != loop)
        continue;
      values[number] = block->addArgument(type(op.type), location(op.span, ""));
      Value operand = values[op.operands[0]];
      if (auto transpose = operand.getDefiningOp<nn::TransposeOp>(); transpose && kind == OpKind::LoopSlice)
        if (Value straight = withAxes(transpose.getX(), transpose.getPermutation(), builder))
          operand = straight;
      (kind == OpKind::LoopState ? parts.inits : parts.slices).push_back(operand);
      if (kind == OpKind::LoopState)
        places.push_back(int(op.integer(Key::Place)));
    }
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(block.get());
    nn::GradientBuilder inner(builder);
    if (failed(emitOps(graph, loop, inner)))
      return failure();
    for (Operation *op : llvm::reverse(inner.made())) // scalars that went into constants, and what only the types needed
      if (op->use_empty() && llvm::none_of(first.operands, [&](int operand) { return values[operand].getDefiningOp() == op; }))
        op->erase();
  }
  for (int place : places)
    parts.yields.push_back(values[first.operands[place]]);
  SmallVector<int> finals, stacks;
  for (auto [number, op] : llvm::enumerate(graph.ops)) {
    if ((op.kind != OpKind::LoopStack && op.kind != OpKind::LoopFinal) || op.integer(Key::Index) != loop)
      continue;
    bool isFinal = op.kind == OpKind::LoopFinal;
    if (isFinal)
      finals.push_back(int(number));
    if (!isFinal || !llvm::is_contained(places, int(op.integer(Key::Place))))
      stacks.push_back(int(number));
  }
  for (int number : stacks)
    parts.yields.push_back(values[graph.ops[number].operands[graph.ops[number].integer(Key::Place)]]);
  nn::ScanOp scan = nn::createScan(builder, location(first.span, program.instances[first.instance].path, first.instance), parts,
                                   block.release());
  scan = nn::hoistProducts(nn::splitSharedWork(scan));
  if (first.block >= 0)
    scan->setAttr(nn::kBlockAttr, builder.getI64IntegerAttr(first.block));
  for (auto [i, number] : llvm::enumerate(stacks))
    if (graph.ops[number].kind == OpKind::LoopStack)
      values[number] = scan.stackedResult(unsigned(i));
  for (int number : finals) {
    // A state that nothing in the loop reads is not carried; after the last trip it is the last of the stack.
    const int *place = llvm::find(places, int(graph.ops[number].integer(Key::Place)));
    if (place != places.end()) {
      values[number] = scan.getResult(unsigned(place - places.begin()));
      continue;
    }
    Value all = scan.stackedResult(unsigned(llvm::find(stacks, number) - stacks.begin()));
    auto i64 = [&](int64_t n) { return builder.getI64IntegerAttr(n); };
    Value last = nn::SliceOp::create(builder, scan.getLoc(), all, i64(0), i64(parts.trips - 1), i64(parts.trips));
    values[number] = nn::ReshapeOp::create(builder, scan.getLoc(), type(graph.ops[number].type), last);
  }
  noteRounded(graph, scan, finals, stacks);
  for (ArrayRef<int> list : {ArrayRef<int>(finals), ArrayRef<int>(stacks)})
    for (int number : list)
      if (values[number])
        noteUserHints(graph.ops[number], number, values[number].getDefiningOp());
  return success();
}

LogicalResult Emitter::emitOps(const Graph &graph, int loop, nn::GradientBuilder &b) {
  for (auto [number, op] : llvm::enumerate(graph.ops)) {
    if (home[number] != loop || values[number])
      continue;
    if (op.kind == OpKind::LoopStack || op.kind == OpKind::LoopFinal) {
      if (failed(emitLoop(graph, int(op.integer(Key::Index)), int(number))))
        return failure();
      continue;
    }
    SmallVector<Value> operands;
    for (int operand : op.operands)
      operands.push_back(operand < 0 ? Value() : values[operand]);
    Location place = location(op.span, program.instances.empty() ? "" : program.instances[op.instance].path, op.instance);
    b.setLocation(place);
    size_t firstMade = b.made().size();
    Value result = emitOp(op, b, operands);
    if (!result || result.getType() != type(op.type)) {
      auto error = emitError(place) << "internal error: op " << number << " of @" << function.getName() << " should be "
                                    << type(op.type);
      if (result)
        error << ", and is " << result.getType();
      return failure();
    }
    nameOps(op, b.made().drop_front(firstMade));
    noteHints(op, int64_t(number), b.made().drop_front(firstMade), result);
    values[number] = result;
  }
  return success();
}

LogicalResult Emitter::emitFunction(StringRef name, const Graph &graph, ArrayRef<NamedValue> results,
                                    bool withValidRows) {
  function = openFunction(name, withValidRows);
  nn::GradientBuilder b(builder);
  SmallVector<Value> returned;
  home = homesOf(graph);
  values.assign(graph.ops.size(), Value());
  if (failed(emitOps(graph, -1, b)))
    return failure();
  SmallVector<Attribute> names;
  auto hand = [&](Value value, StringRef attribute, StringRef called) {
    returned.push_back(value);
    names.push_back(builder.getDictionaryAttr(builder.getNamedAttr(attribute, builder.getStringAttr(called))));
  };
  for (const NamedValue &result : results)
    hand(values[result.op], nn::kNameAttr, result.name);
  if (name == nn::kStepName)
    for (const StateUpdate &update : program.updates) {
      const Parameter &state = program.parameters[update.parameter];
      b.setLocation(location(state.span, state.path));
      Value value = values[update.op];
      if (isa<BlockArgument>(value)) // what may be overwritten first is copied (Formation::readTooLate)
        value = b.make<nn::StopGradientOp>(value);
      hand(b.make<nn::NewStateOp>(builder.getStringAttr(state.path), value), nn::kPathAttr, state.path);
    }
  func::ReturnOp::create(builder, function.getLoc(), returned);
  function.setFunctionType(builder.getFunctionType(function.getArgumentTypes(), ValueRange(returned).getTypes()));
  if (!names.empty())
    function.setResAttrsAttr(builder.getArrayAttr(names));
  for (Operation *op : llvm::reverse(b.made())) // scalars that went into constants
    if (op->use_empty())
      op->erase();
  if (name == nn::kStepName) // its fields are the data set that training checks as a whole
    return success();
  // A field that the function does not read is no argument of it: the trained binary asks no data set for it.
  llvm::BitVector unread(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    unread[argument.getArgNumber()] =
        argument.use_empty() && function.getArgAttr(argument.getArgNumber(), nn::kFieldAttr);
  return function.eraseArguments(unread);
}

OwningOpRef<ModuleOp> Emitter::run() {
  module = ModuleOp::create(location(Span(), ""), program.modelName);
  OwningOpRef<ModuleOp> owned(module);
  if (program.train.bf16)
    module->setAttr(nn::kBF16Attr, builder.getUnitAttr());
  SmallVector<NamedValue> loss;
  if (program.loss >= 0)
    loss.push_back({"loss", program.loss});
  if (failed(emitFunction(nn::kStepName, program.step, loss, false)))
    return nullptr;
  function->setAttr(nn::kTrainingAttr, trainingAttribute(builder, program.train));
  function->setAttr(nn::kRunValuesAttr, runValuesAttribute(builder, program.train));
  if (program.train.grain > 0)
    function->setAttr(nn::kGrainAttr, builder.getI64IntegerAttr(program.train.grain));
  if (program.train.delay > 0)
    function->setAttr(nn::kDelayAttr, builder.getUnitAttr());
  if (program.train.combine == Combine::Async)
    function->setAttr(nn::kStaleAttr, builder.getI64IntegerAttr(program.train.stale));
  if (failed(emitFunction(nn::kEvaluationName, program.evaluation, program.metrics, true)) ||
      failed(emitFunction(nn::kPredictionName, program.prediction, program.results, false)) || failed(verify(module)))
    return nullptr;
  return owned;
}

OwningOpRef<ModuleOp> emitNN(MLIRContext &context, const Program &program, const SourceList &sources) {
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  return Emitter(context, program, sources).run();
}

} // namespace cinch
