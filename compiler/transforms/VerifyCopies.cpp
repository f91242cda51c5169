// VerifyCopies.cpp: states on the host, and their copies in the arena (HostCopies).
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/ScheduleLives.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {

// Of arguments on the host: bytes of their own, within what there are.
LogicalResult HostCopies::place(BlockArgument argument, int64_t offset) {
  auto all = function->getAttrOfType<IntegerAttr>(kHostBytesAttr);
  int64_t end = offset + bytesOf(argument);
  if (offset < 0 || offset % 64 || !all || end > all.getInt())
    return function.emitOpError("argument ") << argument.getArgNumber() << " lies outside the pinned memory";
  auto next = hostEnds.lower_bound(offset + 1); // the first that ends behind its begin
  if (next != hostEnds.end() && next->second < end)
    return function.emitOpError("argument ") << argument.getArgNumber() << " shares bytes of pinned memory with another";
  hostEnds[end] = offset;
  hostOffset[argument] = offset;
  return success();
}

// A copy begins, or is waited for. Reading and writing where one is under way is refused where it is done (`number`, `sweep`).
LogicalResult HostCopies::number(Operation &op, int64_t time) {
  if (auto fetch = dyn_cast<plan::FetchOp>(op)) {
    auto home = hostOffset.find(fetch.getValue());
    if (home == hostOffset.end() || !fetch.getHost() || int64_t(*fetch.getHost()) != home->second || !fetch.getOffset())
      return op.emitOpError("does not copy a state from where it lies on the host");
    lives[fetch.getCopy()] = {int64_t(*fetch.getOffset()), bytesOf(fetch.getCopy()), time, time, fetch.getCopy()};
    underWay.insert({fetch.getCopy(), fetch.getCopy()});
    cameTo[home->second] = int64_t(*fetch.getOffset());
  } else if (auto store = dyn_cast<plan::StoreOp>(op)) {
    Value value = store.getValue();
    if (!store.getOffset() || !store.getHost() || !lives.count(value) || lives[value].offset != int64_t(*store.getOffset()))
      return op.emitOpError("does not copy a state from where it lies");
    if (auto came = cameTo.find(int64_t(*store.getHost())); came == cameTo.end() || came->second != int64_t(*store.getOffset()))
      return op.emitOpError("copies a state from elsewhere than it was copied to");
    lives[value].end = std::max(lives[value].end, time);
    underWay.insert({store.getCopy(), value});
  } else {
    Value copy = cast<plan::AwaitOp>(op).getCopy();
    auto it = underWay.find(copy);
    if (it == underWay.end())
      return op.emitOpError("waits for a copy that is not under way");
    lives[it->second].end = std::max(lives[it->second].end, time);
    underWay.erase(it);
  }
  return success();
}

LogicalResult HostCopies::verifyEnd() {
  for (auto &[copy, value] : underWay)
    return copy.getDefiningOp()->emitOpError("is not awaited");
  return success();
}

} // namespace cinch
