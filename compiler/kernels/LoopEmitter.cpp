// LoopEmitter.cpp: the loops around the nodes: items, stages, sweeps, passes over the columns.
//
// Two orders of walking a chain exist. Direct: a few vectors of columns hold their accumulators in registers while all rows
// go by. Otherwise the rows are outside, each makes its passes over the columns, and accumulators lie in a scratch row.
// Values that do not vary over the columns are computed before a loop over the columns is opened: a store might alias any
// load, so nobody after us could move them. Stores come last, after every load of the same columns: a buffer may be updated
// in place.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

LoopEmitter::LoopEmitter(OpBuilder &builder, Location loc, const LoopPlan &plan, ValueRange arguments)
    : b(builder), loc(loc), plan(plan), spec(plan.spec), arena(arguments[0]), offsets(arguments[1]), context(arguments[2]),
      thread(arguments[3]), threads(arguments[4]), scalars(spec.nodes.size()), draws(spec.nodes.size()) {}

// ---- Buffers ---------------------------------------------------------------------------------------------------------------

static Value byteOffset(OpBuilder &b, Location loc, Value offsets, int64_t number) {
  Value at = emitInteger(b, loc, b.getIndexType(), number);
  Value offset = memref::LoadOp::create(b, loc, offsets, ValueRange{at});
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), offset);
}

Value LoopEmitter::buffer(int number, Elem elem) { return buffers.at({number, elem}); }

void LoopEmitter::openBuffers() {
  auto open = [&](int number, Elem elem) {
    Value &view = buffers[{number, elem}], &byte = bufferBytes[number];
    if (!byte)
      byte = byteOffset(b, loc, offsets, number);
    if (!view)
      view = viewAt(byte, elem);
  };
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    bool reads = node.op == LoopOp::Load || node.op == LoopOp::LoadAt || (node.op == LoopOp::ReduceChain && node.hasInit);
    if (plan.needed[n] && reads)
      open(node.view.buffer, node.elem);
  }
  for (const LoopStore &store : spec.stores)
    open(store.view.buffer, spec.nodes[store.node].elem);
  if (spec.addAt.present)
    open(spec.addAt.view.buffer, spec.nodes[spec.addAt.node].elem);
  if (plan.scratchBytes > 0)
    scratchAt = addIndex(byteOffset(b, loc, offsets, plan.buffers), mulIndex(thread, plan.scratchBytes));
}

// Where in the arena, counted in elements, the columns of a contiguous load begin.
Value LoopEmitter::addressOf(int node) {
  const LoopNode &n = spec.nodes[node];
  if (n.op == LoopOp::Select)
    return arith::SelectOp::create(b, loc, scalars[n.args[0]], addressOf(n.args[1]), addressOf(n.args[2]));
  Value begin = arith::DivUIOp::create(b, loc, bufferBytes.at(n.view.buffer), index(bytesOf(n.elem)));
  return addIndex(begin, n.op == LoopOp::LoadAt ? basePlus(n.view, n.args, n.atStrides) : base(n.view.offset, n.view.strides));
}

Value LoopEmitter::viewAt(Value byte, Elem elem) {
  Type element = elem == Elem::Bool ? Type(b.getI8Type()) : valueType(b, elem);
  auto memref = MemRefType::get({kArenaBytes / bytesOf(elem)}, element);
  return memref::ViewOp::create(b, loc, memref, arena, byte, ValueRange{});
}

Value LoopEmitter::scratchByte(int node) { return addIndex(scratchAt, index(plan.scratchOf[node])); }

Value LoopEmitter::scratchRow(int node) { return viewAt(scratchByte(node), spec.nodes[node].elem); }

// ---- Work of a context -----------------------------------------------------------------------------------------------------

void LoopEmitter::need(Work &work, int node) {
  if (work.needed[node] || scalars[node])
    return;
  work.needed[node] = true;
  if (spec.nodes[node].op == LoopOp::ReduceChain)
    return;
  if (plan.isReduction(node))
    work.reductions.push_back(node);
  for (int arg : spec.nodes[node].args)
    need(work, arg);
}

