// LoopAhead.cpp: direct chains of a team of a GPU. A thread has a few neighbouring columns, and reads what memory holds of several rows before it
// computes the first of them: it waits for memory once for all of these. A division branches, and nothing is read ahead of a branch
// by itself.
//
// Threads behind the last column do the last columns once more and store nothing, so that no load waits for a branch either.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

// ---- Neighbouring columns ----------------------------------------------------------------------------------------------

// Those that the team has from `column` on.
LoopEmitter::Neighbours LoopEmitter::neighboursAt(Value column, int64_t together) {
  Neighbours mine{{}, mulIndex(lane, together), Value()};
  mine.columns.assign(size_t(together), Lanes{column, Value(), {}});
  if (spec.cols % (together * kLoopLanes) == 0)
    return mine;
  Value last = arith::SubIOp::create(b, loc, index(spec.cols - together), column);
  mine.mask = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, mine.first, last);
  mine.first = arith::MinSIOp::create(b, loc, mine.first, last);
  return mine;
}

// Calls `body` for each of them, as if it were the column of this lane.
template <class Body> void LoopEmitter::forEach(const Neighbours &mine, Body body) {
  Value own = lane;
  for (size_t each = 0; each < mine.columns.size(); ++each) {
    lane = addIndex(mine.first, index(int64_t(each)));
    body(each);
  }
  lane = own;
}

VectorType LoopEmitter::accessOf(Elem elem, int64_t columns) { return VectorType::get({columns}, storedType(b, elem)); }
Attribute LoopEmitter::alignmentOf(Elem elem, int64_t columns) { return b.getI64IntegerAttr(std::min<int64_t>(columns * bytesOf(elem), 16)); }

void LoopEmitter::loadTogether(int node, const Neighbours &mine, MutableArrayRef<Lanes> columns) {
  const LoopNode &n = spec.nodes[node];
  Value from = base(n.view.offset, n.view.strides);
  if (columns.size() == 1 || !isOneAccess(n.view, n.elem, int64_t(columns.size())))
    return forEach(mine, [&](size_t each) { columns[each].values[node] = load(n.view, from, n.elem, &columns[each]); });
  Value at = addIndex(addIndex(from, columns.front().column), mine.first);
  auto loaded = vector::LoadOp::create(b, loc, accessOf(n.elem, int64_t(columns.size())), buffer(n.view.buffer, n.elem), ValueRange{at});
  loaded->setAttr("alignment", alignmentOf(n.elem, int64_t(columns.size())));
  for (size_t each = 0; each < columns.size(); ++each)
    columns[each].values[node] = toValue(b, loc, vector::ExtractOp::create(b, loc, loaded, ArrayRef<int64_t>{int64_t(each)}), n.elem);
}

void LoopEmitter::storeTogether(int store, Value base, const Neighbours &mine, ArrayRef<Lanes> columns, const Preheader &pre) {
  const LoopStore &target = spec.stores[store];
  const Elem elem = spec.nodes[target.node].elem;
  if (columns.size() == 1 || target.copies != 1 || !isOneAccess(target.view, elem, int64_t(columns.size())))
    return forEach(mine, [&](size_t each) {
      storeColumns(store, base, operand(target.node, columns[each], pre), Lanes{columns[each].column, mine.mask, {}});
    });
  Values stored;
  for (const Lanes &lanes : columns)
    stored.push_back(toStored(b, loc, operand(target.node, lanes, pre), elem));
  auto put = [&] {
    Value all = vector::FromElementsOp::create(b, loc, accessOf(elem, int64_t(columns.size())), stored);
    Value at = addIndex(addIndex(base, columns.front().column), mine.first);
    vector::StoreOp::create(b, loc, all, buffer(target.view.buffer, elem), ValueRange{at})->setAttr("alignment", alignmentOf(elem, int64_t(columns.size())));
  };
  if (!mine.mask)
    return put();
  scf::IfOp::create(b, loc, mine.mask, [&](OpBuilder &, Location) {
    put();
    scf::YieldOp::create(b, loc);
  });
}

// ---- Rows ----------------------------------------------------------------------------------------------------------------

// What memory holds of one row.
LoopEmitter::RowAhead LoopEmitter::readRow(const Work &row, const Neighbours &mine, Value number) {
  std::vector<Value> kept = scalars;
  RowAhead read{split(number, spec.chain), {}, mine.columns};
  chainIndex = read.chainIndex;
  for (Lanes &lanes : read.columns)
    lanes.values.resize(spec.nodes.size());
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!row.needed[n] || spec.nodes[n].op != LoopOp::Load || scalars[n] || plan.selectsAddress[n])
      continue;
    if (plan.variesCol[n])
      loadTogether(int(n), mine, read.columns);
    else
      scalars[n] = evaluateScalar(int(n));
  }
  read.scalars = scalars;
  scalars = kept;
  chainIndex.clear();
  return read;
}

