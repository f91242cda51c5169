// Philox.cpp: the generator on 64-bit lanes.
//
// Every 32-bit word lies in an i64 lane whose upper half may hold anything: the multiplication masks it away, which is
// free (vpmuludq reads the low halves only), and high words come from one shift. No shuffle is needed on any vector
// width.
#include "compiler/kernels/Philox.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/solve/Bytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include <array>
#include <cmath>

using namespace mlir;

namespace cinch::kernels {
namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kRowGroup = 64; // rows cover whole groups of this many elements, the longest group of any draw

using Words = std::array<Value, 4>;

Type shaped(Type shape, Type element) {
  if (auto vector = dyn_cast<VectorType>(shape))
    return VectorType::get(vector.getShape(), element);
  return element;
}

struct Integers {
  OpBuilder &b;
  Location loc;

  Value c(Type type, int64_t n) { return emitInteger(b, loc, type, n); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value band(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value bxor(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
  Value shr(Value x, int n) { return arith::ShRUIOp::create(b, loc, x, c(x.getType(), n)); }
  Value shl(Value x, int n) { return arith::ShLIOp::create(b, loc, x, c(x.getType(), n)); }
  Value low(Value x) { return band(x, c(x.getType(), 0xffffffff)); }
  Value truncate(Value x, unsigned bits) {
    if (getElementTypeOrSelf(x.getType()).isInteger(bits))
      return x;
    return arith::TruncIOp::create(b, loc, shaped(x.getType(), b.getIntegerType(bits)), x);
  }
  Value like(Value shape, Value scalar) { // broadcast
    if (isa<VectorType>(shape.getType()) && !isa<VectorType>(scalar.getType()))
      return vector::BroadcastOp::create(b, loc, shape.getType(), scalar);
    return scalar;
  }
};

// The same for single numbers, in words of 32 bits: a GPU has a multiplication of two of them to 64, and pays for both halves of everything else.
Words philoxOfWords(Integers &i, Words counter, Value key0, Value key1) {
  Type i32 = i.b.getI32Type(), i64 = i.b.getI64Type();
  auto wide = [&](Value word) -> Value { return arith::ExtUIOp::create(i.b, i.loc, i64, word); };
  for (Value *word : {&counter[0], &counter[1], &counter[2], &counter[3], &key0, &key1})
    *word = i.truncate(*word, 32);
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < 10; ++round) {
    Value p0 = i.mul(wide(c0), i.c(i64, 0xD2511F53)), p1 = i.mul(wide(c2), i.c(i64, 0xCD9E8D57));
    c0 = i.bxor(i.bxor(i.truncate(i.shr(p1, 32), 32), c1), key0);
    c2 = i.bxor(i.bxor(i.truncate(i.shr(p0, 32), 32), c3), key1);
    c1 = i.truncate(p1, 32);
    c3 = i.truncate(p0, 32);
    key0 = i.add(key0, i.c(i32, int32_t(0x9E3779B9)));
    key1 = i.add(key1, i.c(i32, int32_t(0xBB67AE85)));
  }
  return {wide(c0), wide(c1), wide(c2), wide(c3)};
}

// All i64; the upper halves of the result are garbage.
Words philox(Integers &i, Words counter, Value key0, Value key1) {
  if (!isa<VectorType>(counter[0].getType()))
    return philoxOfWords(i, counter, key0, key1);
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < 10; ++round) {
    Type type = c0.getType();
    Value p0 = i.mul(i.low(c0), i.c(type, 0xD2511F53));
    Value p1 = i.mul(i.low(c2), i.c(type, 0xCD9E8D57));
    c0 = i.bxor(i.bxor(i.shr(p1, 32), c1), i.like(c0, key0));
    c2 = i.bxor(i.bxor(i.shr(p0, 32), c3), i.like(c0, key1));
    c1 = p1;
    c3 = p0;
    if (round < 9) { // only the low halves count
      key0 = i.add(key0, i.c(key0.getType(), 0x9E3779B9));
      key1 = i.add(key1, i.c(key1.getType(), 0xBB67AE85));
    }
  }
  return {c0, c1, c2, c3};
}

Words blockWords(Integers &i, DrawKey key, Value example, Value block) {
  example = i.like(block, example);
  return philox(i, {block, i.shr(block, 32), example, i.shr(example, 32)}, key.low, key.high);
}

// 24 bits of a word (i64 lanes) as a number in [0, 1), or in (0, 1].
Value unitInterval(Integers &i, Value word, Elem elem, bool aboveZero) {
  Value bits = i.shr(i.truncate(word, 32), 8);
  if (aboveZero)
    bits = i.add(bits, i.c(bits.getType(), 1));
  Type type = shaped(word.getType(), valueType(i.b, elem));
  Value number = arith::SIToFPOp::create(i.b, i.loc, type, bits);
  return arith::MulFOp::create(i.b, i.loc, number, emitNumber(i.b, i.loc, type, 1.0 / 16777216.0));
}

std::pair<Value, Value> normalPair(Integers &i, Value first, Value second, Elem elem) {
  return emitBoxMuller(i.b, i.loc, unitInterval(i, first, elem, true), unitInterval(i, second, elem, false));
}

Type storedType(OpBuilder &b, Draw draw, Elem elem) {
  return draw == Draw::Bits16 ? Type(b.getIntegerType(16))
         : draw == Draw::Word ? Type(b.getI32Type())
                              : valueType(b, elem);
}

int64_t bytesOfDraw(Draw draw, Elem elem) { return draw == Draw::Bits16 ? 2 : draw == Draw::Word ? 4 : bytesOf(elem); }

int64_t groupOf(Draw draw) { return draw == Draw::Bits16 ? 8 * kLanes : 4 * kLanes; }

} // namespace

DrawKey emitDrawKey(OpBuilder &b, Location loc, Value context, uint64_t key) {
  return emitDrawKey(b, loc, context, Integers{b, loc}.c(b.getI64Type(), int64_t(key)));
}

DrawKey emitDrawKey(OpBuilder &b, Location loc, Value context, Value key) {
  Integers i{b, loc};
  auto word = [&](int n) -> Value {
    return memref::LoadOp::create(b, loc, context, ValueRange{emitInteger(b, loc, b.getIndexType(), n)});
  };
  Value step = word(kStep), seed = word(kSeed);
  Type type = b.getI64Type();
  Words words =
      philox(i, {arith::AndIOp::create(b, loc, key, i.c(type, 0xffffffff)), i.shr(key, 32), step, i.shr(step, 32)},
             seed, i.shr(seed, 32));
  return {i.low(words[0]), i.low(words[1])};
}

int64_t drawRowBytes(Draw draw, Elem elem, int64_t count) {
  // Beyond the groups, 16 more: a vector load at the row's last element stays inside.
  int64_t elements = (count + 2 * kRowGroup - 2 + 16) / kRowGroup * kRowGroup;
  return solve::roundUp(elements * bytesOfDraw(draw, elem));
}

Value emitDrawRowView(OpBuilder &b, Location loc, Draw draw, Elem elem, Value arena, Value at) {
  Type type = storedType(b, draw, elem);
  auto memref = MemRefType::get({kArenaBytes / bytesOfDraw(draw, elem)}, type);
  return memref::ViewOp::create(b, loc, memref, arena, at, ValueRange{});
}

Value emitDrawRow(OpBuilder &b, Location loc, Draw draw, Elem elem, DrawKey key, Value example, Value first,
                  Value count, Value arena, Value at) {
  Integers i{b, loc};
  Type index = b.getIndexType();
  Value view = emitDrawRowView(b, loc, draw, elem, arena, at);
  int64_t group = groupOf(draw);
  Value size = i.c(index, group), one = i.c(index, 1);
  Value begin = arith::DivUIOp::create(b, loc, first, size);
  Value last = arith::AddIOp::create(b, loc, first, count);
  Value end = arith::DivUIOp::create(b, loc, arith::AddIOp::create(b, loc, last, i.c(index, group - 1)), size);
  auto loop = scf::ForOp::create(b, loc, begin, end, one);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    auto lanesType = VectorType::get({kLanes}, b.getI64Type());
    SmallVector<int64_t> iota;
    for (int64_t lane = 0; lane < kLanes; ++lane)
      iota.push_back(lane);
    Value lanes = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(lanesType, ArrayRef<int64_t>(iota)));
    Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), loop.getInductionVar());
    number = i.shl(number, 3);
    Value block = i.add(i.like(lanes, number), lanes);
    Words words = blockWords(i, key, example, block);
    Value position = arith::MulIOp::create(b, loc, arith::SubIOp::create(b, loc, loop.getInductionVar(), begin), size);
    auto store = [&](Value vector, int64_t j) {
      Value offset = arith::AddIOp::create(b, loc, position, i.c(index, j * kLanes));
      vector::StoreOp::create(b, loc, vector, view, ValueRange{offset});
    };
    for (int word = 0; word < 4; ++word) {
      if (draw == Draw::Bits16) {
        store(i.truncate(words[word], 16), 2 * word);
        store(i.truncate(i.shr(words[word], 16), 16), 2 * word + 1);
      } else if (draw == Draw::Word) {
        store(i.truncate(words[word], 32), word);
      } else if (word % 2 == 0) {
        auto [even, odd] = normalPair(i, words[word], words[word + 1], elem);
        store(even, word);
        store(odd, word + 1);
      }
    }
  }
  return arith::SubIOp::create(b, loc, first, arith::MulIOp::create(b, loc, begin, size));
}

