// OperandPlaces.h: where the operands and results of kernels lie in what runs: the micro-batch, the block of rows, the trips of loops along axes.
#ifndef CINCH_COMPILER_PHASES_OPERANDPLACES_H
#define CINCH_COMPILER_PHASES_OPERANDPLACES_H

#include "compiler/phases/EntryEmitter.h"
#include "compiler/phases/HostCode.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

namespace cinch {

// Bytes: where a value begins that a kernel reads or writes is a multiple of them in every trip of the loops around it. What no such loop moves
// begins at a line of the arena.
int64_t alignmentOf(mlir::Value);

class OperandPlaces {
public:
  explicit OperandPlaces(EntryEmitter &e) : e(e) {}

  // Does something that the kernel reads or writes lie elsewhere in another trip of a loop around it?
  bool isMoved(plan::KernelOp) const;
  // The offset of a value's bytes, which is `first` where nothing moves it.
  mlir::Value offsetOf(mlir::Value, int64_t first);

  // What runs, as the emitter of the loops says.
  mlir::Value microbatch;
  // A trip of a loop over blocks of rows or along an axis, and the part at which it works, counted as LoopOp::Steps counts.
  struct Trip {
    mlir::Value number, outer, inner;
  };
  const Trip &begin(plan::LoopOp, mlir::Value number);
  const Trip &tripOf(plan::LoopOp loop) const { return trips.find(loop)->second; }
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

  mlir::Value inTrip(plan::LoopOp, mlir::Value, int64_t first);
  mlir::Value behindTrip(plan::LoopOp, mlir::OpResult, const Trip &, int64_t first);
  mlir::Value slot(plan::LoopOp, mlir::OpResult, const Trip &);
  mlir::Value ofResult(plan::LoopOp, mlir::OpResult, int64_t first);
  mlir::Value part(const plan::LoopOp::Steps &, mlir::Value whole, const Trip &);
  mlir::Value minusOne(mlir::Value);
  mlir::Value isZero(mlir::Value);
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);

  EntryEmitter &e;
  llvm::DenseMap<mlir::Operation *, Trip> trips;
};

} // namespace cinch
#endif
