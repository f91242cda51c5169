// LINK: kernel_harness
//
// Convolutions by Winograd's minimal filtering: the kernels give the bits of a model that is written from the formulas, whatever the sizes, paddings,
// strides in memory, threads and CPUs, and in blocks of rows that begin in the middle of a tile. So do those of filters' gradients. And the sums are as
// exact as those of the definition.
//   winograd [SEED [COUNT]]
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/Random.h"
#include "test/unit/Expect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cinch;
using namespace cinch::kernels;
using test::Random, test::below;

namespace {

// The places [0, places) of an axis, whose windows begin at first + place on an image of so many; taps may walk backwards.
struct Axis {
  int64_t image, places, first;
  bool backwards;
};

struct Conv {
  int64_t examples, channels, columns;
  Axis rows, places;
  bool turned;          // neighbours in memory of the filter are channels of the image, not columns
  int64_t apartA, apartC; // elements from a channel to the next one
  Elem elem = Elem::F32;
  int64_t firstRow = 0, position = 0;
  bool movesRows = false;
  bool together = false; // the taps of a channel and a column are neighbours in memory, as in PyTorch's order

  int64_t elemsA() const { return examples * rows.image * places.image * channels * apartA; }
  int64_t elemsB() const { return 9 * channels * columns; }
  int64_t elemsC() const { return examples * rows.places * places.places * columns * apartC; }
  int64_t inA(int64_t e, int64_t h, int64_t w, int64_t c) const { return (((e * rows.image + h) * places.image + w) * channels + c) * apartA; }
  // Tap (r, s) in the order of the image's rows and columns.
  int64_t inB(int64_t r, int64_t s, int64_t c, int64_t n) const {
    r = rows.backwards ? 2 - r : r, s = places.backwards ? 2 - s : s;
    const int64_t tap = r * 3 + s, pair = turned ? n * channels + c : c * columns + n;
    return together ? pair * 9 + tap : tap * channels * columns + pair;
  }
  int64_t inC(int64_t e, int64_t p, int64_t q, int64_t n) const { return (((e * rows.places + p) * places.places + q) * columns + n) * apartC; }
  int64_t secondRow() const { return movesRows ? (position + firstRow) % 2 : firstRow; }

