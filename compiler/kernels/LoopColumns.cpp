// LoopColumns.cpp: passes over the columns of a row: what is prepared before them, the loops, the reductions they
// carry.
#include "compiler/kernels/LoopEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

std::vector<int> LoopEmitter::rootsOf(const std::vector<int> &chains, const std::vector<int> &stores) {
  std::vector<int> roots;
  for (int chain : chains)
    roots.push_back(spec.nodes[chain].args[0]);
  for (int store : stores)
    roots.push_back(spec.stores[store].node);
  return roots;
}

LoopEmitter::Preheader LoopEmitter::preheader(const std::vector<int> &roots, const std::vector<int> &stores) {
  Preheader pre;
  size_t count = spec.nodes.size();
  pre.nodes.assign(count, false);
  pre.splats.resize(count);
  pre.bases.resize(count);
  std::function<void(int, bool)> visit = [&](int n, bool asVector) {
    if (!plan.variesCol[n]) {
      if (asVector && !pre.splats[n])
        pre.splats[n] = splat(scalars[n]);
      return;
    }
    if (pre.nodes[n])
      return;
    pre.nodes[n] = true;
    const LoopNode &node = spec.nodes[n];
    if (node.op == LoopOp::ReduceChain || isKept(n))
      return;
    if (plan.selectsAddress[n]) {
      pre.bases[n] = addressOf(n);
      return;
    }
    for (int arg : node.args)
      visit(arg, node.op != LoopOp::LoadAt);
    if (plan.clamped[n].index >= 0) {
      const View &index = spec.nodes[plan.clamped[n].index].view;
      pre.clampBases.resize(count);
      pre.clampBases[n] = base(index.offset - plan.clamped[n].shift, index.strides);
    }
    if (node.op == LoopOp::LoadAt)
      pre.bases[n] = basePlus(node.view, node.args, node.atStrides);
    else if (node.op == LoopOp::Load || node.op == LoopOp::Index)
      pre.bases[n] = base(node.view.offset, node.view.strides);
  };
  for (int root : roots)
    visit(root, true);
  for (int store : stores)
    pre.storeBases.push_back(base(spec.stores[store].view.offset, spec.stores[store].view.strides));
  return pre;
}

void LoopEmitter::fillDraws(const std::vector<bool> &nodes) {
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (!nodes[n] || !plan.drawsRow(int(n)) || draws[n].first)
      continue;
    const LoopNode &node = spec.nodes[n];
    Draw draw = plan.drawOf(int(n));
    Value first = addIndex(base(node.view.offset, node.view.strides), columnBegin);
    if (node.positionStride != 0)
      first = addIndex(first, elementsBefore(node));
    Value count = arith::SubIOp::create(b, loc, columnEnd, columnBegin);
    Value at = scratchByte(int(n));
    Value skip = emitDrawRow(b, loc, draw, node.elem, keys.at(keyName(node)), exampleNumber(node, nullptr), first,
                             count, arena, at);
    draws[n] = {emitDrawRowView(b, loc, draw, node.elem, arena, at), skip};
  }
}

// Where the item's whole vectors end.
Value LoopEmitter::wholeVectorsEnd() {
  int64_t whole = spec.cols / kLoopLanes * kLoopLanes;
  if (plan.blocks == 1)
    return index(whole);
  if (whole == spec.cols)
    return columnEnd;
  return arith::MinSIOp::create(b, loc, columnEnd, index(whole));
}

// Whole vectors in a loop, then the rest of the row with a mask. With blocks nothing can be carried.
LoopEmitter::Values LoopEmitter::forColumns(Value begin, ValueRange initial,
                                            std::function<Values(Lanes &, ValueRange)> body) {
  Values carried(initial.begin(), initial.end());
  Value end = wholeVectorsEnd();
  if (spec.cols >= kLoopLanes) {
    auto loop = scf::ForOp::create(b, loc, begin, end, index(kLoopLanes), carried,
                                   [&](OpBuilder &, Location, Value column, ValueRange arguments) {
                                     Lanes lanes{column, Value(), {}};
                                     Values next = body(lanes, arguments);
                                     scf::YieldOp::create(b, loc, next);
                                   });
    carried.assign(loop.getResults().begin(), loop.getResults().end());
  }
  if (spec.cols % kLoopLanes == 0)
    return carried;
  Lanes lanes{end, tailMask, {}};
  if (plan.blocks == 1)
    return body(lanes, carried);
  Value rest = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, columnEnd, end);
  scf::IfOp::create(b, loc, rest, [&](OpBuilder &, Location) {
    body(lanes, {});
    scf::YieldOp::create(b, loc);
  });
  return carried;
}

