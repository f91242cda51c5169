// StageDeepen.cpp: which plans of all workers are searched deeper.
//
// A deep search takes seconds for each worker, and one plan of all is taken in the end. So every cut and micro-batch is planned quickly first. Then those
// are planned deeply that may be the fastest after all, as far as is known of each worker how fast a deeper search could make it.
#include "compiler/phases/StagePlanner.h"

namespace cinch {

// A deeper search was seen to end a step 14 % earlier at most. What is slower by more than this is left as it is.
static constexpr double kDeeperGains = 1.2;

// What the loop takes is spread over its parts as it is in the plan that is known.
static PlanSeconds leastOf(PlanSeconds seconds, const solve::SearchResult &result) {
  double loop = 0;
  for (double part : seconds.parts)
    loop += part * double(result.plan.decision.count);
  const double saved = result.plan.seconds - result.deeperBound;
  const double share = loop > 0 ? std::clamp(1 - saved / loop, 0.0, 1.0) : 1;
  for (double &part : seconds.parts)
    part *= share;
  return seconds;
}

void StagePlanner::keepToDeepen(const Candidate &candidate) {
  Waiting &kept = waiting.emplace_back();
  kept.candidate = candidate;
  for (auto [seconds, outcome] : llvm::zip(candidate.seconds, candidate.outcomes))
    kept.least.push_back(leastOf(seconds, outcome.result));
  kept.candidate.outcomes.clear(), kept.candidate.decisions.clear();
}

bool StagePlanner::deepen() {
  llvm::stable_sort(waiting, [](const Waiting &x, const Waiting &y) { return x.candidate.makespan < y.candidate.makespan; });
  for (Waiting &next : waiting) {
    Candidate candidate = std::move(next.candidate);
    Candidate ideal = candidate;
    ideal.seconds = next.least;
    runTable(ideal);
    const double fastest = std::min(best->makespan, rival);
    if (fastest <= ideal.makespan || fastest * kDeeperGains < candidate.makespan)
      continue;
    candidate.deeply = true;
    bool fits = false;
    if (!planWorkers(candidate, *room, fits))
      return false;
    if (fits && candidate.makespan < best->makespan)
      best = std::move(candidate);
  }
  waiting.clear();
  return true;
}

} // namespace cinch
