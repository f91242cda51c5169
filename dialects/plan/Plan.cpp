// Plan.cpp: the plan dialect's registration and verifiers (constraints C1.. stand in PlanOps.td).
#include "dialects/plan/Plan.h"

#include "dialects/nn/NN.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cinch;
using namespace cinch::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#include "dialects/plan/PlanEnums.cpp.inc"
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

// ---- Actions -----------------------------------------------------------------------------------------------------------------------

// `part` P `on` M M .., comma between parts.
Attribute ActionsAttr::parse(AsmParser &parser, Type) {
  SmallVector<Action> list;
  auto parsePart = [&]() -> ParseResult {
    Action action;
    if (parser.parseKeyword("part") || parser.parseInteger(action.part) || parser.parseKeyword("on") ||
        parser.parseInteger(action.microbatch))
      return failure();
    list.push_back(action);
    OptionalParseResult more;
    while ((more = parser.parseOptionalInteger(action.microbatch)).has_value()) {
      if (failed(*more))
        return failure();
      list.push_back(action);
    }
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, parsePart))
    return {};
  return get(parser.getContext(), list);
}

void ActionsAttr::print(AsmPrinter &printer) const {
  printer << '<';
  ArrayRef<Action> list = getList();
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == 0 || list[i].part != list[i - 1].part)
      printer << (i == 0 ? "" : ", ") << "part " << list[i].part << " on";
    printer << ' ' << list[i].microbatch;
  }
  printer << '>';
}

// ---- Loops -------------------------------------------------------------------------------------------------------------------------

void LoopOp::build(OpBuilder &builder, OperationState &state, TypeRange sums, uint64_t count, ExamplesAttr over, ActionsAttr actions,
                   DenseI64ArrayAttr lags) {
  build(builder, state, TypeRange(), TypeRange(), sums, ValueRange(), ValueRange(), ValueRange(), ValueRange(), count, over,
        DenseI64ArrayAttr(), actions, lags);
}

YieldOp LoopOp::yield() { return cast<YieldOp>(block().getTerminator()); }

LoopOp LoopOp::overExamplesAround(Operation *op) {
  auto loop = op->getParentOfType<LoopOp>();
  while (loop && !loop.examples())
    loop = loop->getParentOfType<LoopOp>();
  return loop;
}

Value LoopOp::yieldedFor(Value result) { return yield().getValues()[cast<OpResult>(result).getResultNumber()]; }

OpResult LoopOp::resultOf(Value yielded) {
  ValueRange values = yield().getValues();
  for (size_t i = values.size(); i-- > 0;)
    if (values[i] == yielded)
      return getOperation()->getResult(unsigned(i));
  return {};
}

int64_t LoopOp::innerTrips() { return rowBlocks() ? rowBlocks().getOf() / rowBlocks().getPositions() : 1; }

LoopOp::Steps LoopOp::stepsOfSlice(unsigned i) { return stepsOf(getSlices()[i], part(i).getType(), getFrom() ? (*getFrom())[i] : 0); }

LoopOp::Steps LoopOp::stepsOf(Value whole) {
  bool yielded = whole.getDefiningOp() == getOperation();
  return stepsOf(whole, yielded ? yieldedFor(whole).getType() : Type(), 0);
}

LoopOp::Steps LoopOp::stepsOf(Value whole, Type part, int64_t from) {
  auto type = cast<RankedTensorType>(whole.getType());
  int64_t bytes = nn::elementsInMemory(type) * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
  int64_t outer = bytes / (int64_t(getCount()) / innerTrips());
  if (!rowBlocks() || type.getRank() < 2)
    return {0, outer, 0};
  int64_t row = outer / rowBlocks().getExamples() / type.getDimSize(1);
  return {from * row, outer, row * cast<RankedTensorType>(part).getDimSize(1)};
}

namespace {
// Checks the parts of what a loop slices and stacks.
class PartsVerifier {
public:
  explicit PartsVerifier(LoopOp loop) : loop(loop) {}

  // Of a slice from position `from` on; without it, of a result, which is filled.
  bool isPart(Type part, Type whole, std::optional<int64_t> from = {}) {
    auto type = dyn_cast<RankedTensorType>(whole);
    return type && type.getRank() > 0 && (loop.axis() ? isOfAxis(part, type) : isOfRows(part, type, from));
  }

private:
  // Without the axis, or several in a row.
  bool isOfAxis(Type part, RankedTensorType whole) {
    int64_t trips = int64_t(loop.getCount()), size = whole.getDimSize(0);
    if (size % trips || nn::batchAxis(whole) == 0)
      return false;
    return part == nn::ScanOp::runOf(whole, trips) || (size == trips && part == nn::ScanOp::partOf(whole));
  }

