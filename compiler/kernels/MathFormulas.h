// MathFormulas.h: the elementary functions, each written once over an abstract arithmetic. An op with a formula (NN_Formula in
// dialects/nn/NNOps.td) has the function of its name.
//
// Two arithmetics exist: EmitArith (MathEmit.h) turns a formula into arith and math operations of any vector length,
// and HostArith (HostArith.h) evaluates it on the host. Both perform the very same IEEE operations, so a kernel and its
// reference agree bit for bit, on every CPU and for every vector width.
//
// Method: exp and expm1 reduce by n ln 2 (Cody and Waite, exact through FMA) and use a polynomial; log splits off the
// exponent (f32: polynomial in m - 1; f64: series of atanh); sin and cos use odd and even polynomials, tanh and erf
// rational functions in f32. The polynomials are Chebyshev fits computed with 120 digits, listed from the highest power
// to the lowest. In f32, exp, log and the like are within 2 units in the last place (pow, sin and cos, which work in
// f64 inside, within 0.51), tanh and erf within 5.5; f64 is within 4, pow within 12. test/unit/kernel_math.cpp holds
// the bounds. Special values are right: NaN in gives NaN out, infinities, signed zeros, subnormals and overflow.
//
// An arithmetic B has types V (float), N (integer of the same width), M (mask), the operations used below, and wide()
// and narrow(): the f64 arithmetic of the same shape. Those of `approximate` use exp2 and reciprocal besides, which f32 on a GPU has.
#ifndef CINCH_COMPILER_KERNELS_MATHFORMULAS_H
#define CINCH_COMPILER_KERNELS_MATHFORMULAS_H

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace cinch::kernels::formulas {

template <class B> using V = typename B::V;
template <class B> using N = typename B::N;
template <class B> using M = typename B::M;

// What is one operation.
template <class B> V<B> neg(B &b, V<B> x) { return b.neg(x); }
template <class B> V<B> abs(B &b, V<B> x) { return b.abs(x); }
template <class B> V<B> sqrt(B &b, V<B> x) { return b.sqrt(x); }
template <class B> V<B> floor(B &b, V<B> x) { return b.floor(x); }
template <class B> V<B> add(B &b, V<B> x, V<B> y) { return b.add(x, y); }
template <class B> V<B> sub(B &b, V<B> x, V<B> y) { return b.sub(x, y); }
template <class B> V<B> mul(B &b, V<B> x, V<B> y) { return b.mul(x, y); }
template <class B> V<B> div(B &b, V<B> x, V<B> y) { return b.div(x, y); }
template <class B> V<B> max(B &b, V<B> x, V<B> y) { return b.max(x, y); }
template <class B> V<B> min(B &b, V<B> x, V<B> y) { return b.min(x, y); }

// Horner, highest power first.
template <class B> V<B> polynomial(B &b, V<B> x, std::initializer_list<double> coefficients) {
  auto it = coefficients.begin();
  V<B> sum = b.c(*it);
  for (++it; it != coefficients.end(); ++it)
    sum = b.fma(sum, x, b.c(*it));
  return sum;
}

// What differs between the two formats.
struct Format {
  int fraction, bias;
  double roundMagic; // 1.5 * 2^fraction: adding it rounds to the nearest integer, which then lies in the low bits
  int64_t roundMagicBits;
  double ln2Hi, ln2Lo;
  double expMin, expMax, expm1Min;
};
inline const Format &formatOf(bool f64) {
  static const Format single = {
      23, 127, 12582912.0, 0x4b400000, 0.693147182464599609375, -1.904654299957767878541823e-9, -104, 89, -20};
  static const Format twice = {
      52, 1023, 6755399441055744.0, 0x4338000000000000, 0.6931471805599453, 2.319046813846299558e-17, -746, 710, -50};
  return f64 ? twice : single;
}

template <class B> V<B> powerOfTwo(B &b, N<B> k) {
  const Format &f = formatOf(b.isF64());
  return b.fromBits(b.shl(b.iadd(k, b.ic(f.bias)), f.fraction));
}

// x = k ln 2 + r with |r| <= ln 2 / 2; `rounded` holds k in its low bits, under roundMagic.
template <class B> struct ExpRange {
  V<B> r;
  N<B> rounded;
};
// `low`: a small part of the argument beyond x, if given.
template <class B> ExpRange<B> splitExp(B &b, V<B> x, const V<B> *low) {
  const Format &f = formatOf(b.isF64());
  V<B> t = b.fma(x, b.c(1.4426950408889634074), b.c(f.roundMagic));
  V<B> n = b.sub(t, b.c(f.roundMagic));
  V<B> r = b.fma(n, b.c(-f.ln2Hi), x);
  r = b.fma(n, b.c(-f.ln2Lo), r);
  return {low ? b.add(r, *low) : r, b.bits(t)};
}
template <class B> ExpRange<B> reduceExp(B &b, V<B> x, double least, double greatest, const V<B> *low) {
  x = b.select(b.gt(x, b.c(greatest)), b.c(greatest), x);
  x = b.select(b.lt(x, b.c(least)), b.c(least), x);
  return splitExp(b, x, low);
}
// q of exp(r) = 1 + r + r^2 q.
template <class B> V<B> expPolynomial(B &b, V<B> r) {
  return b.isF64() ? polynomial(b, r, {2.0914717341716375952e-9, 2.5105259538448493419e-8, 2.7557273570102139673e-7,
                                       2.7557255297969644392e-6, 0.000024801587325605322782, 0.00019841269874901259234,
                                       0.0013888888888883731828, 0.0083333333333261120526, 0.041666666666666669767,
                                       0.16666666666666671008, 0.5})
                   : polynomial(b, r, {0.0013926213466332443037, 0.0083632029715758549465, 0.041666554437685938899,
                                       0.16666576845993976311, 0.5});
}

template <class B> V<B> expOfRest(B &b, V<B> r) { return b.fma(b.fma(expPolynomial(b, r), r, b.c(1)), r, b.c(1)); }

template <class B> V<B> expOfParts(B &b, V<B> x, const V<B> *low) {
  const Format &f = formatOf(b.isF64());
  ExpRange<B> e = reduceExp(b, x, f.expMin, f.expMax, low);
  V<B> y = expOfRest(b, e.r);
  // 2^k as two factors, so that it neither overflows nor rounds subnormal results twice. The shift leaves nothing of
  // roundMagic.
  N<B> one = b.ic(int64_t(f.bias) << f.fraction);
  N<B> k = b.shl(e.rounded, f.fraction);
  N<B> half = b.iand(b.sar(k, 1), b.ic(-(int64_t(1) << f.fraction)));
  y = b.mul(y, b.fromBits(b.iadd(half, one)));
  return b.mul(y, b.fromBits(b.iadd(b.isub(k, half), one)));
}
template <class B> V<B> exp(B &b, V<B> x) { return expOfParts<B>(b, x, nullptr); }

// The same, bit for bit, of an x of at most this size: between 2^-97 and 2^97, so that 2^k is added to the exponent bits.
constexpr double kWithin = 67;
template <class B> V<B> expWithin(B &b, V<B> x) {
  ExpRange<B> e = splitExp<B>(b, x, nullptr);
  return b.fromBits(b.iadd(b.bits(expOfRest(b, e.r)), b.shl(e.rounded, formatOf(b.isF64()).fraction)));
}

// 2^k (1 + q) - 1 with q = exp(r) - 1.
template <class B> V<B> expm1(B &b, V<B> x) {
  const Format &f = formatOf(b.isF64());
  ExpRange<B> e = reduceExp<B>(b, x, f.expm1Min, f.expMax, nullptr);
  V<B> q = b.fma(b.mul(e.r, e.r), expPolynomial(b, e.r), e.r);
  N<B> k = b.isub(e.rounded, b.ic(f.roundMagicBits));
  V<B> s = powerOfTwo(b, b.isub(k, b.ic(1)));
  V<B> y = b.fma(q, s, b.sub(s, b.c(0.5)));
  y = b.select(b.ieq(k, b.ic(0)), q, b.add(y, y));
  return b.select(b.eq(x, b.c(0)), x, y);
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
template <class B> struct Split {
  V<B> e, f;
};
template <class B> Split<B> splitExponent(B &b, V<B> x) {
  bool wide = b.isF64();
  const Format &format = formatOf(wide);
  M<B> subnormal = b.lt(x, b.c(wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min()));
  double scale = wide ? 4503599627370496.0 : 8388608.0;
  N<B> ix = b.bits(b.select(subnormal, b.mul(x, b.c(scale)), x));
  N<B> e = b.sar(b.isub(ix, b.ic(wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3)), format.fraction);
  V<B> m = b.fromBits(b.isub(ix, b.shl(e, format.fraction)));
  V<B> ef = b.toFloat(e);
  return {b.select(subnormal, b.sub(ef, b.c(format.fraction)), ef), b.sub(m, b.c(1))};
}
template <class B> V<B> fixLog(B &b, V<B> x, V<B> y) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  y = b.select(b.lt(x, b.c(inf)), y, x);
  y = b.select(b.lt(x, b.c(0)), b.c(std::numeric_limits<double>::quiet_NaN()), y);
  return b.select(b.eq(x, b.c(0)), b.c(-inf), y);
}

// R(s^2) of log((1 + s) / (1 - s)) = 2 s + s^3 R(s^2), in f64.
template <class B> V<B> atanhSeries(B &b, V<B> z) {
  return polynomial(b, z,
                    {0.1308803485092755383, 0.13268638369266823879, 0.15386244737621666606, 0.18181795547521136235,
                     0.22222222392581045097, 0.28571428570799785031, 0.40000000000000883236, 0.66666666666666666463});
}

template <class B> V<B> log(B &b, V<B> x) {
  Split<B> p = splitExponent(b, x);
  V<B> f = p.f, y;
  if (b.isF64()) {
    V<B> s = b.div(f, b.add(f, b.c(2)));
    V<B> z = b.mul(s, s);
    y = b.mul(b.mul(s, z), atanhSeries(b, z));
    y = b.fma(p.e, b.c(2.319046813846299558e-17), y);
    y = b.add(b.add(s, s), y);
    y = b.fma(p.e, b.c(0.6931471805599453), y);
  } else {
    V<B> z = b.mul(f, f);
    y = polynomial(b, f,
                   {0.069716114714511778317, -0.11479733846637635556, 0.11685419923486739308, -0.12425687331451106113,
                    0.14249057645697480404, -0.16667802319501254074, 0.20000715748892101743, -0.24999996957950882045,
                    0.33333331180030048052});
    y = b.mul(b.mul(f, z), y);
    y = b.fma(p.e, b.c(-2.12194440e-4), y);
    y = b.fma(z, b.c(-0.5), y);
    y = b.fma(p.e, b.c(0.693359375), b.add(f, y));
  }
  return fixLog(b, x, y);
}

// log(1 + x): the rounding error c of u = 1 + x is added back as c / u.
template <class B> V<B> log1p(B &b, V<B> x) {
  V<B> u = b.add(x, b.c(1));
  V<B> c = b.sub(x, b.sub(u, b.c(1)));
  V<B> l = log(b, u);
  M<B> regular = b.band(b.gt(u, b.c(0)), b.lt(u, b.c(std::numeric_limits<double>::infinity())));
  V<B> y = b.select(regular, b.add(l, b.div(c, u)), l);
  return b.select(b.eq(x, b.c(0)), x, y);
}

template <class B> V<B> copySign(B &b, V<B> magnitude, V<B> sign) {
  N<B> mask = b.ic(b.isF64() ? std::numeric_limits<int64_t>::min() : int64_t(std::numeric_limits<int32_t>::min()));
  return b.fromBits(b.ior(b.bits(magnitude), b.iand(b.bits(sign), mask)));
}

template <class B> V<B> clamp(B &b, V<B> x, double bound) {
  x = b.select(b.gt(x, b.c(bound)), b.c(bound), x);
  return b.select(b.lt(x, b.c(-bound)), b.c(-bound), x);
}

// log(a + sqrt(a^2 + 1)) with a = |x|, as log1p of what is exact near 0. Beyond 2^60, where a^2 may overflow, log(2 a).
template <class B> V<B> asinh(B &b, V<B> x) {
  V<B> a = b.abs(x), root = b.sqrt(b.fma(a, a, b.c(1)));
  M<B> large = b.gt(a, b.c(1152921504606846976.0));
  V<B> u = b.add(a, b.div(b.mul(a, a), b.add(root, b.c(1))));
  V<B> y = b.add(log1p(b, b.select(large, a, u)), b.select(large, b.c(0.69314718055994530942), b.c(0)));
  return copySign(b, y, x);
}

template <class B> V<B> tanh(B &b, V<B> x) {
  if (b.isF64()) {
    V<B> a = b.abs(x);
    V<B> e = expm1(b, b.select(b.gt(a, b.c(22)), b.c(44), b.add(a, a)));
    return copySign(b, b.div(e, b.add(e, b.c(2))), x);
  }
  // x P(x^2) / Q(x^2), fitted for the least relative error up to where tanh rounds to 1.
  x = clamp(b, x, 9.02);
  V<B> z = b.mul(x, x);
  V<B> p = polynomial(b, z,
                      {-1.2202274953032094e-11, 3.058333856348512e-8, 2.8006734937349894e-5, 0.0038682912366533604,
                       0.13679885781414343, 0.99999999868907502});
  V<B> q =
      polynomial(b, z, {1.2873167542900773e-6, 0.00039385671832597521, 0.02724570469034753, 0.47013217840233228, 1});
  return clamp(b, b.div(b.mul(x, p), q), 1);
}

template <class B> V<B> erf(B &b, V<B> x) {
  if (b.isF64()) {
    V<B> a = b.abs(x), z = b.mul(x, x);
    V<B> small = polynomial(b, z, {5.9571761477489114044e-11, -1.137284885679167367e-9, 1.4659775274047435814e-8,
                                   -1.6350312701054695011e-7, 1.6461000484121368033e-6, -0.000014925595266831181565,
                                   0.00012055331111642710923, -0.00085483269808337899052, 0.0052239776248180144673,
                                   -0.026866170645076793248, 0.11283791670954878666, -0.37612638903183748056,
                                   0.12837916709551257377});
    small = b.fma(small, x, x);
    // erfc(t) = exp(-t^2) Q(1 / (1 + t / 2)).
    V<B> t = b.select(b.gt(a, b.c(6)), b.c(6), a);
    V<B> u = b.div(b.c(1), b.fma(t, b.c(0.5), b.c(1)));
    V<B> q =
        polynomial(b, u,
                   {-0.074400212433460438293, 0.55350220232450291463, -1.8535316382081848144, 3.6426059404027527211,
                    -4.5838444066149938391, 3.7993599060288818649, -2.1298439188930315941, 0.92100724152499739815,
                    -0.33773177520906110078, 0.0031605924750990815151, -0.011294696331083887081, 0.08342915067749279831,
                    0.17661452876291866281, 0.24676994208173553472, 0.28210194185256203639, 0.28209433744603643192,
                    1.2731945384119990969e-8});
    V<B> large = b.sub(b.c(1), b.mul(exp(b, b.neg(b.mul(t, t))), q));
    return b.select(b.lt(a, b.c(1)), small, copySign(b, large, x));
  }
  // As tanh.
  x = clamp(b, x, 3.93);
  V<B> z = b.mul(x, x);
  V<B> p = polynomial(b, z,
                      {-1.286276874369633e-8, 4.6209923673764082e-6, 0.00037720229775373782, 0.0038403814760305674,
                       0.05425548581602994, 0.18514725974471103, 1.1283791691821928});
  V<B> q = polynomial(b, z, {6.2509728936606141e-5, 0.0013024743641077907, 0.015435136230072097, 0.11388748365933374,
                             0.49741589420715051, 1});
  return clamp(b, b.div(b.mul(x, p), q), 1);
}

// 1 / (1 + e) or, for negative x, e / (1 + e), with e = exp(-|x|).
template <class B> V<B> sigmoid(B &b, V<B> x) {
  V<B> e = exp(b, b.neg(b.abs(x)));
  return b.div(b.select(b.lt(x, b.c(0)), e, b.c(1)), b.add(e, b.c(1)));
}

template <class B> V<B> softplus(B &b, V<B> x) {
  return b.add(b.max(x, b.c(0)), log1p(b, exp(b, b.neg(b.abs(x)))));
}

// sin (shift 0) and cos (shift 1) of r + (k + shift) pi / 2 with |r| <= pi / 4.
template <class B> V<B> sinOfQuadrant(B &b, V<B> r, N<B> k, int shift) {
  V<B> z = b.mul(r, r);
  V<B> s = b.isF64()
               ? polynomial(b, z,
                            {-7.5860947896726200736e-13, 1.6058521349954986332e-10, -2.5052106167335706388e-8,
                             2.7557319219150781578e-6, -0.00019841269841264821617, 0.0083333333333333313789,
                             -0.16666666666666666665})
               : polynomial(b, z, {-0.00019585373206693020924, 0.0083327365591771302457, -0.16666664601754114324});
  V<B> c = b.isF64()
               ? polynomial(b, z,
                            {4.7455370173192583661e-14, -1.1470455178216906579e-11, 2.0876755754879596407e-9,
                             -2.7557319221298086973e-7, 0.000024801587301584511144, -0.0013888888888888887802,
                             0.041666666666666666666})
               : polynomial(b, z, {0.000024545419078353295322, -0.0013888291300556933241, 0.041666664598827980124});
  s = b.fma(b.mul(r, z), s, r);
  c = b.fma(b.mul(z, z), c, b.fma(z, b.c(-0.5), b.c(1)));
  k = b.iadd(k, b.ic(shift));
  V<B> y = b.select(b.ieq(b.iand(k, b.ic(1)), b.ic(0)), s, c);
  return b.select(b.ieq(b.iand(k, b.ic(2)), b.ic(0)), y, b.neg(y));
}
// x = k pi / 2 + r for f32 values of 2^40 and more, in f64 (Payne and Hanek 1983): x = m 2^e with 24-bit m, and of 2 /
// pi only the bits from weight 2 / 2^e on matter, as those above give multiples of 4 quadrants.
template <class B> struct Quadrant {
  V<B> r;
  N<B> k;
};
template <class B> Quadrant<B> reduceLarge(B &b, V<B> x) {
  auto word = [&](uint64_t bits) { return b.ic(int64_t(bits)); };
  N<B> bits = b.bits(x);
  N<B> m = b.ior(b.iand(b.sar(bits, 29), b.ic(0x7fffff)), b.ic(0x800000));
  N<B> start = b.isub(b.iand(b.sar(bits, 52), b.ic(0x7ff)), b.ic(1023 + 23 + 2));
  M<B> second = b.ieq(b.iand(start, b.ic(64)), b.ic(64));
  N<B> w0 = word(0xA2F9836E4E441529), w1 = word(0xFC2757D1F534DDC0), w2 = word(0xDB6295993C439041),
       w3 = word(0xFE5163ABDEBBC561);
  N<B> a0 = b.iselect(second, w1, w0), a1 = b.iselect(second, w2, w1), a2 = b.iselect(second, w3, w2);
  N<B> shift = b.iand(start, b.ic(63)), back = b.isub(b.ic(63), shift);
  N<B> high = b.ior(b.shlBy(a0, shift), b.shrBy(b.shr(a1, 1), back));
  N<B> low = b.ior(b.shlBy(a1, shift), b.shrBy(b.shr(a2, 1), back));
  // Quadrants with 62 bits of fraction.
  N<B> p = b.iadd(b.imul(m, high), b.shr(b.imul(m, b.shr(low, 32)), 32));
  N<B> sign = b.sar(bits, 63);
  p = b.isub(b.ixor(p, sign), sign);
  N<B> k = b.shr(b.iadd(p, b.ic(int64_t(1) << 61)), 62);
  return {b.mul(b.toFloat(b.isub(p, b.shl(k, 62))), b.c(1.5707963267948966 / 4611686018427387904.0)), k};
}
// Two parts of pi / 2 reach to 2^47. Beyond: reduceLarge for f32 arguments, NaN for f64.
template <class B> V<B> sinShifted64(B &b, V<B> x, int shift, bool single) {
  const Format &f = formatOf(true);
  V<B> t = b.fma(x, b.c(0.63661977236758134308), b.c(f.roundMagic));
  V<B> n = b.sub(t, b.c(f.roundMagic));
  V<B> r = b.fma(n, b.c(-1.5707963267948966), x);
  r = b.fma(n, b.c(-6.123233995736766e-17), r);
  N<B> k = b.bits(t);
  constexpr double inf = std::numeric_limits<double>::infinity();
  V<B> a = b.abs(x);
  M<B> undefined = b.gt(a, b.c(140737488355328.0));
  if (single) {
    Quadrant<B> q = reduceLarge(b, x);
    M<B> large = b.gt(a, b.c(1099511627776.0));
    r = b.select(large, q.r, r);
    k = b.iselect(large, q.k, k);
    undefined = b.eq(a, b.c(inf));
  }
  V<B> y = sinOfQuadrant(b, b.select(undefined, b.c(std::numeric_limits<double>::quiet_NaN()), r), k, shift);
  return shift == 0 ? b.select(b.eq(x, b.c(0)), x, y) : b.select(b.ne(x, x), x, y);
}
template <class B> V<B> sinShifted(B &b, V<B> x, int shift) {
  if (b.isF64())
    return sinShifted64(b, x, shift, false);
  auto wide = b.wide();
  return b.narrow(sinShifted64(wide, b.widen(x), shift, true));
}
template <class B> V<B> sin(B &b, V<B> x) { return sinShifted(b, x, 0); }
template <class B> V<B> cos(B &b, V<B> x) { return sinShifted(b, x, 1); }

// x^y in f64. The logarithm is carried in two parts, so that exp's argument keeps its absolute accuracy.
template <class B> V<B> pow64(B &b, V<B> x, V<B> y) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  V<B> a = b.abs(x);
  Split<B> p = splitExponent(b, a);
  V<B> f = p.f;
  V<B> d = b.add(f, b.c(2));
  V<B> dLow = b.sub(f, b.sub(d, b.c(2)));
  V<B> s = b.div(f, d);
  V<B> sLow = b.div(b.fma(b.neg(s), dLow, b.fma(b.neg(s), d, f)), d);
  V<B> z = b.mul(s, s);
  V<B> low = b.fma(b.mul(s, z), atanhSeries(b, z), b.add(sLow, sLow));
  // e ln 2: the high part of ln 2 has 32 bits, so that the product is exact.
  V<B> head = b.mul(p.e, b.c(0.693147180369123816490));
  V<B> s2 = b.add(s, s);
  V<B> high = b.add(head, s2);
  V<B> back = b.sub(high, head);
  V<B> lost = b.add(b.sub(head, b.sub(high, back)), b.sub(s2, back));
  low = b.add(b.fma(p.e, b.c(1.90821492927058770002e-10), low), lost);
  V<B> sum = b.add(high, low);
  low = b.sub(low, b.sub(sum, high));
  high = sum;
  V<B> logA = b.select(b.lt(a, b.c(inf)), high, a);
  logA = b.select(b.eq(a, b.c(0)), b.c(-inf), logA);

  V<B> product = b.mul(y, logA);
  V<B> productLow = b.fma(y, low, b.fma(y, high, b.neg(product)));
  productLow = b.select(b.lt(b.abs(product), b.c(1000)), productLow, b.c(0));
  V<B> r = expOfParts(b, product, &productLow);

  M<B> whole = b.eq(b.floor(y), y);
  V<B> halfY = b.mul(y, b.c(0.5));
  M<B> odd = b.band(whole, b.ne(b.floor(halfY), halfY));
  M<B> signBit = b.ilt(b.bits(x), b.ic(0));
  r = b.select(b.band(odd, signBit), b.neg(r), r);
  M<B> negative = b.band(b.lt(x, b.c(0)), b.gt(x, b.c(-inf)));
  V<B> fractional = b.select(whole, r, b.c(std::numeric_limits<double>::quiet_NaN()));
  r = b.select(negative, fractional, r);
  r = b.select(b.band(b.eq(a, b.c(1)), b.eq(b.abs(y), b.c(inf))), b.c(1), r);
  r = b.select(b.eq(x, b.c(1)), b.c(1), r);
  return b.select(b.eq(y, b.c(0)), b.c(1), r);
}
template <class B> V<B> pow(B &b, V<B> x, V<B> y) {
  if (b.isF64())
    return pow64(b, x, y);
  auto wide = b.wide();
  return b.narrow(pow64(wide, b.widen(x), b.widen(y)));
}

