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
    forOutputs(batch, firstM, firstN, [&](size_t number, int64_t count, Value to, Value there) {
      when(there, [&] {
        simt::storeNumbers(b, loc, llvm::ArrayRef(sums).slice(number, size_t(count)), to, spec.c.elem == Elem::BF16);
      });
    });
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
