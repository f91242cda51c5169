// ContractTile.cpp: the register tile. Its accumulators are the chains of the contraction: they start from +0.0, or
// from what C holds, and take one FMA a step of k, in order. A grained chain starts from +0.0 in each of its blocks.
#include "compiler/kernels/ContractEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace cinch::kernels {

SmallVector<Value> ContractEmitter::loadAccumulators(const Tile &tile, Value memory, Value index, int64_t pitch) {
  SmallVector<Value> values;
  for (int64_t i = 0; i < tile.rows; ++i) {
    for (int64_t j = 0; j < tile.columns; j += plan.lanes)
      values.push_back(loadVector(memory, add(index, i * pitch + j), plan.lanes, tile.columns - j));
  }
  return values;
}

// How far a row's elements of A lie behind those of the first row.
int64_t ContractEmitter::rowOfA(const Tile &tile, int64_t row) {
  if (!plan.rowsInTile)
    return row * tile.strideMA;
  int64_t inner = plan.rows.back().size;
  return row / inner * plan.rows[0].band + row % inner * plan.rows.back().band;
}

// Rows of B that are read in place may be pages apart: no CPU foresees them by itself, and all of them share a few sets of the first cache, where what is
// fetched early pushes out what comes before it. So a row comes to the second cache early and to the first one late (measured on Zen 5, 16 rows
// of A beside oneDNN: 0.96 of its speed; all to the first cache 16 steps ahead: 0.87).
void ContractEmitter::prefetchRowsOfB(const Tile &tile, Value at) {
  constexpr int64_t kFirst = 3, kSecond = 32; // steps
  for (int64_t j = 0; j < tile.columns; j += 64 / plan.bytes) {
    askFor(tile.memoryB, add(add(at, kFirst * tile.strideKB), j));
    askFor(tile.memoryB, add(add(at, kSecond * tile.strideKB), j), /*toWrite=*/false, /*hint=*/2);
  }
}

// One step: every row's element of A, broadcast, times the step's vectors of B.
SmallVector<Value> ContractEmitter::multiply(const Tile &tile, Value k, ValueRange accumulators) {
  if (plan.dots)
    return multiplyWords(tile, k, accumulators);
  SmallVector<Value> columns, results;
  Value at = add(tile.b, mul(k, tile.strideKB));
  for (int64_t j = 0; j < tile.columns; j += plan.lanes) {
    bool packed = plan.packB != PackedB::No;
    columns.push_back(loadVector(tile.memoryB, add(at, j), plan.lanes, packed ? plan.lanes : tile.columns - j));
  }
  if (plan.prefetchB)
    prefetchRowsOfB(tile, at);
  Value row = add(tile.a, offsetOfStep(tile, k));
  size_t next = 0;
  for (int64_t i = 0; i < tile.rows; ++i) {
    Value element = loadScalar(tile.memoryA, add(row, rowOfA(tile, i)));
    Value broadcast = vector::BroadcastOp::create(builder, loc, vectorType(plan.lanes), element);
    for (Value column : columns)
      results.push_back(math::FmaOp::create(builder, loc, broadcast, column, accumulators[next++]));
  }
  return results;
}

// The steps of one trip of a loop over k. The place of its first step is computed once, and the others lie a constant behind it, which the
// instructions of a CPU add for nothing. If each step multiplied its own k, LLVM would not always see that.
ContractEmitter::Values ContractEmitter::multiplySteps(const Tile &tile, Value k, Values accumulators) {
  Tile first = tile;
  first.a = add(tile.a, mul(k, tile.strideKA));
  first.b = add(tile.b, mul(k, tile.strideKB));
  for (int step = 0; step < plan.unroll; ++step)
    accumulators = multiply(first, number(step), accumulators);
  return accumulators;
}

// Between C, where it has no contiguous direction, and the tile in scratch.
void ContractEmitter::copyTile(const Tile &tile, bool toC) {
  Value base = add(threadScratch, plan.scratchTile());
  forLoop(number(0), number(tile.rows), 1, [&](Value i) {
    forLoop(number(0), number(tile.columns), 1, [&](Value j) {
      Value inC = add(add(tile.c, mul(i, plan.m.c)), mul(j, plan.n.c));
      Value inTile = add(add(base, mul(i, plan.nr())), j);
      if (toC)
        storeScalar(loadScalar(scratch, inTile), memC, inC);
      else
        storeScalar(loadScalar(memC, inC), scratch, inTile);
    });
  });
}

