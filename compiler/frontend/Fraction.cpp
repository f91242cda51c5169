// Fraction.cpp: 128-bit fractions in lowest terms; every operation says when its result does not fit.
#include "compiler/frontend/Fraction.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cinch {

using Int = Fraction::Int;

static constexpr Int lowest = Int(1) << 127; // the one value whose negation does not exist; never stored

static bool mul(Int a, Int b, Int &out) { return !__builtin_mul_overflow(a, b, &out) && out != lowest; }
static bool plus(Int a, Int b, Int &out) { return !__builtin_add_overflow(a, b, &out) && out != lowest; }

static Int gcd(Int a, Int b) {
  if (a < 0)
    a = -a;
  if (b < 0)
    b = -b;
  while (b) {
    Int t = a % b;
    a = b;
    b = t;
  }
  return a;
}

std::optional<Fraction> Fraction::make(Int numerator, Int denominator) {
  if (denominator == 0 || numerator == lowest || denominator == lowest)
    return std::nullopt;
  if (denominator < 0) {
    numerator = -numerator;
    denominator = -denominator;
  }
  Int common = gcd(numerator, denominator);
  Fraction result;
  result.num = numerator / common;
  result.den = denominator / common;
  return result;
}

std::optional<Fraction> Fraction::parse(std::string_view text) {
  Int value = 0;
  int64_t exponent = 0;
  size_t i = 0, digits = 0;
  bool point = false;
  for (; i < text.size(); ++i) {
    char c = text[i];
    if (c == '.' && !point && digits > 0 && i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9') {
      point = true; // with digits on both sides, as the grammar has it
      continue;
    }
    if (c < '0' || c > '9')
      break;
    ++digits;
    if (!mul(value, 10, value) || !plus(value, c - '0', value))
      return std::nullopt;
    exponent -= point;
  }
  if (digits == 0)
    return std::nullopt;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E')
      return std::nullopt;
    ++i;
    bool negative = false;
    if (i < text.size() && (text[i] == '+' || text[i] == '-'))
      negative = text[i++] == '-';
    if (i == text.size())
      return std::nullopt;
    int64_t power = 0;
    for (; i < text.size(); ++i) {
      if (text[i] < '0' || text[i] > '9')
        return std::nullopt;
      power = std::min<int64_t>(power * 10 + (text[i] - '0'), 100000);
    }
    exponent += negative ? -power : power;
  }
  if (value == 0)
    return Fraction();
  for (; exponent < 0 && value % 10 == 0; ++exponent)
    value /= 10;
  Int scale = 1;
  for (int64_t k = exponent < 0 ? -exponent : exponent; k > 0; --k)
    if (!mul(scale, 10, scale))
      return std::nullopt;
  if (exponent < 0)
    return make(value, scale);
  if (!mul(value, scale, value))
    return std::nullopt;
  return make(value, 1);
}

std::optional<int64_t> Fraction::toInteger() const {
  if (den != 1 || num > INT64_MAX || num < INT64_MIN)
    return std::nullopt;
  return static_cast<int64_t>(num);
}

// Long division to 64 significant bits and a sticky bit, then one rounding to 53.
double Fraction::toDouble() const {
  if (num == 0)
    return 0;
  using U = unsigned __int128;
  U n = num < 0 ? -U(num) : U(num), d = U(den);
  int exponent = 0;
  while (n < d && !(d >> 126)) { // make the quotient at least 1 where there is room
    n <<= 1;
    --exponent;
  }
  U q = n / d, r = n % d;
  while (!(q >> 63)) { // r < d < 2^127, so 2 r fits
    r <<= 1;
    q <<= 1;
    --exponent;
    if (r >= d) {
      r -= d;
      q |= 1;
    }
  }
  bool sticky = r != 0;
  while (q >> 64) {
    sticky |= (q & 1) != 0;
    q >>= 1;
    ++exponent;
  }
  uint64_t bits = static_cast<uint64_t>(q), kept = bits >> 11, rest = bits & 0x7FF;
  if (rest > 0x400 || (rest == 0x400 && (sticky || (kept & 1))))
    ++kept;
  double value = std::ldexp(static_cast<double>(kept), exponent + 11);
  return num < 0 ? -value : value;
}

