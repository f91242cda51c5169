// FormMicrobatches.cpp: applies the decided micro-batch. The work on examples moves into one plan.microbatches loop and its
// tensors shrink along the example axis; sums over the batch become results of the loop. Nothing is reordered.
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

namespace cinch {
#define GEN_PASS_DEF_FORMMICROBATCHES
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

Type withExamples(Type type, int64_t examples) {
  int64_t axis = nn::batchAxis(type);
  if (axis < 0)
    return type;
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[axis] = examples;
  return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
}

struct FormMicrobatches : cinch::impl::FormMicrobatchesBase<FormMicrobatches> {
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    FailureOr<Decided> decided = readDecision(function);
    if (failed(decided))
      return signalPassFailure();
    auto sections = analysis::findSections(function);
    Block &body = function.getBody().front();
    Builder attributes(&getContext());
    SmallVector<Operation *> ops;
    for (Operation &op : body)
      ops.push_back(&op);
    for (auto [i, op] : llvm::enumerate(ops))
      op->setAttr(kOpAttr, attributes.getI64IntegerAttr(int64_t(i)));

    // What the function hands out, other than new parameters and state, is named by plan.results.
    Operation *exit = body.getTerminator();
    SmallVector<Value> kept, handed;
    SmallVector<Attribute> names, keptAttrs;
    bool inLoop = false;
    for (auto [i, value] : llvm::enumerate(exit->getOperands())) {
      auto name = function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kNameAttr);
      if (!name) {
        kept.push_back(value);
        keptAttrs.push_back(function.getResultAttrDict(unsigned(i)));
        continue;
      }
      handed.push_back(value);
      names.push_back(name);
      inLoop |= nn::hasBatch(value);
    }

    // Split: prologue | loop | epilogue.
    SmallVector<Operation *> loopOps, epilogueOps;
    for (Operation *op : ops) {
      if (op == exit)
        continue;
      solve::Section section = sections.lookup(op);
      if (section == solve::Section::Loop)
        loopOps.push_back(op);
      else if (section == solve::Section::Epilogue)
        epilogueOps.push_back(op);
    }
    llvm::DenseSet<Operation *> inside(loopOps.begin(), loopOps.end());
    SmallVector<Value> yielded;
    for (Operation *op : loopOps)
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); }) &&
            !nn::hasBatch(result))
          yielded.push_back(result);

    OpBuilder builder(exit);
    auto loop = plan::MicrobatchesOp::create(builder, function.getLoc(), ValueRange(yielded).getTypes(),
                                             uint64_t(decided->count), uint64_t(decided->microbatch));
    Block *inner = builder.createBlock(&loop.getBody());
    for (auto [i, value] : llvm::enumerate(yielded))
      value.replaceUsesWithIf(loop.getResult(unsigned(i)),
                              [&](OpOperand &use) { return !inside.contains(use.getOwner()); });
    for (Operation *op : loopOps)
      op->moveBefore(inner, inner->end());
    builder.setInsertionPointToEnd(inner);
    if (inLoop)
      plan::ResultsOp::create(builder, function.getLoc(), handed, attributes.getArrayAttr(names), DenseI64ArrayAttr());
    plan::YieldOp::create(builder, function.getLoc(), yielded);
    for (Operation *op : epilogueOps)
      op->moveBefore(exit);
    if (!inLoop) {
      // The values may have become results of the loop.
      SmallVector<Value> now;
      for (auto [i, value] : llvm::enumerate(exit->getOperands()))
        if (function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kNameAttr))
          now.push_back(value);
      builder.setInsertionPoint(exit);
      if (!now.empty())
        plan::ResultsOp::create(builder, function.getLoc(), now, attributes.getArrayAttr(names), DenseI64ArrayAttr());
    }
    SmallVector<Value> remaining;
    for (auto [i, value] : llvm::enumerate(exit->getOperands()))
      if (!function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kNameAttr))
        remaining.push_back(value);
    exit->setOperands(remaining);

    // Fewer examples.
    for (BlockArgument argument : body.getArguments())
      argument.setType(withExamples(argument.getType(), decided->microbatch));
    inner->walk([&](Operation *op) {
      for (Value result : op->getResults())
        result.setType(withExamples(result.getType(), decided->microbatch));
    });
    function.setFunctionType(FunctionType::get(&getContext(), body.getArgumentTypes(),
                                               ValueRange(remaining).getTypes()));
    function.setResAttrsAttr(attributes.getArrayAttr(keptAttrs));
  }
};

} // namespace
