// Times.h: how long each launch takes, for `--kernel-times FILE`.
#ifndef CINCH_RUNTIME_TIMES_H
#define CINCH_RUNTIME_TIMES_H
#include <stdint.h>

namespace cinch::rt {

extern bool timing; // set once, before the first launch
int64_t nanoseconds();
void addTime(int32_t launch, int64_t nanoseconds);
// One line a launch, with tabs: number, calls, seconds of all calls, median seconds of the latest calls, the least
// seconds of a call, kernel, place, text. A file that cannot be written is a warning.
void writeTimes(const char *path);

} // namespace cinch::rt
#endif
