// ContractTensor.cpp: a contraction of bf16 by mma.sync.m16n8k16, which adds 16 products to an f32 (PTX ISA, "Matrix multiply-accumulate").
//
// Eight warps, two along m and four along n, share a tile of outputs. They walk along k in steps of 32. While they multiply one step, the
// next ones are on their way into shared memory: by cp.async where memory holds bf16 side by side, else by loads that are rounded. Steps
// begin anew with each run of k, and what lacks in a run's last one is zero: so which sixteen products an instruction adds depends on
// their places in the run alone, and an output is one chain of instructions however k is cut between launches.
#include "compiler/kernels/ContractTensor.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinTypes.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels::device {

// ---- Tiles -------------------------------------------------------------------------------------------------------------------

static int64_t strideOf(const Dim &dim, int operand) { return operand == 0 ? dim.a : dim.b; }

TensorTiles::TensorTiles(const Plan &plan) {
  const ContractSpec &spec = plan.spec;
  length = spec.grain > 0 ? countOf(plan.k) / spec.k[0] * spec.grain : countOf(plan.k);
  steps = (length + kTensorStep - 1) / kTensorStep;
  for (int i : {0, 1}) {
    TensorOperand &o = operand[i];
    o.view = i == 0 ? &spec.a : &spec.b;
    const Dims &rows = i == 0 ? plan.m : plan.n;
    auto closest = [&](const Dims &of) { return of.empty() ? int64_t(1) << 40 : std::abs(strideOf(of.back(), i)); };
    o.alongK = closest(plan.k) < closest(rows);
    const Dims &inner = o.alongK ? plan.k : rows;
    o.wide = !inner.empty() && strideOf(inner.back(), i) == 1 && inner.back().size % 8 == 0 && o.view->offset % 8 == 0 &&
             !inner.back().bound[0] && !inner.back().bound[1] && (!o.alongK || length % 8 == 0);
    for (const Dims *dims : {&plan.batch, &rows, &plan.k, &plan.runs})
      for (const Dim &dim : *dims)
        o.wide = o.wide && (&dim == &inner.back() || strideOf(dim, i) % 8 == 0);
    o.copied = o.wide && o.view->elem == Elem::BF16;
    o.pitch = (o.alongK ? kTensorStep : plan.tile) + 8;
    o.bytes = (o.alongK ? plan.tile : kTensorStep) * o.pitch * 2;
  }
  // More than two stages only help where something is on its way meanwhile.
  constexpr int64_t kShared = 48 << 10;
  if (operand[0].copied || operand[1].copied)
    stages = int(std::clamp<int64_t>(kShared / stageBytes(), 2, 4));
}

namespace {

// ---- The kernel --------------------------------------------------------------------------------------------------------------

class TensorContract {
public:
  TensorContract(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value shared)
      : b(b), loc(loc), plan(plan), spec(plan.spec), tiles(plan), arguments(arguments), tilesOfM(plan.tile / 2 / 16),
        tilesOfN(plan.tile / 4 / 8) {
    this->shared = simt::pointerTo(b, loc, shared, 3);
    arena = simt::pointerTo(b, loc, arguments[0], 0);
    for (const View *view : {&spec.a, &spec.b, &spec.c})
      bytes.push_back(memref::LoadOp::create(b, loc, arguments[1], ValueRange{index(view->buffer)}));
    c = open(spec.c);
  }

  void emit() {
    self = simt::threadOfBlock(b, loc);
    Value warp = div(self, 32), lane = rem(self, 32);
    warpM = mul(rem(warp, 2), plan.tile / 2), warpN = mul(div(warp, 2), plan.tile / 4);
    group = div(lane, 4), pair = mul(rem(lane, 4), 2);
    places[0] = fragment(0, lane), places[1] = fragment(1, lane);
    scf::ForOp::create(b, loc, arguments[3], index(plan.items()), arguments[4], ValueRange(), [&](OpBuilder &, Location, Value item, ValueRange) {
      Value tileN = rem(item, plan.tilesN()), rest = div(item, plan.tilesN());
      emitTile(div(rest, plan.tilesM()), mul(rem(rest, plan.tilesM()), plan.tile), mul(tileN, plan.tile));
      scf::YieldOp::create(b, loc);
    });
  }

private:
  using Values = SmallVector<Value>;

