// ContractTensor.h: products of bf16 on the tensor cores of a GPU.
#ifndef CINCH_COMPILER_KERNELS_CONTRACTTENSOR_H
#define CINCH_COMPILER_KERNELS_CONTRACTTENSOR_H

#include "compiler/kernels/ContractDevice.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace cinch::kernels::device {

constexpr int64_t kTensorThreads = 128; // of a block
constexpr int64_t kTensorStep = 32; // of k, which a block of threads brings at once: two products of m16n8k16

// How a step of one operand lies in shared memory, and how it is brought there.
struct TensorOperand {
  const View *view = nullptr;
  bool alongK = false;  // [row of the tile][k], for one whose k lies closer together; else [k][row]
  bool wide = false;    // eight elements at a time: they lie side by side and begin at 16 bytes
  bool copied = false;  // wide, and bf16 in memory: the copies go on while the threads compute
  int64_t pitch = 0;    // elements of a row; odd in units of 16 bytes, so that eight rows lie in different banks
  int64_t bytes = 0;    // of a step
  int64_t chunk() const { return wide ? 8 : 1; }
};

struct TensorTiles {
  TensorOperand operand[2];
  int64_t length = 0, steps = 0; // of a run of k; blocks start anew behind each
  int stages = 2;                // steps in shared memory at once
  bool pairs = false;            // of outputs, in neighbouring columns, lie side by side at an even place: they are stored together
  explicit TensorTiles(const Plan &);
  int64_t stageBytes() const { return operand[0].bytes + operand[1].bytes; }
  int64_t sharedBytes() const { return stages * stageBytes(); }
};

inline int64_t strideOf(const Dim &dim, int operand) { return operand == 0 ? dim.a : dim.b; }

// The loops of one contraction; the arguments are those of a kernel, `tiles` is shared memory of at least sharedBytes. A block has so many
// threads: kTensorThreads, or kThreads for a convolution, whose warps have half of a square.
void emitOnTensorCores(mlir::OpBuilder &, mlir::Location, const Plan &, mlir::ValueRange arguments, mlir::Value tiles, int64_t threads);

} // namespace cinch::kernels::device
#endif
