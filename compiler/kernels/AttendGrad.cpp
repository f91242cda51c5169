// AttendGrad.cpp: streaming attention, backward.
//
// With p[t, s] = exp(score - lse[t]), w = p * kept / (1 - rate) and delta[t] = sum over e of dout * o (Dao et al.
// 2022):
//
//    dv[s] = sum over t of w[t, s] dout[t]          dp[t, s] = (dout[t] . v[s]) * kept / (1 - rate)
//    ds[t, s] = p (dp - delta[t]);  dbias = ds      dq[t] = sum over s of scale ds k[s]     dk[s] = sum over t of scale
//    ds q[t]
//
// One thread owns a key head: dk and dv are chains over (query head of the group, t), dq a chain over s, all
// accumulated where they are stored. Probabilities are computed again, block by block, by the forward's own code.
#include "compiler/kernels/AttendEmitter.h"
#include "compiler/solve/Bytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

// Byte offsets of a thread's scratch.
struct Scratch {
  int64_t queries, gradients, shares, slopes, lse, delta, bias, total;
  explicit Scratch(const AttendGradSpec &grad) {
    const AttendSpec &spec = grad.forward;
    int64_t size = bytesOf(spec.elem), block = queryBlockOf(spec), keys = std::min(kKeyBlock, spec.S);
    queries = 0;
    gradients = queries + size * block * spec.K;
    shares = gradients + size * block * spec.E;
    slopes = shares + size * block * keys;
    lse = slopes + size * block * keys;
    delta = lse + size * block;
    bias = solve::roundUp(delta + size * block);
    int64_t table = grad.grain > 0 ? size * (spec.A / spec.G) * spec.T * spec.S : 0;
    total = solve::roundUp(bias + table);
  }
};

class Backward : AttendEmitter {
public:
  Backward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &grad, const TargetInfo &target)
      : AttendEmitter(b, module, name, grad.forward, target, bufferCount(grad), Scratch(grad).total),
        grad(grad) {
    Scratch layout(grad);
    packedQ = scratch(layout.queries);
    packedG = scratch(layout.gradients);
    shares = scratch(layout.shares);
    slopes = scratch(layout.slopes);
    lseBlock = scratch(layout.lse);
    deltaBlock = scratch(layout.delta);
    biasTable = scratch(layout.bias);
  }

  func::FuncOp build() {
    if (grad.wantsBiasGrad) {
      const int64_t leads = headsOf(spec) / spec.A;
      int64_t examples = spec.batchDim >= 0 ? spec.lead[spec.batchDim] : 1, perExample = leads / examples;
      auto heads = [&](Value group, Value from, int64_t count) {
        loop(from, add(from, count), 1, [&](Value lead) { keyHead(examplesFirst(lead), group); });
      };
      forItems(itemsOf(grad), [&](Value group) {
        if (grad.grain == 0)
          return heads(group, index(0), leads);
        loop(index(0), index(leads), grad.grain * perExample, [&](Value first) {
          fillRows(biasTable, spec.S, index(spec.A / spec.G * spec.T), spec.S, 0.0);
          heads(group, first, grad.grain * perExample);
          addTable(group);
        });
      });
    } else {
      forItems(itemsOf(grad), [&](Value item) {
        Value groups = index(spec.G);
        keyHead(leadIndices(arith::DivUIOp::create(b, loc, item, groups)), arith::RemUIOp::create(b, loc, item, groups));
      });
    }
    return function;
  }

