// LoopChains.cpp: walks over the chain.
//
// Two orders exist. Direct: a few vectors of columns hold their accumulators in registers while all rows go by.
// Otherwise the rows are outside, each makes its passes over the columns, and accumulators lie in a scratch row.
//
// Chains may go on in blocks of rows: those of a block start afresh, and a block's result is combined with that of the blocks before it.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>
#include <cstdlib>

using namespace mlir;

namespace cinch::kernels {

// ---- Rows -----------------------------------------------------------------------------------------------------------

// Rows [first, first + count).
LoopEmitter::Values LoopEmitter::forRows(Value first, int64_t count, ValueRange initial,
                                         std::function<Values(ValueRange)> body) {
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
  if (count == 1) {
    chainIndex = split(first, spec.chain);
    return run(initial);
  }
  auto loop = scf::ForOp::create(b, loc, first, addIndex(first, index(count)), index(1), initial,
                                 [&](OpBuilder &, Location, Value row, ValueRange carried) {
                                   chainIndex = split(row, spec.chain);
                                   scf::YieldOp::create(b, loc, run(carried));
                                 });
  return Values(loop.getResults().begin(), loop.getResults().end());
}

// The blocks of a chain, each with the number of its first row.
LoopEmitter::Values LoopEmitter::forBlocks(ValueRange initial, std::function<Values(Value, ValueRange)> body) {
  if (spec.blockRows == plan.rows)
    return body(index(0), initial);
  auto loop = scf::ForOp::create(b, loc, index(0), index(plan.rows), index(spec.blockRows), initial,
                                 [&](OpBuilder &, Location, Value first, ValueRange carried) {
                                   scf::YieldOp::create(b, loc, body(first, carried));
                                 });
  return Values(loop.getResults().begin(), loop.getResults().end());
}

// Chains of the coming sweep whose accumulators lie in scratch rows.
std::vector<int> LoopEmitter::chainsInScratch(int stage) {
  std::vector<int> chains;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && plan.variesCol[n] && plan.scratchOf[n] >= 0 && spec.nodes[n].op == LoopOp::ReduceChain &&
        plan.sweep[n] == stage + 1)
      chains.push_back(int(n));
  return chains;
}

void LoopEmitter::startChains(const std::vector<int> &chains) {
  if (chains.empty())
    return;
  forColumns(columnBegin, {}, [&](Lanes &lanes, ValueRange) {
    for (int chain : chains) {
      const LoopNode &node = spec.nodes[chain];
      Value start = node.hasInit ? load(node.view, base(node.view.offset, node.view.strides), node.elem, &lanes)
                                 : chainStart(node, true);
      storeRow(spec.blockRows > 0 ? plan.totalOf[chain] : plan.scratchOf[chain], node.elem, start, lanes);
    }
    return Values();
  });
}

void LoopEmitter::startBlock(const std::vector<int> &chains) {
  if (chains.empty())
    return;
  forColumns(columnBegin, {}, [&](Lanes &lanes, ValueRange) {
    for (int chain : chains)
      storeScratch(chain, chainStart(spec.nodes[chain], true), lanes);
    return Values();
  });
}

// The block's sums join those of the blocks before; what the sweep's readers load is the total.
void LoopEmitter::endBlock(const std::vector<int> &chains) {
  if (chains.empty())
    return;
  forColumns(columnBegin, {}, [&](Lanes &lanes, ValueRange) {
    for (int chain : chains) {
      const LoopNode &node = spec.nodes[chain];
      Value total = combine(node.reduce, loadRow(plan.totalOf[chain], node.elem, lanes), loadScratch(chain, lanes));
      storeRow(plan.totalOf[chain], node.elem, total, lanes);
      storeScratch(chain, total, lanes);
    }
    return Values();
  });
}

