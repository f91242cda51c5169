// Initialize.h: the values parameters and optimizer state start with.
#ifndef CINCH_RUNTIME_INITIALIZE_H
#define CINCH_RUNTIME_INITIALIZE_H
#include "runtime/Meta.h"

namespace cinch::rt {

// Every element is a pure function of (seed, path, its row-major number): the pool's threads only share the work.
void initialize(const Meta &, char *arena);

} // namespace cinch::rt
#endif
