// ContractPairs.cpp: the chains of a product of bf16. A block of 32 elements of k has two of them, over its even and its odd elements,
// and their sum goes to the accumulator. Panels of f32 are not filled up: a pair of (-0.0, +0.0) would change no bit of a chain. Those of
// words are; in both, `first` counts the steps of a panel.
#include "compiler/kernels/ContractEmitter.h"

using namespace mlir;

namespace cinch::kernels {

// A loop that carries values; none if there is nothing to do.
ContractEmitter::Values ContractEmitter::overRange(Value from, Value to, int64_t step, Values values,
                                                   llvm::function_ref<Values(Value, Values)> body) {
  auto loop = scf::ForOp::create(builder, loc, from, to, number(step), values);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(builder, loc, body(loop.getInductionVar(), Values(loop.getRegionIterArgs())));
  return Values(loop.getResults());
}

// `count` elements from k = `first` on.
ContractEmitter::Values ContractEmitter::pairBlock(const Tile &tile, Value first, int64_t count, Values accumulators) {
  if (plan.dots)
    return wordBlock(tile, first, count, accumulators);
  size_t size = accumulators.size();
  Values chains(2 * size, zeros(plan.lanes)); // even, then odd
  auto pair = [&](Value k, Values both) {
    Values even = multiply(tile, k, ValueRange(both).take_front(size));
    Values odd = multiply(tile, add(k, 1), ValueRange(both).drop_front(size));
    even.append(odd);
    return even;
  };
  int64_t pairs = count / 2, unroll = pairs % 4 == 0 ? 4 : 1;
  if (pairs == 1)
    chains = pair(first, chains);
  else if (pairs > 1)
    chains = overRange(number(0), number(2 * pairs), 2 * unroll, chains, [&](Value k, Values both) {
      for (int64_t i = 0; i < unroll; ++i)
        both = pair(add(first, add(k, 2 * i)), both);
      return both;
    });
  if (count % 2) {
    Values even = multiply(tile, add(first, count - 1), ValueRange(chains).take_front(size));
    std::copy(even.begin(), even.end(), chains.begin());
  }
  for (size_t i = 0; i < size; ++i) {
    Value sum = arith::AddFOp::create(builder, loc, chains[i], chains[size + i]);
    accumulators[i] = arith::AddFOp::create(builder, loc, accumulators[i], sum);
  }
  return accumulators;
}

// Whole blocks, and what remains behind them, if anything does.
ContractEmitter::Values ContractEmitter::pairsOfRun(const Tile &tile, Value first, Value blocks, Value hasTail, int64_t tail,
                                                    Values accumulators) {
  const int64_t steps = plan.dots ? kPairBlock / 2 : kPairBlock;
  accumulators = overRange(number(0), blocks, 1, accumulators, [&](Value block, Values values) {
    return pairBlock(tile, add(first, mul(block, steps)), kPairBlock, values);
  });
  if (tail == 0)
    return accumulators;
  Value end = add(first, mul(blocks, steps));
  if (!hasTail)
    return pairBlock(tile, end, tail, accumulators);
  auto branch = scf::IfOp::create(builder, loc, ValueRange(accumulators).getTypes(), hasTail, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, loc, accumulators);
  builder.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(builder, loc, pairBlock(tile, end, tail, accumulators));
  return Values(branch.getResults());
}

ContractEmitter::Values ContractEmitter::pairChains(const Tile &tile, KBlock block, Values accumulators) {
  int64_t length = plan.runLength;
  if (length == 1)
    return overRange(number(0), block.total, 1, accumulators,
                     [&](Value k, Values values) { return pairBlock(tile, k, 1, values); });
  int64_t tail = length % kPairBlock;
  if (plan.kc < plan.k.size) { // a part of a run, of which the last alone may have a tail
    Value odd = tail ? less(number(0), rem(block.length, kPairBlock)) : Value();
    Tile at = plan.bands == Bands::No ? tile : atStretch(tile, block, number(0), number(0));
    return pairsOfRun(at, number(0), div(block.length, kPairBlock), odd, tail, accumulators);
  }
  const int64_t stretches = length / plan.k.size;
  return overRange(number(0), div(block.runs, stretches), 1, accumulators, [&](Value run, Values values) {
    Value steps = mul(run, plan.dots ? plan.wordsOf(length) : length), blocks = number(length / kPairBlock);
    if (plan.bands == Bands::No)
      return pairsOfRun(tile, steps, blocks, Value(), tail, values);
    return pairsOfRun(atStretch(tile, block, mul(run, stretches), steps), number(0), blocks, Value(), tail, values);
  });
}

} // namespace cinch::kernels