  // Examples, and some of their positions or all that they have.
  bool isOfRows(Type part, RankedTensorType whole, std::optional<int64_t> from) {
    RowBlocksAttr rows = loop.rowBlocks();
    int64_t examples = int64_t(loop.getCount()) / loop.innerTrips() * rows.getExamples();
    if (nn::batchAxis(whole) != 0 || whole.getDimSize(0) != examples)
      return false;
    SmallVector<int64_t> shape(whole.getShape());
    shape[0] = rows.getExamples();
    auto isShaped = [&] { return part == RankedTensorType::get(shape, whole.getElementType(), whole.getEncoding()); };
    if (from.value_or(0) == 0 && rows.getPositions() == rows.getOf() && isShaped())
      return true;
    int64_t begin = from.value_or(0);
    if (shape.size() < 2 || begin < 0 || begin + rows.getOf() > shape[1])
      return false;
    int64_t all = shape[1];
    shape[1] = rows.getPositions();
    if ((from && rows.getExamples() == 1 && isShaped()) || (all == rows.getOf() && isShaped()))
      return true;
    shape[1] = all / rows.getOf() * rows.getPositions(); // images may have several rows a position
    return begin == 0 && all % rows.getOf() == 0 && isShaped();
  }

  LoopOp loop;
};
} // namespace

static LogicalResult verifySizes(LoopOp loop) {
  int64_t count = int64_t(loop.getCount());
  if (count < (loop.examples() ? 0 : 1))
    return loop.emitOpError("makes ") << count << " trips";
  if (ExamplesAttr examples = loop.examples(); examples && (examples.getSize() < 1 || examples.getFirst() < 0))
    return loop.emitOpError("has no trips of ") << examples.getSize() << " examples from " << examples.getFirst() << " on";
  if (RowBlocksAttr rows = loop.rowBlocks()) {
    int64_t examples = rows.getExamples(), positions = rows.getPositions(), of = rows.getOf();
    if (examples < 1 || positions < 1 || of < 1 || of % positions || (positions < of && examples > 1) || count % (of / positions))
      return loop.emitOpError("has no blocks of ") << examples << " x " << positions << " rows of " << of << " positions, " << count
                                                   << " times";
  }
  return success();
}

static LogicalResult verifyActions(LoopOp loop) {
  auto marks = loop.block().getOps<PartOp>();
  if ((loop.getActions() || loop.getLags()) && (marks.empty() || !loop.examples()))
    return loop.emitOpError("lists actions, but its body has no parts");
  if (auto lags = loop.getLags(); lags && (int64_t(lags->size()) != 1 + std::distance(marks.begin(), marks.end()) ||
                                           lags->front() != 0 || !llvm::is_sorted(*lags)))
    return loop.emitOpError("needs one lag a part of its body, ascending from 0");
  DenseMap<int64_t, int64_t> next; // micro-batch of each part
  for (const Action &action : loop.getActions() ? loop.getActionsAttr().getList() : ArrayRef<Action>()) {
    if (action.part < 0 || action.part > std::distance(marks.begin(), marks.end()))
      return loop.emitOpError("lists part ") << action.part << ", which its body does not have";
    auto [it, first] = next.try_emplace(action.part, action.microbatch);
    if (action.microbatch < 0 || it->second != action.microbatch)
      return loop.emitOpError("lists part ") << action.part << " for micro-batch " << action.microbatch << " where " << it->second
                                             << " is its next one";
    ++it->second;
  }
  return success();
}

LogicalResult LoopOp::verify() {
  if (failed(verifySizes(*this))) // C1
    return failure();
  size_t carriedCount = getInits().size(), read = carriedCount + getSlices().size() + getStacks().size();
  if (getLast().size() != carriedCount || block().getNumArguments() != read || getFirsts().size() != getStacks().size() ||
      yield().getValues().size() != getNumResults() || (getFrom() && getFrom()->size() != getSlices().size())) // C2
    return emitOpError("has ") << read << " operands to walk, " << block().getNumArguments() << " body arguments, "
                               << yield().getValues().size() << " yielded values and " << getNumResults() << " results";
  if ((examples() && read + getStacked().size() > 0) || (rowBlocks() && carriedCount + getStacks().size() > 0) ||
      (axis() && !getSums().empty()) || (getFrom() && !rowBlocks())) // C5
    return emitOpError("does with an operand or a result what is not done over ") << getOver();
  PartsVerifier parts(*this);
  for (auto [i, argument] : llvm::enumerate(block().getArguments())) { // C3
    Type type = argument.getType(), whole = getOperand(unsigned(i)).getType();
    int64_t from = getFrom() ? (*getFrom())[i] : 0; // over rows all operands are slices
    if (i < carriedCount ? type != whole : !parts.isPart(type, whole, from))
      return emitOpError("has a body argument ") << i << " of type " << type << " for an operand of type " << whole;
  }
  for (unsigned i = 0; i < getStacks().size(); ++i)
    if (getFirsts()[i].getType() != block().getArgument(unsigned(carriedCount + getSlices().size()) + i).getType())
      return emitOpError("has a first part of type ") << getFirsts()[i].getType() << " for a stack of type " << getStacks()[i].getType();
  for (OpResult result : getOperation()->getResults()) {
    Type type = yieldedFor(result).getType();
    if (isStacked(result) ? !parts.isPart(type, result.getType()) : type != result.getType())
      return emitOpError("yields a value of type ") << type << " for its result " << result.getResultNumber() << " of type "
                                                    << result.getType();
  }
  for (Type type : getSums().getTypes()) // C4
    if (nn::batchAxis(type) >= 0)
      return emitOpError("accumulates a value with a batch axis: ") << type;
  for (auto [init, last] : llvm::zip(getInits(), getLast()))
    if (init.getType() != last.getType())
      return emitOpError("carries a value of type ") << init.getType() << " that ends as one of type " << last.getType();
  return verifyActions(*this); // C6
}

