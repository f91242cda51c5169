// ShardBuilder.h: how shardValues writes a function: every op in the way that was chosen for it.
#ifndef CINCH_COMPILER_TRANSFORMS_SHARDBUILDER_H
#define CINCH_COMPILER_TRANSFORMS_SHARDBUILDER_H

#include "compiler/analysis/ShardForms.h"
#include "dialects/nn/GradientBuilder.h"

#include <map>

namespace cinch {

class ShardBuilder {
public:
  ShardBuilder(mlir::func::FuncOp function, const analysis::ShardForms &forms, const std::vector<int> &ways,
               const llvm::StringMap<analysis::ShardForm> &parameters, int64_t shards)
      : function(function), forms(forms), ways(ways), parameters(parameters), shards(shards) {}
  void run();

private:
  using Value = mlir::Value;
  using ShardForm = analysis::ShardForm;
  using Way = analysis::ShardForms::Way;
  // The parts of an argument take its place.
  void splitArguments();
  // Ops made for a shard get what is known of the op that they are made for.
  void giveRounding(mlir::Operation *source, mlir::Value result);
  void mark(mlir::Operation *before, mlir::Operation *source, int64_t shard);
  Value whole(Value);
  Value part(Value, ShardForm, int64_t shard);
  Value cut(mlir::OpBuilder &, Value whole, ShardForm, int64_t shard);
  Value join(mlir::OpBuilder &, llvm::ArrayRef<Value> parts, ShardForm, mlir::RankedTensorType type);
  Value operand(mlir::Operation *op, const Way &way, unsigned number, int64_t shard);
  void write(mlir::Operation *op, const Way &way);
  llvm::SmallVector<Value> writePart(nn::GradientBuilder &, mlir::Operation *op, const Way &way, int64_t shard);
  void writeState(nn::NewStateOp op);
  void writeResults();
  Value gatherRows(nn::GradientBuilder &, nn::GatherOp op, const Way &way, int64_t shard);
  Value crossEntropy(nn::CrossEntropyOp op, const Way &way);
  // One after the other, in the order of the shards.
  Value overShards(mlir::Operation *op, llvm::ArrayRef<Value> parts, bool largest = false);
  // Builds ops of a shard in front of `op`.
  Value onShard(mlir::Operation *op, int64_t shard, llvm::function_ref<Value(nn::GradientBuilder &)> build);

  struct Made {
    ShardForm form;
    llvm::SmallVector<Value> parts; // where it is split
    Value joined;                   // the same as a whole, once somebody asked
    std::vector<std::pair<ShardForm, llvm::SmallVector<Value>>> cuts; // of the whole
  };
  mlir::func::FuncOp function;
  const analysis::ShardForms &forms;
  const std::vector<int> &ways;
  const llvm::StringMap<ShardForm> &parameters; // by path: the form in which each lies
  int64_t shards;
  llvm::DenseMap<Value, Made> made;
  llvm::SmallVector<mlir::Operation *> replaced;
};

} // namespace cinch
#endif
