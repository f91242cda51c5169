// FormRowBlocks.cpp: runs that the decision has work on rows move into one loop over blocks of rows, and what only they use shrinks to
// the rows of a block. Assumes the runs stand in order (rematerialize).
#include "compiler/analysis/RowWise.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/MapVector.h"

#include <map>

namespace cinch {
#define GEN_PASS_DEF_FORMROWBLOCKS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// Moves the kernels of one range into a loop, and gives them the types of a block.
class Wrapper {
public:
  Wrapper(ArrayRef<plan::KernelOp> kernels, const Decided &decided, const DecidedRows &range)
      : kernels(kernels), decided(decided), range(range), space{decided.rowPositions, decided.heights} {
    for (plan::KernelOp kernel : kernels)
      inside.insert(kernel);
  }

  LogicalResult run() {
    bands = llvm::any_of(kernels, [&](plan::KernelOp kernel) { return runOf(kernel).rows.count > 0; });
    for (plan::KernelOp kernel : kernels) {
      takeSlices(kernel);
      if (failed(bands ? collectBands(kernel) : collectInputs(kernel)))
        return failure();
    }
    llvm::SetVector<Value> stacked, sums;
    for (plan::KernelOp kernel : kernels)
      for (Value result : kernel->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); }))
          (nn::hasBatch(result) ? stacked : sums).insert(result);
    SmallVector<Value> leaving(stacked.getArrayRef()), slices;
    llvm::append_range(leaving, sums);
    SmallVector<int64_t> from;
    for (auto &[key, uses] : inputs) {
      slices.push_back(key.first);
      from.push_back(std::max<int64_t>(0, key.second));
    }
    plan::KernelOp first = kernels.front();
    OpBuilder builder(first);
    int64_t blocks = decided.microbatch * space.positions / (range.examples * range.positions);
    bool cut = llvm::any_of(from, [](int64_t position) { return position > 0; });
    TypeRange types{ValueRange(leaving)};
    auto loop = plan::LoopOp::create(
        builder, first.getLoc(), TypeRange(), types.take_front(stacked.size()), types.drop_front(stacked.size()), ValueRange(), slices,
        ValueRange(), ValueRange(), uint64_t(blocks),
        plan::RowBlocksAttr::get(first.getContext(), range.examples, range.positions, space.positions),
        cut ? builder.getDenseI64ArrayAttr(from) : DenseI64ArrayAttr(), plan::ActionsAttr(), DenseI64ArrayAttr());
    if (!range.zeroed.empty())
      loop->setAttr(kZeroedAttr, builder.getDenseI64ArrayAttr(range.zeroed));
    Block *body = builder.createBlock(&loop.getBody());
    for (auto [value, result] : llvm::zip(leaving, loop->getResults()))
      value.replaceUsesWithIf(result, [&](OpOperand &use) { return !inside.contains(use.getOwner()); });
    for (auto &[key, uses] : inputs) {
      Type type = key.second >= 0 ? blockOfPositions(key.first.getType()) : blockType(key.first.getType());
      Value argument = body->addArgument(type, key.first.getLoc());
      for (OpOperand *use : uses)
        use->set(argument);
    }
    for (plan::KernelOp kernel : kernels) {
      copyBands(kernel, body);
      kernel->moveBefore(body, body->end());
      bands ? takeRows(kernel) : shrink(kernel);
    }
    builder.setInsertionPointToEnd(body);
    plan::YieldOp::create(builder, loop.getLoc(), leaving);
    return success();
  }