void LoopEmitter::measure(Work &work) {
  work.depth.assign(spec.nodes.size(), 0);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!work.needed[n] || spec.nodes[n].op == LoopOp::ReduceChain)
      continue;
    for (int arg : spec.nodes[n].args)
      work.depth[n] = std::max(work.depth[n], work.depth[arg]);
    if (plan.isReduction(int(n))) {
      work.vectorPass = std::max(work.vectorPass, work.depth[n]);
      ++work.depth[n];
    }
    work.lastDepth = std::max(work.lastDepth, work.depth[n]);
  }
  for (int chain : work.chains)
    if (plan.variesCol[chain])
      work.vectorPass = std::max(work.vectorPass, work.depth[spec.nodes[chain].args[0]]);
  for (int store : work.stores)
    if (plan.storeVector[store])
      work.vectorPass = std::max(work.vectorPass, work.depth[spec.stores[store].node]);
  if (work.addAt && plan.addAtVector) {
    work.vectorPass = std::max(work.vectorPass, work.depth[spec.addAt.node]);
    for (int arg : spec.addAt.args)
      work.vectorPass = std::max(work.vectorPass, work.depth[arg]);
  }
}

LoopEmitter::Work LoopEmitter::stageWork(int stage) {
  Work work;
  work.needed.assign(spec.nodes.size(), false);
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && !plan.variesRow[n] && !plan.variesCol[n] && plan.sweep[n] == stage)
      need(work, int(n));
  if (stage == plan.sweeps) {
    for (size_t i = 0; i < spec.stores.size(); ++i) {
      if (plan.storeInRow[i])
        continue;
      work.stores.push_back(int(i));
      need(work, spec.stores[i].node);
    }
  }
  measure(work);
  return work;
}

LoopEmitter::Work LoopEmitter::rowWork(int sweep) {
  Work work;
  work.row = true;
  work.needed.assign(spec.nodes.size(), false);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (plan.needed[n] && spec.nodes[n].op == LoopOp::ReduceChain && plan.sweep[n] == sweep + 1) {
      work.chains.push_back(int(n));
      need(work, spec.nodes[n].args[0]);
    }
  }
  if (sweep == plan.sweeps - 1) {
    for (size_t i = 0; i < spec.stores.size(); ++i) {
      if (!plan.storeInRow[i])
        continue;
      work.stores.push_back(int(i));
      need(work, spec.stores[i].node);
    }
    if (spec.addAt.present) {
      work.addAt = true;
      need(work, spec.addAt.node);
      for (int arg : spec.addAt.args)
        need(work, arg);
    }
  }
  measure(work);
  return work;
}

void LoopEmitter::emitScalars(const Work &work, int pass) {
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (work.needed[n] && !plan.variesCol[n] && !scalars[n] && work.depth[n] == pass && !plan.isReduction(int(n)))
      scalars[n] = evaluateScalar(int(n));
}

// chainScalars: per node, the accumulators of chains without columns; updated.
void LoopEmitter::runContext(Work &work, std::vector<Value> &chainScalars) {
  for (pass = 0; pass <= work.lastDepth; ++pass) {
    emitScalars(work, pass);
    std::vector<int> reductions, chains, stores;
    for (int node : work.reductions)
      if (work.depth[node] == pass + 1)
        reductions.push_back(node);
    for (int chain : work.chains)
      if (plan.variesCol[chain] && work.depth[spec.nodes[chain].args[0]] == pass)
        chains.push_back(chain);
    bool last = pass == work.vectorPass;
    for (int store : work.stores)
      if (last && plan.storeVector[store])
        stores.push_back(store);
    bool addAt = last && work.addAt && plan.addAtVector;
    if (!reductions.empty() || !chains.empty() || !stores.empty() || addAt)
      runColumns(reductions, chains, stores, addAt);
  }
  for (int chain : work.chains)
    if (!plan.variesCol[chain])
      chainScalars[chain] = combine(spec.nodes[chain].reduce, chainScalars[chain], scalars[spec.nodes[chain].args[0]]);
  for (int i : work.stores) {
    const LoopStore &target = spec.stores[i];
    if (!plan.storeVector[i])
      store(target, base(target.view.offset, target.view.strides), scalars[target.node], nullptr);
  }
  if (work.addAt && !plan.addAtVector)
    emitAddAt(basePlus(spec.addAt.view, spec.addAt.args, spec.addAt.atStrides), nullptr, nullptr);
}

// ---- Columns ---------------------------------------------------------------------------------------------------------------

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
    Value count = arith::SubIOp::create(b, loc, columnEnd, columnBegin);
    Value at = scratchByte(int(n));
    Value skip = emitDrawRow(b, loc, draw, node.elem, keys.at(keyName(node)), exampleNumber(node, nullptr), first, count, arena, at);
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

