// ShardForms.h: the ways in which the ops of a function can be shared among shards, as a problem of compiler/solve/shards.
//
// A value is whole, each shard having the same, or split along an axis. An axis of n numbers is split *behind* b of them: it counts as [b, T,
// n / b / T], and shard t has all with t in the middle; b is 1 for halves of an axis, 3 for the heads of queries, keys and values in one
// product. An op needs its operands whole, split, or *shared*: whole, but read by the shards' own work, so that its gradient is a sum over the
// shards. Each such sum, and each sum of split products, is an all-reduce.
#ifndef CINCH_COMPILER_ANALYSIS_SHARDFORMS_H
#define CINCH_COMPILER_ANALYSIS_SHARDFORMS_H

#include "compiler/solve/shards/Shards.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace cinch::analysis {

struct ShardForm {
  int64_t axis = -1;  // -1: whole
  int64_t behind = 1;
  bool isWhole() const { return axis < 0; }
  bool operator==(const ShardForm &other) const { return axis == other.axis && behind == other.behind; }
};

// Where an op stands in the user's text, `net.cinch:4`, for a message.
std::string placeText(mlir::Operation *);

// What a shard has of a value of this type; null: its axis cannot be split so.
mlir::RankedTensorType shardType(mlir::RankedTensorType whole, ShardForm, int64_t shards);
// The same split of a value of as many elements in another shape; none: it is no split of one axis there.
std::optional<ShardForm> reshapedForm(mlir::RankedTensorType from, ShardForm, mlir::RankedTensorType to, int64_t shards);

class ShardForms {
public:
  // `known`: forms of parameters that another function of the program has decided, by path.
  ShardForms(mlir::func::FuncOp, int64_t shards, const llvm::StringMap<ShardForm> *known = nullptr);

  static constexpr int kWhole = 0, kShared = 1; // needs; the split forms follow
  // A way as the op's operands and results see it.
  struct Way {
    llvm::SmallVector<int> needs;     // kWhole, kShared, or 1 + the number of a form; of what `readsOf` says
    llvm::SmallVector<ShardForm> gives;
    bool isWhole = true;              // one op does it all
    bool sums = false;                // the shards' results are added
  };
  ShardForm formOf(mlir::Value, int need) const; // of a split need
  // The op's operands, and of what a state becomes, the state behind them.
  llvm::SmallVector<mlir::Value> readsOf(mlir::Operation *) const;

  solve::ShardProblem problem;
  llvm::SmallVector<mlir::Operation *> ops;      // of problem.ops; null: the parameter of the same number among `sources`
  llvm::SmallVector<mlir::BlockArgument> sources;
  std::vector<llvm::SmallVector<Way>> ways;      // of problem.ops
  // What is wrong with a hint of the user; empty: nothing.
  std::string wrong;

private:
  struct Known {
    int number = -1;                       // in the problem
    llvm::SmallVector<ShardForm> forms;    // the first is whole
    bool active = false;                   // it has a gradient
  };
  bool isMadeWhole(unsigned argument);
  void addSource(mlir::BlockArgument);
  void addOp(mlir::Operation *);
  void finishValues();
  void findFactors();
  void findHints();
  // What is wrong with the hint of an op; empty: nothing, and its products have it.
  std::string findHinted(mlir::Operation *);
  static std::string wrongInLoop(mlir::Operation *);
  int need(mlir::Value, ShardForm);        // registers the form; -1: there cannot be so
  void add(llvm::SmallVector<Way> &, Way way);
  void waysOf(mlir::Operation *, llvm::SmallVector<Way> &);
  void elementwise(mlir::Operation *, llvm::SmallVector<Way> &);
  void alongAxes(mlir::Operation *, llvm::SmallVector<Way> &);
  void reduce(nn::ReduceOp, llvm::SmallVector<Way> &);
  void contract(nn::ContractOp, llvm::SmallVector<Way> &);
  void gather(nn::GatherOp, llvm::SmallVector<Way> &);
  void attend(nn::AttendOp, llvm::SmallVector<Way> &);
  void crossEntropy(nn::CrossEntropyOp, llvm::SmallVector<Way> &);
  void conv(nn::ConvOp, llvm::SmallVector<Way> &);
  void pool(mlir::Operation *, llvm::SmallVector<Way> &);
  void newState(nn::NewStateOp, llvm::SmallVector<Way> &);
  void keepHinted(mlir::Operation *, llvm::SmallVector<Way> &);
  int64_t bytesOf(mlir::Value) const;
  int64_t gathered(int64_t bytes) const { return bytes / shards * (shards - 1); }

  mlir::func::FuncOp function;
  int64_t shards;
  const llvm::StringMap<ShardForm> *decided;
  llvm::DenseMap<mlir::Value, Known> values;
  llvm::SmallVector<mlir::Value> order;
  llvm::SmallVector<int64_t> factors;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> hints; // of products: the op with their hint
  llvm::StringMap<mlir::BlockArgument> states;      // by path
};

} // namespace cinch::analysis
#endif
