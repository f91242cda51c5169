// AttendTensorForward.cpp: attention, forward, on tensor cores: the formulas of Attend.cpp. A block has 128 queries, a warp 16 of them; keys and
// values come through shared memory, kKeyBlock at a time.
//
// While a warp computes its scores, the tile of values is on its way, and while it sums values up, the next tile of keys is. Each begins its way into
// shared memory when nobody reads what lay there any more, behind one of the two barriers of a turn:
//
//     values come: scores of keys, shares  | barrier |  next keys come: sum values up  | barrier |
//
// With wgmma four warps have 64 queries together, and products read queries, keys and values as lines.
#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/Device.h"
#include "compiler/kernels/Simt.h"
#include "compiler/solve/Bytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

constexpr int64_t kQueries = kWarpRows * kTensorWarps;
int64_t queryTilesOf(const AttendSpec &spec) { return (spec.T + kQueries - 1) / kQueries; }

class TensorForward : TensorAttend {
public:
  TensorForward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target)
      : TensorAttend(b, module, name, spec, target, bufferCount(spec)), ofK(solve::roundUp(spec.K, 16)), ofE(solve::roundUp(spec.E, 16)) {
    if (groups) {
      queryStage = linesOf(0, kQueries);
      keyStage = linesOf(queryStage.bytes(), kKeyBlock);
      valueStage = linesOf(queryStage.bytes() + keyStage.bytes(), kKeyBlock);
    } else {
      if (!wide())
        queryStage = stageOf(name + "_queries", kQueries, ofK);
      keyStage = stageOf(name + "_keys", kKeyBlock, ofK);
      valueStage = stageOf(name + "_values", kKeyBlock, ofE);
    }
    if (!drawsForItself(kKeyBlock))
      draws = tensorDraws(name, kQueries, kKeyBlock);
  }

  func::FuncOp build() {
    allowRegisters(wide() ? 255 : 128);
    const int64_t blocks = queryTilesOf(spec);
    const int64_t items = headsOf(spec) * blocks; // as many as there are blocks
    when(below(thread, index(items)), [&] {
      Value item = thread;
      // Under a causal mask the last queries have the most keys: they begin first.
      Value t0 = mul(sub(index(blocks - 1), take(item, blocks)), kQueries), head = take(item, spec.A);
      queries(locate(leadIndices(item), head), t0);
    });
    return function;
  }

  // That a launch gives a block.
  static int64_t bytesOfLaunch(const AttendSpec &spec, const TargetInfo &target) {
    return attendsByGroups(spec, target) ? TensorAttend::bytesOfLaunch((kQueries + 2 * kKeyBlock) * 2 * kLineFeatures) : 0;
  }

