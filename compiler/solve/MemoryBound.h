// MemoryBound.h: how many bytes no plan can do without, known before any schedule is made.
#ifndef CINCH_COMPILER_SOLVE_MEMORYBOUND_H
#define CINCH_COMPILER_SOLVE_MEMORYBOUND_H

#include "compiler/solve/Timeline.h"
#include "compiler/solve/Variants.h"

namespace cinch::solve {

// Bytes of the arena that no plan of the graph at this micro-batch can go below: no order of the loop and no recomputation needs less.
int64_t memoryBound(const GraphIndex &, int64_t microbatch);
// .. and no plan of any of these; 0 where nothing is known.
int64_t memoryBound(const std::vector<Variant> &, int64_t microbatch);

} // namespace cinch::solve
#endif
