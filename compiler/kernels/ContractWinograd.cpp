// ContractWinograd.cpp: outputs and images of convolutions by Winograd's minimal filtering. What is computed stands in Winograd.h, in this order for
// every plan.
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Transpose.h"
#include "compiler/kernels/WinogradEmit.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace cinch::kernels {

// A vector of elements that lie so far apart; +0.0 behind the last one alive.
Value ContractEmitter::loadApart(Value memory, Value index, int64_t stride, int64_t lanes, int64_t alive) {
  if (stride == 1)
    return loadVector(memory, index, lanes, alive);
  SmallVector<Value> elements;
  Value zero = emitNumber(builder, loc, elementType(), 0);
  for (int64_t i = 0; i < lanes; ++i)
    elements.push_back(i < alive ? loadScalar(memory, add(index, i * stride)) : zero);
  return vector::FromElementsOp::create(builder, loc, vectorType(lanes), elements);
}

void ContractEmitter::storeApart(Value vector, Value memory, Value index, int64_t stride, int64_t alive) {
  if (stride == 1)
    return storeVector(vector, memory, index, alive);
  for (int64_t i = 0; i < alive; ++i)
    storeScalar(vector::ExtractOp::create(builder, loc, vector, ArrayRef<int64_t>{i}), memory, add(index, i * stride));
}

// ---- The filter ------------------------------------------------------------------------------------------------------------

// 3 x 3 taps, of one channel of the image and a vector of columns, as a step of the 16 panels.
void ContractEmitter::storeTaps(ArrayRef<Value> taps, Value at) {
  const int64_t apart = plan.winograd.channels * plan.nr();
  WinogradEmit axis(builder, loc, emitNumber(builder, loc, vectorType(plan.lanes), 0.5));
  std::array<Value, kWinogradPatch> rows[kWinogradTaps];
  for (int row = 0; row < kWinogradTaps; ++row)
    rows[row] = axis.ofTaps(taps.slice(size_t(row) * kWinogradTaps, kWinogradTaps));
  for (int column = 0; column < kWinogradPatch; ++column) {
    auto u = axis.ofTaps({rows[0][column], rows[1][column], rows[2][column]});
    for (int row = 0; row < kWinogradPatch; ++row)
      storeVector(u[row], scratch, add(at, (row * kWinogradPatch + column) * apart), plan.lanes);
  }
}

// The taps of one channel of the image under `alive` columns from `column` on, where they lie side by side: those of a column are loaded together, and
// squares are turned in registers, so that each tap is a vector of columns.
ContractEmitter::Values ContractEmitter::loadTaps(Value channel, Value column, int64_t alive) {
  constexpr int64_t kTaps = kWinogradTaps * kWinogradTaps, kFew = 2; // so few are loaded one by one
  const WinogradPlan &w = plan.winograd;
  Value source = add(add(mul(column, plan.n.b), plan.b.offset), mul(channel, w.channelB));
  Values inMemory;
  while (int64_t(inMemory.size()) < kTaps) {
    const int64_t first = int64_t(inMemory.size()), count = std::min<int64_t>(plan.lanes, kTaps - first);
    if (count <= kFew) {
      inMemory.push_back(loadApart(memB, add(source, first), plan.n.b, plan.lanes, alive));
      continue;
    }
    Values rows;
    for (int64_t i = 0; i < plan.lanes; ++i)
      rows.push_back(i < alive ? loadVector(memB, add(source, i * plan.n.b + first), plan.lanes, count) : zeros(plan.lanes));
    Values turned = emitTransposed(builder, loc, rows);
    inMemory.append(turned.begin(), turned.begin() + count);
  }
  if (w.columns.tap < 0)
    std::reverse(inMemory.begin(), inMemory.end());
  return inMemory;
}

