// Amx.h: instructions of AMX, as products and attention of bf16 use them.
//
// There are eight registers of 16 rows of 64 bytes, named by number, so LLVM moves and spills nothing here. Up to four of them hold
// squares of 16 x 16 results while k goes by; the others hold operands: 16 rows of A with 32 elements of k each, or 16 steps of B with
// 16 words each. A word is two neighbours in k, the earlier one in its low half.
//
// tdpbf16ps adds a block of 32 elements of k to a square: for each result a chain of FMAs over the even elements from +0.0, one over
// the odd ones, and their sum to what there is, with subnormal numbers taken for zeros whatever MXCSR says. That is the numbers
// contract's own definition of a product of bf16.
#ifndef CINCH_COMPILER_KERNELS_AMX_H
#define CINCH_COMPILER_KERNELS_AMX_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace cinch::kernels {

constexpr int64_t kSquare = 16; // rows and columns of a register's results
inline int64_t squaresOf(int64_t size) { return (size + kSquare - 1) / kSquare; }

class Amx {
public:
  Amx(mlir::OpBuilder &b, mlir::Location loc) : b(b), loc(loc) {}
  void configure(); // before all else, at the entry of a function: every register has 16 rows of 64 bytes
  void release();   // behind all else
  // Squares of C, register row * columns + column; `memory` is one-dimensional, its rows are `pitch` elements apart.
  void zero(int rows, int columns);
  void load(int rows, int columns, mlir::Value memory, mlir::Value index, int64_t pitch);
  void store(int rows, int columns, mlir::Value memory, mlir::Value index, int64_t pitch);
  // Adds a block of 32 to rows x columns squares, four at most. The operand with fewer squares stays in registers for each of them.
  // Elements of the operands' memory may have any size.
  struct Operand {
    mlir::Value memory, index; // of its first square
    int64_t pitch = 0;         // from row to row, or from step to step
    int64_t next = 0;          // from square to square
  };
  void multiply(int rows, int columns, const Operand &a, const Operand &b);
  // The same of a chain of blocks, where each operand has a register of its own: the first block is fetched before all else, and every
  // register is loaded for the next block as soon as this one is done with it.
  static bool canChain(int rows, int columns);
  void fetch(int rows, int columns, const Operand &a, const Operand &b);
  void multiplyAndFetch(int rows, int columns, const Operand &nextA, const Operand &nextB);
  // Two vectors of 16 numbers as one of 32 of bf16. The instruction takes subnormal numbers for zeros; of sums of products, which are
  // none, it rounds as the contract says.
  mlir::Value narrowed(mlir::Value low, mlir::Value high);

private:
  void loadOperand(int target, const Operand &, int square);
  void call(llvm::StringRef name, llvm::ArrayRef<int> registers, mlir::ValueRange operands = {});
  mlir::Value pointerTo(mlir::Value memory, mlir::Value index, int64_t more);
  mlir::Value bytesOf(mlir::Value memory, int64_t elements);
  mlir::OpBuilder &b;
  mlir::Location loc;
};

} // namespace cinch::kernels
#endif
