// Random.h: the random numbers of the program and the mathematics they need, exact to the bit on every machine: no
// libm. FORMULAS.md gives all of it, so that an independent reference can be written.
#ifndef CINCH_RUNTIME_RANDOM_H
#define CINCH_RUNTIME_RANDOM_H
#include <stdint.h>

namespace cinch::rt {

uint64_t mix64(uint64_t);        // the finaliser of SplitMix64
uint64_t hashText(const char *); // FNV-1a, 64 bits
uint64_t streamKey(uint64_t seed, const char *name);

struct Philox {
  uint32_t words[4];
};
// Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011).
Philox philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3);

// Words `2 i` and `2 i + 1` of a block as a number of [0, 1) with 53 bits.
double uniform53(const Philox &, int i);
// Two independent normal numbers from one block (Box and Muller).
void normalPair(const Philox &, double &first, double &second);

double logOf(double x);                               // x > 0, normal
void sinCosTurns(double turns, double &s, double &c); // of 2 pi turns, turns in [0, 1)
double expOf(double x);

// What a counter's last word is for: blocks drawn for different ends never coincide.
constexpr uint32_t kInitialValues = 0x54494e49; // "INIT"
constexpr uint32_t kGeneration = 0x454e4547;    // "GENE"

} // namespace cinch::rt
#endif
