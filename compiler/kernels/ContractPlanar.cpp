// ContractPlanar.cpp: bands whose lanes are places, for a C of few columns, such as the gradient of an image of three channels:
//
//     band[row][channel][column] = image[row - rows before it][column - columns before it][channel], or +0.0
//
// A vector is places beside each other, of which a step of k takes one channel at one tap. Chains are those of every other way to
// walk this contraction: taps, then channels, one FMA each.
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace cinch::kernels {

// A row of the image, of which columns [left, end) exist, in squares that are turned in registers.
void ContractEmitter::turnRow(Value source, Value to, int64_t left, int64_t end) {
  const Band &band = plan.band;
  int64_t lanes = plan.lanes, count = end - left;
  auto square = [&](Value channel, Value column, int64_t channels, int64_t columns) {
    SmallVector<Value> rows;
    for (int64_t i = 0; i < lanes; ++i) // behind the end of the row its last column again
      rows.push_back(loadVector(memA, add(add(source, channel), mul(add(column, std::min(i, columns - 1)), band.columnStride)), lanes, channels));
    rows = emitTransposed(builder, loc, rows);
    for (int64_t i = 0; i < channels; ++i)
      storeVector(rows[i], scratch, add(add(to, add(column, left)), mul(add(channel, i), band.columns)), columns);
  };
  auto squaresOf = [&](Value channel, int64_t channels) {
    int64_t full = count / lanes * lanes;
    forLoop(number(0), number(full), lanes, [&](Value column) { square(channel, column, channels, lanes); });
    if (full < count)
      square(channel, number(full), channels, count - full);
  };
  if (band.channels == 1 && band.columnStride == 1) {
    copyForwards(source, add(to, left), count);
  } else {
    int64_t full = band.channels / lanes * lanes;
    forLoop(number(0), number(full), lanes, [&](Value channel) { squaresOf(channel, lanes); });
    if (full < band.channels)
      squaresOf(number(full), band.channels - full);
  }
  forLoop(number(0), number(band.channels), 1, [&](Value channel) {
    Value row = add(to, mul(channel, band.columns));
    fillZeros(row, left);
    fillZeros(add(row, end), band.columns - end);
  });
}

void ContractEmitter::emitPlanar(const Origin &origin, Range rows) {
  int64_t together = plan.band.rowsInTile;
  forBands(rows.first, rows.second, [&](Value outer, Value count) {
    Origin at = origin;
    moveA(at, plan.outerM, outer);
    copyBand(at, count);
    at.c = add(origin.c, offsetIn(plan.outerM, &ContractDim::c, outer));
    Value full = mul(div(count, together), together);
    forLoop(number(0), full, together, [&](Value row) { planarRows(at, row, together); });
    if (together > 1)
      forLoop(full, count, 1, [&](Value row) { planarRows(at, row, 1); });
  });
}

// Tiles of `rows` rows of places, from row `first` of the band on.
void ContractEmitter::planarRows(const Origin &at, Value first, int64_t rows) {
  int64_t lanes = plan.lanes, vectors = (plan.m.size + lanes - 1) / lanes, wide = plan.nv, last = plan.m.size - (vectors - 1) * lanes;
  PlanarTile tile{rows, wide, lanes, {}, at.b, {}};
  Value band = add(threadScratch, plan.band.rowsBefore * plan.band.columns * plan.band.channels + plan.band.columnsBefore), c = at.c;
  if (plan.band.height > 1) {
    band = add(band, mul(first, plan.outerM.back().band));
    c = add(c, mul(first, plan.outerM.back().c));
  }
  auto tileAt = [&](Value vector, int64_t count, int64_t alive) {
    tile.vectors = count, tile.alive = alive;
    tile.band = add(band, mul(vector, lanes));
    tile.c = add(c, mul(vector, lanes * plan.m.c));
    planarTile(tile);
  };
  int64_t edge = vectors % wide, whole = vectors - edge;
  if (edge == 0 && last < lanes)
    edge = wide, whole -= wide;
  forLoop(number(0), number(whole), wide, [&](Value vector) { tileAt(vector, wide, lanes); });
  if (edge)
    tileAt(number(whole), edge, last);
}

// Chains of a tile: for each column of C, for each row of places, its vectors.
void ContractEmitter::planarTile(const PlanarTile &tile) {
  SmallVector<Value> chains;
  auto forChains = [&](llvm::function_ref<void(Value at, int64_t alive)> body) {
    for (int64_t column = 0; column < plan.n.size; ++column)
      for (int64_t row = 0; row < tile.rows; ++row)
        for (int64_t vector = 0; vector < tile.vectors; ++vector) {
          int64_t inC = vector * plan.lanes * plan.m.c + column * plan.n.c + (row ? row * plan.outerM.back().c : 0);
          body(add(tile.c, inC), vector + 1 == tile.vectors ? tile.alive : plan.lanes);
        }
  };
  forChains([&](Value at, int64_t alive) { chains.push_back(plan.accumulate ? placesOfC(at, alive) : zeros(plan.lanes)); });
  chains = planarChains(tile, 0, chains);
  size_t next = 0;
  forChains([&](Value at, int64_t alive) { storePlaces(chains[next++], at, alive); });
}

SmallVector<Value> ContractEmitter::planarChains(const PlanarTile &tile, size_t dim, SmallVector<Value> chains) {
  bool inner = dim == plan.outerK.size();
  const ContractDim &k = inner ? plan.k : plan.outerK[dim];
  int64_t steps = inner ? plan.unroll : 1;
  return overRange(number(0), number(k.size), steps, chains, [&](Value i, Values values) {
    PlanarTile at = tile;
    at.band = add(tile.band, mul(i, k.band));
    at.filter = add(tile.filter, mul(i, k.b));
    if (!inner)
      return planarChains(at, dim + 1, values);
    for (int64_t step = 0; step < steps; ++step) {
      values = planarStep(at, values);
      at.band = add(at.band, k.band);
      at.filter = add(at.filter, k.b);
    }
    return values;
  });
}

SmallVector<Value> ContractEmitter::planarStep(const PlanarTile &tile, ValueRange chains) {
  SmallVector<Value> elements, results(chains);
  for (int64_t column = 0; column < plan.n.size; ++column)
    elements.push_back(vector::BroadcastOp::create(builder, loc, vectorType(plan.lanes), loadScalar(memB, add(tile.filter, column * plan.n.b))));
  int64_t count = tile.rows * tile.vectors;
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = i % tile.vectors * plan.lanes + (i < tile.vectors ? 0 : i / tile.vectors * plan.outerM.back().band);
    Value places = loadVector(scratch, add(tile.band, place), plan.lanes, plan.lanes);
    for (auto [column, element] : llvm::enumerate(elements)) {
      Value &chain = results[size_t(column) * size_t(count) + size_t(i)];
      chain = math::FmaOp::create(builder, loc, places, element, chain);
    }
  }
  return results;
}

Value ContractEmitter::placesOfC(Value at, int64_t alive) {
  if (plan.m.c == 1)
    return loadVector(memC, at, plan.lanes, alive);
  Value values = zeros(plan.lanes);
  for (int64_t lane = 0; lane < alive; ++lane)
    values = vector::InsertOp::create(builder, loc, loadScalar(memC, add(at, lane * plan.m.c)), values, ArrayRef<int64_t>{lane});
  return values;
}

void ContractEmitter::storePlaces(Value values, Value at, int64_t alive) {
  if (plan.m.c == 1)
    return storeVector(values, memC, at, alive);
  for (int64_t lane = 0; lane < alive; ++lane)
    storeScalar(vector::ExtractOp::create(builder, loc, values, ArrayRef<int64_t>{lane}), memC, add(at, lane * plan.m.c));
}

} // namespace cinch::kernels
