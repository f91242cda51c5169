// Transpose.cpp: a square of elements, a vector a row, becomes one with a vector a column. Nothing is computed.
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace cinch::kernels {

// Butterflies: at distance d the off-diagonal d x d blocks of every 2d x 2d block change places.
SmallVector<Value> emitTransposed(OpBuilder &builder, Location loc, SmallVector<Value> rows) {
  int64_t size = rows.size();
  for (int64_t d = size / 2; d >= 1; d /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t c = 0; c < size; ++c) {
      low.push_back(c & d ? size + c - d : c);
      high.push_back(c & d ? size + c : c + d);
    }
    for (int64_t i = 0; i < size; ++i) {
      if (i & d)
        continue;
      Value upper = rows[i], lower = rows[i + d];
      rows[i] = vector::ShuffleOp::create(builder, loc, upper, lower, low);
      rows[i + d] = vector::ShuffleOp::create(builder, loc, upper, lower, high);
    }
  }
  return rows;
}

} // namespace cinch::kernels
