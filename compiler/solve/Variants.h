// Variants.h: one search over several graphs of the same step: every kernel on its own, or some ranges in row blocks.
//
// The ladder is that of all graphs together, so what Search.h promises holds across them: a larger budget is never
// slower, a smaller one never peaks higher.
#ifndef CINCH_COMPILER_SOLVE_VARIANTS_H
#define CINCH_COMPILER_SOLVE_VARIANTS_H

#include "compiler/solve/RowBlocks.h"
#include "compiler/solve/Search.h"

#include <memory>

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
  // What is proven of a variant at a micro-batch before it is planned: no arena of it is smaller, no step faster.
  struct Least {
    int64_t microbatch = 0, bytes = 0;
    double seconds = 0;
  };
  Planner &planner(int i);
  Least leastOf(int i, const SearchOptions &);
  bool mayWin(int i, const SearchOptions &);
  SearchResult searchAll(SearchOptions, int &chosen);
  SearchResult searchSmallest(SearchOptions, int &chosen);
  // Nothing fits into a byte less than the smallest budget of this, or it is made smaller. `chosen`: of its plan.
  SearchResult confirmed(SearchResult least, SearchOptions, int &chosen);
  void searchDeeper(SearchOptions, SearchResult &best, int &chosen);
  double deeperBound(SearchOptions, double seconds); // SearchResult::deeperBound of a plan of so many seconds
  bool allows(int i, const SearchOptions &) const;

  std::vector<Variant> variants;
  uint64_t orderSeed;
  std::vector<std::unique_ptr<Planner>> planners; // made when one is needed first: most of many variants are ruled out by what is proven of them
  std::vector<std::vector<Least>> proven;         // of each variant, likewise
};

} // namespace cinch::solve
#endif
