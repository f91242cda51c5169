// StageRefusals.cpp: what replicas, their ways to combine and steps that overlap cannot be, with what to write instead.
#include "compiler/phases/StagePlanner.h"

#include "compiler/transforms/TwoSteps.h"

using namespace mlir;

namespace cinch {

std::string StagePlanner::wrongOwnSteps() const {
  Combine way = c.program.train.combine;
  if (options.target.isDevice() && options.replicas > 1 && ownSteps() == OwnSteps::Hogwild)
    return llvm::formatv("`combine {0}` has replicas that share the memory of one process, and each GPU has memory of its own; expected another way to "
                         "combine, --replicas 1, or --target cpu",
                         nameOf(way));
  if (options.shards > 1 && ownSteps() != OwnSteps::None)
    return llvm::formatv("`combine {0}` is for replicas of which each worker has whole layers, and {1} shards have each of them; expected shards 1, or "
                         "another way to combine",
                         nameOf(way), options.shards);
  if (c.program.train.combine != Combine::Async || options.replicas == 1)
    return "";
  func::FuncOp function = train;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (function.getArgAttr(i, nn::kStateAttr) && !function.getArgAttr(i, nn::kAverageAttr))
      return llvm::formatv("with `combine async` the parameters go round the replicas, and the model has a state, `{0}`, which each of them would change at "
                           "another time; expected another way to combine, or --replicas 1",
                           function.getArgAttrOfType<StringAttr>(i, nn::kPathAttr).getValue());
  return "";
}

std::string StagePlanner::wrongReplicas() const {
  int64_t together = std::max<int64_t>(problem.graph.grain, options.microbatch > 0 ? options.microbatch : 1);
  if (problem.graph.batch % together)
    return ""; // said elsewhere
  int64_t parts = problem.graph.batch / together, below = 0, above = 0; // of the batch, that stay whole
  if (parts % options.replicas == 0)
    return "";
  for (int64_t fits : solve::divisors(parts))
    if (fits < options.replicas)
      below = fits;
    else if (above == 0)
      above = fits;
  std::string whole;
  if (together > 1)
    whole = llvm::formatv(options.microbatch > 1 ? " in micro-batches of {0}" : " of which {0} belong together (grain, groups)", together);
  return llvm::formatv("a batch of {0} examples{1} cannot be divided among {2} replicas; expected --replicas {3}{4}", problem.graph.batch, whole,
                       options.replicas, below, above ? llvm::formatv(" or {0}", above).str() : std::string());
}

std::string StagePlanner::wrongOverlap() const {
  if (!c.program.train.delay)
    return "with the schedule 2bw a step begins before the one before it has updated the parameters; expected `delay 1` in the program's `train`, or "
           "another schedule";
  if (step.loops.size() != 1)
    return llvm::formatv("the schedule 2bw needs a step that goes over the batch once, and this one goes over it {0} times (something is computed of all "
                         "examples together); expected another schedule",
                         step.loops.size());
  // What changes from step to step and is read before the update is there in one version, but for the parameters.
  func::FuncOp function = train;
  DenseMap<Value, BlockArgument> newer = newerParameters(function);
  DenseSet<StringRef> changed;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
      if (auto name = function.getResultAttrOfType<StringAttr>(i, kind))
        changed.insert(name.getValue());
  for (const analysis::Step::Part &part : step.parts)
    for (Value operand : part.op->getOperands())
      if (auto argument = dyn_cast<BlockArgument>(operand); argument && part.part <= 2 * int(step.loops.size()) - 1 && !newer.contains(argument))
        for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
          if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind); name && changed.contains(name.getValue()))
            return llvm::formatv("with the schedule 2bw a step begins before the one before it has changed `{0}`, which it reads; expected another schedule",
                                 name.getValue());
  return "";
}

} // namespace cinch
