// OperandPlaces.h: where the operands and results of kernels lie in what runs: the micro-batch, the block of rows, the trips of loops along axes.
#ifndef CINCH_COMPILER_PHASES_OPERANDPLACES_H
#define CINCH_COMPILER_PHASES_OPERANDPLACES_H

#include "compiler/phases/EntryEmitter.h"
#include "compiler/phases/HostCode.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

namespace cinch {

class OperandPlaces {
public:
  explicit OperandPlaces(EntryEmitter &e) : e(e) {}

  // Does something that the kernel reads or writes lie elsewhere in another trip of a loop around it?
  bool isMoved(plan::KernelOp) const;
  // Word `i` of a launch of the kernel, with its offsets as they are now.
  mlir::Value wordOf(plan::KernelOp, const HostCode::Call &, size_t i);
  // The offset of a value's bytes, which is `first` where nothing moves it.
  mlir::Value offsetOf(mlir::Value, int64_t first);

  // What runs, as the emitter of the loops says.
  mlir::Value microbatch;
  mlir::Value example, position; // of the block of rows, in blocks
  llvm::DenseMap<mlir::Operation *, mlir::Value> trips; // of the loops along axes
  plan::LoopOp overlapping;           // the loop whose steps overlap
  mlir::Value next;                             // there: 0 in what is of this step, 1 in what is of the next one
  llvm::DenseMap<mlir::Value, int64_t> distance; // there: from a previous parameter to the parameter
  llvm::DenseSet<mlir::Value> sums;           // there: as the loop's kernels write them

private:
  // Copies of what waits from one part of the loop body to a later one: micro-batch k has its own `stride` bytes times (k mod count) behind
  // the first. Where steps overlap, what is one to a step has two: that of the next step lies `stride` bytes behind.
  struct Copies {
    int64_t count = 1, stride = 0;
    bool ofStep = false;
  };
  Copies copiesOf(mlir::Value) const;
  mlir::Value inMicrobatch(mlir::Value, mlir::Value first);

  mlir::Value inTrip(nn::ScanOp, mlir::Value);
  mlir::Value behindTrip(nn::ScanOp, unsigned carried, mlir::Value trip);
  mlir::Value slot(nn::ScanOp, unsigned carried, mlir::Value trip);
  mlir::Value part(nn::ScanOp, mlir::Value stacked, mlir::Value at);
  mlir::Value ofOperand(nn::ScanOp, mlir::Value);
  mlir::Value partOfTrip(nn::ScanOp, mlir::Value trip);
  mlir::Value minusOne(mlir::Value);
  mlir::Value isZero(mlir::Value);
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);

  EntryEmitter &e;
};

} // namespace cinch
#endif
