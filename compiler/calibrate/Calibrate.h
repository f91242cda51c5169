// Calibrate.h: `cinch calibrate`: this machine's rates, measured with Cinch's own kernels.
#ifndef CINCH_COMPILER_CALIBRATE_CALIBRATE_H
#define CINCH_COMPILER_CALIBRATE_CALIBRATE_H

#include <string>

namespace cinch::calibrate {

// Compiles small programs with `compiler` (this program's own file), runs them, fits the rates, prints them as a table
// and writes the profile to `output`. Returns the exit code: 0, 1 if something did not work, 5 if the profile cannot be
// written.
int calibrate(const std::string &compiler, const std::string &output, int threads);

// The text of block.cinch, built into the compiler.
const char *blockProgram();

} // namespace cinch::calibrate
#endif
