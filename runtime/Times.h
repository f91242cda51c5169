// Times.h: how long each launch takes, for `--kernel-times FILE` and `--profile`.
#ifndef CINCH_RUNTIME_TIMES_H
#define CINCH_RUNTIME_TIMES_H
#include "runtime/LaunchTime.h"
#include "runtime/Memory.h"
#include <stdint.h>

namespace cinch::rt {

extern bool timing; // set once, before the first launch
int64_t nanoseconds();
// `ofStep`: in a training step; an evaluation between steps is no part of them.
void addTime(int32_t launch, int64_t worker, bool ofStep, int64_t begin, int64_t nanoseconds);
void addStepTime(int64_t begin, int64_t nanoseconds);
// Once, when training ends in whatever way: what was asked for. For `--kernel-times` one line a launch, with tabs: number, calls, seconds of all calls,
// median seconds of the latest calls, the least seconds of a call, kernel, place, text. A file that cannot be written is a warning.
void reportTimes();

// By the number of the launch: of all workers of this process, which may run the same launch at once, and of the steps of worker 0 alone.
extern List<LaunchTime> times, timesOfFirst;
extern List<int64_t> callsOfSteps; // of those, the calls in steps that were done
extern LaunchTime stepTimes;

// The latest launches and steps, in the order of their ends, for a viewer of traces.
struct TimedEvent {
  int32_t launch, worker; // launch -1: a step
  int64_t begin, nanoseconds;
};
constexpr int kEvents = 8192;
int eventCount();
const TimedEvent &event(int number); // 0: the oldest that is known

// For `--profile`: says where worker 0's time went, kernel by kernel, beside what the plan predicted, and writes OUT/profile.json
// (all workers; trace events, as viewers of traces read them) and OUT/profile.tsv (all of the table).
void reportProfile();

} // namespace cinch::rt
#endif
