// Number.cpp: arithmetic on values and normal forms together. A form that grows past 32 terms is given up: the number
// then has its value only, which is always allowed (fewer sizes are equal by name, none becomes equal wrongly).
#include "compiler/frontend/Number.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace cinch {

static constexpr size_t maxTerms = 32;
static constexpr int maxExponent = 64;

static std::vector<Term> constantForm(const Fraction &value) {
  if (value.isZero())
    return {};
  return {{{}, value}};
}

Number::Number(const Fraction &value) : value(value), real(value.toDouble()), form(constantForm(value)) {}

Number Number::inexact(double value) {
  Number result;
  result.exact = false;
  result.real = value;
  return result;
}

Number Number::ofDim(int dim, const Fraction &value) {
  Number result(value);
  result.form = {{{{dim, 1}}, Fraction(1)}};
  return result;
}

bool Number::isDim(int dim) const {
  return form.size() == 1 && form[0].factor == Fraction(1) && form[0].names == Monomial{{dim, 1}};
}

bool Number::mentions(int dim) const {
  for (const Term &term : form)
    for (const auto &[name, exponent] : term.names)
      if (name == dim)
        return true;
  return false;
}

std::optional<Number> parseNumber(const std::string &text) {
  if (std::optional<Fraction> value = Fraction::parse(text))
    return Number(*value);
  size_t at = 0;
  auto digits = [&] {
    size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9')
      ++at;
    return at > begin;
  };
  auto accept = [&](const char *letters) {
    bool found = at < text.size() && std::string_view(letters).find(text[at]) != std::string_view::npos;
    at += found;
    return found;
  };
  bool good = digits() && (!accept(".") || digits());
  if (good && accept("eE")) {
    accept("+-");
    good = digits();
  }
  double real = std::strtod(text.c_str(), nullptr);
  if (!good || at != text.size() || !(real < 1e300) || real < std::numeric_limits<double>::min())
    return std::nullopt;
  return Number::inexact(real);
}

int compareNumbers(const Number &a, const Number &b) {
  if (a.exact && b.exact)
    return compare(a.value, b.value);
  return (a.real > b.real) - (a.real < b.real);
}

bool sameForm(const Number &a, const Number &b) { return a.exact && b.exact && a.form == b.form; }

// Sorts, merges equal monomials, drops zeros. Nothing: a coefficient does not fit, or too many terms.
static std::optional<std::vector<Term>> normalize(std::vector<Term> terms) {
  std::sort(terms.begin(), terms.end(), [](const Term &a, const Term &b) { return a.names < b.names; });
  std::vector<Term> result;
  for (Term &term : terms) {
    if (!result.empty() && result.back().names == term.names) {
      std::optional<Fraction> sum = add(result.back().factor, term.factor);
      if (!sum)
        return std::nullopt;
      result.back().factor = *sum;
    } else {
      if (!result.empty() && result.back().factor.isZero())
        result.pop_back();
      result.push_back(std::move(term));
    }
  }
  if (!result.empty() && result.back().factor.isZero())
    result.pop_back();
  if (result.size() > maxTerms)
    return std::nullopt;
  return result;
}

static std::optional<Monomial> multiplyMonomials(const Monomial &a, const Monomial &b, int sign) {
  Monomial result;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    std::pair<int, int> next;
    if (j == b.size() || (i < a.size() && a[i].first < b[j].first))
      next = a[i++];
    else if (i == a.size() || b[j].first < a[i].first)
      next = {b[j].first, sign * b[j].second}, ++j;
    else
      next = {a[i].first, a[i].second + sign * b[j].second}, ++i, ++j;
    if (next.second > maxExponent || next.second < -maxExponent)
      return std::nullopt;
    if (next.second != 0)
      result.push_back(next);
  }
  return result;
}

static std::optional<Number> exactNumber(std::optional<Fraction> value, std::optional<std::vector<Term>> form) {
  if (!value)
    return std::nullopt;
  Number result(*value);
  if (form)
    result.form = std::move(*form);
  return result;
}

static std::optional<Number> finite(double value) {
  if (!std::isfinite(value))
    return std::nullopt;
  return Number::inexact(value);
}

static std::vector<Term> joined(const Number &a, const Number &b, bool negative) {
  std::vector<Term> terms = a.form;
  for (Term term : b.form) {
    if (negative)
      term.factor = *subtract(Fraction(), term.factor);
    terms.push_back(std::move(term));
  }
  return terms;
}

std::optional<Number> addNumbers(const Number &a, const Number &b) {
  if (!a.exact || !b.exact)
    return finite(a.real + b.real);
  return exactNumber(add(a.value, b.value), normalize(joined(a, b, false)));
}

std::optional<Number> subtractNumbers(const Number &a, const Number &b) {
  if (!a.exact || !b.exact)
    return finite(a.real - b.real);
  return exactNumber(subtract(a.value, b.value), normalize(joined(a, b, true)));
}

