// Progress.h: what a person sees during training: a bar on a terminal, plain lines elsewhere.
#ifndef CINCH_RUNTIME_PROGRESS_H
#define CINCH_RUNTIME_PROGRESS_H
#include <stdint.h>

namespace cinch::rt {

void beginProgress();
double secondsSoFar();
// Examples a second since the last call, and the call's mark is set.
double speedSinceMark();
void drawBar();               // at most ten times a second
void printLine(double mean, double speed); // the step just done

} // namespace cinch::rt
#endif
