// StageHints.cpp: a stage ends behind the forward kernel that computes the marked value.
#include "compiler/phases/StageHints.h"

#include "compiler/solve/stages/Split.h"
#include "dialects/nn/NN.h"

#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace mlir;

namespace cinch {
namespace {

struct Hint {
  int stage = 0;      // that ends; -1: any
  int line = 0;       // of the source
  int segment = -1;   // that computes the value; -1: none does
  bool ofExamples = false; // the value depends on them
};

std::string written(const Hint &hint) {
  std::string stage = hint.stage < 0 ? "auto" : std::to_string(hint.stage);
  return llvm::formatv("`@stage({0})`{1}", stage, hint.line > 0 ? " in line " + std::to_string(hint.line) : std::string());
}

// By the number that the parts of one op have in common. A value may be computed in several kernels; the first one counts, but of the parts
// of an op the last.
std::map<int64_t, Hint> findHints(const analysis::Step &step, const analysis::StageHomes &homes) {
  std::map<int64_t, Hint> hints;
  for (const analysis::Step::Part &part : step.parts)
    part.op->walk([&](Operation *op) {
      if (auto hint = op->getAttrOfType<DenseI64ArrayAttr>(nn::kStageAttr); hint && !op->hasAttr(nn::kBackwardAttr))
        hints.try_emplace(hint[1], Hint{int(hint[0]), analysis::lineOf(op->getResult(0)), -1, nn::touchesBatch(op)});
    });
  for (auto [segment, part] : llvm::enumerate(homes.segments)) {
    plan::KernelOp kernel = step.parts[size_t(part)].kernel();
    for (OpResult result : kernel->getResults())
      if (auto hint = analysis::computedBy(result).getDefiningOp()->getAttrOfType<DenseI64ArrayAttr>(nn::kStageAttr))
        hints[hint[1]].segment = int(segment);
  }
  // What a kernel does not hand out ends with the kernel that it is a part of.
  for (auto [segment, part] : llvm::enumerate(homes.segments))
    step.parts[size_t(part)].op->walk([&](Operation *op) {
      if (auto hint = op->getAttrOfType<DenseI64ArrayAttr>(nn::kStageAttr); hint && hints[hint[1]].segment < 0)
        hints[hint[1]].segment = int(segment);
    });
  return hints;
}

// Between two ends that are told, or the ends of the model, there have to be as many kernels as stages; empty: there are. Hints without a number
// leave that as it is: whatever stage such an end is, others may end at any kernel beside it.
std::string wrongGap(const std::map<int, Hint> &at, int segments, int stages) {
  int segment = 0, stage = 0; // that begin behind the last numbered hint
  const Hint *before = nullptr;
  auto gap = [&](int endSegment, int endStage, const Hint *behind) -> std::string {
    if (endSegment - segment >= endStage - stage)
      return "";
    std::string where = before && behind ? "between " + written(*before) + " and " + written(*behind)
                        : before         ? "behind " + written(*before)
                        : behind         ? "up to " + written(*behind)
                                         : "in all";
    int kernels = endSegment - segment;
    return llvm::formatv("with {0} stages the `@stage` hints of the program leave a stage empty: {1} there are {2} stages, and the forward pass has {3} "
                         "kernel{4} there",
                         stages, where, endStage - stage, kernels, kernels == 1 ? "" : "s");
  };
  for (auto &[number, hint] : at) {
    if (hint.stage < 0)
      continue;
    if (std::string wrong = gap(number + 1, hint.stage + 1, &hint); !wrong.empty())
      return wrong;
    segment = number + 1, stage = hint.stage + 1, before = &hint;
  }
  return gap(segments, stages, nullptr);
}

} // namespace

StageHints stageHints(const analysis::Step &step, const analysis::StageHomes &homes, int stages) {
  StageHints out;
  if (stages == 1) // hints mean nothing, whatever other workers there are
    return out;
  int last = int(homes.segments.size()) - 1;
  std::map<int, Hint> at; // by segment
  for (auto &[number, hint] : findHints(step, homes)) {
    if (hint.segment < 0)
      out.wrong = written(hint) + " stands at a value that the forward pass does not compute example by example: " +
                  (hint.ofExamples ? "it is computed before, for something that is made of the whole batch" : "it is the same for all of them");
    else if (hint.segment == last)
      out.wrong = written(hint) + " stands at the end of the forward pass: the next stage would be empty";
    else if (hint.stage >= stages - 1)
      out.wrong = llvm::formatv("{0}: with {1} stages the last that ends before the model does is {2}", written(hint), stages, stages - 2);
    else if (auto [other, fresh] = at.try_emplace(hint.segment, hint); !fresh)
      out.wrong = written(hint) + " and " + written(other->second) + " stand at one kernel: a stage between them would be empty";
    if (!out.wrong.empty())
      return out;
  }
  if (int(at.size()) > stages - 1) {
    out.wrong = llvm::formatv("`@stage` ends {0} stages inside the model, the last one by {1}; expected {2} stages or more, there are {3}", at.size(),
                              written(at.rbegin()->second), at.size() + 1, stages);
    return out;
  }
  int before = -1;
  Hint previous;
  for (auto &[segment, hint] : at) {
    int number = hint.stage < 0 ? before + 1 : hint.stage;
    if (number <= before)
      out.wrong = llvm::formatv("{0} stands behind {1}: stages are numbered from 0 in the order in which they are computed", written(hint),
                                written(previous));
    else if (number > stages - 2)
      out.wrong = llvm::formatv("{0} is one `@stage` too many: {1} stages have {2} ends inside the model", written(hint), stages, stages - 1);
    if (!out.wrong.empty())
      return out;
    before = number, previous = hint;
    out.forced.push_back({segment + 1, hint.stage < 0 ? solve::SplitProblem::kAnyStage : hint.stage + 1});
  }
  out.wrong = at.empty() ? "" : wrongGap(at, last + 1, stages);
  return out;
}

} // namespace cinch
