// CudaTimes.cpp: how long each launch takes on the device: an event before it and one behind it, read when the device is done.
#include "runtime/Cuda.h"
#include "runtime/Run.h"
#include "runtime/Times.h"

namespace cinch::rt {

namespace {
constexpr int kMost = 2048; // launches between two collections

struct Timed {
  CUevent begin = nullptr, end = nullptr;
  int32_t launch = 0;
  bool ofStep = false;
};
struct Timeline {
  Timed *launches = nullptr;
  int count = 0, made = 0;
  int64_t worker = 0, from = 0; // when the first was asked for
};
Timeline *timelines;

Timeline &timelineOf(Gpu &gpu) { return timelines[&gpu - gpus]; }
} // namespace

void prepareTimes() {
  timelines = allocateArray<Timeline>(workerCount);
  for (int64_t i = 0; i < workerCount; ++i)
    timelines[i].launches = allocateArray<Timed>(kMost);
}

void beginTime(Gpu &gpu, int32_t launch, int64_t worker) {
  Timeline &line = timelineOf(gpu);
  if (line.count == kMost) {
    expect(cuda.waitForStream(gpu.stream), "finish its work");
    collectTimes(gpu);
  }
  Timed &timed = line.launches[line.count];
  if (line.count == line.made) {
    expect(cuda.createEvent(&timed.begin, 0), "make an event");
    expect(cuda.createEvent(&timed.end, 0), "make an event");
    ++line.made;
  }
  if (line.count == 0)
    line.from = nanoseconds();
  line.worker = worker;
  timed.launch = launch;
  timed.ofStep = run.mode == Run::Training;
  expect(cuda.recordEvent(timed.begin, gpu.stream), "mark a time");
}

void endTime(Gpu &gpu) {
  Timeline &line = timelineOf(gpu);
  expect(cuda.recordEvent(line.launches[line.count++].end, gpu.stream), "mark a time");
}

void collectTimes(Gpu &gpu) {
  if (!timing)
    return;
  Timeline &line = timelineOf(gpu);
  for (int i = 0; i < line.count; ++i) {
    const Timed &timed = line.launches[i];
    float since = 0, taken = 0; // milliseconds
    expect(cuda.timeBetween(&since, line.launches[0].begin, timed.begin), "tell a time");
    expect(cuda.timeBetween(&taken, timed.begin, timed.end), "tell a time");
    addTime(timed.launch, line.worker, timed.ofStep, line.from + int64_t(double(since) * 1e6), int64_t(double(taken) * 1e6));
  }
  line.count = 0;
}

} // namespace cinch::rt
