// PlanJson.h: the plan as one JSON object, for `cinch plan --json` and for the page of `--report`.
#ifndef CINCH_COMPILER_REPORT_PLANJSON_H
#define CINCH_COMPILER_REPORT_PLANJSON_H

#include "compiler/phases/Compile.h"

#include "llvm/Support/JSON.h"

namespace cinch::report {

// The keys are described in compiler/report/README.md. `budget`: 0 if there is none.
llvm::json::Object planJson(const Compilation &, const SourceList &, int64_t budget);

// One key a line.
void printObject(llvm::raw_ostream &, const llvm::json::Object &);

} // namespace cinch::report
#endif
