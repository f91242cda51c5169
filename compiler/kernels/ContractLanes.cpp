// ContractLanes.cpp: contractions whose C is contiguous along a batch dim alone, such as a convolution of each channel by
// itself. A vector holds elements of that dim, a tile some rows of m: one FMA chain an element, walked over k in plain loops.
// Also what is written where nothing is summed.
#include "compiler/kernels/ContractEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace cinch::kernels {

ContractEmitter::Range ContractEmitter::share(Value thread, Value threads, int64_t items) {
  auto first = [&](Value part) -> Value {
    return arith::DivUIOp::create(builder, loc, mul(part, number(items)), threads);
  };
  return {first(thread), first(add(thread, 1))};
}

void ContractEmitter::emitZeros(Value thread, Value threads) {
  int64_t rows = countOf(plan.batch) * countOf(plan.outerM) * plan.m.size;
  ContractDims dims = plan.batch;
  dims.insert(dims.end(), plan.outerM.begin(), plan.outerM.end());
  dims.push_back(plan.m);
  Range mine = share(thread, threads, rows);
  forLoop(mine.first, mine.second, 1, [&](Value row) {
    Value at = add(offsetIn(dims, &ContractDim::c, row), plan.c.offset);
    forLoop(number(0), number(countOf(plan.outerN)), 1, [&](Value outer) {
      Value begin = add(at, offsetIn(plan.outerN, &ContractDim::c, outer));
      if (plan.n.c != 1) {
        Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(elementType()));
        return forLoop(number(0), number(plan.n.size), 1,
                       [&](Value column) { storeScalar(zero, memC, add(begin, mul(column, plan.n.c))); });
      }
      int64_t full = plan.n.size / plan.lanes * plan.lanes;
      forLoop(number(0), number(full), plan.lanes,
              [&](Value column) { storeVector(zeros(plan.lanes), memC, add(begin, column), plan.lanes); });
      if (full < plan.n.size)
        storeVector(zeros(plan.lanes), memC, add(begin, full), plan.n.size - full);
    });
  });
}

Value ContractEmitter::laneMask(Value alive) {
  return vector::CreateMaskOp::create(builder, loc, VectorType::get({plan.lanes}, builder.getI1Type()), alive);
}

// Items are (batch, outer m, tile of rows, vector); vectors fastest, so that neighbours read the same lines.
void ContractEmitter::emitLanes(Value thread, Value threads) {
  int64_t vectors = (plan.n.size + plan.lanes - 1) / plan.lanes, tiles = (plan.m.size + plan.mr - 1) / plan.mr;
  int64_t edge = plan.m.size % plan.mr, outer = countOf(plan.outerM);
  Range mine = share(thread, threads, countOf(plan.batch) * outer * tiles * vectors);
  forLoop(mine.first, mine.second, 1, [&](Value item) {
    Value column = mul(rem(item, vectors), plan.lanes), rest = div(item, vectors);
    Value row = mul(rem(rest, tiles), int64_t(plan.mr));
    rest = div(rest, tiles);
    Value outerM = rem(rest, outer), batch = div(rest, outer);
    Origin origin;
    origin.a = number(plan.a.offset);
    for (size_t i = 0; i < plan.bounds.size(); ++i)
      origin.bound[i] = number(plan.bounds[i].offset);
    moveA(origin, plan.batch, batch);
    moveA(origin, plan.outerM, outerM);
    moveA(origin, {plan.m}, row);
    origin.a = add(origin.a, column);
    origin.b = add(add(offsetIn(plan.batch, &ContractDim::b, batch), plan.b.offset), column);
    origin.c = add(add(offsetIn(plan.batch, &ContractDim::c, batch), plan.c.offset),
                   add(offsetIn(plan.outerM, &ContractDim::c, outerM), add(mul(row, plan.m.c), column)));
    Value alive = laneMask(sub(number(plan.n.size), column));
    if (edge == 0 || tiles == 1)
      return laneTile(origin, edge ? edge : plan.mr, alive);
    ifElse(
        less(row, number(plan.m.size - edge)), [&] { laneTile(origin, plan.mr, alive); },
        [&] { laneTile(origin, edge, alive); });
  });
}

// `rows` chains of one vector each.
void ContractEmitter::laneTile(const Origin &origin, int64_t rows, Value alive) {
  VectorType type = vectorType(plan.lanes);
  auto placeOf = [&](int64_t row) { return add(origin.c, row * plan.m.c); };
  SmallVector<Value> sums, fresh(rows, zeros(plan.lanes));
  if (plan.accumulate)
    for (int64_t row = 0; row < rows; ++row)
      sums.push_back(vector::MaskedLoadOp::create(builder, loc, type, memC, placeOf(row), alive, fresh[0]));
  if (!plan.grained) {
    sums = laneChains(origin, rows, 0, alive, plan.accumulate ? sums : fresh);
  } else {
    auto loop = scf::ForOp::create(builder, loc, number(0), number(plan.grain.size), number(1), sums);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    Origin block = origin;
    moveA(block, {plan.grain}, loop.getInductionVar());
    block.b = add(block.b, mul(loop.getInductionVar(), plan.grain.b));
    SmallVector<Value> totals = laneChains(block, rows, 0, alive, fresh);
    for (auto [total, sum] : llvm::zip_equal(totals, loop.getRegionIterArgs()))
      total = arith::AddFOp::create(builder, loc, sum, total);
    scf::YieldOp::create(builder, loc, totals);
    sums.assign(loop.getResults().begin(), loop.getResults().end());
  }
  for (int64_t row = 0; row < rows; ++row)
    vector::MaskedStoreOp::create(builder, loc, memC, placeOf(row), alive, sums[row]);
}

// The chains over the dims of k from number `dim` on. A short walk is written out.
SmallVector<Value> ContractEmitter::laneChains(const Origin &origin, int64_t rows, size_t dim, Value alive,
                                               ValueRange accumulators) {
  if (dim == plan.outerK.size()) {
    VectorType type = vectorType(plan.lanes);
    Value none = zeros(plan.lanes), b = vector::MaskedLoadOp::create(builder, loc, type, memB, origin.b, alive, none);
    SmallVector<Value> results;
    for (int64_t row = 0; row < rows; ++row) {
      Origin at = origin;
      moveA(at, {plan.m}, number(row));
      Value mask = alive;
      if (Value there = exists(at.bound[0], at.bound[1])) {
        Value everywhere = vector::BroadcastOp::create(builder, loc, alive.getType(), there);
        mask = arith::AndIOp::create(builder, loc, alive, everywhere);
      }
      Value a = vector::MaskedLoadOp::create(builder, loc, type, memA, at.a, mask, none);
      results.push_back(math::FmaOp::create(builder, loc, a, b, accumulators[row]));
    }
    return results;
  }
  const ContractDim &k = plan.outerK[dim];
  auto step = [&](Value i, ValueRange values) {
    Origin at = origin;
    moveA(at, {k}, i);
    at.b = add(at.b, mul(i, k.b));
    return laneChains(at, rows, dim + 1, alive, values);
  };
  constexpr int64_t kWrittenOut = 8;
  if (k.size <= kWrittenOut) {
    SmallVector<Value> values(accumulators.begin(), accumulators.end());
    for (int64_t i = 0; i < k.size; ++i)
      values = step(number(i), values);
    return values;
  }
  auto loop = scf::ForOp::create(builder, loc, number(0), number(k.size), number(1), accumulators);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(builder, loc, step(loop.getInductionVar(), loop.getRegionIterArgs()));
  return {loop.getResults().begin(), loop.getResults().end()};
}

} // namespace cinch::kernels
