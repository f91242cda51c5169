// LoopReductions.cpp: sums, products, extremes and their places: 16 lanes over the columns, then a fixed tree.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include <cstring>
#include <limits>

using namespace mlir;

namespace cinch::kernels {

Value LoopEmitter::combine(LoopReduce reduce, Value x, Value y) {
  switch (reduce) {
  case LoopReduce::Sum: return emitElementwise(b, loc, LoopOp::Add, Elem::F32, {x, y});
  case LoopReduce::Prod: return emitElementwise(b, loc, LoopOp::Mul, Elem::F32, {x, y});
  case LoopReduce::Max: return emitElementwise(b, loc, LoopOp::Max, Elem::F32, {x, y});
  case LoopReduce::Min: return emitElementwise(b, loc, LoopOp::Min, Elem::F32, {x, y});
  case LoopReduce::Any: return emitElementwise(b, loc, LoopOp::Or, Elem::Bool, {x, y});
  case LoopReduce::All: return emitElementwise(b, loc, LoopOp::And, Elem::Bool, {x, y});
  }
  return {};
}

// What a reduction gives of nothing; a sum of floats -0.0, to which any number may be added without a change.
static double neutralNumber(LoopReduce reduce, Elem elem) {
  bool isFloat = elem == Elem::F32 || elem == Elem::F64;
  double largest = isFloat              ? std::numeric_limits<double>::infinity()
                   : elem == Elem::Bool ? 1
                                        : std::numeric_limits<int32_t>::max();
  double smallest = isFloat ? -largest : elem == Elem::Bool ? 0 : std::numeric_limits<int32_t>::min();
  switch (reduce) {
  case LoopReduce::Sum: return isFloat ? -0.0 : 0;
  case LoopReduce::Prod: return 1;
  case LoopReduce::Max: return smallest;
  case LoopReduce::Min: return largest;
  case LoopReduce::Any: return 0;
  case LoopReduce::All: return 1;
  }
  return 0;
}

int64_t firstWord(LoopReduce reduce, Elem elem) {
  double number = reduce == LoopReduce::Sum ? 0 : neutralNumber(reduce, elem);
  auto bits = [](auto value) {
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return int64_t(sizeof value == 4 ? word << 32 | word : word);
  };
  if (elem == Elem::F64)
    return bits(number);
  if (elem == Elem::F32)
    return bits(float(number));
  return elem == Elem::Bool ? (number != 0 ? 0x0101010101010101 : 0) : bits(int32_t(number));
}

Value LoopEmitter::neutral(LoopReduce reduce, Elem elem, bool vector) {
  double number = neutralNumber(reduce, elem);
  if (elem == Elem::F32 || elem == Elem::F64)
    return emitNumber(b, loc, type(elem, vector), number);
  return emitInteger(b, loc, type(elem, vector), int64_t(number));
}

Value LoopEmitter::chainStart(const LoopNode &node, bool vector) {
  if (node.reduce == LoopReduce::Sum)
    return emitNumber(b, loc, type(node.elem, vector), 0);
  return neutral(node.reduce, node.elem, vector);
}

void LoopEmitter::initialReduction(int node, Values &accumulators) {
  const LoopNode &n = spec.nodes[node];
  if (n.op == LoopOp::ReduceCols) {
    accumulators.push_back(neutral(n.reduce, n.elem, true));
    return;
  }
  // Lanes without any element (a row shorter than 16) lose every tie.
  auto worst = n.op == LoopOp::ArgMaxCols ? LoopReduce::Max : LoopReduce::Min;
  accumulators.push_back(neutral(worst, spec.nodes[n.args[0]].elem, true));
  if (plan.teams) {
    Value number = iota(b.getI32Type()), none = emitInteger(b, loc, b.getI32Type(), std::numeric_limits<int32_t>::max());
    Value live = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, lane, index(spec.cols));
    accumulators.push_back(arith::SelectOp::create(b, loc, live, number, none));
    return;
  }
  SmallVector<APInt> first;
  for (int64_t lane = 0; lane < kLoopLanes; ++lane)
    first.push_back(APInt(32, lane < spec.cols ? lane : std::numeric_limits<int32_t>::max()));
  accumulators.push_back(arith::ConstantOp::create(b, loc, DenseElementsAttr::get(cast<VectorType>(lanesOf(b.getI32Type())), first)));
}

