// TakenRanges.h: which bytes are taken at some moment of a life, for buffers that are placed one after the other.
//
// A segment tree over time. A node stands for a stretch of time and keeps two sets of bytes: those that one buffer takes during the whole
// stretch (`always`), and those that any buffer takes at any moment of it (`ever`). Neighbouring ranges of a set are one range. The parameters of a
// program, which live from start to end, are a few ranges that way, however many there are.
//
// A life consists of O(log moments) stretches. What it cannot have are the bytes ever taken in them, and those always taken in the nodes above.
#ifndef CINCH_COMPILER_SOLVE_TAKENRANGES_H
#define CINCH_COMPILER_SOLVE_TAKENRANGES_H

#include "compiler/solve/Memory.h"

namespace cinch::solve::detail {

struct ByteRange {
  int64_t begin = 0, end = 0;
};

// Ranges by rising begin, none of which touch.
class ByteSet {
public:
  void add(ByteRange);
  const std::vector<ByteRange> &ranges() const { return list; }
  // The end of the range that has a byte of [at, at + size), or `at` if all of these are free.
  int64_t endOfTaken(int64_t at, int64_t size) const;

private:
  std::vector<ByteRange> list;
};

class TakenRanges {
public:
  // For lives that begin and end where these do.
  explicit TakenRanges(const std::vector<ArenaBuffer> &);

  void take(int64_t lower, int64_t upper, ByteRange); // times [lower, upper)
  // The lowest offset at which `size` bytes are free during [lower, upper).
  int64_t lowestFree(int64_t lower, int64_t upper, int64_t size);
  // The offset of the least gap that has room for `size` bytes; the lowest of several, and above all that is taken if there is no gap.
  int64_t leastGap(int64_t lower, int64_t upper, int64_t size);

private:
  struct Node {
    ByteSet always, ever;
  };
  int momentOf(int64_t time) const;
  // Puts the sets that matter to a life into `sets`.
  void collect(int64_t lower, int64_t upper);
  void collect(size_t node, int begin, int end, int from, int to);
  void take(size_t node, int begin, int end, int from, int to, ByteRange);

  std::vector<int64_t> moments;
  std::vector<Node> nodes; // children of node i: 2 i + 1 and 2 i + 2
  std::vector<const ByteSet *> sets;
  std::vector<ByteRange> merged;
};

} // namespace cinch::solve::detail
#endif
