// EmitNN.cpp: Program -> nn, one op each but for three: a mean is a sum and a division (so that the sum can accumulate
// over micro-batches), a power with a constant exponent is products or roots where it can be, and a constant that is
// repeated along axes is a constant.
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
  Type element(DType type);
  RankedTensorType type(const TensorType &type) { return nn::tensorType(type.shape, element(type.dtype), type.batch); }
  Location location(Span span, StringRef path, int instance = -1);
  void nameOps(const Op &op, ArrayRef<Operation *> made);
  int calledFrom(int instance) const;

  func::FuncOp openFunction(StringRef name, bool withValidRows);
  LogicalResult emitGraph(const Graph &graph, nn::GradientBuilder &b, SmallVectorImpl<Value> &values);
  Value emitOp(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x);
  Value emitElementwise(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x);
  Value emitReduce(const Op &op, nn::GradientBuilder &b, Value x);
  Value emitAttend(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x);
  void noteHints(const Op &op, ArrayRef<Operation *> made, Value result);
  LogicalResult emitFunction(StringRef name, const Graph &graph, ArrayRef<NamedValue> results, bool withValidRows);

  FloatAttr f64(double value) { return builder.getF64FloatAttr(value); }
  IntegerAttr i64(int64_t value) { return builder.getI64IntegerAttr(value); }
  ArrayAttr lists(ArrayRef<std::vector<int64_t>> maps) {
    return builder.getArrayAttr(llvm::map_to_vector(
        maps, [&](const std::vector<int64_t> &map) -> Attribute { return builder.getDenseI64ArrayAttr(map); }));
  }

  const Program &program;
  const SourceList &sources;
  OpBuilder builder;
  ModuleOp module;
  func::FuncOp function;
};

} // namespace

