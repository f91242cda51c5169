// Pool.cpp: one generation counter wakes the threads, who claim their parts of it; who finishes the last one tells the caller.
#include "runtime/Pool.h"
#include "runtime/Memory.h"
#include "runtime/Output.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cinch::rt {

void setFloatingPointMode() {
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);
#endif
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

void startThread(void *(*main)(void *), void *argument, int64_t bytes, const char *what) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, makeStack(size_t(bytes)), size_t(bytes));
  int error = pthread_create(&thread, &attributes, main, argument);
  if (error)
    fail(kResources, "cannot start %s: %s", what, strerror(error));
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

namespace {
struct Start {
  Pool *pool;
  int64_t thread;
};
} // namespace

void *Pool::begin(void *argument) {
  setFloatingPointMode();
  const Start &start = *static_cast<Start *>(argument);
  start.pool->work(start.thread);
  return nullptr;
}

// Every part of a generation is claimed once before its job ends. So a claim holds the generation before until then, and who comes too late, with a
// generation that is over, finds a later one.
bool Pool::claim(int64_t part, uint32_t now) {
  uint32_t before = now - 1;
  return __atomic_compare_exchange_n(&claims[part].generation, &before, now, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

void Pool::perform(int64_t part, uint32_t now) {
  job(closure, part, count);
  if (__atomic_sub_fetch(&unfinished, 1, __ATOMIC_SEQ_CST) == 0) {
    __atomic_store_n(&finished, now, __ATOMIC_SEQ_CST);
    wakeSleepers(&finished, &callerSleeps);
  }
}

void Pool::work(int64_t thread) {
  uint32_t seen = 0;
  Patience patience;
  for (;;) {
    await(&generation, seen, &sleepers, patience);
    seen = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    if (claim(thread, seen))
      perform(thread, seen);
  }
}

void Pool::start(int64_t threads, Parts parts) {
  count = threads;
  takesOver = parts == Parts::TakenOver;
  // Nothing that is handed out here is freed; so a line of the cache of its own is cut out of it.
  char *space = allocateArray<char>((threads + 1) * int64_t(sizeof(Claim)));
  claims = reinterpret_cast<Claim *>((reinterpret_cast<uintptr_t>(space) + alignof(Claim) - 1) / alignof(Claim) * alignof(Claim));
  for (int64_t i = 0; i < threads; ++i)
    claims[i].generation = 0;
  for (int64_t i = 1; i < threads; ++i) {
    Start *start = allocateArray<Start>(1);
    *start = {this, i};
    Text what;
    what.add("thread %lld of %lld", (long long)i + 1, (long long)threads);
    startThread(begin, start, int64_t(512) << 10, what.data);
  }
}

// Waking takes microseconds. If the last job was done before anybody had woken up, those who were called then are still about to come.
void Pool::wake() {
  constexpr double kOnTheWay = 50e-6; // seconds
  if (!__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST))
    return;
  const double now = monotonicSeconds();
  if (alone && now - wokenAt < kOnTheWay)
    return;
  wokenAt = now;
  wakeSleepers(&generation, &sleepers);
}

void Pool::run(Job newJob, void *newClosure) {
  if (count == 1) {
    newJob(newClosure, 0, 1);
    return;
  }
  job = newJob;
  closure = newClosure;
  __atomic_store_n(&unfinished, uint32_t(count - 1), __ATOMIC_RELAXED);
  const uint32_t before = generation, now = before + 1;
  __atomic_store_n(&generation, now, __ATOMIC_SEQ_CST);
  wake();
  newJob(newClosure, 0, count);
  bool others = !takesOver;
  for (int64_t i = 1; takesOver && i < count; ++i)
    if (claim(i, now))
      perform(i, now);
    else
      others = true;
  alone = !others;
  await(&finished, before, &callerSleeps, patience);
}

} // namespace cinch::rt