// ---- Other ops ---------------------------------------------------------------------------------------------------------------------

LogicalResult BandOp::verify() {
  auto loop = cast<LoopOp>((*this)->getParentOp());
  if (!loop.rowBlocks() || loop.rowBlocks().getExamples() != 1 || loop.getBody().isAncestor(getImage().getParentRegion())) // C1
    return emitOpError("copies rows of what does not lie outside of a loop over blocks of rows of one example");
  auto image = dyn_cast<RankedTensorType>(getImage().getType()), rows = dyn_cast<RankedTensorType>(getRows().getType());
  if (!image || !rows || image.getRank() < 2 || nn::batchAxis(image) != 0 || rows.getRank() != image.getRank() ||
      int64_t(getStep()) < 1) // C2
    return emitOpError("copies no rows of an image");
  SmallVector<int64_t> shape(image.getShape());
  shape[0] = 1, shape[1] = rows.getDimSize(1);
  if (rows != RankedTensorType::get(shape, image.getElementType(), image.getEncoding())) // C2
    return emitOpError("gives ") << rows << ", which are no rows of " << image;
  return success();
}

LogicalResult AwaitOp::verify() {
  if (!isa_and_nonnull<FetchOp, StoreOp>(getCopy().getDefiningOp())) // C1
    return emitOpError("waits for what is no copy");
  return success();
}

LogicalResult SendOp::verify() {
  auto loop = dyn_cast<LoopOp>((*this)->getParentOp());
  if (getLast() && !(loop && loop.examples())) // C1
    return emitOpError("of the last micro-batch stands outside a loop over the micro-batches");
  return success();
}

LogicalResult ReceiveOp::verify() {
  if (getAdds() && !getBegins()) // C2
    return emitOpError("is added to no sum");
  if (!getBegins())
    return success();
  auto loop = dyn_cast<LoopOp>((*this)->getParentOp());
  if (!loop || !loop.examples() || *getBegins() >= loop.getNumResults() ||
      loop.getResult(unsigned(*getBegins())).getType() != getValue().getType()) // C1
    return emitOpError("begins no sum of a loop over the micro-batches that has its type");
  return success();
}

Value ReceiveOp::sum() {
  if (!getBegins())
    return {};
  return (*this)->getBlock()->getTerminator()->getOperand(unsigned(*getBegins()));
}

KernelKind plan::kindOf(Operation *op) {
  return isa<nn::ContractOp>(op)     ? KernelKind::Product
         : isa<nn::AttendOp>(op)     ? KernelKind::Attention
         : isa<nn::AttendGradOp>(op) ? KernelKind::AttentionGrad
         : isa<nn::ConvOp>(op)       ? KernelKind::Convolution
         : isa<nn::MaxPoolOp, nn::SumPoolOp, nn::MaxPoolGradOp, nn::SumPoolGradOp>(op) ? KernelKind::Pool
         : isa<nn::ScanOp, LoopOp>(op)                                                 ? KernelKind::Scan
                                                                                       : KernelKind::Loop;
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
  if (getDomain() && getKind() != KernelKind::Loop) // C3
    return emitOpError() << "has a domain, which a kernel of kind '" << stringifyKernelKind(getKind()) << "' has not";
  if (auto domain = getDomain())
    if (int64_t(*domain) < 0 || int64_t(*domain) >= int64_t(body.getOperations().size()) ||
        std::next(body.begin(), int64_t(*domain))->getNumResults() == 0)
      return emitOpError("has no op number ") << int64_t(*domain) << " with a result, as 'domain' says";
  Operation *first = terminator.getValues().empty() ? nullptr : terminator.getValues().front().getDefiningOp();
  if (first && kindOf(first) != getKind()) // C4
    return emitOpError() << "is of kind '" << stringifyKernelKind(getKind()) << "'; its first result is that of '" << first->getName()
                         << "', for which kernels of kind '" << stringifyKernelKind(kindOf(first)) << "' are";
  return success();
}
