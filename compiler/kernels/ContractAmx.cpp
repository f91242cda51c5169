// ContractAmx.cpp: products of bf16 by AMX (Amx.h).
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <numeric>

using namespace mlir;

namespace cinch::kernels {

// ---- Packing --------------------------------------------------------------------------------------------------------

// Of an A whose rows do not run along k. Where they follow each other in memory, squares of 16 rows and 32 elements are turned in registers.
void ContractEmitter::packRowsOfWords(const Origin &origin, Range m, KBlock block) {
  bool together = plan.m.a == 1 && !plan.m.isBounded();
  int64_t size = together ? kPairBlock : 2;
  int64_t edge = plan.m.size % kSquare, fullEnd = plan.m.size - edge;
  forGroups(block, size, [&](Value step, ArrayRef<Element> elements) {
    if (!together)
      return forLoop(m.first, m.second, 1, [&](Value row) {
        Value low = elementOfA(origin, elements[0], row);
        Value high = elements.size() > 1 ? elementOfA(origin, elements[1], row) : Value(arith::ConstantIntOp::create(builder, loc, 0, 32));
        Value target = add(add(threadScratch, mul(sub(row, m.first), plan.rowPitchA())), step);
        memref::StoreOp::create(builder, loc, word(low, high), words, ValueRange{target});
      });
    auto square = [&](Value row, int64_t rows) {
      SmallVector<Value> steps;
      SmallVector<int64_t> ofRows(kSquare, 0); // what is behind the last row is never stored
      std::iota(ofRows.begin(), ofRows.begin() + rows, 0);
      auto half = [&](size_t i) -> Value {
        if (i >= elements.size())
          return arith::ConstantOp::create(builder, loc, builder.getZeroAttr(VectorType::get({kSquare}, builder.getI16Type())));
        Value values = halfOfA(origin, elements[i], row, rows);
        return vector::ShuffleOp::create(builder, loc, values, values, ofRows);
      };
      for (size_t i = 0; i < size_t(kPairBlock); i += 2)
        steps.push_back(wordsOf(half(i), half(i + 1), kSquare));
      steps = emitTransposed(builder, loc, steps);
      Value target = add(add(threadScratch, mul(sub(row, m.first), plan.rowPitchA())), step);
      for (int64_t i = 0; i < rows; ++i)
        vector::StoreOp::create(builder, loc, steps[i], words, ValueRange{add(target, i * plan.rowPitchA())});
    };
    auto edgeSquare = [&](Value row) { square(row, edge); };
    forTiles(
        m.first, m.second, kSquare, fullEnd, [&](Value row) { square(row, kSquare); }, edge ? Body(edgeSquare) : Body());
  });
  forFillings(block, size, [&](Value step) {
    forLoop(m.first, m.second, 1, [&](Value row) {
      Value target = add(add(threadScratch, mul(sub(row, m.first), plan.rowPitchA())), step);
      memref::StoreOp::create(builder, loc, arith::ConstantIntOp::create(builder, loc, 0, 32), words, ValueRange{target});
    });
  });
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------

// Tiles of whole squares stand in a chain, row by row. So rows of A stay in the first cache under all columns, and C is written in long stretches. Edges
// come behind it.
void ContractEmitter::amxTiles(const Origin &origin, Range m, Range n, KBlock block) {
  const int64_t nr = plan.nr(), mr = plan.mr;
  const int64_t edgeM = plan.m.size % mr, edgeN = plan.n.size % nr;
  const Range rows = wholeTiles(m, plan.m.size, mr), columns = wholeTiles(n, plan.n.size, nr);
  auto tile = [&](Value row, Value column, int64_t rows, int64_t columns) { emitTileAt(origin, m, n, block, row, column, rows, columns); };
  auto forRows = [&](Body body) { forLoop(rows.first, rows.second, mr, body); };
  auto forColumns = [&](Body body) { forLoop(columns.first, columns.second, nr, body); };
  constexpr int64_t kFewTiles = 4; // to find the neighbours of so few takes longer than it saves
  if (plan.bands == Bands::No && Amx::canChain(int(squaresOf(mr)), int(squaresOf(nr))) && (plan.m.size / mr) * (plan.n.size / nr) > kFewTiles)
    chainOfTiles(origin, m, n, block);
  else
    forRows([&](Value row) { forColumns([&](Value column) { tile(row, column, mr, nr); }); });
  const Value endM = number(plan.m.size - edgeM), endN = number(plan.n.size - edgeN);
  if (edgeN)
    ifThere(less(endN, n.second), [&] { forRows([&](Value row) { tile(row, endN, mr, edgeN); }); });
  if (edgeM)
    ifThere(less(endM, m.second), [&] {
      forColumns([&](Value column) { tile(endM, column, edgeM, nr); });
      if (edgeN)
        ifThere(less(endN, n.second), [&] { tile(endM, endN, edgeM, edgeN); });
    });
}

ContractEmitter::Range ContractEmitter::wholeTiles(Range range, int64_t size, int64_t step) {
  return {range.first, min(range.second, size / step * step)};
}

// While a tile is done with its operands, the first ones of the next tile are loaded. So the products go on while results are stored.
void ContractEmitter::chainOfTiles(const Origin &origin, Range m, Range n, KBlock block) {
  const int64_t nr = plan.nr(), mr = plan.mr;
  const Range rows = wholeTiles(m, plan.m.size, mr), columns = wholeTiles(n, plan.n.size, nr);
  auto at = [&](Value row, Value column) { return tileAt(origin, m, n, block, row, column, mr, nr); };
  auto choose = [&](Value condition, Value yes, Value no) -> Value { return arith::SelectOp::create(builder, loc, condition, yes, no); };
  Value any = arith::AndIOp::create(builder, loc, less(rows.first, rows.second), less(columns.first, columns.second));
  ifThere(any, [&] {
    Value lastRow = sub(rows.second, number(mr)), lastColumn = sub(columns.second, number(nr));
    Tile first = at(rows.first, columns.first), last = at(lastRow, lastColumn);
    Amx(builder, loc).fetch(int(squaresOf(mr)), int(squaresOf(nr)), operandA(first, number(0)), operandB(first, number(0)));
    forLoop(rows.first, rows.second, mr, [&](Value row) {
      forLoop(columns.first, columns.second, nr, [&](Value column) {
        Tile tile = at(row, column);
        // The last tile loads operands of its own again, and the first one finds nothing that waits: what it puts down is overwritten by its own results.
        Value within = less(column, lastColumn), below = add(row, mr), above = sub(row, number(mr));
        Value isLast = less(lastRow, below), isFirst = less(above, rows.first);
        Tile next = at(choose(within, row, choose(isLast, row, below)), choose(within, add(column, nr), columns.first));
        tile.nextA = next.a, tile.nextB = next.b, tile.nextC = next.c;
        if (plan.packA == PackedA::No) {
          tile.belowA = at(choose(isLast, row, below), columns.first).a;
          tile.number = div(sub(column, columns.first), nr);
        }
        Value inside = less(columns.first, column);
        Value rowBefore = choose(inside, row, choose(isFirst, row, above));
        Value columnBefore = choose(inside, sub(column, number(nr)), choose(isFirst, column, lastColumn));
        tile.waiting = at(rowBefore, columnBefore).c;
        emitTile(tile, block);
      });
    });
    if (waitsInScratch(block))
      forLoop(number(0), number(mr), 1, [&](Value row) { putDown(last, Staged::Out, last.c, row); });
  });
}

Amx::Operand ContractEmitter::operandA(const Tile &tile, Value at) {
  int64_t unit = tile.memoryA == words ? kPairBlock / 2 : kPairBlock; // elements of its memory in a block of 32
  return {tile.memoryA, add(tile.a, mul(at, unit)), tile.strideMA, plan.band.squareStep ? plan.band.squareStep : kSquare * tile.strideMA};
}

Amx::Operand ContractEmitter::operandB(const Tile &tile, Value at) {
  return {tile.memoryB, add(tile.b, mul(at, kPairBlock / 2 * tile.strideKB)), tile.strideKB, plan.wordsOfB ? 2 * kSquare : kSquare};
}

Value ContractEmitter::blocksOf(KBlock block) {
  if (plan.kc < plan.k.size)
    return div(add(block.length, kPairBlock - 1), kPairBlock);
  return mul(div(block.runs, plan.stretches()), plan.wordsOf(plan.runLength) * 2 / kPairBlock);
}

// Whether the results of a chain's tile wait in scratch until they are rounded and put down beside the next tile's products.
bool ContractEmitter::waitsInScratch(KBlock block) {
  return plan.directC && plan.c.elem == Elem::BF16 && !plan.grained && !plan.accumulate && !block.later && getConstantIntValue(blocksOf(block));
}

// What goes on beside the products of block number `at` of 32: some rows of results that wait are put down, and some lines of the next tile's part of C are
// asked for. All of these lines at once would take every place in which the first cache waits for lines, and operands would wait behind them. They
// come to the second cache, for a place of the first one would be taken for as long as they are on their way.
void ContractEmitter::besideProducts(const Tile &tile, KBlock block, Value at) {
  bool puts = tile.waiting && waitsInScratch(block), asks = tile.nextC && plan.prefetchC;
  if (!puts && !asks)
    return;
  const int64_t blocks = getConstantIntValue(blocksOf(block)).value_or(plan.blockSteps() * 2 / kPairBlock);
  const int64_t rows = (tile.rows + blocks - 1) / blocks;
  for (int64_t i = 0; i < rows; ++i) {
    Value row = add(mul(at, rows), i);
    if (rows * blocks != tile.rows)
      row = min(row, tile.rows - 1);
    if (puts)
      putDown(tile, Staged::Out, tile.waiting, row);
    for (int64_t j = 0; asks && j < tile.columns; j += 64 / bytesOf(plan.c.elem))
      askFor(memC, add(add(tile.nextC, mul(row, plan.m.c)), j), /*toWrite=*/false, /*hint=*/2);
  }
}

// Of an A that is read where it lies, a line of so many rows of the tiles below that a row of tiles has asked for all. Rows lie too far apart for a
// hardware prefetcher.
void ContractEmitter::askForRowsBelow(const Tile &tile, Value at) {
  if (!tile.belowA)
    return;
  const int64_t each = (plan.mr + plan.tilesN() - 1) / plan.tilesN();
  for (int64_t i = 0; i < each; ++i) {
    Value row = min(add(mul(tile.number, each), i), plan.mr - 1);
    askFor(memA, add(add(tile.belowA, mul(row, tile.strideMA)), mul(at, kPairBlock)), /*toWrite=*/false, /*hint=*/2);
  }
}

// All blocks of 32 of this block of k.
void ContractEmitter::amxProducts(const Tile &tile, KBlock block) {
  if (plan.bands != Bands::No)
    return bandProducts(tile, block);
  int rows = int(squaresOf(tile.rows)), columns = int(squaresOf(tile.columns));
  Value blocks = blocksOf(block);
  forLoop(number(0), blocks, 1, [&](Value at) {
    besideProducts(tile, block, at);
    askForRowsBelow(tile, at);
    if (!tile.nextA)
      return Amx(builder, loc).multiply(rows, columns, operandA(tile, at), operandB(tile, at));
    Value following = add(at, 1), goesOn = less(following, blocks);
    Amx::Operand a = operandA(tile, following), b = operandB(tile, following);
    a.index = arith::SelectOp::create(builder, loc, goesOn, a.index, tile.nextA);
    b.index = arith::SelectOp::create(builder, loc, goesOn, b.index, tile.nextB);
    Amx(builder, loc).multiplyAndFetch(rows, columns, a, b);
  });
}

// Between C and the tile in scratch, or that tile added to C.
void ContractEmitter::stageC(const Tile &tile, Staged way) {
  forLoop(number(0), number(tile.rows), 1, [&](Value row) { putDown(tile, way, tile.c, row); });
}

// A row of it. `c`: where the tile's part of C begins.
void ContractEmitter::putDown(const Tile &tile, Staged way, Value c, Value row) {
  Value inC = add(c, mul(row, plan.m.c)), inTile = add(add(threadScratch, plan.scratchTile()), mul(row, plan.nr()));
  if (!plan.directC) {
    forLoop(number(0), number(tile.columns), 1, [&](Value j) {
      Value c = add(inC, mul(j, plan.n.c)), t = add(inTile, j);
      if (way == Staged::In)
        return storeScalar(loadScalar(memC, c), scratch, t);
      Value value = loadScalar(scratch, t);
      if (way == Staged::Added)
        value = arith::AddFOp::create(builder, loc, loadScalar(memC, c), value);
      storeScalar(value, memC, c);
    });
    return;
  }
  for (int64_t j = 0; j < tile.columns; j += plan.lanes) {
    Value c = add(inC, j), t = add(inTile, j);
    int64_t alive = tile.columns - j;
    if (way == Staged::Out && plan.c.elem == Elem::BF16 && alive >= 2 * plan.lanes) {
      Value low = loadVector(scratch, t, plan.lanes, plan.lanes), high = loadVector(scratch, add(t, plan.lanes), plan.lanes, plan.lanes);
      vector::StoreOp::create(builder, loc, Amx(builder, loc).narrowed(low, high), memC, ValueRange{c});
      j += plan.lanes;
      continue;
    }
    if (way == Staged::In) {
      storeVector(loadVector(memC, c, plan.lanes, alive), scratch, t, plan.lanes);
      continue;
    }
    Value value = loadVector(scratch, t, plan.lanes, plan.lanes);
    if (way == Staged::Added)
      value = arith::AddFOp::create(builder, loc, loadVector(memC, c, plan.lanes, alive), value);
    storeVector(value, memC, c, alive);
  }
}

// A tile whose squares are whole, of f32 that lie as in C, is loaded from C and stored there; all others go through the tile in scratch.
void ContractEmitter::amxTile(const Tile &tile, KBlock block) {
  int rows = int(squaresOf(tile.rows)), columns = int(squaresOf(tile.columns));
  bool inPlace = plan.directC && plan.c.elem == Elem::F32 && !plan.grained && tile.rows % kSquare == 0 && tile.columns % kSquare == 0;
  Value staging = add(threadScratch, plan.scratchTile());
  Amx amx(builder, loc);
  auto fresh = [&] { amx.zero(rows, columns); };
  auto fromC = [&] {
    if (inPlace)
      return amx.load(rows, columns, memC, tile.c, plan.m.c);
    stageC(tile, Staged::In);
    amx.load(rows, columns, scratch, staging, plan.nr());
  };
  auto fromSums = [&] { amx.load(rows, columns, scratch, tile.sums, plan.nr()); };
  if (plan.accumulate && !plan.grained)
    fromC();
  else if (!block.later)
    fresh();
  else
    ifElse(block.later, [&] { plan.grained ? fromSums() : fromC(); }, fresh);

  amxProducts(tile, block);

  auto toC = [&](Staged way) {
    if (inPlace)
      return amx.store(rows, columns, memC, tile.c, plan.m.c);
    amx.store(rows, columns, scratch, staging, plan.nr());
    if (!tile.waiting || !waitsInScratch(block))
      stageC(tile, way);
  };
  if (!plan.grained)
    return toC(Staged::Out);
  if (!block.last)
    return toC(Staged::Added);
  ifElse(block.last, [&] { toC(Staged::Added); }, [&] { amx.store(rows, columns, scratch, tile.sums, plan.nr()); });
}

} // namespace cinch::kernels
