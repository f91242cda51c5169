// AttendGradDevice.cpp: attention, backward, on a GPU: the formulas of AttendGrad.cpp.
//
// Sums over keys (dq), over queries (dk, dv) and over examples (dbias) are chains of different threads, so each has blocks of its own,
// which compute the shares and slopes of their tiles again. No result waits for another, and none needs an atomic addition.
#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/Device.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

class DeviceBackward : DeviceAttend {
public:
  DeviceBackward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &grad, const TargetInfo &target)
      : DeviceAttend(b, module, name, grad.forward, target, bufferCount(grad), std::max(grad.forward.K, grad.forward.E)), grad(grad) {
    shares = sharedMemory(name + "_shares", tiles.keys * pitch(), elem);
    slopes = sharedMemory(name + "_slopes", tiles.keys * pitch(), elem);
    lse = sharedMemory(name + "_lse", tiles.queries, elem);
    delta = sharedMemory(name + "_delta", tiles.queries, elem);
  }

  func::FuncOp build() {
    const int64_t ofQueries = AttendTiles::chunksOf(spec.K), ofKeys = AttendTiles::chunksOf(std::max(spec.K, spec.E));
    forBlocks(tiles.heads * tiles.blocksT * ofQueries, [&](Value item) {
      Value first = mul(take(item, ofQueries), kMostColumns), t0 = mul(take(item, tiles.blocksT), tiles.queries);
      Value number = take(item, spec.A);
      gradientOfQueries(headAt(grad, leadIndices(item), number), t0, first);
    });
    forBlocks(tiles.keyHeads * tiles.blocksS * ofKeys, [&](Value item) {
      Value first = mul(take(item, ofKeys), kMostColumns), s0 = mul(take(item, tiles.blocksS), tiles.keys);
      Value group = take(item, spec.G);
      gradientsOfKeys(leadIndices(item), group, s0, first);
    });
    if (grad.wantsBiasGrad)
      forBlocks(spec.A * tiles.blocksT * tiles.blocksS, [&](Value item) {
        Value s0 = mul(take(item, tiles.blocksS), tiles.keys), t0 = mul(take(item, tiles.blocksT), tiles.queries);
        gradientOfBias(item, t0, s0);
      });
    return function;
  }

