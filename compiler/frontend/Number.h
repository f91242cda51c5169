// Number.h: a number known at compile time: a value and a normal form. The form is a polynomial with fractional
// coefficients over dim names (negative exponents for a division by a product of names); it says which sizes are the
// same by name. A number without names has a constant polynomial, which is then its value. Sizes and constants are
// one and the same thing.
#ifndef CINCH_COMPILER_FRONTEND_NUMBER_H
#define CINCH_COMPILER_FRONTEND_NUMBER_H

#include "compiler/frontend/Fraction.h"
#include "compiler/frontend/Program.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cinch {

// A product of powers of dims: (number of the dim, exponent), increasing, no exponent 0. Empty: 1.
using Monomial = std::vector<std::pair<int, int>>;

struct Term {
  Monomial names;
  Fraction factor; // not 0
  friend bool operator==(const Term &a, const Term &b) { return a.names == b.names && a.factor == b.factor; }
};

struct Number {
  bool exact = true;
  Fraction value;         // if exact
  double real = 0;        // always: the value rounded
  std::vector<Term> form; // sorted by monomial; empty for zero. Only if exact

  Number() = default;
  Number(const Fraction &value);
  Number(int64_t value) : Number(Fraction(value)) {}
  static Number inexact(double value);
  static Number ofDim(int dim, const Fraction &value);

  bool hasNames() const { return !form.empty() && !(form.size() == 1 && form[0].names.empty()); }
  bool isDim(int dim) const; // exactly this one name
  bool mentions(int dim) const;
  std::optional<int64_t> integer() const { return exact ? value.toInteger() : std::nullopt; }
  bool isZero() const { return exact ? value.isZero() : real == 0; }
  int sign() const { return exact ? value.sign() : (real > 0) - (real < 0); }
  // Forgets names, keeps the value.
  Number bare() const { return exact ? Number(value) : inexact(real); }
};

// A number as the language writes it: exact, or the nearest f64 where that takes too many digits. Nothing if it is none, is beyond
// 1e300, or is not zero but so small that an f64 does not hold all of its digits. The runtime's --set takes the same (Values.cpp).
std::optional<Number> parseNumber(const std::string &text);

int compareNumbers(const Number &a, const Number &b);
bool sameForm(const Number &a, const Number &b);

// Nothing: it does not fit 127 bits, divides by zero, or is not a number.
std::optional<Number> addNumbers(const Number &a, const Number &b);
std::optional<Number> subtractNumbers(const Number &a, const Number &b);
std::optional<Number> multiplyNumbers(const Number &a, const Number &b);
std::optional<Number> divideNumbers(const Number &a, const Number &b);
std::optional<Number> powerNumbers(const Number &a, const Number &b);
Number negateNumber(const Number &a);
Number floorNumber(const Number &a); // keeps the form of a whole number

// A `dim`: its value is a Number of its own name, unless the dim is an abbreviation (those have no entry here).
struct DimInfo {
  std::string name;
  Span span;
  Fraction value;
  bool batch = false;
};
struct Abbreviation {
  std::string name;
  Span span;
  std::vector<Term> form;
};
struct DimTable {
  std::vector<DimInfo> dims;
  std::vector<Abbreviation> abbreviations; // `dim F = 4 * D`: how such a form is written in messages
  const DimInfo &operator[](int dim) const { return dims[dim]; }
  const Abbreviation *find(const std::vector<Term> &form) const;
};

std::string formOf(const Number &number, const DimTable &dims);    // "F"; "4 * D"; "512"
std::string withValue(const Number &number, const DimTable &dims); // "F = 3072"; "512"
std::string valueOf(const Number &number);                         // "3072"

} // namespace cinch
#endif