// What follows from it; `take` gets the operand of each chain, for each column.
void LoopEmitter::computeRow(const Work &row, const Neighbours &mine, RowAhead read, llvm::function_ref<void(int, size_t, Value)> take) {
  constexpr size_t kWorthAReciprocal = 4; // columns that share a divisor
  std::vector<Value> kept = scalars;
  scalars = read.scalars;
  chainIndex = read.chainIndex;
  emitScalars(row, 0);
  Preheader pre = preheader(rootsOf(row.chains, row.stores), row.stores);
  if (mine.columns.size() >= kWorthAReciprocal)
    prepareQuick(pre);
  const Wide wide{int64_t(mine.columns.size()), /*aligned=*/true, Value()};
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (pre.nodes[n] && sharesDraw(int(n), wide))
      for (auto [lanes, flag] : llvm::zip_equal(read.columns, sharedDraw(int(n), mine.columns.front().column)))
        lanes.values[n] = flag;
  Value own = lane;
  evaluateTogether(read.columns, pre, [&](size_t each) { lane = addIndex(mine.first, index(int64_t(each))); });
  lane = own;
  for (int chain : row.chains)
    for (size_t each = 0; each < read.columns.size(); ++each)
      take(chain, each, operand(spec.nodes[chain].args[0], read.columns[each], pre));
  for (size_t i = 0; i < row.stores.size(); ++i)
    storeTogether(row.stores[i], pre.storeBases[i], mine, read.columns, pre);
  scalars = kept;
  chainIndex.clear();
}

// ---- Chains --------------------------------------------------------------------------------------------------------------

// What the chains begin with, a value a chain and column; `fresh`: without what memory holds.
LoopEmitter::Values LoopEmitter::startsOf(const Work &row, const Neighbours &mine, Values &fresh) {
  Values starts;
  for (int chain : row.chains) {
    const LoopNode &node = spec.nodes[chain];
    Value from = node.hasInit ? base(node.view.offset, node.view.strides) : Value();
    forEach(mine, [&](size_t each) {
      fresh.push_back(chainStart(node, true));
      starts.push_back(from ? load(node.view, from, node.elem, &mine.columns[each]) : fresh.back());
    });
  }
  return starts;
}

// What is done with the sums.
void LoopEmitter::storeSums(const Work &row, const Neighbours &mine, ValueRange sums) {
  std::vector<Value> kept = scalars;
  Work stage = stageWork(1);
  emitScalars(stage, 0);
  Preheader pre = preheader(rootsOf({}, stage.stores), stage.stores);
  SmallVector<Lanes> columns = mine.columns;
  forEach(mine, [&](size_t each) {
    columns[each].values.resize(spec.nodes.size());
    for (size_t i = 0; i < row.chains.size(); ++i)
      columns[each].values[row.chains[i]] = sums[i * columns.size() + each];
    evaluateVectors(columns[each], pre);
  });
  for (size_t i = 0; i < stage.stores.size(); ++i)
    storeTogether(stage.stores[i], pre.storeBases[i], mine, columns, pre);
  scalars = kept;
}

// All rows of the columns from `column` on, the sums in registers.
void LoopEmitter::teamColumns(Value column, int64_t together) {
  const Neighbours mine = neighboursAt(column, together);
  const Work row = rowWork(0);
  Values fresh, initial = startsOf(row, mine, fresh);
  auto walk = [&](Value from, Value to, int64_t step, ValueRange sums) {
    auto loop = scf::ForOp::create(b, loc, from, to, index(step), sums, [&](OpBuilder &, Location, Value first, ValueRange carried) {
      std::vector<RowAhead> read;
      for (int64_t u = 0; u < step; ++u)
        read.push_back(readRow(row, mine, addIndex(first, index(u))));
      Values next(carried.begin(), carried.end());
      for (const RowAhead &one : read) {
        size_t place = 0;
        computeRow(row, mine, one, [&](int chain, size_t, Value value) {
          next[place] = combine(spec.nodes[chain].reduce, next[place], value);
          ++place;
        });
      }
      scf::YieldOp::create(b, loc, next);
    });
    return Values(loop.getResults().begin(), loop.getResults().end());
  };
  auto rows = [&](Value first, int64_t count, ValueRange sums) {
    const int64_t step = std::min(plan.rowsAhead, count), whole = count / step * step;
    Value between = addIndex(first, index(whole));
    Values next = walk(first, between, step, sums);
    return whole == count ? next : walk(between, addIndex(first, index(count)), 1, next);
  };
  auto block = [&](Value first, ValueRange totals) {
    Values next = rows(first, spec.blockRows, fresh);
    for (size_t i = 0; i < next.size(); ++i)
      next[i] = combine(spec.nodes[row.chains[i / size_t(together)]].reduce, totals[i], next[i]);
    return next;
  };
  storeSums(row, mine, spec.blockRows > 0 ? forBlocks(initial, block) : rows(index(0), plan.rows, initial));
}

