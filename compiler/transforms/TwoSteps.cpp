// TwoSteps.cpp: see TwoSteps.h.
#include "compiler/transforms/TwoSteps.h"

#include "compiler/analysis/StepProblem.h"
#include "compiler/solve/Timeline.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace cinch {

plan::LoopOp overlappingLoop(func::FuncOp function) {
  for (plan::LoopOp loop : function.getOps<plan::LoopOp>())
    if (!loop.getLags() && solve::overlapOf(analysis::actionsOf(loop)) > 0)
      return loop;
  return {};
}

DenseMap<Value, BlockArgument> newerParameters(func::FuncOp function) {
  llvm::StringMap<BlockArgument> previous;
  for (BlockArgument argument : function.getArguments())
    if (auto slot = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr))
      previous[slot.getValue()] = argument;
  DenseMap<Value, BlockArgument> newer;
  for (BlockArgument argument : function.getArguments())
    if (auto path = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr))
      if (BlockArgument older = previous.lookup(nn::previousOf(path.getValue())))
        newer[older] = argument;
  return newer;
}

} // namespace cinch
