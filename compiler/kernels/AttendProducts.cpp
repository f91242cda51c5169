// AttendProducts.cpp: register-tiled products of small blocks, and blocks turned on their side.
//
// A tile is `tileRows` x `tileVectors` accumulators; A is read as scalars and broadcast, B as vectors of columns:
//
//        for i ascending:  acc[r][v] = fma(A[row + r, i], B[i, col + v * lanes ..], acc[r][v])
//
// The last tile of rows may reach beyond the block: its surplus rows repeat the last row, compute the very same numbers
// and store them again, so that no second code path exists for tails.
#include "compiler/kernels/AttendEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace cinch::kernels {

void AttendEmitter::product(const TileProduct &asGiven) {
  if (amx)
    return amxProduct(asGiven);
  const TileProduct p = dots ? asGiven : widened(asGiven);
  WordsOfA packed; // by vdpbf16ps
  if (dots)
    packed = packWordsOfA(p);
  int64_t whole = p.cols / (lanes * tileVectors), done = whole * lanes * tileVectors;
  if (p.colCount) {
    // Columns are padded in C: the widest tile that divides them, as often as needed.
    int vectors = tileVectors;
    while (p.cols % (vectors * lanes) != 0)
      --vectors;
    loop(index(0), p.colCount, vectors * lanes, [&](Value col) { productColumns(p, packed, col, vectors, lanes); });
    return;
  }
  if (whole == 1)
    productColumns(p, packed, index(0), tileVectors, lanes);
  else if (whole > 1)
    loop(index(0), index(done), lanes * tileVectors, [&](Value col) { productColumns(p, packed, col, tileVectors, lanes); });
  if (done < p.cols) {
    int64_t rest = p.cols - done, vectors = (rest + lanes - 1) / lanes;
    productColumns(p, packed, index(done), vectors, rest - (vectors - 1) * lanes);
  }
}

// Blocks of 32 terms from term 0 on, of which those in [from, to) are there; the others are zeros, which change no chain.
AttendEmitter::Values AttendEmitter::pairChains(Value from, Value to, Values accumulators,
                                                llvm::function_ref<Values(Value, ValueRange)> step) {
  constexpr int64_t kBlock = 32;
  auto both = [&](auto op, Value x, int64_t y) -> Value { return decltype(op)::create(b, loc, x, index(y)); };
  Value first = sub(from, both(arith::RemUIOp(), from, kBlock));
  return loop(first, to, kBlock, accumulators, [&](Value block, ValueRange carried) {
    Value begin = arith::MaxSIOp::create(b, loc, block, from), end = min(add(block, kBlock), to);
    Value odd = both(arith::RemUIOp(), begin, 2);
    Values fresh(carried.size(), splat(0.0));
    Values even = loop(add(begin, odd), end, 2, fresh, step);
    Values other = loop(add(begin, sub(index(1), odd)), end, 2, fresh, step);
    Values next;
    for (auto [sum, x, y] : llvm::zip_equal(carried, even, other))
      next.push_back(fadd(sum, fadd(x, y)));
    return next;
  });
}