  ContractSpec spec() const {
    ContractSpec s;
    s.elem = elem, s.winograd = true, s.firstRow = firstRow, s.movesRows = movesRows;
    s.m = {examples, rows.places, places.places}, s.k = {3, 3, channels}, s.n = {columns};
    const int64_t rowA = places.image * channels * apartA, columnA = channels * apartA;
    const int64_t walkRow = rows.backwards ? -1 : 1, walkColumn = places.backwards ? -1 : 1;
    const int64_t row = rows.first + (rows.backwards ? 2 : 0), column = places.first + (places.backwards ? 2 : 0); // of the first tap
    auto stride = [](int64_t size, int64_t stride) { return size == 1 ? 0 : stride; };
    s.a = {0, elem, row * rowA + column * columnA,
           {stride(examples, rows.image * rowA), stride(rows.places, rowA), stride(places.places, columnA), walkRow * rowA, walkColumn * columnA, stride(channels, apartA)}};
    const int64_t tap = together ? 1 : channels * columns, pair = together ? 9 : 1;
    s.b = {1, elem, 0, {3 * tap, tap, stride(channels, pair * (turned ? 1 : columns)), stride(columns, pair * (turned ? channels : 1))}};
    s.c = {2, elem, 0,
           {stride(examples, rows.places * places.places * columns * apartC), stride(rows.places, places.places * columns * apartC),
            stride(places.places, columns * apartC), stride(columns, apartC)}};
    s.bounds = {{row, rows.image, {0, stride(rows.places, 1), 0, walkRow, 0, 0}}, {column, places.image, {0, 0, stride(places.places, 1), 0, walkColumn, 0}}};
    return s;
  }
  // The gradient of the filter, from the image and from that of the outputs.
  ContractSpec specOfFilter(bool accumulate) const {
    ContractSpec of = spec(), s;
    s.elem = elem, s.winograd = s.sumsPlaces = true, s.accumulate = accumulate;
    s.m = of.k, s.k = of.m, s.n = of.n;
    auto turned = [](const std::vector<int64_t> &strides) { // of A: taps and channels come first
      std::vector<int64_t> list(strides.begin() + 3, strides.end());
      list.insert(list.end(), strides.begin(), strides.begin() + 3);
      return list;
    };
    s.a = of.a, s.b = of.c, s.c = of.b;
    s.a.strides = turned(of.a.strides), s.b.buffer = 1, s.c.buffer = 2;
    for (const Bound &bound : of.bounds)
      s.bounds.push_back({bound.offset, bound.size, turned(bound.strides)});
    return s;
  }
  std::string text() const {
    std::string text = elem == Elem::F64 ? "f64" : "f32";
    for (int64_t number : {examples, channels, columns, rows.image, rows.places, rows.first, places.image, places.places, places.first, apartA, apartC, firstRow, position})
      text += " " + std::to_string(number);
    return text + (rows.backwards ? " backwards" : "") + (turned ? " turned" : "") + (together ? " together" : "") + (movesRows ? " moves" : "");
  }
};

// ---- The model -------------------------------------------------------------------------------------------------------------
template <class T> void alongAxis(const T d[4], T v[4]) { v[0] = d[0] - d[2], v[1] = d[1] + d[2], v[2] = d[2] - d[1], v[3] = d[1] - d[3]; }
template <class T> void ofTaps(const T g[3], T u[4]) {
  T outer = g[0] + g[2];
  u[0] = g[0], u[1] = (outer + g[1]) * T(0.5), u[2] = (outer - g[1]) * T(0.5), u[3] = g[2];
}
template <class T> T ofSums(const T m[4], int64_t output) { return output == 0 ? (m[0] + m[1]) + m[2] : (m[1] - m[2]) - m[3]; }

template <class T> T elementOf(const Conv &c, const T *a, int64_t e, int64_t h, int64_t w, int64_t channel) {
  return h < 0 || w < 0 || h >= c.rows.image || w >= c.places.image ? T(0) : a[c.inA(e, h, w, channel)];
}

template <class T> T modelOf(const Conv &c, const T *a, const T *b, int64_t e, int64_t p, int64_t q, int64_t n) {
  const int64_t row = (p + c.secondRow()) % 2, column = q % 2, top = c.rows.first + p - row, left = c.places.first + q - column;
  T sums[4][4] = {};
  for (int64_t channel = 0; channel < c.channels; ++channel) {
    T d[4][4], v[4][4], g[3][4], u[4][4];
    for (int64_t i = 0; i < 4; ++i) {
      T line[4];
      for (int64_t j = 0; j < 4; ++j)
        line[j] = elementOf(c, a, e, top + i, left + j, channel);
      alongAxis(line, d[i]);
    }
    for (int64_t r = 0; r < 3; ++r) {
      T taps[3];
      for (int64_t s = 0; s < 3; ++s)
        taps[s] = b[c.inB(r, s, channel, n)];
      ofTaps(taps, g[r]);
    }
    for (int64_t j = 0; j < 4; ++j) {
      T line[4] = {d[0][j], d[1][j], d[2][j], d[3][j]}, taps[3] = {g[0][j], g[1][j], g[2][j]}, ofLine[4], ofColumn[4];
      alongAxis(line, ofLine);
      ofTaps(taps, ofColumn);
      for (int64_t i = 0; i < 4; ++i)
        v[i][j] = ofLine[i], u[i][j] = ofColumn[i];
    }
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j)
        sums[i][j] = std::fma(v[i][j], u[i][j], sums[i][j]);
  }
  T line[4];
  for (int64_t i = 0; i < 4; ++i)
    line[i] = ofSums(sums[i], column);
  return ofSums(line, row);
}