Type Emitter::element(DType type) {
  switch (type) {
  case DType::F32: return program.train.f64 ? Type(builder.getF64Type()) : Type(builder.getF32Type());
  case DType::I32: return builder.getI32Type();
  case DType::Bool: break;
  }
  return builder.getI1Type();
}

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
  bool mean = op.kind == OpKind::Reduce && op.reduce == ReduceKind::Mean;
  std::string written = op.kind == OpKind::Pow ? "^" : mean ? "mean" : "";
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
    attributes.push_back(parameterAttributes(builder, parameter));
  }
  const Dataset &dataset = program.datasets[program.train.dataset];
  for (auto [i, field] : llvm::enumerate(dataset.fields)) {
    types.push_back(type(field.type));
    places.push_back(location(field.span, field.name));
    attributes.push_back(
        builder.getDictionaryAttr({builder.getNamedAttr(nn::kFieldAttr, i64(i)),
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
  for (auto [i, attribute] : llvm::enumerate(attributes))
    function.setArgAttrs(i, attribute);
  builder.setInsertionPointToEnd(block);
  return function;
}

Value Emitter::emitElementwise(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x) {
  switch (op.kind) {
  case OpKind::Neg: return b.make<nn::NegOp>(x[0]);
  case OpKind::Exp: return b.make<nn::ExpOp>(x[0]);
  case OpKind::Expm1: return b.make<nn::Expm1Op>(x[0]);
  case OpKind::Log: return b.make<nn::LogOp>(x[0]);
  case OpKind::Log1p: return b.make<nn::Log1pOp>(x[0]);
  case OpKind::Sqrt: return b.make<nn::SqrtOp>(x[0]);
  case OpKind::Sin: return b.make<nn::SinOp>(x[0]);
  case OpKind::Cos: return b.make<nn::CosOp>(x[0]);
  case OpKind::Tanh: return b.make<nn::TanhOp>(x[0]);
  case OpKind::Erf: return b.make<nn::ErfOp>(x[0]);
  case OpKind::Sigmoid: return b.make<nn::SigmoidOp>(x[0]);
  case OpKind::Softplus: return b.make<nn::SoftplusOp>(x[0]);
  case OpKind::Abs: return b.make<nn::AbsOp>(x[0]);
  case OpKind::Floor: return b.make<nn::FloorOp>(x[0]);
  case OpKind::StopGradient: return b.make<nn::StopGradientOp>(x[0]);
  case OpKind::Not: return b.make<nn::NotOp>(x[0]);
  case OpKind::And: return b.make<nn::AndOp>(x[0], x[1]);
  case OpKind::Or: return b.make<nn::OrOp>(x[0], x[1]);
  case OpKind::Cast: return b.make<nn::CastOp>(type(op.type), x[0]);
  case OpKind::Add: return b.make<nn::AddOp>(x[0], x[1]);
  case OpKind::Sub: return b.make<nn::SubOp>(x[0], x[1]);
  case OpKind::Mul: return b.make<nn::MulOp>(x[0], x[1]);
  case OpKind::Div: return b.make<nn::DivOp>(x[0], x[1]);
  case OpKind::Max: return b.make<nn::MaxOp>(x[0], x[1]);
  case OpKind::Min: return b.make<nn::MinOp>(x[0], x[1]);
  case OpKind::Pow: {
    auto exponent = nn::splatNumber(x[1]);
    return exponent ? b.power(x[0], *exponent) : b.make<nn::PowOp>(x[0], x[1]).getResult();
  }
  case OpKind::Compare: return b.compare(comparisonOf(op.compare), x[0], x[1]);
  case OpKind::Where: return b.where(x[0], x[1], x[2]);
  default: return Value();
  }
}

Value Emitter::emitReduce(const Op &op, nn::GradientBuilder &b, Value x) {
  nn::Reduction reduction = reductionOf(op.reduce);
  double count = 1;
  for (int64_t axis : op.ints)
    count *= double(nn::tensorOf(x).getDimSize(axis));
  Value result = b.make<nn::ReduceOp>(reduction, x, op.ints);
  return op.reduce == ReduceKind::Mean ? b.div(result, b.like(result, count)) : result;
}

Value Emitter::emitAttend(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x) {
  Value keys = op.attend.hasKeys ? x[3] : Value(), bias = op.attend.hasBias ? x.back() : Value();
  return b
      .make<nn::AttendOp>(x[0], x[1], x[2], keys, bias, f64(op.attend.scale),
                          op.attend.causal ? builder.getUnitAttr() : UnitAttr(), f64(op.attend.dropout), i64(op.key))
      .getO();
}

Value Emitter::emitOp(const Op &op, nn::GradientBuilder &b, ArrayRef<Value> x) {
  unsigned fields = program.parameters.size();
  switch (op.kind) {
  case OpKind::Parameter: return function.getArgument(op.index);
  case OpKind::Field: return function.getArgument(fields + op.index);
  case OpKind::ValidRows: return function.getArguments().back();
  case OpKind::Constant: return b.constant(type(op.type), op.number);
  case OpKind::Vector: return b.make<nn::VectorOp>(type(op.type), op.numbers);
  case OpKind::Range: return b.make<nn::RangeOp>(type(op.type));
  case OpKind::Broadcast: return b.broadcast(x[0], op.ints, type(op.type));
  case OpKind::Transpose: return b.transpose(x[0], op.ints);
  case OpKind::Reshape: return b.reshape(x[0], type(op.type));
  case OpKind::Slice: return b.make<nn::SliceOp>(x[0], i64(op.ints[0]), i64(op.ints[1]), i64(op.ints[2]));
  case OpKind::Pad: return b.make<nn::PadOp>(x[0], i64(op.ints[0]), i64(op.ints[1]), i64(op.ints[2]), f64(op.number));
  case OpKind::Concat: return b.make<nn::ConcatOp>(ValueRange(x), i64(op.ints[0]));
  case OpKind::Reverse: return b.make<nn::ReverseOp>(x[0], i64(op.ints[0]));
  case OpKind::Reduce: return emitReduce(op, b, x[0]);
  case OpKind::Contract: return b.make<nn::ContractOp>(type(op.type), x[0], x[1], op.maps[0], op.maps[1]);
  case OpKind::Gather:
    return b.make<nn::GatherOp>(x[0], x.drop_front(), builder.getDenseI64ArrayAttr(op.maps[0]),
                                lists(ArrayRef(op.maps).drop_front()));
  case OpKind::Softmax: return b.make<nn::SoftmaxOp>(x[0], i64(op.ints[0]));
  case OpKind::LogSoftmax: return b.make<nn::LogSoftmaxOp>(x[0], i64(op.ints[0]));
  case OpKind::ArgMax: return b.make<nn::ArgMaxOp>(x[0], i64(op.ints[0]));
  case OpKind::ArgMin: return b.make<nn::ArgMinOp>(x[0], i64(op.ints[0]));
  case OpKind::CrossEntropy:
    return b.make<nn::CrossEntropyOp>(x[0], x[1], i64(op.ints[0]), f64(op.number),
                                      op.hasExcept ? i64(op.except) : IntegerAttr());
  case OpKind::Attend: return emitAttend(op, b, x);
  case OpKind::Random:
    return b.make<nn::RandomOp>(type(op.type), nn::DrawAttr::get(builder.getContext(), drawOf(op.random)), i64(op.key),
                                f64(op.number));
  default: return emitElementwise(op, b, x);
  }
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
      operands.push_back(values[operand]);
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
  for (const NamedValue &result : results) {
    returned.push_back(values[result.op]);
    names.push_back(builder.getDictionaryAttr(builder.getNamedAttr(nn::kNameAttr, builder.getStringAttr(result.name))));
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
