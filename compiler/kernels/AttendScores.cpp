// AttendScores.cpp: a block of scores: product, scale, bias and masks; and the walk over its keys with dropout.
#include "compiler/kernels/AttendEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {

Value AttendEmitter::keyLimit(Value t0, Value queries) {
  Value all = index(spec.S);
  return spec.causal ? min(all, add(t0, queries)) : all;
}

Value AttendEmitter::queryNumbers(Value first) {
  auto type = VectorType::get({lanes}, b.getI32Type());
  SmallVector<int32_t> counts(lanes);
  for (int64_t i = 0; i < lanes; ++i)
    counts[i] = int32_t(i);
  Value iota = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<int32_t>(counts)));
  Value start = arith::IndexCastOp::create(b, loc, b.getI32Type(), first);
  return arith::AddIOp::create(b, loc, splat(start), iota);
}

void AttendEmitter::scores(const Head &head, const Patch &block, Place packedQueries, Place to) {
  const double masked = -std::numeric_limits<double>::infinity();
  TileProduct p;
  p.a = {head.k.memory, add(head.k.at, mul(block.s0, spec.k.strides.rbegin()[1]))};
  p.aRow = spec.k.strides.rbegin()[1];
  p.aInner = 1;
  p.b = packedQueries;
  p.bInner = p.cRow = p.cols = queryBlock;
  p.c = to;
  p.rows = block.keys;
  p.inner = index(spec.K);
  p.colCount = block.queries;
  p.fresh = true;
  p.finish = [&](Value row, Value col, Value score) -> Value {
    Value key = add(block.s0, row), query = add(block.t0, col);
    score = fmul(score, splat(spec.scale));
    if (spec.hasBias) {
      // bias[a, t, s]: lanes are t; beyond the last query its bias is read again.
      Value bias = splat(0.0), last = index(spec.T - 1);
      Value at = mul(key, spec.bias.strides[2]);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        Value t = min(add(query, lane), last);
        Value scalar = load(head.bias, add(at, mul(t, spec.bias.strides[1])));
        bias = vector::InsertOp::create(b, loc, scalar, bias, ArrayRef<int64_t>{lane});
      }
      score = fadd(score, bias);
    }
    if (spec.causal) {
      Value number = arith::IndexCastOp::create(b, loc, b.getI32Type(), key);
      Value seen = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, queryNumbers(query), splat(number));
      score = select(seen, score, splat(masked));
    }
    if (spec.hasKeys) {
      Value byte = load(head.keys, mul(key, spec.keys.strides.back()));
      Value zero = arith::ConstantIntOp::create(b, loc, 0, 8);
      Value attended = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, byte, zero);
      score = select(attended, score, splat(masked));
    }
    return score;
  };
  product(p);
}

SmallVector<Value>
AttendEmitter::forKeys(const Head &head, const Patch &block, Value lane, ValueRange init,
                       llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)> body) {
  return loop(index(0), block.keys, 1, init,
              [&](Value key, ValueRange carried) { return body(key, Value(), carried); });
}

} // namespace cinch::kernels
