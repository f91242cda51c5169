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
  Factor() = default;
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
  double value = std::ldexp(double(size), quantum); // 24 bits: exact
  if (value >= 0x1p128)
    value = INFINITY;
  return float(sum < 0 ? -value : value);
}

// So many of them at once.
inline float addProducts(Kind kind, int products, int fraction, const Factor *a, const Factor *b, float sum) {
  const int leastExponent = -126 - fraction;
  bool finite = std::isfinite(sum);
  for (int k = 0; k < products; ++k)
    finite = finite && a[k].finite && b[k].finite;
  if (!finite) {
    double plain = sum;
    for (int k = 0; k < products; ++k)
      plain += double(a[k].value) * double(b[k].value);
    return float(plain);
  }
  uint32_t word;
  memcpy(&word, &sum, 4);
  const int field = word >> 23 & 255;
  const int64_t ofSum = int64_t(word & 0x7fffff) | (field ? 1 << 23 : 0); // times 2^(its exponent - 23)
  const int exponentOfSum = field ? field - 127 : -126;
  int largest = ofSum && exponentOfSum > leastExponent ? exponentOfSum : leastExponent;
  for (int k = 0; k < products; ++k)
    if (a[k].significand && b[k].significand && a[k].exponent + b[k].exponent > largest)
      largest = a[k].exponent + b[k].exponent;
  const int quantum = largest - 23 - kind.bits;
  int64_t total = 0;
  auto join = [&](int64_t size, bool negative, int least) { // size * 2^least, cut to the quantum; 16 bits of a product (tf32: 22), 24 of the sum
    int lost = quantum - least;
    size = lost > 63 ? 0 : lost >= 0 ? size >> lost : size << -lost;
    total += negative ? -size : size;
  };
  for (int k = 0; k < products; ++k) {
    int64_t product = int64_t(a[k].significand) * b[k].significand;
    if (product)
      join(product < 0 ? -product : product, product < 0, a[k].exponent + b[k].exponent - 2 * fraction);
  }
  if (ofSum)
    join(ofSum, word >> 31, exponentOfSum - 23);
  return cut(total, quantum);
}

// The sum after 16 products, in order of k.
inline float multiplyAdd(Kind kind, const Factor a[16], const Factor b[16], float sum) {
  for (int k = 0; k < 16; k += kind.products)
    sum = addProducts(kind, kind.products, kBF16, a + k, b + k, sum);
  return sum;
}
// Of tf32, after 8.
inline float multiplyAddOfTF32(Kind kind, const Factor a[8], const Factor b[8], float sum) {
  for (int k = 0; k < 8; k += kind.products / 2)
    sum = addProducts(kind, kind.products / 2, kTF32, a + k, b + k, sum);
  return sum;
}

} // namespace tensor
#endif
