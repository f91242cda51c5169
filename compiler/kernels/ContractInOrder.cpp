// ContractInOrder.cpp: products of bf16 whose blocks have one element each, as a dense layer's weight gradient has one of each example.
//
// The contract adds the product of each element, rounded, to the sum. A product of two bf16 is exact in f32. So this is a chain of FMAs in the order
// of k, unless a product is too small or too large for f32, and except for signs of zeros. A chain takes one FMA an element, or half an instruction
// where vdpbf16ps takes two steps of it at once, and blocks take two or three. So each thread first looks at the exponents of what it multiplies:
//
//     the smallest product is a multiple of 2^-126      then so are all sums: none is subnormal, and none is -0.0 if none begins so
//     the largest one is below 2^128                    then no product is an infinity that a sum would not be
//
// and, where sums go on, at what C holds, which is to be +0.0 or a multiple of 2^-126, too. If all of that holds it computes chains, else blocks. The
// bits are the same.
#include "compiler/kernels/ContractEmitter.h"

using namespace mlir;

namespace cinch::kernels {

bool canBeInOrder(const ContractPlan &plan) {
  constexpr int64_t kFewSteps = 8; // below, looking takes as long as it saves
  return plan.pairs && plan.runLength == 1 && !plan.amx && !plan.grained && plan.bounds.empty() && plan.bands == Bands::No && plan.outerM.empty() &&
         plan.outerN.empty() && plan.outerK.empty() && countOf(plan.batch) == 1 && plan.m.a == 1 && plan.n.b == 1 && plan.k.size >= kFewSteps &&
         plan.packA == PackedA::Cols && plan.packB == PackedB::Copy && plan.c.elem == Elem::F32 && plan.directC;
}

ContractPlan inOrder(ContractPlan plan) {
  plan.inOrder = true;
  plan.runLength = plan.k.size;
  return plan;
}

namespace {
constexpr int kLanes = 16;
constexpr int64_t kMantissa = 7, kBias = 127, kLargest = 255; // of bf16; the largest biased exponent
} // namespace

// The smallest and the largest biased exponent of what rows of k hold from `first` to `last`; nothing but zeros: kLargest and 0.
std::pair<Value, Value> ContractEmitter::exponents(Value memory, Value start, int64_t stride, Value first, Value last) {
  auto type = VectorType::get({kLanes}, builder.getI16Type());
  auto all = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, APInt(16, uint64_t(value))));
  };
  Values found = overRange(number(0), number(plan.k.size), 1, {all(kLargest << kMantissa), all(0)}, [&](Value k, Values found) {
    Value row = add(start, mul(k, stride));
    return overRange(first, last, kLanes, found, [&](Value at, Values found) {
      Value there = vector::CreateMaskOp::create(builder, loc, VectorType::get({kLanes}, builder.getI1Type()), sub(last, at));
      Value exponent = arith::AndIOp::create(builder, loc, halvesOf(loadMasked(memory, add(row, at), there)), all(kLargest << kMantissa));
      Value zero = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, exponent, all(0)); // or subnormal, which is taken for it
      Value other = arith::SelectOp::create(builder, loc, zero, found[0], exponent);
      return Values{arith::MinUIOp::create(builder, loc, found[0], other), arith::MaxUIOp::create(builder, loc, found[1], exponent)};
    });
  });
  auto reduced = [&](vector::CombiningKind kind, Value of) -> Value {
    Value one = vector::ReductionOp::create(builder, loc, kind, of);
    return arith::ShRUIOp::create(builder, loc, arith::ExtUIOp::create(builder, loc, builder.getI32Type(), one),
                                  arith::ConstantIntOp::create(builder, loc, kMantissa, 32));
  };
  return {reduced(vector::CombiningKind::MINUI, found[0]), reduced(vector::CombiningKind::MAXUI, found[1])};
}

// Whether all of C is +0.0 or a multiple of 2^-126.
Value ContractEmitter::isMultipleC(const Origin &origin, Range m, Range n) {
  constexpr int64_t kFewest = 24; // biased exponent of 2^-103, whose last bit is 2^-126
  auto type = VectorType::get({kLanes}, builder.getI32Type());
  auto all = [&](int32_t value) -> Value { return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, value)); };
  Values found = overRange(m.first, m.second, 1, {all(0)}, [&](Value row, Values found) {
    return overRange(n.first, n.second, kLanes, found, [&](Value column, Values found) {
      Value there = vector::CreateMaskOp::create(builder, loc, VectorType::get({kLanes}, builder.getI1Type()), sub(n.second, column));
      Value values = loadMasked(memC, add(add(origin.c, mul(row, plan.m.c)), column), there);
      Value bits = arith::BitcastOp::create(builder, loc, type, values);
      Value magnitude = arith::AndIOp::create(builder, loc, bits, all(0x7fffffff));
      Value small = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, magnitude, all(int32_t(kFewest << 23)));
      return Values{arith::OrIOp::create(builder, loc, found[0], arith::SelectOp::create(builder, loc, small, bits, all(0)))};
    });
  });
  Value any = vector::ReductionOp::create(builder, loc, vector::CombiningKind::OR, found[0]);
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, any, arith::ConstantIntOp::create(builder, loc, 0, 32));
}

Value ContractEmitter::mayBeInOrder(const Origin &origin, Range m, Range n) {
  auto [smallestA, largestA] = exponents(memA, origin.a, plan.k.a, m.first, m.second);
  auto [smallestB, largestB] = exponents(memB, origin.b, plan.k.b, n.first, n.second);
  auto compare = [&](arith::CmpIPredicate how, Value x, Value y, int64_t bound) -> Value {
    Value sum = arith::AddIOp::create(builder, loc, x, y);
    return arith::CmpIOp::create(builder, loc, how, sum, arith::ConstantIntOp::create(builder, loc, bound, 32));
  };
  // The last bit of a product of 2^(x - bias) and 2^(y - bias) is 2^(x + y - 2 bias - 14); the product is below 2^(x + y - 2 bias + 2).
  Value may = arith::AndIOp::create(builder, loc, compare(arith::CmpIPredicate::uge, smallestA, smallestB, 2 * kBias + 2 * kMantissa - 126),
                                    compare(arith::CmpIPredicate::ule, largestA, largestB, 2 * kBias + 128 - 2));
  if (!plan.accumulate)
    return may;
  Values both = choose(may, {builder.getI1Type()}, [&] { return Values{isMultipleC(origin, m, n)}; }, [&] { return Values{may}; });
  return both[0];
}

// One chain over k, a word of two steps at a time where panels hold words.
ContractEmitter::Values ContractEmitter::chainInOrder(const Tile &tile, KBlock block, Values accumulators) {
  Value steps = plan.hasWords() ? stepsOfRun(block) : block.total;
  return overRange(number(0), steps, 1, accumulators, [&](Value step, Values values) { return multiply(tile, step, values); });
}

} // namespace cinch::kernels
