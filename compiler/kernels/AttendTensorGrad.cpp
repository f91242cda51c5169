// AttendTensorGrad.cpp: attention, backward, on tensor cores: the formulas of AttendGrad.cpp.
//
// A warp has 16 keys, so that its scores have keys as rows, for the sums over queries (dk, dv), which stay in its registers. Where there are
// heads enough for all multiprocessors, a block has all keys of a head, 128 at a time, and computes the sums over keys (dq), too: the
// slopes of the 128 keys and 32 queries go through shared memory, and each warp adds its piece of the product with these keys to dq, which lies in the
// block's scratch as f32 until the last of its keys. So dq is a chain over ascending keys, 16 at a time. There are as many such blocks as
// multiprocessors, one head after another: their scratch stays in the cache.
// With wgmma such a block is two warpgroups, which have 64 keys each and 64 queries at a time. Keys and values lie in shared memory, too. One of the two,
// by turns, finds the piece of dq.
// Otherwise sums over keys have blocks of their own, as in AttendGradDevice.cpp, where a warp has 16 queries and its scores have queries as
// rows. They compute scores once more, but their sums are the same chains: no bit depends on that choice, which hangs on the plan.
// Sums over examples (dbias) always have blocks of their own, with queries as rows.
#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/Device.h"
#include "compiler/kernels/Simt.h"
#include "compiler/solve/Bytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

constexpr int64_t kQueries = kWarpRows * kTensorWarps, kQueryStep = 32, kGroupQueryStep = 64;
constexpr int64_t kMostQueries = 4096; // of a group of heads: what is known of each lies in shared memory

// How backward is cut. Heads of more than 64 features have too many sums for a warp's registers: two warps share 16 keys, and have half of
// the sums' features each.
struct GradTiles {
  int64_t parts, keys, keyStep, ofK, ofE; // keys of a block that has keys; keys in shared memory at a time; features, with zeros behind
  int64_t blocksT, blocksS, stepsS, heads, keyHeads, queriesOfGroup;
  bool together;    // a block has all of a head
  bool groups;      // and multiplies by wgmma
  int64_t queryStep; // queries of a turn
  int64_t togethers; // such blocks
  GradTiles(const AttendSpec &spec, const TargetInfo &target) {
    parts = std::max(spec.K, spec.E) > 64 ? 2 : 1;
    keys = kQueries / parts, keyStep = 64 / parts;
    ofK = solve::roundUp(spec.K, 16 * parts), ofE = solve::roundUp(spec.E, 16 * parts);
    auto count = [](int64_t all, int64_t each) { return (all + each - 1) / each; };
    blocksT = count(spec.T, kQueries), blocksS = count(spec.S, keys), stepsS = count(spec.S, keyStep);
    heads = headsOf(spec), keyHeads = heads / spec.A * spec.G;
    queriesOfGroup = spec.A / spec.G * count(spec.T, kQueries) * kQueries;
    // Together they take about half of the time, if at least half of the multiprocessors have work.
    together = parts == 1 && queriesOfGroup <= kMostQueries && 2 * keyHeads >= count(keyHeads, target.processors) * target.processors;
    togethers = std::min<int64_t>(keyHeads, target.processors);
    groups = together && target.warpgroups;
    queryStep = groups ? kGroupQueryStep : kQueryStep;
  }
  // Of a block that has all of a head: sums over the keys before those that it has now.
  int64_t scratchBytes() const { return together && blocksS > 1 ? queriesOfGroup * ofK * 4 : 0; }
};

