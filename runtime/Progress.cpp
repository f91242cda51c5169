// Progress.cpp: see Progress.h.
#include "runtime/Progress.h"
#include "runtime/Memory.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include "runtime/Worker.h"
#include <time.h>

namespace cinch::rt {

static double began, marked, drawn;
static int64_t firstStep, markedStep;

static double now() {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

void beginProgress() {
  began = marked = now();
  drawn = 0;
  firstStep = markedStep = run.step;
  for (int64_t i = 0; i < workerCount; ++i)
    workers[i].waited = 0;
}

double secondsSoFar() { return now() - began; }

static double speed(double since, int64_t step) {
  double seconds = now() - since;
  return seconds > 0 ? double(run.step - step) * double(run.meta.batch) / seconds : 0;
}

double speedSinceMark() {
  double result = speed(marked, markedStep);
  marked = now();
  markedStep = run.step;
  return result;
}

// The worker that waited least for the others, for which they wait.
static void addSlowest(Text &text) {
  if (programWorkers() < 2 || secondsSoFar() <= 0)
    return;
  auto waited = [](int64_t worker) { return peers ? peers->waited(worker) : workers[worker].waited; };
  int64_t slowest = 0;
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (waited(i) < waited(slowest))
      slowest = i;
  text.add("  worker %lld slowest, waits %.0f %%", (long long)slowest, 100 * waited(slowest) / secondsSoFar());
}

static double secondsLeft() {
  int64_t done = run.step - firstStep;
  return done > 0 ? secondsSoFar() / double(done) * double(run.total - run.step) : 0;
}

void drawBar() {
  double time = now();
  if (run.options.quiet || !onTerminal() || (time - drawn < 0.1 && run.step != run.total))
    return;
  drawn = time;
  Text tail, bar;
  char left[40];
  tail.add(" %lld/%lld  loss %.6g  %.0f examples/s  %s left", (long long)run.step, (long long)run.total, run.loss,
           speed(began, firstStep), humanTime(left, secondsLeft()));
  addSlowest(tail);
  int width = terminalWidth() - int(tail.size) - 3;
  if (width > 50)
    width = 50;
  if (width >= 8) {
    int64_t full = run.total > 0 ? run.step * width / run.total : width;
    bar.add("[");
    for (int i = 0; i < width; ++i)
      bar.add("%c", i < full ? '=' : i == full ? '>' : ' ');
    bar.add("]");
  }
  bar.add("%.*s", terminalWidth() - 1, tail.data);
  showBar(bar);
}

void printLine(double mean, double speed) {
  if (run.options.quiet)
    return;
  bool single = !run.meta.f64;
  char number[40];
  Text line;
  line.add("step %lld/%lld  loss %s", (long long)run.step, (long long)run.total, exact(number, run.loss, single));
  if (run.learningRate == run.learningRate)
    line.add("  lr %s", exact(number, run.learningRate, true));
  if (run.meta.normAt >= 0)
    line.add("  norm %s", exact(number, run.norm, single));
  line.add("  mean %s", exact(number, mean, true));
  line.add("  %.0f examples/s", speed);
  line.add("  %s left", humanTime(number, secondsLeft()));
  line.add("  peak %s", humanBytes(number, peakMemory()));
  say("%s", line.data);
}

} // namespace cinch::rt
