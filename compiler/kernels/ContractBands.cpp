// ContractBands.cpp: A as an image of which a band of rows lies in scratch, with zeros where the image ends:
//
//     band[row][column][channel] = image[row - rows before it][column - columns before it][channel], or +0.0
//
// A row of taps is one stretch of it, wherever a window lies. Copying computes nothing. Where steps of k are words (ContractWords.cpp) the band
// holds those. Along channels a group of four is two words, wherever it begins. Along places each channel of each place is a word with that
// of the second place behind it, so that words begin at any tap.
#include "compiler/kernels/ContractEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/bit.h"

using namespace mlir;

namespace cinch::kernels {

void ContractEmitter::fillZeros(Value to, int64_t count) {
  int64_t full = count / plan.lanes * plan.lanes;
  forLoop(number(0), number(full), plan.lanes, [&](Value at) { storeVector(zeros(plan.lanes), scratch, add(to, at), plan.lanes); });
  if (full < count)
    storeVector(zeros(plan.lanes), scratch, add(to, full), count - full);
}

void ContractEmitter::copyForwards(Value from, Value to, int64_t count) {
  int64_t full = count / plan.lanes * plan.lanes, lanes = plan.lanes;
  forLoop(number(0), number(full), lanes,
          [&](Value at) { storeVector(loadVector(memA, add(from, at), lanes, lanes), scratch, add(to, at), lanes); });
  if (full < count)
    storeVector(loadVector(memA, add(from, full), lanes, count - full), scratch, add(to, full), count - full);
}

// As words of two channels each.
void ContractEmitter::copyWords(Value from, Value to, int64_t count) {
  auto copy = [&](Value at, int64_t size) {
    Value row = halvesOf(loadVector(memA, add(from, at), size, size));
    vector::StoreOp::create(builder, loc, vector::ShuffleOp::create(builder, loc, row, row, orderOfHalves(size)), halves, ValueRange{add(mul(to, 2), at)});
  };
  const int64_t whole = 2 * plan.lanes;
  int64_t full = count / whole * whole;
  forLoop(number(0), number(full), whole, [&](Value at) { copy(at, whole); });
  for (int64_t size; full < count; full += size) {
    size = int64_t(llvm::bit_floor(uint64_t(count - full)));
    copy(number(full), size);
  }
}

// A row of words along places; the image has its columns [left, end), of which the first lies at `source`.
void ContractEmitter::copyNeighbours(Value source, Value to, int64_t left, int64_t end) {
  const Band &band = plan.band;
  std::vector<int64_t> borders{0, band.columns};
  for (int64_t border : {left, end, left - band.apart, end - band.apart})
    borders.push_back(std::clamp<int64_t>(border, 0, band.columns));
  std::sort(borders.begin(), borders.end());
  auto zero = [&]() -> Value {
    auto type = VectorType::get({plan.lanes}, builder.getI16Type());
    return arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  };
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const int64_t first = borders[i], last = borders[i + 1];
    if (first == last)
      continue;
    auto exists = [&](int64_t column) { return column >= left && column < end; };
    const bool high = exists(first), low = exists(first + band.apart);
    forLoop(number(first), number(last), 1, [&](Value column) {
      Value here = add(source, mul(sub(column, number(left)), band.columnStride)), target = add(to, mul(column, band.channels));
      auto words16 = [&](Value channel, int64_t alive) {
        auto half = [&](bool is, Value at) { return is ? halvesOf(loadVector(memA, add(at, channel), plan.lanes, alive)) : zero(); };
        Value both = wordsOf(half(low, add(here, band.apart * band.columnStride)), half(high, here), plan.lanes);
        if (alive == plan.lanes)
          vector::StoreOp::create(builder, loc, both, words, ValueRange{add(target, channel)});
        else
          vector::MaskedStoreOp::create(builder, loc, words, ValueRange{add(target, channel)}, mask(plan.lanes, alive), both);
      };
      int64_t full = band.channels / plan.lanes * plan.lanes;
      forLoop(number(0), number(full), plan.lanes, [&](Value channel) { words16(channel, plan.lanes); });
      if (full < band.channels)
        words16(number(full), band.channels - full);
    });
  }
}

