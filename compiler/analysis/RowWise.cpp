// RowWise.cpp: an op is row-wise if row i of what it makes needs row i of its operands and what is the same for all rows.
#include "compiler/analysis/RowWise.h"

#include "compiler/solve/RowBlocks.h"
#include "dialects/nn/NN.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace cinch::analysis {

RowKind rowKind(Type type, RowSpace space) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  int64_t batch = nn::batchAxis(type);
  if (!tensor || batch < 0)
    return RowKind::Whole;
  if (batch != 0 || tensor.getRank() < space.lead() || nn::batchGroup(type) > 1)
    return RowKind::Other;
  return space.lead() == 2 && tensor.getDimSize(1) != space.positions ? RowKind::Other : RowKind::Rows;
}

Type typeOfBlock(Type type, RowSpace space, int64_t examples, int64_t positions) {
  RowKind kind = rowKind(type, space);
  if (kind == RowKind::Whole)
    return type;
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[nn::batchAxis(type)] = examples;
  if (kind == RowKind::Rows && space.lead() == 2)
    shape[1] = positions;
  return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
}

int64_t sliceOfPositions(Operation *op, RowSpace space) {
  auto slice = dyn_cast<nn::SliceOp>(op);
  if (!slice || space.lead() != 2 || slice.getAxis() != 1 || nn::batchAxis(slice.getX()) != 0 ||
      rowKind(slice.getX().getType(), space) != RowKind::Other ||
      int64_t(slice.getEnd() - slice.getBegin()) != space.positions)
    return -1;
  return slice.getBegin();
}

namespace {

class RowRules {
public:
  explicit RowRules(RowSpace space) : space(space), lead(space.lead()) {}

  // `op` makes rows, or the same for all rows, of rows and of what is the same for all rows.
  bool holds(Operation *op) const {
    for (Value value : op->getOperands())
      if (kind(value) == RowKind::Other)
        return false;
    for (Value value : op->getResults())
      if (kind(value) == RowKind::Other)
        return false;
    bool touches = nn::touchesBatch(op);
    if (!touches)
      return isLoopOp(op);
    return TypeSwitch<Operation *, bool>(op)
        .Case<nn::ConstantOp, nn::RandomOp>([](auto) { return true; })
        .Case<nn::BroadcastOp>([&](auto b) { return broadcast(b); })
        .Case<nn::TransposeOp>([&](auto t) { return identity(t.getPermutation()); })
        .Case<nn::ReshapeOp>([&](auto r) { return rows(r.getX()) && rows(r.getResult()); })
        .Case<nn::SliceOp>([&](auto s) { return int64_t(s.getAxis()) >= lead; })
        .Case<nn::PadOp>([&](auto p) { return int64_t(p.getAxis()) >= lead; })
        .Case<nn::ConcatOp>([&](auto c) { return int64_t(c.getAxis()) >= lead; })
        .Case<nn::ReverseOp>([&](auto r) { return int64_t(r.getAxis()) >= lead; })
        .Case<nn::ArgMaxOp, nn::ArgMinOp>([&](auto a) { return int64_t(a.getAxis()) >= lead; })
        .Case<nn::ReduceOp>([&](auto r) { return reduce(r); })
        .Case<nn::ContractOp>([&](auto c) { return contract(c); })
        .Case<nn::GatherOp>([&](auto g) { return gather(g); })
        .Case<nn::RangeOp, nn::GroupMeanOp, nn::ScatterAddOp, nn::AttendOp, nn::AttendGradOp>([](auto) { return false; })
        .Default([&](Operation *other) { return elementwise(other); });
  }

private:
  RowKind kind(Value value) const { return rowKind(value.getType(), space); }
  bool rows(Value value) const { return kind(value) == RowKind::Rows; }

  // Axis i of the list is i for the axes that count rows.
  bool identity(ArrayRef<int64_t> list) const {
    for (int64_t i = 0; i < lead; ++i)
      if (i >= int64_t(list.size()) || list[i] != i)
        return false;
    return true;
  }
  bool above(ArrayRef<int64_t> list) const {
    return llvm::all_of(list, [&](int64_t label) { return label < 0 || label >= lead; });
  }
  bool fits(Value value, ArrayRef<int64_t> labels) const { return rows(value) ? identity(labels) : above(labels); }