static std::optional<std::vector<Term>> multiplyForms(const std::vector<Term> &a, const std::vector<Term> &b,
                                                      int sign) {
  std::vector<Term> terms;
  for (const Term &x : a)
    for (const Term &y : b) {
      std::optional<Monomial> names = multiplyMonomials(x.names, y.names, sign);
      std::optional<Fraction> factor = sign > 0 ? multiply(x.factor, y.factor) : divide(x.factor, y.factor);
      if (!names || !factor || terms.size() > maxTerms * maxTerms)
        return std::nullopt;
      terms.push_back({std::move(*names), *factor});
    }
  return normalize(std::move(terms));
}

std::optional<Number> multiplyNumbers(const Number &a, const Number &b) {
  if (!a.exact || !b.exact)
    return finite(a.real * b.real);
  return exactNumber(multiply(a.value, b.value), multiplyForms(a.form, b.form, 1));
}

std::optional<Number> divideNumbers(const Number &a, const Number &b) {
  if (b.isZero())
    return std::nullopt;
  if (!a.exact || !b.exact)
    return finite(a.real / b.real);
  if (sameForm(a, b))
    return Number(1);
  std::optional<std::vector<Term>> form;
  if (b.form.size() == 1) // a product of names; a division by a sum has a value only
    form = multiplyForms(a.form, b.form, -1);
  return exactNumber(divide(a.value, b.value), std::move(form));
}

std::optional<Number> powerNumbers(const Number &a, const Number &b) {
  std::optional<int64_t> exponent = b.integer();
  if (!a.exact || !exponent)
    return finite(std::pow(a.real, b.real));
  std::optional<Fraction> value = power(a.value, *exponent);
  if (!value)
    return std::nullopt;
  Number result(*value);
  if (!a.hasNames() || (*exponent < 0 && a.form.size() > 1) || *exponent > maxExponent || *exponent < -maxExponent)
    return result;
  std::optional<std::vector<Term>> form = constantForm(Fraction(1));
  for (int64_t k = *exponent < 0 ? -*exponent : *exponent; k > 0 && form; --k)
    form = multiplyForms(*form, a.form, *exponent < 0 ? -1 : 1);
  if (form)
    result.form = std::move(*form);
  return result;
}

Number negateNumber(const Number &a) {
  if (!a.exact)
    return Number::inexact(-a.real);
  return *subtractNumbers(Number(), a); // lowest terms exclude the one value that cannot be negated
}

Number floorNumber(const Number &a) {
  if (!a.exact)
    return std::fabs(a.real) < 9.0e18 ? Number(static_cast<int64_t>(std::floor(a.real))) : a;
  return a.value.isWhole() ? a : Number(a.value.floor());
}

// ---- Text ---------------------------------------------------------------------------------------------------------
static std::string productOf(const Monomial &names, const Fraction &factor, const DimTable &dims) {
  std::string top, bottom;
  int below = 0;
  auto append = [&](std::string &text, const std::string &piece) { text += (text.empty() ? "" : " * ") + piece; };
  Fraction upper = *Fraction::make(factor.numerator(), 1), lower = *Fraction::make(factor.denominator(), 1);
  if (upper != Fraction(1))
    append(top, upper.str());
  if (lower != Fraction(1)) {
    append(bottom, lower.str());
    ++below;
  }
  for (const auto &[dim, exponent] : names) {
    std::string piece = dims[dim].name;
    int size = exponent < 0 ? -exponent : exponent;
    if (size > 1)
      piece += " ^ " + std::to_string(size);
    append(exponent < 0 ? bottom : top, piece);
    below += exponent < 0;
  }
  if (top.empty())
    top = "1";
  if (bottom.empty())
    return top;
  return top + " / " + (below > 1 ? "(" + bottom + ")" : bottom);
}

const Abbreviation *DimTable::find(const std::vector<Term> &form) const {
  for (const Abbreviation &abbreviation : abbreviations)
    if (abbreviation.form == form)
      return &abbreviation;
  return nullptr;
}

std::string valueOf(const Number &number) {
  if (number.exact)
    return number.value.str();
  char buffer[40];
  snprintf(buffer, sizeof buffer, "%.9g", number.real);
  return buffer;
}

std::string formOf(const Number &number, const DimTable &dims) {
  if (!number.exact || !number.hasNames())
    return valueOf(number);
  if (const Abbreviation *abbreviation = dims.find(number.form))
    return abbreviation->name;
  std::string text;
  std::vector<const Term *> order; // terms with names first, the constant last; positive ones before negative ones
  for (int sign : {1, -1})
    for (size_t i = number.form.size(); i-- > 0;)
      if (number.form[i].factor.sign() == sign)
        order.push_back(&number.form[i]);
  for (const Term *term : order) {
    Fraction factor = term->factor;
    bool negative = factor.sign() < 0;
    if (negative)
      factor = *subtract(Fraction(), factor);
    if (!text.empty())
      text += negative ? " - " : " + ";
    else if (negative)
      text += "-";
    text += productOf(term->names, factor, dims);
  }
  return text;
}

std::string withValue(const Number &number, const DimTable &dims) {
  if (!number.exact || !number.hasNames())
    return valueOf(number);
  return formOf(number, dims) + " = " + valueOf(number);
}

} // namespace cinch