Fraction Fraction::floor() const {
  Int q = num / den;
  if (num < 0 && num % den != 0)
    --q;
  Fraction result;
  result.num = q;
  return result;
}

static std::string digitsOf(Int value) {
  bool negative = value < 0;
  if (negative)
    value = -value;
  std::string text;
  do
    text += static_cast<char>('0' + static_cast<int>(value % 10));
  while (value /= 10);
  if (negative)
    text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

std::string Fraction::str() const {
  if (den == 1)
    return digitsOf(num);
  Int n = num, d = den;
  for (int places = 1; places <= 9; ++places) {
    Int scaled;
    if (!mul(n, 10, scaled))
      break;
    n = scaled;
    if (n % d == 0) {
      std::string text = digitsOf(n / d < 0 ? -(n / d) : n / d);
      while (static_cast<int>(text.size()) <= places)
        text.insert(text.begin(), '0');
      text.insert(text.size() - places, ".");
      return (num < 0 ? "-" : "") + text;
    }
  }
  if (num > INT64_MAX || num < INT64_MIN || den > INT64_MAX) {
    char buffer[32];
    snprintf(buffer, sizeof buffer, "%g", toDouble());
    return buffer;
  }
  return digitsOf(num) + "/" + digitsOf(den);
}

std::optional<Fraction> add(const Fraction &a, const Fraction &b) {
  Int common = gcd(a.denominator(), b.denominator());
  Int left = b.denominator() / common, right = a.denominator() / common, x, y, n, d;
  if (!mul(a.numerator(), left, x) || !mul(b.numerator(), right, y) || !plus(x, y, n) || !mul(a.denominator(), left, d))
    return std::nullopt;
  return Fraction::make(n, d);
}

std::optional<Fraction> subtract(const Fraction &a, const Fraction &b) {
  return add(a, *Fraction::make(-b.numerator(), b.denominator()));
}

std::optional<Fraction> multiply(const Fraction &a, const Fraction &b) {
  Int g = gcd(a.numerator(), b.denominator()), h = gcd(b.numerator(), a.denominator()), n, d;
  if (!mul(a.numerator() / g, b.numerator() / h, n) || !mul(a.denominator() / h, b.denominator() / g, d))
    return std::nullopt;
  return Fraction::make(n, d);
}

std::optional<Fraction> divide(const Fraction &a, const Fraction &b) {
  if (b.isZero())
    return std::nullopt;
  return multiply(a, *Fraction::make(b.denominator(), b.numerator()));
}

std::optional<Fraction> power(const Fraction &a, int64_t exponent) {
  if (a == Fraction(1) || exponent == 0)
    return Fraction(1);
  if (a.isZero())
    return exponent > 0 ? std::optional<Fraction>(Fraction()) : std::nullopt;
  if (a == Fraction(-1))
    return Fraction(exponent % 2 ? -1 : 1);
  if (exponent > 127 || exponent < -127) // at least 2^128 or at most 2^-128
    return std::nullopt;
  Fraction result(1);
  for (int64_t k = exponent < 0 ? -exponent : exponent; k > 0; --k) {
    std::optional<Fraction> next = multiply(result, a);
    if (!next)
      return std::nullopt;
    result = *next;
  }
  return exponent < 0 ? divide(Fraction(1), result) : result;
}

int compare(const Fraction &a, const Fraction &b) {
  if (a.sign() != b.sign())
    return a.sign() < b.sign() ? -1 : 1;
  // Continued fractions: whole parts first, then the remainders turned over. Nothing can overflow.
  Int an = a.numerator(), ad = a.denominator(), bn = b.numerator(), bd = b.denominator();
  bool negative = an < 0;
  if (negative) {
    an = -an;
    bn = -bn;
  }
  for (int turn = 1;; turn = -turn) {
    Int p = an / ad, q = bn / bd;
    int order = p < q ? -1 : p > q;
    Int x = an % ad, y = bn % bd;
    if (order == 0 && (x == 0 || y == 0))
      order = (x != 0) - (y != 0);
    else if (order == 0) {
      an = ad, ad = x, bn = bd, bd = y;
      continue;
    }
    return order * turn * (negative ? -1 : 1);
  }
}

} // namespace cinch
