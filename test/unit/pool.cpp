// LINK: cinchrt
// pool.cpp: every part of every job is done once before `run` returns: short and long jobs one behind the other, with as many threads as processors and
// with more, whose processors others want. Where parts wait for one another, each has a thread of its own.
#include "runtime/Pool.h"
#include "runtime/runtime.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

using namespace cinch::rt;

// The runtime asks the program for these.
extern "C" {
const char cinch_meta[] = "{}";
void cinch_train_step(cinch_ctx *) {}
void cinch_eval(cinch_ctx *, int64_t) {}
void cinch_predict(cinch_ctx *, int64_t) {}
}

static int passed = 0, failed = 0;
static void expect(bool ok, const char *what, int64_t got, int64_t threads) {
  ok ? ++passed : ++failed;
  if (!ok)
    std::printf("FAILED: %s: %lld with %lld threads\n", what, (long long)got, (long long)threads);
}

static uint64_t state = 7;
static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

struct Work {
  std::vector<uint32_t> done; // of each part; plain: a part is one thread's at a time, and its end is seen when the job is over
  uint64_t turns = 0, slow = 0; // of one part
  std::atomic<int64_t> arrived{0};
};

static void doPart(void *closure, int64_t part, int64_t parts) {
  Work &work = *static_cast<Work *>(closure);
  if (parts != int64_t(work.done.size()))
    ++failed;
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < work.turns * (uint64_t(part) == work.slow ? 20 : 1); ++i)
    sum = sum + i;
  ++work.done[size_t(part)];
}

static void jobs(int64_t threads, int count, Pool &pool) {
  Work work;
  work.done.assign(size_t(threads), 0);
  int64_t wrong = 0;
  for (int i = 1; i <= count; ++i) {
    work.turns = draw(10) == 0 ? draw(3000) : draw(30), work.slow = draw(uint64_t(threads) * 2);
    if (draw(2000) == 0) // long enough that the threads sleep
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    pool.run(doPart, &work);
    for (uint32_t times : work.done)
      wrong += times != uint32_t(i);
  }
  expect(wrong == 0, "parts that were not done once", wrong, threads);
}

static void waitForAll(void *closure, int64_t, int64_t parts) {
  Work &work = *static_cast<Work *>(closure);
  for (int64_t all = (work.arrived.fetch_add(1) / parts + 1) * parts; work.arrived < all;)
    std::this_thread::yield();
}

int main() {
  allowSpinning(2);
  for (int64_t threads : {2, 3, 8}) {
    Pool *pool = new Pool; // its threads never end
    pool->start(threads);
    jobs(threads, 60000, *pool);
    std::atomic<bool> stop{false};
    std::vector<std::thread> others; // that want the processors
    for (int64_t i = 0; i < processors(); ++i)
      others.emplace_back([&] {
        while (!stop)
          continue;
      });
    jobs(threads, 3000, *pool);
    stop = true;
    for (std::thread &other : others)
      other.join();
    Pool *apart = new Pool;
    apart->start(threads, Pool::Parts::WaitForOneAnother);
    Work work;
    for (int i = 0; i < 300; ++i)
      apart->run(waitForAll, &work);
    expect(work.arrived == 300 * threads, "parts that wait for one another", work.arrived, threads);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
