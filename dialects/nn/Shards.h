// Shards.h: what ops and arguments say of the shards of a program, by discardable attributes.
#ifndef CINCH_DIALECTS_NN_SHARDS_H
#define CINCH_DIALECTS_NN_SHARDS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

#include <optional>
#include <string>

namespace cinch::nn {

inline constexpr llvm::StringLiteral kShardAttr = "nn.shard", // of an op: the shard that does it; absent: each does
    kShardHintAttr = "nn.shard_hint",                         // of an op: a ShardHint for the nearest products above, until they are shared
    kSplitAttr = "nn.split",            // of a shard's part of a parameter: elements in front of the parts, and how many parts there are
    kAllReduceAttr = "nn.all_reduce",   // of an op: it ends the sum of what all shards have
    kOtherHeadsAttr = "nn.other_heads"; // of `attend` and its gradient: heads of other shards, in front of these and behind, which dropout's draws count

// What `@shard` asks for: how products are shared.
enum class ShardHint { None, Column, Row };

// Parameters, states and slots of which a shard has its part are called NAME#SHARD ("fc.weight#1", "fc.weight#1.m").
inline std::string nameOnShard(llvm::StringRef path, int64_t shard) { return (path + "#" + llvm::Twine(shard)).str(); }

inline std::string nameOfWhole(llvm::StringRef name) {
  auto [path, rest] = name.split('#');
  return (path + rest.drop_while([](char c) { return c >= '0' && c <= '9'; })).str();
}

// None: it is whole.
inline std::optional<int> shardOfName(llvm::StringRef name) {
  llvm::StringRef rest = name.split('#').second;
  int shard = 0;
  if (rest.consumeInteger(10, shard))
    return std::nullopt;
  return shard;
}

// The shard that does an op; -1: all do.
inline int shardOf(mlir::Operation *op) {
  auto shard = op->getAttrOfType<mlir::IntegerAttr>(kShardAttr);
  return shard ? int(shard.getInt()) : -1;
}

} // namespace cinch::nn
#endif
