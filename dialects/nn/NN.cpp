// NN.cpp: the dialect and its attributes.
#include "dialects/nn/NN.h"
#include "dialects/nn/Grain.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "dialects/ops/Optimizers.h"
#include <numeric>

using namespace mlir;

namespace cinch::nn {

bool isF64Scalar(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 0 && tensor.getElementType().isF64();
}

int64_t batchAxis(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto batch = tensor ? dyn_cast_or_null<BatchAttr>(tensor.getEncoding()) : BatchAttr();
  return batch ? batch.getAxis() : -1;
}

int64_t batchGroup(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto batch = tensor ? dyn_cast_or_null<BatchAttr>(tensor.getEncoding()) : BatchAttr();
  return batch ? batch.getGroup() : 1;
}

int64_t rowPitch(RankedTensorType type) {
  auto batch = dyn_cast_or_null<BatchAttr>(type.getEncoding());
  const int64_t columns = type.getRank() > 0 ? type.getShape().back() : 1;
  return batch && batch.getPitch() > 0 ? batch.getPitch() : columns;
}

int64_t elementsInMemory(RankedTensorType type) {
  const int64_t columns = type.getRank() > 0 ? type.getShape().back() : 1;
  return columns == 0 ? 0 : type.getNumElements() / columns * rowPitch(type);
}

bool touchesBatch(Operation *op) {
  auto has = [](Type type) { return batchAxis(type) >= 0; };
  return llvm::any_of(op->getOperandTypes(), has) || llvm::any_of(op->getResultTypes(), has);
}

int64_t examplesTogether(Operation *function) { return std::lcm(std::max<int64_t>(1, grainOf(function)), examplesOfGroups(function)); }

int64_t examplesOfGroups(Operation *function) {
  int64_t together = 1;
  function->walk([&](Operation *op) {
    if (auto mean = dyn_cast<GroupMeanOp>(op))
      together = std::lcm(together, int64_t(mean.getGroup()));
    for (Type type : op->getResultTypes())
      together = std::lcm(together, batchGroup(type));
  });
  return together;
}

int64_t batchOf(FunctionOpInterface function) {
  int64_t batch = 1;
  auto look = [&](Type type) {
    if (int64_t axis = batchAxis(type); axis >= 0)
      batch = cast<RankedTensorType>(type).getDimSize(axis) * batchGroup(type);
  };
  for (Type type : function.getArgumentTypes())
    look(type);
  function.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      look(type);
  });
  return batch;
}

RankedTensorType tensorType(ArrayRef<int64_t> shape, Type element, int64_t batch, int64_t group) {
  return RankedTensorType::get(shape, element, batch < 0 ? Attribute() : BatchAttr::get(element.getContext(), batch, group, /*pitch=*/0));
}

RankedTensorType withElement(RankedTensorType type, Type element) {
  return RankedTensorType::get(type.getShape(), element, type.getEncoding());
}

std::optional<double> splatNumber(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastOp>())
    value = broadcast.getX();
  if (auto constant = value.getDefiningOp<ConstantOp>())
    return constant.getNumber().convertToDouble();
  return std::nullopt;
}

// A name in messages is the metadata of a fused location.
static StringAttr callName(Location location) {
  auto fused = dyn_cast<FusedLoc>(location);
  return fused ? dyn_cast_or_null<StringAttr>(fused.getMetadata()) : StringAttr();
}

static Location withoutName(Location location) {
  return callName(location) ? cast<FusedLoc>(location).getLocations().front() : location;
}

Location called(Location location, const Twine &name) {
  MLIRContext *context = location.getContext();
  Location plain = withoutName(location);
  return FusedLoc::get(context, {plain}, StringAttr::get(context, name));
}

std::string nameOf(Operation *op) {
  if (StringAttr name = callName(op->getLoc()))
    return name.str();
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<AddOp>([](auto) { return "+"; })
      .Case<SubOp, NegOp>([](auto) { return "-"; })
      .Case<MulOp>([](auto) { return "*"; })
      .Case<DivOp>([](auto) { return "/"; })
      .Case<PowOp>([](auto) { return "^"; })
      .Case<ContractOp>([](auto) { return "product"; })
      .Case<ConvOp>([](auto) { return "convolution"; })
      .Case<GatherOp>([](auto) { return "indexing"; })
      .Case<ReduceOp>([](ReduceOp reduce) { return stringifyReduction(reduce.getReduction()).str(); })
      .Case<CastOp>([](CastOp cast) { return cast.getType().getElementType().isInteger() ? "i32" : "f32"; })
      .Default([](Operation *other) { return other->getName().stripDialect().str(); });
}

StringRef instancePath(Location location) {
  if (auto name = dyn_cast<NameLoc>(withoutName(location)))
    return name.getName();
  return "";
}

FileLineColLoc sourcePlace(Location location) {
  location = withoutName(location);
  while (auto name = dyn_cast<NameLoc>(location))
    location = name.getChildLoc();
  if (auto call = dyn_cast<CallSiteLoc>(location))
    location = call.getCallee();
  return dyn_cast<FileLineColLoc>(location);
}

