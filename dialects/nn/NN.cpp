// NN.cpp: the dialect, its attributes, and the checks that are no shape rule. Every check cites its constraint of the
// .td.
#include "dialects/nn/NN.h"
#include "dialects/nn/Costs.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

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

bool touchesBatch(Operation *op) {
  auto has = [](Type type) { return batchAxis(type) >= 0; };
  return llvm::any_of(op->getOperandTypes(), has) || llvm::any_of(op->getResultTypes(), has);
}

int64_t batchOf(FunctionOpInterface function) {
  int64_t batch = 1;
  auto look = [&](Type type) {
    if (int64_t axis = batchAxis(type); axis >= 0)
      batch = cast<RankedTensorType>(type).getDimSize(axis);
  };
  for (Type type : function.getArgumentTypes())
    look(type);
  function.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      look(type);
  });
  return batch;
}

RankedTensorType tensorType(ArrayRef<int64_t> shape, Type element, int64_t batch) {
  return RankedTensorType::get(shape, element, batch < 0 ? Attribute() : BatchAttr::get(element.getContext(), batch));
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

// ---- Checks ---------------------------------------------------------------------------------------------------------
static bool isWhole(double value) { return std::floor(value) == value && std::fabs(value) < 9007199254740992.0; }

LogicalResult ConstantOp::verify() {
  double number = getNumber().convertToDouble();
  Type element = getType().getElementType();
  if ((element.isInteger(32) && (!isWhole(number) || std::fabs(number) > 2147483648.0)) ||
      (element.isInteger(1) && number != 0 && number != 1)) // C1
    return emitOpError() << "expected a number that " << element << " holds, got " << number;
  return success();
}

LogicalResult VectorOp::verify() {
  if (getType().getRank() != 1 || getType().getDimSize(0) != int64_t(getNumbers().size())) // C1
    return emitOpError() << "expected one axis of " << getNumbers().size() << " elements, got " << getType();
  if (batchAxis(getType()) >= 0) // C2
    return emitOpError() << "expected no batch axis, got " << getType();
  return success();
}

LogicalResult RangeOp::verify() {
  if (getType().getRank() != 1) // C1
    return emitOpError() << "expected one axis, got " << getType();
  if (batchAxis(getType()) >= 0) // C2
    return emitOpError() << "expected no batch axis, got " << getType();
  return success();
}

LogicalResult RandomOp::verify() {
  Type element = getType().getElementType();
  bool fits = getDraw() == Draw::Int    ? element.isInteger(32)
              : getDraw() == Draw::Bool ? element.isInteger(1)
                                        : isa<FloatType>(element);
  if (!fits) // C1
    return emitOpError() << "expected an element type that fits '" << stringifyDraw(getDraw()) << "', got " << element;
  double number = getNumber().convertToDouble();
  if ((getDraw() == Draw::Int && (!isWhole(number) || number < 1)) ||
      (getDraw() == Draw::Bool && !(number >= 0 && number <= 1))) // C2
    return emitOpError() << "expected a count >= 1 or a probability in [0, 1], got " << number;
  return success();
}

LogicalResult CastOp::verify() {
  auto from = getX().getType(), to = getType();
  if (from.getShape() != to.getShape() || from.getEncoding() != to.getEncoding()) // C1
    return emitOpError() << "expected shape and batch axis to stay, got " << from << " to " << to;
  if (isa<FloatType>(from.getElementType()) && !isa<FloatType>(to.getElementType())) // C2
    return emitOpError() << "expected no float to become an integer, got " << from << " to " << to;
  return success();
}

LogicalResult BroadcastOp::verify() {
  auto from = getX().getType(), to = getType();
  if (int64_t(getAxes().size()) != from.getRank()) // C1
    return emitOpError() << "expected " << from.getRank() << " axes, got " << getAxes().size();
  int64_t last = -1;
  for (auto [i, axis] : llvm::enumerate(getAxes())) {
    if (axis <= last || axis >= to.getRank()) // C1
      return emitOpError() << "expected increasing axes below " << to.getRank() << ", got " << axis << " behind "
                           << last;
    if (from.getDimSize(i) != to.getDimSize(axis)) // C2
      return emitOpError() << "axis " << i << " has " << from.getDimSize(i) << " elements, axis " << axis
                           << " of the result " << to.getDimSize(axis);
    last = axis;
  }
  if (from.getElementType() != to.getElementType())
    return emitOpError() << "expected one element type, got " << from << " and " << to;
  int64_t batch = batchAxis(from), resultBatch = batchAxis(to);
  bool fits =
      batch >= 0 ? resultBatch == getAxes()[batch] : resultBatch < 0 || !llvm::is_contained(getAxes(), resultBatch);
  if (!fits) // C3
    return emitOpError() << "the batch axis does not carry over, from " << from << " to " << to;
  return success();
}

LogicalResult ReshapeOp::verify() {
  auto from = getX().getType(), to = getType();
  if (from.getNumElements() != to.getNumElements() || from.getElementType() != to.getElementType()) // C1
    return emitOpError() << "expected as many elements of one type, got " << from << " and " << to;
  auto before = [](RankedTensorType type, int64_t batch) {
    int64_t count = 1;
    for (int64_t size : type.getShape().take_front(batch))
      count *= size;
    return count;
  };
  int64_t a = batchAxis(from), b = batchAxis(to);
  if ((a < 0) != (b < 0) ||
      (a >= 0 && (from.getDimSize(a) != to.getDimSize(b) || before(from, a) != before(to, b)))) // C2
    return emitOpError() << "expected the batch axis to keep its size and place, got " << from << " and " << to;
  return success();
}

static LogicalResult verifyAxis(Operation *op, RankedTensorType type, int64_t axis) {
  if (axis < 0 || axis >= type.getRank())
    return op->emitOpError() << "expected an axis below " << type.getRank() << ", got " << axis;
  if (axis == batchAxis(type))
    return op->emitOpError() << "axis " << axis << " is the batch axis: an op works example by example";
  return success();
}
LogicalResult ReverseOp::verify() { return verifyAxis(*this, getX().getType(), getAxis()); }        // C1
LogicalResult SoftmaxOp::verify() { return verifyAxis(*this, getX().getType(), getAxis()); }        // C1
LogicalResult LogSoftmaxOp::verify() { return verifyAxis(*this, getX().getType(), getAxis()); }     // C1
LogicalResult SoftmaxGradOp::verify() { return verifyAxis(*this, getY().getType(), getAxis()); }    // C1
LogicalResult LogSoftmaxGradOp::verify() { return verifyAxis(*this, getY().getType(), getAxis()); } // C1

static LogicalResult verifyLabels(Operation *op, RankedTensorType type, ArrayRef<int64_t> labels,
                                  llvm::SmallDenseMap<int64_t, int64_t> &sizes) {
  llvm::SmallDenseSet<int64_t> seen;
  if (int64_t(labels.size()) != type.getRank()) // C1
    return op->emitOpError() << "expected one label an axis of " << type << ", got " << labels.size();
  for (auto [axis, label] : llvm::enumerate(labels)) {
    if (label < 0 || !seen.insert(label).second) // C1
      return op->emitOpError() << "label " << label << " is negative or twice in one operand";
    auto [it, isNew] = sizes.try_emplace(label, type.getDimSize(axis));
    if (it->second != type.getDimSize(axis)) // C2
      return op->emitOpError() << "label " << label << " stands for " << it->second << " and for "
                               << type.getDimSize(axis) << " elements";
  }
  return success();
}

LogicalResult ContractOp::verify() {
  auto lhs = getLhs().getType(), rhs = getRhs().getType();
  ArrayRef<int64_t> a = getLhsLabels(), b = getRhsLabels();
  int64_t rank = getType().getRank();
  llvm::SmallDenseMap<int64_t, int64_t> sizes;
  if (failed(verifyLabels(*this, lhs, a, sizes)) || failed(verifyLabels(*this, rhs, b, sizes)))
    return failure();
  for (int64_t label = 0; label < rank; ++label)
    if (!sizes.count(label)) // C3
      return emitOpError() << "result axis " << label << " is in no operand";
  int64_t firstSum = -1;
  for (auto [label, size] : sizes)
    if (label >= rank) {
      if (!llvm::is_contained(a, label) || !llvm::is_contained(b, label)) // C3
        return emitOpError() << "summed label " << label << " is in one operand only";
      firstSum = firstSum < 0 ? label : std::min(firstSum, label);
    }
  int64_t batchA = batchAxis(lhs) >= 0 ? a[batchAxis(lhs)] : -1, batchB = batchAxis(rhs) >= 0 ? b[batchAxis(rhs)] : -1;
  int64_t batch = std::max(batchA, batchB);
  if (batchA >= 0 && batchB >= 0 && batchA != batchB) // C5
    return emitOpError() << "the batch axes have two labels, " << batchA << " and " << batchB;
  if (batch >= rank && (batch != firstSum || batchA != batchB)) // C5
    return emitOpError() << "expected a summed batch axis to be one of both operands and the slowest, got label "
                         << batch << " and slowest " << firstSum;
  if (batch >= 0 && batch < rank &&
      ((batchA < 0 && llvm::is_contained(a, batch)) || (batchB < 0 && llvm::is_contained(b, batch)))) // C5
    return emitOpError() << "label " << batch << " is the batch axis of one operand only";
  auto expected = contractType(lhs, a, rhs, b, rank);
  if (getType() != expected) // C4, C5
    return emitOpError() << "expected result type " << expected << ", got " << getType();
  if (lhs.getElementType() != rhs.getElementType()) // C4
    return emitOpError() << "expected one element type, got " << lhs << " and " << rhs;
  return success();
}

LogicalResult ScatterAddOp::verify() {
  auto updates =
      gatherType(getType(), getIndices().getTypes(), getXLabels(), getIndexLabels(), [&] { return emitOpError(); });
  if (failed(updates))
    return failure();
  if (*updates != getUpdates().getType()) // C1
    return emitOpError() << "expected updates of type " << *updates << ", got " << getUpdates().getType();
  return success();
}

LogicalResult CrossEntropyGradOp::verify() {
  RankedTensorType loss = getDy().getType();
  SmallVector<Type> inferred;
  CrossEntropyOp::Properties properties;
  Builder builder(getContext());
  properties.axis = getAxisAttr();
  properties.smooth = getSmoothAttr();
  properties.except = getExceptAttr();
  CrossEntropyOp::Adaptor forward(ValueRange{getLogits(), getY()}, DictionaryAttr(), OpaqueProperties(&properties));
  if (failed(CrossEntropyOp::inferReturnTypes(getContext(), getLoc(), forward.getOperands(), DictionaryAttr(),
                                              OpaqueProperties(&properties), {}, inferred)))
    return failure();
  if (inferred[0] != loss)
    return emitOpError() << "expected a gradient of type " << inferred[0] << ", got " << loss;
  return success();
}

LogicalResult AttendGradOp::verify() {
  auto same = [&](Value a, Value b, StringRef name) -> LogicalResult {
    if (a.getType() != b.getType()) // C1
      return emitOpError() << name << " has type " << a.getType() << ", expected " << b.getType();
    return success();
  };
  if (failed(same(getDq(), getQ(), "dq")) || failed(same(getDk(), getK(), "dk")) ||
      failed(same(getDv(), getV(), "dv")) || failed(same(getDout(), getO(), "dout")))
    return failure();
  auto q = getQ().getType();
  if (getLse().getType() != tensorType(q.getShape().drop_back(), q.getElementType(), batchAxis(q))) // C1
    return emitOpError() << "lse has type " << getLse().getType() << ", which is not that of a row of q";
  if (getDbias() && !getBias()) // C2
    return emitOpError() << "expected a bias beside its gradient";
  return getDbias() ? same(getDbias(), getBias(), "dbias") : success();
}

LogicalResult SumSquaresOp::verify() {
  if (hasBatch(getX())) // C1
    return emitOpError() << "expected no batch axis, got " << getX().getType();
  return success();
}

static LogicalResult verifyUpdate(Operation *op, Value parameter, ArrayRef<Value> others) {
  if (hasBatch(parameter)) // C1
    return op->emitOpError() << "expected a parameter without batch axis, got " << parameter.getType();
  for (Value other : others)
    if (other && other.getType() != parameter.getType()) // C1
      return op->emitOpError() << "expected the parameter's type " << parameter.getType() << ", got "
                               << other.getType();
  return success();
}

LogicalResult SgdOp::verify() {
  bool momentum = getMomentum().convertToDouble() != 0;
  if (momentum != bool(getVelocity()) || momentum != bool(getNewVelocity())) // C2
    return emitOpError() << "expected a velocity and a new one exactly if there is momentum";
  return verifyUpdate(*this, getParameter(), {getGradient(), getVelocity(), getResult(), getNewVelocity()});
}

LogicalResult AdamOp::verify() {
  return verifyUpdate(*this, getParameter(), {getGradient(), getM(), getV(), getResult(), getNewM(), getNewV()});
}

// ---- Lists of labels: [[0, 1], [0]] ---------------------------------------------------------------------------------
static ParseResult parseLabelLists(OpAsmParser &parser, ArrayAttr &lists) {
  SmallVector<Attribute> all;
  auto parseOne = [&]() -> ParseResult {
    SmallVector<int64_t> labels;
    auto parseLabel = [&] { return parser.parseInteger(labels.emplace_back()); };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseLabel))
      return failure();
    all.push_back(DenseI64ArrayAttr::get(parser.getContext(), labels));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return failure();
  lists = ArrayAttr::get(parser.getContext(), all);
  return success();
}

static void printLabelLists(OpAsmPrinter &printer, Operation *, ArrayAttr lists) {
  printer << '[';
  llvm::interleaveComma(lists, printer, [&](Attribute labels) {
    printer << '[';
    llvm::interleaveComma(cast<DenseI64ArrayAttr>(labels).asArrayRef(), printer);
    printer << ']';
  });
  printer << ']';
}

} // namespace cinch::nn

#include "dialects/nn/Interfaces.cpp.inc"
#include "dialects/nn/NNDialect.cpp.inc"
#include "dialects/nn/NNEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/nn/NNAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/nn/NNOps.cpp.inc"

void cinch::nn::NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/nn/NNAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/nn/NNOps.cpp.inc"
      >();
}
