// Random.h: what the random cases of tests of kernels are drawn from. A seed gives the same cases everywhere.
#ifndef CINCH_TEST_KERNELS_RANDOM_H
#define CINCH_TEST_KERNELS_RANDOM_H

#include <cstdint>
#include <random>

namespace cinch::test {

using Random = std::mt19937_64;
inline int64_t below(Random &random, int64_t bound) { return int64_t(random() % uint64_t(bound)); }

} // namespace cinch::test
#endif