private:
  Type blockType(Type type) const { return analysis::typeOfBlock(type, space, range.examples, range.positions); }
  Type blockOfPositions(Type type) const {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape(tensor.getShape());
    shape[0] = range.examples;
    shape[1] = range.positions;
    return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
  }

  // Of whole examples slices stay.
  void takeSlices(plan::KernelOp kernel) {
    if (range.positions < space.positions)
      for (auto [input, from] : analysis::takeSlices(kernel, space))
        firstPosition[{kernel, input}] = from;
  }
  // Where positions that an operand is cut out of begin; -1: it is none.
  int64_t firstOf(OpOperand &operand) const {
    auto cut = firstPosition.find({operand.getOwner(), operand.getOperandNumber()});
    return cut != firstPosition.end() ? cut->second : -1;
  }

  // What is read from outside: rows, positions cut out of longer tensors, or examples whole.
  LogicalResult collectInputs(plan::KernelOp kernel) {
    for (OpOperand &operand : kernel->getOpOperands()) {
      Value value = operand.get();
      analysis::RowKind kind = analysis::rowKind(value.getType(), space);
      if ((value.getDefiningOp() && inside.contains(value.getDefiningOp())) || kind == analysis::RowKind::Whole)
        continue;
      int64_t from = firstOf(operand);
      if (kind == analysis::RowKind::Other && from < 0 && range.positions < space.positions)
        return kernel.emitError("internal error: work in row blocks reads what has no rows: ") << value.getType();
      inputs[{value, from}].push_back(&operand);
    }
    return success();
  }

  // ---- Images: kernels make rows around the block, too ---------------------------------------------------------------------------
  struct Band {
    Value image;
    solve::TripRows rows;
    int64_t run;
    SmallVector<OpOperand *> uses;
  };

  const DecidedRun &runOf(plan::KernelOp kernel) const { return decided.runs[size_t(runNumber(kernel))]; }
  static int64_t runNumber(plan::KernelOp kernel) { return kernel->getAttrOfType<IntegerAttr>(kRunAttr).getInt(); }

  // What is read from outside: rows of the block, positions cut out of longer tensors, or the bands that stand before the kernel in the
  // decision and those copied before.
  LogicalResult collectBands(plan::KernelOp kernel) {
    llvm::SetVector<Value> distinct(kernel.getInputs().begin(), kernel.getInputs().end());
    int64_t number = runNumber(kernel), first = number;
    while (first > range.first && decided.runs[size_t(first - 1)].band >= 0)
      --first;
    for (int64_t run = first; run < number; ++run) {
      const DecidedRun &copy = decided.runs[size_t(run)];
      if (copy.band >= int64_t(distinct.size()))
        return kernel.emitError("internal error: the decision copies rows of what it does not read");
      Value image = distinct[size_t(copy.band)];
      bandOf[image] = copied.size();
      copied.push_back({image, copy.rows, run, {}});
    }
    for (OpOperand &operand : kernel->getOpOperands()) {
      Value value = operand.get();
      if ((value.getDefiningOp() && inside.contains(value.getDefiningOp())) ||
          analysis::rowKind(value.getType(), space) == analysis::RowKind::Whole)
        continue;
      if (auto band = bandOf.find(value); band != bandOf.end())
        copied[band->second].uses.push_back(&operand);
      else if (int64_t from = firstOf(operand); from >= 0 || analysis::rowKind(value.getType(), space) == analysis::RowKind::Rows)
        inputs[{value, from}].push_back(&operand);
      else
        return kernel.emitError("internal error: work in row blocks reads what has no rows: ") << value.getType();
    }
    return success();
  }

  void copyBands(plan::KernelOp kernel, Block *body) {
    OpBuilder builder(kernel.getContext());
    builder.setInsertionPointToEnd(body);
    for (Band &band : copied) {
      if (band.run >= runNumber(kernel) || band.uses.empty())
        continue;
      auto type = cast<RankedTensorType>(band.image.getType());
      SmallVector<int64_t> shape(type.getShape());
      shape[0] = 1, shape[1] = band.rows.count;
      auto copy =
          plan::BandOp::create(builder, band.image.getLoc(), RankedTensorType::get(shape, type.getElementType(), type.getEncoding()),
                               band.image, uint64_t(band.rows.first), uint64_t(band.rows.step), DenseI64ArrayAttr(), DenseI64ArrayAttr());
      copy->setAttr(kRunAttr, builder.getI64IntegerAttr(band.run));
      for (OpOperand *use : band.uses)
        use->set(copy.getRows());
      band.uses.clear();
      rowsOf[copy.getRows()] = band.rows;
    }
  }

  void takeRows(plan::KernelOp kernel) {
    const solve::TripRows &made = runOf(kernel).rows;
    SmallVector<solve::TripRows> read;
    for (Value input : kernel.getInputs()) {
      auto known = rowsOf.find(input);
      auto tensor = dyn_cast<RankedTensorType>(input.getType());
      int64_t block = tensor && tensor.getRank() > 1 ? tensor.getDimSize(1) : 0; // of what is sliced: rows of the block
      read.push_back(known != rowsOf.end() ? known->second : solve::TripRows{0, block, block});
    }
    int64_t height = 0;
    for (Value result : kernel.getResults())
      if (analysis::rowKind(result.getType(), space) == analysis::RowKind::Rows)
        height = cast<RankedTensorType>(result.getType()).getDimSize(1);
    for (Operation &op : kernel.getBody().front())
      if (isa<nn::RandomOp>(op) && nn::touchesBatch(&op))
        op.setAttr(analysis::kPositionsAttr, UnitAttr::get(op.getContext()));
    analysis::takeRows(kernel, space, made, read);
    if (height == 0)
      return;
    for (Value result : kernel.getResults())
      rowsOf[result] = made;
    if (made.leaves(height, space.positions / range.positions))
      kernel->setAttr(kOutsideAttr, DenseI64ArrayAttr::get(kernel.getContext(), {made.first, made.step, height}));
  }

  void shrink(plan::KernelOp kernel) {
    for (Value result : kernel.getResults())
      result.setType(blockType(result.getType()));
    for (auto [argument, operand] : llvm::zip(kernel.getBody().getArguments(), kernel.getInputs()))
      argument.setType(operand.getType());
    for (Operation &op : kernel.getBody().front()) {
      if (isa<nn::RandomOp>(op) && nn::touchesBatch(&op) && range.positions < space.positions)
        op.setAttr(analysis::kPositionsAttr, UnitAttr::get(op.getContext()));
      for (Value result : op.getResults())
        result.setType(blockType(result.getType()));
    }
  }

  ArrayRef<plan::KernelOp> kernels;
  const Decided &decided;
  const DecidedRows &range;
  analysis::RowSpace space;
  llvm::DenseSet<Operation *> inside;
  std::map<std::pair<Operation *, unsigned>, int64_t> firstPosition;            // (kernel, input) -> where its positions begin
  llvm::MapVector<std::pair<Value, int64_t>, SmallVector<OpOperand *>> inputs; // (value, first position)
  bool bands = false;                       // rows are those of images, and kernels make rows around those of a block
  SmallVector<Band> copied;
  llvm::DenseMap<Value, size_t> bandOf;     // of what is copied
  llvm::DenseMap<Value, solve::TripRows> rowsOf; // of what lies in the scratch
};

struct FormRowBlocks : cinch::impl::FormRowBlocksBase<FormRowBlocks> {
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    FailureOr<Decided> decided = readDecision(function);
    if (failed(decided))
      return signalPassFailure();
    if (decided->rows.empty())
      return;
    SmallVector<SmallVector<plan::KernelOp>> kernels(decided->rows.size());
    function.walk([&](plan::KernelOp kernel) {
      auto run = kernel->getAttrOfType<IntegerAttr>(kRunAttr);
      for (auto [i, range] : llvm::enumerate(decided->rows))
        if (run && run.getInt() >= range.first && run.getInt() < range.last)
          kernels[i].push_back(kernel);
    });
    for (auto [i, range] : llvm::enumerate(decided->rows)) {
      if (kernels[i].empty()) {
        function.emitError("has no runs in the order of its decision: run rematerialize first");
        return signalPassFailure();
      }
      if (failed(Wrapper(kernels[i], *decided, range).run()))
        return signalPassFailure();
    }
  }
};

} // namespace