// The rows of the image that `rows` rows of places need. `at`: their first place and its first tap.
void ContractEmitter::copyBand(const Origin &at, Value rows) {
  const Band &band = plan.band;
  int64_t rowElems = band.columns * band.channels;
  // No loop around moves along columns: how much of a row exists is known.
  int64_t firstColumn = plan.bounds[band.columnBound].offset - band.columnsBefore;
  int64_t left = std::clamp<int64_t>(-firstColumn, 0, band.columns);
  int64_t end = std::clamp<int64_t>(plan.bounds[band.columnBound].size - firstColumn, left, band.columns);
  Value from = add(at.a, (firstColumn + left - plan.bounds[band.columnBound].offset) * band.columnStride - band.rowsBefore * band.rowStride);
  Value zeroColumn = add(at.a, -plan.bounds[band.columnBound].offset * band.columnStride - band.rowsBefore * band.rowStride);
  Value count = add(mul(sub(rows, number(1)), band.rowStep), band.reach + 1);
  forLoop(number(0), count, 1, [&](Value row) {
    Value to = add(threadScratch, mul(row, band.cell == Cell::Turned ? rowElems / 2 : rowElems));
    auto copyRow = [&] {
      Value source = add(from, mul(row, band.rowStride));
      if (plan.bands == Bands::Planar)
        return turnRow(source, to, left, end);
      if (band.cell == Cell::Places)
        return copyNeighbours(source, to, left, end);
      if (band.cell == Cell::Turned)
        return turnHalves(source, to, left, end);
      if (band.cell == Cell::Windows)
        return copyWindows(add(zeroColumn, mul(row, band.rowStride)), to);
      if (plan.amx)
        return copyPlaces(source, to, left, end);
      const int64_t perCell = band.cell == Cell::Channels ? 2 : 1;
      auto copy = [&](Value from, Value to, int64_t columns) {
        const int64_t elements = columns * band.channels * perCell;
        return perCell == 2 ? copyWords(from, to, elements) : copyForwards(from, to, elements);
      };
      fillZeros(to, left * band.channels);
      if (band.columnStride == band.channels * perCell)
        copy(source, add(to, left * band.channels), end - left);
      else
        forLoop(number(left), number(end), 1, [&](Value column) {
          copy(add(source, mul(sub(column, number(left)), band.columnStride)), add(to, mul(column, band.channels)), 1);
        });
      fillZeros(add(to, end * band.channels), (band.columns - end) * band.channels);
    };
    if (band.rowBound < 0)
      return copyRow();
    Value here = add(sub(at.bound[band.rowBound], number(band.rowsBefore)), row);
    Value exists = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, here, number(plan.bounds[band.rowBound].size));
    ifElse(exists, copyRow, [&] { fillZeros(to, band.cell == Cell::Turned ? rowElems / 2 : rowElems); });
  });
}

