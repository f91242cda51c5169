// StepProblem.h: a formed function as the solvers see it.
#ifndef CINCH_COMPILER_ANALYSIS_STEPPROBLEM_H
#define CINCH_COMPILER_ANALYSIS_STEPPROBLEM_H

#include "compiler/analysis/KernelProblem.h"
#include "compiler/analysis/Target.h"
#include "compiler/analysis/Sweeps.h"

#include "llvm/ADT/DenseMap.h"

#include <map>

namespace cinch::analysis {

// A function whose ops are grouped into kernels (form-kernels), and its parts in the order in which they stand. Decisions and the
// solvers' graphs number kernels by this order.
struct Step {
  explicit Step(mlir::func::FuncOp);

  struct Part {
    mlir::Operation *op; // plan.kernel, plan.gate or plan.results
    int part;            // of the step (Sweeps.h); to the solvers, its section (solve/StepGraph.h)
    plan::KernelOp kernel() const { return mlir::dyn_cast<plan::KernelOp>(op); }
    bool isBackward() const; // a kernel of the backward sweep
    bool isHeld() const;     // a kernel that makes sums of grains: they are there so that only their addition waits
  };
  mlir::func::FuncOp function;
  llvm::SmallVector<plan::LoopOp> loops; // none: the function is not formed
  std::vector<Part> parts;
  int64_t batch = 1, grain = 1;
  bool inMainLoop(int part) const { return part == 2 * int(loops.size()) - 1; }
  // The value that lies in memory: a result of the loop is what its body yields.
  mlir::Value inMemory(mlir::Value) const;
  // For a new parameter or a new slot, the argument in whose place it is written; null for other values.
  mlir::BlockArgument homeOf(mlir::Value value) const { return home.lookup(value); }

private:
  llvm::DenseMap<mlir::Value, mlir::BlockArgument> home;
};

// What a worker of several runs of a loop, in order; empty: its body as a whole.
std::vector<solve::PartAction> actionsOf(plan::LoopOp);

// The solvers' graph. Buffers: first the function's arguments, then what kernels write.
struct StepProblem {
  solve::StepGraph graph;                 // kernel i is part i of the step
  llvm::DenseMap<mlir::Value, int> buffer; // of arguments and results of kernels
  std::shared_ptr<KernelProblems> kernels; // what was found out about them
  std::map<int64_t, int64_t> heights;      // of images with several rows a position (RowWise.h)
  std::string error;                       // an internal error: a kernel has no spec at some micro-batch
  // Seconds that a worker takes to hand on, or to take, a byte of a message: it is read and written.
  double secondsOfMessageByte() const { return 2 / kernels->machine().bytes; }
  // Seconds from the end of that until the receiver, if it waits, goes on.
  double secondsOfMessage() const { return kernels->machine().message; }
};
// Persistent buffers come in the order parameters, `reservedBytes` (state of another function), state, the rest.
StepProblem buildStepProblem(const Step &, int64_t reservedBytes, const Target &);

} // namespace cinch::analysis
#endif