// All nine taps of the filter's gradient, of a channel and a column. `sums`: what there is before.
template <class T> void filterOf(const Conv &c, const T *a, const T *dy, int64_t channel, int64_t n, T sums[3][3]) {
  const int64_t columns = (c.places.places + 1) / 2, rows = (c.rows.places + 1) / 2, together = std::max<int64_t>(1, (16 + columns - 1) / columns);
  auto gradient = [&](int64_t e, int64_t p, int64_t q) { return p < c.rows.places && q < c.places.places ? dy[c.inC(e, p, q, n)] : T(0); };
  auto ofGradients = [](T y0, T y1, T z[4]) { z[0] = y0, z[1] = y0 + y1, z[2] = y0 - y1, z[3] = -y1; };
  auto tapsOf = [](const T m[4], T g[3]) {
    T inner = (m[1] + m[2]) * T(0.5);
    g[0] = m[0] + inner, g[1] = (m[1] - m[2]) * T(0.5), g[2] = inner + m[3];
  };
  for (int64_t e = 0; e < c.examples; ++e)
    for (int64_t first = 0; first < rows; first += together) {
      T m[4][4] = {}, g[4][3];
      for (int64_t row = first; row < std::min(rows, first + together); ++row)
        for (int64_t column = 0; column < columns; ++column) {
          T v[4][4], z[2][4], d[4][4];
          for (int64_t i = 0; i < 4; ++i) {
            T line[4];
            for (int64_t j = 0; j < 4; ++j)
              line[j] = elementOf(c, a, e, c.rows.first + 2 * row + i, c.places.first + 2 * column + j, channel);
            alongAxis(line, d[i]);
          }
          for (int64_t i = 0; i < 2; ++i)
            ofGradients(gradient(e, 2 * row + i, 2 * column), gradient(e, 2 * row + i, 2 * column + 1), z[i]);
          for (int64_t j = 0; j < 4; ++j) {
            T line[4] = {d[0][j], d[1][j], d[2][j], d[3][j]}, ofLine[4], ofColumn[4];
            alongAxis(line, ofLine);
            ofGradients(z[0][j], z[1][j], ofColumn);
            for (int64_t i = 0; i < 4; ++i)
              v[i][j] = ofLine[i], m[i][j] = std::fma(v[i][j], ofColumn[i], m[i][j]);
          }
        }
      for (int64_t i = 0; i < 4; ++i)
        tapsOf(m[i], g[i]);
      for (int64_t s = 0; s < 3; ++s) {
        T line[4] = {g[0][s], g[1][s], g[2][s], g[3][s]}, taps[3];
        tapsOf(line, taps);
        for (int64_t r = 0; r < 3; ++r)
          sums[r][s] = sums[r][s] + taps[r];
      }
    }
}

template <class T, class Given> T directFilterOf(const Conv &c, const Given *a, const Given *dy, int64_t r, int64_t s, int64_t channel, int64_t n) {
  T chain = 0;
  for (int64_t e = 0; e < c.examples; ++e)
    for (int64_t p = 0; p < c.rows.places; ++p)
      for (int64_t q = 0; q < c.places.places; ++q)
        chain = std::fma(T(elementOf(c, a, e, c.rows.first + p + r, c.places.first + q + s, channel)), T(dy[c.inC(e, p, q, n)]), chain);
  return chain;
}

// The definition, in T.
template <class T, class Given> T directOf(const Conv &c, const Given *a, const Given *b, int64_t e, int64_t p, int64_t q, int64_t n) {
  T chain = 0;
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t channel = 0; channel < c.channels; ++channel)
        chain = std::fma(T(elementOf(c, a, e, c.rows.first + p + r, c.places.first + q + s, channel)), T(b[c.inB(r, s, channel, n)]), chain);
  return chain;
}

// ---- Checks ----------------------------------------------------------------------------------------------------------------
template <class T> void fill(Random &random, T *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = T(double(below(random, 20001)) - 10000) * T(1e-4);
}

test::KernelFunction kernelOf(test::KernelHarness &harness, const ContractSpec &spec, const TargetInfo &target, const std::string &name) {
  auto builder = harness.builder();
  buildContract(builder, harness.module(), "conv", spec, target);
  const bool compiles = harness.compile();
  expect(compiles, name + ": " + harness.error());
  return compiles ? harness.lookup("conv") : nullptr;
}

