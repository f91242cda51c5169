// AttendTensorGrad.cpp: attention, backward, on tensor cores: the formulas of AttendGrad.cpp.
//
// Sums over keys (dq), over queries (dk, dv) and over examples (dbias) have blocks of their own, as in AttendGradDevice.cpp. A warp has 16
// queries for the first and the last, so that its scores have queries as rows, and 16 keys for the second: keys as rows.
#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/Device.h"
#include "compiler/solve/Bytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

constexpr int64_t kQueries = kWarpRows * kTensorWarps, kQueryStep = 32;

// How backward is cut. Heads of more than 64 features have too many sums for a warp's registers: two warps share 16 keys, and have half of
// the sums' features each.
struct GradTiles {
  int64_t parts, keys, keyStep, ofK, ofE; // keys of a block that has keys; keys in shared memory at a time; features, with zeros behind
  int64_t blocksT, blocksS, stepsS, heads, keyHeads;
  explicit GradTiles(const AttendSpec &spec) {
    parts = std::max(spec.K, spec.E) > 64 ? 2 : 1;
    keys = kQueries / parts, keyStep = 64 / parts;
    ofK = solve::roundUp(spec.K, 16 * parts), ofE = solve::roundUp(spec.E, 16 * parts);
    auto count = [](int64_t all, int64_t each) { return (all + each - 1) / each; };
    blocksT = count(spec.T, kQueries), blocksS = count(spec.S, keys), stepsS = count(spec.S, keyStep);
    heads = headsOf(spec), keyHeads = heads / spec.A * spec.G;
  }
};

class TensorBackward : TensorAttend {
public:
  TensorBackward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &grad, const TargetInfo &target)
      : TensorAttend(b, module, name, grad.forward, target, bufferCount(grad)), grad(grad), tiles(grad.forward) {
    const int64_t rows = std::max(tiles.keyStep, kQueryStep);
    byK = stageOf(name + "_slopes", rows, tiles.ofK), byE = stageOf(name + "_weights", rows, tiles.ofE);
    lseOfStep = sharedMemory(name + "_lse", kQueryStep, elem), deltaOfStep = sharedMemory(name + "_delta", kQueryStep, elem);
    drawsOfQueries = tensorDraws(name, kQueries, tiles.keyStep);
    drawsOfKeys = tensorDraws(name + "_turned", kQueryStep, tiles.keys);
  }

  func::FuncOp build() {
    allowRegisters(255);
    forBlocks(tiles.heads * tiles.blocksT, [&](Value item) {
      Value t0 = mul(take(item, tiles.blocksT), kQueries), number = take(item, spec.A);
      gradientOfQueries(headAt(grad, leadIndices(item), number), t0);
    });
    forBlocks(tiles.keyHeads * tiles.blocksS, [&](Value item) {
      Value s0 = mul(take(item, tiles.blocksS), tiles.keys), group = take(item, spec.G);
      gradientsOfKeys(leadIndices(item), group, s0);
    });
    if (grad.wantsBiasGrad)
      forBlocks(spec.A * tiles.blocksT * tiles.stepsS, [&](Value item) {
        Value s0 = mul(take(item, tiles.stepsS), tiles.keyStep), t0 = mul(take(item, tiles.blocksT), kQueries);
        gradientOfBias(item, t0, s0);
      });
    return function;
  }

