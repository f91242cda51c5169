// FormMicrobatches.cpp: the loop over micro-batches gets its passes, and tensors shrink along the example axis. Nothing is
// reordered.
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

static Type withExamples(Type type, int64_t examples) {
  int64_t axis = nn::batchAxis(type);
  if (axis < 0)
    return type;
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[axis] = examples / nn::batchGroup(type);
  return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
}

void cinch::setExamples(func::FuncOp function, int64_t examples) {
  function.walk([&](Block *block) {
    for (BlockArgument argument : block->getArguments())
      argument.setType(withExamples(argument.getType(), examples));
    for (Operation &op : *block)
      for (Value result : op.getResults())
        result.setType(withExamples(result.getType(), examples));
  });
  function.setFunctionType(FunctionType::get(function.getContext(), function.getBody().getArgumentTypes(),
                                             function.getFunctionType().getResults()));
}

namespace {
struct FormMicrobatches : cinch::impl::FormMicrobatchesBase<FormMicrobatches> {
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    FailureOr<Decided> decided = readDecision(function);
    if (failed(decided))
      return signalPassFailure();
    for (plan::LoopOp loop : function.getOps<plan::LoopOp>()) {
      loop.setCount(uint64_t(decided->count));
      loop.setOverAttr(plan::ExamplesAttr::get(&getContext(), decided->microbatch, loop.examples().getFirst()));
    }
    setExamples(function, decided->microbatch);
  }
};

} // namespace
