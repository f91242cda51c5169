// AttendTensor.cpp: pieces of scores and sums over them by mma.sync, tiles in shared memory (PTX ISA, "Matrix multiply-accumulate").
#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {

TensorAttend::TensorAttend(OpBuilder &builder, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target,
                           int64_t buffers)
    : BlockAttend(builder, module, name, spec, target, buffers),
      unit(spec.hasBias || !(spec.scale > 0) ? 1 : spec.scale * llvm::numbers::log2e),
      groups(attendsByGroups(spec, target)), module(module) {
  warp = div(self, 32);
  Value lane = rem(self, 32);
  group = div(lane, 4), pair = mul(rem(lane, 4), 2);
}

Value TensorAttend::word(Value index) { return b.createOrFold<arith::IndexCastOp>(loc, b.getI64Type(), index); }

Value TensorAttend::addressOf(const Matrix &from, Value element) {
  return simt::at(b, loc, simt::pointerTo(b, loc, from.at.memory, 0), word(mul(add(from.at.at, element), from.bytes())));
}

// ---- Tiles in shared memory --------------------------------------------------------------------------------------------------

TensorAttend::Matrix TensorAttend::matrixOf(Place at, const View &view, int64_t rows, int64_t features) {
  const bool narrow = view.elem == Elem::BF16;
  const int64_t sixteen = narrow ? 8 : 4; // bytes
  bool wide = view.alignment % kWidestAccess == 0 && features % 8 == 0 && view.offset % sixteen == 0;
  for (size_t i = 0; i + 1 < view.strides.size(); ++i)
    wide = wide && view.strides[i] % sixteen == 0;
  return {at, rowStride(view), rows, features, wide, narrow};
}

TensorAttend::Stage TensorAttend::stageOf(const std::string &name, int64_t rows, int64_t features) {
  Stage stage{{}, {}, rows, features};
  stage.memory = sharedMemory(name, rows * stage.pitch(), b.getI16Type());
  stage.pointer = simt::pointerTo(b, loc, stage.memory, 3);
  return stage;
}

TensorAttend::Stage TensorAttend::linesOf(int64_t begin, int64_t rows) {
  Value memory = simt::sharedOfLaunch(b, loc, module);
  // The launch's memory begins behind what the kernel declares, at any multiple of 16 bytes.
  auto number = [&](int64_t n) { return emitInteger(b, loc, b.getI64Type(), n); };
  Value address = LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), memory);
  Value behind = arith::AndIOp::create(b, loc, arith::SubIOp::create(b, loc, number(0), address), number(kLinesAlignment - 1));
  return {{}, simt::at(b, loc, memory, arith::AddIOp::create(b, loc, behind, number(begin))), rows, kLineFeatures, true};
}

Value TensorAttend::addressOf(const Stage &stage) {
  return simt::foundHere(b, loc, LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), stage.pointer));
}

Value TensorAttend::byteAt(const Stage &stage, Value line, Value feature) {
  if (stage.lines) {
    // A tile begins at a multiple of 1024 bytes, so that bits of addresses can be exchanged: of neighbouring eights each takes one operation.
    Value begin = word(add(add(mul(line, 2 * kLineFeatures), mul(rem(line, 8), 16)), mul(rem(feature, 8), 2)));
    Value address = LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), simt::at(b, loc, stage.pointer, begin));
    address = arith::XOrIOp::create(b, loc, address, word(mul(div(feature, 8), 16)));
    return LLVM::IntToPtrOp::create(b, loc, stage.pointer.getType(), address);
  }
  return simt::at(b, loc, stage.pointer, word(mul(add(mul(line, stage.pitch()), feature), 2)));
}

// Eight features, number self + number * threads of the tile.
TensorAttend::Chunk TensorAttend::chunkOf(const Stage &stage, const Matrix &from, Value first, int64_t number) {
  const int64_t across = stage.features / 8, all = stage.rows * across;
  Value place = add(self, number * kAttendThreads);
  Chunk chunk{div(place, across), mul(rem(place, across), 8), {}, {}};
  if (kAttendThreads % across == 0) // all of a thread lie below one another, at constant distances
    chunk.line = add(div(self, across), number * (kAttendThreads / across)), chunk.feature = mul(rem(self, across), 8);
  if ((number + 1) * kAttendThreads > all)
    chunk.inTile = below(place, index(all));
  chunk.valid = chunk.inTile;
  if (from.rows % stage.rows)
    chunk.valid = both(chunk.valid, below(add(first, chunk.line), index(from.rows)));
  if (from.features < stage.features)
    chunk.valid = both(chunk.valid, below(chunk.feature, index(from.features)));
  return chunk;
}

