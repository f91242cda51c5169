// Times.cpp: the times of launches and steps, collected and written.
#include "runtime/Times.h"
#include "runtime/Files.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

namespace cinch::rt {

bool timing = false;

List<LaunchTime> times, timesOfFirst;
List<int64_t> callsOfSteps;
LaunchTime stepTimes;
static TimedEvent events[kEvents];
static int64_t eventsSeen = 0;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // of all of these: workers run at once, and the next step may run before one is counted

int eventCount() { return int(eventsSeen < kEvents ? eventsSeen : kEvents); }
const TimedEvent &event(int number) { return events[(eventsSeen - eventCount() + number) % kEvents]; }

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// What is collected counts in the allowance: only what was asked for, in lists that are as long as they get.
static void addTo(List<LaunchTime> &list, int32_t launch, int64_t taken) {
  list.reserve(launchCount(run.meta, cinch_meta));
  while (list.size <= launch)
    list.add();
  list[launch].add(taken);
}

void addTime(int32_t launch, int64_t worker, bool ofStep, int64_t begin, int64_t taken) {
  pthread_mutex_lock(&mutex);
  if (run.options.kernelTimes)
    addTo(times, launch, taken);
  if (run.options.profile && worker == 0 && ofStep)
    addTo(timesOfFirst, launch, taken);
  if (run.options.profile)
    events[eventsSeen++ % kEvents] = {launch, int32_t(worker), begin, taken};
  pthread_mutex_unlock(&mutex);
}

void addStepTime(int64_t begin, int64_t taken) {
  pthread_mutex_lock(&mutex);
  stepTimes.add(taken);
  callsOfSteps.reserve(timesOfFirst.capacity);
  for (int64_t i = 0; i < timesOfFirst.size; ++i) {
    if (callsOfSteps.size <= i)
      callsOfSteps.add();
    callsOfSteps[i] = timesOfFirst[i].calls;
  }
  if (run.options.profile)
    events[eventsSeen++ % kEvents] = {-1, 0, begin, taken};
  pthread_mutex_unlock(&mutex);
}

static void writeTimes(const char *path) {
  AtomicFile file;
  bool good = beginFile(file, path);
  for (int64_t i = 0; good && i < times.size; ++i) {
    if (!times[i].calls)
      continue;
    static Launch launch;
    if (!readLaunch(run.meta, cinch_meta, int32_t(i), launch))
      launch = Launch();
    Text line;
    line.add("%lld\t%lld\t%.9f\t%.9f\t%.9f\t%s\t%s:%lld\t%s\n", (long long)i, (long long)times[i].calls,
             1e-9 * double(times[i].sum), 1e-9 * double(times[i].median()),
             1e-9 * double(times[i].least), launch.kernel, launch.file[0] ? launch.file : run.meta.source, (long long)launch.line, launch.text);
    good = writeAll(file.fd, line.data, line.size);
  }
  if (good ? !commitFile(file) : (abandonFile(file), true))
    warn("cannot write %s: %s", path, strerror(errno));
}

void reportTimes() {
  if (!timing)
    return;
  pthread_mutex_lock(&mutex); // of a run that is stopped in the middle of a step, other workers are still at it
  if (run.options.kernelTimes)
    writeTimes(run.options.kernelTimes);
  if (run.options.profile)
    reportProfile();
  timing = false;
  pthread_mutex_unlock(&mutex);
}

} // namespace cinch::rt
