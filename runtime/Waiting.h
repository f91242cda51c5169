// Waiting.h: waiting for a word to change: spinning for a short while where there are processors for it, then asleep on a futex.
#ifndef CINCH_RUNTIME_WAITING_H
#define CINCH_RUNTIME_WAITING_H
#include <stdint.h>

namespace cinch::rt {

// Whether waiting threads may spin: only where every thread of this run has a processor; otherwise spinning would keep the
// others from working. `threads`: of all workers on this machine.
void allowSpinning(int64_t threads);
int64_t processors(); // that this process may use

// Returns once *word differs from `value`. Who changes it then calls wakeSleepers with the same count of sleepers.
void await(uint32_t *word, uint32_t value, uint32_t *sleepers);
// Spins only. False: the word is what it was.
bool awaitSpinning(uint32_t *word, uint32_t value);
// Sleeps, but not longer than `seconds`. False: the word is what it was.
bool awaitFor(uint32_t *word, uint32_t value, uint32_t *sleepers, double seconds);
// Wakes those who sleep on the word, if there are any.
void wakeSleepers(uint32_t *word, uint32_t *sleepers);

double monotonicSeconds();

} // namespace cinch::rt
#endif