SmallVector<Value> emitDrawWords(OpBuilder &b, Location loc, DrawKey key, Value example, Value block) {
  Integers i{b, loc};
  SmallVector<Value> words;
  for (Value word : blockWords(i, key, example, block))
    words.push_back(i.truncate(word, 32));
  return words;
}

Value emitDraw(OpBuilder &b, Location loc, Draw draw, Elem elem, DrawKey key, Value example, Value element) {
  Integers i{b, loc};
  Type type = element.getType();
  int shift = draw == Draw::Bits16 ? 6 : 5;
  Value lane = i.band(element, i.c(type, kLanes - 1));
  Value block = i.add(i.shl(i.shr(element, shift), 3), lane);
  Words words = blockWords(i, key, example, block);
  Value j = i.band(i.shr(element, 3), i.c(type, draw == Draw::Bits16 ? 7 : 3));
  auto choose = [&](Value bit, Value ifSet, Value ifClear) -> Value {
    Value set = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, i.band(j, bit), i.c(type, 0));
    return arith::SelectOp::create(b, loc, set, ifSet, ifClear);
  };
  if (draw == Draw::Normal) {
    Value two = i.c(type, 2);
    auto [even, odd] = normalPair(i, choose(two, words[2], words[0]), choose(two, words[3], words[1]), elem);
    return choose(i.c(type, 1), odd, even);
  }
  int64_t low = draw == Draw::Bits16 ? 2 : 1;
  Value word = choose(i.c(type, 2 * low), choose(i.c(type, low), words[3], words[2]),
                      choose(i.c(type, low), words[1], words[0]));
  if (draw == Draw::Word)
    return i.truncate(word, 32);
  return i.truncate(choose(i.c(type, 1), i.shr(word, 16), word), 16);
}

