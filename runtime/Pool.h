// Pool.h: a fork-join pool. The caller is thread 0 and does part 0 of a job; the others spin for a short while and then sleep on a futex. A part that its
// thread has not begun with when the caller is done with its own, the caller does, too: other processes may have that thread's processor, and what
// is that small is done before a thread has woken up. Every worker has a pool of its own, and the workers of one process are run by one more, whose
// parts wait for one another and so are left to their threads.
#ifndef CINCH_RUNTIME_POOL_H
#define CINCH_RUNTIME_POOL_H
#include "runtime/Waiting.h"
#include <stdint.h>

namespace cinch::rt {

// A part of a job is done once, by any thread: `part` is 0 .. parts - 1.
using Job = void (*)(void *closure, int64_t part, int64_t parts);

class Pool {
public:
  enum class Parts { TakenOver, WaitForOneAnother };
  // Starts `threads` - 1 threads (once). A job has as many parts.
  void start(int64_t threads, Parts parts = Parts::TakenOver);
  // Returns when all parts are done. Always called by the same thread.
  void run(Job, void *closure);

private:
  static void *begin(void *);
  void work(int64_t thread);
  void wake();
  bool claim(int64_t part, uint32_t now);
  void perform(int64_t part, uint32_t now);

  int64_t count = 1;
  bool takesOver = true;
  Job job = nullptr;
  void *closure = nullptr;
  Patience patience;     // of the caller
  bool alone = false;    // the caller did all parts of the last job
  double wokenAt = 0;
  // Apart from one another, so that threads that wait for one do not slow down who changes another.
  struct alignas(64) Claim {
    uint32_t generation = 0; // the last one of which somebody has begun with this part
  };
  Claim *claims = nullptr;
  alignas(64) uint32_t generation = 0;
  alignas(64) uint32_t sleepers = 0; // of those who wait for the next generation
  alignas(64) uint32_t unfinished = 0;
  alignas(64) uint32_t finished = 0; // generations that are done
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