void TensorAttend::bring(const Stage &stage, const Matrix &from, Value first) {
  for (int64_t number = 0; from.wide && number * kAttendThreads < stage.rows * stage.features / 8; ++number) {
    Chunk chunk = chunkOf(stage, from, first, number);
    Value element = add(mul(add(first, chunk.line), from.stride), chunk.feature);
    if (chunk.valid)
      element = select(chunk.valid, element, index(0));
    when(chunk.inTile, [&] { simt::copyLater(b, loc, byteAt(stage, chunk.line, chunk.feature), addressOf(from, element), chunk.valid); });
  }
  if (from.wide)
    return;
  loop(self, index(stage.rows * stage.features), kAttendThreads, [&](Value place) {
    Value line = div(place, stage.features), feature = rem(place, stage.features), row = add(first, line);
    Value valid = both(from.rows % stage.rows ? below(row, index(from.rows)) : Value(),
                       from.features < stage.features ? below(feature, index(from.features)) : Value());
    simt::store(b, loc, half(from, add(mul(row, from.stride), feature), valid), byteAt(stage, line, feature), 2);
  });
}

void TensorAttend::awaitTiles() {
  simt::endOfCopies(b, loc);
  simt::waitForCopies(b, loc, 0);
  if (groups)
    simt::showToProducts(b, loc);
  sync();
}

// ---- Products ----------------------------------------------------------------------------------------------------------------

// One element, as i16: zero where `valid` does not hold.
Value TensorAttend::half(const Matrix &from, Value element, Value valid) {
  return simt::loadOneRounded(b, loc, addressOf(from, valid ? select(valid, element, index(0)) : element), true, valid);
}

// Two neighbouring features as a word.
Value TensorAttend::elements(const Matrix &from, Value row, Value feature) {
  Value there = from.rows % (kWarpRows * kTensorWarps) ? below(row, index(from.rows)) : Value();
  Value line = mul(there ? select(there, row, index(0)) : row, from.stride);
  if (from.wide)
    return simt::loadTwo(b, loc, addressOf(from, add(line, feature)), there);
  Value halves[2];
  for (int64_t e : {0, 1}) {
    Value at = add(feature, e);
    halves[e] = arith::ExtUIOp::create(b, loc, b.getI32Type(), half(from, add(line, at), both(there, below(at, index(from.features)))));
  }
  Value sixteen = arith::ConstantIntOp::create(b, loc, 16, 32);
  return arith::OrIOp::create(b, loc, halves[0], arith::ShLIOp::create(b, loc, halves[1], sixteen));
}

TensorAttend::Values TensorAttend::eightOf(const Matrix &from, Value row, Value feature) {
  Value line = mul(row, from.stride);
  Values numbers;
  if (from.wide) { // all of them are there, or none
    Value there = below(feature, index(from.features)), element = add(line, min(feature, index(from.features - 8)));
    if (from.narrow)
      numbers = simt::widened(b, loc, simt::loadEight(b, loc, addressOf(from, element)));
    else
      for (int64_t half : {0, 4})
        numbers.append(simt::loadNumbers(b, loc, addressOf(from, add(element, half)), 4));
    for (Value &loaded : numbers)
      loaded = select(there, loaded, number(0));
    return numbers;
  }
  for (int64_t e = 0; e < 8; ++e) {
    Value at = add(feature, e), there = below(at, index(from.features));
    if (from.narrow)
      numbers.push_back(simt::widenedOne(b, loc, half(from, add(line, at), there)));
    else
      numbers.push_back(select(there, load(from.at, add(line, min(at, index(from.features - 1)))), number(0)));
  }
  return numbers;
}

SmallVector<TensorAttend::Values> TensorAttend::leftSide(const Matrix &from, Value first, int64_t features) {
  SmallVector<Values> left;
  for (int64_t k = 0; k < features; k += 16) {
    Values four;
    for (int64_t e = 0; e < 4; ++e) { // rows 0 and 8 of features 0, then of features 8
      int64_t feature = k + e / 2 * 8;
      bool beyond = feature >= from.features;
      four.push_back(beyond ? Value(arith::ConstantIntOp::create(b, loc, 0, 32))
                            : elements(from, add(first, add(group, e % 2 * 8)), add(pair, feature)));
    }
    left.push_back(four);
  }
  return left;
}