// A panel of the columns from `column` on.
void ContractEmitter::transformPanel(Value column, Value panel, int64_t columns) {
  const WinogradPlan &w = plan.winograd;
  Value source = add(mul(column, plan.n.b), plan.b.offset + w.rows.firstTap + w.columns.firstTap);
  auto forTaps = [&](llvm::function_ref<void(int64_t)> body) {
    for (int64_t row = 0; row < kWinogradTaps; ++row)
      for (int64_t tap = 0; tap < kWinogradTaps; ++tap)
        body(row * w.rows.tap + tap * w.columns.tap);
  };
  auto oneChannel = [&](Value channel) {
    for (int64_t j = 0; j < columns; j += plan.lanes) {
      if (w.tapsTogether) {
        storeTaps(loadTaps(channel, add(column, j), std::min<int64_t>(plan.lanes, columns - j)), add(add(panel, mul(channel, plan.nr())), j));
        continue;
      }
      Value at = add(add(source, mul(channel, w.channelB)), j * plan.n.b);
      Values taps;
      forTaps([&](int64_t tap) { taps.push_back(loadApart(memB, add(at, tap), plan.n.b, plan.lanes, std::min<int64_t>(plan.lanes, columns - j))); });
      storeTaps(taps, add(add(panel, mul(channel, plan.nr())), j));
    }
  };
  // Where channels of the image are neighbours, squares are turned in registers.
  auto square = [&](Value channel, int64_t j) {
    SmallVector<Values> turned;
    forTaps([&](int64_t tap) {
      Values rows;
      for (int64_t i = 0; i < plan.lanes; ++i)
        rows.push_back(j + i < columns ? loadVector(memB, add(add(source, channel), (j + i) * plan.n.b + tap), plan.lanes, plan.lanes) : zeros(plan.lanes));
      turned.push_back(emitTransposed(builder, loc, rows));
    });
    for (int64_t i = 0; i < plan.lanes; ++i)
      storeTaps(llvm::map_to_vector(turned, [&](Values &tap) { return tap[size_t(i)]; }), add(add(panel, mul(channel, plan.nr())), i * plan.nr() + j));
  };
  const int64_t turned = plan.packB == PackedB::Transpose && !w.tapsTogether ? w.channels / plan.lanes * plan.lanes : 0;
  forLoop(number(0), number(turned), plan.lanes, [&](Value channel) {
    for (int64_t j = 0; j < columns; j += plan.lanes)
      square(channel, j);
  });
  forLoop(number(turned), number(w.channels), 1, oneChannel);
}

void ContractEmitter::transformFilter(Range columns) {
  const int64_t nr = plan.nr(), full = plan.n.size / nr * nr, edge = plan.n.size % nr;
  const int64_t ofColumn = kWinogradProducts * plan.winograd.channels;
  auto panel = [&](Value column, int64_t count) {
    transformPanel(column, add(add(threadScratch, plan.scratchB()), mul(sub(column, columns.first), ofColumn)), count);
  };
  auto last = [&](Value column) { panel(column, edge); };
  forTiles(columns.first, columns.second, nr, full, [&](Value column) { panel(column, nr); }, edge ? Body(last) : Body());
}

// ---- The image -------------------------------------------------------------------------------------------------------------

// Row number `number` of tiles among those of all images. `firstRow`: the number of C's first row in its tile.
ContractEmitter::TileRow ContractEmitter::tileRowAt(Value number, Value firstRow) {
  const WinogradPlan &w = plan.winograd;
  ContractDims images(plan.outerM.begin(), plan.outerM.end() - 1);
  Value image = div(number, w.rows.tiles), row = rem(number, w.rows.tiles);
  TileRow at;
  at.a = add(offsetIn(images, &ContractDim::a, image), plan.a.offset);
  at.c = add(offsetIn(images, &ContractDim::c, image), plan.c.offset);
  at.output = sub(mul(row, int64_t(kWinogradOutputs)), firstRow);
  return at;
}

// A vector of channels of 4 x 4 elements, row by row; +0.0 for what is outside.
ContractEmitter::Values ContractEmitter::loadPatch(Value source, const Patch &patch, int64_t lanes, int64_t alive) {
  const WinogradPlan &w = plan.winograd;
  Values all;
  for (int64_t row = 0; row < kWinogradPatch; ++row) {
    auto load = [&] {
      Values elements;
      for (int64_t column = 0; column < kWinogradPatch; ++column)
        elements.push_back(patch.columnExists[size_t(column)]
                               ? loadApart(memA, add(source, row * w.rows.a + column * w.columns.a), w.channelA, lanes, alive)
                               : zeros(lanes));
      return elements;
    };
    if (patch.rowExists.empty()) {
      llvm::append_range(all, load());
      continue;
    }
    SmallVector<Type> types(kWinogradPatch, vectorType(lanes));
    llvm::append_range(all, choose(patch.rowExists[size_t(row)], types, load, [&] { return Values(kWinogradPatch, zeros(lanes)); }));
  }
  return all;
}

