// ScheduledProgram.cpp: what a decision says is launched, for the plan checker.
#include "compiler/solve/LoopBody.h"
#include "compiler/solve/PlanChecker.h"

namespace cinch::solve {

ScheduledProgram scheduledProgram(const StepGraph &g, const Decision &d) {
  ScheduledProgram p;
  p.arenaBytes = d.arenaBytes, p.hostBytes = d.hostBytes, p.microbatch = d.microbatch, p.count = d.count;
  auto place = [&](int i) { return Place{d.instances[i].buffer, d.instances[i].offset, d.instances[i].bytes, d.instances[i].copies}; };
  for (size_t i = 0; i < d.instances.size(); ++i) {
    int b = d.instances[i].buffer;
    if (b >= 0 &&
        (g.buffers[b].kind == Buffer::Persistent || (g.buffers[b].kind == Buffer::Value && g.buffers[b].producer < 0)))
      p.persistent.push_back(place(int(i)));
  }
  for (const LoopRuns &loop : d.loops) {
    p.loops.push_back({loop.begin, loop.end, {}});
    for (int i : loop.zeroed)
      p.loops.back().zeroed.push_back(place(i));
  }
  for (const Run &run : d.runs) {
    Launch launch;
    launch.kernel = run.kernel;
    for (int i : run.reads)
      launch.reads.push_back(place(i));
    for (int i : run.writes)
      launch.writes.push_back(place(i));
    for (int i : run.zeroed)
      launch.zeroed.push_back(place(i));
    launch.hasScratch = run.scratch >= 0;
    if (launch.hasScratch)
      launch.scratch = place(run.scratch);
    p.launches.push_back(std::move(launch));
  }
  return p;
}

std::string checkTrip(const LoopBody &body, int64_t microbatch) {
  Plan plan = body.plan(microbatch);
  if (!plan.error.empty())
    return plan.error;
  ScheduledProgram program = scheduledProgram(body.trip, plan.decision);
  program.peakLive = plan.peakLive;
  return checkPlan(body.trip, program);
}

} // namespace cinch::solve
