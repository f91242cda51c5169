// KernelSpec.h: what a plan.kernel computes, as the one spec that is counted, priced, shared and built.
//
// Formation writes what determines the spec on the kernel: its kind, its domain, its body. The spec follows from these at any extent, by one
// function (traceWork), which formation itself tries groups of ops with: what it found there, the planner has at every extent that it may
// choose, and the builder at the chosen one. KernelSpecs finds the spec of kernels that are alike once.
#ifndef CINCH_COMPILER_ANALYSIS_KERNELSPEC_H
#define CINCH_COMPILER_ANALYSIS_KERNELSPEC_H

#include "compiler/analysis/LoopTrace.h"
#include "compiler/analysis/Rates.h"
#include "compiler/solve/StepGraph.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <deque>
#include <unordered_map>
#include <variant>

namespace cinch::analysis {

struct KernelTraits {
  solve::Kernel::Work work;      // whose rate of the machine counts
  double MachineRates::*rate;
  bool rows;                     // may work on blocks of rows
};
const KernelTraits &traitsOf(plan::KernelKind);
// The loop along an axis that a kernel is; null for the other kinds.
plan::LoopOp loopOf(plan::KernelOp);

struct KernelSpec {
  std::variant<kernels::LoopSpec, kernels::ContractSpec, kernels::AttendSpec, kernels::AttendGradSpec, kernels::ConvSpec,
               kernels::PoolSpec>
      work;
  // Buffers of the spec, as numbers of the kernel's inputs and, behind them, its outputs.
  llvm::SmallVector<int> buffers;
  // Keys of its draws and its numbers. They are words of the launch, so that kernels which differ in nothing else share their code.
  llvm::SmallVector<int64_t> words;

  // Of a loop of a kernel: the op of its body that each node computes, by number (-1 for a load), and the dims of its domain that count
  // examples and their axis 1 (-1: none).
  std::vector<int> origins;
  int batchDim = -1, positionDim = -1;
  int64_t examplesOfGroup = 1; // as LoopTracer's

  // On a GPU the plan has one thread, which launches kernels: its scratch is that of all workers of the kernel.
  int64_t scratchBytesPerThread(const kernels::TargetInfo &) const;
  // Pieces of about equal work that the threads of a CPU share; 0: so many small ones that no thread waits for another (a product).
  int64_t itemsOnCpu(const kernels::TargetInfo &) const;
  // Does a GPU compute it on its tensor cores? It is so at every extent or at none.
  bool isOfTensorCores() const;
  bool isAttention() const {
    return std::holds_alternative<kernels::AttendSpec>(work) || std::holds_alternative<kernels::AttendGradSpec>(work);
  }
  // May a GPU take approximations? Attention on tensor cores takes powers of two, and loops what their nodes say (LoopNode::approximate).
  bool approximates() const;
  // Does it multiply numbers of f32 rounded to tf32?
  bool multipliesInTF32() const;
  // How it is spread over a GPU, a grid a launch.
  std::vector<kernels::Grid> grids(const kernels::TargetInfo &) const;
  // The same kernel, whose buffers, numbered as in `buffers`, begin at multiples of these bytes.
  KernelSpec withAlignments(llvm::ArrayRef<int64_t> ofBuffers) const;
  // A loop with the numbers in its nodes again.
  kernels::LoopSpec loopWithNumbers() const;
  // Everything that decides the code: kernels with equal keys share one function.
  std::string key() const;
  mlir::func::FuncOp build(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const kernels::TargetInfo &) const;
};

// What a kernel of some kind computes: it stores these values (Loop: over the natural domain of the anchor; another: results of one op), as
// buffers from `firstStore` on, and goes back from them to values that lie in memory, as the buffers that `inputOf` says (-1: none).
struct KernelWork {
  plan::KernelKind kind;
  mlir::ValueRange stores;
  mlir::Value anchor;
  llvm::function_ref<int(mlir::Value)> inputOf;
  llvm::function_ref<bool(size_t)> accumulates; // by store
  int firstStore;
};
// Fills `work` and the dims of the spec, with its buffers numbered so. `ops`: what the kernel computes, views passed included, but for the op
// of a kernel of one op. False: `blocker` has to be stored first. There is no spec of a scan (KernelProblem.h).
struct TracedWork {
  KernelSpec spec;
  llvm::SetVector<mlir::Operation *> ops;
  std::vector<mlir::Operation *> origins; // of a loop, an op a node
  mlir::Value blocker;
};
bool traceWork(const KernelWork &, const Extent &, TracedWork &);

// The spec of a kernel of a function, on so much of the step. Nothing if it cannot be one kernel there.
std::optional<KernelSpec> specOf(plan::KernelOp, const Extent & = {});

// Specs of the kernels of one function, found once for all that are alike. The kernels asked for live as long as this.
class KernelSpecs {
public:
  // Null: it cannot be one kernel there. Pointers stay.
  const KernelSpec *find(plan::KernelOp, const Extent & = {});

private:
  struct Known {
    plan::KernelOp kernel;
    std::deque<std::pair<Extent, std::optional<KernelSpec>>> at;
  };
  std::unordered_map<size_t, std::deque<Known>> known; // by a hash of the body
};

} // namespace cinch::analysis
#endif