// A maximum, unlike a sum, is the same in any order. Its latency is several operations (NaN, signed zeros), so a cheap pass
// for maxima alone keeps several vectors of them.
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
                                       accumulate(reductions[i], MutableArrayRef<Value>(next).slice(u * count + i, 1), lanes, pre);
                                   }
                                   scf::YieldOp::create(b, loc, next);
                                 });
  Values results(loop.getResults().begin(), loop.getResults().begin() + count);
  for (size_t at = count; at < carried.size(); ++at)
    results[at % count] = combine(spec.nodes[reductions[at % count]].reduce, results[at % count], loop.getResult(unsigned(at)));
  return results;
}

void LoopEmitter::runColumns(const std::vector<int> &reductions, const std::vector<int> &chains, const std::vector<int> &stores,
                             bool addAt) {
  std::vector<int> roots = rootsOf(chains, stores);
  for (int node : reductions)
    roots.push_back(spec.nodes[node].args[0]);
  if (addAt)
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
  if (chains.empty() && stores.empty() && !addAt && anyOrderSuits(reductions, pre)) {
    begin = index(spec.cols / (kAnyOrderVectors * kLoopLanes) * (kAnyOrderVectors * kLoopLanes));
    initial = reduceInAnyOrder(reductions, begin, initial, pre);
  }
  Values results = forColumns(begin, initial, [&](Lanes &lanes, ValueRange carried) {
    evaluateVectors(lanes, pre);
    Values accumulators(carried.begin(), carried.end());
    for (size_t i = 0; i < reductions.size(); ++i)
      accumulate(reductions[i], MutableArrayRef<Value>(accumulators).slice(place[i].first, place[i].second), lanes, pre);
    for (int chain : chains) {
      const LoopNode &node = spec.nodes[chain];
      Lanes dense{lanes.column, Value(), {}};
      Value sum = combine(node.reduce, evaluateVector(chain, dense, pre), operand(node.args[0], lanes, pre));
      storeScratch(chain, sum, lanes);
    }
    for (size_t i = 0; i < stores.size(); ++i) {
      const LoopStore &target = spec.stores[stores[i]];
      store(target, pre.storeBases[i], operand(target.node, lanes, pre), &lanes);
    }
    if (addAt)
      emitAddAt(pre.addAtBase, &lanes, &pre);
    return accumulators;
  });
  for (size_t i = 0; i < reductions.size(); ++i)
    finishReduction(reductions[i], ArrayRef<Value>(results).slice(place[i].first, place[i].second));
}

// ---- Rows ------------------------------------------------------------------------------------------------------------------

LoopEmitter::Values LoopEmitter::forRows(ValueRange initial, std::function<Values(ValueRange)> body) {
  auto run = [&](ValueRange carried) {
    std::vector<Value> kept = scalars;
    std::fill(draws.begin(), draws.end(), std::pair<Value, Value>());
    Values next = body(carried);
    std::fill(draws.begin(), draws.end(), std::pair<Value, Value>());
    scalars = kept;
    chainIndex.clear();
    return next;
  };
  if (plan.rows == 1)
    return run(initial);
  auto loop = scf::ForOp::create(b, loc, index(0), index(plan.rows), index(1), initial,
                                 [&](OpBuilder &, Location, Value row, ValueRange carried) {
                                   chainIndex = split(row, spec.chain);
                                   scf::YieldOp::create(b, loc, run(carried));
                                 });
  return Values(loop.getResults().begin(), loop.getResults().end());
}

// The scratch rows of the chains that the coming sweep walks.
void LoopEmitter::startChains(int stage) {
  std::vector<int> chains;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && plan.scratchOf[n] >= 0 && spec.nodes[n].op == LoopOp::ReduceChain && plan.sweep[n] == stage + 1)
      chains.push_back(int(n));
  if (chains.empty())
    return;
  forColumns(columnBegin, {}, [&](Lanes &lanes, ValueRange) {
    for (int chain : chains) {
      const LoopNode &node = spec.nodes[chain];
      Value start = node.hasInit ? load(node.view, base(node.view.offset, node.view.strides), node.elem, &lanes)
                                 : chainStart(node, true);
      storeScratch(chain, start, lanes);
    }
    return Values();
  });
}

void LoopEmitter::runSweep(int sweep) {
  std::vector<int> chains;
  Values initial;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!plan.needed[n] || node.op != LoopOp::ReduceChain || plan.variesCol[n] || plan.sweep[n] != sweep + 1)
      continue;
    chains.push_back(int(n));
    initial.push_back(node.hasInit ? load(node.view, base(node.view.offset, node.view.strides), node.elem, nullptr)
                                   : chainStart(node, false));
  }
  Values results = forRows(initial, [&](ValueRange carried) {
    std::vector<Value> accumulators(spec.nodes.size());
    for (size_t i = 0; i < chains.size(); ++i)
      accumulators[chains[i]] = carried[i];
    Work work = rowWork(sweep);
    runContext(work, accumulators);
    Values next;
    for (int chain : chains)
      next.push_back(accumulators[chain]);
    return next;
  });
  for (size_t i = 0; i < chains.size(); ++i)
    scalars[chains[i]] = results[i];
}

