// VerifySums.cpp: the sums of a loop over micro-batches. Each begins with nothing in its bytes, once a step: the loop clears it, or, where there
// is one trip, its work does or begins it without looking at what is there. What is cleared is a sum of the loop and nothing else.
#include "compiler/solve/Bytes.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/ScheduleLives.h"

using namespace mlir;

namespace cinch {

SmallVector<ClearedRange> clearedBy(Operation *op) {
  SmallVector<ClearedRange> ranges;
  auto zeroed = op->getAttrOfType<DenseI64ArrayAttr>(kZeroedAttr);
  for (int64_t i = 0; zeroed && i + 1 < zeroed.size(); i += 2)
    ranges.push_back({op, zeroed[i], zeroed[i + 1]});
  return ranges;
}

bool clears(Operation *op, int64_t offset) {
  return llvm::any_of(clearedBy(op), [&](const ClearedRange &range) { return range.offset == offset; });
}

static bool accumulates(plan::KernelOp kernel, OpResult result) {
  return kernel.getAccumulates() && (*kernel.getAccumulates())[result.getResultNumber()];
}

// Counts how often the sum begins in a step, and marks what clears it. The ranges stand in the order of their offsets.
static LogicalResult verifyBegin(plan::LoopOp loop, LoopSum &sum, MutableArrayRef<ClearedRange> ranges) {
  auto kernel = sum.value.getDefiningOp<plan::KernelOp>();
  Operation *work = sum.value.getDefiningOp();
  while (work && work->getParentOp() != loop)
    work = work->getParentOp();
  bool goesOn = !kernel || accumulates(kernel, cast<OpResult>(sum.value));
  if (!goesOn && kernel != work)
    return kernel.emitOpError("begins a sum anew in every block of rows");
  int begins = sum.beginsLate = !goesOn;
  auto first = llvm::partition_point(ranges, [&](const ClearedRange &range) { return range.offset < sum.offset; });
  for (ClearedRange &range : llvm::make_range(first, ranges.end())) {
    if (range.offset != sum.offset)
      break;
    if (range.bytes == solve::roundUp(sum.bytes) && (range.op == loop || range.op == work)) {
      range.isSum = true, ++begins;
      sum.beginsLate |= range.op != loop;
    }
  }
  Operation *at = work ? work : loop;
  if (begins != 1)
    return at->emitOpError("has a sum at offset ") << sum.offset << " that is cleared or begun " << begins << " times, not once";
  if (sum.beginsLate && loop.getCount() != 1)
    return at->emitOpError("begins its sum anew in each of ") << loop.getCount() << " micro-batches";
  return success();
}

// What the loop and the work in it clear. What is added to what is there is a sum of the loop: nothing else is cleared.
static LogicalResult findCleared(plan::LoopOp loop, ArrayRef<LoopSum> sums, SmallVector<ClearedRange> &ranges) {
  DenseSet<Value> yielded;
  for (const LoopSum &sum : sums)
    yielded.insert(sum.value);
  WalkResult walked = loop->walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    llvm::append_range(ranges, clearedBy(op));
    auto kernel = dyn_cast<plan::KernelOp>(op);
    if (!kernel)
      return WalkResult::advance();
    for (OpResult result : kernel->getResults())
      if (accumulates(kernel, result) && !yielded.contains(result))
        return kernel.emitOpError("adds to result ") << result.getResultNumber() << ", which is no sum of the loop";
    return analysis::loopOf(kernel) ? WalkResult::advance() : WalkResult::skip(); // only loops have kernels in them
  });
  return failure(walked.wasInterrupted());
}

LogicalResult verifySums(plan::LoopOp loop, MutableArrayRef<LoopSum> sums) {
  SmallVector<ClearedRange> ranges;
  if (failed(findCleared(loop, sums, ranges)))
    return failure();
  llvm::stable_sort(ranges, [](const ClearedRange &a, const ClearedRange &b) { return a.offset < b.offset; });
  for (LoopSum &sum : sums)
    if (failed(verifyBegin(loop, sum, ranges)))
      return failure();
  for (const ClearedRange &range : ranges)
    if (!range.isSum)
      return range.op->emitOpError("clears bytes [") << range.offset << ", " << range.offset + range.bytes << "), which are no sum that begins there";
  return success();
}

} // namespace cinch
