// ContractTensor.cpp: a contraction of bf16 by mma.sync.m16n8k16, which adds 16 products to an f32, or one of tf32 by m16n8k8, which adds eight (PTX ISA,
// "Matrix multiply-accumulate").
//
// Four warps, two along m and two along n, share a tile of outputs: each has a square of it, which takes the fewest reads of shared memory
// for its products. They walk along k in steps of 32 (tf32: 16). While they multiply one step, the next ones are on their way into shared memory: by
// cp.async where memory holds bf16 side by side, else by loads that are rounded. Numbers of tf32 always come by cp.async, and are rounded on their
// way from shared memory to the instruction. Steps begin anew with each run of k, and what lacks in a run's last one is zero: so which products an
// instruction adds depends on their places in the run alone, and an output is one chain of instructions however k is cut between launches.
#include "compiler/kernels/ContractTensorTile.h"

#include <optional>

using namespace mlir;

namespace cinch::kernels::device {
namespace {

class TensorContract : TensorTile {
public:
  TensorContract(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value shared, int64_t threads)
      : TensorTile(b, loc, plan, arguments, plan.tileM / 2 / 16, plan.tileN / (threads / 64) / 8), tiles(plan), threads(threads) {
    this->shared = simt::pointerTo(b, loc, shared, 3);
  }

  void emit() {
    self = simt::threadOfBlock(b, loc);
    Value warp = div(self, 32), lane = rem(self, 32);
    warpM = mul(rem(warp, 2), tilesOfM * 16), warpN = mul(div(warp, 2), tilesOfN * 8);
    group = div(lane, 4), pair = mul(rem(lane, 4), 2);
    places[0] = fragment(0, lane), places[1] = fragment(1, lane);
    forTiles({}, [&](Value batch, Value firstM, Value firstN, ValueRange) {
      emitTile(batch, firstM, firstN);
      return Values();
    });
  }

private:
  // ---- Bringing a step -------------------------------------------------------------------------------------------------------
  // What this thread brings of an operand: chunks of one element or of 16 bytes, each `lines` lines of the stage behind the one before.
  struct Share {
    Values k, outside, valid;   // of each chunk: within the step; element of the operand without k's part; whether there is such a row
    Values bounds[2];           // of A
    Value to;                   // byte of the first chunk in the stage
    int64_t lines = 0;
    std::optional<int64_t> far; // elements from a chunk to the next one, where it is the same for all
    bool alike = false;         // the chunks are valid together; then they are there behind the operand's first element, too
  };
  Share shareOf(int which, Value batch, Value first) {
    const TensorOperand &o = tiles.operand[which];
    const Dims &dims = which == 0 ? plan.m : plan.n;
    const int64_t count = which == 0 ? plan.M : plan.N, chunk = o.chunk(), across = (o.alongK ? tiles.step : plan.tileM) / chunk;
    auto stride = [&](const Dim &dim) { return strideOf(dim, which); };
    Value along = mul(rem(self, across), chunk), line = div(self, across);
    Share share;
    share.lines = threads / across;
    share.to = mul(add(mul(line, o.pitch), along), o.size);
    const Dims &walked = o.alongK ? dims : plan.k;
    if (walked.size() <= 1)
      share.far = walked.empty() ? 0 : share.lines * stride(walked[0]);
    const bool whole = o.alongK ? count % plan.tileM == 0 : tiles.length % tiles.step == 0;
    share.alike = share.far && (which == 1 || spec.bounds.empty()) && whole;
    for (int64_t e = 0; e < plan.tileM * tiles.step / chunk / threads; ++e) {
      Value there = add(line, e * share.lines), row = o.alongK ? there : along;
      share.k.push_back(o.alongK ? along : there);
      Value at = add(first, row);
      share.valid.push_back(count % plan.tileM ? below(at, index(count)) : Value());
      share.outside.push_back(add(add(offsetOf(plan.batch, batch, stride), o.view->offset), offsetOf(dims, at, stride)));
      for (size_t i = 0; which == 0 && i < spec.bounds.size(); ++i) {
        auto bound = [&](const Dim &dim) { return dim.bound[i]; };
        share.bounds[i].push_back(add(add(offsetOf(plan.batch, batch, bound), spec.bounds[i].offset), offsetOf(dims, at, bound)));
      }
    }
    return share;
  }

