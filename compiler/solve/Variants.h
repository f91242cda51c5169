// Variants.h: one search over several graphs of the same step: every kernel on its own, or some ranges in row blocks.
//
// The ladder is that of all graphs together, so what Search.h promises holds across them: a larger budget is never
// slower, a smaller one never peaks higher.
#ifndef CINCH_COMPILER_SOLVE_VARIANTS_H
#define CINCH_COMPILER_SOLVE_VARIANTS_H

#include "compiler/solve/RowBlocks.h"
#include "compiler/solve/Search.h"

#include <deque>

namespace cinch::solve {

struct Variant {
  std::string name; // for people, "" for the plain step: "vocabulary in blocks of 256 rows"
  RowBlocked rows;  // without ranges for the plain step
};

class VariantPlanner {
public:
  explicit VariantPlanner(std::vector<Variant>, uint64_t orderSeed = 0);

  // `chosen`: which variant the result's plan is of. Graphs that cannot beat what fits already are left out, unless the
  // smallest budget of the `whole` ladder is wanted, too; the answer is the same.
  SearchResult search(const SearchOptions &, bool whole, int &chosen);
  std::vector<LadderPoint> tradeOff(const SearchOptions &);
  std::vector<LadderSchedule> ladder(const SearchOptions &); // of these points
  int count() const { return int(variants.size()); }
  const Variant &variant(int i) const { return variants[i]; }

private:
  SearchResult searchAll(SearchOptions, int &chosen);
  void searchDeeper(SearchOptions, SearchResult &best, int &chosen);
  bool allows(int i, const SearchOptions &) const;

  std::vector<Variant> variants;
  std::deque<Planner> planners;
};

} // namespace cinch::solve
#endif
