// KernelSpec.h: what a plan.kernel computes, as the one spec that is counted, priced, shared and built.
//
// The spec of a kernel follows from the kernel alone, at any extent. The planner asks for it at every extent that it may choose, and
// the builder asks once more at the chosen one: there is one way to it, so both have the same.
#ifndef CINCH_COMPILER_ANALYSIS_KERNELSPEC_H
#define CINCH_COMPILER_ANALYSIS_KERNELSPEC_H

#include "compiler/analysis/KernelKind.h"
#include "compiler/analysis/LoopTrace.h"
#include "compiler/analysis/Rates.h"
#include "compiler/solve/StepGraph.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <variant>

namespace cinch::analysis {

struct KernelTraits {
  solve::Kernel::Work work;      // whose rate of the machine counts
  double MachineRates::*rate;
  bool rows;                     // may work on blocks of rows
};
const KernelTraits &traitsOf(KernelKind);
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

  // Of a loop: the op that each node computes (null for a load), and the dims of its domain that count examples and their axis 1
  // (-1: none).
  std::vector<mlir::Operation *> origins;
  int batchDim = -1, positionDim = -1;
  int64_t examplesOfGroup = 1; // as LoopTracer's

  // On a GPU the plan has one thread, which launches kernels: its scratch is that of all workers of the kernel.
  int64_t scratchBytesPerThread(const kernels::TargetInfo &) const;
  // Does a GPU compute it on its tensor cores? It is so at every extent or at none.
  bool isOfTensorCores() const;
  bool isAttention() const {
    return std::holds_alternative<kernels::AttendSpec>(work) || std::holds_alternative<kernels::AttendGradSpec>(work);
  }
  // How it is spread over a GPU.
  kernels::Grid grid(const kernels::TargetInfo &) const;
  // A loop with the numbers in its nodes again.
  kernels::LoopSpec loopWithNumbers() const;
  // Everything that decides the code: kernels with equal keys share one function.
  std::string key() const;
  mlir::func::FuncOp build(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const kernels::TargetInfo &) const;
};

// The spec of a kernel of a function, on so much of the step. Nothing if it cannot be one kernel there.
std::optional<KernelSpec> specOf(plan::KernelOp, const Extent & = {});

} // namespace cinch::analysis
#endif
