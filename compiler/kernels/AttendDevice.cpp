// AttendDevice.cpp: tiles of scores and sums over them, by the threads of a block.
#include "compiler/kernels/AttendDevice.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {

static int64_t sideFor(int64_t size) { return size <= 16 ? 16 : size <= 32 ? 32 : 64; }

AttendTiles::AttendTiles(const AttendSpec &spec) : queries(sideFor(spec.T)), keys(sideFor(spec.S)) {
  static_assert(kKeyBlock == 64, "a tile has the keys of a block");
  blocksT = (spec.T + queries - 1) / queries, blocksS = (spec.S + keys - 1) / keys;
  heads = headsOf(spec), keyHeads = heads / spec.A * spec.G;
}

DeviceAttend::DeviceAttend(OpBuilder &builder, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target,
                           int64_t buffers, int64_t mostColumns)
    : BlockAttend(builder, module, name, spec, target, buffers), tiles(spec), reachQ(tiles.queries / kAttendSide),
      reachK(tiles.keys / kAttendSide) {
  row = rem(self, kAttendSide), column = div(self, kAttendSide);
  int64_t ofScores = kAttendStep * (tiles.queries + 1 + tiles.keys + 1), ofRows = kAttendStep * columnsOf(mostColumns);
  staged = sharedMemory(name + "_staged", std::max(ofScores, ofRows), elem);
  int64_t bytes = spec.S % 64 == 0 ? 8 : 16; // the keys of a tile may begin within a group of 64 draws
  draws = drawsOf(name, tiles.queries, bytes, bytes);
}

DeviceAttend::Rows DeviceAttend::rows(Place at, const View &view, Value first, int64_t total, int64_t tile) {
  int64_t stride = view.strides.rbegin()[1];
  return {{at.memory, add(at.at, mul(first, stride))}, stride, total % tile == 0 ? Value() : sub(index(total), first)};
}

// ---- Scores ------------------------------------------------------------------------------------------------------------------

Value DeviceAttend::limitOfKeys(Value t0) {
  return spec.causal ? min(index(spec.S), min(index(spec.T), add(t0, tiles.queries))) : index(spec.S);
}

DeviceAttend::Tile DeviceAttend::tileAt(Value t0, Value s0) {
  bool whole = !spec.causal && spec.S % tiles.keys == 0;
  return {t0, s0, whole ? Value() : min(index(tiles.keys), sub(limitOfKeys(t0), s0))};
}

// Features [feature, feature + count) of the rows, as [feature][row]; zeros in place of rows that there are not.
void DeviceAttend::stageFeatures(const Rows &from, int64_t tile, Value feature, int64_t count, Value to, int64_t at) {
  for (int64_t e = 0; e < tile / kAttendSide; ++e) {
    Value which = add(column, kAttendSide * e);
    Value there = from.count ? below(which, from.count) : Value();
    if (count < kAttendStep)
      there = both(there, below(row, index(count)));
    Value element = choose(there, [&] { return load(from.at, add(mul(which, from.stride), add(feature, row))); });
    write(element, to, add(add(mul(row, tile + 1), which), at));
  }
}

DeviceAttend::Values DeviceAttend::products(const Rows &queries, const Rows &keys, int64_t features) {
  const int64_t beside = kAttendStep * (tiles.queries + 1), whole = features / kAttendStep * kAttendStep;
  auto step = [&](Value feature, int64_t count, ValueRange sums) {
    stageFeatures(queries, tiles.queries, feature, count, staged, 0);
    stageFeatures(keys, tiles.keys, feature, count, staged, beside);
    sync();
    Values next = loop(index(0), index(count), 1, sums, [&](Value at, ValueRange carried) {
      Values a, c, result;
      for (int64_t i = 0; i < reachQ; ++i)
        a.push_back(read(staged, add(mul(at, tiles.queries + 1), query(i))));
      for (int64_t j = 0; j < reachK; ++j)
        c.push_back(read(staged, add(add(mul(at, tiles.keys + 1), key(j)), beside)));
      for (int64_t i = 0; i < reachQ; ++i)
        for (int64_t j = 0; j < reachK; ++j)
          result.push_back(fma(c[j], a[i], carried[i * reachK + j]));
      return result;
    });
    sync();
    return next;
  };
  Values sums = zeros(reachQ * reachK);
  if (whole > 0)
    sums = loop(index(0), index(whole), kAttendStep, sums, [&](Value at, ValueRange carried) { return step(at, kAttendStep, carried); });
  return features > whole ? step(index(whole), features - whole, sums) : sums;
}

