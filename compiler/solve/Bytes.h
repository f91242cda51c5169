// Bytes.h: whatever lies in an arena starts at a multiple of a cache line, and the system hands out pages.
#ifndef CINCH_COMPILER_SOLVE_BYTES_H
#define CINCH_COMPILER_SOLVE_BYTES_H

#include <cstdint>

namespace cinch::solve {

constexpr int64_t kLine = 64;
constexpr int64_t kPage = 4096;

inline int64_t roundUp(int64_t bytes, int64_t to = kLine) { return (bytes + to - 1) / to * to; }
inline int64_t roundDown(int64_t bytes, int64_t to = kLine) { return bytes / to * to; }

} // namespace cinch::solve
#endif
