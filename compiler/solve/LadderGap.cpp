// LadderGap.cpp: plans between two rungs that lie far apart.
//
// A long loop has a ladder of few rungs. Where a budget lies between two of them and the upper one is much faster, plans are looked for between
// them: at targets that divide the gap evenly, from the upper end down, each from the one above it and from the lower rung. Which targets
// there are depends on the graph alone; how many are tried, on the budget. None counts that is faster than the one above it, so a
// larger budget never has a slower answer.
#include "compiler/solve/Bytes.h"
#include "compiler/solve/Refine.h"
#include "compiler/solve/Search.h"

#include <algorithm>

namespace cinch::solve {

static constexpr int64_t kParts = 16;    // of a gap
static constexpr double kWorth = 1.005;  // the lower rung's time beside the upper one's
static constexpr int kSteps = 60;        // values given up at once

// The gap that these bytes fall into, or none that is worth it.
Planner::Gap *Planner::gapAt(int64_t b, int64_t bytes) {
  int above = -1, below = -1;
  std::vector<int> ladder = ladderOf(b);
  sortByBytes(ladder);
  double fastest = 1e300;
  for (int r : ladder) {
    if (rungs[size_t(r)].seconds >= fastest)
      continue;
    fastest = rungs[size_t(r)].seconds;
    if (rungs[size_t(r)].peakLive <= bytes) {
      below = r;
      continue;
    }
    above = r;
    break;
  }
  if (above < 0 || below < 0 || rungs[size_t(below)].seconds < kWorth * rungs[size_t(above)].seconds || index.loop.size() > kMostRefinedKernels)
    return nullptr;
  for (auto &gap : gaps)
    if (gap->above == above && gap->below == below)
      return gap.get();
  gaps.push_back(std::make_unique<Gap>(Gap{above, below, b, 1, rungs[size_t(above)].seconds, rungs[size_t(above)].peakLive, rungs[size_t(above)].loop}));
  return gaps.back().get();
}

// The next plan of the gap that needs at most so many bytes; -1: there is none.
int Planner::nextInGap(Gap &gap, int64_t bytes) {
  Timeline line(index);
  Refiner refiner(index, gap.microbatch);
  const int64_t high = rungs[size_t(gap.above)].peakLive, low = rungs[size_t(gap.below)].peakLive;
  while (gap.next < kParts) {
    int64_t target = high - (high - low) * gap.next++ / kParts;
    std::vector<int> best;
    double least = rungs[size_t(gap.below)].seconds;
    auto offer = [&](std::vector<int> loop) {
      double seconds = loop.empty() ? least : predictedSeconds(index, gap.microbatch, loop);
      if (seconds < least && seconds >= gap.seconds)
        least = seconds, best = std::move(loop);
    };
    offer(refiner.lowered(gap.loop, target, target, kSteps));
    offer(refiner.fill(rungs[size_t(gap.below)].loop, target));
    if (best.empty() || !line.build(gap.microbatch, best) || line.peak > target)
      continue;
    bool isKnown = least == gap.seconds && line.peak == gap.peakLive; // in another order, as far as bytes go the same
    gap.seconds = least, gap.loop = best, gap.peakLive = line.peak;
    if (isKnown)
      continue;
    rungs.push_back({gap.microbatch, "between rungs", std::move(best), line.peak, least, nullptr});
    rungs.back().deep = true;
    if (line.peak <= bytes)
      return int(rungs.size()) - 1;
  }
  return -1;
}

} // namespace cinch::solve
