// HoldSums.cpp: gradients of parameters are summed grain by grain, on an axis of groups.
//
//     %dw = nn.contract %x [2, 0], %dy [2, 1] : [12, 8], [12, 4] -> [8, 4]              (grain 3)
//  ->
//     %xg = nn.reshape %x : -> [4, 3, 8] groups of 3                                    likewise %dyg
//     %p  = nn.contract %xg [0, 3, 1], %dyg [0, 3, 2] {nn.held} : -> [4, 8, 4]          a sum from zero for each grain
//     %dw = nn.reduce sum %p [0] : -> [8, 4]                                            their chain
//
// These are the additions of the op that it was, in the same order: a grain's sum starts from zero there, too. It is done to products and
// to sums of columns, whose chain goes over the examples of a grain first. Others stay as they are: a scatter-add would have a table for each
// grain, and the lanes of a row's sum would reach across examples.
#include "compiler/transforms/HoldSums.h"

#include "dialects/nn/Grain.h"
#include "dialects/nn/Held.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/TensorCores.h"

using namespace mlir;

namespace cinch {
namespace {

class Holder {
public:
  Holder(Operation *op, int64_t grain) : op(op), grain(grain), b(op) {}

  bool hold() {
    if (op->getNumResults() != 1 || !op->hasAttr(nn::kBackwardAttr) || nn::batchAxis(op->getResult(0)) >= 0)
      return false;
    Operation *held = nullptr;
    int64_t groups = 0; // the axis of the result that counts grains
    if (auto contract = dyn_cast<nn::ContractOp>(op))
      held = product(contract);
    else if (auto reduce = dyn_cast<nn::ReduceOp>(op))
      held = columns(reduce, groups);
    if (!held)
      return false;
    auto sum = nn::ReduceOp::create(b, op->getLoc(), nn::Reduction::Sum, held->getResult(0), ArrayRef<int64_t>(groups));
    for (Operation *made : {held, sum.getOperation()})
      made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    sum->removeAttr(nn::kBF16Attr), sum->removeAttr(nn::kTF32Attr);
    held->setAttr(nn::kHeldAttr, b.getUnitAttr());
    op->getResult(0).replaceAllUsesWith(sum.getResult());
    op->erase();
    return true;
  }

private:
  // [.., B, ..] as [.., B / g, g, ..], the batch axis counting grains.
  Value inGrains(Value value) {
    auto type = nn::tensorOf(value);
    int64_t batch = nn::batchAxis(type);
    SmallVector<int64_t> shape(type.getShape());
    shape[size_t(batch)] /= grain;
    shape.insert(shape.begin() + batch + 1, grain);
    return nn::ReshapeOp::create(b, op->getLoc(), nn::tensorType(shape, type.getElementType(), batch, grain), value);
  }

  static bool countsExamples(Value value) { return nn::batchAxis(value) >= 0 && nn::batchGroup(value.getType()) == 1; }

  Operation *product(nn::ContractOp contract) {
    if (!countsExamples(contract.getLhs()) || !countsExamples(contract.getRhs()))
      return nullptr;
    // Grains are axis 0 of the result, whose other axes follow; the examples of one are the slowest of what is summed.
    auto labels = [](Value operand, ArrayRef<int64_t> old) {
      SmallVector<int64_t> own;
      for (auto [axis, label] : llvm::enumerate(old)) {
        if (int64_t(axis) == nn::batchAxis(operand))
          own.push_back(0);
        own.push_back(label + 1);
      }
      return own;
    };
    auto type = nn::tensorOf(contract.getResult());
    SmallVector<int64_t> shape(type.getShape());
    shape.insert(shape.begin(), nn::tensorOf(contract.getLhs()).getDimSize(unsigned(nn::batchAxis(contract.getLhs()))) / grain);
    return nn::ContractOp::create(b, op->getLoc(), nn::tensorType(shape, type.getElementType(), 0, grain), inGrains(contract.getLhs()),
                                  inGrains(contract.getRhs()), labels(contract.getLhs(), contract.getLhsLabels()),
                                  labels(contract.getRhs(), contract.getRhsLabels()));
  }

  Operation *columns(nn::ReduceOp reduce, int64_t &groups) {
    Value x = reduce.getX();
    ArrayRef<int64_t> axes = reduce.getAxes();
    if (reduce.getReduction() != nn::Reduction::Sum || !countsExamples(x) || axes.front() != nn::batchAxis(x) ||
        axes.back() + 1 == nn::tensorOf(x).getRank())
      return nullptr;
    groups = axes.front();
    SmallVector<int64_t> own;
    for (int64_t axis : axes)
      own.push_back(axis + 1);
    return nn::ReduceOp::create(b, op->getLoc(), nn::Reduction::Sum, inGrains(x), ArrayRef<int64_t>(own));
  }

  Operation *op;
  int64_t grain;
  OpBuilder b;
};

} // namespace

bool holdSums(func::FuncOp function) {
  int64_t grain = nn::grainOf(function);
  if (grain <= 0)
    return false;
  bool any = false;
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
    any |= Holder(&op, grain).hold();
  if (any)
    function->setAttr(nn::kHeldAttr, UnitAttr::get(function.getContext()));
  return any;
}

} // namespace cinch
