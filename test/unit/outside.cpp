// LINK: kernel_harness
//
// Convolutions whose tiles leave out what lies outside of the image, against chains that do not, bit for bit: with products so small that
// chains stand at -0.0, and with filters that hold infinities, where leaving a step out would change the result. Outputs, what goes back
// to images (taps walk backwards) and filters, many sizes of images, batches, threads, f32 and f64, every CPU kind this machine can run.
// Also those of few columns, whose lanes are places; there C may lie apart, as where one remainder of an image by a stride is given. And filters'
// gradients of convolutions in groups, whose tiles begin in the middle of a group.
//   outside [SEED [COUNT]]
#include "compiler/kernels/ContractPlan.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/Random.h"
#include "test/unit/Expect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace cinch;
using namespace cinch::kernels;
using test::Random, test::below;

namespace {

struct Conv {
  ContractSpec spec;
  int64_t elems[3];
  std::string text;
};

Conv convOf(Random &random, bool few) {
  enum { Output, Image, Filter };
  int kind = int(below(random, 3));
  int64_t sizes[] = {1, 2, 4, 8}, channels[] = {8, 16, 24, 64}, outputs[] = {5, 16, 48, 70}, batches[] = {1, 3, 8, 20};
  int64_t B = batches[below(random, 4)], H = sizes[below(random, 4)] + below(random, 3), W = sizes[below(random, 4)] + 4 * below(random, 3);
  int64_t I = channels[below(random, 4)], O = outputs[below(random, 4)], R = 1 + 2 * below(random, 2), S = 1 + 2 * below(random, 3);
  int64_t apart = 1;
  if (few) {
    int64_t fewChannels[] = {1, 3, 5, 8, 19}, fewOutputs[] = {1, 2, 3, 4, 7};
    I = fewChannels[below(random, 5)], O = fewOutputs[below(random, 5)];
    B = 1 + below(random, 3), W = 1 + below(random, 45), H = 1 + below(random, 20);
    apart = kind == Filter ? 1 : 1 + below(random, 2);
    if (kind == Filter) // few rows, many columns
      O = outputs[below(random, 4)], I = 1 + below(random, 4);
  }
  int64_t rowPad = R / 2, columnPad = S / 2, walk = kind == Image ? -1 : 1;
  Conv conv;
  ContractSpec &s = conv.spec;
  s.elem = below(random, 4) == 0 ? Elem::F64 : Elem::F32;
  s.accumulate = (few || kind == Filter) && below(random, 2) == 0;
  std::vector<int64_t> places{B, H, W}, taps{R, S, I};
  std::vector<int64_t> ofPlaces{H * W * I, W * I, I}, ofTaps{walk * W * I, walk * I, 1};
  auto join = [](std::vector<int64_t> x, const std::vector<int64_t> &y) {
    x.insert(x.end(), y.begin(), y.end());
    return x;
  };
  bool filter = kind == Filter;
  s.m = filter ? taps : places, s.k = filter ? places : taps, s.n = {O};
  s.a = {0, s.elem, -walk * (rowPad * W + columnPad) * I, filter ? join(ofTaps, ofPlaces) : join(ofPlaces, ofTaps)};
  s.b = {1, s.elem, 0, filter ? std::vector<int64_t>{H * W * O, W * O, O, 1} : std::vector<int64_t>{S * I * O, I * O, O, 1}};
  s.c = {2, s.elem, 0, filter ? std::vector<int64_t>{S * I * O, I * O, O, 1} : std::vector<int64_t>{H * W * O * apart, W * O * apart, O * apart, 1}};
  auto bound = [&](int64_t pad, int64_t size, std::vector<int64_t> place, std::vector<int64_t> tap) {
    s.bounds.push_back({-walk * pad, size, filter ? join(tap, place) : join(place, tap)});
  };
  if (rowPad)
    bound(rowPad, H, {0, 1, 0}, {walk, 0, 0});
  if (columnPad)
    bound(columnPad, W, {0, 0, 1}, {0, walk, 0});
  conv.elems[0] = B * H * W * I;
  conv.elems[filter ? 2 : 1] = R * S * I * O;
  conv.elems[filter ? 1 : 2] = B * H * W * O * apart;
  const char *names[] = {"output", "image", "filter"};
  conv.text = std::string(names[kind]) + (s.elem == Elem::F64 ? " f64" : " f32") + (s.accumulate ? " goes on" : "");
  for (int64_t size : {B, H, W, I, O, R, S, apart})
    conv.text += " " + std::to_string(size);
  return conv;
}

// A filter's gradient of a convolution in two groups.
ContractSpec groupsOf(int64_t in, int64_t out, int64_t size, int64_t taps) {
  constexpr int64_t kExamples = 2, kGroups = 2;
  const int64_t I = kGroups * in, O = kGroups * out, pad = taps / 2;
  ContractSpec s;
  s.batch = {kGroups}, s.m = {taps, taps, in}, s.n = {out}, s.k = {kExamples, size, size};
  s.a = {0, Elem::F32, -pad * (size + 1) * I, {in, size * I, I, 1, size * size * I, size * I, I}};
  s.b = {1, Elem::F32, 0, {out, size * size * O, size * O, O, 1}};
  s.c = {2, Elem::F32, 0, {out, taps * in * O, in * O, O, 1}};
  if (pad)
    s.bounds = {{-pad, size, {0, 1, 0, 0, 0, 1, 0}}, {-pad, size, {0, 0, 1, 0, 0, 0, 1}}};
  return s;
}

float chainOfGroups(const ContractSpec &s, const float *a, const float *b, int64_t group, int64_t row, int64_t column, int64_t channel, int64_t n) {
  float chain = 0;
  for (int64_t e = 0; e < s.k[0]; ++e)
    for (int64_t y = 0; y < s.k[1]; ++y)
      for (int64_t x = 0; x < s.k[2]; ++x) {
        const int64_t at[] = {group, row, column, channel, e, y, x};
        int64_t place = s.a.offset, inB = group * s.b.strides[0] + e * s.b.strides[1] + y * s.b.strides[2] + x * s.b.strides[3] + n;
        for (int i = 0; i < 7; ++i)
          place += at[i] * s.a.strides[i];
        bool inside = true;
        for (const Bound &bound : s.bounds) {
          int64_t where = bound.offset;
          for (int i = 0; i < 7; ++i)
            where += at[i] * bound.strides[i];
          inside = inside && where >= 0 && where < bound.size;
        }
        chain = std::fma(inside ? a[place] : 0.0f, b[inB], chain);
      }
  return chain;
}

// With each operand at the end of what can be read.
void checkGroups(const std::string &cpu) {
  Random random(7);
  TargetInfo target = target::infoOf(cpu);
  for (auto [in, out] : {std::pair<int64_t, int64_t>{40, 8}, {48, 8}, {56, 8}, {20, 4}, {24, 2}, {9, 4}})
    for (int64_t size : {1, 3, 8})
      for (int64_t taps : {1, 3}) {
        ContractSpec s = groupsOf(in, out, size, taps);
        test::KernelHarness harness(cpu);
        auto builder = harness.builder();
        buildContract(builder, harness.module(), "filter", s, target);
        std::string name = cpu + ", groups of " + std::to_string(in) + " and " + std::to_string(out) + ", image " + std::to_string(size) + ", taps " + std::to_string(taps);
        expect(harness.compile(), name + ": " + harness.error());
        test::KernelFunction function = harness.lookup("filter");
        for (int turn = 0; function && turn < 4; ++turn) {
          test::Arena arena;
          const int64_t elems[] = {2 * size * size * 2 * in, 2 * size * size * 2 * out, taps * taps * in * 2 * out};
          for (int64_t count : elems)
            arena.add(count * 4);
          if (int64_t perThread = scratchBytesPerThread(s, target))
            arena.add(perThread * 2);
          for (int buffer = 0; buffer < 2; ++buffer)
            for (int64_t i = 0; i < elems[buffer]; ++i)
              arena.at<float>(buffer)[i] = float(double(below(random, 2001) - 1000) * 1e-3);
          int64_t context[kContextWords] = {};
          test::callKernel(function, arena.data(), arena.offsetsOf(), context, 2);
          int64_t wrong = 0;
          for (int64_t g = 0; g < 2; ++g)
            for (int64_t r = 0; r < taps; ++r)
              for (int64_t c = 0; c < taps; ++c)
                for (int64_t i = 0; i < in; ++i)
                  for (int64_t n = 0; n < out; ++n) {
                    float expected = chainOfGroups(s, arena.at<float>(0), arena.at<float>(1), g, r, c, i, n);
                    float got = arena.at<float>(2)[g * out + ((r * taps + c) * in + i) * 2 * out + n];
                    wrong += std::memcmp(&expected, &got, 4) != 0;
                  }
          expect(wrong == 0 && arena.guardsIntact(), name + ": " + std::to_string(wrong) + " wrong");
        }
      }
}

// The chain of one output, over all of k, with +0.0 for what lies outside.
template <class T> void reference(const ContractSpec &s, const T *a, const T *b, T *c) {
  for (int64_t m0 = 0; m0 < s.m[0]; ++m0)
    for (int64_t m1 = 0; m1 < s.m[1]; ++m1)
      for (int64_t m2 = 0; m2 < s.m[2]; ++m2)
        for (int64_t n = 0; n < s.n[0]; ++n) {
          T &result = c[m0 * s.c.strides[0] + m1 * s.c.strides[1] + m2 * s.c.strides[2] + n];
          T chain = s.accumulate ? result : T(0);
          for (int64_t k0 = 0; k0 < s.k[0]; ++k0)
            for (int64_t k1 = 0; k1 < s.k[1]; ++k1)
              for (int64_t k2 = 0; k2 < s.k[2]; ++k2) {
                const int64_t at[] = {m0, m1, m2, k0, k1, k2};
                auto placeIn = [&](int64_t offset, const std::vector<int64_t> &strides) {
                  for (int i = 0; i < 6; ++i)
                    offset += at[i] * strides[i];
                  return offset;
                };
                bool inside = true;
                for (const Bound &bound : s.bounds) {
                  int64_t place = placeIn(bound.offset, bound.strides);
                  inside = inside && place >= 0 && place < bound.size;
                }
                T x = inside ? a[placeIn(s.a.offset, s.a.strides)] : T(0);
                chain = std::fma(x, b[k0 * s.b.strides[0] + k1 * s.b.strides[1] + k2 * s.b.strides[2] + n], chain);
              }
          result = chain;
        }
}

template <class T> void runCase(Random &random, const Conv &conv, const std::string &cpu, test::KernelFunction function, const TargetInfo &target) {
  enum { Usual, Tiny, Infinite };
  for (int values : {Usual, Tiny, Infinite}) {
    int threads = 1 + int(below(random, 4));
    test::Arena arena;
    for (int64_t elems : conv.elems)
      arena.add(elems * int64_t(sizeof(T)));
    int64_t perThread = scratchBytesPerThread(conv.spec, target);
    if (perThread > 0)
      arena.add(perThread * threads);
    T least = sizeof(T) == 8 ? T(1e-200) : T(1e-30); // a product of two is too small for any number
    for (int buffer = 0; buffer < 3; ++buffer)
      for (int64_t i = 0; i < conv.elems[buffer]; ++i) {
        T value = T(double(below(random, 2001) - 1000) * 1e-3);
        arena.at<T>(buffer)[i] = values == Tiny ? std::copysign(buffer < 2 ? least : T(0), value) : value;
      }
    if (values == Infinite)
      arena.at<T>(1)[below(random, conv.elems[1])] = T(below(random, 2) ? INFINITY : NAN);
    if (perThread > 0)
      for (int64_t i = 0; i < perThread * threads / int64_t(sizeof(T)); ++i)
        arena.at<T>(3)[i] = T(NAN); // what the arena held before must not matter
    std::vector<T> expected(arena.at<T>(2), arena.at<T>(2) + conv.elems[2]);
    reference(conv.spec, arena.at<T>(0), arena.at<T>(1), expected.data());
    int64_t context[kContextWords] = {};
    test::callKernel(function, arena.data(), arena.offsetsOf(), context, threads);
    int64_t wrong = 0;
    auto same = [](T x, T y) { return std::memcmp(&x, &y, sizeof(T)) == 0 || (x != x && y != y); };
    while (wrong < conv.elems[2] && same(expected[wrong], arena.at<T>(2)[wrong]))
      ++wrong;
    expect(wrong == conv.elems[2] && arena.guardsIntact(),
           cpu + ", " + conv.text + ", values " + std::to_string(values) + ", " + std::to_string(threads) + " threads: element " + std::to_string(wrong));
  }
}

void runAll(const std::string &cpu, uint64_t seed, int64_t count, bool few) {
  Random random(seed);
  TargetInfo target = target::infoOf(cpu);
  std::vector<Conv> convs;
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  int64_t leaveOut = 0, planar = 0, spares = 0;
  for (int64_t i = 0; i < count; ++i) {
    convs.push_back(convOf(random, few));
    planar += planContract(convs.back().spec, target).bands == Bands::Planar;
    leaveOut += planContract(convs.back().spec, target).skipsOutside();
    spares += planContract(convs.back().spec, target).sparesPlaces;
    buildContract(builder, harness.module(), "conv" + std::to_string(i), convs.back().spec, target);
  }
  expect(few || (leaveOut + spares) * 5 >= count, cpu + ": a fifth of the cases leave something out: " + std::to_string(leaveOut + spares));
  expect(few || spares * 10 >= count, cpu + ": filters' gradients of small images leave out places: " + std::to_string(spares));
  expect(!few || planar * 5 >= count, cpu + ": lanes are places in a fifth of the cases: " + std::to_string(planar));
  expect(harness.compile(), cpu + ": " + harness.error());
  for (int64_t i = 0; i < count; ++i) {
    test::KernelFunction function = harness.lookup("conv" + std::to_string(i));
    if (!function)
      continue;
    if (convs[i].spec.elem == Elem::F64)
      runCase<double>(random, convs[i], cpu, function, target);
    else
      runCase<float>(random, convs[i], cpu, function, target);
  }
}

} // namespace

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  int64_t count = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 40;
  for (const std::string &cpu : test::runnableCpus()) {
    for (bool few : {false, true})
      runAll(cpu, seed, count, few);
    checkGroups(cpu);
  }
  return tally();
}
