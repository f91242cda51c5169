// ArenaBound.cpp: the planner's problem of a function, and what is proven of it before it is solved.
#include "compiler/transforms/ArenaBound.h"

#include "compiler/analysis/StepProblem.h"
#include "compiler/solve/MemoryBound.h"

namespace cinch {

int64_t arenaBound(mlir::func::FuncOp function, const DecideOptions &options) {
  analysis::Step step(function);
  if (step.loops.empty())
    return 0;
  analysis::StepProblem problem = analysis::buildStepProblem(step, options.threads, options.reservedBytes, options.target, &options.costs);
  std::string refused;
  if (!problem.error.empty())
    return 0;
  std::vector<solve::Variant> variants = rowVariants(step, problem, options, refused);
  return refused.empty() ? solve::memoryBound(variants, options.search.microbatch) : 0;
}

} // namespace cinch
