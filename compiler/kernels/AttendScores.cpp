// AttendScores.cpp: a block of scores: product, scale, bias and masks; and the walk over its keys with dropout.
#include "compiler/kernels/AttendEmitter.h"
#include "compiler/solve/Bytes.h"

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

// A key is seen by the queries t >= s. Rows of the same terms reach beyond their first one, so some more keys are computed for every
// vector of queries: masked, so their shares are 0. Those of bf16 begin at multiples of their number.
Value AttendEmitter::keysNeeded(const Patch &patch, Value queryEnd) {
  if (!spec.causal)
    return patch.keys;
  const int64_t same = rowsOfSameTerms(spec);
  Value end = spec.pairs ? mul(ceilDiv(queryEnd, same), same) : add(queryEnd, same - 1);
  return min(patch.keys, sub(add(patch.t0, end), patch.s0));
}

void AttendEmitter::spareScores(TileProduct &p, const Patch &patch) {
  if (spec.causal)
    p.rowsNeeded = [&](Value colEnd) { return keysNeeded(patch, colEnd); };
}

void AttendEmitter::spareSumOverKeys(TileProduct &p, const Patch &patch) {
  if (spec.causal)
    p.termsNeeded = [&](Value row) { return std::make_pair(index(0), keysNeeded(patch, add(row, 1))); };
}

void AttendEmitter::spareSumOverQueries(TileProduct &p, const Patch &patch) {
  if (spec.causal)
    p.termsNeeded = [&](Value row) {
      const int64_t same = rowsOfSameTerms(spec);
      Value begin = spec.pairs ? mul(arith::DivUIOp::create(b, loc, row, index(same)), same) : row; // else `row` is that already
      Value first = sub(add(patch.s0, begin), patch.t0);
      return std::make_pair(Value(arith::MaxSIOp::create(b, loc, first, index(0))), patch.queries);
    };
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
  spareScores(p, block);
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

// A block's draws as bits: 32-bit word w of query t holds keys 32 w .. 32 w + 31, words[w][t], after one row of raw
// draws.
static_assert(kKeyBlock == 64, "the bits of a query's keys are two words");

static int64_t rowBytes() { return drawRowBytes(Draw::Bits16, Elem::F32, kKeyBlock); }

int64_t attendDrawBytes(const AttendSpec &spec) {
  return spec.dropout > 0 ? solve::roundUp(rowBytes() + 2 * 4 * queryBlockOf(spec)) : 0;
}

int64_t attendScratch(const AttendSpec &spec, int64_t own, const TargetInfo &target) {
  return solve::roundUp(own + attendDrawBytes(spec) + attendPanelBytes(spec, target));
}

static Value drawWords(AttendEmitter &e, Value at) {
  auto type = MemRefType::get({kArenaBytes / 4}, e.b.getI32Type());
  return memref::ViewOp::create(e.b, e.loc, type, e.arena, at, ValueRange());
}

void AttendEmitter::drawKept(const Head &head, const Patch &patch) {
  if (spec.dropout <= 0)
    return;
  Value row = add(scratchStart, drawsAt), words = drawWords(*this, add(row, rowBytes()));
  Value bits = emitDrawRowView(b, loc, Draw::Bits16, spec.elem, arena, row);
  loop(index(0), patch.queries, 1, [&](Value query) {
    Value first = add(add(head.firstDraw, mul(add(patch.t0, query), spec.S)), patch.s0);
    Value begin = emitDrawRow(b, loc, Draw::Bits16, spec.elem, drawKey, head.example, first, patch.keys, arena, row);
    Value all = vector::LoadOp::create(b, loc, VectorType::get({kKeyBlock}, b.getI16Type()), bits, ValueRange{begin});
    Value kept = keptBelow ? emitKept(b, loc, all, keptBelow) : emitKept(b, loc, all, 1 - spec.dropout);
    Value pair = vector::BitCastOp::create(b, loc, VectorType::get({2}, b.getI32Type()), kept);
    for (int64_t word : {0, 1})
      memref::StoreOp::create(b, loc, vector::ExtractOp::create(b, loc, pair, ArrayRef<int64_t>{word}), words,
                              ValueRange{add(query, word * queryBlock)});
  });
}

SmallVector<Value> AttendEmitter::forKeys(const Patch &patch, Value lane, ValueRange init,
                                          llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)> body) {
  Value words;
  if (spec.dropout > 0)
    words = drawWords(*this, add(add(scratchStart, drawsAt), rowBytes()));
  return loop(index(0), keysNeeded(patch, add(lane, lanes)), 1, init, [&](Value key, ValueRange carried) {
    if (!words)
      return body(key, Value(), carried);
    auto type = VectorType::get({lanes}, b.getI32Type());
    Value number = arith::DivUIOp::create(b, loc, key, index(32));
    Value at = add(arith::MulIOp::create(b, loc, number, index(queryBlock)), lane);
    Value word = vector::LoadOp::create(b, loc, type, words, ValueRange{at});
    Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
    Value bit = arith::IndexCastOp::create(b, loc, b.getI32Type(), arith::RemUIOp::create(b, loc, key, index(32)));
    Value mask = splat(Value(arith::ShLIOp::create(b, loc, one, bit)));
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    Value kept =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, arith::AndIOp::create(b, loc, word, mask), zero);
    return body(key, kept, carried);
  });
}

} // namespace cinch::kernels
