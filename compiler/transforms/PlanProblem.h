// PlanProblem.h: the planner's problem of a function, built once for who asks more than one thing of it.
#ifndef CINCH_COMPILER_TRANSFORMS_PLANPROBLEM_H
#define CINCH_COMPILER_TRANSFORMS_PLANPROBLEM_H

#include "compiler/transforms/Decision.h"

namespace cinch {

class PlanProblem {
public:
  // A function of kernels. The options must outlive the problem.
  PlanProblem(mlir::func::FuncOp, const DecideOptions &);
  // Bytes of the arena that no plan with the micro-batch of the options can do without; no plan is made to know them. 0: nothing is known.
  int64_t bound() const;
  // As decidePlan, which is this. Once.
  DecideOutcome decide();

private:
  mlir::func::FuncOp function;
  const DecideOptions &options;
  analysis::Step step;
  analysis::StepProblem problem;
  std::vector<solve::Variant> variants;
  std::string refused; // why there are no variants
};

} // namespace cinch
#endif
