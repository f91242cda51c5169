// Fraction.h: exact numbers of the language. Constants are exact under + - * / ^ (so `3 / 2` is 1.5 and `1/255` is
// exact) and are rounded once, where they meet a tensor. Numerator and denominator have 127 bits; what does not fit
// is reported.
#ifndef CINCH_COMPILER_FRONTEND_FRACTION_H
#define CINCH_COMPILER_FRONTEND_FRACTION_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cinch {

class Fraction {
public:
  using Int = __int128;

  Fraction() = default;
  Fraction(int64_t value) : num(value) {}

  // Digits [ . digits ] [ e [+-] digits ]; nothing if it is no such text or does not fit.
  static std::optional<Fraction> parse(std::string_view text);
  static std::optional<Fraction> make(Int numerator, Int denominator);

  Int numerator() const { return num; }
  Int denominator() const { return den; }
  bool isWhole() const { return den == 1; }
  bool isZero() const { return num == 0; }
  int sign() const { return num < 0 ? -1 : num > 0; }
  std::optional<int64_t> toInteger() const; // whole and within 64 bits
  double toDouble() const;                  // correctly rounded
  Fraction floor() const;
  std::string str() const; // "3/2"; "0.1" where decimal digits are exact and few

  friend bool operator==(const Fraction &a, const Fraction &b) { return a.num == b.num && a.den == b.den; }
  friend bool operator!=(const Fraction &a, const Fraction &b) { return !(a == b); }

private:
  Int num = 0, den = 1; // lowest terms, den > 0
};

// Nothing: the result does not fit, or a division by zero.
std::optional<Fraction> add(const Fraction &a, const Fraction &b);
std::optional<Fraction> subtract(const Fraction &a, const Fraction &b);
std::optional<Fraction> multiply(const Fraction &a, const Fraction &b);
std::optional<Fraction> divide(const Fraction &a, const Fraction &b);
std::optional<Fraction> power(const Fraction &a, int64_t exponent);
int compare(const Fraction &a, const Fraction &b); // -1, 0, 1

} // namespace cinch
#endif
