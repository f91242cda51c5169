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

SearchResult VariantPlanner::search(const SearchOptions &asked, bool whole, int &chosen) {
  // What fits comes first; how small it could be is asked only if nothing does, or if that is wanted.
  SearchOptions options = asked;
  options.smallest = options.ship = options.deep = false;
  SearchResult best = searchAll(options, chosen);
  if (!best.error.empty())
    return best;
  if (!best.feasible)
    return asked.smallest ? searchAll(asked, chosen) : best;
  if (asked.deep)
    searchDeeper(options, best, chosen);
  if (asked.ship)
    planners[chosen].packForShipping(best);
  if (!asked.smallest || !whole)
    return best;
  options.smallest = true, options.advises = false;
  options.arenaBudget = 0;
  int smallest = 0;
  best.smallestArena = std::min(best.smallestArena, searchAll(options, smallest).smallestArena);
  return best;
}

SearchResult VariantPlanner::searchAll(SearchOptions options, int &chosen) {
  chosen = 0;
  SearchResult best = planners.front().search(options);
  if (!best.error.empty())
    return best;
  // Large blocks come last in the list and are faster: they go first.
  for (int i = int(variants.size()) - 1; i > 0; --i) {
    if (!allows(i, options))
      continue;
    // Only what is faster than the best so far matters, which rules most of it out unplanned.
    options.fasterThan = best.feasible ? best.plan.seconds : SearchOptions().fasterThan;
    SearchResult result = planners[i].search(options);
    if (!result.error.empty())
      continue;
    int64_t smallest = std::min(best.smallestArena, result.smallestArena), bound = std::min(best.bound, result.bound);
    double secondsBound = std::min(best.secondsBound, result.secondsBound);
    if (better(result, best)) {
      best = std::move(result);
      chosen = i;
    }
    best.smallestArena = smallest, best.bound = bound, best.secondsBound = secondsBound;
  }
  if (!variants[chosen].name.empty())
    best.name += ", " + variants[chosen].name;
  return best;
}

// When it is known what all of them offer, only those search on that may still win.
void VariantPlanner::searchDeeper(SearchOptions options, SearchResult &best, int &chosen) {
  options.deep = true;
  for (int i = 0; i < int(variants.size()); ++i) {
    if (!allows(i, options))
      continue;
    options.fasterThan = best.plan.seconds;
    SearchResult result = planners[i].search(options);
    if (!result.error.empty() || !result.feasible)
      continue;
    result.smallestArena = best.smallestArena, result.bound = best.bound, result.secondsBound = best.secondsBound;
    best = std::move(result);
    chosen = i;
    if (!variants[i].name.empty())
      best.name += ", " + variants[i].name;
  }
}

std::vector<LadderSchedule> VariantPlanner::ladder(const SearchOptions &options) {
  std::vector<LadderSchedule> all, some;
  for (int i = 0; i < int(variants.size()); ++i)
    if (allows(i, options))
      for (LadderSchedule &schedule : planners[i].ladder(options)) {
        if (!variants[i].name.empty())
          schedule.point.name += ", " + variants[i].name;
        schedule.variant = i;
        all.push_back(std::move(schedule));
      }
  std::stable_sort(all.begin(), all.end(), [](const LadderSchedule &a, const LadderSchedule &b) {
    return a.point.arenaBytes != b.point.arenaBytes ? a.point.arenaBytes < b.point.arenaBytes : a.point.seconds < b.point.seconds;
  });
  for (LadderSchedule &schedule : all)
    if (some.empty() || schedule.point.seconds < some.back().point.seconds)
      some.push_back(std::move(schedule));
  return some;
}

std::vector<LadderPoint> VariantPlanner::tradeOff(const SearchOptions &options) { return pointsOf(ladder(options)); }

} // namespace cinch::solve
