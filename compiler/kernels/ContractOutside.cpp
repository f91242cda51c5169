// ContractOutside.cpp: steps of k in which all of a tile's A lies outside of the image. Each is c = fma(+0.0, b, c), which is c unless b is
// not finite (the sum is a NaN then) or c is -0.0 (which may become +0.0). Both are asked for, so leaving such steps out changes no bit.
#include "compiler/kernels/ContractEmitter.h"

#include <functional>

using namespace mlir;

namespace cinch::kernels {

static Value bitsOf(OpBuilder &builder, Location loc, Value vector) {
  auto type = cast<VectorType>(vector.getType());
  auto bits = VectorType::get(type.getShape(), builder.getIntegerType(type.getElementTypeBitWidth()));
  return arith::BitcastOp::create(builder, loc, bits, vector);
}

static Value filled(OpBuilder &builder, Location loc, Type type, const APInt &value) {
  return arith::ConstantOp::create(builder, loc, cast<TypedAttr>(DenseElementsAttr::get(cast<VectorType>(type), value)));
}

Value ContractEmitter::magnitudes(Value vector) {
  Value bits = bitsOf(builder, loc, vector);
  APInt all = APInt::getSignedMaxValue(unsigned(plan.bytes) * 8);
  return arith::AndIOp::create(builder, loc, bits, filled(builder, loc, bits.getType(), all));
}

Value ContractEmitter::anyOf(Value flags) {
  return vector::ReductionOp::create(builder, loc, vector::CombiningKind::OR, flags);
}

// Of what B's panels hold of this block.
Value ContractEmitter::isFinite(Range n, KBlock block) {
  int64_t lanes = plan.lanes, nr = plan.nr(), edge = plan.n.size % nr;
  Type type = VectorType::get({lanes}, builder.getIntegerType(unsigned(plan.bytes) * 8));
  Value panels = add(threadScratch, plan.scratchB()), columns = sub(n.second, n.first), full = div(columns, nr);
  auto largestOf = [&](Value first, Value last, int64_t width, Values largest) {
    return overRange(first, last, 1, largest, [&](Value panel, Values largest) {
      Value at = add(panels, mul(panel, plan.panelB()));
      return overRange(number(0), block.total, 1, largest, [&](Value k, Values largest) {
        for (int64_t j = 0; j < width; j += lanes) {
          Value values = loadVector(scratch, add(at, add(mul(k, nr), j)), lanes, lanes);
          largest = {arith::MaxUIOp::create(builder, loc, largest[0], magnitudes(values))};
        }
        return largest;
      });
    });
  };
  Values largest = {filled(builder, loc, type, APInt(unsigned(plan.bytes) * 8, 0))};
  largest = largestOf(number(0), full, nr, largest);
  if (edge)
    largest = largestOf(full, div(add(columns, nr - 1), nr), edge, largest);
  const llvm::fltSemantics &semantics = cast<FloatType>(elementType()).getFloatSemantics();
  APInt infinity = APFloat::getInf(semantics).bitcastToAPInt();
  Value beyond = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::uge, largest[0], filled(builder, loc, type, infinity));
  return arith::XOrIOp::create(builder, loc, anyOf(beyond), arith::ConstantIntOp::create(builder, loc, 1, 1));
}

Value ContractEmitter::hasNegativeZero(ValueRange chains) {
  Value any;
  for (Value chain : chains) {
    Value bits = bitsOf(builder, loc, chain);
    Value zero = filled(builder, loc, bits.getType(), APInt::getSignMask(unsigned(plan.bytes) * 8));
    Value here = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, bits, zero);
    any = any ? Value(arith::OrIOp::create(builder, loc, any, here)) : here;
  }
  return anyOf(any);
}

ContractEmitter::Values ContractEmitter::choose(Value condition, TypeRange types, llvm::function_ref<Values()> yes, llvm::function_ref<Values()> no) {
  auto branch = scf::IfOp::create(builder, loc, types, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(builder, loc, yes());
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, loc, no());
  return Values(branch.getResults());
}

