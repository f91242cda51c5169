// StageRefusals.cpp: what replicas, their ways to combine and steps that overlap cannot be, with what to write instead.
#include "compiler/phases/StagePlanner.h"

#include "compiler/transforms/TwoSteps.h"
#include "dialects/nn/Grain.h"

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

std::string StagePlanner::wrongStages() const {
  if (segments() == 0)
    return "the forward pass of the model computes nothing of single examples, so that there is nothing to divide among workers; expected one worker";
  // With as many micro-batches as any schedule wants.
  if (std::string wrong = solve::check(requestOf(options.schedule == solve::Schedule::Naive ? 1 : options.stages)); !wrong.empty() || segments() >= stages())
    return wrong;
  std::string chunks = options.chunks > 1 ? llvm::formatv(" ({0} workers with {1} each)", options.stages, options.chunks).str() : "";
  int64_t most = segments() / options.chunks;
  return llvm::formatv("the forward pass of the model has {0} kernel{1}, too few for {2} stages{3}; expected {4}", segments(), segments() == 1 ? "" : "s",
                       stages(), chunks, most > 1 || options.chunks == 1 ? llvm::formatv("at most --stages {0}", most).str() : "a schedule with one stage a worker");
}

static std::string namesOfBlocks(int64_t grain, int64_t groups) {
  std::string names = grain > 1 ? "grain " + std::to_string(grain) : "";
  if (groups > 1)
    names += (names.empty() ? "groups of " : ", groups of ") + std::to_string(groups);
  return names.empty() ? "" : " (" + names + ")";
}

std::string StagePlanner::whatKeepsTogether() const {
  func::FuncOp function = train;
  return namesOfBlocks(mayCutGrain() ? 0 : nn::grainOf(function), nn::examplesOfGroups(function));
}

std::string StagePlanner::wrongMicrobatch(const std::vector<int64_t> &sizes) const {
  int64_t multiple = mayCutGrain() ? nn::examplesOfGroups(func::FuncOp(train)) : problem.graph.grain;
  std::string whole = llvm::formatv(options.replicas > 1 ? "the {0} examples of a replica" : "the batch of {0}", examples());
  return llvm::formatv("expected a micro-batch that divides {0}{1}, got {2}; nearest: {3}", whole,
                       multiple > 1 ? llvm::formatv(" and is a multiple of {0}{1}", multiple, whatKeepsTogether()).str() : std::string(), options.microbatch,
                       solve::nearestOf(sizes, options.microbatch));
}

std::string StagePlanner::wrongReplicas() const {
  bool inMicrobatches = options.microbatch > 1 && options.microbatch % problem.graph.grain == 0 && problem.graph.batch % options.microbatch == 0;
  int64_t together = inMicrobatches ? options.microbatch : problem.graph.grain;
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
    whole = inMicrobatches ? llvm::formatv(" in micro-batches of {0}", together).str()
                           : llvm::formatv(" of which {0} belong together{1}", together,
                                           namesOfBlocks(nn::grainOf(func::FuncOp(train)), nn::examplesOfGroups(func::FuncOp(train))))
                                 .str();
  return llvm::formatv("a batch of {0} examples{1} cannot be divided among {2} replicas; expected --replicas {3}{4}", problem.graph.batch, whole,
                       options.replicas, below, above ? llvm::formatv(" or {0}", above).str() : std::string());
}

// What the first loop makes, and the examples of the next one wait for.
static std::string computedOfAll(const analysis::Step &step) {
  plan::LoopOp first = step.loops.front();
  Value sum = first.block().getTerminator()->getOperand(0);
  if (auto result = dyn_cast<OpResult>(sum); result && isa<plan::KernelOp>(result.getOwner()))
    sum = analysis::computedBy(result);
  int line = analysis::lineOf(sum);
  return "`" + analysis::nameOf(sum) + "`" + (line > 0 ? " in line " + std::to_string(line) : std::string());
}

std::string StagePlanner::wrongOverlap() const {
  if (!c.program.train.delay)
    return "with the schedule 2bw a step begins before the one before it has updated the parameters; expected `delay 1` in the program's `train`, or "
           "another schedule";
  if (step.loops.size() != 1)
    return llvm::formatv("the schedule 2bw needs a step that goes over the batch once, and this one goes over it {0} times, because the examples wait for "
                         "what is computed of all of them, {1}; expected another schedule",
                         step.loops.size(), computedOfAll(step));
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