// Four 8 x 8 of a tile, from row `row` and feature `feature` on, the second one below the first, or to its right.
TensorAttend::Values TensorAttend::fourOf(const Stage &stage, bool below, bool turned, int64_t row, Value feature) {
  Value lane = rem(self, 32), eighth = rem(lane, 8), one = mul(rem(div(lane, 8), 2), 8), two = mul(div(lane, 16), 8);
  Value pointer = byteAt(stage, add(eighth, below ? one : two), add(below ? two : one, feature));
  return simt::loadMatrices(b, loc, simt::at(b, loc, pointer, word(index(row * stage.pitch() * 2))), turned);
}

TensorAttend::Values TensorAttend::products(ArrayRef<Values> left, const Stage &stage) {
  Values sums = zeros(stage.rows / 2);
  for (int64_t row = 0; row < stage.rows; row += 16)
    for (auto [k, a] : llvm::enumerate(left))
      multiply(a, rightSide(stage, row, index(int64_t(k) * 16)), sums.begin() + row / 2);
  return sums;
}

TensorAttend::Values TensorAttend::products(const Stage &left, const Stage &right) {
  Values sums = zeros(right.rows / 2);
  for (int64_t feature = 0; feature < left.features; feature += 16) {
    Values a = leftSide(left, feature);
    for (int64_t row = 0; row < right.rows; row += 16)
      multiply(a, rightSide(right, row, index(feature)), sums.begin() + row / 2);
  }
  return sums;
}

TensorAttend::Stage TensorAttend::linesFrom(Stage stage, Value first) {
  stage.pointer = stage.lines ? simt::at(b, loc, stage.pointer, word(mul(first, 2 * kLineFeatures))) : byteAt(stage, first, index(0));
  return stage;
}

TensorAttend::Values TensorAttend::groupProducts(const Stage &left, const Stage &right, int64_t features) {
  Value a = addressOf(left), c = addressOf(right);
  simt::beginProducts(b, loc);
  Values sums = simt::firstTiles(b, loc, {a, 0, false}, {c, 0, false}, right.rows);
  for (int64_t feature = 16; feature < features; feature += 16)
    sums = simt::multiplyTiles(b, loc, {a, feature * 2, false}, {c, feature * 2, false}, sums);
  simt::endProducts(b, loc);
  return sums;
}

TensorAttend::Values TensorAttend::groupSumUp(const Values &shares, const Stage &stage, int64_t features, const Values &sums) {
  Values registers(ArrayRef<Value>(sums).take_front(size_t(features / 2)));
  const size_t count = registers.size();
  for (size_t place = 0; place < shares.size(); place += 2) // of sixteen rows of the tile: rows 0 and 8 of columns 0, then of columns 8
    registers.push_back(simt::roundedPair(b, loc, shares[place], shares[place + 1]));
  registers = simt::preparedSums(b, loc, registers);
  const Values words(ArrayRef<Value>(registers).drop_front(count));
  registers.truncate(count);
  Value c = addressOf(stage);
  for (int64_t row = 0; row < stage.rows; row += 16)
    registers = simt::multiplyRows(b, loc, ArrayRef<Value>(words).slice(size_t(row / 4), 4), {c, row * 2 * kLineFeatures, true}, registers);
  simt::endProducts(b, loc);
  return registers;
}

TensorAttend::Values TensorAttend::leftSide(const Stage &stage, int64_t feature) {
  return fourOf(stage, true, false, 0, index(feature));
}

// Two neighbouring pieces of sums go on by a left side times both halves of a right side.
void TensorAttend::multiply(ArrayRef<Value> left, ArrayRef<Value> right, Value *sums) {
  for (int64_t half : {0, 1}) {
    Values next = simt::multiplyMatrices(b, loc, left, right.slice(size_t(half) * 2, 2), ArrayRef<Value>(sums + half * 4, 4));
    std::copy(next.begin(), next.end(), sums + half * 4);
  }
}

TensorAttend::Values TensorAttend::turnedSide(const Stage &stage, int64_t row, Value feature) {
  return fourOf(stage, false, true, row, feature);
}

void TensorAttend::multiplyRows(ArrayRef<Value> left, const Stage &stage, int64_t row, Value feature, Value *sums) {
  multiply(left, fourOf(stage, true, true, row, feature), sums);
}

void TensorAttend::storeShares(const Values &shares, const Stage &stage, Value first) {
  for (size_t place = 0; place < shares.size(); place += 2) {
    Value line = add(first, rowOf(int64_t(place) % 4)), column = columnOf(int64_t(place) / 4, 0);
    simt::store(b, loc, simt::roundedPair(b, loc, shares[place], shares[place + 1]), byteAt(stage, line, column), 4);
  }
}

