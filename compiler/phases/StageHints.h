// StageHints.h: what `@stage` in a program says about where it is cut.
#ifndef CINCH_COMPILER_PHASES_STAGEHINTS_H
#define CINCH_COMPILER_PHASES_STAGEHINTS_H

#include "compiler/analysis/StageHomes.h"

#include <string>

namespace cinch {

struct StageHints {
  std::vector<std::pair<int, int>> forced; // SplitProblem::forced, in segments
  std::string wrong;                       // not empty: a hint that cannot be met, and why
};
StageHints stageHints(const analysis::Step &, const analysis::StageHomes &, int stages);

} // namespace cinch
#endif
