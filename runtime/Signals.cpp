// Signals.cpp: SIGINT, SIGTERM and the end of the terminal ask the run to save and leave; a second one, if it is not of the same moment, ends it at once.
// Before there is anything to save, or another process to be told, the first one does.
#include "runtime/Checkpoint.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

namespace cinch::rt {

static volatile sig_atomic_t requested = 0;
static volatile sig_atomic_t answers = 0; // the run looks whether it shall stop
static volatile sig_atomic_t isSaved = 0; // all that is left is to leave: launchers ask for that, too, as soon as the first process has left

// `timeout` and others signal the process and then its whole group: what comes so soon after the first is the same wish.
constexpr double kAtOnce = 0.1; // seconds
static double askedAt = 0;
static double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

static void request(int signal) {
  if (!answers) {
    static const char text[] = "stopped before the first step; nothing is to be saved\n";
    (void)!write(STDOUT_FILENO, text, sizeof text - 1);
    dropSharedFile();
    _exit(kSaved);
  }
  if (!requested) {
    askedAt = now();
    requested = signal;
  } else if (now() - askedAt > kAtOnce) {
    dropSharedFile();
    _exit(isSaved ? int(kSaved) : 128 + signal);
  }
}

void answerSignals() { answers = 1; }

void catchSignals() {
  struct sigaction action = {};
  action.sa_handler = request;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before;
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) // nohup asked to go on
    sigaction(SIGHUP, &action, nullptr);
}

void ignoreSignals() {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
}

bool stopRequested() { return requested != 0; }

// All that is there to be saved is saved. What was asked for beside it is said first, so that how the run ended stands last.
static void reportSaved() {
  isSaved = 1;
  reportTimes();
}

void saveAndLeave() {
  if (peers)
    peers->stop();
  // The parameters only change after the last micro-batch of a step: what is here now is the state after run.step
  // steps.
  if (run.step == 0) {
    reportSaved();
    say("stopped before the first step was done; nothing is to be saved");
    leave(kSaved);
  }
  Path saved;
  if (!run.pending && lastSavedStep() == run.step) {
    reportSaved();
    say("stopped at step %lld, which is saved already; go on with --resume", (long long)run.step);
    leave(kSaved);
  }
  needFiniteParameters();
  if (!saveCheckpoint(-1, run.pending, &saved))
    fail(kResources, "stopped at step %lld, and the state could not be saved", (long long)run.step);
  reportSaved();
  say("stopped at step %lld, saved in %s; go on with --resume", (long long)run.step, saved.text);
  leave(kSaved);
}

} // namespace cinch::rt