private:
  // delta[t] and lse[t] of the tile, 16 threads a row. A row without keys gets lse 0: its scores are -inf, so its shares are 0.
  void prepareRows(const Located &head, Value t0) {
    for (int64_t e = 0; e < reachQ; ++e) {
      Value which = add(column, kAttendSide * e), t = add(t0, which);
      if (spec.T % tiles.queries)
        t = min(t, index(spec.T - 1));
      auto step = [&](Value col, int64_t count, Value sum) {
        Value there = count < 16 ? below(row, index(count)) : Value(), at = add(col, row);
        auto element = [&](Place from, const View &view) {
          return choose(there, [&] { return load(from, add(mul(t, rowStride(view)), at)); });
        };
        Value x = element(head.dout, grad.dout);
        return fma(x, element(head.o, spec.o), sum);
      };
      Value sum = number(0);
      int64_t whole = spec.E / 16 * 16;
      if (whole > 0)
        sum = loop(index(0), index(whole), 16, {sum}, [&](Value col, ValueRange carried) -> Values { return {step(col, 16, carried[0])}; })[0];
      if (spec.E > whole)
        sum = step(index(whole), spec.E - whole, sum);
      for (int distance : {8, 4, 2, 1})
        sum = fadd(sum, simt::fromBehind(b, loc, sum, distance));
      when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, row, index(0)), [&] {
        Value value = load(head.lse, mul(t, spec.lse.strides.back()));
        Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, value, number(-std::numeric_limits<double>::infinity()));
        write(sum, delta, which);
        write(select(empty, number(0), value), lse, which);
      });
    }
  }

  // Of this thread's places in a tile: the shares as the sums take them, and ds, without the scale.
  std::pair<Values, Values> tileOf(const Located &head, const Tile &tile) {
    drawTile(head, tile);
    Values weights = products(rows(head.q, spec.q, tile.t0, spec.T, tiles.queries), rows(head.k, spec.k, tile.s0, spec.S, tiles.keys), spec.K);
    Values ds = products(rows(head.dout, grad.dout, tile.t0, spec.T, tiles.queries), rows(head.v, spec.v, tile.s0, spec.S, tiles.keys), spec.E);
    finishScores(head, tile, weights);
    for (int64_t i = 0; i < reachQ; ++i) {
      Value logSum = read(lse, query(i)), ofRow = read(delta, query(i));
      for (int64_t j = 0; j < reachK; ++j) {
        Value &weight = weights[i * reachK + j], &slope = ds[i * reachK + j];
        Value share = exp(fsub(weight, logSum));
        weight = share;
        if (Value kept = isKept(head, tile, query(i), key(j))) {
          weight = select(kept, fmul(share, factorOfKept), number(0));
          slope = select(kept, fmul(slope, factorOfKept), number(0));
        }
        slope = fmul(share, fsub(slope, ofRow));
        weight = rounded(weight);
      }
    }
    return {weights, ds};
  }
  void storeSlopes(Values ds) {
    for (Value &slope : ds)
      slope = rounded(fmul(slope, number(spec.scale)));
    store(ds, slopes);
  }

  void gradientOfQueries(const Located &head, Value t0, Value first) {
    const int64_t columns = columnsOf(spec.K);
    prepareRows(head, t0);
    Values sums = loop(index(0), limitOfKeys(t0), tiles.keys, zeros(reachQ * columns / kAttendSide), [&](Value s0, ValueRange before) {
      Tile tile = tileAt(t0, s0);
      storeSlopes(tileOf(head, tile).second);
      return sumUp(overKeys(tile, slopes, rows(head.k, spec.k, s0, spec.S, tiles.keys), first, columns, spec.K), Values(before));
    });
    storeRows(sums, reachQ, place(grad.dq, head.where), rowStride(grad.dq), t0, spec.T, first, columns, spec.K,
              [](int64_t, Value sum) { return sum; });
  }

  // The chains of a key go over the group's query heads, and over the queries of each.
  void gradientsOfKeys(Values lead, Value group, Value s0, Value first) {
    const int64_t ofK = columnsOf(spec.K), ofV = columnsOf(spec.E), perGroup = spec.A / spec.G;
    const int64_t countK = reachK * ofK / kAttendSide, countV = reachK * ofV / kAttendSide;
    Value from = spec.causal ? mul(div(s0, tiles.queries), tiles.queries) : index(0);
    Values sums = loop(index(0), index(perGroup), 1, zeros(countK + countV), [&](Value member, ValueRange ofMember) {
      Located head = headAt(grad, lead, add(mul(group, perGroup), member));
      return loop(from, index(spec.T), tiles.queries, ofMember, [&](Value t0, ValueRange before) {
        prepareRows(head, t0);
        Tile tile = tileAt(t0, s0);
        auto [weights, ds] = tileOf(head, tile);
        store(weights, shares);
        storeSlopes(ds);
        Values dk = sumUp(overQueries(tile, slopes, rows(head.q, spec.q, t0, spec.T, tiles.queries), first, ofK, spec.K),
                          Values(before.take_front(countK)));
        dk.append(sumUp(overQueries(tile, shares, rows(head.dout, grad.dout, t0, spec.T, tiles.queries), first, ofV, spec.E),
                        Values(before.drop_front(countK))));
        return dk;
      });
    });
    Values where = lead;
    where.push_back(group);
    auto same = [](int64_t, Value sum) { return sum; };
    storeRows(Values(ArrayRef(sums).take_front(countK)), reachK, place(grad.dk, where), rowStride(grad.dk), s0, spec.S, first, ofK, spec.K, same);
    storeRows(Values(ArrayRef(sums).drop_front(countK)), reachK, place(grad.dv, where), rowStride(grad.dv), s0, spec.S, first, ofV, spec.E, same);
  }

  void gradientOfBias(Value head, Value t0, Value s0) {
    auto forPlaces = [&](OfPlace body) {
      for (int64_t i = 0; i < reachQ; ++i)
        for (int64_t j = 0; j < reachK; ++j) {
          Value t = add(t0, query(i)), s = add(s0, key(j));
          Value there = both(spec.T % tiles.queries ? below(t, index(spec.T)) : Value(), spec.S % tiles.keys ? below(s, index(spec.S)) : Value());
          body(there, add(mul(t, grad.dbias.strides[1]), mul(s, grad.dbias.strides[2])));
        }
    };
    addToBiasGradient(grad, head, spec.causal ? below(s0, limitOfKeys(t0)) : Value(), forPlaces, [&](const Located &at) {
      prepareRows(at, t0);
      return tileOf(at, tileAt(t0, s0)).second;
    });
  }

  const AttendGradSpec &grad;
  Value shares, slopes, lse, delta;
};

} // namespace

Grid gridOfAttend(const AttendGradSpec &grad, const TargetInfo &target) {
  if (isOfTensorCores(grad.forward))
    return gridOfTensorAttend(grad, target);
  const AttendSpec &spec = grad.forward;
  AttendTiles tiles(spec);
  int64_t items = std::max(tiles.heads * tiles.blocksT * AttendTiles::chunksOf(spec.K),
                           tiles.keyHeads * tiles.blocksS * AttendTiles::chunksOf(std::max(spec.K, spec.E)));
  return gridOfBlocks(items, kAttendThreads, target);
}

func::FuncOp buildAttendOnDevice(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &spec, const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(b);
  if (isOfTensorCores(spec.forward))
    return buildAttendOnTensorCores(b, module, name, spec, target);
  return DeviceBackward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
