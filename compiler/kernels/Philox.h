// Philox.h: counter-based random numbers (Philox4x32-10, Salmon et al., SC 2011), emitted as integer operations.
//
// A number is a pure function of (seed, step, key, example, element):
//
//   draw key      (s0, s1, -, -) = philox(counter = (key low, key high, step low, step high), key = (seed low, seed
//   high)) block b       (w0, w1, w2, w3) = philox(counter = (b low, b high, example low, example high), key = (s0,
//   s1))
//
// and element e of an example takes, so that 8 lanes fill consecutive elements without a shuffle:
//
//   Bits16   block (e / 64) * 8 + e % 8, with j = e % 64 / 8: the low (j even) or high (j odd) half of word j / 2
//   Word     block (e / 32) * 8 + e % 8, word j = e % 32 / 8
//   Normal   the same block; j = e % 32 / 8: u1 = ((w[j & 2] >> 8) + 1) / 2^24, u2 = (w[j & 2 | 1] >> 8) / 2^24,
//            sqrt(-2 ln u1) * cos(2 pi u2) if j is even, * sin(2 pi u2) if it is odd
//
// From these: bool with probability p = Bits16 < round(p * 65536); uniform = (Word >> 8) / 2^24; whole number below n =
// Word * n / 2^32, rounded down.
#ifndef CINCH_COMPILER_KERNELS_PHILOX_H
#define CINCH_COMPILER_KERNELS_PHILOX_H

#include "compiler/kernels/Kernels.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace cinch::kernels {

enum class Draw { Bits16, Word, Normal };

struct DrawKey {
  mlir::Value low, high; // i64, upper halves zero
};
// Once a kernel, at its entry: reads the seed and the step from %context.
DrawKey emitDrawKey(mlir::OpBuilder &, mlir::Location, mlir::Value context, uint64_t key);
DrawKey emitDrawKey(mlir::OpBuilder &, mlir::Location, mlir::Value context, mlir::Value key); // i64

// Rows of draws: elements first .. first + count - 1 (`first`, `count`: index) of one example (i64) are written to the
// arena from byte `at` on (index, a multiple of 64) in their natural order, as i16, i32 or `elem`. Returns where the
// row begins: element first + i is row[result + i]. The row covers whole groups of 64, so it takes drawRowBytes.
int64_t drawRowBytes(Draw, Elem elem, int64_t count);
mlir::Value emitDrawRow(mlir::OpBuilder &, mlir::Location, Draw, Elem elem, DrawKey, mlir::Value example,
                        mlir::Value first, mlir::Value count, mlir::Value arena, mlir::Value at);
// The row's memref: what `at` was above, as elements of the stored type (i16, i32, f32 or f64).
mlir::Value emitDrawRowView(mlir::OpBuilder &, mlir::Location, Draw, Elem elem, mlir::Value arena, mlir::Value at);

// The four words, i32, of block `block` (i64) of an example, whose halves are eight draws of Bits16: elements (block / 8) * 64 + block % 8 +
// 0, 8, .., 56. For GPUs, which multiply words of 32 bits.
llvm::SmallVector<mlir::Value> emitDrawWords(mlir::OpBuilder &, mlir::Location, DrawKey, mlir::Value example, mlir::Value block);

// Single draws: `example` and `element` are i64, scalars or vectors of one shape. A block is computed for every
// element, so rows are up to 8 times as fast.
mlir::Value emitDraw(mlir::OpBuilder &, mlir::Location, Draw, Elem elem, DrawKey, mlir::Value example,
                     mlir::Value element);

// From draws (scalars or vectors) to values.
// Of the lower or upper half of a word (i32); `below`: of 65536, as the upper half of an i32.
mlir::Value emitKeptHalf(mlir::OpBuilder &, mlir::Location, mlir::Value word, bool upper, mlir::Value below);
mlir::Value emitKept(mlir::OpBuilder &, mlir::Location, mlir::Value bits16, mlir::Value threshold); // a scalar i64, of 65536
mlir::Value emitKept(mlir::OpBuilder &, mlir::Location, mlir::Value bits16,
                     double probability); // i1: true with probability
mlir::Value emitUniform(mlir::OpBuilder &, mlir::Location, mlir::Value word, Elem elem);           // in [0, 1)
mlir::Value emitBelow(mlir::OpBuilder &, mlir::Location, mlir::Value word, uint32_t n);            // i32 in [0, n)

} // namespace cinch::kernels
#endif
