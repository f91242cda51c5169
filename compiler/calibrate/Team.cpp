// Team.cpp: the threads wait in a loop, since kernels of a few microseconds are measured, too.
#include "compiler/calibrate/Team.h"

#include "compiler/kernels/LoopOps.h"

#include <chrono>

namespace cinch::calibrate {

// Once nothing has come for a while, others may have the processor.
template <typename Condition> static void waitFor(Condition condition) {
  for (int i = 0; !condition(); ++i)
    if (i > 1 << 12)
      std::this_thread::yield();
}

Team::Team(int threads) : threads(threads) {
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back([this, thread] { follow(thread); });
}

Team::~Team() {
  stop = true;
  ++call;
  for (std::thread &thread : others)
    thread.join();
}

void Team::follow(int thread) {
  for (uint64_t seen = 0;; ++seen) {
    waitFor([&] { return call.load() != seen; });
    if (stop)
      return;
    int64_t context[kernels::kContextWords] = {};
    kernel(arena, offsets, context, thread, threads);
    ++done;
  }
}

double Team::seconds(target::KernelFunction run, char *bytes, const int64_t *words) {
  int64_t context[kernels::kContextWords] = {};
  kernel = run, arena = bytes, offsets = words;
  done = 0;
  auto begin = std::chrono::steady_clock::now();
  ++call;
  run(bytes, words, context, 0, threads);
  waitFor([&] { return done.load() == threads - 1; });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace cinch::calibrate