// A maximum, unlike a sum, is the same in any order. Its latency is several operations (NaN, signed zeros), so a cheap
// pass for maxima alone keeps several vectors of them.
static constexpr int64_t kAnyOrderVectors = 4;

bool LoopEmitter::anyOrderSuits(const std::vector<int> &reductions, const Preheader &pre) {
  for (int node : reductions) {
    const LoopNode &n = spec.nodes[node];
    if (n.op != LoopOp::ReduceCols || n.reduce == LoopReduce::Sum || n.reduce == LoopReduce::Prod)
      return false;
  }
  return plan.blocks == 1 && spec.cols >= 2 * kAnyOrderVectors * kLoopLanes && reductions.size() <= 2 &&
         std::count(pre.nodes.begin(), pre.nodes.end(), true) <= 6;
}

LoopEmitter::Values LoopEmitter::reduceInAnyOrder(const std::vector<int> &reductions, Value end, ValueRange initial,
                                                  const Preheader &pre) {
  Values carried;
  for (int64_t u = 0; u < kAnyOrderVectors; ++u)
    carried.append(initial.begin(), initial.end());
  size_t count = initial.size();
  auto loop = scf::ForOp::create(b, loc, columnBegin, end, index(kAnyOrderVectors * kLoopLanes), carried,
                                 [&](OpBuilder &, Location, Value column, ValueRange arguments) {
                                   Values next(arguments.begin(), arguments.end());
                                   for (int64_t u = 0; u < kAnyOrderVectors; ++u) {
                                     Lanes lanes{addIndex(column, index(u * kLoopLanes)), Value(), {}};
                                     evaluateVectors(lanes, pre);
                                     for (size_t i = 0; i < count; ++i)
                                       accumulate(reductions[i], MutableArrayRef<Value>(next).slice(u * count + i, 1),
                                                  lanes, pre);
                                   }
                                   scf::YieldOp::create(b, loc, next);
                                 });
  Values results(loop.getResults().begin(), loop.getResults().begin() + count);
  for (size_t at = count; at < carried.size(); ++at)
    results[at % count] =
        combine(spec.nodes[reductions[at % count]].reduce, results[at % count], loop.getResult(unsigned(at)));
  return results;
}

// Several vectors of a row of a GPU at a time: what they load is asked for at once, they wait for one another's latency, and share the question
// whether quick values are right. Returns where the rest of the row begins.
Value LoopEmitter::forVectorsTogether(Value begin, Values &carried, const Preheader &pre,
                                      llvm::function_ref<void(const Lanes &, Values &)> reduce, llvm::function_ref<void(const Lanes &)> put) {
  int64_t loads = 0;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    loads += pre.nodes[n] && (spec.nodes[n].op == LoopOp::Load || plan.selectsAddress[n]);
  const int64_t together = loads <= 2 ? 8 : 4, width = together * kLoopLanes;
  if (plan.blocks > 1 || spec.cols < width)
    return begin;
  Value end = index(spec.cols / width * width);
  auto loop = scf::ForOp::create(b, loc, begin, end, index(width), carried, [&](OpBuilder &, Location, Value column, ValueRange arguments) {
    SmallVector<Lanes> vectors;
    for (int64_t u = 0; u < together; ++u)
      vectors.push_back({addIndex(column, index(u * kLoopLanes)), Value(), {}});
    evaluateTogether(vectors, pre, [](size_t) {});
    Values next(arguments.begin(), arguments.end());
    for (const Lanes &lanes : vectors)
      reduce(lanes, next);
    for (const Lanes &lanes : vectors)
      put(lanes);
    scf::YieldOp::create(b, loc, next);
  });
  carried.assign(loop.getResults().begin(), loop.getResults().end());
  return end;
}

// Several long streams at a time are more than hardware prefetchers keep up with, so lines further on are asked for. With that a gelu's gradient in f32, which
// has three streams, takes about half of its time on an Intel Xeon.
void LoopEmitter::prefetchColumns(Value column, const Preheader &pre) {
  constexpr int64_t kAheadBytes = 1024, kLongBytes = 1024;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    const int64_t bytes = bytesOf(node.elem);
    if (!pre.nodes[n] || node.op != LoopOp::Load || plan.columnStride(node.view) != 1 || !plan.walksColumns(n) || spec.cols * bytes < kLongBytes)
      continue;
    const auto &strides = node.view.strides;
    if (std::all_of(strides.begin(), strides.end() - 1, [](int64_t stride) { return stride == 0; }))
      continue; // the same row again and again, which is near
    Value ahead = addIndex(addIndex(pre.bases[n], column), index(kAheadBytes / bytes));
    memref::PrefetchOp::create(b, loc, buffer(node.view.buffer, node.elem), ValueRange{ahead}, /*isWrite=*/false, /*localityHint=*/3,
                               /*isDataCache=*/true);
  }
}

