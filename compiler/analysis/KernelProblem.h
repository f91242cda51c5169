// KernelProblem.h: one kernel as the solvers see it, and a loop along an axis as one kernel.
#ifndef CINCH_COMPILER_ANALYSIS_KERNELPROBLEM_H
#define CINCH_COMPILER_ANALYSIS_KERNELPROBLEM_H

#include "compiler/analysis/KernelSpec.h"
#include "compiler/solve/LoopBody.h"

#include <map>
#include <memory>

namespace cinch::analysis {

// What a kernel is described with.
struct KernelContext {
  int64_t batch = 1, grain = 1;
  int threads = 1;
  kernels::TargetInfo target;
  MachineRates machine;
};

// A loop along an axis. Slots hold the carried values that are not stacked.
struct ScanProblem : solve::LoopBody {
  std::vector<plan::KernelOp> kernels;                 // of the body, as the graph of the trip numbers them
  std::map<int, std::shared_ptr<ScanProblem>> inner;   // kernels that are loops themselves
};

// Says what the solvers want to know of a kernel.
class KernelProblems {
public:
  explicit KernelProblems(const KernelContext &context);

  using BufferOf = llvm::function_ref<int(mlir::Value)>;
  // `inMemory`: the value that lies in memory for one that a kernel reads (a sum behind its loop is what the body yields). `bufferOf`: its
  // buffer. Fills everything but reads, writes and section. False, with `error`, if the kernel has no spec at some micro-batch.
  bool describe(plan::KernelOp, bool inLoop, llvm::function_ref<mlir::Value(mlir::Value)> inMemory, BufferOf bufferOf, solve::Kernel &);
  std::string error;
  const MachineRates &machine() const { return context.machine; }
  // Of kernels that are loops.
  llvm::DenseMap<mlir::Operation *, std::shared_ptr<ScanProblem>> scans;

private:
  using Specs = llvm::SmallVector<std::pair<int64_t, const KernelSpec *>>; // at the whole batch and at every smaller micro-batch
  Specs find(plan::KernelOp, bool inLoop);
  void findInPlace(plan::KernelOp, const Specs &, bool inLoop, llvm::function_ref<mlir::Value(mlir::Value)> inMemory, BufferOf bufferOf, solve::Kernel &);
  bool describeScan(plan::KernelOp, bool inLoop, llvm::function_ref<mlir::Value(mlir::Value)> inMemory, BufferOf bufferOf, solve::Kernel &);
  std::shared_ptr<ScanProblem> buildTrip(plan::LoopOp, bool inLoop, solve::Kernel &trips);

  KernelContext context;
  std::vector<int64_t> microbatches;
  KernelSpecs specs;
};

// The nn value that a result of a kernel is.
mlir::Value computedBy(mlir::OpResult);
// Does the kernel belong to the backward sweep?
bool isBackward(plan::KernelOp);
// "blocks.3.ff: mul" and the source line, for people.
std::string nameOf(mlir::Value);
int lineOf(mlir::Value);
int lineOf(mlir::Location);
// `value` lies in the buffer; people know it as `named`.
solve::Buffer bufferFor(mlir::Value value, mlir::Value named, int64_t batch);

// Does a kernel read each element of input `read` (of a loop along an axis: each part) before it writes the same one of its result, so that both may
// be the very same bytes? The operand has the result's bytes, and nobody reads it afterwards.
bool readsBeforeItWrites(plan::KernelOp, unsigned read, unsigned result, KernelSpecs &);

} // namespace cinch::analysis
#endif
