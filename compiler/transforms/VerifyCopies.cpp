// VerifyCopies.cpp: states and values of the loop on the host, and their copies in the arena (HostCopies).
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/ScheduleLives.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {

// Bytes of one's own, within what there are. Returns what is wrong; null: nothing.
const char *HostCopies::take(int64_t offset, int64_t bytes) {
  auto all = function->getAttrOfType<IntegerAttr>(kHostBytesAttr);
  int64_t end = offset + bytes;
  if (offset < 0 || offset % 64 || !all || end > all.getInt())
    return "lies outside the pinned memory";
  auto next = hostEnds.lower_bound(offset + 1); // the first that ends behind its begin
  if (next != hostEnds.end() && next->second < end)
    return "shares bytes of pinned memory with another";
  hostEnds[end] = offset;
  return nullptr;
}

LogicalResult HostCopies::place(BlockArgument argument, int64_t offset) {
  states.insert(offset);
  hostOffset[argument] = offset;
  if (const char *wrong = take(offset, bytesOf(argument)))
    return function.emitOpError("argument ") << argument.getArgNumber() << " " << wrong;
  return success();
}

// A copy begins, or is waited for. Reading and writing where one is under way is refused where it is done (`number`, `sweep`).
LogicalResult HostCopies::number(Operation &op, int64_t time, Value value) {
  if (auto fetch = dyn_cast<plan::FetchOp>(op)) {
    auto home = hostOffset.find(fetch.getValue());
    if (home == hostOffset.end() || !fetch.getHost() || int64_t(*fetch.getHost()) != home->second || !fetch.getOffset())
      return op.emitOpError("does not copy from where its operand lies on the host");
    if (underWay.count(fetch.getValue()))
      return op.emitOpError("copies what is on its way to the host");
    lives[fetch.getCopy()] = {int64_t(*fetch.getOffset()), bytesOf(fetch.getCopy()), time, time, fetch.getCopy()};
    underWay.insert({fetch.getCopy(), fetch.getCopy()});
    cameTo[home->second] = int64_t(*fetch.getOffset());
  } else if (auto store = dyn_cast<plan::StoreOp>(op)) {
    if (!store.getOffset() || !store.getHost() || !lives.count(value) || lives[value].offset != int64_t(*store.getOffset()))
      return op.emitOpError("does not copy from where its operand lies");
    const auto host = int64_t(*store.getHost());
    if (!states.contains(host)) {
      hostOffset[store.getCopy()] = host;
      if (!op.getParentOfType<plan::LoopOp>() || underWay.count(value))
        return op.emitOpError("stores what is no state, and no value of the loop that lies still");
      if (const char *wrong = take(host, bytesOf(value)))
        return op.emitOpError("stores a value that ") << wrong;
    } else if (auto came = cameTo.find(host); came == cameTo.end() || came->second != int64_t(*store.getOffset()))
      return op.emitOpError("copies a state from elsewhere than it was copied to");
    else if (gate && (op.getBlock() != gate->getBlock() || op.isBeforeInBlock(gate)))
      return op.emitOpError("copies a state to the host before the gate");
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
