// ShardValues.h: a program of T shards, as one function that computes what all of them do.
//
// Every op that is shared becomes T ops, each with `nn.shard`; a parameter of which each shard has a part becomes T arguments NAME#SHARD. What
// all shards have in common stands there once. Sums over the shards are additions in the order of the shards, so autodiff makes those of the
// backward pass, and what a program of shards computes does not depend on who does it:
//
//     %y = nn.contract %x, %w                    x: split along its features, w: likewise
//  ->
//     %p = nn.contract %x0, %w0 {nn.shard = 0}
//     %q = nn.contract %x1, %w1 {nn.shard = 1}
//     %y = nn.add %p, %q {nn.all_reduce}
#ifndef CINCH_COMPILER_TRANSFORMS_SHARDVALUES_H
#define CINCH_COMPILER_TRANSFORMS_SHARDVALUES_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cinch {

struct ShardedProgram {
  std::string wrong;              // why the program cannot be shared so; empty: it is
  std::string fault;              // an internal error
  std::vector<std::string> notes; // which sums have another order, and what is whole on every shard
};

// Of @step, @evaluation and @prediction, parsed.
ShardedProgram shardValues(mlir::ModuleOp, int64_t shards);

// Says of every op of the functions which shard does it: from where its operands are, or, if all shards have those, from who reads it.
void markShards(mlir::ModuleOp);

// Then: divides the work of large sums over the shards among them (SpreadSums.cpp).
void spreadSums(mlir::ModuleOp);

} // namespace cinch
#endif
