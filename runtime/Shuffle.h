// Shuffle.h: a seeded permutation of 0 .. n-1 for every epoch that needs no memory: the element at any place is
// computed.
#ifndef CINCH_RUNTIME_SHUFFLE_H
#define CINCH_RUNTIME_SHUFFLE_H
#include <stdint.h>

namespace cinch::rt {

// The example at place `place` (0 .. count-1) of epoch `epoch`.
int64_t shuffled(uint64_t seed, int64_t epoch, int64_t count, int64_t place);

} // namespace cinch::rt
#endif
