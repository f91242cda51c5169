// Formation.h: the ops of a function fall into kernels.
//
// Products, attention, convolutions and pools are kernels of their own. Everything else is fused: a value is *stored* if it must lie in memory
// (a kernel of another kind reads it, it leaves the function, it sums over the batch, it crosses into or out of the
// micro-batch loop) or if computing it again in each kernel that needs it would cost more than reading it; all other values are computed
// inside the kernels that need them. Stored values over the same domain share a kernel where one feeds the other row by row.
//
// A kernel is one at every micro-batch that may be chosen: whether values can share it is asked at each of them, since sizes that
// agree for the whole batch need not agree for fewer examples, and fewer examples may make shapes merge that do not merge now.
//
// Kernels belong to the parts of a step (Sweeps.h), and to the shard that does their ops.
#ifndef CINCH_COMPILER_ANALYSIS_FORMATION_H
#define CINCH_COMPILER_ANALYSIS_FORMATION_H

#include "compiler/analysis/LoopTrace.h"
#include "compiler/analysis/Sweeps.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <climits>

namespace cinch::analysis {

struct TracedWork;

struct KernelGroup {
  plan::KernelKind kind = plan::KernelKind::Loop;
  enum Marker { Kernel, Gate, Results } marker = Kernel; // a place in the order that is no kernel: the gate, the results with names
  bool isLoop() const { return marker == Kernel && kind == plan::KernelKind::Loop; }
  int part = 1;
  mlir::Value anchor;                     // Loop: the value over whose natural domain the kernel runs; one that it computes
  llvm::SmallVector<mlir::Value> stores; // values written, in order
  llvm::SetVector<mlir::Value> reads;    // values read from memory
  llvm::SetVector<mlir::Operation *> ops; // all ops computed, views passed included
  bool backward = false;
  bool behindGate = false; // writes parameters or state in place, or serves that alone
};

class Formation {
public:
  // Every op of the function has its part. `joinsMore`: in a sweep, too, a kernel computes what it has the rows for (joinSome).
  Formation(mlir::func::FuncOp function, Sweeps sweeps, bool joinsMore = false);
  // Forms the kernels; an error is reported at the op at fault.
  mlir::LogicalResult form();

  mlir::func::FuncOp function;
  std::vector<KernelGroup> groups; // in an order in which they can run
  // For a value that updates an argument in place (new parameter, new slot): that argument.
  llvm::DenseMap<mlir::Value, mlir::BlockArgument> home;
  // Sums over the batch: they go on from micro-batch to micro-batch.
  bool accumulates(mlir::Value value) const;
  const Sweeps sweeps;
  const bool joinsMore;

private:
  void findBehindGate();
  void chooseStored();
  void force(mlir::Value value);
  void forceUnderViews(mlir::Value value);
  void storeAround(mlir::Operation *op);
  void storeOperands(mlir::Operation *op);
  void storeWhatIsDear();
  bool place(mlir::Value value);
  bool formAlone(mlir::Value value, KernelGroup &alone, int at); // at: as of tryGroup
  // `late`: an update that must run with what is behind the gate already; what it reads may have been found after that, before the gate.
  bool join(mlir::Value value, int candidate, bool late);
  bool joinSome(mlir::Value value, const KernelGroup &alone, bool late = false);
  bool placeOwn(mlir::Operation *op, plan::KernelKind kind);
  // `at`: where the group stands. INT_MAX: behind all that are there; -1: before all, where nothing is overwritten yet.
  bool tryGroup(KernelGroup &group, mlir::Value anchor, mlir::ArrayRef<mlir::Value> stores, mlir::Value &blocker,
                int at = INT_MAX);
  bool tryOwn(KernelGroup &group, mlir::Operation *op, const Extent &extent, mlir::Value &blocker,
              llvm::function_ref<bool(mlir::Value)> isThere);
  // Updates run one after the other and in place. So a group of updates may read a parameter or a state that no earlier group
  // updates, and its own where it is written. Otherwise: the value to store before, on the way from what is read too late.
  mlir::Value readTooLate(mlir::ArrayRef<mlir::Value> stores, int at, const TracedWork &, llvm::ArrayRef<mlir::Value> reads);
  bool sameDomain(mlir::Value a, mlir::Value b) const;
  bool rowsOf(mlir::Value rows, mlir::Value anchor) const;
  int partOf(mlir::Operation *op) const { return sweeps.part.lookup(op); }
  bool inMemory(mlir::Value value) const {
    auto it = producer.find(value);
    return mlir::isa<mlir::BlockArgument>(value) || (it != producer.end() && it->second < horizon);
  }
  void prune();
  mlir::LogicalResult internal(mlir::Value value, const char *what);

  std::vector<mlir::Operation *> ops;
  std::vector<Extent> extents; // the whole batch, then every smaller micro-batch that may be chosen
  llvm::DenseSet<mlir::Value> stored, forced;
  llvm::DenseSet<mlir::Value> behindGate; // what only updates need, and they
  bool isBehindGate(mlir::Value value) const { return behindGate.contains(value); }
  // Does the group run before the gate, and what computes the value behind it? Then it comes first, wherever it stands in the list.
  bool isBeforeGate(int group, mlir::Value value) const { return isBehindGate(value) && !isBehindGate(groups[size_t(group)].stores.front()); }
  llvm::DenseMap<mlir::Value, mlir::Value> updated; // argument in whose place something is written -> what
  // Of an optimizer's state: updates of others that compute with what was there before the step. (That of a parameter by `lion` does so with its
  // momentum.)
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> readersOfOld;
  void findReadersOfOld();
  llvm::DenseMap<mlir::Value, int> producer; // stored value -> group
  int horizon = INT_MAX; // groups from here on are not there yet, for the group that is being formed
  int depth = 0;
};

} // namespace cinch::analysis
#endif