void LoopEmitter::runSweep(int sweep) {
  std::vector<int> inScratch = chainsInScratch(sweep), chains;
  startChains(inScratch);
  Values initial, fresh;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!plan.needed[n] || node.op != LoopOp::ReduceChain || plan.variesCol[n] || plan.sweep[n] != sweep + 1)
      continue;
    chains.push_back(int(n));
    fresh.push_back(chainStart(node, false));
    initial.push_back(node.hasInit ? load(node.view, base(node.view.offset, node.view.strides), node.elem, nullptr)
                                   : fresh.back());
  }
  auto row = [&](ValueRange carried) {
    std::vector<Value> accumulators(spec.nodes.size());
    for (size_t i = 0; i < chains.size(); ++i)
      accumulators[chains[i]] = carried[i];
    Work work = rowWork(sweep);
    runContext(work, accumulators);
    Values next;
    for (int chain : chains)
      next.push_back(accumulators[chain]);
    return next;
  };
  const bool ofThreads = threadsTakeRows(rowWork(sweep));
  auto rows = [&](Value first, int64_t count, ValueRange sums) {
    return ofThreads ? forRowsOfThreads(rowWork(sweep), first, count, sums, row) : forRows(first, count, sums, row);
  };
  Values results;
  if (plan.shares > 1) { // no chains beside it
    forRowsOfShare([&] { row({}); });
  } else if (spec.blockRows == 0) {
    results = rows(index(0), plan.rows, initial);
  } else if (spec.addAt.present) { // no chains beside it
    forBlocks({}, [&](Value first, ValueRange) {
      for (AddAtWalk walk : {AddAtWalk::Clear, AddAtWalk::Sum, AddAtWalk::Flush}) {
        addAtWalk = walk;
        forRows(first, spec.blockRows, {}, row);
      }
      return Values();
    });
  } else {
    results = forBlocks(initial, [&](Value first, ValueRange totals) {
      startBlock(inScratch);
      Values next = rows(first, spec.blockRows, fresh);
      endBlock(inScratch);
      for (size_t i = 0; i < chains.size(); ++i)
        next[i] = combine(spec.nodes[chains[i]].reduce, totals[i], next[i]);
      return next;
    });
  }
  for (size_t i = 0; i < chains.size(); ++i)
    scalars[chains[i]] = results[i];
}

// ---- Direct chains --------------------------------------------------------------------------------------------------

// Consecutive rows lie far apart, where no hardware prefetcher follows: the lines of a row some rows ahead are asked
// for.
void LoopEmitter::prefetchRows(Value column, int vectors, const Preheader &pre) {
  constexpr int64_t kRowsAhead = 8, kFarBytes = 512, kLineBytes = 64;
  if (spec.chain.empty() || spec.chain.back() < 4 * kRowsAhead)
    return;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!pre.nodes[n] || node.op != LoopOp::Load || plan.columnStride(node.view) != 1 || !plan.walksColumns(n))
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
  Values initial, fresh;
  for (int chain : row.chains) {
    const LoopNode &node = spec.nodes[chain];
    Value from = node.hasInit ? base(node.view.offset, node.view.strides) : Value();
    for (int u = 0; u < vectors; ++u) {
      fresh.push_back(chainStart(node, true));
      initial.push_back(from ? load(node.view, from, node.elem, &lanes[u]) : fresh.back());
    }
  }
  auto rowOfVectors = [&](ValueRange carried) {
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
        storeColumns(row.stores[i], pre.storeBases[i], operand(spec.stores[row.stores[i]].node, current, pre), current);
      }
    }
    return next;
  };
  auto block = [&](Value first, ValueRange totals) {
    Values next = forRows(first, spec.blockRows, fresh, rowOfVectors);
    for (size_t i = 0; i < next.size(); ++i)
      next[i] = combine(spec.nodes[row.chains[i / vectors]].reduce, totals[i], next[i]);
    return next;
  };
  Values sums = spec.blockRows > 0 ? forBlocks(initial, block) : forRows(index(0), plan.rows, initial, rowOfVectors);
  storeDirect(row, lanes, sums);
}

// What is done with the sums of direct chains.
void LoopEmitter::storeDirect(const Work &row, std::vector<Lanes> lanes, ValueRange sums) {
  std::vector<Value> kept = scalars;
  Work stage = stageWork(1);
  emitScalars(stage, 0);
  Preheader pre = preheader(rootsOf({}, stage.stores), stage.stores);
  size_t vectors = lanes.size();
  for (size_t u = 0; u < vectors; ++u) {
    lanes[u].values.resize(spec.nodes.size());
    for (size_t i = 0; i < row.chains.size(); ++i)
      lanes[u].values[row.chains[i]] = sums[i * vectors + u];
    evaluateVectors(lanes[u], pre);
    for (size_t i = 0; i < stage.stores.size(); ++i) {
      storeColumns(stage.stores[i], pre.storeBases[i], operand(spec.stores[stage.stores[i]].node, lanes[u], pre), lanes[u]);
    }
  }
  scalars = kept;
}

void LoopEmitter::runDirect() {
  if (plan.teams)
    return runTeams();
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

} // namespace cinch::kernels
