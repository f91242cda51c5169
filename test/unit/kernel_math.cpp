// LINK: kernel_harness
//
// The elementary functions of kernels: how far from the true value (long double libm), special values, and that
// compiled code has the bits of the host's evaluation, for vectors and scalars, on AVX2 and AVX-512.
//
//   kernel_math [COUNT]   arguments a function (default 60000); `kernel_math 0` all 2^32 of f32
#include "test/unit/Expect.h"
#include "compiler/kernels/HostArith.h"
#include "test/kernels/KernelHarness.h"
#include "compiler/kernels/Kernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace cinch;
using namespace cinch::kernels;

namespace {

struct Function {
  const char *name;
  LoopOp op;
  float (*single)(float);
  double (*twice)(double);
  long double (*truth)(long double);
  double range;       // arguments up to this magnitude besides those of all magnitudes (0: all)
  double ulp32, ulp64;
};

template <class T, T (*f)(HostArith<T> &, T)> T on(T x) {
  HostArith<T> arith;
  return f(arith, x);
}
const Function functions[] = {
#define FUNCTION(OP, NAME, FROM, TO, NEAR, ULP32, ULP64, TRUTH)                                                       \
  {#NAME, LoopOp::OP, on<float, formulas::NAME<HostArith<float>>>, on<double, formulas::NAME<HostArith<double>>>,       \
   [](long double x) -> long double { return TRUTH; }, NEAR, ULP32, ULP64},
#include "test/oracle/Functions.def"
};

// Units in the last place between a result and the truth.
template <class T> double distance(T got, long double truth) {
  if (got != got || truth != truth)
    return (got != got) == (truth != truth) ? 0 : 1e30;
  T rounded = T(truth);
  if (got == rounded)
    return 0;
  if (std::isinf(got) || std::isinf(rounded))
    return 1e30;
  int exponent;
  std::frexp(rounded, &exponent);
  int least = std::numeric_limits<T>::min_exponent;
  long double unit = std::ldexp(1.0L, std::max(exponent, least) - std::numeric_limits<T>::digits);
  return double(std::fabs((long double)(got) - truth) / unit);
}

template <class T> std::vector<T> specials(bool angle = false) {
  using limits = std::numeric_limits<T>;
  std::vector<T> all = {0,
                        T(0.5),
                        1,
                        2,
                        T(0.75),
                        T(0.625),
                        T(0.92),
                        3,
                        10,
                        22,
                        44,
                        88,
                        89,
                        103,
                        104,
                        105,
                        127,
                        128,
                        700,
                        709,
                        710,
                        746,
                        T(1e-8),
                        T(1e-20),
                        limits::min(),
                        limits::denorm_min(),
                        limits::min() / 4,
                        limits::infinity(),
                        limits::quiet_NaN(),
                        limits::epsilon(),
                        1 + limits::epsilon(),
                        1 - limits::epsilon(),
                        T(88.722839),
                        T(-103.97208),
                        T(0.34657359),
                        T(0.70710678),
                        T(1.4142135),
                        T(3.14159265),
                        T(1.57079632),
                        T(1000000)};
  if (sizeof(T) == 4 || !angle)
    all.push_back(limits::max());
  size_t count = all.size();
  for (size_t i = 0; i < count; ++i)
    all.push_back(-all[i]);
  return all;
}

template <class T> std::vector<T> arguments(const Function &f, int64_t count) {
  bool angle = f.op == LoopOp::Sin || f.op == LoopOp::Cos;
  std::vector<T> all = specials<T>(angle);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> near(-f.range, f.range);
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  while (int64_t(all.size()) < count) {
    all.push_back(T(near(random)));
    T any = bitsAs<T>(Bits(random()));
    if (!angle || sizeof(T) == 4 || !(std::fabs(any) > 1e14)) // beyond, f64 angles give NaN
      all.push_back(any);
  }
  return all;
}

template <class T> void accuracy(const Function &f, int64_t count, double bound) {
  double worst = 0;
  T at = 0;
  auto check = [&](T x) {
    T y;
    if constexpr (sizeof(T) == 4)
      y = f.single(x);
    else
      y = f.twice(x);
    double d = distance<T>(y, f.truth(x));
    if (d > worst)
      worst = d, at = x;
  };
  if (count > 0 || sizeof(T) == 8) {
    for (T x : arguments<T>(f, count ? count : 1000000))
      check(x);
  } else {
    for (uint64_t bits = 0; bits < (uint64_t(1) << 32); ++bits) {
      check(T(bitsAs<float>(uint32_t(bits))));
    }
  }
  char text[200];
  std::snprintf(text, sizeof text, "%s of f%d: %.2f units in the last place at %.17g, bound %g", f.name,
                int(sizeof(T) * 8), worst, double(at), bound);
  if (std::getenv("VERBOSE"))
    std::printf("%s\n", text);
  expect(worst <= bound, text);
}

template <class T> void accuracyOfPow(int64_t count, double bound) {
  HostArith<T> arith;
  std::mt19937_64 random(11);
  double worst = 0;
  T atX = 0, atY = 0;
  auto check = [&](T x, T y) {
    double d = distance<T>(formulas::pow(arith, x, y), std::pow((long double)(x), (long double)(y)));
    if (d > worst)
      worst = d, atX = x, atY = y;
  };
  for (T x : specials<T>())
    for (T y : specials<T>())
      check(x, y);
  std::uniform_real_distribution<double> exponent(-20, 20), base(0, 10);
  for (int64_t i = 0; i < count; ++i) {
    check(T(base(random)), T(exponent(random)));
    check(T(-base(random)), T(std::floor(exponent(random))));
    check(T(0.9999 + 0.0002 * base(random) / 10), T(exponent(random) * 10000));
  }
  char text[300];
  std::snprintf(text, sizeof text, "pow of f%d: %.2f units in the last place at (%.17g, %.17g), bound %g",
                int(sizeof(T) * 8), worst, double(atX), double(atY), bound);
  if (std::getenv("VERBOSE"))
    std::printf("%s\n", text);
  expect(worst <= bound, text);
}

// What a GPU computes of an ordinary exponent is what exp gives.
void powersWithin() {
  HostArith<float> a;
  int64_t different = 0;
  for (uint32_t bits = 0; bitsAs<float>(bits) <= formulas::kWithin; bits += 97)
    for (float x : {bitsAs<float>(bits), -bitsAs<float>(bits), float(formulas::kWithin) - bitsAs<float>(bits)})
      different += bitsAs<uint32_t>(formulas::expWithin(a, x)) != bitsAs<uint32_t>(formulas::exp(a, x));
  expect(different == 0, "exp of ordinary exponents: " + std::to_string(different) + " differ");
}

// A GPU's powers of two and reciprocals, as far from the value as they may be.
struct Off : HostArith<float> {
  int units;
  explicit Off(int units) : units(units) {}
  float moved(float x, int by) const { return std::isnormal(x) ? bitsAs<float>(bitsAs<int32_t>(x) + by) : x; }
  float exp2(float x) { return moved(HostArith<float>::exp2(x), 2 * units); }
  float reciprocal(float x) { return moved(HostArith<float>::reciprocal(x), units); }
};

// How far what a GPU approximates is from the truth, as a share of it, where that is a normal number.
void approximations(int64_t count) {
  std::mt19937_64 random(5);
  auto within = [](const std::string &what, float got, long double truth, int bits) {
    if (std::fabs(truth) >= 0x1p-125L && std::fabs(truth) < 0x1p127L)
      expect(std::fabs(got - truth) <= std::ldexp(std::fabs(truth), -bits), what + " is " + std::to_string(got));
  };
  for (int units : {-1, 0, 1}) {
    Off a(units);
    for (double size : {1e-30, 0.01, 0.3, 1.0, 16.0, 87.0}) {
      std::uniform_real_distribution<float> draw(float(-size), float(size));
      const int bits = size > 16 ? 16 : 19;
      for (int64_t i = 0; i < count / 20; ++i) {
        const float x = draw(random), y = draw(random);
        const std::string of = " of " + std::to_string(x);
        within("exp" + of, formulas::approximate::exp(a, x), std::exp((long double)x), bits);
        within("sigmoid" + of, formulas::approximate::sigmoid(a, x), 1 / (1 + std::exp(-(long double)x)), bits);
        within("tanh" + of, formulas::approximate::tanh(a, x), std::tanh((long double)x), 19);
        within("a quotient" + of, formulas::approximate::div(a, x, y), (long double)x / y, 21);
      }
    }
    // Numbers of every size, subnormal ones and those beyond 2^126 too.
    for (int64_t i = 0; i < count; ++i) {
      const float x = bitsAs<float>(uint32_t(random())), y = bitsAs<float>(uint32_t(random()) & (i % 4 ? ~0u : ~0x7f000000u));
      if (std::isfinite(x) && std::isfinite(y) && y != 0)
        within("the quotient of " + std::to_string(x) + " and " + std::to_string(y), formulas::approximate::div(a, x, y), (long double)x / y, 21);
    }
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    expect(units != 0 ||
           (formulas::approximate::exp(a, inf) == inf && formulas::approximate::exp(a, -inf) == 0 && formulas::approximate::tanh(a, inf) == 1 &&
               formulas::approximate::tanh(a, -inf) == -1 && formulas::approximate::sigmoid(a, inf) == 1 && formulas::approximate::sigmoid(a, -inf) == 0 &&
               formulas::approximate::div(a, 1.0f, 0.0f) == inf && formulas::approximate::div(a, 1.0f, -inf) == 0 &&
               formulas::approximate::div(a, 0.0f, 0x1p-140f) == 0 && formulas::approximate::div(a, inf, 0x1p127f) == inf),
           "approximations of infinities");
    for (float x : {formulas::approximate::exp(a, nan), formulas::approximate::tanh(a, nan), formulas::approximate::sigmoid(a, nan),
                    formulas::approximate::div(a, 0.0f, 0.0f), formulas::approximate::div(a, inf, inf), formulas::approximate::div(a, nan, 1.0f)})
      expect(x != x, "approximations without a value");
  }
}

// y = f(x) over `cols` columns, or over rows one by one if scalar.
LoopSpec elementwise(LoopOp op, Elem elem, int64_t count, bool scalar) {
  LoopSpec spec;
  // As a chain of one column the elements are walked one at a time; the maximum keeps the walk a chain.
  (scalar ? spec.chain : spec.outer).push_back(count);
  LoopNode load;
  load.op = LoopOp::Load;
  load.elem = elem;
  load.view = {0, elem, 0, {1, 0}};
  LoopNode apply;
  apply.op = op;
  apply.elem = elem;
  apply.args = {0};
  spec.nodes = {load, apply};
  spec.stores.push_back({1, {1, elem, 0, {1, 0}}});
  if (scalar) {
    LoopNode chain;
    chain.op = LoopOp::ReduceChain;
    chain.elem = elem;
    chain.reduce = LoopReduce::Max;
    chain.args = {1};
    spec.nodes.push_back(chain);
    spec.stores.push_back({2, {2, elem, 0, {0, 0}}});
  }
  return spec;
}

template <class T> void compiled(const std::string &cpu) {
  Elem elem = sizeof(T) == 8 ? Elem::F64 : Elem::F32;
  test::KernelHarness harness(cpu);
  for (const Function &f : functions) {
    auto builder = harness.builder();
    buildLoop(builder, harness.module(), std::string(f.name) + "_v", elementwise(f.op, elem, 2999, false));
    buildLoop(builder, harness.module(), std::string(f.name) + "_s", elementwise(f.op, elem, 2999, true));
  }
  if (!harness.compile()) {
    expect(false, "compiles for " + cpu + ": " + harness.error());
    return;
  }
  for (const Function &f : functions) {
    std::vector<T> x = arguments<T>(f, 2999);
    x.resize(2999);
    for (const char *kind : {"_v", "_s"}) {
      test::Arena arena;
      arena.add(2999 * sizeof(T)), arena.add(2999 * sizeof(T)), arena.add(sizeof(T));
      std::copy(x.begin(), x.end(), arena.at<T>(0));
      int64_t context[kContextWords] = {};
      test::callKernel(harness.lookup(f.name + std::string(kind)), arena.data(), arena.offsetsOf(), context, 2);
      int64_t different = 0;
      T at = 0;
      for (int64_t i = 0; i < 2999; ++i) {
        T want;
        if constexpr (sizeof(T) == 4)
          want = f.single(x[i]);
        else
          want = f.twice(x[i]);
        T got = arena.at<T>(1)[i];
        if (std::memcmp(&got, &want, sizeof(T)) != 0 && !(got != got && want != want)) {
          ++different;
          at = x[i];
        }
      }
      expect(different == 0, std::string(f.name) + kind + " of f" + std::to_string(sizeof(T) * 8) + " on " + cpu +
                                 ": " + std::to_string(different) + " results differ from the host's, last at " +
                                 std::to_string(double(at)));
    }
  }
}

} // namespace

int main(int argc, char **argv) {
  int64_t count = argc > 1 ? std::atoll(argv[1]) : 60000;
  powersWithin();
  approximations(count);
  for (const Function &f : functions) {
    accuracy<float>(f, count, f.ulp32);
    accuracy<double>(f, count, f.ulp64);
  }
  accuracyOfPow<float>(count / 4, 0.51);
  accuracyOfPow<double>(count / 4, 12);
  for (const std::string &cpu : test::runnableCpus()) {
    compiled<float>(cpu);
    compiled<double>(cpu);
  }
  return tally();
}
