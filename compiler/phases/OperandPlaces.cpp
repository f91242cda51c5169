// OperandPlaces.cpp: offsets in a micro-batch, in a block of rows, in a trip of a loop along an axis.
#include "compiler/phases/OperandPlaces.h"
#include "compiler/solve/Bytes.h"

#include "compiler/transforms/Decision.h"

using namespace mlir;

namespace cinch {

using namespace kernels;

// The loop over blocks of rows around an op; null: there is none.
static plan::LoopOp rowsAround(Operation *op) {
  auto loop = dyn_cast<plan::LoopOp>(op->getParentOp());
  return loop && loop.rowBlocks() ? loop : plan::LoopOp();
}

bool OperandPlaces::isMoved(plan::KernelOp kernel) const {
  auto waits = [&](Value value) { return copiesOf(value).count > 1; };
  return rowsAround(kernel) || isa<nn::ScanOp>(kernel->getParentOp()) || llvm::any_of(kernel.getInputs(), waits) ||
         llvm::any_of(kernel.getOutputs(), waits);
}

Value OperandPlaces::wordOf(plan::KernelOp kernel, const HostCode::Call &call, size_t i) {
  Value offset = i < call.values.size() ? offsetOf(call.values[i], call.words[i]) : e.number(e.i64, call.words[i]);
  if (!rowsAround(kernel))
    return offset;
  auto [outer, inner] = i < call.steps.size() ? call.steps[i] : std::pair<int64_t, int64_t>();
  return e.plus(e.plus(offset, example, outer), position, inner);
}

Value OperandPlaces::offsetOf(Value value, int64_t first) {
  if (auto scan = dyn_cast<nn::ScanOp>(value.getParentBlock()->getParentOp()))
    return inTrip(scan, value);
  return inMicrobatch(value, e.number(e.i64, first));
}

// ---- Micro-batches -------------------------------------------------------------------------------------------------------------

OperandPlaces::Copies OperandPlaces::copiesOf(Value value) const {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (auto loop = dyn_cast<plan::LoopOp>(argument.getOwner()->getParentOp()))
      return copiesOf(loop.operandOf(argument));
    auto newer = distance.find(value);
    return newer == distance.end() ? Copies() : Copies{2, newer->second, true};
  }
  auto result = cast<OpResult>(value);
  if (auto loop = dyn_cast<plan::LoopOp>(result.getOwner()); loop && loop.rowBlocks())
    return copiesOf(loop.yieldedFor(value));
  auto copies = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr);
  if (!copies || copies[result.getResultNumber()] == 1)
    return {};
  Value whole = value; // rows of one block: of all
  if (plan::LoopOp rows = rowsAround(result.getOwner()))
    if (OpResult filled = rows.resultOf(value))
      whole = filled;
  int64_t bytes = analysis::elementsOf(whole) * bytesOf(analysis::elemOf(whole));
  bool ofStep = overlapping && (sums.contains(value) || !overlapping->isProperAncestor(result.getOwner()));
  return {copies[result.getResultNumber()], solve::roundUp(bytes), ofStep};
}

// The offset of a value in the micro-batch that runs.
Value OperandPlaces::inMicrobatch(Value value, Value first) {
  Copies copies = copiesOf(value);
  if (copies.count == 1)
    return first;
  if (copies.ofStep)
    return next ? e.plus(first, next, copies.stride) : first;
  Value copy = LLVM::SRemOp::create(e.builder, e.loc, microbatch, e.number(e.i64, copies.count));
  return e.plus(first, copy, copies.stride);
}

// ---- Loops along an axis -------------------------------------------------------------------------------------------------------

// Of a value that a kernel of a loop's body reads or writes, in the trip that runs.
Value OperandPlaces::inTrip(nn::ScanOp scan, Value value) {
  Value trip = trips.lookup(scan);
  if (auto result = dyn_cast<OpResult>(value)) {
    for (unsigned i = scan.getNumResults(); i-- > 0;)
      if (scan.yield()->getOperand(i) == value)
        return i < scan.carriedCount() ? slot(scan, i, trip) : part(scan, scan.getResult(i), partOfTrip(scan, trip));
    return e.number(e.i64, (*cast<plan::KernelOp>(result.getOwner()).getWrites())[result.getResultNumber()]);
  }
  unsigned number = cast<BlockArgument>(value).getArgNumber();
  if (number < scan.carriedCount())
    return select(isZero(trip), ofOperand(scan, scan.getInits()[number]), behindTrip(scan, number, minusOne(trip)));
  number -= scan.carriedCount();
  if (number < scan.getSlices().size())
    return part(scan, scan.getSlices()[number], partOfTrip(scan, trip));
  number -= scan.getSlices().size();
  if (number < scan.getStacks().size()) {
    Value at = partOfTrip(scan, trip);
    return select(isZero(at), ofOperand(scan, scan.getFirsts()[number]), part(scan, scan.getStacks()[number], minusOne(at)));
  }
  return ofOperand(scan, scan.getWholes()[number - scan.getStacks().size()]);
}

// Where a trip leaves a carried value.
Value OperandPlaces::behindTrip(nn::ScanOp scan, unsigned carried, Value trip) {
  int stack = analysis::stackOfCarried(scan, carried);
  return stack >= 0 ? part(scan, scan.getResult(unsigned(stack)), partOfTrip(scan, trip)) : slot(scan, carried, trip);
}

// Two slots take turns; if the last value is asked for, it is left where it belongs.
Value OperandPlaces::slot(nn::ScanOp scan, unsigned carried, Value trip) {
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
Value OperandPlaces::part(nn::ScanOp scan, Value stacked, Value at) {
  auto type = nn::tensorOf(stacked);
  int64_t bytes = type.getNumElements() / int64_t(scan.getTrips()) * std::max<int64_t>(8, type.getElementTypeBitWidth()) / 8;
  return e.plus(ofOperand(scan, stacked), at, bytes);
}

// An operand or result of the loop, as the kernel that it is has it.
Value OperandPlaces::ofOperand(nn::ScanOp scan, Value value) {
  auto kernel = cast<plan::KernelOp>(scan->getParentOp());
  bool nested = isa<nn::ScanOp>(kernel->getParentOp()); // then its offset is the outer trip's
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    unsigned number = argument.getArgNumber();
    return offsetOf(kernel.getInputs()[number], nested ? 0 : (*kernel.getReads())[number]);
  }
  auto returned = kernel.getBody().front().getTerminator()->getOperands();
  unsigned number = unsigned(llvm::find(returned, value) - returned.begin());
  return offsetOf(kernel.getResult(number), nested ? 0 : (*kernel.getWrites())[number]);
}

Value OperandPlaces::partOfTrip(nn::ScanOp scan, Value trip) {
  if (!scan.getReverse())
    return trip;
  return LLVM::SubOp::create(e.builder, e.loc, e.number(e.i64, int64_t(scan.getTrips()) - 1), trip);
}

Value OperandPlaces::minusOne(Value x) { return LLVM::SubOp::create(e.builder, e.loc, x, e.number(e.i64, 1)); }
Value OperandPlaces::isZero(Value x) { return LLVM::ICmpOp::create(e.builder, e.loc, LLVM::ICmpPredicate::eq, x, e.number(e.i64, 0)); }
Value OperandPlaces::select(Value condition, Value a, Value b) { return LLVM::SelectOp::create(e.builder, e.loc, condition, a, b); }

} // namespace cinch
