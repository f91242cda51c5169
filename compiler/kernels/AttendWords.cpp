// AttendWords.cpp: the products of attention by instructions that take words of two terms, where they are those of bf16.
//
// What they read is bf16, or f32 that hold bf16. Which two terms a word has is the instruction's choice (ContractWords.cpp). A run of terms is filled
// up to whole blocks of 32 by +0.0 in A and -0.0 in B, which changes no chain. For AMX both operands lie as AttendAmx.cpp takes
// them. For vdpbf16ps an element of A is a word that is broadcast, so A lies as its terms come: as rows, or as steps that have all rows.
#include "compiler/kernels/AttendEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;

namespace cinch::kernels {

static constexpr int64_t kBlock = 32, kWordsOfBlock = kBlock / 2;
static constexpr int64_t kLanes = 16; // words of a vector

AttendPanels::AttendPanels(const AttendSpec &spec, bool amx) {
  constexpr int64_t kSquare = 16, kChunk = 2 * kSquare, kRows = 64;
  int64_t terms = (std::max({spec.K, spec.E, kKeyBlock}) + kBlock - 1) / kBlock * kBlock;
  pitchA = terms / 2 + kSquare; // odd against the sets of the first cache
  stepA = kRows + kSquare;
  b = amx ? kRows * pitchA : std::max(kRows * pitchA, terms / 2 * stepA);
  results = b + terms / 2 * (amx ? kChunk : kLanes);
  words = amx ? results + kChunk * kChunk : results;
  pitchOfWidened = (std::max(spec.K, spec.E) + kLanes - 1) / kLanes * kLanes + kSquare;
  widened = kRows * pitchOfWidened;
}

int64_t attendPanelBytes(const AttendSpec &spec, const TargetInfo &target) {
  AttendPanels panels(spec, target.amx);
  if (spec.pairs && (target.amx || target.dots))
    return 4 * panels.words;
  return spec.q.elem == Elem::BF16 && !target.isDevice() ? 4 * panels.widened : 0;
}

TileProduct AttendEmitter::widened(TileProduct p) {
  int64_t pitch = AttendPanels(spec, amx).pitchOfWidened;
  auto copy = [&](Place from, int64_t stride, Value rows, int64_t cols) {
    Place to = scratch(panelsAt);
    loop(index(0), rows, 1, [&](Value row) {
      for (int64_t col = 0; col < cols; col += lanes)
        storeVector(loadSome(from, add(mul(row, stride), col), std::min(lanes, cols - col), vector), to, add(mul(row, pitch), col));
    });
    return to;
  };
  if (isNarrow(p.a)) { // of a block's rows, the features: never beside a narrow B
    p.a = copy(p.a, p.aRow, p.rows, *getConstantIntValue(p.inner));
    p.aRow = pitch;
  } else if (isNarrow(p.b)) {
    p.b = copy(p.b, p.bInner, p.inner, p.cols);
    p.bInner = pitch;
  }
  return p;
}

Place AttendEmitter::panel(int64_t firstWord) {
  auto type = MemRefType::get({kArenaBytes / 4}, b.getI32Type());
  return {memref::ViewOp::create(b, loc, type, arena, add(scratchStart, panelsAt), ValueRange()), index(firstWord)};
}

// Which terms of a block the low and the high half of its word number `step` hold.
std::pair<int64_t, int64_t> AttendEmitter::termsOfWord(int64_t step) {
  if (amx)
    return {2 * step, 2 * step + 1};
  int64_t first = step / 2 * 4 + step % 2; // of one chain, the earlier one in the high half
  return {first + 2, first};
}

// Of numbers whose halves these become.
Value AttendEmitter::wordsOf(Value low, Value high) {
  auto bits = VectorType::get({kLanes}, b.getI32Type());
  auto constant = [&](int32_t value) -> Value { return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(bits, value)); };
  low = arith::ShRUIOp::create(b, loc, arith::BitcastOp::create(b, loc, bits, low), constant(16));
  high = arith::AndIOp::create(b, loc, arith::BitcastOp::create(b, loc, bits, high), constant(int32_t(0xffff0000)));
  return arith::OrIOp::create(b, loc, low, high);
}