void TensorAttend::sumUp(const Values &shares, const Stage &stage, Value first, int64_t features, Values &sums) {
  for (int64_t row = 0; row < stage.rows; row += 16) {
    Values left; // rows 0 and 8 of columns 0, then of columns 8
    for (int64_t e = 0; e < 8; e += 2)
      left.push_back(simt::roundedPair(b, loc, shares[size_t(row / 2 + e)], shares[size_t(row / 2 + e + 1)]));
    for (int64_t feature = 0; feature < features; feature += 16)
      multiplyRows(left, stage, row, first ? add(first, feature) : index(feature), sums.begin() + feature / 2);
  }
}

// ---- Scores ------------------------------------------------------------------------------------------------------------------

Value TensorAttend::limitOfKeys(Value t0, int64_t queries) {
  return spec.causal ? min(index(std::min(spec.S, spec.T)), add(t0, queries)) : index(spec.S);
}

Value TensorAttend::exp2(Value x) { return simt::exp2(b, loc, x); }

Value TensorAttend::ofQuad(Value value, llvm::function_ref<Value(Value, Value)> join) {
  for (int distance : {1, 2})
    value = join(value, simt::fromBeside(b, loc, value, distance));
  return value;
}

void TensorAttend::finishScores(const Head &head, Values &scores, Value rows, Value columns, bool turned, bool masked) {
  const double log2e = llvm::numbers::log2e;
  for (auto [place, score] : llvm::enumerate(scores)) {
    if (unit != 1)
      break;
    score = fmul(score, number(spec.scale * log2e));
    if (!spec.hasBias)
      continue;
    Value row = add(rows, rowOf(int64_t(place) % 4)), column = add(columns, columnOf(int64_t(place) / 4, int64_t(place) % 4));
    Value t = min(turned ? column : row, index(spec.T - 1)), s = min(turned ? row : column, index(spec.S - 1));
    score = fma(load(head.bias, add(mul(s, spec.bias.strides[2]), mul(t, spec.bias.strides[1]))), number(log2e), score);
  }
  if (masked)
    maskScores(head, scores, rows, columns, turned);
}

Value TensorAttend::plainKeys(Value t0, int64_t step) {
  if (spec.hasKeys)
    return index(0);
  Value all = index(spec.S / step * step);
  return spec.causal ? min(all, mul(div(add(t0, 1), step), step)) : all;
}

TensorAttend::Values TensorAttend::loops(Value from, Value between, Value to, int64_t step, ValueRange init,
                                         llvm::function_ref<Values(Value, ValueRange, bool)> body, bool maskedFirst) {
  Values sums = loop(from, between, step, init, [&](Value at, ValueRange carried) { return body(at, carried, maskedFirst); });
  return loop(between, to, step, sums, [&](Value at, ValueRange carried) { return body(at, carried, !maskedFirst); });
}

// Places are compared as words of 32 bits: how far the lane's first row lies behind its first column, and how many keys there are from its first one.
void TensorAttend::maskScores(const Head &head, Values &scores, Value rows, Value columns, bool turned) {
  auto narrow = [&](Value x) -> Value { return arith::IndexCastOp::create(b, loc, b.getI32Type(), x); };
  auto compare = [&](arith::CmpIPredicate how, Value x, int64_t y) -> Value {
    return arith::CmpIOp::create(b, loc, how, x, arith::ConstantIntOp::create(b, loc, y, 32));
  };
  Value row = add(rows, group), column = add(columns, pair), masked = number(-std::numeric_limits<double>::infinity());
  Value behind = narrow(sub(row, column)), left = narrow(sub(index(spec.S), turned ? row : column));
  for (auto [place, score] : llvm::enumerate(scores)) {
    const int64_t below = int64_t(place) % 4 / 2 * 8, right = int64_t(place) / 4 * 8 + int64_t(place) % 2, ofKey = turned ? below : right;
    Value seen = spec.S % 128 ? compare(arith::CmpIPredicate::sgt, left, ofKey) : Value();
    if (spec.hasKeys) {
      Value s = add(turned ? row : column, ofKey);
      Value byte = load(head.keys, mul(seen ? min(s, index(spec.S - 1)) : s, spec.keys.strides.back()));
      seen = both(seen, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, byte, arith::ConstantIntOp::create(b, loc, 0, 8)));
    }
    if (spec.causal)
      seen = both(seen, compare(turned ? arith::CmpIPredicate::sle : arith::CmpIPredicate::sge, behind, right - below));
    if (seen)
      score = select(seen, score, masked);
  }
}

