// Random.cpp: sources: Philox as in Random123; log, sin and cos after FreeBSD's msun (e_log.c, k_sin.c, k_cos.c,
// e_exp.c by Sun Microsystems), written out so that each operation is rounded once, in this order.
#include "runtime/Random.h"
#include <string.h>

namespace cinch::rt {

uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t hashText(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; ++text) {
    hash ^= static_cast<unsigned char>(*text);
    hash *= 0x100000001b3u;
  }
  return hash;
}

uint64_t streamKey(uint64_t seed, const char *name) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15u) ^ hashText(name));
}

Philox philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xd2511f53u) * c0, p1 = uint64_t(0xcd9e8d57u) * c2;
    uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

double uniform53(const Philox &block, int i) {
  uint64_t bits = uint64_t(block.words[2 * i + 1]) << 32 | block.words[2 * i];
  return double(int64_t(bits >> 11)) * 0x1p-53;
}

static double fromBits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

double logOf(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  // x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  int64_t k = int64_t(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  double m = fromBits(bits);
  if (m >= 1.4142135623730951) {
    m = m * 0.5;
    k += 1;
  }
  double f = m - 1.0;
  double s = f / (2.0 + f);
  double z = s * s;
  double w = z * z;
  double t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  double t2 = z * (6.666666666666735130e-01 +
                   w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  double r = t2 + t1;
  double half = 0.5 * f * f;
  double dk = double(k);
  return dk * 6.93147180369123816490e-01 - ((half - (s * (half + r) + dk * 1.90821492927058770002e-10)) - f);
}

void sinCosTurns(double turns, double &s, double &c) {
  double quarter = turns * 4.0;
  int64_t q = int64_t(quarter + 0.5);
  double x = (quarter - double(q)) * 1.57079632679489655800; // in [-pi/4, pi/4]
  double z = x * x;
  double ps =
      8.33333333332248946124e-03 +
      z * (-1.98412698298579493134e-04 +
           z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
  double sine = x + (z * x) * (-1.66666666666666324348e-01 + z * ps);
  double pc = z * (4.16666666666666019037e-02 +
                   z * (-1.38888888888741095749e-03 +
                        z * (2.48015872894767294178e-05 +
                             z * (-2.75573143513906633035e-07 +
                                  z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  double cosine = 1.0 - (0.5 * z - z * pc);
  switch (q & 3) {
  case 0: s = sine, c = cosine; break;
  case 1: s = cosine, c = -sine; break;
  case 2: s = -sine, c = -cosine; break;
  default: s = -cosine, c = sine; break;
  }
}

double expOf(double x) {
  if (!(x > -708.0))
    return 0.0;
  if (x > 709.0)
    x = 709.0;
  // x = k log 2 + r, |r| <= log(2) / 2; e^r = 1 + 2 r / (R - r).
  double kd = x * 1.44269504088896338700;
  int64_t k = int64_t(kd < 0 ? kd - 0.5 : kd + 0.5);
  double hi = x - double(k) * 6.93147180369123816490e-01;
  double lo = double(k) * 1.90821492927058770002e-10;
  double r = hi - lo;
  double t = r * r;
  double c =
      r -
      t * (1.66666666666666019037e-01 +
           t * (-2.77777777770155933842e-03 +
                t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
  double y = 1.0 - ((lo - (r * c) / (2.0 - c)) - hi);
  return y * fromBits(uint64_t(k + 1023) << 52);
}

static double rootOf(double x) { return __builtin_sqrt(x); } // one instruction, correctly rounded

void normalPair(const Philox &block, double &first, double &second) {
  double u = 1.0 - uniform53(block, 0); // (0, 1]
  double r = rootOf(-2.0 * logOf(u));
  double s, c;
  sinCosTurns(uniform53(block, 1), s, c);
  first = r * c;
  second = r * s;
}

} // namespace cinch::rt
