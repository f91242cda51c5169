// Pool.h: a fork-join pool. The caller is thread 0; the others spin for a short while and then sleep on a futex. Every worker
// has a pool of its own, and the workers of one process are run by one more.
#ifndef CINCH_RUNTIME_POOL_H
#define CINCH_RUNTIME_POOL_H
#include "runtime/Waiting.h"
#include <stdint.h>

namespace cinch::rt {

using Job = void (*)(void *closure, int64_t thread, int64_t threads);

class Pool {
public:
  // Starts `threads` - 1 threads (once).
  void start(int64_t threads);
  // Runs the job on every thread; returns when all are done. Always called by the same thread.
  void run(Job, void *closure);

private:
  static void *begin(void *);
  void work(int64_t thread);

  int64_t count = 1;
  Job job = nullptr;
  void *closure = nullptr;
  Patience patience; // of the caller
  // Apart from one another, so that threads that wait for one do not slow down who changes another.
  alignas(64) uint32_t generation = 0;
  alignas(64) uint32_t sleepers = 0; // of those who wait for the next generation
  alignas(64) uint32_t unfinished = 0;
  alignas(64) uint32_t finished = 0; // generations that all threads are done with
  alignas(64) uint32_t callerSleeps = 0;
};

// Starts a thread with a stack of `bytes`, on which signals are blocked: they are the main thread's.
void startThread(void *(*main)(void *), void *argument, int64_t bytes, const char *what);

// The rounding, exception masks and subnormals that every number of Cinch is computed with.
void setFloatingPointMode();

// The part of `count` items that thread t of n works on: contiguous, in order.
inline void share(int64_t count, int64_t thread, int64_t threads, int64_t &begin, int64_t &end) {
  int64_t each = count / threads, extra = count % threads;
  begin = thread * each + (thread < extra ? thread : extra);
  end = begin + each + (thread < extra ? 1 : 0);
}

} // namespace cinch::rt
#endif