// ---- Dropout -----------------------------------------------------------------------------------------------------------------

// The keys of a tile may begin within a group of 64 draws. Then a word of two bytes reaches into the next group.
TensorAttend::Draws TensorAttend::tensorDraws(const std::string &name, int64_t queries, int64_t keys) {
  int64_t bytes = ((keys + 63) / 64 + (spec.S % 64 ? 1 : 0)) * 8;
  Draws draws = drawsOf(name, queries, bytes, bytes + (spec.S % 64 ? 8 : 0));
  draws.together = true;
  return draws;
}

Value TensorAttend::keptBits(const Draws &draws, const Head &head, Value firstQuery, Value firstKey, Value query, Value key) {
  const bool straight = spec.S % 64 == 0;
  Value draw = add(rem(straight ? firstKey : firstDrawOf(head, add(firstQuery, query), firstKey), 64), key);
  Value at = add(mul(draws.first ? add(query, draws.first) : query, draws.pitch), add(mul(div(draw, 64), 8), rem(draw, 8)));
  auto byte = [&](Value at) -> Value { return arith::ExtUIOp::create(b, loc, b.getI32Type(), read(draws.memory, at)); };
  Value bits = byte(at);
  if (!straight)
    bits = arith::OrIOp::create(b, loc, bits, arith::ShLIOp::create(b, loc, byte(add(at, 8)), arith::ConstantIntOp::create(b, loc, 8, 32)));
  return arith::ShRUIOp::create(b, loc, bits, arith::IndexCastOp::create(b, loc, b.getI32Type(), rem(div(draw, 8), 8)));
}

Value TensorAttend::isBit(Value bits, int64_t i) {
  Value shifted = arith::ShRUIOp::create(b, loc, bits, arith::ConstantIntOp::create(b, loc, i, 32));
  return arith::TruncIOp::create(b, loc, b.getI1Type(), shifted);
}

TensorAttend::IsKept TensorAttend::keptOfLane(const Draws &draws, const Head &head, Value firstQuery, Value firstKey, int64_t keys) {
  if (spec.dropout <= 0)
    return {};
  SmallVector<Values> drawn;
  for (int64_t e = 0; e < 4; ++e) {
    Value query = add(mul(warp, kWarpRows), rowOf(e));
    if (drawsForItself(keys)) {
      Value group = div(firstDrawOf(head, add(firstQuery, query), firstKey), 64);
      drawn.push_back(keptOfBlock(head, add(mul(group, 8), columnOf(0, e))));
    } else {
      drawn.push_back({keptBits(draws, head, firstQuery, firstKey, query, columnOf(0, e))});
    }
  }
  return [this, drawn, own = drawsForItself(keys)](int64_t piece, int64_t e) {
    return own ? drawn[size_t(e)][size_t(piece)] : isBit(drawn[size_t(e)][0], piece);
  };
}

// ---- Results -----------------------------------------------------------------------------------------------------------------

void TensorAttend::storeRows(const Values &sums, Place to, const View &view, Value first, int64_t total, Value firstFeature, int64_t features,
                             int64_t all, llvm::function_ref<Value(int64_t, Value)> finish) {
  const Matrix matrix = matrixOf(to, view, total, all);
  for (int64_t half : {0, 1}) {
    Value row = add(first, rowOf(half * 2)), there = total % (kWarpRows * kTensorWarps) ? below(row, index(total)) : Value();
    when(there, [&] {
      for (int64_t piece = 0; piece < features / 8; ++piece) {
        Value feature = columnOf(piece, 0), line = mul(row, rowStride(view));
        if (firstFeature)
          feature = add(feature, firstFeature);
        Value pairOfSums[2];
        for (int64_t e : {0, 1})
          pairOfSums[e] = finish(half * 2 + e, sums[size_t(piece * 4 + half * 2 + e)]);
        if (matrix.wide) {
          bool inside = firstFeature ? all % (2 * features) == 0 : (piece + 1) * 8 <= all;
          when(inside ? Value() : below(feature, index(all)),
               [&] { simt::storeNumbers(b, loc, pairOfSums, addressOf(matrix, add(line, feature)), matrix.narrow); });
          continue;
        }
        for (int64_t e : {0, 1})
          when(below(add(feature, e), index(all)),
               [&] { simt::storeNumbers(b, loc, pairOfSums[e], addressOf(matrix, add(line, add(feature, e))), matrix.narrow); });
      }
    });
  }
}

} // namespace cinch::kernels