private:
  // Queries of at most 64 features stay in shared memory, which leaves so many registers that two blocks share a multiprocessor.
  bool wide() const { return std::max(ofK, ofE) > 64; }

  // Of a warp's rows: what was summed up, the maximum and the sum of shares for this thread's two rows. The sum is over the thread's own
  // columns until the end.
  struct Sums {
    Values values;
    Value maximum[2], total[2];
    Values all() const {
      Values list = values;
      list.append({maximum[0], maximum[1], total[0], total[1]});
      return list;
    }
    static Sums of(ValueRange list) {
      Sums sums;
      sums.values = Values(list.drop_back(4));
      for (size_t i : {0, 1})
        sums.maximum[i] = list[list.size() - 4 + i], sums.total[i] = list[list.size() - 2 + i];
      return sums;
    }
  };

  void queries(const Head &head, Value t0) {
    Matrix q = matrixOf(head.q, spec.q, spec.T, spec.K), k = matrixOf(head.k, spec.k, spec.S, spec.K), v = matrixOf(head.v, spec.v, spec.S, spec.E);
    Value first = add(t0, mul(warp, kWarpRows)), minusInfinity = number(-std::numeric_limits<double>::infinity());
    Value limit = limitOfKeys(t0, kQueries);
    SmallVector<Values> left;
    if (wide())
      left = leftSide(q, first, ofK);
    else
      bring(queryStage, q, t0);
    bring(keyStage, k, index(0));
    awaitTiles();
    Sums start{Values(size_t(ofE / 2), number(0)), {minusInfinity, minusInfinity}, {number(0), number(0)}};
    Values result = loops(index(0), min(plainKeys(t0, kKeyBlock), limit), limit, kKeyBlock, start.all(), [&](Value s0, ValueRange carried, bool masked) {
      Sums sums = Sums::of(carried);
      bring(valueStage, v, s0);
      drawTile(draws, head, t0, s0);
      Values scores = scoresOf(left);
      simt::syncTeam(b, loc); // draws begin behind the products, whose operands leave them no registers
      finishScores(head, scores, first, s0, false, masked);
      normalize(scores, sums);
      if (!draws.memory)
        drop(head, t0, s0, scores);
      awaitTiles();
      // Behind the last tile it comes once more.
      Value last = mul(div(sub(limit, index(1)), kKeyBlock), kKeyBlock);
      bring(keyStage, k, min(add(s0, kKeyBlock), last));
      if (draws.memory)
        drop(head, t0, s0, scores);
      if (groups)
        sums.values = simt::finishedSums(b, loc, groupSumUp(scores, valueStage, ofE, sums.values));
      else
        sumUp(scores, valueStage, {}, ofE, sums.values);
      awaitTiles();
      return sums.all();
    }, false);
    finish(head, first, Sums::of(result));
  }

  // Of the warp's queries and the keys in shared memory; `left`: the queries, if they are in registers.
  Values scoresOf(ArrayRef<Values> left) {
    if (groups)
      return simt::finishedSums(b, loc, groupProducts(linesFrom(queryStage, mul(div(warp, 4), 4 * kWarpRows)), keyStage, ofK));
    return wide() ? products(left, keyStage) : products(linesFrom(queryStage, mul(warp, kWarpRows)), keyStage);
  }

  // Scores become shares: 2^(score - maximum). What was summed so far is scaled to the new maximum.
  void normalize(Values &scores, Sums &sums) {
    for (size_t row : {0, 1}) {
      Value top = sums.maximum[row];
      auto most = [&](Value x, Value y) -> Value { return arith::MaximumFOp::create(b, loc, x, y); }; // a NaN stays one
      forRow(scores, row, [&](Value &score) { top = most(score, top); });
      top = ofQuad(top, most);
      Value none = number(-std::numeric_limits<double>::infinity());
      Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, top, none);
      Value behind = select(isEmpty, number(0), fmul(top, number(-unit))), total;
      auto beside = [&](Value score) { return exp2(fma(score, number(unit), behind)); };
      Value rescale = beside(sums.maximum[row]);
      forRow(scores, row, [&](Value &score) {
        score = beside(score);
        total = total ? fadd(total, score) : score;
      });
      sums.maximum[row] = top;
      sums.total[row] = fma(sums.total[row], rescale, total);
      forRow(sums.values, row, [&](Value &sum) { sum = fmul(sum, rescale); });
    }
  }
  void forRow(Values &numbers, size_t row, llvm::function_ref<void(Value &)> body) {
    for (size_t piece = 0; piece < numbers.size(); piece += 4)
      for (size_t e : {0, 1})
        body(numbers[piece + row * 2 + e]);
  }

  void drop(const Head &head, Value t0, Value s0, Values &shares) {
    if (IsKept isKept = keptOfLane(draws, head, t0, s0, kKeyBlock))
      for (auto [place, share] : llvm::enumerate(shares))
        share = select(isKept(int64_t(place) / 4, int64_t(place) % 4), share, number(0));
  }

  void finish(const Head &head, Value first, Sums sums) {
    Values where = head.lead;
    where.push_back(head.head);
    Place o = place(spec.o, where), lse = place(spec.lse, where);
    Value inverse[2];
    for (int64_t row : {0, 1}) {
      Value total = ofQuad(sums.total[row], [&](Value x, Value y) { return fadd(x, y); });
      Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, total, number(0));
      Value one = fdiv(number(1), total), none = number(-std::numeric_limits<double>::infinity());
      if (spec.dropout > 0)
        one = fmul(one, factorOfKept);
      inverse[row] = select(empty, number(0), one);
      Value logSum = select(empty, none, fma(sums.maximum[row], number(unit * llvm::numbers::ln2), log(total)));
      Value t = add(first, rowOf(row * 2)), isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, pair, index(0));
      when(both(isFirst, spec.T % kQueries ? below(t, index(spec.T)) : Value()),
           [&] { store(logSum, lse, mul(t, spec.lse.strides.back())); });
    }
    storeRows(sums.values, o, spec.o, first, spec.T, {}, ofE, spec.E, [&](int64_t e, Value sum) { return fmul(sum, inverse[e / 2]); });
  }

  const int64_t ofK, ofE; // features, with zeros behind
  Stage queryStage, keyStage, valueStage;
  Draws draws;
};

} // namespace

Grid gridOfTensorAttend(const AttendSpec &spec, const TargetInfo &target) {
  return {headsOf(spec) * queryTilesOf(spec), int(kAttendThreads), int(kAttendThreads), TensorForward::bytesOfLaunch(spec, target)};
}

func::FuncOp buildAttendOnTensorCores(OpBuilder &b, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target) {
  return TensorForward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