void DeviceAttend::finishScores(const Head &head, const Tile &tile, Values &scores) {
  Value masked = number(-std::numeric_limits<double>::infinity());
  for (int64_t j = 0; j < reachK; ++j) {
    Value s = add(tile.s0, key(j)), there = spec.S % tiles.keys ? below(s, index(spec.S)) : Value();
    Value safe = there ? min(s, index(spec.S - 1)) : s;
    if (spec.hasKeys) {
      Value byte = load(head.keys, mul(safe, spec.keys.strides.back()));
      there = both(there, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, byte, emitInteger(b, loc, b.getI8Type(), 0)));
    }
    for (int64_t i = 0; i < reachQ; ++i) {
      Value t = add(tile.t0, query(i)), &score = scores[i * reachK + j];
      score = fmul(score, number(spec.scale));
      if (spec.hasBias) {
        Value inside = spec.T % tiles.queries ? min(t, index(spec.T - 1)) : t;
        score = fadd(score, load(head.bias, add(mul(safe, spec.bias.strides[2]), mul(inside, spec.bias.strides[1]))));
      }
      if (Value seen = both(there, spec.causal ? atLeast(t, s) : Value()))
        score = select(seen, score, masked);
    }
  }
}

void DeviceAttend::store(const Values &values, Value memory) {
  for (int64_t i = 0; i < reachQ; ++i)
    for (int64_t j = 0; j < reachK; ++j)
      write(values[i * reachK + j], memory, add(mul(key(j), pitch()), query(i)));
}

// ---- Sums over keys or queries -----------------------------------------------------------------------------------------------

DeviceAttend::Sum DeviceAttend::overKeys(const Tile &tile, Value memory, const Rows &rows, Value first, int64_t columns, int64_t all) {
  Sum sum{memory, 1, pitch(), reachQ, rows, first, columns, all, tiles.keys, tile.keys, {}, {}, {}};
  if (!spec.causal)
    return sum;
  // Off the diagonal every query of the tile sees every key.
  sum.cut = below(tile.t0, add(tile.s0, tiles.keys));
  for (int64_t i = 0; i < reachQ; ++i) {
    Value same = mul(div(query(i), rowsOfSameTerms(spec)), rowsOfSameTerms(spec));
    sum.from.push_back(index(0));
    sum.to.push_back(min(tile.keys, add(sub(add(tile.t0, same), tile.s0), rowsOfSameTerms(spec))));
  }
  return sum;
}

DeviceAttend::Sum DeviceAttend::overQueries(const Tile &tile, Value memory, const Rows &rows, Value first, int64_t columns, int64_t all) {
  Value count = spec.T % tiles.queries ? min(index(tiles.queries), sub(index(spec.T), tile.t0)) : Value();
  Sum sum{memory, pitch(), 1, reachK, rows, first, columns, all, tiles.queries, count, {}, {}, {}};
  if (!spec.causal)
    return sum;
  sum.cut = below(tile.t0, add(tile.s0, tiles.keys));
  Value end = count ? count : index(tiles.queries);
  for (int64_t i = 0; i < reachK; ++i) {
    Value which = add(mul(column, reachK), i), same = mul(div(which, rowsOfSameTerms(spec)), rowsOfSameTerms(spec));
    sum.from.push_back(max(sub(add(tile.s0, same), tile.t0), index(0)));
    sum.to.push_back(select(below(which, tile.keys), end, index(0)));
  }
  return sum;
}

