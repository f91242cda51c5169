// Plan.cpp: the plan dialect's registration and verifiers (constraints C1.. stand in PlanOps.td).
#include "dialects/plan/Plan.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cinch::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

void YieldOp::build(OpBuilder &, OperationState &) {}
void ReturnOp::build(OpBuilder &, OperationState &) {}

LogicalResult MicrobatchesOp::verify() {
  if (getCount() < 0 || getSize() < 1) // C1
    return emitOpError("needs a count of at least 0 and a size of at least 1, got ")
           << getCount() << " and " << getSize();
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  if (yield.getValues().getTypes() != getSums().getTypes()) // C2
    return emitOpError("yields types that differ from its results");
  for (Type type : getSums().getTypes()) // C3
    if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && tensor.getEncoding())
      return emitOpError("has a result with a batch axis: ") << type;
  auto marks = getBody().front().getOps<PartOp>();
  if ((getActions() || getLags()) && marks.empty()) // C4
    return emitOpError("lists actions, but its body has no parts");
  if (auto lags = getLags(); lags && (int64_t(lags->size()) != 1 + std::distance(marks.begin(), marks.end()) ||
                                      lags->front() != 0 || !llvm::is_sorted(*lags)))
    return emitOpError("needs one lag a part of its body, ascending from 0");
  if (getActions() && getActions()->size() % 2)
    return emitOpError("lists actions that are no pairs of a part and a micro-batch");
  return success();
}

LogicalResult AwaitOp::verify() {
  if (!isa_and_nonnull<FetchOp, StoreOp>(getCopy().getDefiningOp())) // C1
    return emitOpError("waits for what is no copy");
  return success();
}

LogicalResult SendOp::verify() {
  if (getLast() && !isa<MicrobatchesOp>((*this)->getParentOp())) // C1
    return emitOpError("of the last micro-batch stands outside a loop over the micro-batches");
  return success();
}

LogicalResult ReceiveOp::verify() {
  if (getAdds() && !getBegins()) // C2
    return emitOpError("is added to no sum");
  if (!getBegins())
    return success();
  auto loop = dyn_cast<MicrobatchesOp>((*this)->getParentOp());
  if (!loop || *getBegins() >= loop.getNumResults() || loop.getResult(unsigned(*getBegins())).getType() != getValue().getType()) // C1
    return emitOpError("begins no sum of a loop over the micro-batches that has its type");
  return success();
}

Value ReceiveOp::sum() {
  if (!getBegins())
    return {};
  return (*this)->getBlock()->getTerminator()->getOperand(unsigned(*getBegins()));
}

// The batch axis of rows is the first. -1: no batch axis.
static int64_t batchAxisOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getEncoding() ? 0 : -1;
}

// `whole` with fewer examples and, if `sliced`, positions.
static Type blockOf(Type whole, int64_t examples, int64_t positions, bool sliced) {
  auto tensor = cast<RankedTensorType>(whole);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[0] = examples;
  if (sliced)
    shape[1] = positions;
  return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
}

