// ContractTensorTile.h: what products on tensor cores share, whichever instruction multiplies: index arithmetic, and the outputs of a tile,
// which lie in the registers of mma.m16n8k16 and of wgmma alike.
#ifndef CINCH_COMPILER_KERNELS_CONTRACTTENSORTILE_H
#define CINCH_COMPILER_KERNELS_CONTRACTTENSORTILE_H

#include "compiler/kernels/ContractTensor.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace cinch::kernels::device {

class TensorTile {
public:
  using OpBuilder = mlir::OpBuilder;
  using Location = mlir::Location;
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = llvm::SmallVector<mlir::Value>;

protected:
  // `tilesOfM`, `tilesOfN`: how many times 16 x 8 outputs a warp has.
  TensorTile(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, int64_t tilesOfM, int64_t tilesOfN)
      : b(b), loc(loc), plan(plan), spec(plan.spec), arguments(arguments), tilesOfM(tilesOfM), tilesOfN(tilesOfN),
        pairs(outputsArePaired(plan)) {
    arena = simt::pointerTo(b, loc, arguments[0], 0);
    for (const View *view : {&spec.a, &spec.b, &spec.c})
      bytes.push_back(mlir::memref::LoadOp::create(b, loc, arguments[1], ValueRange{index(view->buffer)}));
  }

