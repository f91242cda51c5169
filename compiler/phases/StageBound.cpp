// StageBound.cpp: how early could a step of several workers end, with this cut, table and micro-batch, these blocks of rows and mailboxes?
// Each worker's part of the step has a bound of its own (PartsBound.h); the table with these is a bound on its end (TableBound.h).
#include "compiler/phases/StagePlanner.h"

#include "compiler/solve/stages/TableBound.h"

namespace cinch {

// The work of a worker's micro-batch, at least. Where parts take turns and hand messages on in the midst of them, it is the messages and not
// the marks that divide them (StageTables.cpp), so that all work may be done in any part.
static solve::PartsBound boundOfWorker(const DecideOutcome &outcome, std::optional<int64_t> room, bool divided, int64_t effort) {
  const solve::StepGraph &graph = outcome.rows.graph;
  const solve::Decision &decision = outcome.result.plan.decision;
  double known = 0;
  for (int t = decision.loopBegin(); t < decision.loopEnd(); ++t)
    known += graph.kernels[size_t(decision.runs[size_t(t)].kernel)].seconds.at(double(decision.microbatch));
  solve::DagLimits limits;
  limits.work = effort;
  solve::PartsBound bound = solve::partsBound(graph, decision.microbatch, room, known, limits);
  if (divided && solve::copiesBetweenParts(graph.actions).empty()) {
    int last = 0;
    for (const solve::PartWork &work : bound.work)
      last = std::max(last, work.last);
    for (solve::PartWork &work : bound.work)
      work.first = 0, work.last = last;
  }
  return bound;
}

bool StagePlanner::findBound() {
  Candidate &chosen = *best;
  const Divided &divided = divisions[chosen.division].train;
  bool messagesInside = options.replicas * options.shards > 1;
  std::vector<std::vector<solve::PartWork>> work;
  double busiest = 0;
  // All of them together take as long as one worker's bound.
  int64_t effort = solve::DagLimits().work / int64_t(std::min(chosen.outcomes.size(), 4 * size_t(workersOfReplica())));
  for (size_t w = 0; w < chosen.outcomes.size(); ++w) {
    // Replicas that have two on either side are alike, unless each has updates of its own.
    size_t alike = 2 * size_t(workersOfReplica());
    bool known = !divisions[chosen.division].layout.handsOut && w >= alike && w + alike < chosen.outcomes.size();
    std::optional<int64_t> bytes;
    if (room)
      bytes = std::max<int64_t>(0, *room - chosen.messages[w]);
    solve::PartsBound bound;
    if (known)
      bound.work = work[w - size_t(workersOfReplica())], bound.seconds = c.workers.bounds[w - size_t(workersOfReplica())];
    else
      bound = boundOfWorker(chosen.outcomes[w], bytes, messagesInside, effort);
    if (!bound.fault.empty())
      return internal("the bound on the time of worker " + llvm::Twine(w) + ": " + bound.fault);
    const solve::Decision &decision = chosen.outcomes[w].result.plan.decision;
    busiest = std::max(busiest, bound.seconds * double(decision.count));
    c.workers.bounds.push_back(bound.seconds);
    work.push_back(std::move(bound.work));
  }
  double before = 0, behind = 0;
  std::vector<double> begin;
  for (const PlanSeconds &seconds : chosen.seconds) {
    begin.push_back(seconds.before);
    before = std::max(before, seconds.before), behind = std::max(behind, seconds.behind);
  }
  if (overlaps()) { // between two meetings each worker goes once through its actions
    c.fixedBound = 2 * before + behind + busiest;
  } else {
    std::vector<std::vector<double>> parts;
    for (const PlanSeconds &seconds : chosen.seconds)
      parts.push_back(seconds.parts);
    solve::ChannelProblem table = channelProblem(divided, chosen.actions, parts,
                                                 messagesInside ? llvm::ArrayRef<PlanSeconds>(chosen.seconds) : llvm::ArrayRef<PlanSeconds>());
    table.begin = begin;
    table.travel.assign(table.travel.size(), problem.secondsOfMessage());
    c.fixedBound = solve::earliestEnd(table, chosen.boxes, work) + behind;
  }
  if (*c.fixedBound > chosen.makespan * (1 + 1e-9))
    return internal(llvm::formatv("the bound on the time: a table that ends after {0} s is known, and none below {1} s was proven to exist", chosen.makespan,
                                  *c.fixedBound));
  return true;
}

} // namespace cinch
