// Shuffle.cpp: a Feistel network on the smallest even number of bits that holds the count, walked along its cycle until
// the result lies below the count (Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002).
#include "runtime/Shuffle.h"
#include "runtime/Random.h"

namespace cinch::rt {

int64_t shuffled(uint64_t seed, int64_t epoch, int64_t count, int64_t place) {
  int half = 1;
  while (half < 31 && (int64_t(1) << 2 * half) < count)
    ++half;
  const uint64_t mask = (uint64_t(1) << half) - 1;
  const uint64_t key = mix64(streamKey(seed, "shuffle") + uint64_t(epoch) * 0x9e3779b97f4a7c15u);
  uint64_t x = uint64_t(place);
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 1; round <= 8; ++round) {
      uint64_t next = left ^ (mix64(key + round * 0xd1342543de82ef95u + right) >> 32 & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= uint64_t(count));
  return int64_t(x);
}

} // namespace cinch::rt
