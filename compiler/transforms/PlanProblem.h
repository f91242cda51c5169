// PlanProblem.h: the planner's problem of a function, built once for who asks more than one thing of it.
#ifndef CINCH_COMPILER_TRANSFORMS_PLANPROBLEM_H
#define CINCH_COMPILER_TRANSFORMS_PLANPROBLEM_H

#include "compiler/transforms/Decision.h"

namespace cinch {

class PlanProblem {
public:
  // A function of kernels. The options must outlive the problem.
  PlanProblem(mlir::func::FuncOp, const DecideOptions &);
  // Bytes of the arena that no plan can do without, in blocks of rows of any size that somebody may ask for if the options name none, and with
  // the micro-batch of the options if they name one; no plan is made to know them. 0: nothing is known.
  int64_t bound();
  // Seconds of a step that no plan is predicted to be faster than: those without a limit of memory. No plan is made to know them.
  double leastSeconds() const;
  // As decidePlan, which is this. Once.
  DecideOutcome decide();

private:
  mlir::func::FuncOp function;
  const DecideOptions &options;
  analysis::Step step;
  analysis::StepProblem problem;
  std::vector<solve::Variant> variants;
  std::optional<int64_t> proven; // `bound`, when it is known
  std::string refused;           // why there are no variants
};

} // namespace cinch
#endif
