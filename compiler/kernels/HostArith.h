// HostArith.h: the arithmetic of MathFormulas.h on the host: the same IEEE operations, one at a time, for tests and for the
// replay of a failed step. Every operation below rounds once: where the target has FMA, compile with -ffp-contract=off.
#ifndef CINCH_COMPILER_KERNELS_HOSTARITH_H
#define CINCH_COMPILER_KERNELS_HOSTARITH_H

#include "compiler/kernels/MathFormulas.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cinch::kernels {

template <class To, class From> To bitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class Float> struct HostArith {
  using V = Float;
  using N = std::conditional_t<sizeof(Float) == 8, int64_t, int32_t>;
  using U = std::make_unsigned_t<N>;
  using M = bool;

  bool isF64() const { return sizeof(Float) == 8; }
  V c(double number) { return V(number); }
  N ic(int64_t number) { return N(number); }
  V add(V x, V y) { return x + y; }
  V sub(V x, V y) { return x - y; }
  V mul(V x, V y) { return x * y; }
  V div(V x, V y) { return x / y; }
  V fma(V x, V y, V z) { return std::fma(x, y, z); }
  V neg(V x) { return -x; }
  V abs(V x) { return std::fabs(x); }
  V sqrt(V x) { return std::sqrt(x); }
  V floor(V x) { return std::floor(x); }
  // A GPU's may be some units in the last place away from these (MathFormulas.h, `approximate`).
  V exp2(V x) { return flushed(std::exp2(flushed(x))); }
  V reciprocal(V x) { return flushed(1 / flushed(x)); }
  static V flushed(V x) { return std::fabs(x) < std::numeric_limits<V>::min() ? std::copysign(V(0), x) : x; }
  V max(V x, V y) {
    if (x != x || y != y)
      return x + y;
    return x == y ? (std::signbit(x) ? y : x) : x > y ? x : y;
  }
  V min(V x, V y) {
    if (x != x || y != y)
      return x + y;
    return x == y ? (std::signbit(x) ? x : y) : x < y ? x : y;
  }
  M lt(V x, V y) { return x < y; }
  M gt(V x, V y) { return x > y; }
  M eq(V x, V y) { return x == y; }
  M ne(V x, V y) { return x != y; }
  M band(M x, M y) { return x && y; }
  V select(M m, V x, V y) { return m ? x : y; }
  N bits(V x) { return bitsAs<N>(x); }
  V fromBits(N n) { return bitsAs<V>(n); }
  V toFloat(N n) { return V(n); }
  N iadd(N x, N y) { return N(U(x) + U(y)); }
  N isub(N x, N y) { return N(U(x) - U(y)); }
  N iand(N x, N y) { return x & y; }
  N ior(N x, N y) { return x | y; }
  N ixor(N x, N y) { return x ^ y; }
  N imul(N x, N y) { return N(U(x) * U(y)); }
  N iselect(M m, N x, N y) { return m ? x : y; }
  N shr(N x, int n) { return N(U(x) >> n); }
  N shrBy(N x, N n) { return N(U(x) >> n); }
  N shlBy(N x, N n) { return N(U(x) << n); }
  N shl(N x, int n) { return N(U(x) << n); }
  N sar(N x, int n) { return x >> n; }
  M ieq(N x, N y) { return x == y; }
  M ilt(N x, N y) { return x < y; }

  HostArith<double> wide() { return {}; }
  double widen(V x) { return x; }
  V narrow(double x) { return V(x); }
};

} // namespace cinch::kernels
#endif
