// Variants.cpp: asks the planner of each graph and takes the best answer.
#include "compiler/solve/Variants.h"

#include "compiler/solve/MemoryBound.h"

#include <algorithm>

namespace cinch::solve {

VariantPlanner::VariantPlanner(std::vector<Variant> list, uint64_t seed)
    : variants(std::move(list)), orderSeed(seed), planners(variants.size()), proven(variants.size()) {}

Planner &VariantPlanner::planner(int i) {
  if (!planners[i])
    planners[i] = std::make_unique<Planner>(variants[i].rows.graph, orderSeed);
  return *planners[i];
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

// Of all micro-batches that the options allow together. Nothing where the graph is none: the planner says why.
VariantPlanner::Least VariantPlanner::leastOf(int i, const SearchOptions &options) {
  if (proven[i].empty()) {
    GraphIndex index(variants[i].rows.graph);
    if (index.error.empty())
      for (int64_t b : microbatches(index.graph)) // a planner adds the same seconds in another order
        proven[i].push_back({b, memoryBound(index, b), predictedSeconds(index, b, index.loop) * (1 - 1e-9)});
  }
  Least least{0, INT64_MAX, 1e300};
  for (const Least &size : proven[i])
    if (options.microbatch <= 0 || options.microbatch == size.microbatch)
      least.bytes = std::min(least.bytes, size.bytes), least.seconds = std::min(least.seconds, size.seconds);
  return least.bytes == INT64_MAX ? Least() : least;
}

// Can a plan of it fit, and be faster than what is asked for?
bool VariantPlanner::mayWin(int i, const SearchOptions &options) {
  Least least = leastOf(i, options);
  return least.seconds < options.fasterThan && (!options.arenaBudget || least.bytes <= *options.arenaBudget);
}

SearchResult VariantPlanner::search(const SearchOptions &asked, bool whole, int &chosen) {
  // What fits comes first; how small it could be is asked only if nothing does, or if that is wanted.
  SearchOptions options = asked;
  options.smallest = options.ship = options.deep = false;
  SearchResult best = searchAll(options, chosen);
  if (!best.error.empty())
    return best;
  if (!best.feasible && asked.smallest) {
    SearchResult least = searchSmallest(asked, chosen);
    least = confirmed(std::move(least), options, chosen);
    least.deeperBound = least.plan.seconds; // if it fits after all
    return least;
  }
  if (!best.feasible)
    return best;
  if (asked.deep)
    searchDeeper(options, best, chosen);
  best.deeperBound = asked.deep ? best.plan.seconds : deeperBound(options, best.plan.seconds);
  if (asked.ship)
    planner(chosen).packForShipping(best);
  if (!asked.smallest || !whole)
    return best;
  options.smallest = true, options.advises = false;
  options.arenaBudget = 0;
  options.smallerThan = best.smallestArena;
  int smallest = 0;
  best.smallestArena = std::min(best.smallestArena, searchSmallest(options, smallest).smallestArena);
  return best;
}

SearchResult VariantPlanner::searchAll(SearchOptions options, int &chosen) {
  const double asked = options.fasterThan;
  chosen = 0;
  SearchResult best = planner(0).search(options);
  if (!best.error.empty())
    return best;
  // Large blocks come last in the list and are faster: they go first.
  for (int i = int(variants.size()) - 1; i > 0; --i) {
    if (!allows(i, options))
      continue;
    best.bound = std::min(best.bound, leastOf(i, options).bytes);
    // Only what is faster than the best so far matters, which rules most of it out unplanned, and what may be smaller.
    options.fasterThan = best.feasible ? best.plan.seconds : asked;
    options.smallerThan = best.smallestArena;
    if (!mayWin(i, options))
      continue;
    SearchResult result = planner(i).search(options);
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

// The smallest plan of all, or, since it is looked for more closely, one that fits after all. Those that may be smallest go first: of the others
// only what is smaller still is packed.
SearchResult VariantPlanner::searchSmallest(SearchOptions options, int &chosen) {
  std::vector<int> order;
  for (int i = 0; i < int(variants.size()); ++i)
    if (allows(i, options))
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return leastOf(x, options).bytes < leastOf(y, options).bytes; });
  SearchResult best;
  best.smallestArena = options.smallerThan;
  best.bound = leastOf(order.front(), options).bytes, best.secondsBound = 1e300;
  // Packed quickly, all of them; the smallest of these goes first, since few are worth packing well behind it.
  SearchOptions quickly = options;
  quickly.packsWell = quickly.advises = false;
  auto quickest = order.begin();
  for (auto i = order.begin(); i != order.end() && leastOf(*i, options).bytes < quickly.smallerThan; ++i)
    if (SearchResult result = planner(*i).search(quickly); result.error.empty() && result.smallestArena < quickly.smallerThan)
      quickly.smallerThan = result.smallestArena, quickest = i;
  std::rotate(order.begin(), quickest, quickest + 1);
  chosen = -1;
  for (int i : order) {
    options.smallerThan = best.smallestArena;
    if (best.feasible) { // others that fit may be faster
      options.smallerThan = options.arenaBudget ? std::max(best.smallestArena, *options.arenaBudget + 1) : INT64_MAX;
      options.fasterThan = best.plan.seconds;
    }
    if (leastOf(i, options).bytes >= options.smallerThan)
      continue;
    SearchResult result = planner(i).search(options);
    if (!result.error.empty() && chosen < 0)
      best.error = result.error;
    if (!result.error.empty())
      continue;
    int64_t bound = std::min(best.bound, result.bound);
    double secondsBound = std::min(best.secondsBound, result.secondsBound);
    int64_t smallest = std::min(best.smallestArena, result.smallestArena);
    if (better(result, best)) {
      best = std::move(result);
      chosen = i;
    }
    best.smallestArena = smallest, best.bound = bound, best.secondsBound = secondsBound;
  }
  if (chosen < 0)
    chosen = 0;
  else if (!variants[chosen].name.empty())
    best.name += ", " + variants[chosen].name;
  return best;
}

// A search for what fits goes other ways than one for what is smallest, and may end below it. What is named is a budget that was tried: a plan that was
// found in more bytes than it takes is not always found in as many.
SearchResult VariantPlanner::confirmed(SearchResult least, SearchOptions options, int &chosen) {
  if (least.feasible || !least.error.empty())
    return least;
  int variant = 0;
  auto within = [&](int64_t budget) { // bytes of what fits; 0: nothing does
    options.arenaBudget = budget;
    SearchResult result = searchAll(options, variant);
    if (!result.error.empty() || !result.feasible)
      return int64_t(0);
    // The refusal is about this plan now.
    least.plan = std::move(result.plan), least.choice = std::move(result.choice), least.name = std::move(result.name);
    least.holders = alive(variants[size_t(variant)].rows.graph, least.plan, least.plan.peakRun);
    chosen = variant;
    return least.plan.decision.arenaBytes;
  };
  for (;;) {
    const int64_t below = least.smallestArena - 1, bytes = within(below);
    if (!bytes)
      return least;
    const bool found = bytes == below || within(bytes);
    least.smallestArena = found ? bytes : below;
    if (!found)
      return least;
  }
}

double VariantPlanner::deeperBound(SearchOptions options, double least) {
  options.fasterThan = least;
  for (int i = 0; i < int(variants.size()); ++i)
    if (allows(i, options) && mayWin(i, options))
      least = std::min(least, planner(i).deeperBound(options));
  return least;
}

// When it is known what all of them offer, only those search on that may still win.
void VariantPlanner::searchDeeper(SearchOptions options, SearchResult &best, int &chosen) {
  options.deep = true;
  for (int i = 0; i < int(variants.size()); ++i) {
    options.fasterThan = best.plan.seconds;
    if (!allows(i, options) || !mayWin(i, options))
      continue;
    SearchResult result = planner(i).search(options);
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
  // A variant none of whose plans could be seen behind one that is there already need not be planned.
  auto isHidden = [&](int i) {
    Least least = leastOf(i, options);
    return std::any_of(all.begin(), all.end(), [&](const LadderSchedule &schedule) {
      return schedule.point.arenaBytes <= least.bytes && schedule.point.seconds <= least.seconds;
    });
  };
  for (int i = 0; i < int(variants.size()); ++i)
    if (allows(i, options) && !isHidden(i))
      for (LadderSchedule &schedule : planner(i).ladder(options)) {
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
