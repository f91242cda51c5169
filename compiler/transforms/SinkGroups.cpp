// SinkGroups.cpp: work that compares the examples of a group is done on an axis of groups.
//
// `group_all(x, group = g)` is three views: x of B examples as B / g groups of g, that repeated for each example of its group, and
// the result as B examples with g rows each. The last view cannot be read in a loop over examples: which rows belong to example b
// needs b / g. So it sinks: element-wise work, sums and products behind it are done on the groups, where every row has a plain index,
// and only what they give is counted by examples again. There a product of the examples with the rows of their group is one product
// a group, [B/g, g, ..] with [B/g, g, ..], which reads each row where it lies:
//
//     %r = nn.reshape %k : [12, 8] -> [4, 3, 8] groups of 3         %r = nn.reshape %k : [12, 8] -> [4, 3, 8] groups of 3
//     %w = nn.broadcast %r [0, 2, 3] : -> [4, 3, 3, 8]              %p = nn.reshape %q : [12, 8] -> [4, 3, 8] groups of 3
//     %a = nn.reshape %w : -> [12, 3, 8]                       ->   %s = nn.contract %p [0, 1, 3], %r [0, 2, 3] -> [4, 3, 3]
//     %s = sum over 2 of %q (expanded) * %a : [12, 3]               nn.reshape %s : -> [12, 3]
//
// It runs before gradients are made, so theirs are products a group too, and what a row gets from the examples of its group is one sum.
// It is a function of the program alone.
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/Sink.h"
#include "dialects/nn/NN.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cinch {
#define GEN_PASS_DEF_SINKGROUPS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

using Axes = SmallVector<int64_t>;

// [.., B, ..] as [.., B / g, g, ..], the batch axis counting groups.
RankedTensorType groupedType(RankedTensorType type, int64_t group) {
  int64_t batch = nn::batchAxis(type);
  Axes shape(type.getShape());
  shape[batch] /= group;
  shape.insert(shape.begin() + batch + 1, group);
  return nn::tensorType(shape, type.getElementType(), batch, group);
}

// An operand of a product: a value, and the label of each of its axes.
struct Factor {
  Value value;
  Axes labels;
  bool has(int64_t label) const { return llvm::is_contained(labels, label); }
};

class Sinker {
public:
  explicit Sinker(Block &block) : block(block), b(block.getParentOp()->getContext()) {}

