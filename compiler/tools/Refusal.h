// Refusal.h: what is said when no plan fits.
#ifndef CINCH_COMPILER_TOOLS_REFUSAL_H
#define CINCH_COMPILER_TOOLS_REFUSAL_H

#include "compiler/phases/Compile.h"

namespace cinch {

// `enough`: a number of workers with which it fits; 0: none is known. `host`: likewise, bytes of pinned memory of the host. `automatic`: their number was to be chosen, and none fits.
// The budget, the smallest that compiles, the proven bound, what holds the memory at the peak, and what would help.
void printRefusal(llvm::raw_ostream &, const Compilation &, const SourceList &, int64_t budget, int enough, int64_t host, bool automatic);

} // namespace cinch
#endif
