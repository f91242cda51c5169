// Attend.cpp: streaming attention, forward.
//
// For each block of queries: keys in blocks, running maximum m, running sum l and the weighted sum o of values rescaled
// by exp(m_old - m_new) (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022,
// "FlashAttention"). A row without any key has m = -inf and l = 0: it gives 0, and lse = -inf.
#include "compiler/kernels/AttendEmitter.h"
#include "compiler/solve/Bytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

int64_t blocksOf(const AttendSpec &spec) { return (spec.T + queryBlockOf(spec) - 1) / queryBlockOf(spec); } // of a head's queries

// Byte offsets of a thread's scratch.
struct Scratch {
  int64_t queries, scores, maximum, sum, factor, total;
  explicit Scratch(const AttendSpec &spec) {
    int64_t size = bytesOf(spec.elem), block = queryBlockOf(spec);
    queries = 0;
    scores = queries + size * block * spec.K;
    maximum = scores + size * block * std::min(kKeyBlock, spec.S);
    sum = maximum + size * block;
    factor = sum + size * block;
    total = solve::roundUp(factor + size * block);
  }
};

class Forward : AttendEmitter {
public:
  Forward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target)
      : AttendEmitter(b, module, name, spec, target, bufferCount(spec), Scratch(spec).total) {
    Scratch layout(spec);
    packed = scratch(layout.queries);
    block = scratch(layout.scores);
    maximum = scratch(layout.maximum);
    sum = scratch(layout.sum);
    factor = scratch(layout.factor);
  }

  func::FuncOp build() {
    forItems(itemsOf(spec), [&](Value item) {
      Value number = index(blocksOf(spec)), headCount = index(spec.A);
      Value t0 = mul(arith::RemUIOp::create(b, loc, item, number), queryBlock);
      Value rest = arith::DivUIOp::create(b, loc, item, number);
      Value head = arith::RemUIOp::create(b, loc, rest, headCount);
      Value lead = arith::DivUIOp::create(b, loc, rest, headCount);
      queries(locate(leadIndices(lead), head), t0);
    });
    return function;
  }

private:
  // One block of queries of one head.
  void queries(const Head &head, Value t0) {
    Value count = min(index(queryBlock), sub(index(spec.T), t0));
    SmallVector<Value> at = head.lead;
    at.push_back(head.head);
    int64_t qRow = spec.q.strides.rbegin()[1], oRow = spec.o.strides.rbegin()[1], lseRow = spec.lse.strides.back();
    Place o = place(spec.o, at), lse = place(spec.lse, at);
    o.at = add(o.at, mul(t0, oRow));
    lse.at = add(lse.at, mul(t0, lseRow));

    packTransposed({head.q.memory, add(head.q.at, mul(t0, qRow))}, qRow, count, spec.K, packed);
    loop(index(0), index(queryBlock), lanes, [&](Value lane) {
      storeVector(splat(kMinusInfinity), maximum, lane);
      storeVector(splat(0.0), sum, lane);
    });
    fillRows(o, oRow, count, spec.E, 0.0);

    Value limit = keyLimit(t0, count);
    loop(index(0), limit, kKeyBlock, [&](Value s0) {
      Patch part{t0, count, s0, min(index(kKeyBlock), sub(limit, s0))};
      scores(head, part, packed, block);
      drawKept(head, part);
      loop(index(0), count, lanes, [&](Value lane) { normalize(part, lane); });
      addValues(head, part, o, oRow);
    });
    finish(count, o, oRow, lse, lseRow);
  }

  // Scores become exp(score - maximum); maximum, sum and the factor for what was summed so far are updated.
  void normalize(const Patch &part, Value lane) {
    // The largest: four chains, any order gives the same.
    constexpr int kChains = 4;
    Value previous = loadVector(maximum, lane), keys = keysNeeded(part, add(lane, lanes)), lastKey = add(keys, -1);
    SmallVector<Value> largest =
        loop(index(0), keys, kChains, SmallVector<Value>(kChains, previous), [&](Value s, ValueRange carried) {
          SmallVector<Value> next;
          for (int i = 0; i < kChains; ++i)
            next.push_back(larger(loadVector(block, add(mul(min(add(s, i), lastKey), queryBlock), lane)), carried[i]));
          return next;
        });
    Value top = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
    Value reference = select(isEqual(top, kMinusInfinity), splat(0.0), top);
    Value rescale = exp(fsub(previous, reference));

    SmallVector<Value> total =
        forKeys(part, lane, {splat(0.0)}, [&](Value key, Value kept, ValueRange carried) -> SmallVector<Value> {
          Value at = add(mul(key, queryBlock), lane);
          Value share = exp(fsub(loadVector(block, at), reference));
          storeVector(rounded(kept ? select(kept, share, splat(0.0)) : share), block, at);
          return {fadd(carried[0], share)};
        });
    storeVector(fma(loadVector(sum, lane), rescale, total[0]), sum, lane);
    storeVector(top, maximum, lane);
    storeVector(rescale, factor, lane);
  }

  // o[t] = o[t] * factor[t] + sum over the block's keys of share * v.
  void addValues(const Head &head, const Patch &part, Place o, int64_t oRow) {
    int64_t vRow = spec.v.strides.rbegin()[1];
    TileProduct p;
    p.a = block;
    p.aRow = 1;
    p.aInner = queryBlock;
    p.b = {head.v.memory, add(head.v.at, mul(part.s0, vRow))};
    p.bInner = vRow;
    p.c = o;
    p.cRow = oRow;
    p.rows = part.queries;
    p.inner = part.keys;
    p.cols = spec.E;
    p.rowScale = factor;
    spareSumOverKeys(p, part);
    product(p);
  }

  void finish(Value count, Place o, int64_t oRow, Place lse, int64_t lseRow) {
    loop(index(0), count, lanes, [&](Value lane) {
      Value total = loadVector(sum, lane), empty = isEqual(total, 0.0);
      Value inverse = fdiv(splat(1.0), total);
      if (spec.dropout > 0)
        inverse = fmul(inverse, splat(factorOfKept));
      storeVector(select(empty, splat(0.0), inverse), factor, lane);
      Value logSum = fadd(loadVector(maximum, lane), log(total));
      storeVector(select(empty, splat(kMinusInfinity), logSum), sum, lane);
    });
    loop(index(0), count, 1, [&](Value t) {
      store(load(sum, t), lse, mul(t, lseRow));
      Value inverse = splat(load(factor, t));
      for (int64_t col = 0; col < spec.E; col += lanes) {
        Value at = add(mul(t, oRow), col);
        int64_t valid = std::min(lanes, spec.E - col);
        storeSome(fmul(loadSome(o, at, valid, vector), inverse), o, at, valid);
      }
    });
  }

  Place packed, block, maximum, sum, factor;
};

} // namespace

int64_t scratchBytesPerThread(const AttendSpec &spec, const TargetInfo &target) {
  return attendScratch(spec, Scratch(spec).total, target);
}

int64_t itemsOf(const AttendSpec &spec) { return headsOf(spec) * blocksOf(spec); }

func::FuncOp buildAttend(OpBuilder &b, ModuleOp module, const std::string &name, const AttendSpec &spec,
                         const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(b);
  return Forward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
