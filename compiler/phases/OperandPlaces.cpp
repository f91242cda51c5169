// OperandPlaces.cpp: offsets in a micro-batch, in a block of rows, in a trip of a loop along an axis.
#include "compiler/phases/OperandPlaces.h"
#include "compiler/solve/Bytes.h"

#include "compiler/transforms/Decision.h"

#include <numeric>

using namespace mlir;

namespace cinch {

using namespace kernels;

// The loop over blocks of rows, or along an axis, to whose body an op or a value belongs; null: there is none.
static plan::LoopOp loopAround(Operation *parent) {
  auto loop = dyn_cast<plan::LoopOp>(parent);
  return loop && !loop.examples() ? loop : plan::LoopOp();
}

bool OperandPlaces::isMoved(plan::KernelOp kernel) const {
  auto waits = [&](Value value) { return copiesOf(value).count > 1; };
  return loopAround(kernel->getParentOp()) || llvm::any_of(kernel.getInputs(), waits) || llvm::any_of(kernel.getOutputs(), waits);
}

Value OperandPlaces::offsetOf(Value value, int64_t first) {
  Operation *parent = value.getParentBlock()->getParentOp();
  if (plan::LoopOp loop = loopAround(parent))
    return inTrip(loop, value, first);
  if (auto kernel = dyn_cast<plan::KernelOp>(parent)) { // which is a loop along an axis, of which this is an operand
    unsigned number = cast<BlockArgument>(value).getArgNumber();
    return offsetOf(kernel.getInputs()[number], (*kernel.getReads())[number]);
  }
  return inMicrobatch(value, e.number(e.i64, first));
}

// ---- Alignment -----------------------------------------------------------------------------------------------------------------

static int64_t alignmentOf(const plan::LoopOp::Steps &steps, int64_t whole) {
  return std::gcd(std::gcd(whole, steps.first), std::gcd(steps.outer, steps.inner));
}

// As behindTrip has it: slots, and what is accumulated, lie where nothing moves them.
static int64_t alignmentBehindTrip(plan::LoopOp loop, OpResult result) {
  int64_t whole = solve::kLine;
  if (loop.axis() && !result.use_empty()) {
    auto kernel = cast<plan::KernelOp>(loop->getParentOp());
    ValueRange returned = kernel.getBody().front().getTerminator()->getOperands();
    whole = alignmentOf(kernel.getResult(unsigned(llvm::find(returned, result) - returned.begin())));
  }
  return loop.isStacked(result) ? alignmentOf(loop.stepsOf(result), whole) : whole;
}

// As inTrip has it.
int64_t alignmentOf(Value value) {
  Operation *parent = value.getParentBlock()->getParentOp();
  auto argument = dyn_cast<BlockArgument>(value);
  if (auto kernel = dyn_cast<plan::KernelOp>(parent))
    return alignmentOf(kernel.getInputs()[argument.getArgNumber()]);
  plan::LoopOp loop = loopAround(parent);
  if (!loop)
    return solve::kLine;
  if (!argument) {
    OpResult result = loop.resultOf(value);
    return result ? alignmentBehindTrip(loop, result) : solve::kLine;
  }
  unsigned number = argument.getArgNumber(), carried = unsigned(loop.getInits().size()), sliced = unsigned(loop.getSlices().size());
  const int64_t operand = alignmentOf(loop.operandOf(argument));
  if (number < carried)
    return std::gcd(operand, alignmentBehindTrip(loop, loop.resultOf(loop.yieldedFor(loop->getResult(number)))));
  if (number < carried + sliced)
    return alignmentOf(loop.stepsOfSlice(number - carried), operand);
  number -= carried + sliced;
  return std::gcd(alignmentOf(loop.stepsOf(loop.getStacks()[number]), operand), alignmentOf(loop.getFirsts()[number]));
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
  if (plan::LoopOp rows = loopAround(result.getOwner()->getParentOp()))
    if (OpResult filled = rows.resultOf(value))
      whole = filled;
  int64_t bytes = analysis::bytesOf(whole);
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

// ---- Blocks of rows, parts of an axis ------------------------------------------------------------------------------------------

const OperandPlaces::Trip &OperandPlaces::begin(plan::LoopOp loop, Value number) {
  Trip trip{number, number, e.number(e.i64, 0)};
  if (loop.axis() && loop.axis().getReverse())
    trip.outer = LLVM::SubOp::create(e.builder, e.loc, e.number(e.i64, int64_t(loop.getCount()) - 1), number);
  if (loop.innerTrips() > 1) {
    Value trips = e.number(e.i64, loop.innerTrips());
    trip.outer = LLVM::SDivOp::create(e.builder, e.loc, number, trips);
    trip.inner = LLVM::SRemOp::create(e.builder, e.loc, number, trips);
  }
  return trips[loop] = trip;
}

// Of a value that a kernel of a loop's body reads or writes, in the trip that runs.
Value OperandPlaces::inTrip(plan::LoopOp loop, Value value, int64_t first) {
  Trip trip = trips.lookup(loop);
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument) {
    OpResult result = loop.resultOf(value);
    return result ? behindTrip(loop, result, trip, first) : inMicrobatch(value, e.number(e.i64, first));
  }
  unsigned number = argument.getArgNumber(), carried = unsigned(loop.getInits().size()), sliced = unsigned(loop.getSlices().size());
  Value operand = offsetOf(loop.operandOf(argument), first);
  if (number >= carried && number < carried + sliced)
    return part(loop.stepsOfSlice(number - carried), operand, trip);
  Trip before{minusOne(trip.number), minusOne(trip.outer), trip.inner};
  if (number < carried) { // the trip before was at the next part of an axis that is walked from its end
    if (loop.axis().getReverse())
      before.outer = e.plus(trip.outer, e.number(e.i64, 1), 1);
    OpResult result = loop.resultOf(loop.yieldedFor(loop->getResult(number)));
    return select(isZero(trip.number), operand, behindTrip(loop, result, before, first));
  }
  number -= carried + sliced;
  Value behind = part(loop.stepsOf(loop.getStacks()[number]), operand, before);
  return select(isZero(trip.outer), offsetOf(loop.getFirsts()[number], first), behind);
}

// Where a trip leaves what it yields for a result.
Value OperandPlaces::behindTrip(plan::LoopOp loop, OpResult result, const Trip &trip, int64_t first) {
  if (loop.isCarried(result))
    return slot(loop, result, trip);
  Value whole = ofResult(loop, result, first);
  return loop.isStacked(result) ? part(loop.stepsOf(result), whole, trip) : whole;
}

// Two slots take turns; if the last value is asked for, it is left where it belongs.
Value OperandPlaces::slot(plan::LoopOp loop, OpResult carried, const Trip &trip) {
  ArrayRef<int64_t> slots = loop->getAttrOfType<DenseI64ArrayAttr>(kSlotsAttr);
  size_t first = 0;
  for (unsigned i = 0; i < carried.getResultNumber(); ++i)
    first += loop.hasSlots(i) ? 2 : 0;
  Value last = carried.use_empty() ? e.number(e.i64, slots[first]) : ofResult(loop, carried, slots[first]);
  Value left = LLVM::SubOp::create(e.builder, e.loc, e.number(e.i64, int64_t(loop.getCount()) - 1), trip.number);
  Value odd = LLVM::AndOp::create(e.builder, e.loc, left, e.number(e.i64, 1));
  return select(isZero(odd), last, e.number(e.i64, slots[first + 1]));
}

// Where a result of the loop lies: over rows where its kernel writes it, along an axis where the kernel that the loop is has it.
Value OperandPlaces::ofResult(plan::LoopOp loop, OpResult result, int64_t first) {
  if (!loop.axis())
    return inMicrobatch(loop.yieldedFor(result), e.number(e.i64, first));
  auto kernel = cast<plan::KernelOp>(loop->getParentOp());
  ValueRange returned = kernel.getBody().front().getTerminator()->getOperands();
  unsigned number = unsigned(llvm::find(returned, result) - returned.begin());
  return offsetOf(kernel.getResult(number), (*kernel.getWrites())[number]);
}

// The part of a sliced operand or of a stacked result that begins at `whole`.
Value OperandPlaces::part(const plan::LoopOp::Steps &steps, Value whole, const Trip &trip) {
  Value first = e.plus(whole, e.number(e.i64, 1), steps.first);
  return e.plus(e.plus(first, trip.outer, steps.outer), trip.inner, steps.inner);
}

Value OperandPlaces::minusOne(Value x) { return LLVM::SubOp::create(e.builder, e.loc, x, e.number(e.i64, 1)); }
Value OperandPlaces::isZero(Value x) { return LLVM::ICmpOp::create(e.builder, e.loc, LLVM::ICmpPredicate::eq, x, e.number(e.i64, 0)); }
Value OperandPlaces::select(Value condition, Value a, Value b) { return LLVM::SelectOp::create(e.builder, e.loc, condition, a, b); }

} // namespace cinch
