// StageProblem.h: a step as the solver of stage splits sees it (solve/stages/Split.h).
#ifndef CINCH_COMPILER_ANALYSIS_STAGEPROBLEM_H
#define CINCH_COMPILER_ANALYSIS_STAGEPROBLEM_H

#include "compiler/analysis/StageHomes.h"
#include "compiler/solve/stages/Split.h"

namespace cinch::analysis {

// The segments of a step (StageHomes) at one micro-batch. Cuts are offered at some places only, where little crosses, so
// several segments may be one unit here.
//
// Of shards, seconds and bytes are those of one of them: a shard does its part of what is shared and all of what is not, and it copies what it
// sends to the others and gets from them.
struct StageProblem {
  solve::SplitProblem split; // request and budgets are the caller's
  std::vector<int> first;    // of each unit: its first segment
  // The stage of every segment, if the units are cut so.
  std::vector<int> stagesOf(const solve::Split &, int segments) const;
};
// At least `units` units, if there are so many segments. `forced`: before which segments a stage has to begin, and which one
// (SplitProblem::forced). `holders`: so many replicas share what lies once (StageHomes::liesOnce) and the updates. `stateLeaves`: state of the
// optimizer takes no bytes, for it lies on the host.
StageProblem buildStageProblem(const Step &, const StepProblem &, const StageHomes &, int64_t microbatch, int units, int shards, int holders,
                               bool stateLeaves, const std::vector<std::pair<int, int>> &forced = {});

} // namespace cinch::analysis
#endif
