// Workers.h: among how many workers a program is divided: as flags and the program's plan say, or as few as fit the budget.
#ifndef CINCH_COMPILER_TOOLS_WORKERS_H
#define CINCH_COMPILER_TOOLS_WORKERS_H

#include "compiler/phases/Compile.h"
#include "compiler/tools/Options.h"

namespace cinch {

// Sets stages (0: auto), schedule, chunks and threads. The exit code; not 0 after a message.
int readWorkers(const CommandLine &, const Program &, CompileOptions &);

// Of so many stages: they, what their schedule is, threads and what is kept for messages. The other workers stand in the options.
void setStages(const CommandLine &, const Program &, int stages, CompileOptions &);

constexpr int kMostTried = 16;
// Whether their number is to be chosen: `--stages auto`, or `stages auto` of the program.
bool areChosen(const CommandLine &, const Program &);
// The smallest number of workers with which the program fits its budget; if none up to kMostTried does, the one whose smallest
// budget is the least.
int fewestWorkers(const CommandLine &, mlir::MLIRContext &, const Program &, const SourceList &, const CompileOptions &);
// After a refusal with options.stages workers: the next larger number that fits; 0: none up to kMostTried does. `bound`: WorkersPlan::bound of
// what was refused.
int moreWorkers(const CommandLine &, mlir::MLIRContext &, const Program &, const SourceList &, const CompileOptions &, int64_t bound);

// After a refusal with several workers on GPUs: bytes of pinned memory, whole MiB, with which each of them keeps its budget; 0: none would.
int64_t hostMemoryThatFits(mlir::MLIRContext &, const Program &, const SourceList &, CompileOptions);

} // namespace cinch
#endif
