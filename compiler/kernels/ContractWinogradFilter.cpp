// ContractWinogradFilter.cpp: gradients of filters by Winograd's minimal filtering. What is computed stands in Winograd.h, in this order for every plan.
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/WinogradEmit.h"

using namespace mlir;

namespace cinch::kernels {

// ---- The gradient of the outputs -------------------------------------------------------------------------------------------

// Of a tile that has one row or two, and `places` places in each, under some columns: a step of the 16 panels.
void ContractEmitter::transformPlaces(Value source, Value to, int64_t columns, int64_t places, bool hasSecondRow) {
  const WinogradPlan &w = plan.winograd;
  WinogradEmit axis(builder, loc, Value());
  for (int64_t j = 0; j < columns; j += plan.lanes) {
    std::array<Value, kWinogradPatch> rows[kWinogradOutputs];
    for (int row = 0; row < kWinogradOutputs; ++row) {
      Values y;
      for (int64_t place = 0; place < kWinogradOutputs; ++place) {
        Value at = add(source, row * w.rows.place + place * w.columns.place + j * plan.n.b);
        const bool exists = place < places && (row == 0 || hasSecondRow);
        y.push_back(exists ? loadApart(memB, at, plan.n.b, plan.lanes, std::min<int64_t>(plan.lanes, columns - j)) : zeros(plan.lanes));
      }
      rows[row] = axis.ofGradients(y);
    }
    for (int column = 0; column < kWinogradPatch; ++column) {
      auto z = axis.ofGradients({rows[0][column], rows[1][column]});
      for (int row = 0; row < kWinogradPatch; ++row)
        storeVector(z[row], scratch, add(to, (row * kWinogradPatch + column) * w.depth * plan.nr() + j), plan.lanes);
    }
  }
}

// A row of tiles, of which the first one is number `tile` of those that are summed.
void ContractEmitter::transformGradient(const TileRow &at, Range columns, Value tile) {
  const WinogradPlan &w = plan.winograd;
  const int64_t nr = plan.nr(), full = plan.n.size / nr * nr, edge = plan.n.size % nr;
  Value source = add(at.c, mul(at.output, w.rows.place));
  auto panel = [&](Value column, int64_t count) {
    Value from = add(source, mul(column, plan.n.b));
    Value to = add(add(threadScratch, plan.scratchB()), add(mul(sub(column, columns.first), kWinogradProducts * w.depth), mul(tile, nr)));
    auto tiles = [&](bool hasSecondRow) {
      const int64_t whole = w.columns.places / kWinogradOutputs;
      auto tileAt = [&](Value number, int64_t places) {
        transformPlaces(add(from, mul(number, kWinogradOutputs * w.columns.place)), add(to, mul(number, nr)), count, places, hasSecondRow);
      };
      forLoop(number(0), number(whole), 1, [&](Value number) { tileAt(number, kWinogradOutputs); });
      if (whole < w.columns.tiles)
        tileAt(number(whole), 1);
    };
    if (w.rows.places % kWinogradOutputs == 0)
      return tiles(true);
    ifElse(less(add(at.output, 1), number(w.rows.places)), [&] { tiles(true); }, [&] { tiles(false); });
  };
  auto last = [&](Value column) { panel(column, edge); };
  forTiles(columns.first, columns.second, nr, full, [&](Value column) { panel(column, nr); }, edge ? Body(last) : Body());
}

// ---- Products --------------------------------------------------------------------------------------------------------------

// What 16 sums make of 3 x 3 taps, of one channel of the image and a vector of columns, is added to what is there.
void ContractEmitter::addToFilter(const FilterBlock &block, Value sums, Value c, int64_t alive) {
  const WinogradPlan &w = plan.winograd;
  WinogradEmit axis(builder, loc, emitNumber(builder, loc, vectorType(plan.lanes), 0.5));
  std::array<Value, kWinogradTaps> rows[kWinogradPatch];
  for (int row = 0; row < kWinogradPatch; ++row) {
    Values m;
    for (int64_t product = row * kWinogradPatch; product < (row + 1) * kWinogradPatch; ++product)
      m.push_back(loadVector(scratch, add(sums, product * w.tileRows * plan.nr()), plan.lanes, plan.lanes));
    rows[row] = axis.tapsOf(m);
  }
  for (int column = 0; column < kWinogradTaps; ++column) {
    auto g = axis.tapsOf({rows[0][column], rows[1][column], rows[2][column], rows[3][column]});
    for (int row = 0; row < kWinogradTaps; ++row) {
      Value at = add(c, row * w.rows.tap + column * w.columns.tap);
      Value before = loadApart(memC, at, plan.n.c, plan.lanes, alive);
      if (block.isFirst)
        before = arith::SelectOp::create(builder, loc, block.isFirst, zeros(plan.lanes), before);
      storeApart(arith::AddFOp::create(builder, loc, before, g[row]), memC, at, plan.n.c, alive);
    }
  }
}

// So many channels of the block under the columns of a panel.
void ContractEmitter::filterTile(const FilterBlock &block, Value channel, int64_t count, Value panel, Value column, int64_t columns) {
  const WinogradPlan &w = plan.winograd;
  Value sums = add(threadScratch, plan.scratchTile());
  Tile tile;
  tile.rows = count;
  tile.columns = (columns + plan.lanes - 1) / plan.lanes * plan.lanes;
  tile.memoryA = tile.memoryB = scratch;
  tile.strideMA = 1, tile.strideKA = w.pitch, tile.strideKB = plan.nr();
  forLoop(number(0), number(kWinogradProducts), 1, [&](Value product) {
    tile.a = add(add(threadScratch, mul(product, w.imageOfProduct())), sub(channel, block.channels.first));
    tile.b = add(panel, mul(product, w.depth * plan.nr()));
    Values chains(size_t(tile.rows * (tile.columns / plan.lanes)), zeros(plan.lanes));
    chains = overRange(number(0), block.tiles, plan.unroll, chains, [&](Value step, Values chains) { return multiplySteps(tile, step, chains); });
    storeAccumulators(tile, chains, scratch, add(sums, mul(product, w.tileRows * plan.nr())), plan.nr());
  });
  Value c = add(add(mul(channel, plan.m.c), mul(column, plan.n.c)), plan.c.offset);
  forLoop(number(0), number(count), 1, [&](Value row) {
    for (int64_t j = 0; j < columns; j += plan.lanes)
      addToFilter(block, add(add(sums, mul(row, plan.nr())), j), add(add(c, mul(row, plan.m.c)), j * plan.n.c),
                  std::min<int64_t>(plan.lanes, columns - j));
  });
}

// The rows of tiles of an image that are summed together, from `row` on.
void ContractEmitter::sumTogether(FilterBlock block, Value image, Value row) {
  const WinogradPlan &w = plan.winograd;
  const int64_t nr = plan.nr(), full = plan.n.size / nr * nr, edge = plan.n.size % nr;
  Value rows = w.rows.tiles % w.rowsOfTiles == 0 ? number(w.rowsOfTiles) : min(sub(number(w.rows.tiles), row), w.rowsOfTiles);
  block.tiles = mul(rows, w.columns.tiles);
  if (!plan.accumulate)
    block.isFirst = less(add(image, row), number(1));
  TileRow at;
  at.a = add(offsetIn(plan.outerK, &ContractDim::a, image), plan.a.offset);
  at.c = add(offsetIn(plan.outerK, &ContractDim::b, image), plan.b.offset);
  forLoop(number(0), rows, 1, [&](Value i) {
    at.output = mul(add(row, i), int64_t(kWinogradOutputs));
    Value tile = mul(i, w.columns.tiles);
    transformRow(at, block.channels, plan.mr, add(threadScratch, mul(tile, w.pitch)));
    transformGradient(at, block.columns, tile);
  });
  auto panelAt = [&](Value column, int64_t size) {
    Value panel = add(add(threadScratch, plan.scratchB()), mul(sub(column, block.columns.first), kWinogradProducts * w.depth));
    auto some = [&](Value channel, int64_t count) { filterTile(block, channel, count, panel, column, size); };
    const int64_t fullRows = w.channels / w.tileRows * w.tileRows, edgeRows = w.channels % w.tileRows;
    auto last = [&](Value channel) { some(channel, edgeRows); };
    forTiles(block.channels.first, block.channels.second, w.tileRows, fullRows, [&](Value channel) { some(channel, w.tileRows); },
             edgeRows ? Body(last) : Body());
  };
  auto lastPanel = [&](Value column) { panelAt(column, edge); };
  forTiles(block.columns.first, block.columns.second, nr, full, [&](Value column) { panelAt(column, nr); }, edge ? Body(lastPanel) : Body());
}

// A block of C stays near while all rows of all images are added to it.
void ContractEmitter::emitWinogradOfFilter(Value thread, Value threads) {
  const WinogradPlan &w = plan.winograd;
  Range batches, m, n;
  splitThreads(thread, threads, batches, m, n);
  Value channels = min(mul(m.second, plan.mr), w.channels), columns = min(mul(n.second, plan.nr()), plan.n.size);
  forLoop(mul(m.first, plan.mr), channels, w.pitch, [&](Value channel) {
    forLoop(mul(n.first, plan.nr()), columns, plan.nc, [&](Value column) {
      FilterBlock block{{channel, min(add(channel, w.pitch), channels)}, {column, min(add(column, plan.nc), columns)}, {}, {}};
      forLoop(number(0), number(countOf(plan.outerK)), 1, [&](Value image) {
        forLoop(number(0), number(w.rows.tiles), w.rowsOfTiles, [&](Value row) { sumTogether(block, image, row); });
      });
    });
  });
}

} // namespace cinch::kernels
