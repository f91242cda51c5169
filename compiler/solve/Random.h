// Random.h: the one generator of random numbers of the planners: xorshift64, the same on every machine.
#ifndef CINCH_COMPILER_SOLVE_RANDOM_H
#define CINCH_COMPILER_SOLVE_RANDOM_H

#include <algorithm>
#include <cstdint>

namespace cinch::solve {

struct Random {
  static constexpr uint64_t kSpread = 0x9e3779b97f4a7c15ull; // golden ratio: neighbouring seeds start far apart
  uint64_t state;                                            // never 0

  static Random seeded(uint64_t seed) { return {kSpread * (seed + 1)}; }
  uint64_t next() { // 53 bits
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state >> 11;
  }
  int64_t below(int64_t n) { return int64_t(next() % uint64_t(std::max<int64_t>(n, 1))); }
  double unit() { return double(next()) / 9007199254740992.0; }
};

} // namespace cinch::solve
#endif
