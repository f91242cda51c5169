// HostOps.h: what the nodes of a loop kernel compute, one value at a time on the host: for tests' references and for the replay
// of a failed step.
#ifndef CINCH_COMPILER_KERNELS_HOSTOPS_H
#define CINCH_COMPILER_KERNELS_HOSTOPS_H

#include "compiler/kernels/ElemFacts.h"
#include "compiler/kernels/HostArith.h"
#include "compiler/kernels/LoopOps.h"

#include <array>
#include <cstring>
#include <limits>

namespace cinch::kernels::host {

// One value of any element type.
struct Cell {
  double f64 = 0;
  float f32 = 0;
  int32_t i32 = 0; // and bool
};

// Calls `f` with the field that holds values of a type.
template <class F> auto withField(Elem elem, F f) {
  switch (factsOf(elem).held) {
  case ElemFacts::F32: return f(&Cell::f32);
  case ElemFacts::F64: return f(&Cell::f64);
  case ElemFacts::I32: return f(&Cell::i32);
  }
  __builtin_trap();
}
inline double numberOf(const Cell &x, Elem elem) {
  return withField(elem, [&](auto field) { return double(x.*field); });
}

inline std::array<uint32_t, 4> hostPhilox(std::array<uint32_t, 4> c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xD2511F53) * c[0], p1 = uint64_t(0xCD9E8D57) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// As emitRounded (MathEmit.h) does.
inline float roundedToBF16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
  bits &= 0xffff0000;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline Cell make(Elem elem, double x) {
  Cell cell;
  cell.f64 = x;
  cell.f32 = float(x);
  cell.i32 = factsOf(elem).real ? 0 : int32_t(x);
  return cell;
}

template <int count, class T, class Formula> T onOperands(T x, T y, Formula formula) {
  if constexpr (count == 1)
    return formula(x);
  else
    return formula(x, y);
}
template <class T> T floatOp(LoopOp op, T x, T y, T z) {
  HostArith<T> a;
  switch (op) {
#define FORMULA(KIND, FUNCTION, OPERANDS, WEIGHT)                                                                      \
  case LoopOp::KIND: return onOperands<OPERANDS>(x, y, [&](auto... v) { return formulas::FUNCTION(a, v...); });
#include "dialects/ops/Ops.inc"
  case LoopOp::Fma: return std::fma(x, y, z);
  default: return 0;
  }
}

template <class T> bool compare(LoopOp op, T x, T y) {
  switch (op) {
  case LoopOp::CompareEQ: return x == y;
  case LoopOp::CompareNE: return x != y;
  case LoopOp::CompareLT: return x < y;
  case LoopOp::CompareLE: return x <= y;
  case LoopOp::CompareGT: return x > y;
  default: return x >= y;
  }
}

inline int32_t intOp(LoopOp op, Elem elem, uint32_t x, uint32_t y, uint32_t z) {
  int32_t sx = int32_t(x), sy = int32_t(y);
  switch (op) {
  case LoopOp::Neg: return int32_t(0 - x);
  case LoopOp::Abs: return sx < 0 ? int32_t(0 - x) : sx;
  case LoopOp::Add: return int32_t(x + y);
  case LoopOp::Sub: return int32_t(x - y);
  case LoopOp::Mul: return int32_t(x * y);
  case LoopOp::Fma: return int32_t(x * y + z);
  case LoopOp::Max: return sx > sy ? sx : sy;
  case LoopOp::Min: return sx < sy ? sx : sy;
  default: return sx;
  }
}

inline Cell cast(Elem from, Elem to, Cell x) {
  if (from == Elem::BF16)
    from = Elem::F32;
  if (to == Elem::BF16) {
    x = cast(from, Elem::F32, x);
    x.f32 = roundedToBF16(x.f32);
    x.f64 = x.f32;
    return x;
  }
  if (from == to)
    return x;
  double v = numberOf(x, from);
  Cell r;
  r.f64 = v;
  r.f32 = float(v);
  if (to == Elem::Bool) {
    r.i32 = v != 0;
  } else if (to == Elem::I32) {
    double greatest = from == Elem::F32 ? 2147483520.0 : 2147483647.0;
    r.i32 = v != v              ? 0
            : v > greatest      ? int32_t(greatest)
            : v < -2147483648.0 ? std::numeric_limits<int32_t>::min()
                                : int32_t(v);
  }
  return r;
}

inline Cell apply(LoopOp op, Elem from, Elem elem, Cell x, Cell y, Cell z) {
  if (from == Elem::BF16)
    from = Elem::F32;
  Cell r;
  if (op >= LoopOp::CompareEQ && op <= LoopOp::CompareGE) {
    r.i32 = withField(from, [&](auto field) { return compare(op, x.*field, y.*field); });
  } else if (op == LoopOp::Not) {
    r.i32 = !x.i32;
  } else if (op == LoopOp::And) {
    r.i32 = x.i32 & y.i32;
  } else if (op == LoopOp::Or) {
    r.i32 = x.i32 | y.i32;
  } else if (op == LoopOp::Select) {
    r = x.i32 ? y : z;
  } else if (op == LoopOp::Cast) {
    r = cast(from, elem, x);
  } else if (elem == Elem::F32) {
    r.f32 = floatOp(op, x.f32, y.f32, z.f32);
  } else if (elem == Elem::F64) {
    r.f64 = floatOp(op, x.f64, y.f64, z.f64);
  } else {
    r.i32 = intOp(op, elem, uint32_t(x.i32), uint32_t(y.i32), uint32_t(z.i32));
  }
  return r;
}

inline LoopOp reducer(LoopReduce reduce) {
  switch (reduce) {
  case LoopReduce::Sum: return LoopOp::Add;
  case LoopReduce::Prod: return LoopOp::Mul;
  case LoopReduce::Max: return LoopOp::Max;
  case LoopReduce::Min: return LoopOp::Min;
  case LoopReduce::Any: return LoopOp::Or;
  case LoopReduce::All: return LoopOp::And;
  }
  return LoopOp::Add;
}

inline Cell neutral(LoopReduce reduce, Elem elem) {
  double inf = std::numeric_limits<double>::infinity();
  bool isFloat = factsOf(elem).real;
  Cell cell;
  switch (reduce) {
  case LoopReduce::Sum: return make(elem, isFloat ? -0.0 : 0);
  case LoopReduce::Prod: case LoopReduce::All: return make(elem, 1);
  case LoopReduce::Any: return make(elem, 0);
  case LoopReduce::Max:
    if (isFloat)
      cell.f32 = -inf, cell.f64 = -inf;
    else
      cell.i32 = elem == Elem::Bool ? 0 : std::numeric_limits<int32_t>::min();
    return cell;
  case LoopReduce::Min:
    if (isFloat)
      cell.f32 = inf, cell.f64 = inf;
    else
      cell.i32 = elem == Elem::Bool ? 1 : std::numeric_limits<int32_t>::max();
    return cell;
  }
  return cell;
}

// A draw: `word` is its key, `element` its number inside example `example`.
inline Cell draw(LoopOp op, double number, uint64_t word, const int64_t *context, uint64_t example, int64_t element) {
  auto key =
      hostPhilox({uint32_t(word), uint32_t(word >> 32), uint32_t(context[kStep]), uint32_t(context[kStep] >> 32)},
                 uint32_t(context[kSeed]), uint32_t(context[kSeed] >> 32));
  bool bits16 = op == LoopOp::RandomBool;
  uint64_t group = bits16 ? 64 : 32;
  uint64_t block = element / group * 8 + element % 8, j = element % group / 8;
  auto w = hostPhilox({uint32_t(block), uint32_t(block >> 32), uint32_t(example), uint32_t(example >> 32)}, key[0],
                      key[1]);
  Cell r;
  if (bits16) {
    uint32_t bits = (j % 2 ? w[j / 2] >> 16 : w[j / 2]) & 0xffff;
    r.i32 = int64_t(bits) < int64_t(number * 65536 + 0.5);
  } else if (op == LoopOp::RandomUniform) {
    r.f64 = (w[j] >> 8) / 16777216.0;
    r.f32 = float(r.f64);
  } else if (op == LoopOp::RandomInt) {
    r.i32 = int32_t(uint64_t(w[j]) * uint32_t(number) >> 32);
  } else {
    double u1 = ((w[j & 2] >> 8) + 1) / 16777216.0, u2 = (w[(j & 2) | 1] >> 8) / 16777216.0;
    HostArith<float> a;
    HostArith<double> d;
    auto single = formulas::boxMuller(a, float(u1), float(u2));
    auto twice = formulas::boxMuller(d, u1, u2);
    r.f32 = j % 2 ? single.second : single.first;
    r.f64 = j % 2 ? twice.second : twice.first;
  }
  return r;
}

} // namespace cinch::kernels::host
#endif