private:
  // Where this head's gradients and results start.
  struct Gradients {
    Place o, lse, dout, dq, dk, dv, dbias;
  };

  // The leading indices of number `linear` when the examples are counted slowest.
  SmallVector<Value> examplesFirst(Value linear) {
    SmallVector<Value> lead(spec.lead.size());
    auto take = [&](size_t dim) {
      lead[dim] = arith::RemUIOp::create(b, loc, linear, index(spec.lead[dim]));
      linear = arith::DivUIOp::create(b, loc, linear, index(spec.lead[dim]));
    };
    for (size_t dim = lead.size(); dim-- > 0;)
      if (int(dim) != spec.batchDim)
        take(dim);
    if (spec.batchDim >= 0)
      lead[spec.batchDim] = linear;
    return lead;
  }

  void keyHead(SmallVector<Value> lead, Value group) {
    SmallVector<Value> at = lead;
    at.push_back(group);
    Place dk = place(grad.dk, at), dv = place(grad.dv, at);
    fillRows(dk, rowStride(grad.dk), index(spec.S), spec.K, 0.0);
    fillRows(dv, rowStride(grad.dv), index(spec.S), spec.E, 0.0);
    int64_t perGroup = spec.A / spec.G;
    loop(index(0), index(perGroup), 1, [&](Value member) {
      Value query = add(mul(group, perGroup), member);
      Head head = locate(lead, query);
      SmallVector<Value> where = lead;
      where.push_back(query);
      Gradients g{
          place(spec.o, where), place(spec.lse, where), place(grad.dout, where), place(grad.dq, where), dk, dv, {}};
      if (grad.wantsBiasGrad)
        g.dbias = grad.grain > 0 ? Place{biasTable.memory, add(biasTable.at, mul(member, spec.T * spec.S))}
                                 : place(grad.dbias, {query});
      loop(index(0), index(spec.T), queryBlock, [&](Value t0) { queries(head, g, t0); });
    });
  }

  void queries(const Head &head, const Gradients &all, Value t0) {
    Value count = min(index(queryBlock), sub(index(spec.T), t0));
    auto rows = [&](Place place, const View &view) {
      return Place{place.memory, add(place.at, mul(t0, rowStride(view)))};
    };
    Gradients g = all;
    g.o = rows(all.o, spec.o);
    g.dout = rows(all.dout, grad.dout);
    g.dq = rows(all.dq, grad.dq);
    g.lse.at = add(all.lse.at, mul(t0, spec.lse.strides.back()));
    Place q = rows(head.q, spec.q);
    packTransposed(q, rowStride(spec.q), count, spec.K, packedQ);
    packTransposed(g.dout, rowStride(grad.dout), count, spec.E, packedG);
    prepareRows(g, count);
    fillRows(g.dq, rowStride(grad.dq), count, spec.K, 0.0);

    Value limit = keyLimit(t0, count);
    loop(index(0), limit, kKeyBlock, [&](Value s0) {
      Patch part{t0, count, s0, min(index(kKeyBlock), sub(limit, s0))};
      auto keyRows = [&](Place place, const View &view) {
        return Place{place.memory, add(place.at, mul(s0, rowStride(view)))};
      };
      Place k = keyRows(head.k, spec.k), v = keyRows(head.v, spec.v);
      scores(head, part, packedQ, shares);
      slopesOfShares(v, part);
      drawKept(head, part);
      loop(index(0), count, lanes, [&](Value lane) { slopesOfScores(part, lane); });
      if (grad.wantsBiasGrad)
        addBiasGradient(g, part);

      // dv[s] += w[s, t] dout[t];  dk[s] += ds[s, t] q[t];  dq[t] += ds[s, t] k[s]
      sumOverQueries(shares, g.dout, rowStride(grad.dout), keyRows(g.dv, grad.dv), rowStride(grad.dv), part, spec.E);
      sumOverQueries(slopes, q, rowStride(spec.q), keyRows(g.dk, grad.dk), rowStride(grad.dk), part, spec.K);
      sumOverKeys(k, g.dq, part);
    });
  }

  // delta[t] and lse[t] of the block, contiguous; unused lanes repeat the last row. A row without keys gets lse 0: its
  // scores are -inf, so its probabilities are 0.
  void prepareRows(const Gradients &g, Value count) {
    Value last = add(count, -1);
    auto wide = VectorType::get({16}, elem);
    loop(index(0), index(queryBlock), 1, [&](Value lane) {
      Value t = min(lane, last);
      Value sum = arith::ConstantOp::create(b, loc, b.getZeroAttr(wide));
      for (int64_t col = 0; col < spec.E; col += 16) {
        int64_t valid = std::min<int64_t>(16, spec.E - col);
        Value x = loadSome(g.dout, add(mul(t, rowStride(grad.dout)), col), valid, wide);
        Value y = loadSome(g.o, add(mul(t, rowStride(spec.o)), col), valid, wide);
        sum = fma(x, y, sum);
      }
      store(addLanes(sum), deltaBlock, lane);
      Value lse = load(g.lse, mul(t, spec.lse.strides.back()));
      Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, lse,
                                          number(-std::numeric_limits<double>::infinity()));
      store(select(empty, number(0.0), lse), lseBlock, lane);
    });
  }

  // 16 lanes as a fixed tree: l with l + 8, then + 4, + 2, + 1.
  Value addLanes(Value sum) {
    for (int64_t half : {8, 4, 2, 1}) {
      SmallVector<int64_t> low(half), high(half);
      for (int64_t i = 0; i < half; ++i) {
        low[i] = i;
        high[i] = half + i;
      }
      sum = fadd(vector::ShuffleOp::create(b, loc, sum, sum, low), vector::ShuffleOp::create(b, loc, sum, sum, high));
    }
    return vector::ExtractOp::create(b, loc, sum, ArrayRef<int64_t>{0});
  }

  // slopes[key][query] = dout[query] . v[key].
  void slopesOfShares(Place v, const Patch &part) {
    TileProduct p;
    p.a = v;
    p.aRow = rowStride(spec.v);
    p.aInner = 1;
    p.b = packedG;
    p.bInner = p.cRow = p.cols = queryBlock;
    p.c = slopes;
    p.rows = part.keys;
    p.inner = index(spec.E);
    p.colCount = part.queries;
    p.fresh = true;
    spareScores(p, part);
    product(p);
  }

  // Scores become the shares w, slopes become scale * ds (ds alone if the bias wants its gradient).
  void slopesOfScores(const Patch &part, Value lane) {
    Value lse = loadVector(lseBlock, lane), delta = loadVector(deltaBlock, lane);
    Value inverse = spec.dropout > 0 ? splat(factorOfKept) : Value(), zero = splat(0.0);
    forKeys(part, lane, {}, [&](Value key, Value kept, ValueRange) -> SmallVector<Value> {
      Value at = add(mul(key, queryBlock), lane);
      Value share = exp(fsub(loadVector(shares, at), lse)), slope = loadVector(slopes, at), weight = share;
      if (kept) {
        weight = select(kept, fmul(share, inverse), zero);
        slope = select(kept, fmul(slope, inverse), zero);
      }
      slope = fmul(share, fsub(slope, delta));
      storeVector(rounded(weight), shares, at);
      storeVector(grad.wantsBiasGrad ? slope : rounded(fmul(slope, splat(spec.scale))), slopes, at);
      return {};
    });
  }

  void addBiasGradient(const Gradients &g, const Patch &part) {
    loop(index(0), part.queries, 1, [&](Value row) {
      bool table = grad.grain > 0;
      Value t = mul(add(part.t0, row), table ? spec.S : grad.dbias.strides[1]);
      loop(index(0), keysNeeded(part, add(row, 1)), 1, [&](Value key) {
        Value at = add(mul(key, queryBlock), row), slope = load(slopes, at);
        Value s = add(t, mul(add(part.s0, key), table ? 1 : grad.dbias.strides[2]));
        store(fadd(load(g.dbias, s), slope), g.dbias, s);
        store(rounded(fmul(slope, number(spec.scale))), slopes, at);
      });
    });
  }

  // What a block of examples came to joins the bias' gradient.
  void addTable(Value group) {
    int64_t perGroup = spec.A / spec.G;
    loop(index(0), index(perGroup), 1, [&](Value member) {
      Place to = place(grad.dbias, {add(mul(group, perGroup), member)});
      loop(index(0), index(spec.T), 1, [&](Value t) {
        Value from = mul(add(mul(member, spec.T), t), spec.S), row = mul(t, grad.dbias.strides[1]);
        loop(index(0), index(spec.S), 1, [&](Value s) {
          Value at = add(row, mul(s, grad.dbias.strides[2]));
          store(fadd(load(to, at), load(biasTable, add(from, s))), to, at);
        });
      });
    });
  }

  // c[s] += sum over t of a[s, t] b[t].
  void sumOverQueries(Place a, Place rowsOfB, int64_t bRow, Place c, int64_t cRow, const Patch &part, int64_t cols) {
    TileProduct p;
    p.a = a;
    p.aRow = queryBlock;
    p.aInner = 1;
    p.b = rowsOfB;
    p.bInner = bRow;
    p.c = c;
    p.cRow = cRow;
    p.rows = part.keys;
    p.inner = part.queries;
    p.cols = cols;
    spareSumOverQueries(p, part);
    product(p);
  }

  // dq[t] += sum over s of slope[s, t] k[s].
  void sumOverKeys(Place k, Place dq, const Patch &part) {
    TileProduct p;
    p.a = slopes;
    p.aRow = 1;
    p.aInner = queryBlock;
    p.b = k;
    p.bInner = rowStride(spec.k);
    p.c = dq;
    p.cRow = rowStride(grad.dq);
    p.rows = part.queries;
    p.inner = part.keys;
    p.cols = spec.K;
    spareSumOverKeys(p, part);
    product(p);
  }

  const AttendGradSpec &grad;
  Place packedQ, packedG, shares, slopes, lseBlock, deltaBlock, biasTable;
};

} // namespace

int64_t scratchBytesPerThread(const AttendGradSpec &spec, const TargetInfo &target) {
  return attendScratch(spec.forward, Scratch(spec).total, target);
}

// The gradient of a bias is a chain over the leading axes, the examples slowest: they stay in one thread.
int64_t itemsOf(const AttendGradSpec &grad) {
  const AttendSpec &spec = grad.forward;
  return grad.wantsBiasGrad ? spec.G : headsOf(spec) / spec.A * spec.G;
}

func::FuncOp buildAttendGrad(OpBuilder &b, ModuleOp module, const std::string &name, const AttendGradSpec &spec,
                             const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(b);
  return Backward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
