// EmitNN.cpp: Program -> nn, one op each, made from the table, but for two: a power with a constant exponent is products or
// roots where it can be, and a constant that is repeated along axes or reshaped is a constant.
#include "compiler/transforms/EmitNN.h"
#include "compiler/transforms/EmitTraining.h"
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

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
  LogicalResult emitGraph(const Graph &graph, nn::GradientBuilder &b, SmallVectorImpl<Value> &values);
  Value emitOp(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x);
  void noteHints(const Op &op, ArrayRef<Operation *> made, Value result);
  LogicalResult emitFunction(StringRef name, const Graph &graph, ArrayRef<NamedValue> results, bool withValidRows);

  const Program &program;
  const SourceList &sources;
  OpBuilder builder;
  ModuleOp module;
  func::FuncOp function;
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

void Emitter::noteHints(const Op &op, ArrayRef<Operation *> made, Value result) {
  if (op.block >= 0)
    for (Operation *each : made)
      each->setAttr(nn::kBlockAttr, builder.getI64IntegerAttr(op.block));
  Operation *last = result.getDefiningOp();
  if (!last)
    return;
  if (op.blockEnd)
    last->setAttr(nn::kBlockEndAttr, builder.getUnitAttr());
  if (op.keep)
    last->setAttr(nn::kKeepAttr, builder.getUnitAttr());
  if (op.recompute)
    last->setAttr(nn::kRecomputeAttr, builder.getUnitAttr());
}

LogicalResult Emitter::emitGraph(const Graph &graph, nn::GradientBuilder &b, SmallVectorImpl<Value> &values) {
  for (auto [number, op] : llvm::enumerate(graph.ops)) {
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
    noteHints(op, b.made().drop_front(firstMade), result);
    values.push_back(result);
  }
  return success();
}

LogicalResult Emitter::emitFunction(StringRef name, const Graph &graph, ArrayRef<NamedValue> results,
                                    bool withValidRows) {
  function = openFunction(name, withValidRows);
  nn::GradientBuilder b(builder);
  SmallVector<Value> values, returned;
  if (failed(emitGraph(graph, b, values)))
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
  SmallVector<NamedValue> loss;
  if (program.loss >= 0)
    loss.push_back({"loss", program.loss});
  if (failed(emitFunction(nn::kStepName, program.step, loss, false)))
    return nullptr;
  function->setAttr(nn::kTrainingAttr, trainingAttribute(builder, program.train));
  function->setAttr(nn::kRunValuesAttr, runValuesAttribute(builder, program.train));
  if (program.train.grain > 0)
    function->setAttr(nn::kGrainAttr, builder.getI64IntegerAttr(program.train.grain));
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
