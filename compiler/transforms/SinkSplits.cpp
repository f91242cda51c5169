// SinkSplits.cpp: element-wise work on a split axis is done on the whole one, where a value is repeated along a part of it.
//
// A group norm looks at its channels as groups of channels, and repeats the mean of a group along them. Kernels read the image by
// channels too, and a value of group c / 4 has no plain index there, so the repeated mean would be stored as large as the image. So the
// split sinks through the work, and the mean is repeated for the channels of its group alone, before it is for the places:
//
//     %r = nn.reshape %y : [8, 64, 16] -> [8, 64, 4, 4]             %j = nn.broadcast %m [0, 1] : [8, 4] -> [8, 4, 4]
//     %w = nn.broadcast %m [0, 2] : [8, 4] -> [8, 64, 4, 4]    ->   %c = nn.reshape %j : -> [8, 16]
//     %d = nn.sub %r, %w                                            %w = nn.broadcast %c [0, 2] : -> [8, 64, 16]
//                                                                   %s = nn.sub %y, %w
//                                                                   %d = nn.reshape %s : -> [8, 64, 4, 4]
//
// What lies between the split and that work (a cast, the square of a difference) is done on the whole axis with it, and only then.
//
// It runs behind gradients and sums over parts of the axis are as before, so no bit changes. It is a function of the program alone.
#include "compiler/transforms/Hints.h"
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/Sink.h"
#include "dialects/nn/NN.h"

#include <optional>

namespace cinch {
#define GEN_PASS_DEF_SINKSPLITS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

using Axes = SmallVector<int64_t>;

// A value that is `whole` with some axes split: axis k of `whole` is the axes parts[k] .. parts[k + 1] - 1. Without `whole` it is
// element-wise work on such values, which can be done on whole axes as well.
struct Split {
  Value whole;
  Axes parts;
  RankedTensorType of; // shape and batch axis of what is split; the type of elements may be another one
};

// How `op` splits axes of what it reads, if it only does that and leaves the batch axis alone.
std::optional<Split> splitOf(nn::ReshapeOp op) {
  auto from = nn::tensorOf(op.getX()), to = nn::tensorOf(op.getResult());
  if (from.getRank() == 0 || from.getRank() >= to.getRank() || nn::batchGroup(from) != nn::batchGroup(to))
    return {};
  Split split{op.getX(), {0}, from};
  int64_t axis = 0;
  for (int64_t size : from.getShape()) {
    int64_t product = 1, begin = axis;
    while (axis < to.getRank() && (product < size || axis == begin))
      product *= to.getDimSize(unsigned(axis++));
    if (product != size)
      return {};
    split.parts.push_back(axis);
  }
  if (split.parts.back() != to.getRank())
    return {};
  int64_t batch = nn::batchAxis(from);
  if (batch >= 0 && (split.parts[batch] != nn::batchAxis(to) || split.parts[batch + 1] != split.parts[batch] + 1))
    return {};
  return split;
}

class Sinker {
public:
  explicit Sinker(Block &block) : block(block), b(block.getParentOp()->getContext()) {}