// ---- Direct chains ---------------------------------------------------------------------------------------------------------

// Consecutive rows lie far apart, where no hardware prefetcher follows: the lines of a row some rows ahead are asked for.
void LoopEmitter::prefetchRows(Value column, int vectors, const Preheader &pre) {
  constexpr int64_t kRowsAhead = 8, kFarBytes = 512, kLineBytes = 64;
  if (spec.chain.empty() || spec.chain.back() < 4 * kRowsAhead)
    return;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!pre.nodes[n] || node.op != LoopOp::Load || plan.columnStride(node.view) != 1)
      continue;
    int64_t stride = node.view.strides[node.view.strides.size() - 2], bytes = bytesOf(node.elem);
    if (std::abs(stride) * bytes < kFarBytes)
      continue;
    for (int64_t at = 0; at < vectors * kLoopLanes * bytes; at += kLineBytes) {
      Value ahead = addIndex(addIndex(pre.bases[n], column), index(stride * kRowsAhead + at / bytes));
      memref::PrefetchOp::create(b, loc, buffer(node.view.buffer, node.elem), ValueRange{ahead}, /*isWrite=*/false,
                                 /*localityHint=*/3, /*isDataCache=*/true);
    }
  }
}

// All rows for `vectors` vectors of columns, the accumulators in registers.
void LoopEmitter::directColumns(Value column, int vectors, Value mask) {
  std::vector<Lanes> lanes;
  for (int u = 0; u < vectors; ++u)
    lanes.push_back({addIndex(column, index(u * kLoopLanes)), mask, {}});
  Work row = rowWork(0);
  Values initial;
  for (int chain : row.chains) {
    const LoopNode &node = spec.nodes[chain];
    Value from = node.hasInit ? base(node.view.offset, node.view.strides) : Value();
    for (int u = 0; u < vectors; ++u)
      initial.push_back(from ? load(node.view, from, node.elem, &lanes[u]) : chainStart(node, true));
  }
  Values sums = forRows(initial, [&](ValueRange carried) {
    emitScalars(row, 0);
    Preheader pre = preheader(rootsOf(row.chains, row.stores), row.stores);
    Values next(carried.begin(), carried.end());
    prefetchRows(column, vectors, pre);
    for (int u = 0; u < vectors; ++u) {
      Lanes current = lanes[u];
      evaluateVectors(current, pre);
      for (size_t i = 0; i < row.chains.size(); ++i) {
        const LoopNode &node = spec.nodes[row.chains[i]];
        Value &sum = next[i * vectors + u];
        sum = combine(node.reduce, sum, operand(node.args[0], current, pre));
      }
      for (size_t i = 0; i < row.stores.size(); ++i) {
        const LoopStore &target = spec.stores[row.stores[i]];
        store(target, pre.storeBases[i], operand(target.node, current, pre), &current);
      }
    }
    return next;
  });
  std::vector<Value> kept = scalars;
  Work stage = stageWork(1);
  emitScalars(stage, 0);
  Preheader pre = preheader(rootsOf({}, stage.stores), stage.stores);
  for (int u = 0; u < vectors; ++u) {
    lanes[u].values.resize(spec.nodes.size());
    for (size_t i = 0; i < row.chains.size(); ++i)
      lanes[u].values[row.chains[i]] = sums[i * vectors + u];
    evaluateVectors(lanes[u], pre);
    for (size_t i = 0; i < stage.stores.size(); ++i) {
      const LoopStore &target = spec.stores[stage.stores[i]];
      store(target, pre.storeBases[i], operand(target.node, lanes[u], pre), &lanes[u]);
    }
  }
  scalars = kept;
}

