// Search.h: micro-batch and rematerialization together: the least predicted time of a step whose arena fits.
//
// The ladder of plans (every micro-batch x every candidate schedule, refined by local search) depends on the graph
// alone, and the answer for a budget is the fastest plan of the ladder that fits: a larger budget is never slower, a
// smaller one never peaks higher.
#ifndef CINCH_COMPILER_SOLVE_SEARCH_H
#define CINCH_COMPILER_SOLVE_SEARCH_H

#include "compiler/solve/Evaluate.h"
#include "compiler/solve/Remat.h"

#include <functional>
#include <memory>
#include <optional>

namespace cinch::solve {

enum class Serves; // Refine.h

class Refiner;

struct SearchOptions {
  std::optional<int64_t> arenaBudget; // bytes the arena may have (the budget less the allowance); none: no limit
  int64_t microbatch = 0;   // 0: the search chooses
  Strategy strategy;        // Auto, Optimal: the search chooses
  // Of interest are only plans faster than this, and the smallest one only if `smallest`; `ship` says that the result is
  // what is shipped: for who asks several planners.
  double fasterThan = 1e300;
  int64_t smallerThan = INT64_MAX; // likewise: of how small a plan can be, only less than so many bytes of the arena is of interest
  bool smallest = true, ship = true;
  // Whether the search goes on where the fastest plan that fits computes much again (Planner::deepen): it takes seconds.
  bool deep = true;
  // Whether the smallest plan is packed as well as it can be, which may take a second for each that may be the smallest.
  bool packsWell = true;
  // Whether a refusal says what would help: each change that is tried is a search.
  bool advises = true;
};

// A point of the trade-off between memory and time.
struct LadderPoint {
  int64_t arenaBytes = 0, peakLive = 0;
  double seconds = 0;
  int64_t microbatch = 1;
  std::string name; // how the schedule came about
};
// A point and its schedule, for searches that begin there.
struct LadderSchedule {
  LadderPoint point;
  std::vector<int> loop;
  int variant = 0; // of the step (Variants.h)
};
std::vector<LadderPoint> pointsOf(std::vector<LadderSchedule>);

struct SearchResult {
  bool feasible = false;
  std::string error; // why not, if it is not the budget (a micro-batch that does not divide, ..)
  Plan plan;         // the plan, or if nothing fits the smallest one under these options
  Choice choice;
  std::string name;
  // Bytes of the arena into which some plan known under these options fits: if nothing fits, the fewest there are. The plan may be packed into fewer
  // still (RungPacking.cpp). INT64_MAX: nothing is known that is of interest.
  int64_t smallestArena = 0;
  int64_t bound = 0;         // proven: no order and no recomputation under these options needs less
  double secondsBound = 0;   // proven: no plan under these options is predicted faster
  double deeperBound = 0;    // no plan that a deeper search under these options could find is predicted faster; the plan's own seconds: there is none
  // If nothing fits: what is alive at the peak of the smallest plan, and what would help (empty: only a larger budget).
  std::vector<LiveBuffer> holders;
  std::string advice;
};

// Of ascending sizes those on either side of one that is not among them, for a message: "2 and 4".
std::string nearestOf(const std::vector<int64_t> &sizes, int64_t asked);

class Planner {
public:
  // The graph must outlive the planner. `orderSeed` > 0: the loop starts from an order drawn from it instead of the best
  // one found (for tests).
  explicit Planner(const StepGraph &, uint64_t orderSeed = 0);
  explicit Planner(StepGraph &&, uint64_t = 0) = delete;
  ~Planner();
  SearchResult search(const SearchOptions &);
  // Packs a feasible result as well as it can be: which plan it is depends on nothing but the time of those that fit,
  // and how it is packed on nothing but the plan.
  void packForShipping(SearchResult &) const;
  // Behind a search that was not deep: what no plan is faster than that a deep one with these options could find. At most `fasterThan`.
  double deeperBound(const SearchOptions &);
  // The plans that no other beats in both memory and time, by rising memory.
  std::vector<LadderSchedule> ladder(const SearchOptions &);
  std::vector<LadderPoint> tradeOff(const SearchOptions &);
  // Bytes of the arena that no plan at this micro-batch can go below.
  int64_t memoryBound(int64_t microbatch) const;
  // Seconds that no plan at this micro-batch can go below whose arena has so many bytes (none: any number).
  double secondsBound(int64_t microbatch, std::optional<int64_t> arenaBytes) const;

private:
  static constexpr int64_t kAsFewAsPossible = -1; // for `bytesOf`
  struct Packings { // bytes of the arena that a rung takes, packed with more and more work (RungPacking.cpp); 0: not tried yet
    int64_t quick = 0, longer = 0, well = 0;
  };
  struct Rung {
    int64_t microbatch;
    std::string name;
    std::vector<int> loop;
    int64_t peakLive;
    double seconds;
    std::shared_ptr<Plan> plan; // packed when first needed: the lowest packing that is known
    Packings packings = {};
    bool asked = false;         // only there because a user named the strategy: no part of the ladder
    bool deep = false;          // of `deepen`, or between two rungs of the ladder
    int64_t leastBudget = 0;    // it was searched for budgets of the arena from here on: smaller ones do not know it
  };
  struct Size { // a micro-batch and what is proven of it: no plan needs less, none is faster
    int64_t microbatch, bound;
    double seconds;
  };
  std::vector<Size> sizesByTime(const std::vector<int64_t> &allowed, const SearchOptions &) const;
  int fastestWithin(const SearchOptions &, const std::vector<Size> &, const std::vector<int> &chosen);
  int smallestOf(const SearchOptions &, std::vector<Size>, const std::vector<int> &chosen, bool thorough, int64_t &bytes);
  std::string adviceFor(const SearchOptions &);
  std::vector<int64_t> sizesOf(const SearchOptions &, std::string &error) const;
  int plainRung(int64_t microbatch);
  std::vector<int> inOrder(const std::vector<int> &loop, int64_t microbatch) const;
  void findHeldOver();
  std::vector<int> rungsOf(const SearchOptions &, std::string &error);
  void makeSchedules();
  void addMicrobatch(int64_t microbatch);
  void refineMicrobatch(int64_t microbatch);
  using Loops = std::vector<std::vector<int>>;
  // The search of a micro-batch's smallest rung, which waits until a budget has room for it.
  struct SmallestSearch {
    int64_t microbatch;
    int rung = -1;      // none, or it was searched already
    double fastest = 0; // seconds below which no plan of it counts: as of `lowerEnd`, or of a plan with little more room
    int64_t room = 0;   // bytes of the arena; 0: not known yet
    int tries = 0;
    Loops above = {};   // what was found of larger rungs
    std::vector<int> known = {}; // rungs that were there then
  };
  void deepen(int64_t microbatch, int64_t arenaBudget, double seconds);
  SmallestSearch deepenToSmallest(int64_t microbatch);
  // Between two rungs that lie far apart (LadderGap.cpp).
  struct Gap {
    int above, below;               // rungs; no other of the ladder lies between them and is faster than the lower one
    int64_t microbatch, next = 0;   // the target that comes next, counted from the upper end
    double seconds;                 // of the latest that was found, or of the upper end
    int64_t peakLive;               // likewise
    std::vector<int> loop;          // likewise
  };
  std::vector<Gap *> gapsAt(int64_t microbatch, int64_t bytes);
  Gap &gapBetween(int below, int above);
  int nextInGap(Gap &, int64_t bytes);
  int64_t smallestRoom(int rung, int64_t wanted);
  void findRoom(SmallestSearch &);
  void addPacked(const SmallestSearch &);
  Loops startsOf(Refiner &, int rung, const Loops &above, int64_t target, int steps) const;
  std::vector<int> shakenFrom(Refiner &, const Loops &starts, int64_t target, int tries, int steps, uint64_t seed,
                              const std::function<Serves(const std::vector<int> &)> &serves) const;
  std::vector<int> lowerEnd(int64_t microbatch, double &fastest) const;
  // `deep`: with those of `deepen` and between rungs that such a budget knows.
  std::vector<int> ladderOf(int64_t microbatch, bool deep = false, int64_t arenaBudget = INT64_MAX) const;
  void sortByTime(std::vector<int> &) const;
  void sortByBytes(std::vector<int> &) const;
  const Plan &packed(int rung);
  int64_t bytesOf(int rung, int64_t wanted);

  const StepGraph &graph;
  bool shuffledLoop; // its order was drawn
  GraphIndex index;
  Sweep sweep;
  std::vector<RematCandidate> schedules;
  std::vector<std::pair<int, std::vector<int>>> heldOver; // kernels, and what of theirs is read beyond the turn
  std::vector<Rung> rungs;
  std::vector<std::unique_ptr<Gap>> gaps; // that were looked into
  std::vector<int64_t> done, refined;   // micro-batches whose rungs exist, and those whose refined rungs do
  std::vector<SmallestSearch> deepened; // one for each micro-batch of `deepen`
};

} // namespace cinch::solve
#endif