LogicalResult RowBlocksOp::verify() {
  int64_t count = getCount(), examples = getExamples(), positions = getPositions(), of = getOf();
  if (count < 1 || examples < 1 || positions < 1 || of < 1 || of % positions || (positions < of && examples > 1)) // C1
    return emitOpError("has no blocks of ") << examples << " x " << positions << " rows of " << of << " positions, "
                                            << count << " times";
  Block &body = getBody().front();
  auto yield = cast<YieldOp>(body.getTerminator());
  if (getFrom().size() != getRows().size() || body.getNumArguments() != getRows().size() ||
      yield.getValues().size() != getNumResults())
    return emitOpError("has ") << getRows().size() << " operands, " << getFrom().size() << " entries in 'from', "
                               << body.getNumArguments() << " body arguments, " << yield.getValues().size()
                               << " yielded values and " << getNumResults() << " results";
  int64_t blocksOfExamples = count * examples * positions / of; // examples in all blocks
  auto wrong = [&](const char *what, unsigned i, Type got, Type want) {
    return emitOpError(what) << " " << i << " of type " << got << ", expected " << want;
  };
  for (auto [i, operand] : llvm::enumerate(getRows())) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    int64_t from = getFrom()[i];
    if (!type || batchAxisOf(type) < 0 || type.getRank() < (from >= 0 ? 2 : 1) || from < -1 ||
        (from >= 0 && from + of > type.getDimSize(1)) || (from < 0 && positions < of) ||
        (from >= 0 && examples > 1 && type.getDimSize(1) != of)) // C2: a block is one piece of memory
      return emitOpError("operand ") << i << " of type " << operand.getType() << " has no " << of << " positions from "
                                     << from << " on";
    if (type.getDimSize(0) != blocksOfExamples) // C4
      return emitOpError("operand ") << i << " has " << type.getDimSize(0) << " examples, all blocks together "
                                     << blocksOfExamples;
    Type want = blockOf(type, examples, positions, from >= 0);
    if (body.getArgument(unsigned(i)).getType() != want)
      return wrong("has a body argument", unsigned(i), body.getArgument(unsigned(i)).getType(), want);
  }
  for (auto [i, value] : llvm::enumerate(yield.getValues())) { // C3
    Type type = value.getType(), want = type;
    if (batchAxisOf(type) >= 0) {
      auto tensor = cast<RankedTensorType>(type);
      if (tensor.getDimSize(0) != examples || (of > 1 && (tensor.getRank() < 2 || tensor.getDimSize(1) != positions)))
        return emitOpError("yields ") << type << ", which has not the rows of a block";
      want = blockOf(type, blocksOfExamples, of, of > 1);
    }
    if (getResult(unsigned(i)).getType() != want)
      return wrong("has a result", unsigned(i), getResult(unsigned(i)).getType(), want);
  }
  return success();
}

static RowBlocksOp::Steps stepsOf(Type type, int64_t from) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t element = std::max<int64_t>(1, tensor.getElementTypeBitWidth() / 8), example = element;
  for (int64_t size : tensor.getShape().drop_front())
    example *= size;
  if (from < 0)
    return {0, example, 0};
  int64_t position = example / tensor.getDimSize(1);
  return {from * position, example, position};
}

RowBlocksOp::Steps RowBlocksOp::stepsOfOperand(unsigned i) { return stepsOf(getRows()[i].getType(), getFrom()[i]); }

RowBlocksOp::Steps RowBlocksOp::stepsOfResult(unsigned i) {
  return stepsOf(getResult(i).getType(), getOf() > 1 ? 0 : -1);
}

std::optional<unsigned> RowBlocksOp::resultFilledBy(Value value) {
  for (auto [i, yielded] : llvm::enumerate(getBody().front().getTerminator()->getOperands()))
    if (yielded == value && batchAxisOf(value.getType()) >= 0)
      return unsigned(i);
  return std::nullopt;
}

LogicalResult KernelOp::verify() {
  Block &body = getBody().front();
  if (TypeRange(body.getArgumentTypes()) != getInputs().getTypes()) // C1
    return emitOpError("has region arguments that differ from its operands");
  auto terminator = cast<ReturnOp>(body.getTerminator());
  if (terminator.getValues().getTypes() != getOutputs().getTypes())
    return emitOpError("returns types that differ from its results");
  auto sized = [&](auto attr, size_t want, StringRef name) -> LogicalResult { // C2
    if (attr && attr->size() != want)
      return emitOpError() << "has " << attr->size() << " entries in '" << name << "', expected " << want;
    return success();
  };
  if (failed(sized(getAccumulates(), getNumResults(), "accumulates")) ||
      failed(sized(getReads(), getNumOperands(), "reads")) || failed(sized(getWrites(), getNumResults(), "writes")))
    return failure();
  if (auto domain = getDomain()) // C3
    if (int64_t(*domain) < 0 || int64_t(*domain) >= int64_t(body.getOperations().size()) ||
        std::next(body.begin(), int64_t(*domain))->getNumResults() == 0)
      return emitOpError("has no op number ") << int64_t(*domain) << " with a result, as 'domain' says";
  return success();
}