// The first `alive` of a vector, others `filler`, which is a zero.
Value AttendEmitter::loadAlive(Place from, Value offset, Value alive, double filler) {
  Value mask = vector::CreateMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()), alive), filled = splat(filler);
  if (isNarrow(from)) {
    auto bits = VectorType::get({lanes}, b.getI16Type());
    filled = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(bits, APInt(16, std::signbit(filler) ? 0x8000 : 0)));
  }
  return widened(vector::MaskedLoadOp::create(b, loc, cast<VectorType>(filled.getType()), from.memory, ValueRange{add(from.at, offset)}, mask, filled));
}

// Of term number `term` the `count` elements from `offset` on; `filler` behind the last term.
Value AttendEmitter::loadTerm(const TileProduct &p, Place from, Value offset, Value term, int64_t count, double filler) {
  Value there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, term, p.inner);
  return loadAlive(from, offset, arith::SelectOp::create(b, loc, there, index(count), index(0)), filler);
}

void AttendEmitter::packRowsOfA(const TileProduct &p, Place panel, int64_t pitch) {
  auto store = [&](Value words, Value row, Value term) {
    Value at = add(add(panel.at, mul(row, pitch)), arith::DivUIOp::create(b, loc, term, index(2)));
    vector::StoreOp::create(b, loc, words, panel.memory, ValueRange{at});
  };
  if (p.aInner == 1) { // terms follow each other
    SmallVector<int64_t> lows, highs;
    for (int64_t i = 0; i < kWordsOfBlock; ++i) {
      auto [low, high] = termsOfWord(i);
      lows.push_back(low), highs.push_back(high);
    }
    const bool copies = amx && isNarrow(p.a); // neighbours are the halves of a word
    auto copied = [&](Value at, Value left) -> Value {
      auto halves = VectorType::get({kBlock}, b.getI16Type()), bits = VectorType::get({kWordsOfBlock}, b.getI32Type());
      Value from = add(p.a.at, at), block;
      if (getConstantIntValue(p.inner).value_or(1) % kBlock == 0) {
        block = vector::LoadOp::create(b, loc, halves, p.a.memory, ValueRange{from});
      } else {
        Value mask = vector::CreateMaskOp::create(b, loc, VectorType::get({kBlock}, b.getI1Type()), left);
        Value zeros = arith::ConstantOp::create(b, loc, b.getZeroAttr(halves));
        block = vector::MaskedLoadOp::create(b, loc, halves, p.a.memory, ValueRange{from}, mask, zeros);
      }
      return vector::BitCastOp::create(b, loc, bits, block);
    };
    loop(index(0), p.rows, 1, [&](Value row) {
      loop(index(0), p.inner, kBlock, [&](Value term) {
        Value at = add(mul(row, p.aRow), term), left = sub(p.inner, term);
        if (copies)
          return store(copied(at, left), row, term);
        Value x = loadAlive(p.a, at, left, 0), y = loadAlive(p.a, add(at, kLanes), sub(left, index(kLanes)), 0);
        Value low = vector::ShuffleOp::create(b, loc, x, y, lows), high = vector::ShuffleOp::create(b, loc, x, y, highs);
        store(wordsOf(low, high), row, term);
      });
    });
    return;
  }
  // Rows follow each other, in scratch that has whole vectors of them.
  loop(index(0), p.rows, kLanes, [&](Value row) {
    loop(index(0), p.inner, kBlock, [&](Value term) {
      SmallVector<Value> steps;
      for (int64_t step = 0; step < kWordsOfBlock; ++step)
        steps.push_back(wordsOfA(p, row, term, step));
      steps = emitTransposed(b, loc, steps);
      for (int64_t i = 0; i < kLanes; ++i)
        store(steps[i], add(row, i), term);
    });
  });
}

// The words of step `step` of the block from `first` on, for the rows of A from `row` on, which follow each other.
Value AttendEmitter::wordsOfA(const TileProduct &p, Value row, Value first, int64_t step) {
  auto terms = [&](int64_t i) {
    Value term = add(first, i);
    return loadTerm(p, p.a, add(row, mul(term, p.aInner)), term, lanes, 0);
  };
  auto [low, high] = termsOfWord(step);
  return wordsOf(terms(low), terms(high));
}

void AttendEmitter::packStepsOfA(const TileProduct &p, Place panel, int64_t pitch) {
  loop(index(0), p.inner, kBlock, [&](Value first) {
    Value start = add(panel.at, mul(arith::DivUIOp::create(b, loc, first, index(2)), pitch));
    loop(index(0), p.rows, kLanes, [&](Value row) {
      for (int64_t step = 0; step < kWordsOfBlock; ++step)
        vector::StoreOp::create(b, loc, wordsOfA(p, row, first, step), panel.memory, ValueRange{add(add(start, step * pitch), row)});
    });
  });
}

