// ArenaSegments.h: arenas without slack, by what hands its bytes over to what.
#ifndef CINCH_COMPILER_SOLVE_ARENASEGMENTS_H
#define CINCH_COMPILER_SOLVE_ARENASEGMENTS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cinch::solve::detail {

struct SegmentBuffer {
  int64_t size;
  int from, to; // in sections of time: alive in [from, to)
};

// One way to divide what ends and what starts at a time into segments.
struct SegmentWay {
  struct Segment {
    std::vector<int> ending, starting;
  };
  std::vector<Segment> segments;
  double chance = 0; // logarithm of how many such ways chance alone makes: the lower, the more it is to be believed
};
// The likeliest come first; none if there are too many.
std::vector<SegmentWay> waysToDivide(const std::vector<SegmentBuffer> &, const std::vector<int> &ending, const std::vector<int> &starting,
                                     int64_t &work);

// Places buffers that fill every one of the sections to the same height. False: not found, which proves nothing.
bool placeAlongSegments(const std::vector<SegmentBuffer> &, int sections, int64_t &work, double deadline, std::vector<int64_t> &offsets);

} // namespace cinch::solve::detail
#endif
