// FormRowBlocks.cpp: runs that the decision has work on rows move into one plan.row_blocks, and what only they use shrinks to
// the rows of a block. Assumes the runs stand in order (rematerialize).
#include "compiler/analysis/RowWise.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/MapVector.h"

namespace cinch {
#define GEN_PASS_DEF_FORMROWBLOCKS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

class Wrapper {
public:
  Wrapper(ArrayRef<Operation *> ops, const Decided &decided, const DecidedRows &range)
      : ops(ops), decided(decided), range(range), space{decided.rowPositions},
        inside(ops.begin(), ops.end()) {}

  LogicalResult run() {
    if (failed(collectInputs()))
      return failure();
    llvm::SetVector<Value> leaving;
    for (Operation *op : ops)
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); }))
          leaving.insert(result);
    SmallVector<Value> operands;
    SmallVector<int64_t> from;
    for (auto &[key, uses] : inputs) {
      operands.push_back(key.first);
      from.push_back(key.second);
    }
    OpBuilder builder(ops.front());
    int64_t blocks = decided.microbatch * space.positions / (range.examples * range.positions);
    SmallVector<Type> types = llvm::map_to_vector(leaving, [](Value value) { return value.getType(); });
    auto loop = plan::RowBlocksOp::create(builder, ops.front()->getLoc(), types, uint64_t(blocks),
                                          uint64_t(range.examples), uint64_t(range.positions),
                                          uint64_t(space.positions), operands, from);
    Block *body = builder.createBlock(&loop.getBody());
    SmallVector<Value> yielded = leaving.takeVector();
    for (auto [i, value] : llvm::enumerate(yielded))
      value.replaceUsesWithIf(loop.getResult(unsigned(i)),
                              [&](OpOperand &use) { return !inside.contains(use.getOwner()); });
    for (auto &[key, uses] : inputs) {
      Type type = key.second >= 0 ? blockOfPositions(key.first.getType()) : blockType(key.first.getType());
      Value argument = body->addArgument(type, key.first.getLoc());
      for (OpOperand *use : uses.operands)
        use->set(argument);
      for (Operation *slice : uses.slices)
        slice->getResult(0).replaceAllUsesWith(argument);
    }
    for (Operation *op : ops) {
      if (slices.contains(op)) {
        op->erase();
        continue;
      }
      op->moveBefore(body, body->end());
      if (isa<nn::RandomOp>(op) && nn::touchesBatch(op) && range.positions < space.positions)
        op->setAttr(analysis::kPositionsAttr, builder.getUnitAttr());
      for (Value result : op->getResults())
        result.setType(blockType(result.getType()));
    }
    builder.setInsertionPointToEnd(body);
    plan::YieldOp::create(builder, loop.getLoc(), yielded);
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

  // What is read from outside: rows, positions cut out of longer tensors, or examples whole.
  LogicalResult collectInputs() {
    for (Operation *op : ops)
      for (OpOperand &operand : op->getOpOperands()) {
        Value value = operand.get();
        analysis::RowKind kind = analysis::rowKind(value.getType(), space);
        if ((value.getDefiningOp() && inside.contains(value.getDefiningOp())) || kind == analysis::RowKind::Whole)
          continue;
        if (int64_t begin = analysis::sliceOfPositions(op, space); begin >= 0) {
          if (range.positions == space.positions) { // of whole examples the slice stays
            inputs[{value, -1}].operands.push_back(&operand);
            continue;
          }
          inputs[{value, begin}].slices.push_back(op);
          slices.insert(op);
          continue;
        }
        if (kind != analysis::RowKind::Rows)
          return op->emitError("internal error: work in row blocks reads what has no rows: ") << value.getType();
        inputs[{value, space.lead() == 2 ? 0 : -1}].operands.push_back(&operand);
      }
    return success();
  }

  struct Uses {
    SmallVector<OpOperand *> operands;
    SmallVector<Operation *> slices; // whose result the body's argument is
  };
  ArrayRef<Operation *> ops;
  const Decided &decided;
  const DecidedRows &range;
  analysis::RowSpace space;
  llvm::DenseSet<Operation *> inside, slices;
  llvm::MapVector<std::pair<Value, int64_t>, Uses> inputs; // (value, first position)
};

struct FormRowBlocks : cinch::impl::FormRowBlocksBase<FormRowBlocks> {
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    FailureOr<Decided> decided = readDecision(function);
    if (failed(decided))
      return signalPassFailure();
    if (decided->rows.empty())
      return;
    SmallVector<SmallVector<Operation *>> ops(decided->rows.size());
    function.walk([&](Operation *op) {
      auto run = op->getAttrOfType<IntegerAttr>(kRunAttr);
      for (auto [i, range] : llvm::enumerate(decided->rows))
        if (run && run.getInt() >= range.first && run.getInt() < range.last)
          ops[i].push_back(op);
    });
    for (auto [i, range] : llvm::enumerate(decided->rows))
      if (!ops[i].empty() && failed(Wrapper(ops[i], *decided, range).run()))
        return signalPassFailure();
  }
};

} // namespace
