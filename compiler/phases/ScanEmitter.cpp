// ScanEmitter.cpp: a loop along an axis in the host code.
#include "compiler/phases/ScanEmitter.h"

#include "compiler/transforms/Decision.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

using namespace mlir;

namespace cinch {

namespace {
// Emits a loop along an axis: its kernels, launched in each trip, and where their operands lie in it.
class ScanEmitter {
public:
  // `moved`: the offset of an operand or result of the loop, in the micro-batch that runs.
  ScanEmitter(const HostCode &host, EntryEmitter &e, llvm::function_ref<Value(Value, int64_t)> moved)
      : host(host), e(e), moved(moved) {}

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
    const HostCode::Call &call = host.callOf(part);
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

  const HostCode &host;
  EntryEmitter &e;
  llvm::function_ref<Value(Value, int64_t)> moved;
  llvm::DenseMap<Operation *, Value> trips; // of the loops that run
};
} // namespace

void emitScan(const HostCode &host, EntryEmitter &e, plan::KernelOp loop, llvm::function_ref<Value(Value, int64_t)> moved) {
  ScanEmitter(host, e, moved).emit(loop);
}

} // namespace cinch