Value emitKept(OpBuilder &b, Location loc, Value bits16, double probability) {
  int64_t threshold = std::llround(probability * 65536.0);
  if (threshold <= 0 || threshold >= 65536)
    return emitInteger(b, loc, shaped(bits16.getType(), b.getI1Type()), threshold > 0);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, bits16,
                               emitInteger(b, loc, bits16.getType(), threshold));
}

Value emitKept(OpBuilder &b, Location loc, Value bits16, Value threshold) {
  Integers i{b, loc};
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, bits16, i.like(bits16, i.truncate(threshold, 16)));
}

Value emitKeptHalf(OpBuilder &b, Location loc, Value word, bool upper, Value below) {
  Integers i{b, loc}; // what stands behind an upper half does not matter
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, upper ? word : i.shl(word, 16), below);
}

Value emitUniform(OpBuilder &b, Location loc, Value word, Elem elem) {
  Integers i{b, loc};
  return unitInterval(i, word, elem, false);
}

Value emitBelow(OpBuilder &b, Location loc, Value word, uint32_t n) {
  Integers i{b, loc};
  Value wide = arith::ExtUIOp::create(b, loc, shaped(word.getType(), b.getI64Type()), word);
  return i.truncate(i.shr(i.mul(wide, i.c(wide.getType(), n)), 32), 32);
}

} // namespace cinch::kernels