template <class T> void check(const Conv &conv, const std::string &cpu, Random &random) {
  const std::string name = cpu + " " + conv.text();
  TargetInfo target = target::infoOf(cpu);
  ContractSpec spec = conv.spec();
  test::KernelHarness harness(cpu);
  test::KernelFunction function = kernelOf(harness, spec, target, name);
  for (int64_t threads : {1, 2, 5}) {
    test::Arena arena;
    for (int64_t count : {conv.elemsA(), conv.elemsB(), conv.elemsC()})
      arena.add(count * int64_t(sizeof(T)));
    arena.add(scratchBytesPerThread(spec, target) * threads);
    if (!function)
      return;
    fill(random, arena.at<T>(0), conv.elemsA()), fill(random, arena.at<T>(1), conv.elemsB());
    int64_t context[kContextWords] = {};
    context[kFirstPosition] = conv.position;
    test::callKernel(function, arena.data(), arena.offsetsOf(), context, threads);
    expect(arena.guardsIntact(), name + ": wrote outside of its buffers");
    int64_t wrong = 0;
    for (int64_t e = 0; e < conv.examples; ++e)
      for (int64_t p = 0; p < conv.rows.places; ++p)
        for (int64_t q = 0; q < conv.places.places; ++q)
          for (int64_t n = 0; n < conv.columns; ++n) {
            T want = modelOf(conv, arena.at<T>(0), arena.at<T>(1), e, p, q, n);
            wrong += std::memcmp(&want, arena.at<T>(2) + conv.inC(e, p, q, n), sizeof(T)) != 0;
          }
    expect(wrong == 0, name + ", " + std::to_string(threads) + " threads: " + std::to_string(wrong) + " elements have other bits than the model");
  }
}

template <class T> void checkFilter(const Conv &conv, bool accumulate, const std::string &cpu, Random &random) {
  const std::string name = cpu + " filter of " + conv.text() + (accumulate ? " on" : "");
  TargetInfo target = target::infoOf(cpu);
  ContractSpec spec = conv.specOfFilter(accumulate);
  test::KernelHarness harness(cpu);
  test::KernelFunction function = kernelOf(harness, spec, target, name);
  for (int64_t threads : {1, 2, 5}) {
    test::Arena arena;
    for (int64_t count : {conv.elemsA(), conv.elemsC(), conv.elemsB()})
      arena.add(count * int64_t(sizeof(T)));
    arena.add(scratchBytesPerThread(spec, target) * threads);
    if (!function)
      return;
    fill(random, arena.at<T>(0), conv.elemsA()), fill(random, arena.at<T>(1), conv.elemsC());
    fill(random, arena.at<T>(2), conv.elemsB());
    std::vector<T> before(arena.at<T>(2), arena.at<T>(2) + conv.elemsB());
    int64_t context[kContextWords] = {};
    test::callKernel(function, arena.data(), arena.offsetsOf(), context, threads);
    expect(arena.guardsIntact(), name + ": wrote outside of its buffers");
    int64_t wrong = 0;
    for (int64_t channel = 0; channel < conv.channels; ++channel)
      for (int64_t n = 0; n < conv.columns; ++n) {
        T want[3][3];
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t s = 0; s < 3; ++s)
            want[r][s] = accumulate ? before[size_t(conv.inB(r, s, channel, n))] : T(0);
        filterOf(conv, arena.at<T>(0), arena.at<T>(1), channel, n, want);
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t s = 0; s < 3; ++s)
            wrong += std::memcmp(&want[r][s], arena.at<T>(2) + conv.inB(r, s, channel, n), sizeof(T)) != 0;
      }
    expect(wrong == 0, name + ", " + std::to_string(threads) + " threads: " + std::to_string(wrong) + " elements have other bits than the model");
  }
}

Axis axisOf(Random &random, int64_t most) {
  Axis axis{1 + int64_t(below(random, most)), 0, -int64_t(below(random, 3)), false};
  axis.places = std::max<int64_t>(2, axis.image - 2 * axis.first - 2) - int64_t(below(random, 2));
  return axis;
}

Conv convOf(Random &random) {
  const int64_t channels[] = {1, 3, 16, 17, 40}, columns[] = {1, 5, 16, 33, 48, 70};
  Conv conv;
  conv.examples = 1 + below(random, 3), conv.channels = channels[below(random, 5)], conv.columns = columns[below(random, 6)];
  conv.rows = axisOf(random, 9), conv.places = axisOf(random, 14);
  conv.rows.backwards = conv.places.backwards = conv.turned = below(random, 2);
  conv.together = below(random, 2);
  conv.apartA = below(random, 5) == 0 ? 2 : 1, conv.apartC = below(random, 5) == 0 ? 3 : 1;
  conv.elem = below(random, 4) == 0 ? Elem::F64 : Elem::F32;
  conv.firstRow = below(random, 2), conv.movesRows = below(random, 3) == 0, conv.position = int64_t(below(random, 4));
  return conv;
}