// `steps` over a stretch of k, or nothing.
ContractEmitter::Values ContractEmitter::unlessOutside(const Tile &tile, KBlock block, Value run, Values chains,
                                                       llvm::function_ref<Values(Values)> steps) {
  if (!plan.skipsOutside())
    return steps(chains);
  int64_t ContractDim::*const strides[] = {&ContractDim::bound0, &ContractDim::bound1};
  Value outside;
  for (int i : {0, 1}) {
    if (!plan.skips[i])
      continue;
    Value place = add(tile.bound[i], offsetIn(plan.outerK, strides[i], add(block.firstRun, run)));
    Value here = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::uge, place, number(plan.bounds[i].size));
    outside = outside ? Value(arith::OrIOp::create(builder, loc, outside, here)) : here;
  }
  outside = arith::AndIOp::create(builder, loc, outside, block.finite);
  Value always = arith::ConstantIntOp::create(builder, loc, 1, 1);
  Values needed = choose(
      outside, TypeRange(always.getType()), [&] { return Values{hasNegativeZero(chains)}; }, [&] { return Values{always}; });
  return choose(needed[0], ValueRange(chains).getTypes(), [&] { return steps(chains); }, [&] { return chains; });
}

// The places [first, last) of a dim of k that lie within its bound, where there is one.
ContractEmitter::Range ContractEmitter::placesInside(const Tile &tile, const ContractDim &dim) {
  if (!dim.isBounded())
    return {number(0), number(dim.size)};
  const size_t i = dim.bound0 ? 0 : 1;
  const int64_t step = i == 0 ? dim.bound0 : dim.bound1;
  Value before = max(sub(number(0), tile.bound[i]), number(0)), until = max(sub(number(plan.bounds[i].size), tile.bound[i]), number(0));
  Value last = min(div(add(until, step - 1), step), dim.size);
  return {min(div(add(before, step - 1), step), last), last};
}

// Of the examples of a block the places that this tile's tap has inside.
ContractEmitter::Values ContractEmitter::placesOfTile(const Tile &tile, KBlock block, Values chains) {
  const int64_t image = plan.runsOfImage();
  std::function<Values(size_t, Value, Values)> walk = [&](size_t dim, Value before, Values chains) { // `before`: the number among the dims so far
    if (dim == plan.outerK.size()) {
      Range places = placesInside(tile, plan.k);
      Value start = mul(before, plan.k.size);
      return overRange(places.first, places.second, 1, chains, [&](Value place, Values chains) {
        Value step = add(start, place);
        Tile at = tile;
        at.a = add(tile.a, mul(step, tile.strideKA)), at.b = add(tile.b, mul(step, tile.strideKB));
        return multiply(at, number(0), chains);
      });
    }
    Range places = dim == 0 ? Range{number(0), div(block.runs, image)} : placesInside(tile, plan.outerK[dim]);
    return overRange(places.first, places.second, 1, chains, [&](Value place, Values chains) {
      return walk(dim + 1, dim == 0 ? place : add(mul(before, plan.outerK[dim].size), place), chains);
    });
  };
  TypeRange types = ValueRange(chains).getTypes();
  Values spared = choose(block.finite, types, [&] { return walk(0, number(0), chains); }, [&] { return chains; });
  Value all = arith::XOrIOp::create(builder, loc, block.finite, arith::ConstantIntOp::create(builder, loc, 1, 1));
  all = arith::OrIOp::create(builder, loc, all, hasNegativeZero(spared));
  auto whole = [&] { // C has not been written yet
    return overRange(number(0), block.total, plan.unroll, firstAccumulators(tile, block),
                     [&](Value k, Values values) { return multiplySteps(tile, k, values); });
  };
  return choose(all, types, whole, [&] { return spared; });
}

// Of packed windows: a stretch of k after the other.
ContractEmitter::Values ContractEmitter::runsOfTile(const Tile &tile, KBlock block, Values chains) {
  return overRange(number(0), block.runs, 1, chains, [&](Value run, Values chains) {
    Tile at = tile;
    Value first = mul(run, block.length);
    at.a = add(tile.a, mul(first, tile.strideKA));
    at.b = add(tile.b, mul(first, tile.strideKB));
    return unlessOutside(at, block, run, chains, [&](Values chains) {
      return overRange(number(0), block.length, plan.unroll, chains, [&](Value k, Values chains) { return multiplySteps(at, k, chains); });
    });
  });
}

} // namespace cinch::kernels