  // Whether chunk e is there: beside the rows, in its run (element `inRun`), within the image (element `at` of k). Null: it is.
  Value validOf(int which, const Share &share, size_t e, Value run, Value inRun, Value at) {
    Value valid = both(share.valid[e], tiles.length % tiles.step ? below(inRun, index(tiles.length)) : Value());
    for (size_t i = 0; which == 0 && i < spec.bounds.size(); ++i) {
      auto bound = [&](const Dim &dim) { return dim.bound[i]; };
      Value beside = add(share.bounds[i][e], add(offsetOf(plan.runs, run, bound), offsetOf(plan.k, at, bound)));
      valid = both(valid, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, beside, index(spec.bounds[i].size))); // nor negative
    }
    return valid;
  }

  // Step `step` of the runs, from element `first` of k on, into the stage at byte `stage`.
  void bring(int which, const Share &share, Value first, Value step, Value stage) {
    const TensorOperand &o = tiles.operand[which];
    auto stride = [&](const Dim &dim) { return strideOf(dim, which); };
    Value run = div(step, tiles.steps), within = mul(rem(step, tiles.steps), tiles.step);
    const int64_t size = bytesOf(o.view->elem);
    // Distances that are the same for all threads are added to pointers, last: instructions have a place for them.
    Value to = simt::at(b, loc, shared, word(add(stage, share.to))), from, valid;
    for (size_t e = 0; e < share.k.size(); ++e) {
      Value inRun = add(within, share.k[e]), at = add(inRun, first), pointer;
      valid = e == 0 || !share.alike ? validOf(which, share, e, run, inRun, at) : valid;
      // Where a chunk is not valid, a copy has no bytes, and its pointer may lie anywhere; other loads read something that is there.
      if (e > 0 && share.far && (o.copied || share.alike)) {
        pointer = simt::at(b, loc, from, constant(int64_t(e) * *share.far * size));
      } else {
        Value element = add(share.outside[e], add(offsetOf(plan.runs, run, stride), offsetOf(plan.k, at, stride)));
        bool needed = valid && !o.copied;
        pointer = pointerTo(which, needed ? Value(arith::SelectOp::create(b, loc, valid, element, index(o.view->offset))) : element);
        from = e == 0 ? pointer : from;
      }
      Value place = simt::at(b, loc, to, constant(int64_t(e) * share.lines * o.pitch * o.size));
      if (o.copied)
        simt::copyLater(b, loc, place, pointer, valid, o.chunk() * o.size);
      else if (o.wide)
        simt::store(b, loc, simt::loadEightRounded(b, loc, pointer, valid), place, 16);
      else
        simt::store(b, loc, simt::loadOneRounded(b, loc, pointer, o.view->elem == Elem::BF16, valid), place, 2);
    }
  }