void AttendEmitter::productColumns(const TileProduct &p, const WordsOfA &packed, Value col, int vectors, int64_t validLast) {
  auto valid = [&](int v) { return v + 1 == vectors ? validLast : lanes; };
  if (dots)
    packB(p, col, validLast, panelOfB(), lanes);
  Value rowCount = p.rowsNeeded ? min(p.rows, p.rowsNeeded(add(col, vectors * lanes))) : p.rows;
  Value lastRow = add(rowCount, -1);
  loop(index(0), rowCount, tileRows, [&](Value firstRow) {
    SmallVector<Value> rows, aStart, cStart, accumulators;
    for (int r = 0; r < tileRows; ++r) {
      rows.push_back(r == 0 ? firstRow : min(add(firstRow, r), lastRow));
      aStart.push_back(add(p.a.at, mul(rows[r], p.aRow)));
      cStart.push_back(add(add(p.c.at, mul(rows[r], p.cRow)), col));
    }
    for (int r = 0; r < tileRows; ++r) {
      Value scale = p.rowScale.memory ? splat(load(p.rowScale, rows[r])) : Value();
      for (int v = 0; v < vectors; ++v) {
        Value start = p.fresh ? splat(0.0) : loadSome({p.c.memory, cStart[r]}, index(v * lanes), valid(v), vector);
        accumulators.push_back(scale ? fmul(start, scale) : start);
      }
    }
    Value bStart = add(p.b.at, col);
    Value from = index(0), to = p.inner;
    if (p.termsNeeded)
      std::tie(from, to) = p.termsNeeded(firstRow);
    auto step = [&](Value i, ValueRange carried) {
      SmallVector<Value> columns, next;
      Value bRow = add(bStart, mul(i, p.bInner)), aInner = mul(i, p.aInner);
      for (int v = 0; v < vectors; ++v)
        columns.push_back(loadSome({p.b.memory, bRow}, index(v * lanes), valid(v), vector));
      for (int r = 0; r < tileRows; ++r) {
        Value scalar = splat(load({p.a.memory, aStart[r]}, aInner));
        for (int v = 0; v < vectors; ++v)
          next.push_back(fma(scalar, columns[v], carried[r * vectors + v]));
      }
      return next;
    };
    if (dots)
      accumulators = wordChains(packed, rows, panelOfB(), from, to, accumulators);
    else
      accumulators = spec.pairs ? pairChains(from, to, accumulators, step) : loop(from, to, 1, accumulators, step);
    for (int r = 0; r < tileRows; ++r)
      for (int v = 0; v < vectors; ++v) {
        Value result = accumulators[r * vectors + v];
        if (p.finish)
          result = p.finish(rows[r], add(col, v * lanes), result);
        storeSome(result, {p.c.memory, cStart[r]}, index(v * lanes), valid(v));
      }
  });
}

// Swaps, for each bit, that bit of the row's number with that of the lane's: an 8 x 8 transposition in 3 x 8 shuffles.
void AttendEmitter::transpose8(SmallVectorImpl<Value> &rows) {
  for (int bit : {4, 2, 1})
    for (int row = 0; row < 8; ++row) {
      if (row & bit)
        continue;
      SmallVector<int64_t> low(8), high(8);
      for (int lane = 0; lane < 8; ++lane) {
        low[lane] = lane & bit ? 8 + lane - bit : lane;
        high[lane] = lane & bit ? 8 + lane : lane + bit;
      }
      Value x = rows[row], y = rows[row + bit];
      rows[row] = vector::ShuffleOp::create(b, loc, x, y, low);
      rows[row + bit] = vector::ShuffleOp::create(b, loc, x, y, high);
    }
}

void AttendEmitter::packTransposed(Place from, int64_t rowStride, Value rows, int64_t cols, Place to) {
  auto eight = VectorType::get({8}, elem);
  Value lastRow = add(rows, -1);
  loop(index(0), index(queryBlock), 8, [&](Value firstRow) {
    SmallVector<Value> starts;
    for (int r = 0; r < 8; ++r)
      starts.push_back(add(from.at, mul(min(add(firstRow, r), lastRow), rowStride)));
    auto columns = [&](Value col, int64_t count) {
      SmallVector<Value> block;
      for (int r = 0; r < 8; ++r)
        block.push_back(loadSome({from.memory, starts[r]}, col, count, eight));
      transpose8(block);
      for (int c = 0; c < count; ++c)
        storeSome(block[c], to, add(mul(add(col, c), queryBlock), firstRow), 8);
    };
    loop(index(0), index(cols / 8 * 8), 8, [&](Value col) { columns(col, 8); });
    if (cols % 8 != 0)
      columns(index(cols / 8 * 8), cols % 8);
  });
}

} // namespace cinch::kernels