// Columns of B from `col` on, of which `valid` are there, in steps of `width` words.
void AttendEmitter::packB(const TileProduct &p, Value col, int64_t valid, Place panel, int64_t width) {
  const int64_t wordsATime = amx ? 1 : 2; // of terms that follow each other
  loop(index(0), p.inner, kBlock, [&](Value first) {
    loop(index(0), index(kBlock), 2 * wordsATime, [&](Value within) {
      Value begin = arith::AddIOp::create(b, loc, first, within);
      Value step = add(panel.at, mul(arith::DivUIOp::create(b, loc, begin, index(2)), width));
      for (int64_t word = 0; word < wordsATime; ++word)
        for (int64_t v = 0; v < valid; v += lanes) {
          auto terms = [&](int64_t i) {
            Value term = add(begin, i);
            return loadTerm(p, p.b, add(add(mul(term, p.bInner), col), v), term, std::min(lanes, valid - v), -0.0);
          };
          auto [low, high] = termsOfWord(word);
          Value all = wordsOf(terms(low), terms(high));
          vector::StoreOp::create(b, loc, all, panel.memory, ValueRange{add(step, word * width + v)});
        }
    });
  });
}

// ---- vdpbf16ps ------------------------------------------------------------------------------------------------------

// Where A's words lie, and by how many words its rows and steps lie apart.
AttendEmitter::WordsOfA AttendEmitter::packWordsOfA(const TileProduct &p) {
  AttendPanels at(spec, /*amx=*/false);
  WordsOfA words{panel(0), 0, 0};
  if (p.aInner == 1) {
    words.row = at.pitchA, words.step = 1;
    packRowsOfA(p, words.at, at.pitchA);
  } else {
    words.row = 1, words.step = at.stepA;
    packStepsOfA(p, words.at, at.stepA);
  }
  return words;
}

Place AttendEmitter::panelOfB() { return panel(AttendPanels(spec, /*amx=*/false).b); }

// Of one vector of columns and rows that begin at `rows`: both chains of each, from term `from` of a block on, and their sums.
AttendEmitter::Values AttendEmitter::wordChains(const WordsOfA &a, ValueRange rows, Place panelB, Value from, Value to, Values sums) {
  const size_t size = sums.size();
  auto numbers = VectorType::get({2 * kLanes}, b.getBF16Type()), bits = VectorType::get({kLanes}, b.getI32Type());
  auto asNumbers = [&](Value value) -> Value { return LLVM::BitcastOp::create(b, loc, numbers, value); };
  SmallVector<Value> starts;
  for (Value row : rows)
    starts.push_back(add(a.at.at, mul(row, a.row)));
  auto multiply = [&](Value step, ValueRange chains) {
    Value atB = add(panelB.at, mul(step, kLanes)), stepA = mul(step, a.step);
    Value column = asNumbers(vector::LoadOp::create(b, loc, bits, panelB.memory, ValueRange{atB}));
    Values next;
    for (auto [start, chain] : llvm::zip_equal(starts, chains)) {
      Value word = memref::LoadOp::create(b, loc, a.at.memory, add(start, stepA));
      Value row = asNumbers(vector::BroadcastOp::create(b, loc, bits, word));
      auto name = b.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512");
      next.push_back(LLVM::CallIntrinsicOp::create(b, loc, vector, name, ValueRange{chain, column, row}).getResult(0));
    }
    return next;
  };
  return loop(from, to, kBlock, sums, [&](Value first, ValueRange carried) {
    Value begin = arith::DivUIOp::create(b, loc, first, index(2));
    Values fresh(2 * size, splat(0.0));
    constexpr int64_t kUnrolled = 4; // steps
    Values chains = loop(index(0), index(kWordsOfBlock), kUnrolled, fresh, [&](Value step, ValueRange before) {
      Values next(before);
      for (int64_t i = 0; i < kUnrolled; ++i) {
        size_t chain = size_t(i % 2) * size;
        Values after = multiply(add(add(begin, step), i), ValueRange(next).slice(chain, size));
        std::copy(after.begin(), after.end(), next.begin() + chain);
      }
      return next;
    });
    Values next;
    for (size_t i = 0; i < size; ++i)
      next.push_back(fadd(carried[i], fadd(chains[i], chains[size + i])));
    return next;
  });
}

} // namespace cinch::kernels