// Two independent normal numbers from two uniform ones: u1 in (0, 1], u2 in [0, 1), multiples of 2^-24.
template <class B> struct NormalPair {
  V<B> first, second;
};
template <class B> NormalPair<B> boxMuller(B &b, V<B> u1, V<B> u2) {
  const Format &f = formatOf(b.isF64());
  V<B> radius = b.sqrt(b.mul(log(b, u1), b.c(-2)));
  V<B> quarters = b.mul(u2, b.c(4));
  V<B> t = b.add(quarters, b.c(f.roundMagic));
  V<B> r = b.mul(b.sub(quarters, b.sub(t, b.c(f.roundMagic))), b.c(1.5707963267948966));
  return {b.mul(radius, sinOfQuadrant(b, r, b.bits(t), 1)), b.mul(radius, sinOfQuadrant(b, r, b.bits(t), 0))};
}

// In f32, from a GPU's powers of two (within 2 units in the last place) and reciprocals (within 1), which take subnormal numbers for zeros. exp and
// sigmoid are within 2^-16 of a value that is a normal number, and within 2^-19 where the size of x is at most 16: the product x log2 e is rounded.
// tanh is within 2^-19, a quotient within 2^-21. A quotient by more than 2^126 is 0.
namespace approximate {
constexpr double kLog2E = 1.4426950408889634074;

template <class B> V<B> exp(B &b, V<B> x) { return b.exp2(b.mul(x, b.c(kLog2E))); }
// The instruction takes subnormal divisors for zeros, and makes zeros of the reciprocals of those beyond 2^126, which are subnormal (PTX ISA,
// rcp.approx.ftz.f32). Such divisors are scaled before, and the quotient is behind it; of others no bit changes.
template <class B> V<B> div(B &b, V<B> x, V<B> y) {
  V<B> size = b.abs(y), small = b.select(b.lt(size, b.c(0x1p-126)), b.c(0x1p24), b.c(1));
  V<B> scale = b.select(b.gt(size, b.c(0x1p126)), b.c(0x1p-24), small);
  return b.mul(b.mul(x, b.reciprocal(b.mul(y, scale))), scale);
}
template <class B> V<B> sigmoid(B &b, V<B> x) { return b.reciprocal(b.add(b.exp2(b.mul(x, b.c(-kLog2E))), b.c(1))); }

// 1 - 2 / (1 + e^2x). Near 0, where that cancels, the series.
template <class B> V<B> tanh(B &b, V<B> x) {
  V<B> far = b.fma(b.reciprocal(b.add(b.exp2(b.mul(x, b.c(2 * kLog2E))), b.c(1))), b.c(-2), b.c(1));
  V<B> z = b.mul(x, x);
  V<B> near = polynomial(b, z, {62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3});
  return b.select(b.lt(b.abs(x), b.c(0.25)), b.fma(b.mul(x, z), near, x), far);
}
} // namespace approximate

} // namespace cinch::kernels::formulas
#endif
