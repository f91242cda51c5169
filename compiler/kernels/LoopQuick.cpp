// LoopQuick.cpp: how a GPU computes quickly what is the same on every ordinary number, and once more, the usual way, where some number is not.
//
// Quotients of one divisor: a deviation by the one of its row, a share by its sum. A GPU has no instruction for a quotient, and what stands for
// one looks at every dividend. Here the reciprocal r = RN(1 / d) is found once a row, and a quotient is
//
//     q0 = x r;  q1 = q0 - (d q0 - x) r;  q = q1 - (d q1 - x) r        each line but the first two FMAs
//
// q1 is within one unit in the last place of x / d, and d q1 - x is exact, so that q is x / d correctly rounded (Markstein, 1990: r is, too), as
// the instructions of a CPU give it, unless something overflows or is subnormal on the way. Where d is between 2^-26 and 2^26 and the size of x
// between 2^-98 and 2^98, nothing is. A zero keeps its sign: d q0 - x is +0.0 then. All other dividends are divided the usual way.
//
// Powers: where the exponent is at most 67 in size, exp cuts nothing off, and its factor 2^k is added to the exponent bits (expWithin). What it
// gives is a dividend of ordinary size, too.
//
// What may be approximated (LoopNode::approximate) needs none of this.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/MathFormulas.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

constexpr double kLeastDivisor = 0x1p-26, kGreatestDivisor = 0x1p26, kLeast = 0x1p-98, kGreatest = 0x1p98;

static Value compare(OpBuilder &b, Location loc, arith::CmpFPredicate predicate, Value x, double number) {
  return arith::CmpFOp::create(b, loc, predicate, x, emitNumber(b, loc, x.getType(), number));
}

bool LoopEmitter::isQuickPower(int node) const {
  const LoopNode &n = spec.nodes[node];
  return n.op == LoopOp::Exp && n.elem == Elem::F32 && !n.approximate;
}

// A power of two needs no quotient: the code generator multiplies.
void LoopEmitter::prepareQuick(Preheader &pre) {
  pre.isQuick.assign(spec.nodes.size(), false);
  pre.divisors.assign(spec.nodes.size(), Value());
  pre.reciprocals.assign(spec.nodes.size(), Value());
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!pre.nodes[n] || isKept(int(n)))
      continue;
    pre.isQuick[n] = isQuickPower(int(n));
    if (node.op != LoopOp::Div || node.elem != Elem::F32 || node.approximate || plan.variesCol[node.args[1]])
      continue;
    const LoopNode &by = spec.nodes[node.args[1]];
    if (by.op == LoopOp::Const && by.numberWord < 0)
      continue;
    Value divisor = scalars[node.args[1]], one = emitNumber(b, loc, divisor.getType(), 1);
    pre.isQuick[n] = true;
    pre.divisors[n] = divisor;
    pre.reciprocals[n] = arith::NegFOp::create(b, loc, arith::DivFOp::create(b, loc, one, divisor));
    Value plain = arith::AndIOp::create(b, loc, compare(b, loc, arith::CmpFPredicate::OGE, divisor, kLeastDivisor),
                                        compare(b, loc, arith::CmpFPredicate::OLE, divisor, kGreatestDivisor));
    pre.areDivisorsPlain = pre.areDivisorsPlain ? Value(arith::AndIOp::create(b, loc, pre.areDivisorsPlain, plain)) : plain;
  }
}

bool LoopEmitter::hasQuick(const Preheader &pre) const { return llvm::is_contained(pre.isQuick, true); }

// Some number is not ordinary: all are computed the usual way.
void LoopEmitter::lookAtUsual(Value unusual) { *beyondQuick = arith::OrIOp::create(b, loc, *beyondQuick, unusual); }

Value LoopEmitter::quickValue(int node, ArrayRef<Value> args, const Preheader &pre) {
  return isQuickPower(node) ? power(args[0]) : quotient(node, args[0], pre);
}

Value LoopEmitter::power(Value x) {
  lookAtUsual(compare(b, loc, arith::CmpFPredicate::UGT, math::AbsFOp::create(b, loc, x), formulas::kWithin));
  return emitExpWithin(b, loc, x);
}

Value LoopEmitter::quotient(int node, Value x, const Preheader &pre) {
  Value d = pre.divisors[node], r = pre.reciprocals[node], minus = arith::NegFOp::create(b, loc, x);
  Value q = arith::MulFOp::create(b, loc, x, arith::NegFOp::create(b, loc, r));
  for (int step = 0; step < 2; ++step)
    q = math::FmaOp::create(b, loc, math::FmaOp::create(b, loc, d, q, minus), r, q);
  const int dividend = spec.nodes[node].args[0];
  if (pre.isQuick[dividend] && isQuickPower(dividend))
    return q;
  Value size = math::AbsFOp::create(b, loc, x);
  Value small = arith::AndIOp::create(b, loc, compare(b, loc, arith::CmpFPredicate::OLT, size, kLeast),
                                      compare(b, loc, arith::CmpFPredicate::UNE, x, 0));
  lookAtUsual(arith::OrIOp::create(b, loc, small, compare(b, loc, arith::CmpFPredicate::UGT, size, kGreatest)));
  return q;
}

// Evaluates columns of one thread, quickly, and, where some value cannot be found so, once more. `turnTo` says whose turn it is.
void LoopEmitter::evaluateTogether(MutableArrayRef<Lanes> columns, const Preheader &pre, llvm::function_ref<void(size_t)> turnTo) {
  auto evaluate = [&] {
    for (size_t i = 0; i < columns.size(); ++i) {
      turnTo(i);
      evaluateVectors(columns[i], pre);
    }
  };
  if (!hasQuick(pre))
    return evaluate();
  std::vector<bool> follows(spec.nodes.size()); // what quick values are needed for
  for (size_t n = 0; n < follows.size(); ++n)
    follows[n] = pre.nodes[n] && (pre.isQuick[n] || std::any_of(spec.nodes[n].args.begin(), spec.nodes[n].args.end(),
                                                                     [&](int arg) { return follows[arg]; }));
  Value yes = emitInteger(b, loc, b.getI1Type(), 1);
  Value beyond = arith::XOrIOp::create(b, loc, pre.areDivisorsPlain ? pre.areDivisorsPlain : yes, yes);
  beyondQuick = &beyond;
  evaluate();
  beyondQuick = nullptr;
  auto those = [&] {
    Values values;
    for (const Lanes &lanes : columns)
      for (size_t n = 0; n < follows.size(); ++n)
        if (follows[n])
          values.push_back(lanes.values[n]);
    return values;
  };
  Values quick = those();
  auto branch = scf::IfOp::create(
      b, loc, beyond,
      [&](OpBuilder &, Location) {
        for (Lanes &lanes : columns)
          for (size_t n = 0; n < follows.size(); ++n)
            if (follows[n])
              lanes.values[n] = Value();
        evaluate();
        scf::YieldOp::create(b, loc, those());
      },
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, quick); });
  size_t next = 0;
  for (Lanes &lanes : columns)
    for (size_t n = 0; n < follows.size(); ++n)
      if (follows[n])
        lanes.values[n] = branch.getResult(unsigned(next++));
}

} // namespace cinch::kernels
