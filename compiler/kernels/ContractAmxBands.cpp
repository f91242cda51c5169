// ContractAmxBands.cpp: bands that AMX reads. A register takes 16 rows of 64 bytes from anywhere, so a band holds bf16 in the order of k, and 32
// elements of a block lie together:
//
//     Channels   a place's channels, and behind them those of the place beside it, which is the next tap
//     Padded     a place's channels and zeros, up to whole blocks
//     Windows    for each place of C all taps of a row with their channels, and zeros; a row is copied once for all rows of taps
//     Turned     for each channel all places of a row. The gradient of a filter sums over places, and a tap is a place to begin at
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace cinch::kernels {

static constexpr int64_t kHalves = 32; // of a vector

// `count` elements to the half `to` of scratch. With `filled`, zeros follow up to whole vectors; without, `count` is even.
void ContractEmitter::copyHalves(Value from, Value to, int64_t count, bool filled) {
  auto vectorAt = [&](Value at, int64_t alive) {
    Value values = halvesOf(loadVector(memA, add(from, at), kHalves, alive));
    if (filled || alive == kHalves)
      vector::StoreOp::create(builder, loc, values, halves, ValueRange{add(to, at)});
    else
      vector::MaskedStoreOp::create(builder, loc, halves, ValueRange{add(to, at)}, mask(kHalves, alive), values);
  };
  const int64_t whole = count / kHalves * kHalves;
  forLoop(number(0), number(whole), kHalves, [&](Value at) { vectorAt(at, kHalves); });
  if (whole < count)
    vectorAt(number(whole), count - whole);
}

Value ContractEmitter::zeroHalves() {
  return arith::ConstantOp::create(builder, loc, builder.getZeroAttr(VectorType::get({kHalves}, builder.getI16Type())));
}

// Columns [left, end) of the image's row, of which the first lies at `source`, to the band's row at `to`, in words.
void ContractEmitter::copyPlaces(Value source, Value to, int64_t left, int64_t end) {
  const Band &band = plan.band;
  fillZeros(to, left * band.channels);
  Value first = mul(add(to, left * band.channels), 2);
  if (band.elements == 2 * band.channels && band.columnStride == band.elements)
    copyHalves(source, first, (end - left) * band.elements, /*filled=*/false);
  else
    forLoop(number(0), number(end - left), 1, [&](Value column) {
      copyHalves(add(source, mul(column, band.columnStride)), add(first, mul(column, 2 * band.channels)), band.elements, band.cell == Cell::Padded);
    });
  fillZeros(add(to, end * band.channels), (band.columns - end) * band.channels);
}

// The windows of a row of places. `origin`: where column 0 of the image lies.
void ContractEmitter::copyWindows(Value origin, Value to) {
  const Band &band = plan.band;
  const int64_t channels = band.elements, begin = plan.bounds[band.columnBound].offset, size = plan.bounds[band.columnBound].size;
  auto columnOf = [&](int64_t place, int64_t tap) { return begin + place * band.placeStep + tap * band.tapStep; };
  auto tapsOf = [&](int64_t place) {
    std::vector<bool> there;
    for (int64_t tap = 0; tap < band.taps; ++tap)
      there.push_back(columnOf(place, tap) >= 0 && columnOf(place, tap) < size);
    return there;
  };
  const bool together = band.taps == 1 || (band.tapStep == 1 && band.columnStride == channels);
  // Places beside each other that have the same taps.
  for (int64_t first = 0, last; first < band.columns; first = last) {
    const std::vector<bool> there = tapsOf(first);
    for (last = first + 1; last < band.columns && tapsOf(last) == there;)
      ++last;
    const bool all = std::count(there.begin(), there.end(), true) == band.taps;
    forLoop(number(first), number(last), 1, [&](Value place) {
      Value column = add(mul(place, band.placeStep), begin), target = mul(add(to, mul(place, band.channels)), 2);
      auto tapAt = [&](int64_t tap) { return add(origin, mul(add(column, tap * band.tapStep), band.columnStride)); };
      if (all && together)
        return copyHalves(tapAt(0), target, plan.runLength, /*filled=*/true);
      // A tap ends with zeros, over which the next one is put.
      vector::StoreOp::create(builder, loc, zeroHalves(), halves, ValueRange{add(target, 2 * band.channels - kHalves)});
      for (int64_t tap = 0; tap < band.taps; ++tap) {
        Value at = add(target, tap * channels);
        if (there[size_t(tap)])
          copyHalves(tapAt(tap), at, channels, /*filled=*/true);
        else
          forLoop(number(0), number(channels), kHalves, [&](Value i) { vector::StoreOp::create(builder, loc, zeroHalves(), halves, ValueRange{add(at, i)}); });
      }
    });
  }
}

// A row of the image, of which columns [left, end) exist, for each channel its places: squares of 16 channels and 32 places.
void ContractEmitter::turnHalves(Value source, Value to, int64_t left, int64_t end) {
  const Band &band = plan.band;
  fillZeros(to, band.columns * band.channels / 2);
  end = std::min(end, band.columns - (kHalves - 1)); // no window reaches further
  auto square = [&](Value channel, Value column, int64_t channels, int64_t columns) {
    auto half = [&](int64_t place) -> Value {
      if (place >= columns)
        return arith::ConstantOp::create(builder, loc, builder.getZeroAttr(VectorType::get({kSquare}, builder.getI16Type())));
      return halvesOf(loadVector(memA, add(add(source, channel), mul(add(column, place), band.columnStride)), kSquare, channels));
    };
    SmallVector<Value> rows;
    for (int64_t place = 0; place < kHalves; place += 2)
      rows.push_back(wordsOf(half(place), half(place + 1), kSquare));
    rows = emitTransposed(builder, loc, rows);
    for (int64_t i = 0; i < channels; ++i) {
      Value row = vector::BitCastOp::create(builder, loc, VectorType::get({kHalves}, builder.getI16Type()), rows[i]);
      Value target = add(add(mul(to, 2), add(column, left)), mul(add(channel, i), band.columns));
      vector::StoreOp::create(builder, loc, row, halves, ValueRange{target});
    }
  };
  auto squaresOf = [&](Value channel, int64_t channels) {
    const int64_t count = end - left, full = count / kHalves * kHalves;
    forLoop(number(0), number(full), kHalves, [&](Value column) { square(channel, column, channels, kHalves); });
    if (full < count)
      square(channel, number(full), channels, count - full);
  };
  const int64_t full = band.channels / kSquare * kSquare;
  forLoop(number(0), number(full), kSquare, [&](Value channel) { squaresOf(channel, kSquare); });
  if (full < band.channels)
    squaresOf(number(full), band.channels - full);
}

// All blocks of 32 of this block of k, a run after the other.
void ContractEmitter::bandProducts(const Tile &tile, KBlock block) {
  const int rows = int(squaresOf(tile.rows)), columns = int(squaresOf(tile.columns));
  const int64_t stretches = plan.stretches();
  Value steps = stepsOfRun(block);
  forLoop(number(0), div(block.runs, stretches), 1, [&](Value run) {
    Tile at = atStretch(tile, block, mul(run, stretches), mul(run, steps));
    forLoop(number(0), div(steps, kPairBlock / 2), 1,
            [&](Value block) { Amx(builder, loc).multiply(rows, columns, operandA(at, block), operandB(at, block)); });
  });
}

} // namespace cinch::kernels
