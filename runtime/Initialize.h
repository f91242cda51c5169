// Initialize.h: the values parameters and optimizer state start with.
#ifndef CINCH_RUNTIME_INITIALIZE_H
#define CINCH_RUNTIME_INITIALIZE_H
#include "runtime/Meta.h"

namespace cinch::rt {

// Every element is a pure function of (seed, path, its row-major number): the pool's threads only share the work.
// Of the workers of this process.
void initialize(const Meta &);

} // namespace cinch::rt
#endif
