// ChooseLayouts.cpp: images keep the order of axes that convolutions and pools give them, channels last, for as long as nothing
// asks for another.
//
// The language's images have their channels first, the ops' last, so that a program comes with a transpose before and behind
// each of them. Work on a transposed image is done on the image itself instead, and what it gives is transposed: a transpose
// sinks until it meets its inverse, or work that it cannot pass. It is a function of the program alone and runs before gradients
// are made, so that sums over an image's axes have one order, whatever is planned later.
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/Sink.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/TypeSwitch.h"

#include <numeric>

namespace cinch {
#define GEN_PASS_DEF_CHOOSELAYOUTS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

using Axes = SmallVector<int64_t>;

// A value whose axis i is axis order[i] of `image`.
struct Moved {
  Value image;
  Axes order;
};

bool isIdentity(ArrayRef<int64_t> order) {
  for (auto [i, axis] : llvm::enumerate(order))
    if (int64_t(i) != axis)
      return false;
  return true;
}

Axes inverse(ArrayRef<int64_t> order) {
  Axes places(order.size());
  for (auto [i, axis] : llvm::enumerate(order))
    places[axis] = int64_t(i);
  return places;
}

class Sinker {
public:
  explicit Sinker(Block &block) : block(block), b(block.getParentOp()->getContext()) {}