FileLineColLoc userPlace(Location location) {
  Location inner = withoutName(location);
  while (auto name = dyn_cast<NameLoc>(inner))
    inner = name.getChildLoc();
  if (auto call = dyn_cast<CallSiteLoc>(inner))
    if (auto place = dyn_cast<FileLineColLoc>(call.getCaller()))
      return place;
  return sourcePlace(location);
}

// ---- Attributes -----------------------------------------------------------------------------------------------------
LogicalResult BatchAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                        function_ref<InFlightDiagnostic()> emitError) const {
  if (getAxis() < 0 || getAxis() >= int64_t(shape.size()))
    return emitError() << "expected the batch axis inside the " << shape.size() << " axes of the tensor, got "
                       << getAxis();
  if (getGroup() < 1)
    return emitError() << "expected groups of at least one example, got " << getGroup();
  if (getPitch() != 0 && (getAxis() + 1 == int64_t(shape.size()) || getPitch() < shape.back()))
    return emitError() << "expected rows of examples, and a pitch of at least the " << shape.back() << " elements of a row, got " << getPitch();
  return success();
}

static ParseResult parseNumber(AsmParser &parser, FailureOr<APFloat> &value) {
  double number;
  if (parser.parseFloat(number))
    return failure();
  value = APFloat(number);
  return success();
}
static void printNumber(AsmPrinter &printer, const APFloat &value) { printer.printFloat(value); }

const OptimizerRule &OptimizerAttr::rule() const { return *optimizerNamed(getName()); }

double OptimizerAttr::value(StringRef hyperparameter) const { return getValues()[rule().placeOf(hyperparameter)]; }

OptimizerAttr OptimizerAttr::with(StringRef hyperparameter, double value) const {
  SmallVector<double> values(getValues().asArrayRef());
  values[rule().placeOf(hyperparameter)] = value;
  return get(getContext(), getName(), DenseF64ArrayAttr::get(getContext(), values));
}

LogicalResult OptimizerAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef name,
                                    DenseF64ArrayAttr values) {
  const OptimizerRule *rule = optimizerNamed(name);
  if (!rule)
    return emitError() << "no optimizer is called '" << name << "'";
  if (size_t(values.size()) != rule->defaults().size())
    return emitError() << "expected " << rule->defaults().size() << " values for '" << name << "', got "
                       << values.size();
  return success();
}

void OptimizerAttr::print(AsmPrinter &printer) const {
  printer << '<' << getName();
  const double *next = getValues().asArrayRef().begin();
  for (const Hyperparameter &each : rule().hyperparameters) {
    printer << ", " << each.name << " = ";
    if (each.kind == Hyperparameter::Flag) {
      printer << (*next != 0 ? "true" : "false");
    } else {
      bool pair = each.kind == Hyperparameter::Pair;
      printer << (pair ? "(" : "");
      printer.printFloat(APFloat(*next));
      if (pair) {
        printer << ", ";
        printer.printFloat(APFloat(next[1]));
        printer << ')';
      }
    }
    next += each.size();
  }
  printer << '>';
}

Attribute OptimizerAttr::parse(AsmParser &parser, Type) {
  StringRef name, key;
  SMLoc at = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&name))
    return {};
  const OptimizerRule *rule = optimizerNamed(name);
  if (!rule)
    return parser.emitError(at, "no optimizer is called '") << name << "'", Attribute();
  std::vector<double> values(rule->defaults());
  while (succeeded(parser.parseOptionalComma())) {
    SMLoc keyAt = parser.getCurrentLocation();
    if (parser.parseKeyword(&key) || parser.parseEqual())
      return {};
    auto found = llvm::find_if(rule->hyperparameters, [&](const Hyperparameter &each) { return key == each.name; });
    if (found == rule->hyperparameters.end())
      return parser.emitError(keyAt, "'") << name << "' has no hyperparameter '" << key << "'", Attribute();
    double *value = &values[rule->placeOf(key)];
    bool pair = found->kind == Hyperparameter::Pair, isTrue = false;
    if (found->kind == Hyperparameter::Flag) {
      isTrue = succeeded(parser.parseOptionalKeyword("true"));
      if (!isTrue && parser.parseKeyword("false"))
        return {};
      *value = isTrue;
    } else if ((pair && parser.parseLParen()) || parser.parseFloat(value[0]) ||
               (pair && (parser.parseComma() || parser.parseFloat(value[1]) || parser.parseRParen()))) {
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<OptimizerAttr>(at, parser.getContext(), name,
                                          DenseF64ArrayAttr::get(parser.getContext(), values));
}

} // namespace cinch::nn

#include "dialects/nn/Interfaces.cpp.inc"
#include "dialects/nn/NNDialect.cpp.inc"
#include "dialects/nn/NNEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/nn/NNAttrs.cpp.inc"

void cinch::nn::NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/nn/NNAttrs.cpp.inc"
      >();
  registerNNDialectOperations(this);
}
