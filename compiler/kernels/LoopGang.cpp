// LoopGang.cpp: column sums of a GPU, where columns are too few to keep it busy: an item is a block of threads.
//
// A chain adds the rows of a column one after the other. What is added need not be computed so: most teams of the block (Simt.h) evaluate the
// rows of a batch side by side and leave their values in shared memory. A team for each chain adds them in their order, while the others evaluate
// the next batch. So the bits are those of a single team that does one row after the other.
#include "compiler/kernels/Device.h"
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

// Rows whose values are read at once, before the first of them is added.
static constexpr int64_t kRowsAtOnce = 32;

void LoopEmitter::openGang() {
  auto function = cast<func::FuncOp>(cast<BlockArgument>(arena).getOwner()->getParentOp());
  auto open = [&](int chain, const char *what, int64_t elements) {
    std::string name = (function.getName() + what + std::to_string(chain)).str();
    return simt::sharedMemory(b, loc, function, name, elements, storedType(b, spec.nodes[chain].elem));
  };
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!plan.needed[n] || spec.nodes[n].op != LoopOp::ReduceChain)
      continue;
    gangRows[int(n)] = open(int(n), "_rows", 2 * plan.gang.batch() * kLoopLanes);
    gangTotals[int(n)] = open(int(n), "_totals", kLoopLanes);
  }
  team = arith::DivUIOp::create(b, loc, simt::threadOfBlock(b, loc), index(simt::kTeam));
}

Value LoopEmitter::isTeam(int64_t number) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, team, index(number)); }

// The rows from `first` on, before `end`, of one batch: each team has every so many of them. `at`: where the batch begins in shared memory.
void LoopEmitter::evaluateBatch(const Work &row, const Neighbours &mine, Value first, Value end, Value at) {
  std::vector<RowAhead> read;
  std::vector<Value> places;
  for (int64_t u = 0; u < plan.gang.rows; ++u) {
    Value within = addIndex(team, index(u * plan.gang.teams)), number = addIndex(first, within);
    places.push_back(addIndex(at, addIndex(mulIndex(within, kLoopLanes), lane)));
    if (row.stores.empty()) {
      // Behind the last row it is computed once more, and nobody adds it: so no load waits for a branch.
      Value last = arith::SubIOp::create(b, loc, end, index(1));
      read.push_back(readRow(row, mine, arith::MinSIOp::create(b, loc, number, last)));
      continue;
    }
    Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, number, end);
    scf::IfOp::create(b, loc, exists, [&](OpBuilder &, Location) {
      computeRow(row, mine, readRow(row, mine, number), [&](int chain, size_t, Value value) { keepRow(chain, value, places.back()); });
      scf::YieldOp::create(b, loc);
    });
  }
  for (size_t i = 0; i < read.size(); ++i)
    computeRow(row, mine, read[i], [&](int chain, size_t, Value value) { keepRow(chain, value, places[i]); });
}

void LoopEmitter::keepRow(int chain, Value value, Value place) {
  memref::StoreOp::create(b, loc, toStored(b, loc, value, spec.nodes[chain].elem), gangRows.at(chain), ValueRange{place});
}

// `sum` and the values of a batch, one after the other.
Value LoopEmitter::addBatch(int chain, Value sum, Value at, Value count) {
  const LoopNode &node = spec.nodes[chain];
  auto walk = [&](Value from, Value to, int64_t step, Value sum) -> Value {
    auto loop = scf::ForOp::create(b, loc, from, to, index(step), ValueRange{sum}, [&](OpBuilder &, Location, Value row, ValueRange carried) {
      Value place = addIndex(at, addIndex(mulIndex(row, kLoopLanes), lane)), next = carried[0];
      Values values;
      for (int64_t i = 0; i < step; ++i) {
        Value stored = memref::LoadOp::create(b, loc, gangRows.at(chain), ValueRange{addIndex(place, index(i * kLoopLanes))});
        values.push_back(toValue(b, loc, stored, node.elem));
      }
      for (Value value : values)
        next = combine(node.reduce, next, value);
      scf::YieldOp::create(b, loc, next);
    });
    return loop.getResult(0);
  };
  Value many = mulIndex(arith::DivUIOp::create(b, loc, count, index(kRowsAtOnce)), kRowsAtOnce);
  return walk(many, count, 1, walk(index(0), many, kRowsAtOnce, sum));
}

