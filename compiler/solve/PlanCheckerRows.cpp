// PlanCheckerRows.cpp: does every row of an image that a block makes find the rows that it needs? Trip by trip and row by row.
#include "compiler/solve/PlanChecker.h"

#include "compiler/solve/RowBlocks.h"

#include <algorithm>

namespace cinch::solve {
namespace {

class RowsChecker {
public:
  RowsChecker(const StepGraph &g, const RowBlocked &blocked, const RowKernel &range) : g(g), block(blocked.block), range(range) {}

  std::string run() {
    if (range.rows.empty()) // rows of the block alone
      return "";
    size_t count = range.trip.kernels.size();
    if (range.rows.size() != count || range.work.size() != count || block.examples != 1)
      return "the rows of its kernels are not told";
    for (size_t t = 0; t < count; ++t)
      for (const std::string &wrong : {checkBytes(t), range.work[t] < 0 ? checkCopy(t) : checkReads(t), checkOnce(t)})
        if (!wrong.empty())
          return range.trip.kernels[t].name + ": " + wrong;
    return "";
  }

private:
  int64_t trips() const { return g.positions / block.positions; }
  const Buffer &whole(int b) const { return g.buffers[range.buffers[b]]; }
  bool hasRows(int b) const { return whole(b).perExampleBytes > 0; }

  // The rows [first, second) of a buffer of the trip that are there in trip i.
  std::pair<int64_t, int64_t> there(int b, int64_t i) const {
    int producer = range.trip.buffers[b].producer;
    if (producer < 0)
      return {0, g.rowsOf(whole(b))};
    const TripRows &rows = range.rows[producer];
    return {rows.first + i * rows.step, rows.end() + i * rows.step};
  }

  std::string checkBytes(size_t t) const {
    for (int b : range.trip.kernels[t].writes)
      if (range.local[b] && hasRows(b) &&
          range.trip.buffers[b].fixedBytes < whole(b).perExampleBytes / g.rowsOf(whole(b)) * range.rows[t].count)
        return "its rows do not fit into " + std::to_string(range.trip.buffers[b].fixedBytes) + " bytes";
    return "";
  }

  std::string checkCopy(size_t t) const {
    const Kernel &copy = range.trip.kernels[t];
    bool fits = copy.reads.size() == 1 && copy.writes.size() == 1 && range.trip.buffers[copy.reads[0]].producer < 0 &&
                range.buffers[copy.reads[0]] == range.buffers[copy.writes[0]] && range.local[copy.writes[0]] &&
                range.rows[t].step == block.positions * whole(copy.reads[0]).rowScale;
    return fits ? "" : "copies no rows of what lies outside";
  }

  // A row in the image needs its operands' rows whose numbers are whole, those outside of their image (which are zeros) as well.
  std::string checkReads(size_t t) const {
    const Kernel &kernel = g.kernels[range.range.kernels[range.work[t]]];
    const TripRows &made = range.rows[t];
    for (int64_t i = 0; i < trips(); ++i)
      for (int64_t p = std::max<int64_t>(0, made.first + i * made.step); p < made.end() + i * made.step; ++p)
        for (size_t r = 0; r < kernel.reads.size(); ++r) {
          int b = range.trip.kernels[t].reads[r];
          if (!hasRows(b) || p >= rowsMade(kernel))
            continue;
          RowReach reach = kernel.reach.empty() ? RowReach() : kernel.reach[r];
          auto [begin, end] = there(b, i);
          for (int64_t at = p * reach.up + reach.from; at <= p * reach.up + reach.to; ++at)
            if (at % reach.down == 0 && (at / reach.down < begin || at / reach.down >= end))
              return "row " + std::to_string(p) + " needs row " + std::to_string(at / reach.down) + " of " + whole(b).name +
                     ", which has [" + std::to_string(begin) + ", " + std::to_string(end) + ") in trip " + std::to_string(i);
        }
    return "";
  }
  int64_t rowsMade(const Kernel &kernel) const {
    for (int b : kernel.writes)
      if (g.buffers[b].perExampleBytes > 0)
        return g.rowsOf(g.buffers[b]);
    return g.positions * kernel.rowScale;
  }

  // What leaves the block, what is summed and what is drawn: every row in one trip, in ascending order.
  std::string checkOnce(size_t t) const {
    if (range.work[t] < 0)
      return "";
    const Kernel &kernel = g.kernels[range.range.kernels[range.work[t]]];
    const TripRows &made = range.rows[t];
    bool once = kernel.ownRows;
    for (int b : range.trip.kernels[t].writes)
      once |= !range.local[b];
    if (once && (made.first != 0 || made.count != made.step || made.step * trips() != rowsMade(kernel)))
      return "makes or sums some row twice, or not at all";
    return made.step == block.positions * kernel.rowScale ? "" : "does not go on by its rows of a block";
  }

  const StepGraph &g;
  const RowBlock &block;
  const RowKernel &range;
};

} // namespace

std::string checkRows(const StepGraph &whole, const RowBlocked &blocked) {
  for (const RowKernel &range : blocked.ranges)
    if (std::string wrong = RowsChecker(whole, blocked, range).run(); !wrong.empty())
      return wrong;
  return "";
}

} // namespace cinch::solve