void expectAsExact(const std::string &name, double ours, double direct) { // sums of squares
  const double ratio = std::sqrt(ours / direct);
  std::printf("%s: %.2f times the error of a chain by the definition\n", name.c_str(), ratio);
  expect(ratio < 1.25, name + ": the sums are less exact than those of the definition");
}

// Beside chains of the definition, both in f32, measured from it in f64: root mean squares.
void checkErrors(int64_t channels, Random &random) {
  Conv conv{2, channels, 32, {12, 12, -1, false}, {12, 12, -1, false}, false, 1, 1};
  std::vector<float> a(size_t(conv.elemsA())), b(size_t(conv.elemsB()));
  fill(random, a.data(), conv.elemsA()), fill(random, b.data(), conv.elemsB());
  double ours = 0, direct = 0;
  for (int64_t e = 0; e < conv.examples; ++e)
    for (int64_t p = 0; p < conv.rows.places; ++p)
      for (int64_t q = 0; q < conv.places.places; ++q)
        for (int64_t n = 0; n < conv.columns; ++n) {
          double exact = directOf<double>(conv, a.data(), b.data(), e, p, q, n);
          ours += std::pow(double(modelOf(conv, a.data(), b.data(), e, p, q, n)) - exact, 2);
          direct += std::pow(double(directOf<float>(conv, a.data(), b.data(), e, p, q, n)) - exact, 2);
        }
  expectAsExact(std::to_string(channels) + " channels, outputs", ours, direct);
}

// The same of filters' gradients, of images so large.
void checkErrorsOfFilter(int64_t size, Random &random) {
  Conv conv{4, 8, 8, {size, size, -1, false}, {size, size, -1, false}, false, 1, 1};
  std::vector<float> a(size_t(conv.elemsA())), dy(size_t(conv.elemsC()));
  fill(random, a.data(), conv.elemsA()), fill(random, dy.data(), conv.elemsC());
  double ours = 0, direct = 0;
  for (int64_t channel = 0; channel < conv.channels; ++channel)
    for (int64_t n = 0; n < conv.columns; ++n) {
      float sums[3][3] = {};
      filterOf(conv, a.data(), dy.data(), channel, n, sums);
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t s = 0; s < 3; ++s) {
          double exact = directFilterOf<double>(conv, a.data(), dy.data(), r, s, channel, n);
          ours += std::pow(double(sums[r][s]) - exact, 2);
          direct += std::pow(double(directFilterOf<float>(conv, a.data(), dy.data(), r, s, channel, n)) - exact, 2);
        }
    }
  expectAsExact("images of " + std::to_string(size) + " x " + std::to_string(size) + ", filters", ours, direct);
}

} // namespace

int main(int argc, char **argv) {
  Random random(argc > 1 ? uint64_t(std::atoll(argv[1])) : 1);
  const int count = argc > 2 ? std::atoi(argv[2]) : 60;
  for (int64_t channels : {16, 64, 256})
    checkErrors(channels, random);
  for (int64_t size : {8, 16, 32})
    checkErrorsOfFilter(size, random);
  const std::vector<std::string> cpus = test::runnableCpus();
  for (int i = 0; i < count; ++i) {
    Conv conv = convOf(random);
    const std::string &cpu = cpus[size_t(i) % cpus.size()];
    conv.elem == Elem::F64 ? check<double>(conv, cpu, random) : check<float>(conv, cpu, random);
    conv.rows.backwards = conv.places.backwards = false, conv.firstRow = conv.position = 0, conv.movesRows = false;
    const bool accumulate = below(random, 2);
    conv.elem == Elem::F64 ? checkFilter<double>(conv, accumulate, cpu, random) : checkFilter<float>(conv, accumulate, cpu, random);
  }
  return tally();
}