  // ---- Multiplying -----------------------------------------------------------------------------------------------------------
  // Where this lane points ldmatrix to, a byte of the operand's stage: of its first 16 rows (A) or of two neighbouring eights of columns (B), and as many
  // k as an instruction multiplies. It takes four matrices of eight rows of 16 bytes; lanes 8 i to 8 i + 7 name the rows of the i-th as they
  // lie in memory. What is read by words has the place of the lane's first one.
  Value fragment(int which, Value lane) {
    const TensorOperand &o = tiles.operand[which];
    Value origin = which == 0 ? warpM : warpN;
    if (isOfWords(o))
      return mul(add(mul(rem(lane, 4), o.pitch), add(origin, div(lane, 4))), o.size);
    Value eighth = rem(lane, 8), one = rem(div(lane, 8), 2), two = div(lane, 16);
    // A: rows 0 and 8 of the first k, then of the others. B: the first k and the others of columns 0, then of columns 8.
    Value otherRow = mul(which == 0 ? one : two, 8), otherK = mul(which == 0 ? two : one, tiles.depth() / 2);
    Value line = o.alongK ? add(add(origin, otherRow), eighth) : add(otherK, eighth);
    Value along = o.alongK ? otherK : add(origin, otherRow);
    return mul(add(mul(line, o.pitch), along), o.size);
  }
  // ldmatrix turns elements of two bytes alone. Of tf32 whose lines are those of one k, each lane reads its words.
  static bool isOfWords(const TensorOperand &o) { return !o.alongK && o.size == 4; }
  Values load(int which, Value pointer, int64_t row, int64_t k) {
    const TensorOperand &o = tiles.operand[which];
    auto byteAt = [&](int64_t row, int64_t k) { return (o.alongK ? row * o.pitch + k : k * o.pitch + row) * o.size; };
    auto there = [&](int64_t row, int64_t k) { return simt::at(b, loc, pointer, constant(byteAt(row, k))); };
    if (o.size == 2)
      return simt::loadMatrices(b, loc, there(row, k), !o.alongK);
    Values words;
    if (isOfWords(o))
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t one = i % 2, two = i / 2, otherRow = which == 0 ? one : two, otherK = which == 0 ? two : one;
        words.append(simt::loadNumbers(b, loc, there(row + otherRow * 8, k + otherK * tiles.depth() / 2), 1));
      }
    else
      words = simt::loadMatrices(b, loc, there(row, k), false);
    for (Value &word : words)
      word = simt::roundedToTF32(b, loc, word);
    return words;
  }
  Values multiply(Value stage, ValueRange sums) {
    Values next(sums);
    Value pointers[2];
    for (int which : {0, 1})
      pointers[which] = simt::at(b, loc, shared, word(add(add(stage, places[which]), which * tiles.operand[0].bytes)));
    for (int64_t k = 0; k < tiles.step; k += tiles.depth()) {
      SmallVector<Values> rows, columns;
      for (int64_t i = 0; i < tilesOfM; ++i)
        rows.push_back(load(0, pointers[0], i * 16, k));
      for (int64_t j = 0; j < tilesOfN; j += 2) {
        Values four = load(1, pointers[1], j * 8, k);
        columns.append({{four[0], four[1]}, {four[2], four[3]}});
      }
      for (int64_t i = 0; i < tilesOfM; ++i)
        for (int64_t j = 0; j < tilesOfN; ++j) {
          auto at = next.begin() + (i * tilesOfN + j) * 4;
          ValueRange before(ArrayRef<Value>(at, at + 4));
          Values result = tiles.size == 4 ? simt::multiplyMatricesOfTF32(b, loc, rows[i], columns[j], before)
                                          : simt::multiplyMatrices(b, loc, rows[i], columns[j], before);
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
      when(below(step, index(total)), [&] {
        Value stage = mul(rem(step, tiles.stages), tiles.stageBytes());
        bring(0, a, first, step, stage);
        bring(1, bShare, first, step, add(stage, tiles.operand[0].bytes));
      });
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

  void emitTile(Value batch, Value firstM, Value firstN) {
    Share a = shareOf(0, batch, firstM), bShare = shareOf(1, batch, firstN);
    emitOutputs(batch, firstM, firstN, [&](ValueRange start) {
      if (spec.grain == 0 || plan.K == 0)
        return chains(a, bShare, index(0), start);
      return loop(index(0), index(plan.K), tiles.length, start,
                  [&](Value first, ValueRange totals) { return added(totals, chains(a, bShare, first, zeros())); });
    });
  }

  const TensorTiles tiles;
  const int64_t threads; // of a block: two warps along m, the others along n
  Value shared, self;
  Value places[2];
};

} // namespace

void emitOnTensorCores(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value tiles, int64_t threads) {
  TensorContract(b, loc, plan, arguments, tiles, threads).emit();
}

} // namespace cinch::kernels::device