void LoopEmitter::runDirect() {
  Value begin = columnBegin, end = wholeVectorsEnd();
  auto loop = [&](Value from, Value to, int vectors) {
    scf::ForOp::create(b, loc, from, to, index(vectors * kLoopLanes), ValueRange(),
                       [&](OpBuilder &, Location, Value column, ValueRange) {
                         directColumns(column, vectors, Value());
                         scf::YieldOp::create(b, loc);
                       });
  };
  int64_t step = plan.directVectors * kLoopLanes;
  if (plan.directVectors > 1 && spec.cols >= step) {
    Value groups = arith::DivSIOp::create(b, loc, arith::SubIOp::create(b, loc, end, begin), index(step));
    Value wide = addIndex(begin, mulIndex(groups, step));
    loop(begin, wide, plan.directVectors);
    begin = wide;
  }
  if (spec.cols >= kLoopLanes && (plan.directVectors == 1 || spec.cols % step >= kLoopLanes || spec.cols < step))
    loop(begin, end, 1);
  if (spec.cols % kLoopLanes == 0)
    return;
  if (plan.blocks == 1) {
    directColumns(end, 1, tailMask);
    return;
  }
  Value rest = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, columnEnd, end);
  scf::IfOp::create(b, loc, rest, [&](OpBuilder &, Location) {
    directColumns(end, 1, tailMask);
    scf::YieldOp::create(b, loc);
  });
}

// ---- The kernel ------------------------------------------------------------------------------------------------------------

std::vector<Value> LoopEmitter::split(Value flat, const std::vector<int64_t> &dims) {
  std::vector<Value> indices(dims.size());
  for (size_t i = dims.size(); i-- > 1;) {
    Value extent = index(dims[i]);
    indices[i] = arith::RemUIOp::create(b, loc, flat, extent);
    flat = arith::DivUIOp::create(b, loc, flat, extent);
  }
  if (!dims.empty())
    indices[0] = flat;
  return indices;
}

void LoopEmitter::runItem(Value item) {
  columnBegin = index(0);
  columnEnd = index(spec.cols);
  if (plan.blocks > 1) {
    Value blocks = index(plan.blocks);
    columnBegin = mulIndex(arith::RemUIOp::create(b, loc, item, blocks), plan.blockCols);
    columnEnd = arith::MinSIOp::create(b, loc, addIndex(columnBegin, index(plan.blockCols)), index(spec.cols));
    item = arith::DivUIOp::create(b, loc, item, blocks);
  }
  outerIndex = split(item, spec.outer);
  std::vector<Value> none;
  for (int stage = 0; stage <= plan.sweeps; ++stage) {
    if (stage == plan.sweeps && plan.directVectors > 0)
      return;
    Work work = stageWork(stage);
    runContext(work, none);
    if (stage == plan.sweeps)
      return;
    if (plan.directVectors > 0) {
      runDirect();
    } else {
      startChains(stage);
      runSweep(stage);
    }
    std::fill(draws.begin(), draws.end(), std::pair<Value, Value>());
  }
}

void LoopEmitter::emit() {
  openBuffers();
  auto word = [&](int number) -> Value { return memref::LoadOp::create(b, loc, context, ValueRange{index(number)}); };
  bool usesStep = false, usesTotal = false, usesExample = false;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!plan.needed[n])
      continue;
    usesStep = usesStep || node.op == LoopOp::Step;
    usesTotal = usesTotal || node.op == LoopOp::TotalSteps;
    usesExample = usesExample || (plan.isDraw(int(n)) && node.usesExample);
    if (plan.isDraw(int(n)) && !keys.count(keyName(node)))
      keys[keyName(node)] =
          node.keyWord < 0 ? emitDrawKey(b, loc, context, node.key)
                           : emitDrawKey(b, loc, context,
                                         memref::LoadOp::create(b, loc, offsets,
                                                                ValueRange{index(plan.buffers + 1 + node.keyWord)}));
  }
  if (usesStep)
    step = word(kStep);
  if (usesTotal)
    totalSteps = word(kTotalSteps);
  if (usesExample)
    firstExample = word(kFirstExample);
  if (spec.cols % kLoopLanes != 0) {
    SmallVector<bool> live;
    for (int64_t lane = 0; lane < kLoopLanes; ++lane)
      live.push_back(lane < spec.cols % kLoopLanes);
    tailMask = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(lanesOf(b.getI1Type()), ArrayRef<bool>(live)));
  }
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && plan.constant[n])
      scalars[n] = evaluateScalar(int(n));
  int64_t items = plan.outerCount * plan.blocks;
  auto share = [&](Value number) -> Value {
    return arith::DivUIOp::create(b, loc, mulIndex(number, items), threads);
  };
  Value begin = share(thread), end = share(addIndex(thread, index(1)));
  scf::ForOp::create(b, loc, begin, end, index(1), ValueRange(), [&](OpBuilder &, Location, Value item, ValueRange) {
    runItem(item);
    scf::YieldOp::create(b, loc);
  });
}

} // namespace cinch::kernels
