// AttendAmx.cpp: the products of attention by AMX (Amx.h), where they are those of bf16.
//
// What they read are f32 that hold bf16. Both operands are packed into words of two neighbouring terms: A as rows, 32 columns of B at
// a time as steps. A run of terms is filled up to whole blocks of 32 by +0.0 in A and -0.0 in B, which changes no chain. Results go
// through 32 x 32 numbers of scratch, where scales and masks are applied.
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/AttendEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace cinch::kernels {

static constexpr int64_t kBlock = 32;        // terms that are added at once
static constexpr int64_t kChunk = 2 * kSquare; // rows and columns of results that are computed together

// Where the panels lie, in words of four bytes. A product has at most 64 rows, and as many terms as a key has features or a block has keys.
struct AttendPanels {
  int64_t pitchA, b, results, words;
  explicit AttendPanels(const AttendSpec &spec) {
    int64_t terms = (std::max({spec.K, spec.E, kKeyBlock}) + kBlock - 1) / kBlock * kBlock;
    pitchA = terms / 2 + kSquare; // odd against the sets of the first cache
    b = 2 * kChunk * pitchA;
    results = b + terms / 2 * kChunk;
    words = results + kChunk * kChunk;
  }
};

int64_t attendPanelBytes(const AttendSpec &spec) { return 4 * AttendPanels(spec).words; }

// Of a vector of numbers and their neighbours.
Value AttendEmitter::wordsOf(Value low, Value high) {
  auto bits = VectorType::get({kSquare}, b.getI32Type());
  auto constant = [&](int32_t value) -> Value { return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(bits, value)); };
  low = arith::ShRUIOp::create(b, loc, arith::BitcastOp::create(b, loc, bits, low), constant(16));
  high = arith::AndIOp::create(b, loc, arith::BitcastOp::create(b, loc, bits, high), constant(int32_t(0xffff0000)));
  return arith::OrIOp::create(b, loc, low, high);
}

// The first `alive` of a vector, others `filler`.
Value AttendEmitter::loadAlive(Place from, Value offset, Value alive, double filler) {
  Value mask = vector::CreateMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()), alive);
  return vector::MaskedLoadOp::create(b, loc, vector, from.memory, ValueRange{add(from.at, offset)}, mask, splat(filler));
}

void AttendEmitter::packA(const TileProduct &p, Place panel, int64_t pitch) {
  auto store = [&](Value words, Value row, Value term) {
    Value at = add(add(panel.at, mul(row, pitch)), arith::DivUIOp::create(b, loc, term, index(2)));
    vector::StoreOp::create(b, loc, words, panel.memory, ValueRange{at});
  };
  if (p.aInner == 1) { // terms follow each other
    SmallVector<int64_t> even, odd;
    for (int64_t i = 0; i < kSquare; ++i)
      even.push_back(2 * i), odd.push_back(2 * i + 1);
    loop(index(0), p.rows, 1, [&](Value row) {
      loop(index(0), p.inner, kBlock, [&](Value term) {
        Value at = add(mul(row, p.aRow), term), left = sub(p.inner, term);
        Value x = loadAlive(p.a, at, left, 0), y = loadAlive(p.a, add(at, kSquare), sub(left, index(kSquare)), 0);
        Value low = vector::ShuffleOp::create(b, loc, x, y, even), high = vector::ShuffleOp::create(b, loc, x, y, odd);
        store(wordsOf(low, high), row, term);
      });
    });
    return;
  }
  // Rows follow each other, in scratch that has whole vectors of them.
  loop(index(0), p.rows, kSquare, [&](Value row) {
    loop(index(0), p.inner, kBlock, [&](Value term) {
      SmallVector<Value> steps;
      auto terms = [&](int64_t i) {
        Value here = add(term, i), there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, here, p.inner);
        return loadAlive(p.a, add(row, mul(here, p.aInner)), arith::SelectOp::create(b, loc, there, index(lanes), index(0)), 0);
      };
      for (int64_t i = 0; i < kBlock; i += 2)
        steps.push_back(wordsOf(terms(i), terms(i + 1)));
      steps = emitTransposed(b, loc, steps);
      for (int64_t i = 0; i < kSquare; ++i)
        store(steps[i], add(row, i), term);
    });
  });
}

