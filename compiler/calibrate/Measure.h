// Measure.h: what this machine reaches, measured with Cinch's own kernels.
#ifndef CINCH_COMPILER_CALIBRATE_MEASURE_H
#define CINCH_COMPILER_CALIBRATE_MEASURE_H

#include "compiler/analysis/Profile.h"

namespace cinch::calibrate {

// Compiles small programs with `compiler` (this program's own file), runs them with up to so many threads, fits the rates and prints them as
// a table. An exit code, and the reason if it is not 0: 5 where there is no place for temporary files. A signal that asks the process to end does
// so when the run at hand is over and its files are removed.
int measureMachine(const std::string &compiler, int threads, analysis::Profile &profile, std::string &error);

} // namespace cinch::calibrate
#endif