DeviceAttend::Values DeviceAttend::sumUp(const Sum &s, Values sums) {
  const int64_t reachC = s.columns / kAttendSide;
  auto terms = [&](Value base, bool cut, ValueRange start) {
    Value count = s.end ? min(index(kAttendStep), sub(s.end, base)) : index(kAttendStep);
    return loop(index(0), count, 1, start, [&](Value term, ValueRange carried) {
      Values a, c, result;
      Value at = add(base, term);
      for (int64_t i = 0; i < s.reach; ++i)
        a.push_back(read(s.memory, add(mul(at, s.termStride), mul(add(mul(column, s.reach), i), s.rowStride))));
      for (int64_t j = 0; j < reachC; ++j)
        c.push_back(read(staged, add(add(mul(term, s.columns), row), kAttendSide * j)));
      for (int64_t i = 0; i < s.reach; ++i) {
        Value needed = cut ? both(atLeast(at, s.from[i]), below(at, s.to[i])) : Value();
        for (int64_t j = 0; j < reachC; ++j) {
          Value before = carried[i * reachC + j], after = fma(a[i], c[j], before);
          result.push_back(needed ? select(needed, after, before) : after);
        }
      }
      return result;
    });
  };
  return loop(index(0), s.end ? s.end : index(s.terms), kAttendStep, sums, [&](Value base, ValueRange carried) -> Values {
    for (int64_t e = 0; e < reachC; ++e) {
      Value place = add(self, kAttendThreads * e), term = add(base, div(place, s.columns)), at = add(s.first, rem(place, s.columns));
      Value there = s.rows.count ? below(term, s.rows.count) : Value();
      if (s.all % s.columns)
        there = both(there, below(at, index(s.all)));
      write(choose(there, [&] { return load(s.rows.at, add(mul(term, s.rows.stride), at)); }), staged, place);
    }
    sync();
    Values next;
    if (s.cut) {
      auto branch = scf::IfOp::create(
          b, loc, s.cut, [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, terms(base, true, carried)); },
          [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, terms(base, false, carried)); });
      next.assign(branch.getResults().begin(), branch.getResults().end());
    } else {
      next = terms(base, false, carried);
    }
    sync();
    return next;
  });
}

void DeviceAttend::storeRows(const Values &sums, int64_t reach, Place to, int64_t stride, Value first, int64_t total, Value firstColumn,
                             int64_t columns, int64_t all, llvm::function_ref<Value(int64_t, Value)> finish) {
  const int64_t reachC = columns / kAttendSide;
  for (int64_t i = 0; i < reach; ++i) {
    Value which = add(first, add(mul(column, reach), i));
    Value there = total % (reach * kAttendSide) ? below(which, index(total)) : Value();
    for (int64_t j = 0; j < reachC; ++j) {
      Value at = add(firstColumn, key(j));
      when(both(there, all % columns ? below(at, index(all)) : Value()), [&] {
        AttendEmitter::store(finish(i, sums[i * reachC + j]), to, add(mul(which, stride), at));
      });
    }
  }
}

// ---- Dropout -----------------------------------------------------------------------------------------------------------------

void DeviceAttend::drawTile(const Head &head, const Tile &tile) { BlockAttend::drawTile(draws, head, tile.t0, tile.s0); }

Value DeviceAttend::isKept(const Head &head, const Tile &tile, Value query, Value key) {
  if (!draws.memory)
    return {};
  Value draw = draws.bytes == 8 ? key : add(rem(firstDrawOf(head, add(tile.t0, query), tile.s0), 64), key);
  Value byte = read(draws.memory, add(mul(query, draws.pitch), add(mul(div(draw, 64), 8), rem(draw, 8))));
  Value bit = arith::IndexCastOp::create(b, loc, b.getI8Type(), rem(div(draw, 8), 8));
  return arith::TruncIOp::create(b, loc, b.getI1Type(), arith::ShRUIOp::create(b, loc, byte, bit));
}

} // namespace cinch::kernels
