// ContractAmx.cpp: products of bf16 by AMX (Amx.h).
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
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

// All blocks of 32 of this block of k.
void ContractEmitter::amxProducts(const Tile &tile, KBlock block) {
  int rows = int(squaresOf(tile.rows)), columns = int(squaresOf(tile.columns));
  Value blocks = plan.kc < plan.k.size ? div(add(block.length, kPairBlock - 1), kPairBlock)
                                       : mul(div(block.runs, plan.stretches()), plan.wordsOf(plan.runLength) * 2 / kPairBlock);
  int64_t unitA = tile.memoryA == words ? kPairBlock / 2 : kPairBlock; // elements of its memory in a block of 32
  forLoop(number(0), blocks, 1, [&](Value at) {
    Amx::Operand a{tile.memoryA, add(tile.a, mul(at, unitA)), tile.strideMA, kSquare * tile.strideMA};
    Amx::Operand b{tile.memoryB, add(tile.b, mul(at, kPairBlock / 2 * tile.strideKB)), tile.strideKB, kSquare};
    Amx(builder, loc).multiply(rows, columns, a, b);
  });
}

// Between C and the tile in scratch, or that tile added to C.
void ContractEmitter::stageC(const Tile &tile, Staged way) {
  Value staging = add(threadScratch, plan.scratchTile());
  forLoop(number(0), number(tile.rows), 1, [&](Value i) {
    Value inC = add(tile.c, mul(i, plan.m.c)), inTile = add(staging, mul(i, plan.nr()));
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
  });
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

  if (plan.prefetchC && tile.rows == plan.mr)
    prefetchBelow(tile);
  amxProducts(tile, block);

  auto toC = [&](Staged way) {
    if (inPlace)
      return amx.store(rows, columns, memC, tile.c, plan.m.c);
    amx.store(rows, columns, scratch, staging, plan.nr());
    stageC(tile, way);
  };
  if (!plan.grained)
    return toC(Staged::Out);
  if (!block.last)
    return toC(Staged::Added);
  ifElse(block.last, [&] { toC(Staged::Added); }, [&] { amx.store(rows, columns, scratch, tile.sums, plan.nr()); });
}

} // namespace cinch::kernels
