// LaunchTime.h: how long the calls of one launch, or the steps, took: all of them together, and the latest, whose median no pause of the
// machine can shift.
#ifndef CINCH_RUNTIME_LAUNCHTIME_H
#define CINCH_RUNTIME_LAUNCHTIME_H
#include <stdint.h>

namespace cinch::rt {

struct LaunchTime {
  static constexpr int kRecent = 31;
  int64_t calls = 0, sum = 0, least = 0; // nanoseconds
  float recent[kRecent];                 // nanoseconds of the latest calls: seven digits are enough, and a step may take hours

  void add(int64_t taken) {
    recent[calls % kRecent] = float(taken);
    if (!calls || taken < least)
      least = taken;
    ++calls;
    sum += taken;
  }

  // Nanoseconds of the latest calls, of which there is one at least. Sorts them.
  int64_t median() {
    int count = int(calls < kRecent ? calls : kRecent);
    for (int i = 1; i < count; ++i)
      for (int j = i; j > 0 && recent[j] < recent[j - 1]; --j) {
        float moved = recent[j];
        recent[j] = recent[j - 1];
        recent[j - 1] = moved;
      }
    return int64_t(recent[count / 2]);
  }
};

} // namespace cinch::rt
#endif
