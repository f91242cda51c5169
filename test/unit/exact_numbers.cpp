// LINK: cinch_frontend
// Fractions and sizes: arithmetic, rounding, overflow, normal forms; random fractions against long double, ordering
// and algebra.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Number.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

using namespace cinch;

static int passed = 0, failed = 0;
static void expect(bool good, const char *what) {
  ++(good ? passed : failed);
  if (!good)
    printf("failed: %s\n", what);
}
#define EXPECT(condition) expect(condition, #condition)

static Fraction of(int64_t n, int64_t d) { return *Fraction::make(n, d); }

static void fractions() {
  EXPECT(*Fraction::parse("0.1") == of(1, 10));
  EXPECT(*Fraction::parse("5e-4") == of(1, 2000));
  EXPECT(*Fraction::parse("1.50e2") == Fraction(150));
  EXPECT(*Fraction::parse("000") == Fraction());
  EXPECT(*Fraction::parse("1e-30") == *divide(Fraction(1), *power(Fraction(10), 30)));
  EXPECT(!Fraction::parse("1e39"));
  EXPECT(!Fraction::parse(""));
  EXPECT(!Fraction::parse("1e"));
  EXPECT(!Fraction::parse("1x"));
  EXPECT(!Fraction::parse(".5") && !Fraction::parse("5.") && !Fraction::parse("1.e3") && !Fraction::parse("."));
  EXPECT(!Fraction::parse("99999999999999999999999999999999999999999"));
  EXPECT(of(6, -4) == of(-3, 2));
  EXPECT(*add(of(1, 3), of(1, 6)) == of(1, 2));
  EXPECT(*subtract(of(1, 3), of(1, 3)) == Fraction());
  EXPECT(*multiply(of(2, 3), of(9, 4)) == of(3, 2));
  EXPECT(!divide(of(1, 3), Fraction()));
  EXPECT(*power(of(2, 3), -3) == of(27, 8));
  EXPECT(!power(Fraction(2), 127));
  EXPECT(power(Fraction(2), 126).has_value());
  EXPECT(*power(Fraction(-1), 1000000001) == Fraction(-1));
  EXPECT(!power(Fraction(), -1));
  EXPECT(!multiply(*power(Fraction(2), 126), Fraction(2)));
  EXPECT(!add(*power(Fraction(2), 126), *power(Fraction(2), 126)));
  EXPECT(of(-7, 2).floor() == Fraction(-4));
  EXPECT(of(7, 2).floor() == Fraction(3));
  EXPECT(of(3, 2).str() == "1.5");
  EXPECT(of(-1, 40).str() == "-0.025");
  EXPECT(of(1, 3).str() == "1/3");
  EXPECT(of(1, 255).toDouble() == 1.0 / 255);
  EXPECT(of(1, 10).toDouble() == 0.1);
  EXPECT(of(-2, 3).toDouble() == -2.0 / 3);
  EXPECT(Fraction::parse("1e-20")->toDouble() == 1e-20);
  EXPECT(Fraction(INT64_MAX).toDouble() == 9223372036854775807.0);
  EXPECT(Fraction((1LL << 53) + 1).toDouble() == 9007199254740992.0); // ties to even
  EXPECT(Fraction((1LL << 53) + 3).toDouble() == 9007199254740996.0);
}

static void randomFractions() {
  std::mt19937_64 random(7);
  bool orders = true, rounds = true, algebra = true;
  for (int i = 0; i < 200000; ++i) {
    int bits = 1 + random() % 50;
    auto draw = [&] {
      int64_t n = static_cast<int64_t>(random() >> (64 - bits)) * (random() % 2 ? 1 : -1),
              d = 1 + (random() >> (64 - bits));
      return of(n, d);
    };
    Fraction a = draw(), b = draw();
    // exact: both products fit 128 bits
    __int128 left = a.numerator() * b.denominator(), right = b.numerator() * a.denominator();
    orders &= compare(a, b) == (left < right ? -1 : left > right);
    rounds &= a.toDouble() == static_cast<double>(static_cast<int64_t>(a.numerator())) /
                                  static_cast<double>(static_cast<int64_t>(a.denominator()));
    algebra &= *subtract(*add(a, b), b) == a && (b.isZero() || *multiply(*divide(a, b), b) == a);
  }
  EXPECT(orders);
  EXPECT(rounds); // numerator and denominator are exact doubles, so one IEEE division rounds correctly
  EXPECT(algebra);
}

