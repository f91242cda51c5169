// PlanCache.h: what the search found for a problem, kept in a folder from one compilation to the next.
//
// The key is a hash of the whole problem (graph, budget, options) and of the solver's own source. What is found there is
// never trusted: the choice is evaluated again, must be a plan, must fit the budget, and goes through the plan checker
// like any other; the bounds beside it are covered by a checksum. Whatever is wrong with an entry or with the folder,
// the search simply runs.
#ifndef CINCH_COMPILER_SOLVE_PLANCACHE_H
#define CINCH_COMPILER_SOLVE_PLANCACHE_H

#include "compiler/solve/Search.h"

#include <optional>

namespace cinch::solve {

struct CachedSearch {
  int variant = 0;     // which of the graphs
  SearchResult result; // feasible
  std::vector<LadderPoint> tradeOff;
};

class PlanCache {
public:
  // The problem: one step in the forms that the search may choose among.
  using Graphs = std::vector<const StepGraph *>;

  // `folder` empty: nothing is ever found or kept.
  explicit PlanCache(std::string folder) : folder(std::move(folder)) {}

  std::optional<CachedSearch> find(const Graphs &, const SearchOptions &, uint64_t orderSeed) const;
  // Keeps a feasible result; an old entry makes room where there are too many.
  void keep(const Graphs &, const SearchOptions &, uint64_t orderSeed, const CachedSearch &) const;

  static std::string keyOf(const Graphs &, const SearchOptions &, uint64_t orderSeed); // 32 hex digits
  // $XDG_CACHE_HOME/cinch, else ~/.cache/cinch, else empty.
  static std::string defaultFolder();

  static constexpr int kMostEntries = 256;
  static constexpr int64_t kMostBytes = int64_t(64) << 20;

private:
  std::string pathOf(const std::string &key) const;
  void makeRoom() const;
  std::string folder;
};

// A hash of the solvers' source, made by the build.
const char *solverVersion();

} // namespace cinch::solve
#endif
