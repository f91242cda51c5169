// LadderGap.cpp: plans between two rungs that lie far apart.
//
// A long loop has a ladder of few rungs. Where a budget lies between two of them and the upper one is much faster, plans are looked for between
// them: at targets that divide the gap evenly, from the upper end down, each from the one above it and from the lower rung. Which targets
// there are depends on the graph alone; how many are tried, on the budget. None counts that is faster than the upper rung, so a larger budget, into
// which that one fits, never has a slower answer.
#include "compiler/solve/Bytes.h"
#include "compiler/solve/Refine.h"
#include "compiler/solve/Search.h"

#include <algorithm>

namespace cinch::solve {

static constexpr int64_t kParts = 16;    // of a gap
static constexpr double kWorth = 1.005;  // the lower rung's time beside the upper one's
static constexpr int kSteps = 60;        // values given up at once

// The gaps that a plan for these bytes may lie in, the fastest first: the one that they fall into, and, while its lower rung does not fit, since packing
// it takes more bytes than are alive in it, the one below. Those that are not worth it are left out. A larger budget has all of these, or a rung that
// fits and is faster than what lies in the others.
std::vector<Planner::Gap *> Planner::gapsAt(int64_t b, int64_t bytes) {
  std::vector<Gap *> list;
  std::vector<int> ladder = ladderOf(b), steps; // steps: each takes more bytes and is faster
  sortByBytes(ladder);
  for (int r : ladder)
    if (steps.empty() || rungs[size_t(r)].seconds < rungs[size_t(steps.back())].seconds)
      steps.push_back(r);
  if (index.loop.size() > kMostRefinedKernels)
    return list;
  for (size_t i = steps.size(); i-- > 0;) {
    const int below = steps[i];
    if (rungs[size_t(below)].peakLive > bytes)
      continue;
    if (i + 1 < steps.size() && rungs[size_t(below)].seconds >= kWorth * rungs[size_t(steps[i + 1])].seconds)
      list.push_back(&gapBetween(below, steps[i + 1]));
    if (bytesOf(below, bytes) <= bytes)
      break;
  }
  return list;
}

Planner::Gap &Planner::gapBetween(int below, int above) {
  for (auto &gap : gaps)
    if (gap->above == above && gap->below == below)
      return *gap;
  const Rung &upper = rungs[size_t(above)];
  gaps.push_back(std::make_unique<Gap>(Gap{above, below, upper.microbatch, 1, upper.seconds, upper.peakLive, upper.loop}));
  return *gaps.back();
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