  // ---- Index arithmetic, memory ----------------------------------------------------------------------------------------------
  Value index(int64_t n) { return emitInteger(b, loc, b.getIndexType(), n); }
  Value constant(int64_t n) { return emitInteger(b, loc, b.getI64Type(), n); }
  Value word(Value n) { return b.createOrFold<mlir::arith::IndexCastOp>(loc, b.getI64Type(), n); }
  Value add(Value x, Value y) { return b.createOrFold<mlir::arith::AddIOp>(loc, x, y); }
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, index(y)); }
  Value mul(Value x, int64_t factor) { return b.createOrFold<mlir::arith::MulIOp>(loc, x, index(factor)); }
  Value div(Value x, int64_t by) { return b.createOrFold<mlir::arith::DivUIOp>(loc, x, index(by)); }
  Value rem(Value x, int64_t by) { return b.createOrFold<mlir::arith::RemUIOp>(loc, x, index(by)); }
  Value below(Value x, Value bound) { return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::slt, x, bound); }
  Value both(Value x, Value y) { return !x ? y : !y ? x : Value(mlir::arith::AndIOp::create(b, loc, x, y)); }
  template <typename Stride> Value offsetOf(const Dims &dims, Value place, Stride stride) {
    Value sum = index(0);
    for (size_t i = dims.size(); i-- > 0;) {
      Value at = i == 0 ? place : rem(place, dims[i].size);
      place = i == 0 ? place : div(place, dims[i].size);
      sum = add(sum, mul(at, stride(dims[i])));
    }
    return sum;
  }
  void when(Value condition, llvm::function_ref<void()> body) {
    if (!condition)
      return body();
    mlir::scf::IfOp::create(b, loc, condition, [&](OpBuilder &, Location) {
      body();
      mlir::scf::YieldOp::create(b, loc);
    });
  }
  Values loop(Value from, Value to, int64_t step, ValueRange carried, llvm::function_ref<Values(Value, ValueRange)> body) {
    auto loop = mlir::scf::ForOp::create(b, loc, from, to, index(step), carried, [&](OpBuilder &, Location, Value at, ValueRange values) {
      mlir::scf::YieldOp::create(b, loc, body(at, values));
    });
    return Values(loop.getResults());
  }
  // An element of A, B or C.
  Value pointerTo(int which, Value element) {
    const View &view = which == 0 ? spec.a : which == 1 ? spec.b : spec.c;
    return simt::at(b, loc, simt::at(b, loc, arena, bytes[which]), word(mul(element, bytesOf(view.elem))));
  }

  // By how many elements of bf16 A, B or C begins behind a multiple of 16 bytes.
  Value behindSixteen(int which) {
    const View &view = which == 0 ? spec.a : which == 1 ? spec.b : spec.c;
    if (view.alignment % kTensorChunkBytes == 0)
      return index(0);
    return div(rem(mlir::arith::IndexCastOp::create(b, loc, b.getIndexType(), bytes[which]), kTensorChunkBytes), 2);
  }

  // ---- A tile ----------------------------------------------------------------------------------------------------------------
  // Calls `body` for all tiles of this block: the number of the batch, the first row and the first column. Values are carried from one to
  // the next. Blocks that work at once have some tiles beside and some below one another: so they read the fewest rows and columns in all.
  Values forTiles(ValueRange carried, llvm::function_ref<Values(Value, Value, Value, ValueRange)> body) {
    constexpr int64_t kBelow = 16;
    const int64_t rows = plan.tilesM(), columns = plan.tilesN();
    auto loop = mlir::scf::ForOp::create(b, loc, arguments[3], index(plan.items()), arguments[4], carried,
                                         [&](OpBuilder &, Location, Value item, ValueRange values) {
      Value within = rem(item, rows * columns), first = mul(div(within, kBelow * columns), kBelow), below = index(std::min(rows, kBelow));
      if (rows % kBelow)
        below = b.createOrFold<mlir::arith::MinUIOp>(loc, below, b.createOrFold<mlir::arith::SubIOp>(loc, index(rows), first));
      Value place = rem(within, kBelow * columns);
      Value tileM = add(first, mlir::arith::RemUIOp::create(b, loc, place, below)), tileN = mlir::arith::DivUIOp::create(b, loc, place, below);
      mlir::scf::YieldOp::create(b, loc, body(div(item, rows * columns), mul(tileM, plan.tileM), mul(tileN, plan.tileN), values));
    });
    return Values(loop.getResults());
  }

  // Calls `body` for the outputs of this thread, one or two neighbours at a time: the number of the first, how many they are, where they
  // lie, and whether they are there (null: they are).
  void forOutputs(Value batch, Value firstM, Value firstN, llvm::function_ref<void(size_t, int64_t, Value, Value)> body) {
    auto ofC = [](const Dim &dim) { return dim.c; };
    Value m0 = add(add(firstM, warpM), group), n0 = add(add(firstN, warpN), pair);
    Value base = add(offsetOf(plan.batch, batch, ofC), spec.c.offset);
    auto outputAt = [&](Value m, Value n) { return pointerTo(2, add(base, add(offsetOf(plan.m, m, ofC), offsetOf(plan.n, n, ofC)))); };
    const bool even = plan.m.size() <= 1 && plan.n.size() <= 1; // distances between outputs are the same everywhere
    const int64_t together = pairs ? 2 : 1, size = bytesOf(spec.c.elem);
    const int64_t stepM = plan.m.empty() ? 0 : plan.m[0].c * size, stepN = plan.n.empty() ? 0 : plan.n[0].c * size;
    Value first = outputAt(m0, n0);
    for (int64_t number = 0; number < tilesOfM * tilesOfN * 4; number += together) {
      const int64_t e = number % 4, besideM = number / 4 / tilesOfN * 16 + e / 2 * 8, besideN = number / 4 % tilesOfN * 8 + e % 2;
      Value m = add(m0, besideM), n = add(n0, besideN);
      Value there = both(plan.M % plan.tileM ? below(m, index(plan.M)) : Value(), plan.N % plan.tileN ? below(n, index(plan.N)) : Value());
      body(size_t(number), together, even ? simt::at(b, loc, first, constant(besideM * stepM + besideN * stepN)) : outputAt(m, n), there);
    }
  }

  // What the chains of a tile go on from is loaded; `sumsOf` makes their ends of it, which are stored.
  void emitOutputs(Value batch, Value firstM, Value firstN, llvm::function_ref<Values(ValueRange start)> sumsOf) {
    Value zero = emitNumber(b, loc, b.getF32Type(), 0);
    Values start = zeros();
    Value firstOfC = pointerTo(2, index(spec.c.offset));
    if (spec.accumulate && plan.K > 0)
      forOutputs(batch, firstM, firstN, [&](size_t number, int64_t count, Value from, Value there) {
        from = there ? Value(mlir::arith::SelectOp::create(b, loc, there, from, firstOfC)) : from;
        for (Value before : simt::loadNumbers(b, loc, from, count))
          start[number++] = there ? Value(mlir::arith::SelectOp::create(b, loc, there, before, zero)) : before;
      });
    Values sums = sumsOf(start);
    if (outputsAreRows(plan) && tilesOfN % 4 == 0)
      return storeRows(batch, firstM, firstN, sums);
    forOutputs(batch, firstM, firstN, [&](size_t number, int64_t count, Value to, Value there) {
      when(there, [&] {
        simt::storeNumbers(b, loc, llvm::ArrayRef(sums).slice(number, size_t(count)), to, spec.c.elem == Elem::BF16);
      });
    });
  }

  // Rows of bf16. Four lanes have a row, two neighbours of each eight columns. They exchange them so that each has eight neighbours of 32, and if rows
  // begin anywhere, the eight from the next multiple of 16 bytes on.
  void storeRows(Value batch, Value firstM, Value firstN, ValueRange sums) {
    firstN = add(firstN, warpN);
    auto ofC = [](const Dim &dim) { return dim.c; };
    auto narrow = [&](Value n) { return b.createOrFold<mlir::arith::IndexCastOp>(loc, b.getI32Type(), n); };
    auto number = [&](int64_t n) { return emitInteger(b, loc, b.getI32Type(), n); };
    Value lane = div(pair, 2), next = narrow(rem(add(lane, 1), 4)), isFirst = mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::eq, lane, index(0));
    Value columns = index(columnsOfRows(plan)); // of the matrix, from the tile's first on
    columns = mlir::arith::SubIOp::create(b, loc, columns, firstN);
    columns = narrow(mlir::arith::MinSIOp::create(b, loc, columns, index(tilesOfN * 8)));
    const bool aligned = rowsAreAligned(plan);
    for (int64_t half = 0; half < tilesOfM * 2; ++half) {
      Value m = add(add(add(firstM, warpM), group), half * 8), there = plan.M % plan.tileM ? below(m, index(plan.M)) : Value();
      Value row = add(add(add(offsetOf(plan.batch, batch, ofC), spec.c.offset), offsetOf(plan.m, m, ofC)), firstN);
      Value skipped = aligned ? number(0) : narrow(rem(mlir::arith::SubIOp::create(b, loc, index(8), rem(add(row, behindSixteen(2)), 8)), 8));
      Value from = pointerTo(2, add(row, mul(lane, 8)));
      if (!aligned)
        from = simt::at(b, loc, from, word(mul(mlir::arith::IndexCastOp::create(b, loc, b.getIndexType(), skipped), 2)));
      auto eightOf = [&](int64_t place) { // of columns 32 place + 8 lane on
        Values words;
        for (int64_t j = place * 4; j < place * 4 + 4; ++j) {
          auto sum = sums.begin() + (half / 2 * tilesOfN + j) * 4 + half % 2 * 2;
          words.push_back(simt::roundedPair(b, loc, *sum, *(sum + 1)));
        }
        for (int64_t bit : {1, 2}) {
          Value upper = mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::ne, rem(div(lane, bit), 2), index(0));
          for (int64_t k = 0; k < 4; ++k)
            if (!(k & bit)) {
              Value other = mlir::arith::SelectOp::create(b, loc, upper, words[k], words[k + bit]);
              other = mlir::arith::BitcastOp::create(b, loc, b.getF32Type(), other);
              other = mlir::arith::BitcastOp::create(b, loc, b.getI32Type(), simt::fromBeside(b, loc, other, int(bit)));
              words[k] = mlir::arith::SelectOp::create(b, loc, upper, other, words[k]);
              words[k + bit] = mlir::arith::SelectOp::create(b, loc, upper, words[k + bit], other);
            }
        }
        return words;
      };
      auto vector = [&](ValueRange words) {
        return mlir::vector::FromElementsOp::create(b, loc, mlir::VectorType::get({4}, b.getI32Type()), words);
      };
      // The first `count` of eight numbers, one by one.
      auto storeFew = [&](ValueRange words, Value to, Value count) {
        for (int64_t e = 0; e < 8; ++e)
          when(mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::sgt, count, number(e)), [&] {
            Value element = mlir::arith::ShRUIOp::create(b, loc, words[e / 2], number(e % 2 * 16));
            simt::store(b, loc, mlir::arith::TruncIOp::create(b, loc, b.getI16Type(), element), simt::at(b, loc, to, constant(e * 2)), 2);
          });
      };
      auto least = [&](Value x, Value y) { return mlir::arith::MinSIOp::create(b, loc, x, y); };
      Values eight = eightOf(0);
      if (!aligned)
        when(both(isFirst, there), [&] { storeFew(eight, pointerTo(2, row), least(skipped, columns)); });
      for (int64_t place = 0; place < tilesOfN / 4; ++place) {
        const bool last = place + 1 == tilesOfN / 4;
        Values beside = last ? Values(4, number(0)) : eightOf(place + 1), all = eight;
        Value begin = mlir::arith::AddIOp::create(b, loc, narrow(mul(lane, 8)), number(place * 32)), to = simt::at(b, loc, from, constant(place * 64));
        if (!aligned) {
          Values behind;
          for (auto [mine, follows] : llvm::zip_equal(eight, beside))
            behind.push_back(simt::fromFour(b, loc, mlir::arith::SelectOp::create(b, loc, isFirst, follows, mine), next));
          Value shifted = simt::eightFrom(b, loc, vector(eight), vector(behind), skipped);
          for (int64_t i = 0; i < 4; ++i)
            all[i] = mlir::vector::ExtractOp::create(b, loc, shifted, llvm::ArrayRef<int64_t>{i});
          begin = mlir::arith::AddIOp::create(b, loc, begin, skipped);
        }
        Value count = mlir::arith::SubIOp::create(b, loc, columns, begin);
        Value whole = mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::sge, count, number(8));
        when(both(whole, there), [&] { simt::store(b, loc, vector(all), to, 16); });
        if (!aligned)
          when(both(mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::slt, count, number(8)), there), [&] { storeFew(all, to, count); });
        eight = beside;
      }
    }
  }

  Values zeros() { return Values(size_t(tilesOfM * tilesOfN * 4), emitNumber(b, loc, b.getF32Type(), 0)); }
  Values added(ValueRange totals, ValueRange sums) {
    Values result;
    for (auto [total, sum] : llvm::zip_equal(totals, sums))
      result.push_back(mlir::arith::AddFOp::create(b, loc, total, sum));
    return result;
  }

  OpBuilder &b;
  Location loc;
  const Plan &plan;
  const ContractSpec &spec;
  ValueRange arguments;
  const int64_t tilesOfM, tilesOfN;
  const bool pairs;           // of outputs, in neighbouring columns, lie side by side at an even place: they are stored together
  Value arena;
  Values bytes;               // where A, B and C begin in the arena
  Value warpM, warpN;         // where the outputs of this warp begin in the tile
  Value group, pair;          // within a square of 8 x 8, the row and the first column that this lane has
};

} // namespace cinch::kernels::device
#endif