  void run() {
    visitForward(block, b, [&](Operation *op) { visit(op); });
    eraseDead(block);
  }

private:
  void visit(Operation *op) {
    if (isa<nn::MaxPoolOp, nn::SumPoolOp>(op) || (isa<nn::ConvOp>(op) && cast<nn::ConvOp>(op).getGives() != nn::ConvPart::Filter)) {
      images.insert(op->getResult(0));
      return;
    }
    if (auto transpose = dyn_cast<nn::TransposeOp>(op))
      return visitTranspose(transpose);
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op); reshape && images.contains(reshape.getX()) && sameButForOnes(reshape))
      images.insert(reshape.getResult()); // what has one axis is an image of one column
    if (llvm::none_of(op->getOperands(), [&](Value value) { return moved.contains(value); }))
      return;
    TypeSwitch<Operation *>(op)
        .Case<nn::ReduceOp>([&](auto o) { reduce(o); })
        .Case<nn::ReshapeOp>([&](auto o) { reshape(o); })
        .Case<nn::BroadcastOp>([&](auto o) { broadcast(o); })
        .Case<nn::SliceOp, nn::PadOp, nn::ConcatOp, nn::ReverseOp>([&](auto o) { alongAxis(o); })
        .Default([&](Operation *other) {
          if (other->getNumResults() == 1 && (other->hasTrait<OpTrait::Elementwise>() || isa<nn::StopGradientOp>(other)))
            elementwise(other);
        });
  }

  static bool sameButForOnes(nn::ReshapeOp op) {
    auto longAxes = [](Value value) { return llvm::to_vector(llvm::make_filter_range(nn::tensorOf(value).getShape(), [](int64_t size) { return size != 1; })); };
    return longAxes(op.getX()) == longAxes(op.getResult());
  }

  void visitTranspose(nn::TransposeOp op) {
    Moved from{op.getX(), Axes(op.getPermutation())};
    if (auto found = moved.find(op.getX()); found != moved.end())
      for (int64_t &axis : (from.image = found->second.image, from.order))
        axis = found->second.order[axis];
    if (!images.contains(from.image))
      return;
    if (isIdentity(from.order))
      op.getResult().replaceAllUsesWith(from.image);
    else
      moved[op.getResult()] = from;
  }

  static RankedTensorType permuted(RankedTensorType type, ArrayRef<int64_t> order) { // axis order[i] is axis i of `type`
    Axes shape(order.size());
    int64_t batch = nn::batchAxis(type);
    for (auto [i, axis] : llvm::enumerate(order))
      shape[axis] = type.getDimSize(unsigned(i));
    return nn::tensorType(shape, type.getElementType(), batch < 0 ? -1 : order[batch], nn::batchGroup(type));
  }

  // `op` has given `image` in the place of its result.
  void gives(Operation *op, Value image, ArrayRef<int64_t> order) {
    if (image.getDefiningOp() && image.getDefiningOp() != op)
      image.getDefiningOp()->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    images.insert(image);
    Value result = op->getResult(0);
    if (isIdentity(order))
      return result.replaceAllUsesWith(image);
    auto back = nn::TransposeOp::create(b, op->getLoc(), image, order);
    if (Attribute number = op->getDiscardableAttr(nn::kBlockAttr))
      back->setDiscardableAttr(nn::kBlockAttr, number);
    result.replaceAllUsesWith(back);
    moved[back] = {image, Axes(order)};
  }

  // A value whose axes move as those of an image do.
  Value with(Value value, ArrayRef<int64_t> order) {
    if (auto found = moved.find(value); found != moved.end() && found->second.order == order)
      return found->second.image;
    Operation *op = value.getDefiningOp();
    auto type = permuted(nn::tensorOf(value), order);
    if (auto constant = dyn_cast_or_null<nn::ConstantOp>(op))
      return nn::ConstantOp::create(b, op->getLoc(), type, constant.getNumberAttr());
    if (auto spread = dyn_cast_or_null<nn::BroadcastOp>(op))
      return broadcastTo(spread, order, type);
    return nn::TransposeOp::create(b, value.getLoc(), value, inverse(order));
  }

  Value broadcastTo(nn::BroadcastOp op, ArrayRef<int64_t> order, RankedTensorType type) {
    Axes axes, sorted(op.getAxes().size());
    for (int64_t axis : op.getAxes())
      axes.push_back(order[axis]);
    std::iota(sorted.begin(), sorted.end(), 0);
    llvm::sort(sorted, [&](int64_t x, int64_t y) { return axes[x] < axes[y]; });
    Value from = op.getX();
    if (!isIdentity(sorted))
      from = nn::TransposeOp::create(b, op.getLoc(), from, sorted);
    llvm::sort(axes);
    auto made = nn::BroadcastOp::create(b, op.getLoc(), type, from, axes);
    made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    return made;
  }

  // The order of the first operand that is moved.
  Axes orderOf(Operation *op) {
    for (Value value : op->getOperands())
      if (auto found = moved.find(value); found != moved.end())
        return found->second.order;
    return {};
  }

  Operation *cloned(Operation *op, ArrayRef<int64_t> order) {
    SmallVector<Value> operands;
    for (Value value : op->getOperands())
      operands.push_back(with(value, order));
    Operation *made = b.clone(*op);
    made->setOperands(operands);
    made->getResult(0).setType(permuted(nn::tensorOf(op->getResult(0)), order));
    return made;
  }

  void elementwise(Operation *op) {
    Axes order = orderOf(op);
    gives(op, cloned(op, order)->getResult(0), order);
  }

  void alongAxis(Operation *op) {
    Axes order = orderOf(op);
    Operation *made = cloned(op, order);
    int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
    made->setAttr("axis", b.getI64IntegerAttr(order[axis]));
    gives(op, made->getResult(0), order);
  }

  void reduce(nn::ReduceOp op) {
    Moved from = moved.lookup(op.getX());
    Axes axes, kept, order;
    for (int64_t axis = 0; axis < int64_t(from.order.size()); ++axis)
      (llvm::is_contained(op.getAxes(), axis) ? axes : kept).push_back(from.order[axis]);
    llvm::sort(axes);
    for (int64_t axis : kept)
      order.push_back(llvm::count_if(kept, [&](int64_t other) { return other < axis; }));
    gives(op, nn::ReduceOp::create(b, op.getLoc(), op.getReductionAttr(), from.image, b.getDenseI64ArrayAttr(axes)), order);
  }

  // New axes stay behind the one that they follow.
  void broadcast(nn::BroadcastOp op) {
    Moved from = moved.lookup(op.getX());
    auto type = nn::tensorOf(op.getResult());
    SmallVector<Axes> runs(1); // axes of the result: those before the first of x, then each of x and what follows it
    for (int64_t axis = 0; axis < type.getRank(); ++axis) {
      if (llvm::is_contained(op.getAxes(), axis))
        runs.emplace_back();
      runs.back().push_back(axis);
    }
    Axes behind = inverse(from.order), sequence = runs[0];
    for (int64_t axis : behind)
      llvm::append_range(sequence, runs[axis + 1]);
    Axes order = inverse(sequence);
    Axes axes;
    for (int64_t axis : behind)
      axes.push_back(order[op.getAxes()[axis]]);
    gives(op, nn::BroadcastOp::create(b, op.getLoc(), permuted(type, order), from.image, axes), order);
  }

  // Groups of axes of equal size before and behind, if those of each lie together in the image too.
  void reshape(nn::ReshapeOp op) {
    Moved from = moved.lookup(op.getX());
    ArrayRef<int64_t> before = nn::tensorOf(op.getX()).getShape(), behind = nn::tensorOf(op.getResult()).getShape();
    struct Group {
      int64_t place; // in the image
      Axes axes;     // of the result
    };
    SmallVector<Group> groups;
    size_t i = 0, j = 0;
    while (i < before.size() && j < behind.size()) {
      Group group{from.order[i], {int64_t(j)}};
      int64_t x = before[i++], y = behind[j++];
      while (x != y) {
        if (y > x && (i == before.size() || from.order[i] != from.order[i - 1] + 1))
          return;
        if (y > x) {
          x *= before[i++];
        } else {
          if (j == behind.size())
            return;
          y *= behind[j];
          group.axes.push_back(int64_t(j++));
        }
      }
      groups.push_back(std::move(group));
    }
    for (; j < behind.size(); ++j) // further axes of one element
      groups.back().axes.push_back(int64_t(j));
    llvm::sort(groups, [](const Group &x, const Group &y) { return x.place < y.place; });
    Axes sequence;
    for (const Group &group : groups)
      llvm::append_range(sequence, group.axes);
    Axes order = inverse(sequence);
    auto type = permuted(nn::tensorOf(op.getResult()), order);
    // The batch axis keeps its place among the elements, as a reshape asks.
    int64_t batch = nn::batchAxis(type), batchBefore = nn::batchAxis(from.image);
    auto leading = [](RankedTensorType of, int64_t axes) {
      int64_t count = 1;
      for (int64_t axis = 0; axis < axes; ++axis)
        count *= of.getDimSize(unsigned(axis));
      return count;
    };
    if (batch >= 0 && leading(type, batch) != leading(nn::tensorOf(from.image), batchBefore))
      return;
    gives(op, nn::ReshapeOp::create(b, op.getLoc(), type, from.image), order);
  }

  Block &block;
  OpBuilder b;
  DenseMap<Value, Moved> moved;
  DenseSet<Value> images; // with their channels last, and what was computed from them
};

struct ChooseLayouts : cinch::impl::ChooseLayoutsBase<ChooseLayouts> {
  void runOnOperation() final {
    for (auto function : getOperation().getOps<func::FuncOp>())
      Sinker(function.getBody().front()).run();
  }
};

} // namespace