class TensorBackward : TensorAttend {
public:
  TensorBackward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &grad, const TargetInfo &target)
      : TensorAttend(b, module, name, grad.forward, target, bufferCount(grad)), grad(grad), tiles(grad.forward, target) {
    const int64_t rows = tiles.together ? std::max(tiles.keyStep, 2 * kQueryStep) : 2 * std::max(tiles.keyStep, kQueryStep);
    if (!tiles.groups || grad.wantsBiasGrad)
      byK = stageOf(name + "_slopes", rows, tiles.ofK), byE = stageOf(name + "_weights", rows, tiles.ofE);
    if (tiles.groups) {
      int64_t begin = 0;
      auto take = [&](int64_t rows) {
        Stage stage = linesOf(begin, rows);
        begin += stage.bytes();
        return stage;
      };
      keysOfBlock = take(tiles.keys), valuesOfBlock = take(tiles.keys), slopesOfBlock = take(2 * tiles.keys);
      queriesOfTurns = take(2 * tiles.queryStep), doutsOfTurns = take(2 * tiles.queryStep);
      rowsOfQueries = take(0).pointer;
    } else if (tiles.together) {
      OfLaunch memory(tiles);
      Value pointer = simt::sharedOfLaunch(b, loc, module);
      keysOfBlock = memory.keys, keysOfBlock.pointer = pointer;
      slopesOfBlock = memory.slopes, slopesOfBlock.pointer = simt::at(b, loc, pointer, word(index(memory.keys.bytes())));
      rowsOfQueries = simt::at(b, loc, pointer, word(index(memory.keys.bytes() + memory.slopes.bytes())));
      queriesOfTurns = byK, doutsOfTurns = byE;
    } else {
      queriesOfTurns = byK, doutsOfTurns = byE;
      rowsOfQueries = simt::pointerTo(b, loc, sharedMemory(name + "_rows", 2 * kQueryStep * 2, elem), 3);
    }
    if (tiles.scratchBytes() > 0) {
      Value start = arith::IndexCastOp::create(b, loc, b.getI64Type(), mul(thread, tiles.scratchBytes()));
      start = arith::AddIOp::create(b, loc, start, memref::LoadOp::create(b, loc, offsets, index(bufferCount(grad))));
      sumsOfBlock = simt::at(b, loc, simt::pointerTo(b, loc, arena, 0), start);
    }
    if (!drawsForItself(tiles.keyStep) && (!tiles.together || grad.wantsBiasGrad))
      drawsOfQueries = tensorDraws(name, kQueries, tiles.keyStep);
    drawsOfKeys = tensorDraws(name + "_turned", 2 * tiles.queryStep, tiles.keys);
    // Shares carry the factor of those that are kept: 2^(score - lse + log2 of the factor).
    if (spec.dropout > 0) {
      logOfFactor = fmul(log(factorOfKept), number(llvm::numbers::log2e));
      partOfKept = fdiv(number(1), factorOfKept);
    }
  }

  func::FuncOp build() {
    allowRegisters(255);
    if (tiles.together) {
      forBlocks(tiles.keyHeads, [&](Value item) {
        Value group = take(item, spec.G);
        Values lead = leadIndices(item);
        fillRows(lead, group);
        loop(index(0), index(spec.S), tiles.keys, [&](Value s0) {
          gradientsOfKeys(lead, group, s0);
          sync(); // the next keys take the place of these
        });
      });
    } else {
      forBlocks(tiles.heads * tiles.blocksT, [&](Value item) {
        // Under a causal mask the last queries have the most keys, and the first keys the most queries: they begin first.
        Value t0 = mul(sub(index(tiles.blocksT - 1), take(item, tiles.blocksT)), kQueries), number = take(item, spec.A);
        gradientOfQueries(headAt(grad, leadIndices(item), number), t0);
      });
      forBlocks(tiles.keyHeads * tiles.blocksS, [&](Value item) {
        Value s0 = mul(take(item, tiles.blocksS), tiles.keys), group = take(item, spec.G);
        gradientsOfKeys(leadIndices(item), group, s0);
      });
    }
    if (grad.wantsBiasGrad)
      forBlocks(spec.A * tiles.blocksT * tiles.stepsS, [&](Value item) {
        Value s0 = mul(take(item, tiles.stepsS), tiles.keyStep), t0 = mul(take(item, tiles.blocksT), kQueries);
        gradientOfBias(item, t0, s0);
      });
    return function;
  }

  // What blocks of all keys of a head have beside what their kernel declares, since it would be too much for that.
  static int64_t bytesOfLaunch(const GradTiles &tiles) {
    if (!tiles.groups)
      return OfLaunch(tiles).bytes();
    return TensorAttend::bytesOfLaunch((4 * tiles.keys + 4 * tiles.queryStep) * 2 * kLineFeatures + tiles.queriesOfGroup * 8);
  }
  // Without wgmma: the keys, the slopes of two turns, and RowOfQuery of all queries.
  struct OfLaunch {
    Stage keys, slopes;
    int64_t rows;
    explicit OfLaunch(const GradTiles &tiles)
        : keys{{}, {}, tiles.keys, tiles.ofK}, slopes{{}, {}, 2 * tiles.keys, kQueryStep}, rows(tiles.queriesOfGroup * 8) {}
    int64_t bytes() const { return keys.bytes() + slopes.bytes() + rows; }
  };

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

  // Of a query: what its scores in units of log2 get added before they become shares, and delta times `scale` over the factor of kept shares,
  // both with the other sign. A query without keys, whose scores are all -inf, gets the lse 0, and one that there is not +inf: their shares are 0.
  struct RowOfQuery {
    Value behind, delta;
  };
  // By `lanes` neighbouring lanes, four or eight. A chain over eight features each, and a tree over these, whose leaves are at least eight.
  RowOfQuery rowOfQuery(const Located &head, Value query, int64_t lanes, double scale) {
    Value there = spec.T % kQueries ? below(query, index(spec.T)) : Value(), t = there ? min(query, index(spec.T - 1)) : query;
    Matrix dout = matricesOf(head).dout, o = matrixOf(head.o, spec.o, spec.T, spec.E);
    const int64_t each = int64_t(llvm::PowerOf2Ceil(uint64_t(std::max<int64_t>(tiles.ofE / 8, 8)))) / lanes;
    Values sums;
    for (int64_t eight = 0; eight < each; ++eight) {
      Value feature = mul(add(mul(rem(self, lanes), each), eight), 8), sum = number(0);
      for (auto [x, y] : llvm::zip_equal(eightOf(dout, t, feature), eightOf(o, t, feature)))
        sum = fma(x, y, sum);
      sums.push_back(sum);
    }
    for (; sums.size() > 1; sums.resize(sums.size() / 2))
      for (size_t i = 0; i < sums.size() / 2; ++i)
        sums[i] = fadd(sums[2 * i], sums[2 * i + 1]);
    Value sum = sums[0];
    for (int distance = 1; distance < lanes; distance *= 2)
      sum = fadd(sum, simt::fromBeside(b, loc, sum, distance));
    Value lse = load(head.lse, mul(t, spec.lse.strides.back())), minusInfinity = number(-std::numeric_limits<double>::infinity());
    Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, lse, minusInfinity);
    Value behind = fma(select(empty, number(0), lse), number(-llvm::numbers::log2e), logOfFactor ? logOfFactor : number(0));
    Value factor = partOfKept ? fmul(partOfKept, number(-scale)) : number(-scale);
    return {there ? select(there, behind, minusInfinity) : behind, fmul(sum, factor)};
  }

  // In shared memory, where query number `at` is.
  Value placeOfRow(Value at) { return simt::at(b, loc, rowsOfQueries, word(mul(at, 8))); }
  void writeRow(Value at, RowOfQuery row) {
    Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, rem(self, 8), index(0));
    when(isFirst, [&] { simt::storeNumbers(b, loc, {row.behind, row.delta}, placeOfRow(at), false); });
  }
  // Of all queries of a group of heads, four for each eight lanes at a time.
  void fillRows(Values lead, Value group) {
    const int64_t perGroup = spec.A / spec.G, perHead = tiles.queriesOfGroup / perGroup;
    loop(index(0), index(perGroup), 1, [&](Value member) {
      Located head = headAt(grad, lead, add(mul(group, perGroup), member));
      loop(index(0), index(perHead), kQueries, [&](Value first) {
        SmallVector<RowOfQuery> rows;
        for (int64_t query = 0; query < kQueries; query += kQueryStep)
          rows.push_back(rowOfQuery(head, add(first, add(div(self, 8), query)), 8, spec.scale));
        for (auto [number, row] : llvm::enumerate(rows))
          writeRow(add(mul(member, perHead), add(first, add(div(self, 8), int64_t(number) * kQueryStep))), row);
      });
    });
    sync();
  }

  // Scores become the shares as the sums take them, products of values and dout become ds times `scale`.
  void finishSlopes(Values &weights, Values &slopes, double scale, const IsKept &isKept,
                    llvm::function_ref<RowOfQuery(int64_t piece, int64_t e)> at) {
    for (size_t place = 0; place < weights.size(); ++place) {
      const int64_t piece = int64_t(place) / 4, e = int64_t(place) % 4;
      RowOfQuery row = at(piece, e);
      Value share = exp2(fma(weights[place], number(unit), row.behind)), slope = fma(slopes[place], number(scale), row.delta);
      Value kept = isKept ? isKept(piece, e) : Value();
      weights[place] = kept ? select(kept, share, number(0)) : share;
      slopes[place] = fmul(share, kept ? select(kept, slope, row.delta) : slope);
    }
  }

  // ---- Queries as rows ---------------------------------------------------------------------------------------------------------
  struct Rows {
    Value first; // query of the warp
    SmallVector<Values> q, dout;
    RowOfQuery each[2];
    double scale; // of slopes
  };
  Rows rowsOf(const Located &head, Value t0, double scale) {
    Matrices matrices = matricesOf(head);
    Rows rows;
    rows.first = add(t0, mul(warp, kWarpRows));
    rows.q = leftSide(matrices.q, rows.first, tiles.ofK), rows.dout = leftSide(matrices.dout, rows.first, tiles.ofE);
    for (int64_t half : {0, 1})
      rows.each[half] = rowOfQuery(head, add(rows.first, rowOf(half * 2)), 4, scale);
    rows.scale = scale;
    return rows;
  }
  struct Keys {
    Stage keys, values;
  };
  Keys keysAt(Value line) { return {shortened(linesFrom(byK, line), tiles.keyStep), shortened(linesFrom(byE, line), tiles.keyStep)}; }
  void bringKeys(const Keys &to, const Matrices &from, Value s0) {
    bring(to.keys, from.k, s0);
    bring(to.values, from.v, s0);
  }

  // ds of the warp's queries and the keys in shared memory. Threads wait in between if others draw for them.
  Values slopesOf(const Located &head, const Rows &rows, const Keys &keys, Value t0, Value s0, bool masked) {
    drawTile(drawsOfQueries, head, t0, s0);
    Values weights = products(rows.q, keys.keys), slopes = products(rows.dout, keys.values);
    finishScores(head, weights, rows.first, s0, false, masked);
    if (drawsOfQueries.memory)
      sync();
    finishSlopes(weights, slopes, rows.scale, keptOfLane(drawsOfQueries, head, t0, s0, tiles.keyStep),
                 [&](int64_t, int64_t e) { return rows.each[e / 2]; });
    return slopes;
  }

  void gradientOfQueries(const Located &head, Value t0) {
    Matrices matrices = matricesOf(head);
    Rows rows = rowsOf(head, t0, spec.scale);
    Value limit = limitOfKeys(t0, kQueries);
    Value last = mul(div(sub(limit, index(1)), tiles.keyStep), tiles.keyStep);
    auto keysOf = [&](Value s0) { return keysAt(mul(rem(div(s0, tiles.keyStep), 2), tiles.keyStep)); }; // there are two places, by turns
    bringKeys(keysOf(index(0)), matrices, index(0));
    awaitTiles();
    auto turn = [&](Value s0, ValueRange before, bool masked) {
      Values next(before);
      const Keys here = keysOf(s0);
      bringKeys(keysOf(add(s0, tiles.keyStep)), matrices, min(add(s0, tiles.keyStep), last)); // behind the last tile it comes once more
      Values slopes = slopesOf(head, rows, here, t0, s0, masked);
      sumUp(slopes, here.keys, {}, tiles.ofK, next);
      awaitTiles();
      return next;
    };
    Values sums = loops(index(0), min(plainKeys(t0, tiles.keyStep), limit), limit, tiles.keyStep, zeros(tiles.ofK / 2), turn, false);
    storeRows(sums, place(grad.dq, head.where), grad.dq, rows.first, spec.T, {}, tiles.ofK, spec.K, [](int64_t, Value sum) { return sum; });
  }

  // ---- Keys as rows ------------------------------------------------------------------------------------------------------------
  // The chains of a key go over the group's query heads, and over the queries of each.
  void gradientsOfKeys(Values lead, Value group, Value s0) {
    const int64_t perGroup = spec.A / spec.G, groups = kTensorWarps / tiles.parts, ofK = tiles.ofK / tiles.parts, ofE = tiles.ofE / tiles.parts;
    Value key = mul(rem(warp, groups), kWarpRows), firstKey = add(s0, key), part = div(warp, groups); // key: within the tile
    Value from = spec.causal ? mul(div(s0, tiles.queryStep), tiles.queryStep) : index(0);
    Located any = headAt(grad, lead, mul(group, perGroup));
    Matrices ofKeys = matricesOf(any);
    SmallVector<Values> k, v; // in registers
    if (!tiles.groups)
      k = leftSide(ofKeys.k, firstKey, tiles.ofK), v = leftSide(ofKeys.v, firstKey, tiles.ofE);
    if (tiles.together)
      bring(keysOfBlock, ofKeys.k, s0);
    if (tiles.groups)
      bring(valuesOfBlock, ofKeys.v, s0);
    Values start = zeros((ofK + ofE) / 2);
    Values sums = loop(index(0), index(perGroup), 1, start, [&](Value member, ValueRange ofMember) {
      Located head = headAt(grad, lead, add(mul(group, perGroup), member));
      return overQueries(head, member, from, k, v, s0, key, part, ofMember);
    });
    Values where = lead;
    where.push_back(group);
    auto same = [](int64_t, Value sum) { return sum; };
    auto split = sums.begin() + ofK / 2;
    storeRows(Values(sums.begin(), split), place(grad.dk, where), grad.dk, firstKey, spec.S, ofPart(part, ofK), ofK, spec.K, same);
    storeRows(Values(split, sums.end()), place(grad.dv, where), grad.dv, firstKey, spec.S, ofPart(part, ofE), ofE, spec.E, same);
  }

  // A turn has one barrier. Before it all read this turn's queries, and write their slopes and the next turn's queries; behind it they
  // read the slopes, and the next turn begins. So there are two places of each, which turns have by turns.
  Values overQueries(const Located &head, Value member, Value from, ArrayRef<Values> k, ArrayRef<Values> v, Value s0, Value key, Value part,
                     ValueRange before) {
    const int64_t ofK = tiles.ofK / tiles.parts, ofE = tiles.ofE / tiles.parts, step = tiles.queryStep, last = (spec.T - 1) / step * step;
    static_assert(kQueryStep * 8 == kAttendThreads);
    Matrices matrices = matricesOf(head);
    struct Turn {
      Value parity, rows; // of turns; and where RowOfQuery of its queries begins
      Stage queries, douts;
      Draws draws;
    };
    auto turnAt = [&](Value t0) {
      Value parity = rem(div(t0, step), 2), first = mul(parity, step);
      Draws draws = drawsOfKeys;
      draws.first = first, draws.queries = step;
      Value rows = tiles.together ? add(mul(member, tiles.queriesOfGroup / (spec.A / spec.G)), t0) : first;
      return Turn{parity, rows, shortened(linesFrom(queriesOfTurns, first), step), shortened(linesFrom(doutsOfTurns, first), step), draws};
    };
    Value mine = div(self, 8);
    auto rowAt = [&](Value first) { return tiles.together ? RowOfQuery() : rowOfQuery(head, add(first, mine), 8, spec.scale); };
    auto writeRowOf = [&](const Turn &turn, RowOfQuery row) {
      if (!tiles.together)
        writeRow(add(turn.rows, mine), row);
    };
    auto bringTurn = [&](const Turn &turn, Value first) {
      bring(turn.queries, matrices.q, first);
      bring(turn.douts, matrices.dout, first);
    };
    Value first = min(from, index(last));
    const Turn start = turnAt(first);
    bringTurn(start, first);
    writeRowOf(start, rowAt(first));
    drawTile(start.draws, head, first, s0);
    awaitTiles();
    auto turn = [&](Value t0, ValueRange carried, bool masked) {
      Values dk(carried.take_front(size_t(ofK / 2))), dv(carried.drop_front(size_t(ofK / 2)));
      Value following = min(add(t0, step), index(last)); // behind the last turn it comes once more
      const Turn here = turnAt(t0), next = turnAt(add(t0, step));
      bringTurn(next, following);
      RowOfQuery nextRow = rowAt(following);
      Values dq = tiles.together && !tiles.groups ? sumsOfKeysBefore(member, t0) : Values();
      if (sumsOfBlock && !tiles.groups)
        simt::syncTeam(b, loc); // what was asked for stays in front of the products
      auto [weights, slopes] = turnedSlopes(head, k, v, here.queries, here.douts, here.draws, here.rows, t0, s0, key, masked);
      Stage mySlopes = tiles.together ? linesFrom(slopesOfBlock, mul(here.parity, tiles.keys)) : Stage();
      if (tiles.groups) {
        storeShares(slopes, mySlopes, key);
        dv = simt::finishedSums(b, loc, groupSumUp(weights, here.douts, ofE, dv));
        dk = simt::finishedSums(b, loc, groupSumUp(slopes, here.queries, ofK, dk));
      } else {
        sumUp(weights, here.douts, ofPart(part, ofE), ofE, dv);
        sumUp(slopes, here.queries, ofPart(part, ofK), ofK, dk);
        if (tiles.together)
          storeShares(slopes, mySlopes, key);
      }
      writeRowOf(next, nextRow);
      drawTile(next.draws, head, following, s0);
      awaitTiles();
      if (tiles.groups)
        addToQueriesByTurns(head, member, here.parity, t0, s0, mySlopes);
      else if (tiles.together)
        addToQueries(head, member, t0, s0, mySlopes, dq);
      dk.append(dv);
      return dk;
    };
    return loops(from, max(from, plainQueries(s0)), index(spec.T), step, before, turn, true);
  }
  // Queries from here on, whole turns, look at all keys of the block. Keys beyond the last one do not matter as rows, which nobody stores, but
  // their slopes do.
  Value plainQueries(Value s0) {
    const int64_t step = tiles.queryStep;
    const Value none = index((spec.T + step - 1) / step * step);
    if (spec.hasKeys)
      return none;
    Value from = spec.causal ? min(none, mul(ceilDiv(add(s0, tiles.keys - 1), step), step)) : index(0);
    if (tiles.together && spec.S % tiles.keys)
      from = select(below(index(spec.S), add(s0, tiles.keys)), none, from);
    return from;
  }
  Value ofPart(Value part, int64_t features) { return tiles.parts > 1 ? mul(part, features) : Value(); } // the first one

  // The shares as the sums take them, and ds, of the warp's keys and the queries in shared memory, of which the first is number `rows` there.
  std::pair<Values, Values> turnedSlopes(const Located &head, ArrayRef<Values> k, ArrayRef<Values> v, const Stage &queries, const Stage &douts,
                                         const Draws &draws, Value rows, Value t0, Value s0, Value key, bool masked) {
    Values weights, slopes;
    if (tiles.groups) {
      Value first = mul(div(key, 4 * kWarpRows), 4 * kWarpRows); // of the warpgroup
      weights = simt::finishedSums(b, loc, groupProducts(linesFrom(keysOfBlock, first), queries, tiles.ofK));
      slopes = simt::finishedSums(b, loc, groupProducts(linesFrom(valuesOfBlock, first), douts, tiles.ofE));
    } else {
      weights = products(k, queries), slopes = products(v, douts);
    }
    finishScores(head, weights, add(s0, key), t0, true, masked);
    Values two;    // neighbouring queries
    Value bits[2]; // of two neighbouring queries: keys key + group + 8 i
    IsKept isKept = [&](int64_t piece, int64_t e) {
      if (e < 2)
        bits[e] = keptBits(draws, head, t0, s0, columnOf(piece, e), add(key, group));
      return isBit(bits[e % 2], e / 2);
    };
    finishSlopes(weights, slopes, spec.scale, draws.memory ? isKept : IsKept(), [&](int64_t piece, int64_t e) -> RowOfQuery {
      if (e % 4 == 0)
        two = simt::loadNumbers(b, loc, placeOfRow(add(rows, columnOf(piece, 0))), 4);
      return {two[size_t(e % 2 * 2)], two[size_t(e % 2 * 2 + 1)]};
    });
    return {weights, slopes};
  }

  // ---- Queries of a block of keys ----------------------------------------------------------------------------------------------
  // A warp has 16 of a turn's queries and 16 features of their gradients.
  Value rowsOfWarp() { return mul(rem(warp, 2), kWarpRows); }
  Value featuresOfWarp() { return mul(div(warp, 2), 16); }
  Value hasFeatures() { return tiles.ofK < 64 ? below(featuresOfWarp(), index(tiles.ofK)) : Value(); }

  // What the keys before these have given: eight numbers of each lane side by side in the block's scratch. Before the first keys they are nothing.
  Value placeOfSums(Value member, Value t0) {
    const int64_t perMember = tiles.queriesOfGroup / (spec.A / spec.G) * tiles.ofK;
    Value lane = tiles.ofK < 64 ? select(hasFeatures(), self, index(0)) : self;
    Value element = add(add(mul(member, perMember), mul(t0, tiles.ofK)), mul(lane, 8));
    return simt::at(b, loc, sumsOfBlock, word(mul(element, 4)));
  }
  Values sumsOfKeysBefore(Value member, Value t0) {
    if (!sumsOfBlock)
      return zeros(8);
    Value from = placeOfSums(member, t0);
    Values sums;
    for (int64_t half : {0, 16})
      sums.append(simt::loadNumbers(b, loc, simt::at(b, loc, from, word(index(half))), 4));
    return sums;
  }

  // Sums over keys are given where no keys behind these are looked at, and kept for those otherwise.
  void handOver(Value t0, Value s0, llvm::function_ref<void()> give, llvm::function_ref<void()> keep) {
    if (!sumsOfBlock)
      return give();
    Value limit = spec.causal ? min(index(spec.S), add(t0, tiles.queryStep)) : index(spec.S), behind = add(s0, tiles.keys);
    when(atLeast(behind, limit), give);
    when(below(behind, limit), keep);
  }

  void addToQueries(const Located &head, Value member, Value t0, Value s0, const Stage &slopes, Values dq) {
    when(hasFeatures(), [&] {
      Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, s0, index(0));
      for (Value &sum : dq)
        sum = sumsOfBlock ? select(isFirst, number(0), sum) : sum;
      for (int64_t row = 0; row < tiles.keys; row += 16)
        multiplyRows(turnedSide(slopes, row, rowsOfWarp()), keysOfBlock, row, featuresOfWarp(), dq.begin());
      auto give = [&] {
        storeRows(dq, place(grad.dq, head.where), grad.dq, add(t0, rowsOfWarp()), spec.T, featuresOfWarp(), 16, spec.K,
                  [](int64_t, Value sum) { return sum; });
      };
      handOver(t0, s0, give, [&] {
        Value to = placeOfSums(member, t0);
        for (size_t half : {0, 1})
          simt::storeNumbers(b, loc, ArrayRef(dq).slice(4 * half, 4), simt::at(b, loc, to, word(index(int64_t(half) * 16))), false);
      });
    });
  }

  // With wgmma, one warpgroup has all of a turn's queries and their gradients; the next turn, the other one. The chain of a query goes on over keys from
  // turn to turn of the blocks of keys, through the block's scratch: groups of four numbers, of each thread side by side.
  void addToQueriesByTurns(const Located &head, Value member, Value parity, Value t0, Value s0, const Stage &slopes) {
    const int64_t count = tiles.ofK / 2, groupThreads = 4 * 32;
    Value isMine = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, div(warp, 4), parity);
    when(isMine, [&] {
      const int64_t perMember = tiles.queriesOfGroup / (spec.A / spec.G) * tiles.ofK;
      auto placeOfFour = [&](int64_t four) {
        Value element = add(add(add(mul(member, perMember), mul(t0, tiles.ofK)), mul(rem(self, groupThreads), 4)), four * groupThreads * 4);
        return simt::at(b, loc, sumsOfBlock, word(mul(element, 4)));
      };
      Values dq = zeros(count);
      if (sumsOfBlock) {
        Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, s0, index(0));
        dq.clear();
        for (int64_t four = 0; four < count / 4; ++four)
          for (Value sum : simt::loadNumbers(b, loc, placeOfFour(four), 4))
            dq.push_back(select(isFirst, number(0), sum));
      }
      dq = simt::preparedSums(b, loc, dq);
      Value a = addressOf(slopes), c = addressOf(keysOfBlock);
      for (int64_t row = 0; row < tiles.keys; row += 16)
        dq = simt::multiplyTiles(b, loc, {a, row * 2 * kLineFeatures, true}, {c, row * 2 * kLineFeatures, true}, dq);
      simt::endProducts(b, loc);
      dq = simt::finishedSums(b, loc, dq);
      auto give = [&] {
        storeRows(dq, place(grad.dq, head.where), grad.dq, add(t0, mul(rem(warp, 4), kWarpRows)), spec.T, {}, tiles.ofK, spec.K,
                  [](int64_t, Value sum) { return sum; });
      };
      handOver(t0, s0, give, [&] {
        for (int64_t four = 0; four < count / 4; ++four)
          simt::storeNumbers(b, loc, ArrayRef<Value>(dq).slice(size_t(4 * four), 4), placeOfFour(four), false);
      });
    });
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
      const Keys keys = keysAt(index(0));
      bringKeys(keys, matrices, s0);
      awaitTiles();
      return slopesOf(at, rowsOf(at, t0, 1), keys, t0, s0, true);
    });
  }

  const AttendGradSpec &grad;
  const GradTiles tiles;
  Stage byK, byE; // keys and values, or queries and dout
  Stage queriesOfTurns, doutsOfTurns; // of two turns
  Stage keysOfBlock, valuesOfBlock, slopesOfBlock; // if all of a head is together; values with wgmma alone
  Value rowsOfQueries; // in shared memory: of two turns' queries, or of all
  Value sumsOfBlock;   // in its scratch; null: it has none
  Value logOfFactor, partOfKept; // null: there is no dropout
  Draws drawsOfQueries, drawsOfKeys;
};

} // namespace

int64_t itemsOfTensorAttend(const AttendGradSpec &grad, const TargetInfo &target) {
  GradTiles tiles(grad.forward, target);
  return tiles.together ? tiles.keyHeads : std::max(tiles.heads * tiles.blocksT, tiles.keyHeads * tiles.blocksS);
}

bool attendsByGroups(const AttendGradSpec &grad, const TargetInfo &target) { return GradTiles(grad.forward, target).groups; }

Grid gridOfTensorAttend(const AttendGradSpec &grad, const TargetInfo &target) {
  GradTiles tiles(grad.forward, target);
  Grid grid = gridOfBlocks(tiles.together ? tiles.togethers : itemsOfTensorAttend(grad, target), kAttendThreads, target);
  if (tiles.together)
    grid.shared = TensorBackward::bytesOfLaunch(tiles);
  return grid;
}

int64_t scratchBytesOfBlock(const AttendGradSpec &grad, const TargetInfo &target) {
  return isOfTensorCores(grad.forward) ? GradTiles(grad.forward, target).scratchBytes() : 0;
}

func::FuncOp buildAttendOnTensorCores(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &spec, const TargetInfo &target) {
  return TensorBackward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
