// Calibrate.h: `cinch calibrate`: this machine's rates, measured with Cinch's own kernels.
#ifndef CINCH_COMPILER_CALIBRATE_CALIBRATE_H
#define CINCH_COMPILER_CALIBRATE_CALIBRATE_H

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace cinch::calibrate {

// Whether there is a profile of this machine's CPU; `problem`: there is a file, and it is none.
bool hasProfile(const std::string &path, std::string &problem);

// Whether a profile may be written to `path`: nothing is there, or a profile, of whatever version.
bool mayReplace(const std::string &path);

// Compiles small programs with `compiler` (this program's own file), runs them, fits the rates, prints them as a table
// and writes the profile to `output`. Returns the exit code: 0, 1 if something did not work, 5 if the profile cannot be
// written.
int calibrate(const std::string &compiler, const std::string &output, int threads);

// Measures tilings of the products of a scheduled program for about `limit` seconds in all, prints them as a table and adds those worth it
// to the profile at `path`, which exists. Exit codes as above.
int tune(mlir::ModuleOp scheduled, const std::string &path, int threads, double limit);

// The text of block.cinch, built into the compiler.
const char *blockProgram();

} // namespace cinch::calibrate
#endif