  // One shape throughout: the axes are the same ones.
  bool elementwise(Operation *op) const {
    if (op->getNumResults() != 1 || !isLoopOp(op))
      return false;
    auto shape = nn::tensorOf(op->getResult(0)).getShape();
    return llvm::all_of(op->getOperands(), [&](Value v) { return rows(v) && nn::tensorOf(v).getShape() == shape; });
  }

  bool broadcast(nn::BroadcastOp op) const { return rows(op.getResult()) && fits(op.getX(), op.getAxes()); }

  bool reduce(nn::ReduceOp op) const {
    if (rows(op.getResult()))
      return above(op.getAxes());
    // A sum over rows: the slowest of its chain are the rows.
    ReductionAxes split = splitReduction(op.getX(), op.getAxes());
    return rows(op.getX()) && identity(split.chain);
  }

  bool contract(nn::ContractOp op) const {
    ArrayRef<int64_t> lhs = op.getLhsLabels(), rhs = op.getRhsLabels();
    if (rows(op.getResult()))
      return fits(op.getLhs(), lhs) && fits(op.getRhs(), rhs);
    if (!rows(op.getLhs()) || !rows(op.getRhs()))
      return false;
    // A sum over rows: their labels are the smallest that are summed.
    int64_t rank = nn::tensorOf(op.getResult()).getRank();
    for (int64_t i = 0; i < lead; ++i)
      if (lhs[i] != rank + i || rhs[i] != rank + i)
        return false;
    return true;
  }

  bool gather(nn::GatherOp op) const {
    if (!rows(op.getResult()) || !fits(op.getX(), op.getXLabels()))
      return false;
    for (auto [i, index] : llvm::enumerate(op.getIndices()))
      if (!fits(index, cast<DenseI64ArrayAttr>(op.getIndexLabels()[i]).asArrayRef()))
        return false;
    return true;
  }

  RowSpace space;
  int64_t lead;
};

} // namespace

bool isRowWise(plan::KernelOp kernel, RowSpace space) {
  RowRules rules(space);
  Block &body = kernel.getBody().front();
  OperandRange stores = body.getTerminator()->getOperands();
  for (Operation &op : body.without_terminator()) {
    if (sliceOfPositions(&op, space) >= 0 && isa<BlockArgument>(op.getOperand(0)) &&
        !llvm::is_contained(stores, op.getResult(0)))
      continue; // the block starts further in
    if (!rules.holds(&op))
      return false;
    // A sum over rows is complete behind the last block only: nothing here may read it.
    for (Value result : op.getResults())
      if (nn::touchesBatch(&op) && rowKind(result.getType(), space) == RowKind::Whole &&
          (!llvm::is_contained(stores, result) ||
           llvm::any_of(result.getUsers(), [&](Operation *user) { return user != body.getTerminator(); })))
        return false;
  }
  return llvm::any_of(body.without_terminator(), [](Operation &op) { return nn::touchesBatch(&op); });
}

// Second axes of the step's tensors, widest tensors first; last, no positions at all.
static SmallVector<int64_t> positionsOf(const Step &step) {
  SmallVector<std::pair<int64_t, int64_t>> found; // (elements, positions)
  for (const Step::Part &part : step.parts)
    if (step.inMainLoop(part.part))
      for (Value value : part.op->getResults())
        if (Shape shape = shapeOf(value); batchAxisOf(value) == 0)
          found.push_back({elementsOf(value), shape.size() > 2 ? shape[1] : 1});
  llvm::stable_sort(found, [](auto &a, auto &b) { return a.first > b.first; });
  SmallVector<int64_t> positions;
  for (auto &[elements, count] : found)
    if (!llvm::is_contained(positions, count))
      positions.push_back(count);
  if (!llvm::is_contained(positions, 1))
    positions.push_back(1);
  return positions;
}

void markRows(const Step &step, StepProblem &problem) {
  SmallVector<int64_t> candidates = positionsOf(step);
  auto mark = [&](RowSpace space) {
    problem.graph.positions = space.positions;
    for (auto [part, marked] : llvm::zip(step.parts, problem.graph.kernels)) {
      plan::KernelOp kernel = part.kernel();
      marked.rows = kernel && step.inMainLoop(part.part) && traitsOf(kindOf(kernel)).rows && isRowWise(kernel, space);
    }
  };
  for (int64_t positions : candidates) {
    mark({positions});
    if (!solve::findRowWork(problem.graph).empty())
      return;
  }
  mark({candidates.front()});
}

} // namespace cinch::analysis
