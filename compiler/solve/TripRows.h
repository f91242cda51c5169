// TripRows.h: which rows of images work in blocks of rows makes and reads in a trip.
//
// A convolution reads rows around those that it makes. What lies between two kernels of a range is therefore a band: the rows of the block
// and a halo, which the trips before and behind make, too, bit for bit the same. Rows outside the image are zeros, which is what
// convolutions take there.
#ifndef CINCH_COMPILER_SOLVE_TRIPROWS_H
#define CINCH_COMPILER_SOLVE_TRIPROWS_H

#include "compiler/solve/StepGraph.h"

#include <map>

namespace cinch::solve {

struct RowRange;
struct RowBlock;

// Rows [first + i * step, first + i * step + count) of an example in its trip i; count 0: none.
struct TripRows {
  int64_t first = 0, count = 0, step = 0;
  int64_t end() const { return first + count; }
  bool operator==(const TripRows &o) const { return first == o.first && count == o.count && step == o.step; }
  bool covers(const TripRows &o) const { return step == o.step && first <= o.first && o.end() <= end(); }
  // Does some trip have rows outside of an image of so many rows?
  bool leaves(int64_t rows, int64_t trips) const { return first < 0 || (trips - 1) * step + end() > rows; }
};

// The rows of an operand that these rows of the result need.
TripRows rowsNeeded(const RowReach &, const TripRows &made);

struct RangeRows {
  std::string error;             // not empty: the range cannot work on such blocks
  std::vector<TripRows> kernels; // of the range: the rows that each makes, or sums over
  std::map<int, TripRows> bands; // buffers from outside whose rows do not lie there one block after the other: what is copied of them
};
// `leaves`: the buffer is read by something that does not compute it itself.
RangeRows rowsOfRange(const StepGraph &, const RowRange &, const RowBlock &, const std::vector<bool> &leaves);

} // namespace cinch::solve
#endif