private:
  struct Matrices {
    Matrix q, k, v, dout;
  };
  Matrices matricesOf(const Located &head) {
    return {matrixOf(head.q, spec.q, spec.T, spec.K), matrixOf(head.k, spec.k, spec.S, spec.K), matrixOf(head.v, spec.v, spec.S, spec.E),
            matrixOf(head.dout, grad.dout, spec.T, spec.E)};
  }
  Stage shortened(Stage stage, int64_t rows) {
    stage.rows = rows;
    return stage;
  }

  // lse in units of log2, and delta, of a query, by four lanes: two neighbouring features in eight each. A query without keys, whose scores are
  // all -inf, gets the lse 0, and one that there is not +inf: their shares are 0.
  std::pair<Value, Value> rowOfQuery(const Located &head, Value query) {
    Value there = spec.T % kQueries ? below(query, index(spec.T)) : Value(), t = there ? min(query, index(spec.T - 1)) : query;
    Value sum = number(0);
    Matrix dout = matricesOf(head).dout, o = matrixOf(head.o, spec.o, spec.T, spec.E);
    for (int64_t feature = 0; feature < spec.E; feature += 8) {
      auto x = twoOf(dout, t, add(pair, feature)), y = twoOf(o, t, add(pair, feature));
      sum = fma(x.second, y.second, fma(x.first, y.first, sum));
    }
    sum = ofQuad(sum, [&](Value x, Value y) { return fadd(x, y); });
    Value lse = load(head.lse, mul(t, spec.lse.strides.back())), infinity = number(std::numeric_limits<double>::infinity());
    Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, lse, number(-std::numeric_limits<double>::infinity()));
    lse = select(empty, number(0), fmul(lse, number(llvm::numbers::log2e)));
    return {there ? select(there, lse, infinity) : lse, sum};
  }

  // Scores become the shares as the sums take them, products of values and dout become ds, without the scale.
  struct OfElement {
    Value lse, delta, kept; // kept: null: there is no dropout
  };
  void finishSlopes(Values &weights, Values &slopes, llvm::function_ref<OfElement(int64_t piece, int64_t e)> at) {
    for (size_t place = 0; place < weights.size(); ++place) {
      OfElement here = at(int64_t(place) / 4, int64_t(place) % 4);
      Value share = exp2(fsub(weights[place], here.lse)), slope = slopes[place];
      weights[place] = share;
      if (here.kept) {
        weights[place] = select(here.kept, fmul(share, factorOfKept), number(0));
        slope = select(here.kept, fmul(slope, factorOfKept), number(0));
      }
      slopes[place] = fmul(share, fsub(slope, here.delta));
    }
  }
  Values scaled(Values slopes) {
    for (Value &slope : slopes)
      slope = fmul(slope, number(spec.scale));
    return slopes;
  }

  // ---- Queries as rows ---------------------------------------------------------------------------------------------------------
  struct Rows {
    Value first; // query of the warp
    SmallVector<Values> q, dout;
    Value lse[2], delta[2];
  };
  Rows rowsOf(const Located &head, Value t0) {
    Matrices matrices = matricesOf(head);
    Rows rows;
    rows.first = add(t0, mul(warp, kWarpRows));
    rows.q = leftSide(matrices.q, rows.first, tiles.ofK), rows.dout = leftSide(matrices.dout, rows.first, tiles.ofE);
    for (int64_t half : {0, 1})
      std::tie(rows.lse[half], rows.delta[half]) = rowOfQuery(head, add(rows.first, rowOf(half * 2)));
    return rows;
  }
  Stage keyStage() { return shortened(byK, tiles.keyStep); }
  Stage valueStage() { return shortened(byE, tiles.keyStep); }

  // ds of the warp's queries and the keys in shared memory. Threads wait in between if there is dropout.
  Values slopesOf(const Located &head, const Rows &rows, Value t0, Value s0) {
    drawTile(drawsOfQueries, head, t0, s0);
    Values weights = products(rows.q, keyStage()), slopes = products(rows.dout, valueStage()), bits;
    finishScores(head, weights, rows.first, s0, false);
    if (drawsOfQueries.memory) {
      sync();
      for (int64_t e = 0; e < 4; ++e)
        bits.push_back(keptBits(drawsOfQueries, head, t0, s0, add(mul(warp, kWarpRows), rowOf(e)), columnOf(0, e)));
    }
    finishSlopes(weights, slopes, [&](int64_t piece, int64_t e) -> OfElement {
      return {rows.lse[e / 2], rows.delta[e / 2], bits.empty() ? Value() : isBit(bits[size_t(e)], piece)};
    });
    return slopes;
  }

  void gradientOfQueries(const Located &head, Value t0) {
    Matrices matrices = matricesOf(head);
    Rows rows = rowsOf(head, t0);
    Value limit = limitOfKeys(t0, kQueries);
    Value last = mul(div(sub(limit, index(1)), tiles.keyStep), tiles.keyStep);
    bring(keyStage(), matrices.k, valueStage(), matrices.v, index(0));
    sync();
    Values sums = loop(index(0), limit, tiles.keyStep, Values(size_t(tiles.ofK / 2), number(0)), [&](Value s0, ValueRange before) {
      Values next(before);
      Value following = min(add(s0, tiles.keyStep), last); // behind the last tile it comes once more
      bringBehind(keyStage(), matrices.k, valueStage(), matrices.v, following, [&] {
        Values slopes = slopesOf(head, rows, t0, s0);
        sumUp(scaled(slopes), keyStage(), {}, tiles.ofK, next);
      });
      sync();
      return next;
    });
    storeRows(sums, place(grad.dq, head.where), grad.dq, rows.first, spec.T, {}, tiles.ofK, spec.K, [](int64_t, Value sum) { return sum; });
  }
  void bring(const Stage &one, const Matrix &ofOne, const Stage &two, const Matrix &ofTwo, Value first) {
    put(one, ofOne, first, fetch(one, ofOne, first));
    put(two, ofTwo, first, fetch(two, ofTwo, first));
  }

  // What `body` reads from two stages is replaced behind it. It is asked for before; but wide heads leave no registers for that.
  void bringBehind(const Stage &one, const Matrix &ofOne, const Stage &two, const Matrix &ofTwo, Value first, llvm::function_ref<void()> body) {
    if (tiles.parts > 1) {
      body();
      sync();
      return bring(one, ofOne, two, ofTwo, first);
    }
    Values forOne = fetch(one, ofOne, first), forTwo = fetch(two, ofTwo, first);
    body();
    sync();
    put(one, ofOne, first, forOne);
    put(two, ofTwo, first, forTwo);
  }

  // ---- Keys as rows ------------------------------------------------------------------------------------------------------------
  // The chains of a key go over the group's query heads, and over the queries of each.
  void gradientsOfKeys(Values lead, Value group, Value s0) {
    const int64_t perGroup = spec.A / spec.G, groups = kTensorWarps / tiles.parts, ofK = tiles.ofK / tiles.parts, ofE = tiles.ofE / tiles.parts;
    Value key = mul(rem(warp, groups), kWarpRows), firstKey = add(s0, key), part = div(warp, groups); // key: within the tile
    Value from = spec.causal ? mul(div(s0, kQueryStep), kQueryStep) : index(0);
    Located any = headAt(grad, lead, mul(group, perGroup));
    Matrices ofKeys = matricesOf(any);
    auto k = leftSide(ofKeys.k, firstKey, tiles.ofK), v = leftSide(ofKeys.v, firstKey, tiles.ofE);
    Values start(size_t((ofK + ofE) / 2), number(0));
    Values sums = loop(index(0), index(perGroup), 1, start, [&](Value member, ValueRange ofMember) {
      Located head = headAt(grad, lead, add(mul(group, perGroup), member));
      return overQueries(head, from, k, v, s0, key, part, ofMember);
    });
    Values where = lead;
    where.push_back(group);
    auto same = [](int64_t, Value sum) { return sum; };
    auto split = sums.begin() + ofK / 2;
    storeRows(Values(sums.begin(), split), place(grad.dk, where), grad.dk, firstKey, spec.S, ofPart(part, ofK), ofK, spec.K, same);
    storeRows(Values(split, sums.end()), place(grad.dv, where), grad.dv, firstKey, spec.S, ofPart(part, ofE), ofE, spec.E, same);
  }

  Values overQueries(const Located &head, Value from, ArrayRef<Values> k, ArrayRef<Values> v, Value s0, Value key, Value part, ValueRange before) {
    const int64_t ofK = tiles.ofK / tiles.parts, ofE = tiles.ofE / tiles.parts, last = (spec.T - 1) / kQueryStep * kQueryStep;
    Matrices matrices = matricesOf(head);
    Stage queries = shortened(byK, kQueryStep), douts = shortened(byE, kQueryStep);
    Value mine = rem(div(self, 4), kQueryStep), writes = both(below(self, index(4 * kQueryStep)), isFirstOfQuad());
    auto writeRow = [&](std::pair<Value, Value> row) {
      when(writes, [&] {
        write(row.first, lseOfStep, mine);
        write(row.second, deltaOfStep, mine);
      });
    };
    Value first = min(from, index(last));
    bring(queries, matrices.q, douts, matrices.dout, first);
    writeRow(rowOfQuery(head, add(first, mine)));
    sync();
    return loop(from, index(spec.T), kQueryStep, before, [&](Value t0, ValueRange carried) {
      Values dk(carried.take_front(size_t(ofK / 2))), dv(carried.drop_front(size_t(ofK / 2)));
      Value following = min(add(t0, kQueryStep), index(last));
      auto nextRow = rowOfQuery(head, add(following, mine));
      bringBehind(queries, matrices.q, douts, matrices.dout, following, [&] {
        auto [weights, slopes] = turnedSlopes(head, k, v, queries, douts, t0, s0, key);
        sumUp(weights, douts, ofPart(part, ofE), ofE, dv);
        sumUp(scaled(slopes), queries, ofPart(part, ofK), ofK, dk);
      });
      writeRow(nextRow);
      sync();
      dk.append(dv);
      return dk;
    });
  }
  Value ofPart(Value part, int64_t features) { return tiles.parts > 1 ? mul(part, features) : Value(); } // the first one
  Value isFirstOfQuad() { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, pair, index(0)); }

  // The shares as the sums take them, and ds, of the warp's keys and the queries in shared memory.
  std::pair<Values, Values> turnedSlopes(const Located &head, ArrayRef<Values> k, ArrayRef<Values> v, const Stage &queries, const Stage &douts,
                                         Value t0, Value s0, Value key) {
    drawTile(drawsOfKeys, head, t0, s0);
    Values weights = products(k, queries), slopes = products(v, douts);
    finishScores(head, weights, add(s0, key), t0, true);
    if (drawsOfKeys.memory)
      sync();
    SmallVector<Values> bits(2); // of two neighbouring queries: keys key + group + 8 i
    finishSlopes(weights, slopes, [&](int64_t piece, int64_t e) -> OfElement {
      Value query = columnOf(piece, e), kept;
      if (drawsOfKeys.memory) {
        if (e < 2)
          bits[size_t(e)] = {keptBits(drawsOfKeys, head, t0, s0, query, add(key, group))};
        kept = isBit(bits[size_t(e % 2)][0], e / 2);
      }
      return {read(lseOfStep, query), read(deltaOfStep, query), kept};
    });
    return {weights, slopes};
  }

  // ---- The bias ----------------------------------------------------------------------------------------------------------------
  void gradientOfBias(Value head, Value t0, Value s0) {
    auto forPlaces = [&](OfPlace body) {
      for (int64_t place = 0; place < tiles.keyStep / 2; ++place) {
        Value t = add(add(t0, mul(warp, kWarpRows)), rowOf(place % 4)), s = add(s0, columnOf(place / 4, place % 4));
        Value there = both(spec.T % kQueries ? below(t, index(spec.T)) : Value(), spec.S % tiles.keyStep ? below(s, index(spec.S)) : Value());
        body(there, add(mul(t, grad.dbias.strides[1]), mul(s, grad.dbias.strides[2])));
      }
    };
    addToBiasGradient(grad, head, spec.causal ? below(s0, limitOfKeys(t0, kQueries)) : Value(), forPlaces, [&](const Located &at) {
      Matrices matrices = matricesOf(at);
      bring(keyStage(), matrices.k, valueStage(), matrices.v, s0);
      sync();
      return slopesOf(at, rowsOf(at, t0), t0, s0);
    });
  }

  const AttendGradSpec &grad;
  const GradTiles tiles;
  Stage byK, byE; // keys and values, or queries and dout
  Value lseOfStep, deltaOfStep;
  Draws drawsOfQueries, drawsOfKeys;
};

} // namespace

Grid gridOfTensorAttend(const AttendGradSpec &grad, const TargetInfo &target) {
  GradTiles tiles(grad.forward);
  return gridOfBlocks(std::max(tiles.heads * tiles.blocksT, tiles.keyHeads * tiles.blocksS), kAttendThreads, target);
}

func::FuncOp buildAttendOnTensorCores(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &spec, const TargetInfo &target) {
  return TensorBackward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