  // ---- Index arithmetic, memory ----------------------------------------------------------------------------------------------
  Value index(int64_t n) { return emitInteger(b, loc, b.getIndexType(), n); }
  Value word(Value n) { return b.createOrFold<arith::IndexCastOp>(loc, b.getI64Type(), n); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, index(y)); }
  Value mul(Value x, int64_t factor) { return b.createOrFold<arith::MulIOp>(loc, x, index(factor)); }
  Value div(Value x, int64_t by) { return b.createOrFold<arith::DivUIOp>(loc, x, index(by)); }
  Value rem(Value x, int64_t by) { return b.createOrFold<arith::RemUIOp>(loc, x, index(by)); }
  Value below(Value x, Value bound) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, bound); }
  Value both(Value x, Value y) { return !x ? y : !y ? x : Value(arith::AndIOp::create(b, loc, x, y)); }
  template <typename Stride> Value offsetOf(const Dims &dims, Value place, Stride stride) {
    Value sum = index(0);
    for (size_t i = dims.size(); i-- > 0;) {
      Value at = i == 0 ? place : rem(place, dims[i].size);
      place = i == 0 ? place : div(place, dims[i].size);
      sum = add(sum, mul(at, stride(dims[i])));
    }
    return sum;
  }
  void when(Value condition, llvm::function_ref<void()> body) {
    if (!condition)
      return body();
    scf::IfOp::create(b, loc, condition, [&](OpBuilder &, Location) {
      body();
      scf::YieldOp::create(b, loc);
    });
  }
  Values loop(Value from, Value to, int64_t step, ValueRange carried, llvm::function_ref<Values(Value, ValueRange)> body) {
    auto loop = scf::ForOp::create(b, loc, from, to, index(step), carried, [&](OpBuilder &, Location, Value at, ValueRange values) {
      scf::YieldOp::create(b, loc, body(at, values));
    });
    return Values(loop.getResults());
  }
  Value open(const View &view) {
    Type stored = view.elem == Elem::BF16 ? Type(b.getI16Type()) : b.getF32Type();
    Value byte = arith::IndexCastOp::create(b, loc, b.getIndexType(), bytes[2]);
    return memref::ViewOp::create(b, loc, MemRefType::get({kArenaBytes / bytesOf(view.elem)}, stored), arguments[0], byte, ValueRange());
  }

  // ---- Bringing a step -------------------------------------------------------------------------------------------------------
  // What this thread brings of an operand: chunks of one element or of eight.
  struct Share {
    Values k, to, outside, valid; // within the step; byte in the stage; element of the operand without k's part; whether there is such a row
    Values bounds[2];             // of A
  };
  Share shareOf(int which, Value batch, Value first) {
    const TensorOperand &o = tiles.operand[which];
    const Dims &dims = which == 0 ? plan.m : plan.n;
    const int64_t count = which == 0 ? plan.M : plan.N, chunk = o.chunk();
    auto stride = [&](const Dim &dim) { return strideOf(dim, which); };
    Share share;
    for (int64_t e = 0; e < plan.tile * kTensorStep / chunk / kThreads; ++e) {
      Value number = add(self, e * kThreads);
      const int64_t across = (o.alongK ? kTensorStep : plan.tile) / chunk;
      Value along = mul(rem(number, across), chunk), line = div(number, across);
      Value row = o.alongK ? line : along;
      share.k.push_back(o.alongK ? along : line);
      share.to.push_back(mul(add(mul(line, o.pitch), along), 2));
      Value at = add(first, row);
      share.valid.push_back(count % plan.tile ? below(at, index(count)) : Value());
      share.outside.push_back(add(add(offsetOf(plan.batch, batch, stride), o.view->offset), offsetOf(dims, at, stride)));
      for (size_t i = 0; which == 0 && i < spec.bounds.size(); ++i) {
        auto bound = [&](const Dim &dim) { return dim.bound[i]; };
        share.bounds[i].push_back(add(add(offsetOf(plan.batch, batch, bound), spec.bounds[i].offset), offsetOf(dims, at, bound)));
      }
    }
    return share;
  }

  // Step `step` of the runs, from element `first` of k on, into the stage at byte `stage`.
  void bring(int which, const Share &share, Value first, Value step, Value stage) {
    const TensorOperand &o = tiles.operand[which];
    auto stride = [&](const Dim &dim) { return strideOf(dim, which); };
    Value run = div(step, tiles.steps), within = mul(rem(step, tiles.steps), kTensorStep);
    if (tiles.steps == 1)
      run = step, within = index(0);
    for (size_t e = 0; e < share.k.size(); ++e) {
      Value inRun = add(within, share.k[e]), valid = share.valid[e], at = add(inRun, first);
      if (tiles.length % kTensorStep)
        valid = both(valid, below(inRun, index(tiles.length)));
      for (size_t i = 0; which == 0 && i < spec.bounds.size(); ++i) {
        auto bound = [&](const Dim &dim) { return dim.bound[i]; };
        Value beside = add(share.bounds[i][e], add(offsetOf(plan.runs, run, bound), offsetOf(plan.k, at, bound)));
        valid = both(valid, both(below(beside, index(spec.bounds[i].size)),
                                 arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, beside, index(0))));
      }
      Value element = add(share.outside[e], add(offsetOf(plan.runs, run, stride), offsetOf(plan.k, at, stride)));
      if (valid)
        element = arith::SelectOp::create(b, loc, valid, element, index(0));
      Value from = simt::at(b, loc, arena, arith::AddIOp::create(b, loc, bytes[which], word(mul(element, bytesOf(o.view->elem)))));
      Value to = simt::at(b, loc, shared, word(add(stage, share.to[e])));
      if (o.copied)
        simt::copyLater(b, loc, to, from, valid);
      else if (o.wide)
        simt::store(b, loc, simt::loadEightRounded(b, loc, from, valid), to, 16);
      else
        simt::store(b, loc, simt::loadOneRounded(b, loc, from, o.view->elem == Elem::BF16, valid), to, 2);
    }
  }

  // ---- Multiplying -----------------------------------------------------------------------------------------------------------
  // Where this lane points ldmatrix to, a byte of the operand's stage: of its first 16 x 16 (A) or of two neighbouring 16 x 8 (B). An
  // instruction takes four 8 x 8; lanes 8 i to 8 i + 7 name the rows of the i-th as they lie in memory.
  Value fragment(int which, Value lane) {
    const TensorOperand &o = tiles.operand[which];
    Value eighth = rem(lane, 8), one = mul(rem(div(lane, 8), 2), 8), two = mul(div(lane, 16), 8), origin = which == 0 ? warpM : warpN;
    // A: rows 0 and 8 of k 0, then of k 8. B: k 0 and k 8 of columns 0, then of columns 8.
    Value otherRow = which == 0 ? one : two, otherK = which == 0 ? two : one;
    Value line = o.alongK ? add(add(origin, otherRow), eighth) : add(otherK, eighth);
    Value along = o.alongK ? otherK : add(origin, otherRow);
    return mul(add(mul(line, o.pitch), along), 2);
  }
  Values load(int which, Value stage, int64_t row, int64_t k) {
    const TensorOperand &o = tiles.operand[which];
    Value byte = add(add(stage, places[which]), (o.alongK ? row * o.pitch + k : k * o.pitch + row) * 2);
    return simt::loadMatrices(b, loc, simt::at(b, loc, shared, word(byte)), !o.alongK);
  }
  Values multiply(Value stage, ValueRange sums) {
    Values next(sums);
    Value stageB = add(stage, tiles.operand[0].bytes);
    for (int64_t k = 0; k < kTensorStep; k += 16) {
      SmallVector<Values> rows, columns;
      for (int64_t i = 0; i < tilesOfM; ++i)
        rows.push_back(load(0, stage, i * 16, k));
      for (int64_t j = 0; j < tilesOfN; j += 2) {
        Values four = load(1, stageB, j * 8, k);
        columns.push_back({four[0], four[1]});
        columns.push_back({four[2], four[3]});
      }
      for (int64_t i = 0; i < tilesOfM; ++i)
        for (int64_t j = 0; j < tilesOfN; ++j) {
          auto at = next.begin() + (i * tilesOfN + j) * 4;
          Values result = simt::multiplyMatrices(b, loc, rows[i], columns[j], ValueRange(ArrayRef<Value>(at, at + 4)));
          std::copy(result.begin(), result.end(), at);
        }
    }
    return next;
  }

  // Chains over the runs, `length` elements of k from `first` on in each.
  Values chains(const Share &a, const Share &bShare, Value first, ValueRange start) {
    const int64_t total = countOf(plan.runs) * tiles.steps;
    if (total == 0)
      return Values(start);
    auto begin = [&](Value step) {
      auto both = [&] {
        Value stage = mul(rem(step, tiles.stages), tiles.stageBytes());
        bring(0, a, first, step, stage);
        bring(1, bShare, first, step, add(stage, tiles.operand[0].bytes));
      };
      when(below(step, index(total)), both);
      simt::endOfCopies(b, loc);
    };
    for (int i = 0; i + 1 < tiles.stages; ++i)
      begin(index(i));
    Values sums = loop(index(0), index(total), 1, start, [&](Value step, ValueRange carried) {
      simt::waitForCopies(b, loc, tiles.stages - 2);
      simt::syncBlock(b, loc); // everybody's copies are there, and nobody needs the stage any more that is filled next
      begin(add(step, tiles.stages - 1));
      return multiply(mul(rem(step, tiles.stages), tiles.stageBytes()), carried);
    });
    simt::syncBlock(b, loc);
    return sums;
  }

  // ---- A tile ----------------------------------------------------------------------------------------------------------------
  // Calls `body` with the number of each output of this thread, where it lies, and whether it is there (null: it is).
  void forOutputs(Value batch, Value firstM, Value firstN, llvm::function_ref<void(int64_t, Value, Value)> body) {
    auto ofC = [](const Dim &dim) { return dim.c; };
    Value base = add(offsetOf(plan.batch, batch, ofC), spec.c.offset);
    for (int64_t i = 0; i < tilesOfM; ++i)
      for (int64_t j = 0; j < tilesOfN; ++j)
        for (int64_t e = 0; e < 4; ++e) {
          Value m = add(add(add(firstM, warpM), group), i * 16 + e / 2 * 8), n = add(add(add(firstN, warpN), pair), j * 8 + e % 2);
          Value there = both(plan.M % plan.tile ? below(m, index(plan.M)) : Value(), plan.N % plan.tile ? below(n, index(plan.N)) : Value());
          body((i * tilesOfN + j) * 4 + e, add(base, add(offsetOf(plan.m, m, ofC), offsetOf(plan.n, n, ofC))), there);
        }
  }

  void emitTile(Value batch, Value firstM, Value firstN) {
    Value zero = emitNumber(b, loc, b.getF32Type(), 0);
    const Values zeros(size_t(tilesOfM * tilesOfN * 4), zero);
    Values start = zeros;
    if (spec.accumulate && plan.K > 0)
      forOutputs(batch, firstM, firstN, [&](int64_t number, Value at, Value there) {
        if (there)
          at = arith::SelectOp::create(b, loc, there, at, index(0));
        Value before = memref::LoadOp::create(b, loc, c, ValueRange{at});
        start[size_t(number)] = there ? Value(arith::SelectOp::create(b, loc, there, before, zero)) : before;
      });
    Share a = shareOf(0, batch, firstM), bShare = shareOf(1, batch, firstN);
    Values sums;
    if (spec.grain > 0 && plan.K > 0)
      sums = loop(index(0), index(plan.K), tiles.length, start, [&](Value first, ValueRange totals) {
        Values next = chains(a, bShare, first, zeros);
        for (auto [sum, total] : llvm::zip_equal(next, totals))
          sum = arith::AddFOp::create(b, loc, total, sum);
        return next;
      });
    else
      sums = chains(a, bShare, index(0), start);
    forOutputs(batch, firstM, firstN, [&](int64_t number, Value at, Value there) {
      Value sum = sums[size_t(number)];
      if (spec.c.elem == Elem::BF16)
        sum = emitNarrowed(b, loc, emitRounded(b, loc, sum));
      when(there, [&] { memref::StoreOp::create(b, loc, sum, c, ValueRange{at}); });
    });
  }

  OpBuilder &b;
  Location loc;
  const Plan &plan;
  const ContractSpec &spec;
  const TensorTiles tiles;
  ValueRange arguments;
  const int64_t tilesOfM, tilesOfN; // of 16 x 8 outputs, that a warp has
  Value shared, arena, c;
  Values bytes; // where A, B and C begin in the arena
  Value self, warpM, warpN, group, pair;
  Value places[2];
};

} // namespace

void emitOnTensorCores(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value tiles) {
  TensorContract(b, loc, plan, arguments, tiles).emit();
}

} // namespace cinch::kernels::device
