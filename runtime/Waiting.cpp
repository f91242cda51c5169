// Waiting.cpp: see Waiting.h. The order "count as a sleeper, look at the word again, sleep" here and "change the word, look
// for sleepers" there loses no waking: all of it is sequentially consistent.
#include "runtime/Waiting.h"
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cinch::rt {

static bool maySpin = false;
static constexpr int kPausesPerLook = 16; // at the clock

int64_t processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

void allowSpinning(int64_t threads) { maySpin = threads <= processors(); }

void Patience::wasEnough() {
  const double twice = 2 * limit();
  seconds = twice < kMost ? twice : kMost;
  inVain = 0;
}

void Patience::wasInVain() {
  seconds = seconds / 2 > kLeast ? seconds / 2 : kLeast;
  ++inVain;
}

static void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

static void sleepWhile(uint32_t *word, uint32_t value, const timespec *atMost) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, atMost, nullptr, 0);
}

bool awaitSpinning(uint32_t *word, uint32_t value, Patience &patience) {
  double until = 0;
  while (maySpin) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
        patience.wasEnough();
        return true;
      }
      relax();
    }
    double now = monotonicSeconds();
    if (until == 0)
      until = now + patience.limit();
    else if (now >= until)
      break;
  }
  patience.wasInVain();
  return false;
}

void await(uint32_t *word, uint32_t value, uint32_t *sleepers, Patience &patience) {
  if (awaitSpinning(word, value, patience))
    return;
  __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
    sleepWhile(word, value, nullptr);
  __atomic_sub_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
}

bool awaitFor(uint32_t *word, uint32_t value, uint32_t *sleepers, double seconds) {
  double until = monotonicSeconds() + seconds;
  __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
  bool changed;
  while (!(changed = __atomic_load_n(word, __ATOMIC_SEQ_CST) != value)) {
    double left = until - monotonicSeconds();
    if (left <= 0)
      break;
    timespec time = {time_t(left), long((left - double(time_t(left))) * 1e9)};
    sleepWhile(word, value, &time);
  }
  __atomic_sub_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
  return changed;
}

void wakeSleepers(uint32_t *word, uint32_t *sleepers) {
  if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool TimeLimit::isOver() {
  const double now = monotonicSeconds(), passed = now - seen;
  seen = now;
  left -= passed < kStopped ? passed : kLook;
  return left <= 0;
}

double monotonicSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

} // namespace cinch::rt
