// Remat.h: what is kept from the forward sweep to the backward sweep, and what is computed again.
//
// A policy gives the values of the forward sweep levels by cutting its order of kernels. A value that crosses a cut
// of level l has that level (the least one counts); one that crosses none has the deepest level. Level 0 is kept from
// the forward sweep on. A value of level l > 0 is recomputed when the backward sweep first needs it inside its
// segment (segments of level l lie between the cuts of lower levels) and then held for the rest of that segment:
//
//     kernels   a b c | d e f | g h i      cuts of level 0 after c and f: c and f are kept; when the backward sweep
//                     0       0            needs h, g and h run again and stay until they were used
//
// With cuts of one level this is checkpointing by segments, with several it is nested, and halving all the way down is
// treeverse (Griewank 1992): logarithmic memory for logarithmically many forward sweeps. `keep` exempts single values.
// Frees need no decision: a copy dies after its last use (Timeline).
#ifndef CINCH_COMPILER_SOLVE_REMAT_H
#define CINCH_COMPILER_SOLVE_REMAT_H

#include "compiler/solve/Timeline.h"

namespace cinch::solve {

struct Strategy {
  enum Kind { None, All, Sqrt, Every, Marked, Cheap, Optimal, Auto } kind = Auto;
  int64_t every = 0; // Every: so many units (blocks, or kernels between cut points) a segment
};
// Reads `none`, `every:4`, ..; false and a message if it is no strategy.
bool parseStrategy(const std::string &text, Strategy &strategy, std::string &error);
std::string str(const Strategy &);

// The forward sweep of the loop, with what a policy needs to know.
class Sweep {
public:
  explicit Sweep(const GraphIndex &);

  const GraphIndex &index;
  int turn = 0;                 // loop kernels [0, turn) are the forward sweep
  std::vector<int> position;    // of kernels: place in the loop
  std::vector<int> lastForward; // of buffers: last forward position that reads it (or its producer's)
  std::vector<bool> forward;    // of buffers: value of the forward sweep
  std::vector<bool> saved;      // of buffers: forward value that the backward sweep reads
  std::vector<int> units;       // cut positions between units: block ends, or points that one value crosses
  int64_t crossingBytes(int cut, int64_t microbatch) const;
};

struct Policy {
  std::vector<std::pair<int, int>> cuts; // (position, level): before forward kernel `position`
  std::vector<bool> keep;                // of buffers, on top; empty: none
  bool lastAgain = false;                // what only the last segment holds is computed again, too
  int64_t runLimit = 0;                  // most runs; 0: no limit
};

// The loop body under a policy; empty if it needs more than `runLimit` runs.
std::vector<int> expand(const Sweep &, const Policy &);

// The loop body of a named strategy (not Optimal, Auto).
std::vector<int> schedule(const Sweep &, const Strategy &);

// Schedules worth trying at any budget, named for the remark that explains the choice. The list depends on nothing
// but the graph and this micro-batch.
struct RematCandidate {
  std::string name;
  std::vector<int> loop;
  bool named = false; // a strategy that a user can ask for
};
std::vector<RematCandidate> candidates(const Sweep &, int64_t microbatch);

} // namespace cinch::solve
#endif
