// MarkShards.cpp: which shard does an op, once gradients and updates are made.
#include "compiler/transforms/ShardValues.h"

#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cinch {
namespace {

constexpr int kAll = -1, kNobody = -2;

class Marker {
public:
  explicit Marker(func::FuncOp function) : function(function) {}

  void run() {
    Block &block = function.getBody().front();
    for (BlockArgument argument : block.getArguments())
      for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
        if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
          if (std::optional<int> shard = nn::shardOfName(name.getValue()))
            shardOf[argument] = *shard;
    for (Operation &op : block.without_terminator())
      shardOfOp[&op] = fromOperands(op);
    SmallVector<Operation *> ops;
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops))
      if (int &shard = shardOfOp[op]; shard == kAll)
        if (int reader = onlyReader(*op); reader >= 0)
          shard = reader;
    Builder b(function.getContext());
    for (Operation *op : ops)
      if (int shard = shardOfOp[op]; shard >= 0)
        op->setAttr(nn::kShardAttr, b.getI64IntegerAttr(shard));
      else
        op->removeAttr(nn::kShardAttr);
  }

private:
  // Of several shards' values: all shards do it, each with what the others send. So a sum over the shards is for all, from its first addition on.
  int fromOperands(Operation &op) {
    int shard = kAll;
    Operation *before = isa<nn::AddOp, nn::MaxOp>(op) ? op.getOperand(0).getDefiningOp() : nullptr;
    if (before && ofSeveral.contains(before) && before->getName() == op.getName() && before->hasOneUse()) {
      ofSeveral.insert(&op);
      return kAll;
    }
    if (op.hasAttr(nn::kAllReduceAttr))
      return kAll;
    for (Value operand : op.getOperands()) {
      auto known = shardOf.find(operand);
      if (known == shardOf.end() || known->second == shard)
        continue;
      if (shard >= 0) {
        ofSeveral.insert(&op);
        return kAll;
      }
      shard = known->second;
    }
    if (shard >= 0)
      for (Value result : op.getResults())
        shardOf[result] = shard;
    return shard;
  }

  // The shard that alone reads what the op makes; kAll: several do, or the function hands it out.
  int onlyReader(Operation &op) {
    int shard = kNobody;
    for (Operation *user : op.getUsers()) {
      int of = user->hasTrait<OpTrait::IsTerminator>() ? kAll : shardOfOp.lookup(user);
      if (shard != kNobody && of != shard)
        return kAll;
      shard = of;
    }
    return shard;
  }

  func::FuncOp function;
  DenseMap<Value, int> shardOf;
  DenseMap<Operation *, int> shardOfOp;
  DenseSet<Operation *> ofSeveral; // they read values of several shards
};

} // namespace

void markShards(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    Marker(function).run();
}

} // namespace cinch
