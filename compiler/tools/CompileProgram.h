// CompileProgram.h: a checked program goes through the phases, until what the command line asks for is there.
#ifndef CINCH_COMPILER_TOOLS_COMPILEPROGRAM_H
#define CINCH_COMPILER_TOOLS_COMPILEPROGRAM_H

#include "compiler/tools/Options.h"

namespace cinch {

// Threads that can run at once.
int processors();

// Compiles, plans, tunes, or prints an intermediate form. `self`: argv[0]. The exit code, after a message if it is not 0.
int compileProgram(const CommandLine &, const Program &, const SourceList &, const char *self);

} // namespace cinch
#endif
