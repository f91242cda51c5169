// Shards.h: which values of a program are split among shards, and which are whole on each.
//
// Every op has ways in which it can be done: what it needs each operand to be, and what its results are then. A value is made in one form and
// may be needed in others; bringing it into such a form costs once, however many ops need it so. The solver chooses a way for every op.
#ifndef CINCH_COMPILER_SOLVE_SHARDS_SHARDS_H
#define CINCH_COMPILER_SOLVE_SHARDS_SHARDS_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace cinch::solve {

// Compared in this order: work comes first, because sharing it is what shards are for.
struct ShardCost {
  int64_t work = 0;  // operations that a shard does
  int64_t bytes = 0; // that a shard sends
  int64_t held = 0;  // bytes of values that a shard holds
  ShardCost &operator+=(const ShardCost &other) {
    work += other.work, bytes += other.bytes, held += other.held;
    return *this;
  }
  std::tuple<int64_t, int64_t, int64_t> key() const { return {work, bytes, held}; }
  bool operator<(const ShardCost &other) const { return key() < other.key(); }
  bool operator==(const ShardCost &other) const { return key() == other.key(); }
};

struct ShardProblem {
  struct Value {
    std::vector<ShardCost> forms;                              // in which it may be made, and what that costs
    std::vector<std::vector<std::optional<ShardCost>>> become; // [form][need]: none: it cannot; at most 32 needs
  };
  struct Way {
    std::vector<int> needs; // of each operand
    std::vector<int> gives; // the form of each result
    ShardCost cost;
  };
  struct Op {
    std::vector<int> operands, results; // values; each is the result of one op, before the ops that read it
    std::vector<Way> ways;
  };
  std::vector<Value> values;
  std::vector<Op> ops;
};

struct ShardSolution {
  std::vector<int> ways; // of each op; empty: there is no way to do them all
  ShardCost cost;
  bool exact = true;     // no better one exists
};

// What these ways cost together; none: they do not fit together.
std::optional<ShardCost> costOf(const ShardProblem &, const std::vector<int> &ways);

// A dynamic program over the ops in their order. Its states are the forms of the values that are still read, and the needs that are already
// met. A state is dropped where another one costs no more even after it has made up for what the first has of each value. The `limit` cheapest
// ones are kept; if there were more, the solution says that it may not be the best.
ShardSolution solve(const ShardProblem &, size_t limit = 4096);

} // namespace cinch::solve
#endif