// Asks for the lines of C that the tile below will need, while this one computes.
void ContractEmitter::prefetchBelow(const Tile &tile) {
  Value below = add(tile.c, plan.mr * plan.m.c);
  for (int64_t i = 0; i < tile.rows; ++i) {
    for (int64_t j = 0; j < tile.columns; j += 64 / bytesOf(plan.c.elem))
      memref::PrefetchOp::create(builder, loc, memC, add(below, i * plan.m.c + j), /*isWrite=*/true,
                                 /*localityHint=*/3, /*isDataCache=*/true);
  }
}

SmallVector<Value> ContractEmitter::loadC(const Tile &tile) {
  if (plan.directC)
    return loadAccumulators(tile, memC, tile.c, plan.m.c);
  copyTile(tile, /*toC=*/false);
  return loadAccumulators(tile, scratch, add(threadScratch, plan.scratchTile()), plan.nr());
}

void ContractEmitter::storeAccumulators(const Tile &tile, ValueRange values, Value memory, Value index,
                                        int64_t pitch) {
  size_t next = 0;
  for (int64_t i = 0; i < tile.rows; ++i) {
    for (int64_t j = 0; j < tile.columns; j += plan.lanes)
      storeVector(values[next++], memory, add(index, i * pitch + j), tile.columns - j);
  }
}

void ContractEmitter::storeC(const Tile &tile, ValueRange values) {
  if (plan.directC)
    return storeAccumulators(tile, values, memC, tile.c, plan.m.c);
  storeAccumulators(tile, values, scratch, add(threadScratch, plan.scratchTile()), plan.nr());
  copyTile(tile, /*toC=*/true);
}

// Where the chains stand before this block of k.
SmallVector<Value> ContractEmitter::firstAccumulators(const Tile &tile, KBlock block) {
  if (plan.accumulate && !plan.grained)
    return loadC(tile);
  int64_t count = tile.rows * ((tile.columns + plan.lanes - 1) / plan.lanes);
  SmallVector<Value> fresh(count, zeros(plan.lanes));
  if (!block.later)
    return fresh;
  SmallVector<Type> types(count, vectorType(plan.lanes));
  auto branch = scf::IfOp::create(builder, loc, types, block.later, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(builder, loc,
                       plan.grained ? loadAccumulators(tile, scratch, tile.sums, plan.nr()) : loadC(tile));
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, loc, fresh);
  return SmallVector<Value>(branch.getResults());
}

// The end of a grained block is added to C; what is not at its end waits in scratch.
void ContractEmitter::finishTile(const Tile &tile, KBlock block, ValueRange accumulators) {
  if (!plan.grained)
    return storeC(tile, accumulators);
  auto addToC = [&] {
    SmallVector<Value> sums = loadC(tile);
    for (auto [sum, value] : llvm::zip_equal(sums, accumulators))
      sum = arith::AddFOp::create(builder, loc, sum, value);
    storeC(tile, sums);
  };
  if (!block.last)
    return addToC();
  auto branch = scf::IfOp::create(builder, loc, block.last, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  addToC();
  builder.setInsertionPointToStart(branch.elseBlock());
  storeAccumulators(tile, accumulators, scratch, tile.sums, plan.nr());
}

void ContractEmitter::emitTile(const Tile &tile, KBlock block) {
  if (plan.amx)
    return amxTile(tile, block);
  SmallVector<Value> accumulators = firstAccumulators(tile, block);
  if (plan.prefetchC && tile.rows == plan.mr)
    prefetchBelow(tile);
  if (plan.inOrder)
    return finishTile(tile, block, chainInOrder(tile, block, accumulators));
  if (plan.pairs)
    return finishTile(tile, block, pairChains(tile, block, accumulators));
  if (plan.bands != Bands::No)
    return finishTile(tile, block, bandChains(tile, block, accumulators));
  if (plan.sparesPlaces)
    return finishTile(tile, block, placesOfTile(tile, block, accumulators));
  if (plan.skipsOutside())
    return finishTile(tile, block, runsOfTile(tile, block, accumulators));
  finishTile(tile, block, overRange(number(0), block.total, plan.unroll, accumulators,
                                    [&](Value k, Values values) { return multiplySteps(tile, k, values); }));
}

} // namespace cinch::kernels
