// Timing.h: processor time of calls, for benches whose sides run in one thread: other load on the machine takes none of it.
#ifndef CINCH_BENCH_HARNESS_TIMING_H
#define CINCH_BENCH_HARNESS_TIMING_H

#include <algorithm>
#include <ctime>
#include <vector>

namespace cinch::bench {

// Seconds that this thread has computed.
inline double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds a call, over `repeats` calls.
template <class Call> double timeOf(int repeats, Call call) {
  double start = now();
  for (int i = 0; i < repeats; ++i)
    call();
  return (now() - start) / repeats;
}

} // namespace cinch::bench
#endif
