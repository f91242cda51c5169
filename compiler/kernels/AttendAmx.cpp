// AttendAmx.cpp: the products of attention by AMX (Amx.h), where they are those of bf16.
//
// Both operands are packed into words (AttendWords.cpp): A as rows, 32 columns of B at a time as steps. Results go through 32 x 32 numbers
// of scratch, where scales and masks are applied.
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/AttendEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace cinch::kernels {

static constexpr int64_t kBlock = 32;          // terms that are added at once
static constexpr int64_t kChunk = 2 * kSquare; // rows and columns of results that are computed together

void AttendEmitter::amxColumns(const TileProduct &p, Value col, int64_t valid, Place panelA, int64_t pitchA, Place panelB, Place results) {
  packB(p, col, valid, panelB, kChunk);
  const int columns = int(squaresOf(valid));
  Value rowCount = p.rowsNeeded ? min(p.rows, p.rowsNeeded(add(col, kChunk))) : p.rows;
  loop(index(0), rowCount, kChunk, [&](Value firstRow) {
    Value alive = min(index(kChunk), sub(rowCount, firstRow));
    auto forVectors = [&](llvm::function_ref<void(Value row, Value inC, Value inResults, int64_t v, int64_t count)> body) {
      loop(index(0), alive, 1, [&](Value i) {
        Value row = add(firstRow, i), inC = add(mul(row, p.cRow), col), inResults = mul(i, kChunk);
        for (int64_t v = 0; v < valid; v += lanes)
          body(row, add(inC, v), add(inResults, v), v, std::min(lanes, valid - v));
      });
    };
    Amx amx(b, loc);
    // Whole squares that are neither scaled nor masked need no scratch: registers are loaded from C and stored there.
    Place inC{p.c.memory, add(p.c.at, add(mul(firstRow, p.cRow), col))};
    Value isWhole;
    auto inPlace = [&](bool may, llvm::function_ref<void()> direct, llvm::function_ref<void()> staged) {
      if (!may || isNarrow(p.c) || valid % kSquare)
        return staged();
      if (!isWhole)
        isWhole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, alive, index(kChunk));
      scf::IfOp::create(
          b, loc, isWhole, [&](OpBuilder &, Location) { direct(), scf::YieldOp::create(b, loc); },
          [&](OpBuilder &, Location) { staged(), scf::YieldOp::create(b, loc); });
    };
    if (p.fresh) {
      amx.zero(2, columns);
    } else {
      inPlace(!p.rowScale.memory, [&] { amx.load(2, columns, inC.memory, inC.at, p.cRow); }, [&] {
        forVectors([&](Value row, Value inC, Value inResults, int64_t, int64_t count) {
          Value start = loadSome(p.c, inC, count, vector);
          storeVector(p.rowScale.memory ? fmul(start, splat(load(p.rowScale, row))) : start, results, inResults);
        });
        amx.load(2, columns, results.memory, results.at, kChunk);
      });
    }
    Value from = index(0), to = p.inner;
    if (p.termsNeeded) // whole blocks
      std::tie(from, to) = p.termsNeeded(firstRow);
    loop(from, to, kBlock, [&](Value term) {
      Value step = arith::DivUIOp::create(b, loc, term, index(2));
      Amx::Operand a{panelA.memory, add(add(panelA.at, mul(firstRow, pitchA)), step), pitchA, kSquare * pitchA};
      Amx::Operand c{panelB.memory, add(panelB.at, mul(step, kChunk)), kChunk, kSquare};
      amx.multiply(2, columns, a, c);
    });
    inPlace(!p.finish, [&] { amx.store(2, columns, inC.memory, inC.at, p.cRow); }, [&] {
      amx.store(2, columns, results.memory, results.at, kChunk);
      forVectors([&](Value row, Value inC, Value inResults, int64_t v, int64_t count) {
        Value result = loadVector(results, inResults);
        if (p.finish)
          result = p.finish(row, add(col, v), result);
        storeSome(result, p.c, inC, count);
      });
    });
  });
}

void AttendEmitter::amxProduct(const TileProduct &p) {
  AttendPanels at(spec, /*amx=*/true);
  Place panelA = panel(at.a), panelB = panel(at.b), results{scratch(panelsAt).memory, index(at.results)};
  packRowsOfA(p, panelA, at.pitchA);
  auto columns = [&](Value col, int64_t valid) { amxColumns(p, col, valid, panelA, at.pitchA, panelB, results); };
  if (p.colCount) { // columns are padded to whole vectors in C
    int64_t width = p.cols % kChunk ? kSquare : kChunk;
    return loop(index(0), p.colCount, width, [&](Value col) { columns(col, width); });
  }
  loop(index(0), index(p.cols / kChunk * kChunk), kChunk, [&](Value col) { columns(col, kChunk); });
  if (p.cols % kChunk)
    columns(index(p.cols / kChunk * kChunk), p.cols % kChunk);
}

} // namespace cinch::kernels
