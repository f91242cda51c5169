// ContractTensor.h: products of bf16 and tf32 on the tensor cores of a GPU.
#ifndef CINCH_COMPILER_KERNELS_CONTRACTTENSOR_H
#define CINCH_COMPILER_KERNELS_CONTRACTTENSOR_H

#include "compiler/kernels/ContractDevice.h"
#include "compiler/kernels/TensorMap.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace cinch::kernels::device {

constexpr int64_t kTensorThreads = 128; // of a block
// Of k, which a block of threads brings at once, as they lie in shared memory: 32 of bf16, which are two products of m16n8k16, or 16 of tf32, two of
// m16n8k8. So the lines of both are alike. Sixteen bytes are what is copied at once, and what a row of a matrix in registers has.
constexpr int64_t kTensorStepBytes = 64, kTensorChunkBytes = 16;

// How a step of one operand lies in shared memory, and how it is brought there.
struct TensorOperand {
  const View *view = nullptr;
  bool alongK = false;  // [row of the tile][k], for one whose k lies closer together; else [k][row]
  int64_t size = 2;     // bytes of an element in shared memory: 4 of tf32
  bool wide = false;    // 16 bytes of them at a time: they lie side by side, and begin at 16 bytes in memory, too
  bool copied = false;  // as they are, so that the copies go on while the threads compute: wide, and bf16 in memory; or tf32, which is rounded later
  bool shifted = false; // bf16 that lie side by side, but begin anywhere: by groups, as 16 bytes and the 16 behind them, of which eight are taken
  int64_t pitch = 0;    // elements of a row, whose beginnings lie in different banks (TensorTiles)
  int64_t bytes = 0;    // of a step
  int64_t chunk() const { return wide || shifted ? kTensorChunkBytes / size : 1; }
};

// Pairs of outputs, in neighbouring columns, lie side by side at an even place.
bool outputsArePaired(const Plan &);
// Rows of outputs are bf16 side by side; and they begin, as their ends do, at 16 bytes.
bool outputsAreRows(const Plan &);
bool rowsAreAligned(const Plan &);
// Columns that a row may be stored with: those of the matrix, and what lies behind them up to 16 bytes if the next row begins there.
int64_t columnsOfRows(const Plan &);

// Eight rows of a matrix that ldmatrix reads, of 16 bytes each, lie in different banks: a pitch is odd in units of 16 bytes. A tf32 whose lines are
// those of one k is read word by word, eight rows at four k: there the pitch is 8 words modulo 32.
struct TensorTiles {
  TensorOperand operand[2];
  int64_t size, step;            // bytes of an element, and elements of k in a step
  int64_t length, steps;         // of a run of k; blocks start anew behind each
  int stages = 2;                // steps in shared memory at once
  explicit TensorTiles(const Plan &);
  int64_t depth() const { return step / 2; } // of k, which one instruction multiplies
  int64_t stageBytes() const { return operand[0].bytes + operand[1].bytes; }
  int64_t sharedBytes() const { return stages * stageBytes(); }
};

inline int64_t strideOf(const Dim &dim, int operand) { return operand == 0 ? dim.a : dim.b; }

// The loops of one contraction; the arguments are those of a kernel, `tiles` is shared memory of at least sharedBytes. A block has so many
// threads: kTensorThreads, or kThreads for a convolution, whose warps have half of a square.
void emitOnTensorCores(mlir::OpBuilder &, mlir::Location, const Plan &, mlir::ValueRange arguments, mlir::Value tiles, int64_t threads);

// ---- By wgmma (ContractWarpgroup.cpp): two warpgroups multiply, a third one brings what they need. ----
constexpr int64_t kGroupThreads = 128, kGroupsThreads = 3 * kGroupThreads; // of a warpgroup, of a block
constexpr int64_t kGroupStep = 64; // of k, which is brought at once: four products of m64nNk16, and 128 bytes of a line

// An operand that memory holds as bf16 side by side is brought by copies of whole boxes (TMA). Its map has an axis for each index that the
// operand has: k of a run, rows, runs, batches; so what lacks at the end of an example is zero, as what lacks at the edges is.
struct OperandMap {
  enum Group { kAlong, kGrain, kRow, kBatch, kRun };
  struct Walk { // which index an axis of the map is: number `dim` of a group
    Group group;
    size_t dim;
  };
  TensorMap map; // no axes: there is none
  std::vector<Walk> walks;
};

// A step of an operand lies in shared memory as lines of 64 elements, of which the sixteen bytes number i lie at i ^ (line % 8) (PTX ISA,
// the swizzle of 128 bytes). A line is a row of the tile along k; or, where rows lie closer together in memory, 64 rows at one k: line (row
// / 64) * 64 + k then has element row % 64.
struct GroupTiles {
  TensorOperand operand[2];
  OperandMap maps[2];
  int64_t length, steps;         // as those of TensorTiles
  int stages = 4;                // steps in shared memory at once
  int ahead = 0;                 // of these, copies that go on when the next ones begin
  explicit GroupTiles(const Plan &);
  // Lines of a step, of so many rows of the tile.
  int64_t linesOf(int which, int64_t rows) const { return operand[which].alongK ? rows : (rows + 63) / 64 * 64; }
  bool isMapped(int which) const { return !maps[which].map.axes.empty(); }
  int64_t bringing() const { return isMapped(0) && isMapped(1) ? 1 : kGroupThreads; } // threads
  int64_t stageBytes() const { return operand[0].bytes + operand[1].bytes; }
  int64_t sharedBytes() const { return stages * (stageBytes() + 16); } // two barriers for each stage
};
void emitOnWarpgroups(mlir::OpBuilder &, mlir::Location, const Plan &, mlir::ValueRange arguments, mlir::Value shared);

} // namespace cinch::kernels::device
#endif
