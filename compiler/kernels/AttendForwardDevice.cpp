// AttendForwardDevice.cpp: attention, forward, on a GPU: the formulas of Attend.cpp, a block of threads for a block of queries.
//
// Thread t also walks a part of the keys of query t % queries: its largest score, its shares. The chain of a query's shares is one
// thread's, since it is one sum.
#include "compiler/kernels/AttendTensor.h"
#include "compiler/kernels/Device.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

class DeviceForward : DeviceAttend {
public:
  DeviceForward(OpBuilder &b, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target)
      : DeviceAttend(b, module, name, spec, target, bufferCount(spec), spec.E), columns(columnsOf(spec.E)) {
    shares = sharedMemory(name + "_shares", tiles.keys * pitch(), elem);
    partial = sharedMemory(name + "_partial", kAttendThreads, elem);
    maximum = sharedMemory(name + "_maximum", tiles.queries, elem);
    factor = sharedMemory(name + "_factor", tiles.queries, elem);
    mine = rem(self, tiles.queries), part = div(self, tiles.queries);
    keysEach = tiles.keys * tiles.queries / kAttendThreads;
    isFirst = below(self, index(tiles.queries));
  }

  func::FuncOp build() {
    allowRegisters(144);
    const int64_t chunks = AttendTiles::chunksOf(spec.E);
    forBlocks(tiles.heads * tiles.blocksT * chunks, [&](Value item) {
      Value firstColumn = mul(take(item, chunks), kMostColumns), t0 = mul(take(item, tiles.blocksT), tiles.queries);
      Value number = take(item, spec.A);
      queries(locate(leadIndices(item), number), t0, firstColumn);
    });
    return function;
  }

private:
  void queries(const Head &head, Value t0, Value firstColumn) {
    Values at = head.lead;
    at.push_back(head.head);
    Value minusInfinity = number(-std::numeric_limits<double>::infinity());
    when(isFirst, [&] { write(minusInfinity, maximum, self); });
    Values carried = zeros(reachQ * columns / kAttendSide);
    carried.push_back(number(0)); // the sum of the shares, of a query's first thread
    Values result = loop(index(0), limitOfKeys(t0), tiles.keys, carried, [&](Value s0, ValueRange before) {
      Tile tile = tileAt(t0, s0);
      drawTile(head, tile);
      Values scores = products(rows(head.q, spec.q, t0, spec.T, tiles.queries), rows(head.k, spec.k, s0, spec.S, tiles.keys), spec.K);
      finishScores(head, tile, scores);
      store(scores, shares);
      sync();
      Values sums(before.drop_back());
      Value total = normalize(before.back());
      prepare(head, tile);
      for (int64_t i = 0; i < reachQ; ++i) {
        Value scale = read(factor, query(i));
        for (int64_t j = 0; j < columns / kAttendSide; ++j) {
          Value &sum = sums[i * columns / kAttendSide + j];
          sum = fmul(sum, scale);
        }
      }
      sums = sumUp(overKeys(tile, shares, rows(head.v, spec.v, s0, spec.S, tiles.keys), firstColumn, columns, spec.E), sums);
      sums.push_back(total);
      return sums;
    });
    finish(at, t0, firstColumn, result);
  }

  Value place(int64_t key) { return add(mul(add(mul(part, keysEach), key), pitch()), mine); }

  // Scores become exp(score - maximum); maximum, sum and the factor for what was summed so far are updated.
  Value normalize(Value sumBefore) {
    Value top = number(-std::numeric_limits<double>::infinity());
    for (int64_t k = 0; k < keysEach; ++k)
      top = larger(read(shares, place(k)), top);
    write(top, partial, self);
    sync();
    Value previous = read(maximum, mine);
    top = previous;
    for (int64_t p = 0; p < kAttendThreads / tiles.queries; ++p)
      top = larger(read(partial, add(mine, p * tiles.queries)), top);
    Value none = number(-std::numeric_limits<double>::infinity());
    Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, top, none);
    Value reference = select(isEmpty, number(0), top);
    for (int64_t k = 0; k < keysEach; ++k) {
      Value at = place(k);
      write(exp(fsub(read(shares, at), reference)), shares, at);
    }
    Value rescale = exp(fsub(previous, reference));
    when(isFirst, [&] { write(rescale, factor, mine); });
    sync();
    return choose(isFirst, [&] {
      write(top, maximum, mine);
      Values total = loop(index(0), index(tiles.keys), 1, {number(0)}, [&](Value key, ValueRange sum) -> Values {
        return {fadd(sum[0], read(shares, add(mul(key, pitch()), mine)))};
      });
      return fma(sumBefore, rescale, total[0]);
    });
  }

  // Shares as the product takes them: those that are kept, rounded in programs of bf16.
  void prepare(const Head &head, const Tile &tile) {
    if (spec.dropout <= 0 && !spec.pairs)
      return;
    sync(); // their sum was read from them
    for (int64_t k = 0; k < keysEach; ++k) {
      Value at = place(k), share = read(shares, at);
      if (Value kept = isKept(head, tile, mine, add(mul(part, keysEach), k)))
        share = select(kept, share, number(0));
      write(rounded(share), shares, at);
    }
  }

  void finish(ValueRange at, Value t0, Value firstColumn, const Values &result) {
    when(isFirst, [&] {
      Value total = result.back(), none = number(-std::numeric_limits<double>::infinity());
      Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, total, number(0));
      Value inverse = fdiv(number(1), total);
      if (spec.dropout > 0)
        inverse = fmul(inverse, factorOfKept);
      write(select(empty, number(0), inverse), factor, mine);
      Value logSum = select(empty, none, fadd(read(maximum, mine), log(total))), t = add(t0, mine);
      when(spec.T % tiles.queries ? below(t, index(spec.T)) : Value(), [&] {
        AttendEmitter::store(logSum, AttendEmitter::place(spec.lse, at), mul(t, spec.lse.strides.back()));
      });
    });
    sync();
    storeRows(result, reachQ, AttendEmitter::place(spec.o, at), spec.o.strides.rbegin()[1], t0, spec.T, firstColumn, columns, spec.E,
              [&](int64_t i, Value sum) { return fmul(sum, read(factor, query(i))); });
  }

  const int64_t columns; // of the values, that a block has
  int64_t keysEach;
  Value shares, partial, maximum, factor;
  Value mine, part, isFirst; // the query of this thread, which part of its keys; whether it is the query's first thread
};

} // namespace

bool isOfTensorCores(const AttendSpec &spec) {
  return spec.pairs && spec.elem == Elem::F32 && spec.K <= kTensorFeatures && spec.E <= kTensorFeatures;
}

Grid gridOfAttend(const AttendSpec &spec, const TargetInfo &target) {
  if (isOfTensorCores(spec))
    return gridOfTensorAttend(spec, target);
  AttendTiles tiles(spec);
  return gridOfBlocks(tiles.heads * tiles.blocksT * AttendTiles::chunksOf(spec.E), kAttendThreads, target);
}

func::FuncOp buildAttendOnDevice(OpBuilder &b, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(b);
  if (isOfTensorCores(spec))
    return buildAttendOnTensorCores(b, module, name, spec, target);
  return DeviceForward(b, module, name, spec, target).build();
}

} // namespace cinch::kernels