// ---- Rows of one number --------------------------------------------------------------------------------------------------

// A chain over rows that have no columns: what a row adds is the same for all threads of a team, which would wait for memory row by row. Instead each
// thread evaluates every sixteenth row, several of these at once, and hands what it found to the others, who add in the order of the rows.
bool LoopEmitter::threadsTakeRows(const Work &row) const {
  if (!plan.teams || row.chains.empty() || !row.stores.empty() || row.addAt || !row.reductions.empty())
    return false;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (row.needed[n] && spec.nodes[n].op != LoopOp::ReduceChain && (plan.variesCol[n] || plan.isDraw(int(n))))
      return false;
  return std::none_of(row.chains.begin(), row.chains.end(), [&](int chain) { return plan.variesCol[chain]; });
}

LoopEmitter::Values LoopEmitter::forRowsOfThreads(const Work &row, Value first, int64_t count, ValueRange initial,
                                                  llvm::function_ref<Values(ValueRange)> single) {
  // ptxas has the numbers of all rows handed over before the first of them is added: so many words are what registers have room for.
  constexpr int64_t kWords = 64, kMostTogether = 4;
  int64_t words = 0; // of a row
  for (int chain : row.chains)
    words += std::max<int64_t>(1, bytesOf(spec.nodes[chain].elem) / 4);
  const int64_t together = std::clamp<int64_t>(kWords / (words * kLoopLanes), 1, kMostTogether); // rows of a thread
  const Neighbours none;
  auto walk = [&](Value from, int64_t rows, int64_t together, ValueRange sums) {
    auto loop = scf::ForOp::create(b, loc, from, addIndex(from, index(rows)), index(together * kLoopLanes), sums,
                                   [&](OpBuilder &, Location, Value begin, ValueRange carried) {
      std::vector<RowAhead> read;
      for (int64_t u = 0; u < together; ++u)
        read.push_back(readRow(row, none, addIndex(addIndex(begin, index(u * kLoopLanes)), lane)));
      Values next(carried.begin(), carried.end());
      for (const RowAhead &mine : read) {
        std::vector<Value> kept = scalars;
        scalars = mine.scalars;
        chainIndex = mine.chainIndex;
        emitScalars(row, 0);
        for (int thread = 0; thread < kLoopLanes; ++thread)
          for (size_t i = 0; i < row.chains.size(); ++i) {
            const LoopNode &chain = spec.nodes[row.chains[i]];
            next[i] = combine(chain.reduce, next[i], simt::fromThread(b, loc, scalars[chain.args[0]], thread));
          }
        scalars = kept;
        chainIndex.clear();
      }
      scf::YieldOp::create(b, loc, next);
    });
    return Values(loop.getResults().begin(), loop.getResults().end());
  };
  Values sums(initial.begin(), initial.end());
  int64_t done = 0;
  for (int64_t each : {together, int64_t(1)}) {
    const int64_t rows = (count - done) / (each * kLoopLanes) * (each * kLoopLanes);
    if (rows > 0)
      sums = walk(addIndex(first, index(done)), rows, each, sums);
    done += rows;
  }
  return done == count ? sums : forRows(addIndex(first, index(done)), count - done, sums, single);
}

// The item's columns.
void LoopEmitter::runTeams() {
  auto walk = [&](int64_t together) {
    scf::ForOp::create(b, loc, columnBegin, columnEnd, index(together * kLoopLanes), ValueRange(), [&](OpBuilder &, Location, Value column, ValueRange) {
      plan.gang.teams > 0 ? gangColumns(column) : teamColumns(column, together);
      scf::YieldOp::create(b, loc);
    });
  };
  if (plan.together == 1)
    return walk(1);
  auto body = [&](int64_t together) {
    return [&, together](OpBuilder &, Location) {
      walk(together);
      scf::YieldOp::create(b, loc);
    };
  };
  scf::IfOp::create(b, loc, basesAreAligned(), body(plan.together), body(1));
}

} // namespace cinch::kernels
