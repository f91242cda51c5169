// DagNest.h: the nested structure of a training graph along an order, and what its blocks can do. Used by the
// DagNest*.cpp files only.
//
// Level j is an interval of the order: everything between a forward moment and a backward moment. It reads few values
// from before (`in`) and few of its values are read later (`out`). Levels lie inside each other; what lies between
// level j and level j + 1 is block j: a forward part and a backward part.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGNEST_H
#define CINCH_COMPILER_SOLVE_DAG_DAGNEST_H

#include "compiler/solve/dag/Dag.h"

#include <cstddef>
#include <cstdint>

namespace cinch::solve::detail {

struct Level {
  int begin, end;           // places in the order: [begin, end)
  std::vector<int> in, out; // places of values, rising
};
// The first level is everything; the last level's block is all that is in it. No two blocks need the same node. Empty
// if the order has no such structure.
std::vector<Level> findLevels(const Dag &, const std::vector<int> &order, int64_t &work);

// A block as a small graph of its own. Values by number: what comes in from outside, forward nodes, backward nodes,
// what the level inside hands out.
struct Block {
  static constexpr int kMost = 60; // values
  int values = 0;
  std::vector<int> place; // in the order
  std::vector<int64_t> bytes;
  std::vector<double> cost;
  std::vector<uint64_t> sources;
  uint64_t in = 0, forward = 0, backward = 0, inner = 0;
  uint64_t innerIn = 0; // of these the next level reads
  uint64_t out = 0;     // handed out in the end
  uint64_t passed = 0;  // of `in`: also in the level outside
  uint64_t sinks = 0;   // nobody reads them

  int64_t bytesOf(uint64_t set) const;
  bool sameAs(const Block &) const; // but for the places
};
// Blocks of the levels; empty if one has too many values.
std::vector<Block> makeBlocks(const Dag &, const std::vector<int> &order, const std::vector<Level> &);

// A way through one part of a block.
struct Passage {
  int64_t peak = 0;
  double cost = 0;
  // The block's values; of a row of blocks kBlock times the number in the row is added. Negative: -1 - k: what block k
  // of the row reads from outside is got again.
  std::vector<int> runs;
  static constexpr int kBlock = 64;
};
// Getting back what comes in, from the start of the order.
struct Refetch {
  int64_t peak = -1; // beside what else is held
  double cost = 0;
};
// Forward keeping `kept` (forward values and incoming ones) beside what the level inside reads, and backward from that.
struct BlockOption {
  uint64_t kept = 0;
  int64_t beside = 0;  // bytes kept that the level inside does not read
  int insideKeeps = 0; // how much of what the level inside reads is kept for afterwards: see BlockWays
  Passage forward, backward;
  double cost() const { return forward.cost + backward.cost; }
};
// Everything a block can do within a budget. The index says which incoming values must be there in the end: 0 none, 1
// those that the level outside reads too, 2 all.
struct BlockWays {
  bool possible = false;
  Passage forward[2];               // keeping nothing; keeping what came in
  std::vector<Passage> alone[3];    // backward from what came in and the inner level's values; by rising peak
  std::vector<BlockOption> options[3];
};
BlockWays waysOf(const Block &, bool inOrder, int64_t budget, int64_t &work);
// More ways for `alone`, which get back in the middle what came in.
void addRefetching(BlockWays &, const Block &, bool inOrder, const Refetch &, int64_t budget, int64_t &work);
// Some ways of a row of blocks taken as one: all but `forward[1]`, which depends on what passes through, and `alone`.
BlockWays waysOfRow(const std::vector<const BlockWays *> &row, int64_t budget);
// Only those that none beats, by rising peak; no more than `most`.
void thin(std::vector<Passage> &, size_t most = SIZE_MAX);

} // namespace cinch::solve::detail
#endif
