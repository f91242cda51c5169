// TensorCore.h: the sum of 16 products of bf16, or of 8 of tf32, and an f32, as tensor cores compute it.
//
// After the models of Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004), which were compared with the
// hardware there, not here. Products are exact. As many as the unit takes at once are added together with the sum so far: all are shifted
// to the largest exponent among them and cut behind some bits beyond the 23 of an f32, then added exactly, and the result is cut to an f32,
// towards zero. The unit of an A100 takes 8 products and keeps 1 bit more; that of an H100 takes 16 and keeps 2. The exponent of a product
// is the sum of its factors', of which the smallest is -133. Assumed of tf32, and compared with nothing: units take half as many products, which are twice as wide,
// and do the rest as for bf16; the smallest exponent is -136, that of its smallest subnormal number.
#ifndef CINCH_TEST_NVIDIA_TENSORCORE_H
#define CINCH_TEST_NVIDIA_TENSORCORE_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tensor {

struct Kind {
  int products, bits; // of bf16 that are added at once; beyond those of an f32
};
// Bits of a factor behind its leading one.
constexpr int kBF16 = 7, kTF32 = 10;
inline Kind kindOf(const char *name) {
  if (!strcmp(name, "a100"))
    return {8, 1};
  if (!strcmp(name, "h100"))
    return {16, 2};
  fprintf(stderr, "stand-in: no model of the tensor cores of '%s'; there are a100 and h100\n", name);
  _Exit(99);
}

// A number of bf16: significand * 2^(exponent - 7), significand in [2^7, 2^8) or less for subnormal numbers. One of tf32 has 10 in the place of 7.
struct Factor {
  int significand = 0, exponent = 0;
  bool finite = true;
  float value = 0;
  explicit Factor(uint16_t half) : Factor(uint32_t(half) << 16, kBF16) {}
  // Of the upper bits of an f32.
  Factor(uint32_t word, int fraction) {
    memcpy(&value, &word, 4);
    int field = word >> 23 & 255;
    significand = int(word >> (23 - fraction) & ((1u << fraction) - 1)) | (field ? 1 << fraction : 0);
    exponent = field ? field - 127 : -126;
    finite = field != 255;
    if (word >> 31)
      significand = -significand;
  }
};

// A row of a matrix, or a column: 16 numbers of bf16, or 8 of tf32. Its parts lie apart, so that a processor works on all numbers at once.
struct Factors {
  int32_t significand[16] = {}, exponent[16] = {};
  float value[16] = {};
  uint32_t special = 0; // a bit for each: it is infinite, or no number
  void set(int k, Factor factor) {
    significand[k] = factor.significand, exponent[k] = factor.exponent;
    value[k] = factor.value, special = (special & ~(1u << k)) | uint32_t(!factor.finite) << k;
  }
};

// Towards zero: sum * 2^quantum as an f32.
inline float cut(int64_t sum, int quantum) {
  if (sum == 0)
    return 0;
  uint64_t size = uint64_t(sum < 0 ? -sum : sum);
  int width = 64 - __builtin_clzll(size), least = quantum + width - 24;
  if (least < -149)
    least = -149;
  if (least > quantum) {
    int lost = least - quantum;
    size = lost > 63 ? 0 : size >> lost;
    quantum = least;
  }
  const uint64_t power = uint64_t(quantum + 1023) << 52; // 2^quantum, which is no subnormal number of f64
  double value;
  memcpy(&value, &power, 8);
  value *= double(size); // 24 bits: exact
  if (value >= 0x1p128)
    value = INFINITY;
  return float(sum < 0 ? -value : value);
}

// So many of them at once, from the `first` on. Every product fits into 32 bits with what it is shifted up by, and so does the sum of all.
template <int products, int fraction> float addProducts(int bits, const Factors &a, const Factors &b, int first, float sum) {
  const int leastExponent = -126 - fraction;
  const uint32_t special = (a.special | b.special) >> first & ((1u << products) - 1);
  if (special || !std::isfinite(sum)) {
    double plain = sum;
    for (int k = first; k < first + products; ++k)
      plain += double(a.value[k]) * double(b.value[k]);
    return float(plain);
  }
  uint32_t word;
  memcpy(&word, &sum, 4);
  const int field = word >> 23 & 255;
  const int64_t ofSum = int64_t(word & 0x7fffff) | (field ? 1 << 23 : 0); // times 2^(its exponent - 23)
  const int exponentOfSum = field ? field - 127 : -126;
  int32_t product[products], exponent[products];
  int32_t largest = ofSum && exponentOfSum > leastExponent ? exponentOfSum : leastExponent;
  for (int k = 0; k < products; ++k) {
    product[k] = a.significand[first + k] * b.significand[first + k]; // times 2^(its exponent - 2 * fraction)
    exponent[k] = product[k] ? a.exponent[first + k] + b.exponent[first + k] : leastExponent;
    largest = exponent[k] > largest ? exponent[k] : largest;
  }
  // All are counted in 2^(largest - 23 - bits); what is less goes.
  const int up = 23 + bits - 2 * fraction;
  int32_t total = 0;
  for (int k = 0; k < products; ++k) {
    const int32_t down = largest - exponent[k] < 31 ? largest - exponent[k] : 31;
    const int32_t size = (product[k] < 0 ? -product[k] : product[k]) << up >> down;
    total += product[k] < 0 ? -size : size;
  }
  const int down = largest - exponentOfSum; // below 0 only if the sum is 0
  const int64_t size = down < 0 || down > 63 ? 0 : ofSum << bits >> down;
  return cut(total + (word >> 31 ? -size : size), largest - 23 - bits);
}

// The sum after 16 products, in order of k.
inline float multiplyAdd(Kind kind, const Factors &a, const Factors &b, float sum) {
  if (kind.products == 16)
    return addProducts<16, kBF16>(kind.bits, a, b, 0, sum);
  return addProducts<8, kBF16>(kind.bits, a, b, 8, addProducts<8, kBF16>(kind.bits, a, b, 0, sum));
}
// Of tf32, after 8.
inline float multiplyAddOfTF32(Kind kind, const Factors &a, const Factors &b, float sum) {
  if (kind.products == 16)
    return addProducts<8, kTF32>(kind.bits, a, b, 0, sum);
  return addProducts<4, kTF32>(kind.bits, a, b, 4, addProducts<4, kTF32>(kind.bits, a, b, 0, sum));
}

} // namespace tensor
#endif
