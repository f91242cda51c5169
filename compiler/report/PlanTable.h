// PlanTable.h: the plan as a table, for people.
#ifndef CINCH_COMPILER_REPORT_PLANTABLE_H
#define CINCH_COMPILER_REPORT_PLANTABLE_H

#include "compiler/phases/Compile.h"

namespace cinch::report {

// The summary, the largest tensors at the peak, what is kept and what is recomputed with bytes, price and source line,
// and budgets against predicted times.
void printPlan(llvm::raw_ostream &, const Compilation &, const SourceList &);

// The `shown` largest, and the sum of the others.
void printLive(llvm::raw_ostream &, const SourceList &, const std::vector<solve::LiveBuffer> &, size_t shown);

} // namespace cinch::report
#endif