void ContractEmitter::transformPatch(Value source, Value to, const Patch &patch) {
  const WinogradPlan &w = plan.winograd;
  auto some = [&](Value channel, int64_t lanes, int64_t alive) {
    WinogradEmit axis(builder, loc, Value());
    Values d = loadPatch(add(source, mul(channel, w.channelA)), patch, lanes, alive);
    std::array<Value, kWinogradPatch> rows[kWinogradPatch];
    for (int row = 0; row < kWinogradPatch; ++row)
      rows[row] = axis.ofImage(ArrayRef<Value>(d).slice(size_t(row) * kWinogradPatch, kWinogradPatch));
    for (int column = 0; column < kWinogradPatch; ++column) {
      auto v = axis.ofImage({rows[0][column], rows[1][column], rows[2][column], rows[3][column]});
      for (int row = 0; row < kWinogradPatch; ++row)
        storeVector(v[row], scratch, add(add(to, sub(channel, patch.channels.first)), (row * kWinogradPatch + column) * w.imageOfProduct()), alive);
    }
  };
  const int64_t full = w.channels / patch.unit * patch.unit, edge = w.channels % patch.unit;
  auto [first, end] = patch.channels;
  Value wide = add(first, mul(div(sub(end, first), plan.lanes), plan.lanes));
  forLoop(first, wide, plan.lanes, [&](Value channel) { some(channel, plan.lanes, plan.lanes); });
  auto last = [&](Value channel) { some(channel, patch.unit, edge); };
  forTiles(wide, end, patch.unit, full, [&](Value channel) { some(channel, patch.unit, patch.unit); }, edge ? Body(last) : Body());
}

// Some channels of the image under a row of tiles.
void ContractEmitter::transformRow(const TileRow &at, Range channels, int64_t unit, Value to) {
  const WinogradPlan &w = plan.winograd;
  auto columnsOf = [&](int64_t tile) {
    SmallVector<bool, 4> exist;
    for (int64_t j = 0; j < kWinogradPatch; ++j) {
      const int64_t column = w.columns.first + tile * kWinogradOutputs + j;
      exist.push_back(column >= 0 && column < w.columns.image);
    }
    return exist;
  };
  auto isWhole = [&](int64_t tile) { return llvm::all_of(columnsOf(tile), [](bool exists) { return exists; }); };
  int64_t first = 0, last = w.columns.tiles; // whole ones are neighbours
  while (first < last && !isWhole(first))
    ++first;
  while (last > first && !isWhole(last - 1))
    --last;
  Value source = add(add(at.a, mul(at.output, w.rows.a)), w.rows.firstA + w.columns.firstA);
  Patch everywhere, patch;
  everywhere.channels = patch.channels = channels;
  everywhere.unit = patch.unit = unit;
  Value all;
  for (int64_t row = 0; row < kWinogradPatch; ++row) {
    Value here = add(at.output, w.rows.first + row);
    patch.rowExists.push_back(arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, here, number(w.rows.image)));
    all = all ? Value(arith::AndIOp::create(builder, loc, all, patch.rowExists.back())) : patch.rowExists.back();
  }
  auto tiles = [&](Patch patch) {
    auto tileAt = [&](Value tile) { transformPatch(add(source, mul(tile, kWinogradOutputs * w.columns.a)), add(to, mul(tile, w.pitch)), patch); };
    for (int64_t tile = 0; tile < w.columns.tiles; ++tile) {
      patch.columnExists = columnsOf(tile);
      if (tile < first || tile >= last)
        tileAt(number(tile));
    }
    patch.columnExists.assign(kWinogradPatch, true);
    forLoop(number(first), number(last), 1, tileAt);
  };
  ifElse(all, [&] { tiles(everywhere); }, [&] { tiles(patch); });
}

// ---- Products --------------------------------------------------------------------------------------------------------------

// What the 16 sums of a tile make of its outputs, those of them that C has.
void ContractEmitter::putTogether(const TileRow &at, Value tile, Value products, Value column, int64_t columns) {
  const WinogradPlan &w = plan.winograd;
  WinogradEmit axis(builder, loc, Value());
  Value isSecond = w.columns.places % kWinogradOutputs ? less(tile, number(w.columns.tiles - 1)) : Value();
  Value to = add(add(at.c, mul(tile, kWinogradOutputs * w.columns.place)), mul(column, plan.n.c));
  for (int64_t j = 0; j < columns; j += plan.lanes) {
    std::array<Value, kWinogradOutputs> sums[kWinogradPatch];
    for (int row = 0; row < kWinogradPatch; ++row) {
      Values m;
      for (int64_t product = row * kWinogradPatch; product < (row + 1) * kWinogradPatch; ++product)
        m.push_back(loadVector(scratch, add(products, product * w.tileRows * plan.nr() + j), plan.lanes, plan.lanes));
      sums[row] = axis.outputsOf(m);
    }
    for (int second = 0; second < kWinogradOutputs; ++second) {
      auto y = axis.outputsOf({sums[0][second], sums[1][second], sums[2][second], sums[3][second]});
      auto store = [&] {
        for (int row = 0; row < kWinogradOutputs; ++row) {
          Value place = add(at.output, row);
          auto put = [&] {
            storeApart(y[row], memC, add(add(to, mul(place, w.rows.place)), second * w.columns.place + j * plan.n.c), plan.n.c, std::min<int64_t>(plan.lanes, columns - j));
          };
          if (w.firstRow == 0 && !w.movesRows && w.rows.places % kWinogradOutputs == 0)
            put();
          else
            ifThere(arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, place, number(w.rows.places)), put);
        }
      };
      second && isSecond ? ifThere(isSecond, store) : store();
    }
  }
}