// The chains go on over `count` rows from `first` on. Each sum counts in the threads of its team alone.
LoopEmitter::Values LoopEmitter::walkBatches(const Work &row, const Neighbours &mine, Value first, int64_t count, ValueRange initial) {
  int64_t batch = plan.gang.batch(), batches = (count + batch - 1) / batch;
  Value end = addIndex(first, index(count));
  Value evaluates = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, team, index(plan.gang.teams));
  auto place = [&](Value number) { return mulIndex(arith::AndIOp::create(b, loc, number, index(1)), batch * kLoopLanes); };
  auto evaluate = [&](Value number, Value condition) {
    scf::IfOp::create(b, loc, condition, [&](OpBuilder &, Location) {
      Value begin = addIndex(first, mulIndex(number, batch));
      evaluateBatch(row, mine, begin, end, place(number));
      scf::YieldOp::create(b, loc);
    });
  };
  simt::syncBlock(b, loc); // nobody reads what was there before
  evaluate(index(0), evaluates);
  auto loop = scf::ForOp::create(b, loc, index(0), index(batches), index(1), initial, [&](OpBuilder &, Location, Value number, ValueRange carried) {
    simt::syncBlock(b, loc);
    Value next = addIndex(number, index(1));
    Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next, index(batches));
    evaluate(next, arith::AndIOp::create(b, loc, evaluates, more));
    Value rest = arith::SubIOp::create(b, loc, index(count), mulIndex(number, batch));
    Value rows = arith::MinSIOp::create(b, loc, rest, index(batch));
    Values sums;
    for (size_t i = 0; i < row.chains.size(); ++i) {
      auto adds = scf::IfOp::create(
          b, loc, isTeam(plan.gang.adder(i)),
          [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, addBatch(row.chains[i], carried[i], place(number), rows)); },
          [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, carried[i]); });
      sums.push_back(adds.getResult(0));
    }
    scf::YieldOp::create(b, loc, sums);
  });
  return Values(loop.getResults().begin(), loop.getResults().end());
}

// What teamColumns does, of a column a thread.
void LoopEmitter::gangColumns(Value column) {
  const Neighbours mine = neighboursAt(column, 1);
  const Work row = rowWork(0);
  Values fresh, initial = startsOf(row, mine, fresh);
  auto block = [&](Value first, ValueRange totals) {
    Values next = walkBatches(row, mine, first, spec.blockRows, fresh);
    for (size_t i = 0; i < next.size(); ++i)
      next[i] = combine(spec.nodes[row.chains[i]].reduce, totals[i], next[i]);
    return next;
  };
  Values sums = spec.blockRows > 0 ? forBlocks(initial, block) : walkBatches(row, mine, index(0), plan.rows, initial);
  for (size_t i = 0; i < row.chains.size(); ++i) {
    scf::IfOp::create(b, loc, isTeam(plan.gang.adder(i)), [&](OpBuilder &, Location) {
      Value stored = toStored(b, loc, sums[i], spec.nodes[row.chains[i]].elem);
      memref::StoreOp::create(b, loc, stored, gangTotals.at(row.chains[i]), ValueRange{lane});
      scf::YieldOp::create(b, loc);
    });
  }
  simt::syncBlock(b, loc);
  scf::IfOp::create(b, loc, isTeam(0), [&](OpBuilder &, Location) {
    for (size_t i = 0; i < row.chains.size(); ++i) {
      Value stored = memref::LoadOp::create(b, loc, gangTotals.at(row.chains[i]), ValueRange{lane});
      sums[i] = toValue(b, loc, stored, spec.nodes[row.chains[i]].elem);
    }
    storeSums(row, mine, sums);
    scf::YieldOp::create(b, loc);
  });
}

} // namespace cinch::kernels