static void forms() {
  DimTable dims;
  dims.dims = {{"D", {}, Fraction(768)}, {"A", {}, Fraction(12)}, {"T", {}, Fraction(64)}};
  Number d = Number::ofDim(0, 768), a = Number::ofDim(1, 12), t = Number::ofDim(2, 64);
  Number k = *divideNumbers(d, a);
  EXPECT(k.integer() == 64);
  EXPECT(formOf(k, dims) == "D / A");
  EXPECT(sameForm(*multiplyNumbers(k, a), d));
  EXPECT(!sameForm(k, t));
  Number t1 = *addNumbers(t, Number(1));
  EXPECT(formOf(t1, dims) == "T + 1");
  EXPECT(sameForm(*subtractNumbers(t1, Number(1)), t));
  EXPECT(sameForm(*subtractNumbers(t1, t), Number(1)));
  EXPECT(!subtractNumbers(t1, t)->hasNames());
  EXPECT(formOf(*multiplyNumbers(Number(4), d), dims) == "4 * D");
  EXPECT(withValue(*multiplyNumbers(Number(4), d), dims) == "4 * D = 3072");
  EXPECT(formOf(*divideNumbers(d, Number(2)), dims) == "D / 2");
  EXPECT(sameForm(*powerNumbers(*addNumbers(d, a), Number(2)),
                  *addNumbers(*addNumbers(*multiplyNumbers(d, d), *multiplyNumbers(a, a)),
                              *multiplyNumbers(Number(2), *multiplyNumbers(d, a)))));
  Number overSum = *divideNumbers(d, *addNumbers(a, t)); // by a sum: a value only
  EXPECT(!overSum.hasNames() && overSum.value == of(768, 76));
  EXPECT(sameForm(*divideNumbers(*addNumbers(a, t), *addNumbers(a, t)), Number(1)));
  EXPECT(sameForm(floorNumber(k), k));
  EXPECT(!floorNumber(*divideNumbers(d, Number(7))).hasNames());
  EXPECT(*floorNumber(Number(of(-1, 2))).integer() == -1);
  EXPECT(!divideNumbers(d, Number()));
  EXPECT(!powerNumbers(Number::inexact(-1), Number(of(1, 2)))); // not a number
  EXPECT(std::fabs(powerNumbers(Number(2), Number(of(1, 2)))->real - std::sqrt(2.0)) < 1e-15);
  EXPECT(powerNumbers(Number(of(1, 2)), Number(2))->value == of(1, 4));
}

static void bytes() {
  EXPECT(parseBytes("3GiB") == 3LL << 30);
  EXPECT(parseBytes("1.5kB") == 1500);
  EXPECT(parseBytes("0.5KiB") == 512);
  EXPECT(parseBytes("2TB") == 2000000000000LL);
  EXPECT(parseBytes("6194752B") == 6194752);
  EXPECT(parseBytes("1.5B") == 1);
  EXPECT(!parseBytes("B"));
  EXPECT(!parseBytes("3QB"));
  EXPECT(!parseBytes("3"));
  EXPECT(!parseBytes("3G"));
  EXPECT(!parseBytes("GiB"));
  EXPECT(!parseBytes("-1GiB"));
  EXPECT(parseBytes("22.68MiB") == 23781703); // 23781703.68
  EXPECT(!parseBytes("9e99TiB"));
  EXPECT(parseAssignment("N=12")->second == "12");
  EXPECT(parseAssignment("a=b=c")->second == "b=c");
  EXPECT(!parseAssignment("N"));
  EXPECT(!parseAssignment("=3"));
}

int main() {
  fractions();
  randomFractions();
  forms();
  bytes();
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
