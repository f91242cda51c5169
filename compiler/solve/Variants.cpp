// Variants.cpp: asks the planner of each graph and takes the best answer.
#include "compiler/solve/Variants.h"

#include <algorithm>

namespace cinch::solve {

VariantPlanner::VariantPlanner(std::vector<Variant> list, uint64_t orderSeed) : variants(std::move(list)) {
  for (const Variant &v : variants)
    planners.emplace_back(v.rows.graph, orderSeed);
}

// Blocks of several examples need micro-batches of whole blocks.
bool VariantPlanner::allows(int i, const SearchOptions &options) const {
  return i == 0 || options.microbatch <= 0 || options.microbatch % variants[i].rows.graph.grain == 0;
}

static bool better(const SearchResult &a, const SearchResult &b) {
  if (a.feasible != b.feasible)
    return a.feasible;
  return a.feasible ? a.plan.seconds < b.plan.seconds : a.smallestArena < b.smallestArena;
}

SearchResult VariantPlanner::search(const SearchOptions &options, bool whole, int &chosen) {
  chosen = 0;
  SearchResult best = planners.front().search(options);
  if (!best.error.empty())
    return best;
  for (int i = 1; i < int(variants.size()); ++i) {
    if (!allows(i, options))
      continue;
    // No plan of a graph at a micro-batch is faster than its loop without recomputation, or smaller than its bound.
    const StepGraph &g = variants[i].rows.graph;
    GraphIndex index(g);
    std::vector<int> plain = plainLoop(g);
    std::vector<int64_t> sizes;
    for (int64_t b : microbatches(g)) {
      if (options.microbatch > 0 && options.microbatch != b)
        continue;
      double fastest = predictedSeconds(index, b, plain);
      int64_t bound = planners[i].memoryBound(b);
      best.secondsBound = std::min(best.secondsBound, fastest);
      best.bound = std::min(best.bound, bound);
      if (fastest < best.plan.seconds && (options.arenaBudget < 0 || bound <= options.arenaBudget))
        sizes.push_back(b);
    }
    auto offer = [&](SearchResult result) {
      if (!result.error.empty())
        return;
      int64_t smallest = std::min(best.smallestArena, result.smallestArena), bound = std::min(best.bound, result.bound);
      double secondsBound = std::min(best.secondsBound, result.secondsBound);
      if (better(result, best)) {
        best = std::move(result);
        chosen = i;
      }
      best.smallestArena = smallest, best.bound = bound, best.secondsBound = secondsBound;
    };
    if (whole || !best.feasible) {
      offer(planners[i].search(options));
      continue;
    }
    for (int64_t b : sizes) {
      SearchOptions at = options;
      at.microbatch = b;
      offer(planners[i].search(at));
    }
  }
  if (!variants[chosen].name.empty())
    best.name += ", " + variants[chosen].name;
  return best;
}

std::vector<LadderPoint> VariantPlanner::tradeOff(const SearchOptions &options) {
  std::vector<LadderPoint> all, points;
  for (int i = 0; i < int(variants.size()); ++i)
    if (allows(i, options))
      for (LadderPoint &point : planners[i].tradeOff(options)) {
        if (!variants[i].name.empty())
          point.name += ", " + variants[i].name;
        all.push_back(std::move(point));
      }
  std::stable_sort(all.begin(), all.end(), [](const LadderPoint &a, const LadderPoint &b) {
    return a.arenaBytes != b.arenaBytes ? a.arenaBytes < b.arenaBytes : a.seconds < b.seconds;
  });
  for (LadderPoint &point : all)
    if (points.empty() || point.seconds < points.back().seconds)
      points.push_back(std::move(point));
  return points;
}

} // namespace cinch::solve