void LoopEmitter::runColumns(const std::vector<int> &reductions, const std::vector<int> &chains,
                             const std::vector<int> &stores, bool addAt) {
  std::vector<int> roots = rootsOf(chains, stores);
  for (int node : reductions)
    roots.push_back(spec.nodes[node].args[0]);
  if (addAt && (addAtWalk == AddAtWalk::Add || addAtWalk == AddAtWalk::Sum))
    roots.push_back(spec.addAt.node);
  Preheader pre = preheader(roots, stores);
  if (addAt) {
    std::vector<int> vectors;
    for (int arg : spec.addAt.args)
      if (plan.variesCol[arg])
        vectors.push_back(arg);
    Preheader more = preheader(vectors, {});
    for (size_t n = 0; n < pre.nodes.size(); ++n) {
      pre.nodes[n] = pre.nodes[n] || more.nodes[n];
      pre.splats[n] = pre.splats[n] ? pre.splats[n] : more.splats[n];
      pre.bases[n] = pre.bases[n] ? pre.bases[n] : more.bases[n];
    }
    pre.addAtBase = basePlus(spec.addAt.view, spec.addAt.args, spec.addAt.atStrides);
    pre.tableBase = tableBase();
  }
  fillDraws(pre.nodes);

  Values initial;
  std::vector<std::pair<size_t, size_t>> place; // of each reduction's accumulators
  for (int node : reductions) {
    size_t from = initial.size();
    initialReduction(node, initial);
    place.push_back({from, initial.size() - from});
  }
  Value begin = columnBegin;
  const bool anyOrder = chains.empty() && stores.empty() && !addAt && anyOrderSuits(reductions, pre);
  if (Wide wide = anyOrder && plan.teams ? wideOf({}, pre) : Wide(); wide.together > 0 && wide.aligned) {
    begin = reduceWide(wide, reductions, initial, pre);
  } else if (anyOrder) {
    begin = index(spec.cols / (kAnyOrderVectors * kLoopLanes) * (kAnyOrderVectors * kLoopLanes));
    initial = reduceInAnyOrder(reductions, begin, initial, pre);
  }
  if (plan.teams && chains.empty() && !addAt) {
    prepareQuick(pre);
    if (Wide wide = wideOf(stores, pre); reductions.empty() && wide.together > 0)
      return runWide(wide, stores, pre);
  }
  auto reduce = [&](const Lanes &lanes, Values &accumulators) {
    for (size_t i = 0; i < reductions.size(); ++i)
      accumulate(reductions[i], MutableArrayRef<Value>(accumulators).slice(place[i].first, place[i].second), lanes, pre);
  };
  auto put = [&](const Lanes &lanes) {
    for (size_t i = 0; i < stores.size(); ++i)
      storeColumns(stores[i], pre.storeBases[i], operand(spec.stores[stores[i]].node, lanes, pre), lanes);
  };
  if (plan.teams && chains.empty() && !addAt)
    begin = forVectorsTogether(begin, initial, pre, reduce, put);
  Values results = forColumns(begin, initial, [&](Lanes &lanes, ValueRange carried) {
    if (!plan.teams && !lanes.mask && !addAt)
      prefetchColumns(lanes.column, pre);
    evaluateTogether(lanes, pre, [](size_t) {});
    Values accumulators(carried.begin(), carried.end());
    reduce(lanes, accumulators);
    for (int chain : chains) {
      const LoopNode &node = spec.nodes[chain];
      Lanes dense{lanes.column, Value(), {}};
      Value sum = combine(node.reduce, evaluateVector(chain, dense, pre), operand(node.args[0], lanes, pre));
      storeScratch(chain, sum, lanes);
    }
    put(lanes);
    if (addAt)
      emitAddAt(pre.addAtBase, pre.tableBase, &lanes, &pre);
    return accumulators;
  });
  for (size_t i = 0; i < reductions.size(); ++i)
    finishReduction(reductions[i], ArrayRef<Value>(results).slice(place[i].first, place[i].second));
}

} // namespace cinch::kernels