// 32 columns of B from `col` on, of which `valid` are there.
void AttendEmitter::packB(const TileProduct &p, Value col, int64_t valid, Place panel) {
  loop(index(0), p.inner, kBlock, [&](Value first) {
    loop(index(0), index(kBlock), 2, [&](Value within) {
      Value step = add(panel.at, mul(arith::DivUIOp::create(b, loc, arith::AddIOp::create(b, loc, first, within), index(2)), kChunk));
      for (int64_t v = 0; v < valid; v += lanes) {
        auto terms = [&](int64_t i) {
          Value here = add(arith::AddIOp::create(b, loc, first, within), i);
          Value there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, here, p.inner);
          Value alive = arith::SelectOp::create(b, loc, there, index(std::min(lanes, valid - v)), index(0));
          return loadAlive(p.b, add(add(mul(here, p.bInner), col), v), alive, -0.0);
        };
        vector::StoreOp::create(b, loc, wordsOf(terms(0), terms(1)), panel.memory, ValueRange{add(step, v)});
      }
    });
  });
}

void AttendEmitter::amxColumns(const TileProduct &p, Value col, int64_t valid, Place panelA, int64_t pitchA, Place panelB, Place results) {
  packB(p, col, valid, panelB);
  const int columns = int(squaresOf(valid));
  Value rowCount = p.rowsNeeded ? min(p.rows, p.rowsNeeded(add(col, kChunk))) : p.rows;
  loop(index(0), rowCount, kChunk, [&](Value firstRow) {
    Value alive = min(index(kChunk), sub(rowCount, firstRow));
    auto forVectors = [&](llvm::function_ref<void(Value row, Value inC, Value inResults, int64_t v, int64_t count)> body) {
      loop(index(0), alive, 1, [&](Value i) {
        Value row = add(firstRow, i), inC = add(mul(row, p.cRow), col), inResults = mul(i, kChunk);
        for (int64_t v = 0; v < valid; v += lanes)
          body(row, add(inC, v), add(inResults, v), v, std::min(lanes, valid - v));
      });
    };
    Amx amx(b, loc);
    if (p.fresh) {
      amx.zero(2, columns);
    } else {
      forVectors([&](Value row, Value inC, Value inResults, int64_t, int64_t count) {
        Value start = loadSome(p.c, inC, count, vector);
        storeVector(p.rowScale.memory ? fmul(start, splat(load(p.rowScale, row))) : start, results, inResults);
      });
      amx.load(2, columns, results.memory, results.at, kChunk);
    }
    Value from = index(0), to = p.inner;
    if (p.termsNeeded) // whole blocks
      std::tie(from, to) = p.termsNeeded(firstRow);
    loop(from, to, kBlock, [&](Value term) {
      Value step = arith::DivUIOp::create(b, loc, term, index(2));
      Amx::Operand a{panelA.memory, add(add(panelA.at, mul(firstRow, pitchA)), step), pitchA, kSquare * pitchA};
      Amx::Operand c{panelB.memory, add(panelB.at, mul(step, kChunk)), kChunk, kSquare};
      amx.multiply(2, columns, a, c);
    });
    amx.store(2, columns, results.memory, results.at, kChunk);
    forVectors([&](Value row, Value inC, Value inResults, int64_t v, int64_t count) {
      Value result = loadVector(results, inResults);
      if (p.finish)
        result = p.finish(row, add(col, v), result);
      storeSome(result, p.c, inC, count);
    });
  });
}

void AttendEmitter::amxProduct(const TileProduct &p) {
  AttendPanels at(spec);
  Place numbers = scratch(panelsAt);
  auto words = [&](int64_t first) -> Place {
    auto type = MemRefType::get({kArenaBytes / 4}, b.getI32Type());
    return {memref::ViewOp::create(b, loc, type, arena, add(scratchStart, panelsAt), ValueRange()), index(first)};
  };
  Place panelA = words(0), panelB = words(at.b), results{numbers.memory, index(at.results)};
  packA(p, panelA, at.pitchA);
  auto columns = [&](Value col, int64_t valid) { amxColumns(p, col, valid, panelA, at.pitchA, panelB, results); };
  if (p.colCount) { // columns are padded to whole vectors in C
    int64_t width = p.cols % kChunk ? kSquare : kChunk;
    return loop(index(0), p.colCount, width, [&](Value col) { columns(col, width); });
  }
  loop(index(0), index(p.cols / kChunk * kChunk), kChunk, [&](Value col) { columns(col, kChunk); });
  if (p.cols % kChunk)
    columns(index(p.cols / kChunk * kChunk), p.cols % kChunk);
}

} // namespace cinch::kernels
