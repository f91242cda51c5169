// Pool.h: a fork-join pool. The caller is thread 0; the others spin for a short while and then sleep on a futex.
#ifndef CINCH_RUNTIME_POOL_H
#define CINCH_RUNTIME_POOL_H
#include <stdint.h>

namespace cinch::rt {

using Job = void (*)(void *closure, int64_t thread, int64_t threads);

// Starts `threads` - 1 workers (once).
void startPool(int threads);
int poolThreads();
// Runs the job on every thread; returns when all are done.
void runOnPool(Job, void *closure);

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
