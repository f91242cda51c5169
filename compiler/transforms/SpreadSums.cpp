// SpreadSums.cpp: sums over three shards and more are made in pieces. Each shard adds one piece of what all of them have and hands it on, so it
// sends 2 (T - 1) / T of the value, as around a ring; whole values to everybody would be T - 1 of them. A piece is added in the order of the
// shards as the whole would be: no bit differs.
//
//     %s = nn.add %p, %q
//     %y = nn.add %s, %r {nn.all_reduce}                     p, q, r: of the shards 0, 1, 2
//  ->
//     %p0 = nn.slice %p .. {nn.shard = 0} ..                 three pieces of each
//     %y0 = nn.add (nn.add %p0, %q0), %r0 {nn.shard = 0}     likewise %y1 on shard 1, %y2 on shard 2
//     %y = nn.concat %y0, %y1, %y2 {nn.all_reduce}           on all
#include "compiler/transforms/ShardValues.h"

#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace cinch {
namespace {

// A value takes two ways instead of one, and a hand-over between threads takes some microseconds, in which about so many bytes are copied.
constexpr int64_t kWorth = 8 << 10;

class Spreader {
public:
  explicit Spreader(Operation *root) : root(root), type(nn::tensorOf(root->getResult(0))) {}

  bool isWorth() {
    if (nn::shardOf(root) >= 0 || !collect(root) || leaves.size() < 3)
      return false;
    int64_t pieces = int64_t(leaves.size()), batch = nn::batchAxis(type);
    for (axis = 0; axis < type.getRank(); ++axis)
      if (axis != batch && type.getDimSize(unsigned(axis)) >= pieces)
        break;
    if (axis == type.getRank())
      return false;
    int64_t bytes = type.getNumElements() / (batch < 0 ? 1 : type.getDimSize(unsigned(batch))) * type.getElementTypeBitWidth() / 8;
    return bytes * (pieces - 1) - 2 * bytes * (pieces - 1) / pieces >= kWorth;
  }

  void spread() {
    OpBuilder b(root);
    int64_t pieces = int64_t(leaves.size());
    auto begin = [&](int64_t piece) { return uint64_t(type.getDimSize(unsigned(axis)) * piece / pieces); };
    std::vector<IRMapping> cut(leaves.size());
    for (Value leaf : leaves) // all of them first: what others wait for
      for (int64_t piece = 0; piece < pieces; ++piece)
        cut[size_t(piece)].map(leaf, marked(nn::SliceOp::create(b, leaf.getLoc(), leaf, uint64_t(axis), begin(piece), begin(piece + 1)), leaf.getDefiningOp()));
    SmallVector<Value> sums;
    for (auto [piece, owner] : llvm::enumerate(leaves)) {
      for (Operation *op : llvm::reverse(tree)) {
        Operation *copy = b.clone(*op, cut[piece]);
        copy->removeAttr(nn::kAllReduceAttr);
        SmallVector<int64_t> shape(type.getShape());
        shape[size_t(axis)] = int64_t(begin(int64_t(piece) + 1) - begin(int64_t(piece)));
        auto old = nn::tensorOf(op->getResult(0));
        copy->getResult(0).setType(RankedTensorType::get(shape, old.getElementType(), old.getEncoding()));
        marked(copy, owner.getDefiningOp());
      }
      sums.push_back(cut[piece].lookup(root->getResult(0)));
    }
    auto whole = nn::ConcatOp::create(b, root->getLoc(), sums, uint64_t(axis));
    whole->setDiscardableAttrs(root->getDiscardableAttrDictionary());
    root->getResult(0).replaceAllUsesWith(whole);
    for (Operation *op : tree)
      op->erase();
  }

private:
  // The additions between the shards' values and the sum, each behind its readers; what a shard has only widened travels as it was.
  bool collect(Operation *op) {
    if (!isa<nn::AddOp, nn::MaxOp, nn::CastOp>(op) || nn::tensorOf(op->getResult(0)).getShape() != type.getShape())
      return false;
    tree.push_back(op);
    for (Value operand : op->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (!def)
        return false;
      Operation *narrow = isa<nn::CastOp>(def) && operand.hasOneUse() ? def->getOperand(0).getDefiningOp() : nullptr;
      bool widened = narrow && nn::shardOf(narrow) >= 0 && nn::tensorOf(def->getOperand(0)).getElementType().isBF16();
      if (nn::shardOf(def) >= 0 && !widened)
        leaves.push_back(operand);
      else if (!operand.hasOneUse() || !collect(def))
        return false;
    }
    return true;
  }

  // As an op of the shard that does `like`.
  Value marked(Operation *op, Operation *like) {
    op->setAttr(nn::kShardAttr, like->getAttr(nn::kShardAttr));
    if (root->hasAttr(nn::kBackwardAttr))
      op->setAttr(nn::kBackwardAttr, UnitAttr::get(op->getContext()));
    return op->getResult(0);
  }

  Operation *root;
  RankedTensorType type;
  int64_t axis = 0;
  SmallVector<Operation *> tree;
  SmallVector<Value> leaves;
};

} // namespace

void spreadSums(ModuleOp module) {
  SmallVector<Operation *> roots;
  module.walk([&](Operation *op) {
    if (op->hasAttr(nn::kAllReduceAttr))
      roots.push_back(op);
  });
  for (Operation *root : roots)
    if (Spreader spreader(root); spreader.isWorth())
      spreader.spread();
}

} // namespace cinch