  void run() {
    visitForward(block, b, [&](Operation *op) { visit(op); });
    if (!grouped.empty())
      eraseDead(block);
  }

private:
  void visit(Operation *op) {
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op); reshape && nn::batchGroup(reshape.getX().getType()) > 1)
      return leaveGroups(reshape);
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op); reshape && nn::batchGroup(reshape.getType()) > 1)
      return enterGroups(reshape);
    int64_t group = 1;
    for (Value operand : op->getOperands())
      if (auto found = grouped.find(operand); found != grouped.end() && group == 1)
        group = nn::batchGroup(found->second.getType());
    if (group == 1 || op->getNumResults() != 1 || nn::batchAxis(op->getResult(0)) < 0)
      return;
    TypeSwitch<Operation *>(op)
        .Case<nn::BroadcastOp>([&](auto o) { gives(o, broadcast(o, group), true); })
        .Case<nn::TransposeOp>([&](auto o) { gives(o, transpose(o, group), true); })
        .Case<nn::SliceOp, nn::ReverseOp>([&](auto o) { gives(o, alongAxis(o, group), true); })
        .Case<nn::ReshapeOp>([&](auto o) { gives(o, reshape(o, group), true); })
        .Case<nn::ReduceOp>([&](auto o) { gives(o, reduce(o, group), false); })
        .Case<nn::ContractOp>([&](auto o) { gives(o, contract(o, group), false); })
        .Default([&](Operation *other) {
          if (other->hasTrait<OpTrait::Elementwise>() || isa<nn::StopGradientOp>(other))
            gives(other, elementwise(other, group), true);
        });
  }

  // Groups become examples: whoever reads these may work on the groups instead.
  void leaveGroups(nn::ReshapeOp op) {
    auto type = op.getType();
    int64_t group = nn::batchGroup(op.getX().getType());
    if (nn::batchGroup(type) > 1)
      return;
    auto wanted = groupedType(type, group);
    grouped[op.getResult()] = wanted == op.getX().getType() ? op.getX() : nn::ReshapeOp::create(b, op.getLoc(), wanted, op.getX()).getResult();
  }

  // Examples become groups, which they may have been before.
  void enterGroups(nn::ReshapeOp op) {
    if (auto found = grouped.find(op.getX()); found != grouped.end() && found->second.getType() == op.getType())
      op.getResult().replaceAllUsesWith(found->second);
  }

  // `op` has given `value`, on groups. `sinks`: whoever reads it may go on with them.
  void gives(Operation *op, Value value, bool sinks) {
    if (value.getDefiningOp())
      value.getDefiningOp()->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    Value result = op->getResult(0);
    Value back = nn::ReshapeOp::create(b, op->getLoc(), nn::tensorOf(result), value);
    result.replaceAllUsesWith(back);
    if (sinks)
      grouped[back] = value;
  }

  // `value`, which counts examples if it has a batch axis, on groups.
  Value onGroups(Value value, int64_t group) {
    if (nn::batchAxis(value) < 0)
      return value;
    if (auto found = grouped.find(value); found != grouped.end() && nn::batchGroup(found->second.getType()) == group)
      return found->second;
    auto type = groupedType(nn::tensorOf(value), group);
    if (auto constant = value.getDefiningOp<nn::ConstantOp>())
      return nn::ConstantOp::create(b, constant.getLoc(), type, constant.getNumberAttr());
    if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
      return this->broadcast(broadcast, group);
    return nn::ReshapeOp::create(b, value.getLoc(), type, value);
  }

  // Axis `axis` of a value on groups, if the batch axis was `batch`; the example in its group stands right behind the groups.
  static int64_t moved(int64_t axis, int64_t batch) { return axis <= batch ? axis : axis + 1; }
  static Axes moved(ArrayRef<int64_t> axes, int64_t batch) {
    return llvm::map_to_vector(axes, [&](int64_t axis) { return moved(axis, batch); });
  }

  Value broadcast(nn::BroadcastOp op, int64_t group) {
    int64_t batch = nn::batchAxis(op.getType()), from = nn::batchAxis(op.getX());
    Axes axes = moved(op.getAxes(), batch);
    if (from >= 0)
      axes.insert(axes.begin() + from + 1, batch + 1);
    return nn::BroadcastOp::create(b, op.getLoc(), groupedType(op.getType(), group), onGroups(op.getX(), group), axes);
  }

  Value transpose(nn::TransposeOp op, int64_t group) {
    int64_t batch = nn::batchAxis(op.getX());
    Axes order;
    for (int64_t axis : op.getPermutation()) {
      order.push_back(moved(axis, batch));
      if (axis == batch)
        order.push_back(batch + 1);
    }
    return nn::TransposeOp::create(b, op.getLoc(), onGroups(op.getX(), group), order);
  }

  Value alongAxis(Operation *op, int64_t group) {
    IRMapping map;
    map.map(op->getOperand(0), onGroups(op->getOperand(0), group));
    Operation *same = b.clone(*op, map);
    int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
    same->setAttr("axis", b.getI64IntegerAttr(moved(axis, nn::batchAxis(op->getOperand(0)))));
    same->getResult(0).setType(groupedType(nn::tensorOf(op->getResult(0)), group));
    return same->getResult(0);
  }

  Value reshape(nn::ReshapeOp op, int64_t group) {
    return nn::ReshapeOp::create(b, op.getLoc(), groupedType(op.getType(), group), onGroups(op.getX(), group));
  }

  Value elementwise(Operation *op, int64_t group) {
    IRMapping map;
    for (Value operand : op->getOperands())
      if (!map.contains(operand))
        map.map(operand, onGroups(operand, group));
    Operation *same = b.clone(*op, map);
    same->getResult(0).setType(groupedType(nn::tensorOf(op->getResult(0)), group));
    return same->getResult(0);
  }

  Value reduce(nn::ReduceOp op, int64_t group) {
    Value x = onGroups(op.getX(), group);
    Axes axes = moved(op.getAxes(), nn::batchAxis(op.getX()));
    if (Value product = productOf(op, x, axes))
      return product;
    return nn::ReduceOp::create(b, op.getLoc(), op.getReductionAttr(), x, b.getDenseI64ArrayAttr(axes));
  }

  // A sum of a product of two values on groups each of which has an index that the other lacks is one contraction.
  Value productOf(nn::ReduceOp op, Value x, ArrayRef<int64_t> axes) {
    auto mul = x.getDefiningOp<nn::MulOp>();
    if (!mul || op.getReduction() != nn::Reduction::Sum || !isa<FloatType>(op.getType().getElementType()))
      return {};
    int64_t rank = nn::tensorOf(x).getRank(), kept = 0, summed = rank - int64_t(axes.size());
    int64_t results = summed;
    Axes labels;
    for (int64_t axis = 0; axis < rank; ++axis)
      labels.push_back(llvm::is_contained(axes, axis) ? summed++ : kept++);
    Factor lhs{mul.getA(), labels}, rhs{mul.getB(), labels};
    dropRepeated(lhs, rhs, results);
    dropRepeated(rhs, lhs, results);
    auto ownOf = [&](const Factor &one, const Factor &other) {
      return llvm::any_of(one.labels, [&](int64_t label) { return !other.has(label); });
    };
    for (const Factor *factor : {&lhs, &rhs}) // nothing is repeated along what is summed
      if (auto repeated = factor->value.getDefiningOp<nn::BroadcastOp>())
        for (int64_t axis = 0; axis < repeated.getType().getRank(); ++axis)
          if (factor->labels[axis] >= results && !llvm::is_contained(repeated.getAxes(), axis))
            return {};
    if (!ownOf(lhs, rhs) || !ownOf(rhs, lhs))
      return {};
    return nn::ContractOp::create(b, op.getLoc(), groupedType(op.getType(), nn::batchGroup(x.getType())), lhs.value, rhs.value, lhs.labels, rhs.labels);
  }

  // The product of what a value is repeated from is that of the value, where the other operand has the index.
  void dropRepeated(Factor &factor, const Factor &other, int64_t results) {
    auto op = factor.value.getDefiningOp<nn::BroadcastOp>();
    if (!op)
      return;
    auto type = op.getType();
    int64_t batch = nn::batchAxis(op.getX());
    Axes shape, labels, axes;
    for (int64_t axis = 0; axis < type.getRank(); ++axis) {
      int64_t label = factor.labels[axis];
      bool own = llvm::is_contained(op.getAxes(), axis);
      if (!own && label < results && other.has(label))
        continue;
      if (own)
        axes.push_back(int64_t(shape.size()));
      shape.push_back(type.getDimSize(axis));
      labels.push_back(label);
    }
    if (labels.size() == factor.labels.size())
      return;
    if (axes.size() == shape.size()) {
      factor = {op.getX(), labels};
      return;
    }
    int64_t place = batch >= 0 ? axes[batch] : -1;
    auto narrow = nn::tensorType(shape, type.getElementType(), place, place < 0 ? 1 : nn::batchGroup(type));
    factor = {nn::BroadcastOp::create(b, op.getLoc(), narrow, op.getX(), axes), labels};
  }

  Value contract(nn::ContractOp op, int64_t group) {
    int64_t batch = nn::batchAxis(op.getType()), results = op.getType().getRank() + 1;
    auto factor = [&](Value value, ArrayRef<int64_t> labels) {
      Factor made{onGroups(value, group), moved(labels, batch)};
      if (int64_t axis = nn::batchAxis(value); axis >= 0)
        made.labels.insert(made.labels.begin() + axis + 1, batch + 1);
      return made;
    };
    Factor lhs = factor(op.getLhs(), op.getLhsLabels()), rhs = factor(op.getRhs(), op.getRhsLabels());
    dropRepeated(lhs, rhs, results);
    dropRepeated(rhs, lhs, results);
    return nn::ContractOp::create(b, op.getLoc(), groupedType(op.getType(), group), lhs.value, rhs.value, lhs.labels, rhs.labels);
  }

  Block &block;
  OpBuilder b;
  DenseMap<Value, Value> grouped; // a value that counts examples -> the same on groups
};

struct SinkGroups : cinch::impl::SinkGroupsBase<SinkGroups> {
  void runOnOperation() final {
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.walk([](Block *block) { Sinker(*block).run(); });
  }
};

} // namespace
