// Waiting.h: waiting for a word to change: spinning for a short while where there are processors for it, then asleep on a futex.
#ifndef CINCH_RUNTIME_WAITING_H
#define CINCH_RUNTIME_WAITING_H
#include <stdint.h>

namespace cinch::rt {

// Whether waiting threads may spin: only where every thread of this run has a processor; otherwise spinning would keep the
// others from working. `threads`: of all workers on this machine.
void allowSpinning(int64_t threads);
int64_t processors(); // that this process may use

// How long a thread spins before it sleeps: twice as long after a wait in which spinning was enough, half as long after one in which it was in vain, for then
// other processes may have the processors. Every so many waits it spins for as long as it ever does. Without that it could not find out that
// spinning is enough again: whoever it waits for sleeps as soon as itself, and wakes as late.
struct Patience {
  static constexpr double kMost = 100e-6, kLeast = 1e-6; // seconds
  static constexpr int kWaitsToTry = 16;
  double seconds = kMost;
  int inVain = 0; // waits in a row
  double limit() const { return inVain % kWaitsToTry == kWaitsToTry - 1 ? kMost : seconds; }
  void wasEnough();
  void wasInVain();
};

// Returns once *word differs from `value`. Who changes it then calls wakeSleepers with the same count of sleepers.
void await(uint32_t *word, uint32_t value, uint32_t *sleepers, Patience &);
// Spins only. False: the word is what it was.
bool awaitSpinning(uint32_t *word, uint32_t value, Patience &);
// Sleeps, but not longer than `seconds`. False: the word is what it was.
bool awaitFor(uint32_t *word, uint32_t value, uint32_t *sleepers, double seconds);
// Wakes those who sleep on the word, if there are any.
void wakeSleepers(uint32_t *word, uint32_t *sleepers);

double monotonicSeconds();

// How much longer something is waited for. While this process was stopped (Ctrl-Z, a suspended job) that does not pass: whoever is waited for was
// probably stopped, too, and monotonicSeconds() goes on. Who waits looks at the limit every kLook seconds or more often.
class TimeLimit {
public:
  static constexpr double kLook = 0.1, kStopped = 1; // two looks further apart than kStopped: the process was stopped between them
  explicit TimeLimit(double seconds) : left(seconds), seen(monotonicSeconds()) {}
  bool isOver();

private:
  double left, seen;
};

} // namespace cinch::rt
#endif
