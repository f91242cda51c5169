// Pool.cpp: one generation counter wakes the workers, one counter of the unfinished wakes the caller.
#include "runtime/Pool.h"
#include "runtime/Output.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cinch::rt {

static int threadCount = 1;
static int mostSpins = 0;
alignas(64) static uint32_t generation = 0;
alignas(64) static uint32_t unfinished = 0;
alignas(64) static uint32_t sleepers = 0;
alignas(64) static uint32_t callerSleeps = 0;
static Job job;
static void *jobClosure;

static void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

static void sleepWhile(uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
static void wake(uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void setFloatingPointMode() {
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);
#endif
}

// How long a thread spins before it sleeps: doubled where spinning was enough, halved where it was in vain (other
// processes have the processors, or the work is uneven).
struct Patience {
  int spins = 256;
  void wasEnough() { spins = 2 * spins < mostSpins ? 2 * spins : mostSpins; }
  void wasInVain() { spins = spins / 2 > 32 ? spins / 2 : 32; }
};

// Returns once *word differs from `value`.
static void await(uint32_t *word, uint32_t value, uint32_t *sleeping, Patience &patience) {
  for (int i = 0; i < patience.spins && i < mostSpins; ++i) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
      patience.wasEnough();
      return;
    }
    relax();
  }
  patience.wasInVain();
  __atomic_add_fetch(sleeping, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
    sleepWhile(word, value);
  __atomic_sub_fetch(sleeping, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *number) {
  setFloatingPointMode();
  int64_t thread = reinterpret_cast<int64_t>(number);
  uint32_t seen = 0;
  Patience patience;
  for (;;) {
    await(&generation, seen, &sleepers, patience);
    seen += 1;
    job(jobClosure, thread, threadCount);
    if (__atomic_sub_fetch(&unfinished, 1, __ATOMIC_SEQ_CST) == 0 && __atomic_load_n(&callerSleeps, __ATOMIC_SEQ_CST))
      wake(&unfinished, 1);
  }
  return nullptr;
}

// A mapping with a guard page below; without huge pages, which would make a stack of a few touched pages 2 MiB.
static void *makeStack(size_t size) {
  void *space = mmap(nullptr, size + 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    fail(kResources, "cannot allocate the stack of a thread: %s", strerror(errno));
  (void)madvise(space, size + 4096, MADV_NOHUGEPAGE);
  mprotect(space, 4096, PROT_NONE);
  return static_cast<char *>(space) + 4096;
}

void startPool(int threads) {
  threadCount = threads;
  cpu_set_t allowed;
  int cpus = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  mostSpins = threads <= cpus ? 4096 : 0; // more threads than processors: spinning would keep the others from working
  const size_t stackSize = size_t(512) << 10;
  // Signals are the main thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int64_t i = 1; i < threads; ++i) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, makeStack(stackSize), stackSize);
    int error = pthread_create(&thread, &attributes, work, reinterpret_cast<void *>(i));
    if (error)
      fail(kResources, "cannot start thread %lld of %d: %s", (long long)i + 1, threads, strerror(error));
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

int poolThreads() { return threadCount; }

void runOnPool(Job newJob, void *closure) {
  if (threadCount == 1) {
    newJob(closure, 0, 1);
    return;
  }
  job = newJob;
  jobClosure = closure;
  __atomic_store_n(&unfinished, threadCount - 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST))
    wake(&generation, INT_MAX);
  newJob(closure, 0, threadCount);
  static Patience patience;
  for (int i = 0; i < patience.spins && i < mostSpins; ++i) {
    if (__atomic_load_n(&unfinished, __ATOMIC_ACQUIRE) == 0) {
      patience.wasEnough();
      return;
    }
    relax();
  }
  patience.wasInVain();
  __atomic_store_n(&callerSleeps, 1, __ATOMIC_SEQ_CST);
  for (uint32_t left; (left = __atomic_load_n(&unfinished, __ATOMIC_SEQ_CST)) != 0;)
    sleepWhile(&unfinished, left);
  __atomic_store_n(&callerSleeps, 0, __ATOMIC_SEQ_CST);
}

} // namespace cinch::rt
