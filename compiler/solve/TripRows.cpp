// TripRows.cpp: rows are asked for from the last kernel of a range to the first: of each as many as its readers need.
#include "compiler/solve/TripRows.h"

#include "compiler/solve/RowBlocks.h"

#include <algorithm>

namespace cinch::solve {
namespace {

int64_t floorOf(int64_t a, int64_t b) { return a / b - (a % b < 0); }
int64_t ceilOf(int64_t a, int64_t b) { return -floorOf(-a, b); }

TripRows both(const TripRows &a, const TripRows &b) {
  if (a.count == 0)
    return b;
  int64_t first = std::min(a.first, b.first);
  return {first, std::max(a.end(), b.end()) - first, a.step};
}

} // namespace

TripRows rowsNeeded(const RowReach &reach, const TripRows &made) {
  int64_t first = ceilOf(made.first * reach.up + reach.from, reach.down);
  int64_t last = floorOf((made.end() - 1) * reach.up + reach.to, reach.down);
  // What gives an image takes an output that has as many rows as that image's convolution gives: rows that nothing meets fill it up.
  int64_t pad = made.first * reach.up + reach.to - first * reach.down, count = last - first + 1;
  int64_t given = floorOf(made.count + 2 * pad - (reach.to - reach.from) - 1, reach.down) + 1;
  if (reach.down > 1 && count > given)
    first -= count - given, count += count - given;
  else if (reach.down > 1)
    count = given;
  return {first, count, made.step * reach.up / reach.down};
}

RangeRows rowsOfRange(const StepGraph &g, const RowRange &range, const RowBlock &block, const std::vector<bool> &leaves) {
  RangeRows out;
  out.kernels.resize(range.kernels.size());
  std::map<int, TripRows> needed; // of buffers
  for (size_t i = range.kernels.size(); i-- > 0;) {
    const Kernel &kernel = g.kernels[range.kernels[i]];
    int64_t step = kernel.rowScale * block.positions;
    const TripRows own{0, step, step};
    TripRows made;
    for (int b : kernel.writes) {
      const Buffer &buffer = g.buffers[b];
      bool stays = buffer.kind == Buffer::Value && (int(i) < range.again || !leaves[b]);
      if (!stays && buffer.perExampleBytes > 0 && g.rowsOf(buffer) != g.positions * kernel.rowScale)
        out.error = buffer.name + " has " + std::to_string(g.rowsOf(buffer)) + " rows, which blocks do not divide";
      if (!stays)
        made = both(made, own);
      if (auto it = needed.find(b); it != needed.end())
        made = both(made, it->second);
      if (!stays && !(made == own))
        out.error = "rows of " + buffer.name + " beside those of the block are needed, which it leaves";
    }
    if (made.count == 0)
      made = own;
    int64_t first = floorOf(made.first, kernel.rowsTogether) * kernel.rowsTogether;
    made = {first, ceilOf(made.end(), kernel.rowsTogether) * kernel.rowsTogether - first, step};
    if (kernel.ownRows && !(made == own))
      out.error = kernel.name + " may work on no row twice";
    out.kernels[i] = made;
    for (size_t r = 0; r < kernel.reads.size(); ++r) {
      const Buffer &buffer = g.buffers[kernel.reads[r]];
      if (buffer.perExampleBytes == 0)
        continue;
      RowReach reach = kernel.reach.empty() ? RowReach() : kernel.reach[r];
      TripRows &rows = needed[kernel.reads[r]];
      TripRows wanted = rowsNeeded(reach, made);
      if (rows.count > 0 && rows.step != wanted.step)
        out.error = buffer.name + " is read in steps of two kinds";
      rows = both(rows, wanted);
    }
  }
  for (auto &[b, rows] : needed) {
    const Buffer &buffer = g.buffers[b];
    bool inside = buffer.kind == Buffer::Value && buffer.producer >= 0 &&
                  std::find(range.kernels.begin(), range.kernels.end(), buffer.producer) != range.kernels.end();
    bool own = rows.first == 0 && rows.count == rows.step;
    if (inside || (own && (buffer.rows == 0 || rows.step * (g.positions / block.positions) == buffer.rows)))
      continue;
    if (buffer.rows == 0)
      out.error = buffer.name + " has no rows around those of a block";
    out.bands[b] = rows;
  }
  return out;
}

} // namespace cinch::solve
