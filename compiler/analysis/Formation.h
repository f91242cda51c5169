// Formation.h: the ops of a function fall into kernels.
//
// Products and attention are kernels of their own. Everything else is fused: a value is *stored* if it must lie in memory
// (a kernel of another kind reads it, it leaves the function, it sums over the batch, it crosses into or out of the
// micro-batch loop) or if computing it again for each reader would cost more than reading it; all other values are computed
// inside the kernels that need them. Stored values over the same domain share a kernel where one feeds the other row by row.
//
// A function has three sections: what is the same for all examples comes before the micro-batch loop (prologue) or, if it
// needs sums over the batch or nothing in the loop needs it, behind it (epilogue).
#ifndef CINCH_COMPILER_ANALYSIS_FORMATION_H
#define CINCH_COMPILER_ANALYSIS_FORMATION_H

#include "compiler/analysis/LoopTrace.h"
#include "compiler/solve/StepGraph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch::analysis {

struct KernelGroup {
  enum Kind { Loop, Contract, Attend, AttendGrad, Gate, Results } kind = Loop;
  solve::Section section = solve::Section::Loop;
  LoopDomain domain;
  llvm::SmallVector<mlir::Value> stores; // values written, in order
  llvm::SetVector<mlir::Value> reads;    // values read from memory
  llvm::SetVector<mlir::Operation *> ops; // all ops computed, views passed included
  bool backward = false;
  bool updates = false; // writes parameters or slots in place
};

// The section of every op of a function.
llvm::DenseMap<mlir::Operation *, solve::Section> findSections(mlir::func::FuncOp function);

class Formation {
public:
  explicit Formation(mlir::func::FuncOp function);
  // Forms the kernels; an error is reported at the op at fault.
  mlir::LogicalResult form();

  mlir::func::FuncOp function;
  std::vector<KernelGroup> groups; // in an order in which they can run
  // For a value that updates an argument in place (new parameter, new slot): that argument.
  llvm::DenseMap<mlir::Value, mlir::BlockArgument> home;
  // Sums over the batch: they go on from micro-batch to micro-batch.
  bool accumulates(mlir::Value value) const;
  solve::Section sectionOf(mlir::Operation *op) const { return sections.lookup(op); }

private:
  void chooseStored();
  bool place(mlir::Value value);
  bool placeOwn(mlir::Operation *op, KernelGroup::Kind kind);
  bool tryGroup(KernelGroup &group, const LoopDomain &domain, mlir::ArrayRef<mlir::Value> stores, mlir::Value &blocker);
  bool inMemory(mlir::Value value) const { return mlir::isa<mlir::BlockArgument>(value) || producer.count(value); }
  void prune();
  mlir::LogicalResult internal(mlir::Value value, const char *what);

  std::vector<mlir::Operation *> ops;
  llvm::DenseMap<mlir::Operation *, solve::Section> sections;
  llvm::DenseSet<mlir::Value> stored, forced;
  llvm::DenseMap<mlir::Value, int> producer; // stored value -> group
  int depth = 0;
};

// The step as the solvers see it. Buffers: first the function's arguments, then stored values.
struct StepProblem {
  solve::StepGraph graph;
  llvm::DenseMap<mlir::Value, int> buffer;
};
struct MachineCosts;
// Persistent buffers come in the order parameters, `reservedBytes` (state of another function), state, the rest. Without
// `costs` the built-in ones serve.
StepProblem buildStepProblem(const Formation &, int64_t batch, int threads, int64_t reservedBytes,
                             const kernels::TargetInfo &target, const MachineCosts *costs = nullptr);
// Scratch of a kernel, a thread, enough for every micro-batch that divides the batch.
int64_t scratchBytes(const KernelGroup &, const Formation &, int64_t batch, const kernels::TargetInfo &);
// The same for a kernel that works on so many examples and, if not 0, so many positions of each.
int64_t scratchBytesOfBlock(const KernelGroup &, const Formation &, int64_t examples, int64_t positions,
                            const kernels::TargetInfo &);

} // namespace cinch::analysis
#endif