// Some of `count` tiles, from number `first` on, under the columns of a panel. `firstOfBlock`: number of the first row of tiles.
void ContractEmitter::winogradTile(Value firstOfBlock, Value first, Value count, Value panel, Value column, int64_t columns, Value firstRow) {
  const WinogradPlan &w = plan.winograd;
  Value products = add(threadScratch, plan.scratchTile());
  Tile tile;
  tile.rows = w.tileRows;
  tile.columns = (columns + plan.lanes - 1) / plan.lanes * plan.lanes;
  tile.memoryA = tile.memoryB = scratch;
  tile.strideMA = w.pitch, tile.strideKA = 1, tile.strideKB = plan.nr();
  forLoop(number(0), number(kWinogradProducts), 1, [&](Value product) {
    tile.a = add(add(threadScratch, mul(product, w.imageOfProduct())), mul(first, w.pitch));
    tile.b = add(panel, mul(product, w.channels * plan.nr()));
    Values chains(size_t(tile.rows * (tile.columns / plan.lanes)), zeros(plan.lanes));
    chains = overRange(number(0), number(w.channels), plan.unroll, chains, [&](Value channel, Values chains) { return multiplySteps(tile, channel, chains); });
    storeAccumulators(tile, chains, scratch, add(products, mul(product, w.tileRows * plan.nr())), plan.nr());
  });
  forLoop(number(0), number(w.tileRows), 1, [&](Value row) {
    Value place = add(first, row);
    auto output = [&] {
      TileRow at = tileRowAt(add(firstOfBlock, div(place, w.columns.tiles)), firstRow);
      putTogether(at, rem(place, w.columns.tiles), add(products, mul(row, plan.nr())), column, columns);
    };
    if (w.columns.tiles >= w.tileRows)
      return output();
    ifThere(less(place, count), output);
  });
}

// The last register tile of a block is as high as the others and reaches back over the one before it.
void ContractEmitter::emitWinograd(Value context, Value thread, Value threads) {
  const WinogradPlan &w = plan.winograd;
  const int64_t nr = plan.nr(), full = plan.n.size / nr * nr, edge = plan.n.size % nr;
  Value firstRow = number(w.firstRow);
  if (w.movesRows) {
    Value position = memref::LoadOp::create(builder, loc, context, number(kFirstPosition));
    firstRow = rem(add(arith::IndexCastOp::create(builder, loc, builder.getIndexType(), position), w.firstRow), kWinogradOutputs);
  }
  Range batches, m, n;
  splitThreads(thread, threads, batches, m, n);
  Value end = min(mul(n.second, nr), plan.n.size);
  auto block = [&](Range columns, Value row) {
    Value rows = min(sub(m.second, row), w.rowsOfTiles), count = mul(rows, w.columns.tiles);
    forLoop(number(0), rows, 1, [&](Value i) {
      transformRow(tileRowAt(add(row, i), firstRow), {number(0), number(w.channels)}, plan.lanes, add(threadScratch, mul(i, w.columns.tiles * w.pitch)));
    });
    Value last = max(sub(count, number(w.tileRows)), number(0));
    auto panelAt = [&](Value column, int64_t size) {
      Value panel = add(add(threadScratch, plan.scratchB()), mul(sub(column, columns.first), kWinogradProducts * w.channels));
      forLoop(number(0), count, w.tileRows, [&](Value first) { winogradTile(row, min(first, last), count, panel, column, size, firstRow); });
    };
    auto lastPanel = [&](Value column) { panelAt(column, edge); };
    forTiles(columns.first, columns.second, nr, full, [&](Value column) { panelAt(column, nr); }, edge ? Body(lastPanel) : Body());
  };
  ifThere(less(m.first, m.second), [&] {
    forLoop(mul(n.first, nr), end, plan.nc, [&](Value column) {
      Range columns = {column, min(add(column, plan.nc), end)};
      transformFilter(columns);
      forLoop(m.first, m.second, w.rowsOfTiles, [&](Value row) { block(columns, row); });
    });
  });
}

} // namespace cinch::kernels
