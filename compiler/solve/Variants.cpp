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

SearchResult VariantPlanner::search(const SearchOptions &options, int &chosen) {
  SearchResult best;
  chosen = 0;
  int64_t bound = INT64_MAX, smallest = INT64_MAX;
  double secondsBound = 1e300;
  for (int i = 0; i < int(variants.size()); ++i) {
    if (!allows(i, options))
      continue;
    // No plan of a graph is faster than its loop without recomputation.
    const StepGraph &g = variants[i].rows.graph;
    GraphIndex index(g);
    std::vector<int> plain = plainLoop(g);
    double fastest = 1e300;
    for (int64_t b : microbatches(g))
      if (options.microbatch <= 0 || options.microbatch == b) {
        fastest = std::min(fastest, predictedSeconds(index, b, plain));
        bound = std::min(bound, planners[i].memoryBound(b));
      }
    secondsBound = std::min(secondsBound, fastest);
    if (i > 0 && best.feasible && best.plan.seconds <= fastest)
      continue;
    SearchResult result = planners[i].search(options);
    if (i == 0 && !result.error.empty())
      return result;
    if (!result.error.empty())
      continue;
    smallest = std::min(smallest, result.smallestArena);
    bool better = i == 0;
    if (!better && result.feasible != best.feasible)
      better = result.feasible;
    else if (!better && result.feasible)
      better = result.plan.seconds < best.plan.seconds;
    else if (!better)
      better = result.smallestArena < best.smallestArena;
    if (!better)
      continue;
    best = std::move(result);
    chosen = i;
  }
  if (!variants[chosen].name.empty())
    best.name += ", " + variants[chosen].name;
  best.smallestArena = smallest, best.bound = bound, best.secondsBound = secondsBound;
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