// Rows of C are places of the image: a band of them after the other, each under all columns of C of this block.
void ContractEmitter::emitBands(const Origin &origin, Range n, Range mUnits, KBlock block) {
  int64_t height = plan.band.height, units = (plan.m.size + plan.mr - 1) / plan.mr;
  int64_t nr = plan.nr(), fullN = plan.n.size / nr * nr, edgeN = plan.n.size % nr;
  int64_t fullM = plan.m.size / plan.mr * plan.mr, edgeM = plan.m.size % plan.mr;
  Value first = div(mUnits.first, units), last = div(add(mUnits.second, units - 1), units);
  auto rowOfPlaces = [&](Origin at, Range m, Value column, int64_t columns) {
    auto tileAt = [&](Value row, int64_t rows) { emitTileAt(at, m, n, block, row, column, rows, columns); };
    auto edge = [&](Value row) { tileAt(row, edgeM); };
    forTiles(m.first, m.second, plan.mr, fullM, [&](Value row) { tileAt(row, plan.mr); }, edgeM ? Body(edge) : Body());
  };
  auto bandAt = [&](Value outer, Value rows) {
    Origin at = origin;
    moveA(at, plan.outerM, outer);
    copyBand(at, rows);
    auto columnAt = [&](Value column, int64_t columns) {
      forLoop(number(0), rows, 1, [&](Value row) {
        Origin ofRow = at;
        Value number = add(outer, row);
        ofRow.c = add(origin.c, offsetIn(plan.outerM, &ContractDim::c, number));
        if (height > 1)
          ofRow.band = mul(row, plan.outerM.back().band);
        if (plan.band.rowBound >= 0)
          ofRow.bound[plan.band.rowBound] = add(at.bound[plan.band.rowBound], mul(row, plan.band.rowStep));
        rowOfPlaces(ofRow, innerRange(mUnits, number, units, plan.mr, plan.m.size), column, columns);
      });
    };
    auto edge = [&](Value column) { columnAt(column, edgeN); };
    forTiles(n.first, n.second, nr, fullN, [&](Value column) { columnAt(column, nr); }, edgeN ? Body(edge) : Body());
  };
  forBands(first, last, bandAt);
}

// Rows [first, last) of places in bands: `body` has the number of the first row, and how many there are.
void ContractEmitter::forBands(Value first, Value last, llvm::function_ref<void(Value, Value)> body) {
  int64_t height = plan.band.height;
  forLoop(div(first, height), div(add(last, height - 1), height), 1, [&](Value image) {
    Value start = mul(image, height);
    Value from = max(sub(first, start), number(0)), to = min(sub(last, start), height);
    forLoop(from, to, plan.band.rows, [&](Value row) { body(add(start, row), min(sub(to, row), plan.band.rows)); });
  });
}

// Where the stretch number `run` of a block lies, in the band and in the panel of B.
ContractEmitter::Tile ContractEmitter::atStretch(const Tile &tile, KBlock block, Value run, Value panelSteps) {
  Tile at = tile;
  if (plan.bands != Bands::OfK)
    at.a = add(tile.a, offsetIn(plan.outerK, &ContractDim::band, add(block.firstRun, run)));
  else if (plan.band.height > 1)
    at.a = add(tile.a, mul(run, plan.outerK.back().band));
  at.b = add(tile.b, mul(panelSteps, tile.strideKB));
  return at;
}

// Pairs: where step number `step` of a run lies, behind its first one.
Value ContractEmitter::stepInBand(Value step) {
  const bool ofChannels = plan.band.cell == Cell::Channels;
  if (plan.band.cell == Cell::Places) // the first element of a word
    step = add(mul(div(step, 2), 4), rem(step, 2));
  const int64_t length = ofChannels ? plan.k.size / 2 : plan.k.size; // of a stretch
  if (plan.stretches() == 1)
    return mul(step, plan.k.band);
  return add(mul(div(step, length), plan.outerK.back().band), mul(rem(step, length), plan.k.band));
}

// A stretch of k after the other.
ContractEmitter::Values ContractEmitter::bandChains(const Tile &tile, KBlock block, Values accumulators) {
  return overRange(number(0), block.runs, 1, accumulators, [&](Value run, Values values) {
    Tile at = atStretch(tile, block, run, mul(run, block.length));
    auto steps = [&](Value k, Values values) { return multiplySteps(at, k, values); };
    return unlessOutside(at, block, run, values, [&](Values values) {
      return plan.kc == plan.unroll ? steps(number(0), values) : overRange(number(0), block.length, plan.unroll, values, steps);
    });
  });
}

} // namespace cinch::kernels