// Whether x goes before y: larger (or smaller, for ArgMin), or a NaN before numbers.
static Value goesBefore(OpBuilder &b, Location loc, LoopOp op, Value x, Value y) {
  auto compare = op == LoopOp::ArgMaxCols ? LoopOp::CompareGT : LoopOp::CompareLT;
  Value better = emitElementwise(b, loc, compare, Elem::Bool, {x, y});
  if (!isa<FloatType>(getElementTypeOrSelf(x.getType())))
    return better;
  Value xNan = emitElementwise(b, loc, LoopOp::CompareNE, Elem::Bool, {x, x});
  Value yNumber = emitElementwise(b, loc, LoopOp::CompareEQ, Elem::Bool, {y, y});
  return arith::OrIOp::create(b, loc, better, arith::AndIOp::create(b, loc, xNan, yNumber));
}

void LoopEmitter::accumulate(int node, MutableArrayRef<Value> accumulators, const Lanes &lanes, const Preheader &pre) {
  const LoopNode &n = spec.nodes[node];
  Value value = operand(n.args[0], lanes, pre);
  if (n.op == LoopOp::ReduceCols) {
    Value next = combine(n.reduce, accumulators[0], value);
    if (lanes.mask)
      next = arith::SelectOp::create(b, loc, lanes.mask, next, accumulators[0]);
    accumulators[0] = next;
    return;
  }
  Value take = goesBefore(b, loc, n.op, value, accumulators[0]);
  if (lanes.mask)
    take = arith::AndIOp::create(b, loc, take, lanes.mask);
  Value column = splat(arith::IndexCastOp::create(b, loc, b.getI32Type(), lanes.column));
  column = arith::AddIOp::create(b, loc, column, iota(b.getI32Type()));
  accumulators[0] = arith::SelectOp::create(b, loc, take, value, accumulators[0]);
  accumulators[1] = arith::SelectOp::create(b, loc, take, column, accumulators[1]);
}

// Rows side by side: lanes of a row are combined as the tree of finishReduction does, and each of them gets what its first one gets.
Value LoopEmitter::reduceRows(int node, Value vector) {
  for (int64_t width = plan.rowColumns / 2; width > 0; width /= 2) {
    SmallVector<int64_t> others;
    for (int64_t lane = 0; lane < kLoopLanes; ++lane)
      others.push_back(lane ^ width);
    vector = combine(spec.nodes[node].reduce, vector, vector::ShuffleOp::create(b, loc, vector, vector, others));
  }
  return vector;
}

void LoopEmitter::finishReduction(int node, ArrayRef<Value> accumulators) {
  const LoopNode &n = spec.nodes[node];
  // Of the tree only what lane 0 gets counts; a team computes some more.
  auto half = [&](Value vector, int64_t from, int64_t count) -> Value {
    if (plan.teams)
      return from == 0 ? vector : simt::fromBehind(b, loc, vector, int(from));
    SmallVector<int64_t> lanes;
    for (int64_t lane = from; lane < from + count; ++lane)
      lanes.push_back(lane);
    return vector::ShuffleOp::create(b, loc, vector, vector, lanes);
  };
  Value value = accumulators[0], number = accumulators.size() > 1 ? accumulators[1] : Value();
  for (int64_t width = kLoopLanes / 2; width > 0; width /= 2) {
    Value x = half(value, 0, width), y = half(value, width, width);
    if (!number) {
      value = combine(n.reduce, x, y);
      continue;
    }
    Value xNumber = half(number, 0, width), yNumber = half(number, width, width);
    Value yFirst = goesBefore(b, loc, n.op, y, x), xFirst = goesBefore(b, loc, n.op, x, y);
    Value lower = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, yNumber, xNumber);
    Value tie = arith::XOrIOp::create(b, loc, arith::OrIOp::create(b, loc, yFirst, xFirst),
                                      emitInteger(b, loc, yFirst.getType(), 1));
    Value takeY = arith::OrIOp::create(b, loc, yFirst, arith::AndIOp::create(b, loc, tie, lower));
    value = arith::SelectOp::create(b, loc, takeY, y, x);
    number = arith::SelectOp::create(b, loc, takeY, yNumber, xNumber);
  }
  Value result = number ? number : value;
  scalars[node] = plan.teams ? simt::fromFirst(b, loc, result) : vector::ExtractOp::create(b, loc, result, ArrayRef<int64_t>{0});
}

} // namespace cinch::kernels