  void run() {
    visitForward(block, b, [&](Operation *op) { visit(op); });
    if (!sunk.empty())
      eraseDead(block);
  }

private:
  void visit(Operation *op) {
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op))
      return visitReshape(reshape);
    if (!op->hasTrait<OpTrait::Elementwise>() || op->getNumResults() != 1)
      return;
    std::optional<Split> split;
    bool wanted = false; // something is repeated along a part of an axis, now or in what is read
    for (Value operand : op->getOperands())
      if (auto found = splits.find(operand); found != splits.end()) {
        split = found->second;
        wanted |= sunk.contains(operand);
      }
    if (!split)
      return;
    for (Value operand : op->getOperands()) {
      auto found = splits.find(operand);
      if (found != splits.end() ? found->second.parts != split->parts : !operand.getDefiningOp<nn::ConstantOp>() && !operand.getDefiningOp<nn::BroadcastOp>())
        return;
      if (auto repeated = operand.getDefiningOp<nn::BroadcastOp>())
        wanted |= repeatsParts(repeated, split->parts);
    }
    if (wanted)
      elementwise(op, *split);
    else
      splits[op->getResult(0)] = {Value(), split->parts, split->of};
  }

  // A split that is undone is none.
  void visitReshape(nn::ReshapeOp op) {
    if (auto found = splits.find(op.getX()); found != splits.end() && found->second.whole && op.getType() == found->second.whole.getType() &&
        moveHints(op, found->second.whole.getDefiningOp()))
      return op.getResult().replaceAllUsesWith(found->second.whole);
    if (auto split = splitOf(op))
      splits[op.getResult()] = *split;
  }

  static bool repeatsParts(nn::BroadcastOp op, ArrayRef<int64_t> parts) {
    for (size_t k = 0; k + 1 < parts.size(); ++k) {
      int64_t own = ownAxes(op, parts[k], parts[k + 1]);
      if (own && own < parts[k + 1] - parts[k])
        return true;
    }
    return false;
  }

  // How many of these axes of the result are those of what is repeated.
  static int64_t ownAxes(nn::BroadcastOp op, int64_t begin, int64_t end) {
    return llvm::count_if(op.getAxes(), [&](int64_t axis) { return axis >= begin && axis < end; });
  }

  // Does the work of `op` on whole axes; returns its result there.
  Value elementwise(Operation *op, const Split &split) {
    OpBuilder::InsertionGuard guard(b);
    SmallVector<Value> operands;
    for (OpOperand &operand : op->getOpOperands()) // `whole` may put another value in its place, which is the same
      operands.push_back(whole(operand.get(), split));
    b.setInsertionPoint(op);
    Operation *same = b.clone(*op);
    same->setOperands(operands);
    same->getResult(0).setType(wholeType(nn::tensorOf(op->getResult(0)), split));
    auto back = nn::ReshapeOp::create(b, op->getLoc(), nn::tensorOf(op->getResult(0)), same->getResult(0));
    takePlace(back, op);
    op->getResult(0).replaceAllUsesWith(back);
    splits[back.getResult()] = {same->getResult(0), split.parts, split.of};
    sunk.insert(back.getResult());
    return same->getResult(0);
  }

  // A view belongs where `op` does; what the program asks of the value stays with the work that computes it.
  static void takePlace(Operation *view, Operation *op) {
    for (StringRef name : {nn::kBackwardAttr, nn::kBlockAttr})
      if (Attribute attribute = op->getDiscardableAttr(name))
        view->setDiscardableAttr(name, attribute);
  }

  static RankedTensorType wholeType(RankedTensorType type, const Split &split) {
    return nn::tensorType(split.of.getShape(), type.getElementType(), nn::batchAxis(type) >= 0 ? nn::batchAxis(split.of) : -1, nn::batchGroup(split.of));
  }

  Value whole(Value operand, const Split &split) {
    if (auto found = splits.find(operand); found != splits.end()) {
      Split its = found->second;
      return its.whole ? its.whole : elementwise(operand.getDefiningOp(), its);
    }
    b.setInsertionPointAfterValue(operand); // whoever reads it may be in front of where it is first asked for
    auto type = wholeType(nn::tensorOf(operand), split);
    Value &made = repeated[{operand, type}];
    if (made)
      return made;
    if (auto constant = operand.getDefiningOp<nn::ConstantOp>())
      return made = nn::ConstantOp::create(b, constant.getLoc(), type, constant.getNumberAttr());
    return made = broadcast(operand.getDefiningOp<nn::BroadcastOp>(), split.parts, type);
  }

  // Repeated along the missing parts of the axes that it has, then these as whole ones along the others.
  Value broadcast(nn::BroadcastOp op, ArrayRef<int64_t> parts, RankedTensorType type) {
    auto result = op.getType();
    Axes partsShape, partsAxes, wholeShape, wholeAxes;
    int64_t partsBatch = -1, wholeBatch = -1, batch = nn::hasBatch(op.getX()) ? nn::batchAxis(result) : -1;
    for (size_t k = 0; k + 1 < parts.size(); ++k) {
      if (!ownAxes(op, parts[k], parts[k + 1]))
        continue;
      int64_t size = 1;
      for (int64_t axis = parts[k]; axis < parts[k + 1]; ++axis) {
        if (llvm::is_contained(op.getAxes(), axis))
          partsAxes.push_back(int64_t(partsShape.size()));
        if (axis == batch)
          partsBatch = int64_t(partsShape.size()), wholeBatch = int64_t(wholeShape.size());
        partsShape.push_back(result.getDimSize(unsigned(axis)));
        size *= partsShape.back();
      }
      wholeShape.push_back(size);
      wholeAxes.push_back(int64_t(k));
    }
    Value x = op.getX();
    int64_t group = nn::batchGroup(x.getType());
    auto keep = [&](Operation *made) -> Value {
      takePlace(made, op);
      return made->getResult(0);
    };
    if (partsAxes.size() < partsShape.size())
      x = keep(nn::BroadcastOp::create(b, op.getLoc(), nn::tensorType(partsShape, result.getElementType(), partsBatch, group), x, partsAxes));
    if (wholeShape.size() < partsShape.size())
      x = keep(nn::ReshapeOp::create(b, op.getLoc(), nn::tensorType(wholeShape, result.getElementType(), wholeBatch, group), x));
    return keep(nn::BroadcastOp::create(b, op.getLoc(), type, x, wholeAxes));
  }

  Block &block;
  OpBuilder b;
  DenseMap<Value, Split> splits;
  DenseMap<std::pair<Value, Type>, Value> repeated; // constants and broadcasts of whole axes, as they were made
  DenseSet<Value> sunk; // results of work that was done on whole axes
};

struct SinkSplits : cinch::impl::SinkSplitsBase<SinkSplits> {
  void runOnOperation() final {
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.walk([](Block *block) { Sinker(*block).run(); });
  }
};

} // namespace
