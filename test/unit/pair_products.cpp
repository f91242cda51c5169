// LINK: kernel_harness
//
// Products of bf16 against a model of AMX's tdpbf16ps, bit for bit: blocks of 32 filled up with pairs of (-0.0, +0.0), on every CPU kind
// this machine can run. Random groups of dims and layouts, operands in bf16 and f32, subnormal numbers, zeros of both signs, infinities,
// blocks anew at each example, grains, accumulation, results in bf16, threads. Every third case is a convolution: what it gives, what goes
// back to its image (taps walk backwards) or to its filter, with padding, strides and dilation. Every seventh is a dense layer's weight gradient, whose
// blocks have one element, with numbers at the bounds between which it is one chain, every seventh has a B of words, and
// every seventh few rows.
//   pair_products [SEED [COUNT]]
#include "compiler/kernels/HostOps.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/Random.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cinch;
using kernels::ContractSpec;
using kernels::Elem;
using kernels::View;
using test::Random, test::below;
using Sizes = std::vector<int64_t>;

static int passed = 0, failures = 0;

// ---- The model ------------------------------------------------------------------------------------------------------
static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
static float fused(float a, float b, float c) { return flushed(std::fmaf(flushed(a), flushed(b), flushed(c))); }
static float sum(float a, float b) { return flushed(flushed(a) + flushed(b)); }

// One element of a tile: 16 pairs of bf16.
static float tile(float c, const float (&a)[32], const float (&b)[32]) {
  float even = 0, odd = 0;
  for (int i = 0; i < 32; i += 2) {
    even = fused(a[i], b[i], even);
    odd = fused(a[i + 1], b[i + 1], odd);
  }
  return sum(c, sum(even, odd));
}

static float product(float c, const std::vector<float> &a, const std::vector<float> &b) {
  for (size_t at = 0; at < a.size(); at += 32) {
    float x[32], y[32];
    for (size_t i = 0; i < 32; ++i) {
      bool there = at + i < a.size();
      x[i] = there ? a[at + i] : -0.0f;
      y[i] = there ? b[at + i] : 0.0f;
    }
    c = tile(c, x, y);
  }
  return c;
}

// ---- Cases ----------------------------------------------------------------------------------------------------------
struct Case {
  ContractSpec spec;
  int64_t elems[3] = {};
  std::string text;
};

static Sizes joined(std::initializer_list<Sizes> lists) {
  Sizes all;
  for (const Sizes &list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

static std::string textOf(const Sizes &values) {
  std::string text = "[";
  for (int64_t value : values)
    text += (text.size() > 1 ? " " : "") + std::to_string(value);
  return text + "]";
}

// Dims in a random order, sometimes with gaps.
static View layout(Random &random, const Sizes &sizes, int buffer, Elem elem, bool plain, int64_t &elems) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  if (!plain)
    std::shuffle(order.begin(), order.end(), random);
  View view{buffer, elem, below(random, 3) ? 0 : below(random, 40), Sizes(sizes.size(), 0)};
  int64_t stride = 1;
  elems = view.offset + 1;
  for (size_t at = order.size(); at-- > 0;) {
    view.strides[order[at]] = stride;
    elems += stride * (sizes[order[at]] - 1);
    stride *= sizes[order[at]];
    if (below(random, 4) == 0)
      stride += below(random, 9);
  }
  return view;
}

static Sizes dims(Random &random, int64_t count, int64_t most) {
  Sizes sizes;
  for (int64_t i = 0; i < count; ++i)
    sizes.push_back(1 + below(random, i ? std::min<int64_t>(most, 3) : most));
  std::shuffle(sizes.begin(), sizes.end(), random);
  return sizes;
}

static Case randomCase(Random &random, int64_t number) {
  Case c;
  ContractSpec &s = c.spec;
  s.pairs = true;
  s.batch = dims(random, below(random, 4) == 0, 4);
  s.m = dims(random, 1 + below(random, 2), 30);
  s.n = dims(random, 1 + below(random, 2), 60);
  s.k = dims(random, 1 + below(random, 3), number % 5 == 0 ? 1300 : 100);
  s.anew = below(random, 2);
  s.accumulate = below(random, 2);
  if (s.accumulate && below(random, 2)) {
    s.anew = 0;
    for (s.grain = 1 + below(random, s.k[0]); s.k[0] % s.grain;)
      --s.grain;
  }
  bool plain = below(random, 3) == 0, narrow = !s.accumulate && below(random, 2);
  auto either = [&] { return below(random, 3) ? Elem::BF16 : Elem::F32; };
  s.a = layout(random, joined({s.batch, s.m, s.k}), 0, either(), plain, c.elems[0]);
  s.b = layout(random, joined({s.batch, s.k, s.n}), 1, either(), plain, c.elems[1]);
  s.c = layout(random, joined({s.batch, s.m, s.n}), 2, narrow ? Elem::BF16 : Elem::F32, plain, c.elems[2]);
  c.text = "batch " + textOf(s.batch) + " m " + textOf(s.m) + " n " + textOf(s.n) + " k " + textOf(s.k) + " anew " +
           std::to_string(s.anew) + " grain " + std::to_string(s.grain) + (s.accumulate ? " accumulate" : "") +
           (s.a.elem == Elem::F32 ? " a f32" : "") + (s.b.elem == Elem::F32 ? " b f32" : "") + (narrow ? " c bf16" : "") + " a " +
           textOf(s.a.strides) + " b " + textOf(s.b.strides) + " c " + textOf(s.c.strides);
  return c;
}

static Case randomDense(Random &random) {
  Case c;
  ContractSpec &s = c.spec;
  s.pairs = true;
  s.accumulate = below(random, 2);
  int64_t K = 1 + below(random, 90), M = 1 + below(random, 60), N = 1 + below(random, 90);
  s.k = {K}, s.m = {M}, s.n = {N}, s.anew = 1;
  auto elem = [&] { return below(random, 4) ? Elem::BF16 : Elem::F32; };
  s.a = {0, elem(), 0, {1, M}}, s.b = {1, elem(), 0, {N, 1}}, s.c = {2, Elem::F32, 0, {N, 1}};
  c.elems[0] = K * M, c.elems[1] = K * N, c.elems[2] = M * N;
  c.text = "dense K M N " + textOf({K, M, N}) + (s.accumulate ? " accumulate" : "");
  return c;
}

// B holds words of two neighbours in k, which AMX reads in place if blocks and squares are whole.
static Case randomWords(Random &random) {
  Case c;
  ContractSpec &s = c.spec;
  s.pairs = true;
  int64_t pairs = below(random, 4) ? 16 * (1 + below(random, 40)) : 1 + below(random, 90), N = below(random, 4) ? 16 * (1 + below(random, 9)) : 1 + below(random, 90);
  int64_t M = 1 + below(random, 70), step = 1 + (below(random, 4) == 0), row = 2 * pairs * step + below(random, 40), pitch = 2 * N + below(random, 2) * below(random, 40);
  s.m = {M}, s.n = {N}, s.k = {pairs, 2};
  s.accumulate = below(random, 3) == 0;
  if (s.accumulate && below(random, 2))
    for (s.grain = 1 + below(random, pairs); pairs % s.grain;)
      --s.grain;
  bool narrow = !s.accumulate && below(random, 2);
  s.a = {0, below(random, 3) ? Elem::BF16 : Elem::F32, below(random, 40), {row, 2 * step, step}};
  s.b = {1, below(random, 6) ? Elem::BF16 : Elem::F32, below(random, 40), {pitch, 1, 2}};
  s.c = {2, narrow ? Elem::BF16 : Elem::F32, 0, {N, 1}};
  c.elems[0] = s.a.offset + M * row + 2 * pairs * step, c.elems[1] = s.b.offset + pairs * pitch, c.elems[2] = M * N;
  c.text = "words M N K step row pitch grain " + textOf({M, N, 2 * pairs, step, row, pitch, s.grain}) + (s.accumulate ? " accumulate" : "") +
           (s.a.elem == Elem::F32 ? " a f32" : "") + (s.b.elem == Elem::F32 ? " b f32" : "") + (narrow ? " c bf16" : "");
  return c;
}

// Few rows over rows of bf16, of which vdpbf16ps takes words from where they lie if groups and vectors are whole.
static Case randomFewRows(Random &random) {
  Case c;
  ContractSpec &s = c.spec;
  s.pairs = true;
  const int64_t M = 1 + below(random, 18), K = below(random, 8) ? 4 * (1 + below(random, 300)) : 1 + below(random, 300);
  const int64_t N = below(random, 8) ? 16 * (1 + below(random, 12)) : 1 + below(random, 200), row = K + below(random, 3), pitch = N + below(random, 2) * below(random, 40);
  s.m = {M}, s.n = {N}, s.k = {K};
  s.accumulate = below(random, 3) == 0;
  const bool narrow = !s.accumulate && below(random, 2);
  s.a = {0, below(random, 3) ? Elem::BF16 : Elem::F32, below(random, 40), {row, 1}};
  s.b = {1, below(random, 6) ? Elem::BF16 : Elem::F32, below(random, 40), {pitch, 1}};
  s.c = {2, narrow ? Elem::BF16 : Elem::F32, 0, {N, 1}};
  c.elems[0] = s.a.offset + M * row, c.elems[1] = s.b.offset + K * pitch, c.elems[2] = M * N;
  c.text = "few rows M N K row pitch " + textOf({M, N, K, row, pitch}) + (s.accumulate ? " accumulate" : "") + (s.a.elem == Elem::F32 ? " a f32" : "") +
           (s.b.elem == Elem::F32 ? " b f32" : "") + (narrow ? " c bf16" : "");
  return c;
}

// Images lie as [example][row][column][channel]. What lies outside of one is +0.0.
static Case randomConvolution(Random &random) {
  enum { Output, Image, Filter };
  Case c;
  ContractSpec &s = c.spec;
  s.pairs = true;
  auto oneOf = [&](std::initializer_list<int64_t> values) { return values.begin()[below(random, int64_t(values.size()))]; };
  int kind = int(below(random, 3));
  int64_t B = oneOf({1, 2, 3}), H = oneOf({1, 3, 8, 12}), W = oneOf({4, 8, 9, 16, 20, 32, 40, 64}), I = oneOf({1, 3, 4, 8, 12, 16, 20, 32, 36, 64}), O = oneOf({1, 5, 16, 20, 40});
  int64_t R = oneOf({1, 2, 3}), S = oneOf({1, 2, 3, 5}), step = kind == Image ? 1 : oneOf({1, 1, 2}), dilate = oneOf({1, 1, 2});
  int64_t rowPad = below(random, (R - 1) * dilate + 1), columnPad = below(random, (S - 1) * dilate + 1), walk = kind == Image ? -dilate : dilate;
  int64_t gap = below(random, 3) ? 0 : 4 * below(random, 3); // between pixels of the image
  int64_t height = (H - 1) * step + 1, width = (W - 1) * step + 1, pixel = I + gap, row = width * pixel;
  Sizes places{B, H, W}, taps{R, S, I}, ofPlaces{height * row, step * row, step * pixel}, ofTaps{walk * row, walk * pixel, 1};
  bool filter = kind == Filter, narrow = !filter && below(random, 4);
  int64_t sign = walk < 0 ? -1 : 1;
  s.m = filter ? taps : places, s.k = filter ? places : taps, s.n = {O};
  // Blocks begin anew at each example, at each row of taps or at each tap.
  s.anew = filter ? 1 : 1 + below(random, 2);
  s.accumulate = filter && below(random, 2);
  auto elem = [&] { return below(random, 3) ? Elem::BF16 : Elem::F32; };
  s.a = {0, elem(), -sign * (rowPad * row + columnPad * pixel), filter ? joined({ofTaps, ofPlaces}) : joined({ofPlaces, ofTaps})};
  Sizes ofFilter{S * I * O, I * O, O, 1}, ofOutput{H * W * O, W * O, O, 1};
  s.b = {1, elem(), 0, filter ? ofOutput : ofFilter};
  s.c = {2, narrow ? Elem::BF16 : Elem::F32, 0, filter ? ofFilter : ofOutput};
  auto bound = [&](int64_t pad, int64_t size, Sizes place, Sizes tap) {
    s.bounds.push_back({-sign * pad, size, filter ? joined({tap, place}) : joined({place, tap})});
  };
  bound(rowPad, height, {0, step, 0}, {walk, 0, 0});
  bound(columnPad, width, {0, 0, step}, {0, walk, 0});
  c.elems[0] = B * height * row, c.elems[filter ? 2 : 1] = R * S * I * O, c.elems[filter ? 1 : 2] = B * H * W * O;
  c.text = std::string(kind == Output ? "output" : kind == Image ? "image" : "filter") + (s.accumulate ? " accumulate" : "") + (narrow ? " c bf16" : "") +
           (s.a.elem == Elem::F32 ? " a f32" : "") + " B H W I O R S step walk pads gap anew " +
           textOf({B, H, W, I, O, R, S, step, walk, rowPad, columnPad, gap, s.anew});
  return c;
}

// ---- Running --------------------------------------------------------------------------------------------------------
static float number(Random &random, int range) {
  static const float special[] = {0.0f, -0.0f, 1e-39f, -1e-39f, 1.2e-38f, -3e38f, INFINITY};
  if (range == 2 && below(random, 20) == 0)
    return special[below(random, 7 - (below(random, 40) > 0))];
  float x = float(below(random, 2000001) - 1000000) * 1e-6f;
  if (range == 3) // products are around 2^-112 and sums around 2^-103, or products around 2^128
    return below(random, 9) == 0 ? 0.0f : std::ldexp(x, int(below(random, 2) ? -50 - below(random, 8) : below(random, 40) ? -40 : 64));
  return range == 1 ? x * 2e-19f : x; // products of such are around the smallest normal number
}

static float read(const char *at, Elem elem, int64_t i) {
  float value = 0;
  if (elem == Elem::F32)
    std::memcpy(&value, at + 4 * i, 4);
  else
    std::memcpy(reinterpret_cast<char *>(&value) + 2, at + 2 * i, 2);
  return value;
}
static void write(char *at, Elem elem, int64_t i, float value) {
  if (elem == Elem::F32)
    std::memcpy(at + 4 * i, &value, 4);
  else {
    value = kernels::host::roundedToBF16(value);
    std::memcpy(at + 2 * i, reinterpret_cast<char *>(&value) + 2, 2);
  }
}

template <class Body> static void walk(const Sizes &sizes, Sizes &at, size_t dim, Body body) {
  if (dim == sizes.size())
    return body();
  for (at[dim] = 0; at[dim] < sizes[dim]; ++at[dim])
    walk(sizes, at, dim + 1, body);
}

static int64_t place(const View &view, std::initializer_list<Sizes> index) {
  Sizes at = joined(index);
  int64_t result = view.offset;
  for (size_t i = 0; i < at.size(); ++i)
    result += at[i] * view.strides[i];
  return result;
}

static void reference(const ContractSpec &s, const char *a, const char *b, char *c) {
  Sizes batch(s.batch.size()), m(s.m.size()), n(s.n.size()), k(s.k.size());
  walk(s.batch, batch, 0, [&] { walk(s.m, m, 0, [&] { walk(s.n, n, 0, [&] {
    int64_t at = place(s.c, {batch, m, n});
    float total = s.accumulate && !s.grain ? read(c, s.c.elem, at) : 0, block = 0;
    std::vector<float> x, y;
    int64_t steps = 0, length = 1; // of a run
    for (size_t i = 0; i < k.size(); ++i)
      length *= i < size_t(s.anew) ? 1 : i == 0 && s.grain ? s.grain : s.k[i];
    walk(s.k, k, 0, [&] {
      bool there = llvm::all_of(s.bounds, [&](const kernels::Bound &bound) {
        Sizes at = joined({batch, m, k});
        int64_t inside = bound.offset;
        for (size_t i = 0; i < at.size(); ++i)
          inside += at[i] * bound.strides[i];
        return inside >= 0 && inside < bound.size;
      });
      x.push_back(there ? kernels::host::roundedToBF16(read(a, s.a.elem, place(s.a, {batch, m, k}))) : 0.0f);
      y.push_back(kernels::host::roundedToBF16(read(b, s.b.elem, place(s.b, {batch, k, n}))));
      if (++steps % length)
        return;
      if (s.grain)
        block = sum(read(c, s.c.elem, at), product(0, x, y)), write(c, s.c.elem, at, block);
      else
        total = product(total, x, y);
      x.clear(), y.clear();
    });
    if (!s.grain)
      write(c, s.c.elem, at, total);
  }); }); });
}

static void run(Random &random, const Case &c, const std::string &cpu, test::KernelFunction function,
                const kernels::TargetInfo &target) {
  const ContractSpec &s = c.spec;
  const View *views[] = {&s.a, &s.b, &s.c};
  for (int threads : {1, 2, 5}) {
    test::Arena arena;
    for (int i = 0; i < 3; ++i)
      arena.add(c.elems[i] * kernels::bytesOf(views[i]->elem));
    if (int64_t each = kernels::scratchBytesPerThread(s, target)) {
      arena.add(each * threads);
      std::memset(arena.at<char>(3), 0xff, size_t(each * threads));
    }
    int range = int(below(random, 4));
    for (int i = 0; i < 3; ++i)
      for (int64_t e = 0; e < c.elems[i]; ++e)
        write(arena.at<char>(i), views[i]->elem, e, number(random, i == 2 && range == 2 ? 0 : range) * (i == 2 && range == 3 ? 0x1p-48f : 1.0f));
    std::vector<char> expected(arena.at<char>(2), arena.at<char>(2) + c.elems[2] * kernels::bytesOf(s.c.elem));
    reference(s, arena.at<char>(0), arena.at<char>(1), expected.data());
    int64_t context[kernels::kContextWords] = {};
    test::callKernel(function, arena.data(), arena.offsetsOf(), context, threads);
    int64_t wrong = 0;
    auto same = [&](int64_t i) {
      float x = read(expected.data(), s.c.elem, i), y = read(arena.at<char>(2), s.c.elem, i);
      return std::memcmp(&x, &y, 4) == 0 || (x != x && y != y);
    };
    while (wrong < c.elems[2] && same(wrong))
      ++wrong;
    bool good = wrong == c.elems[2] && arena.guardsIntact();
    good ? ++passed : ++failures;
    if (!good)
      std::printf("FAILED: %s, %d threads, range %d, %s: element %lld is %a, expected %a\n", cpu.c_str(), threads, range, c.text.c_str(),
                  (long long)wrong, wrong < c.elems[2] ? read(arena.at<char>(2), s.c.elem, wrong) : 0,
                  wrong < c.elems[2] ? read(expected.data(), s.c.elem, wrong) : 0);
  }
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  int64_t count = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 32;
  for (const std::string &cpu : test::runnableCpus()) {
    Random random(seed);
    kernels::TargetInfo builtIn = target::infoOf(cpu);
    std::vector<Case> cases;
    std::vector<kernels::TargetInfo> targets; // every other case with tiles and blocks of chance
    for (int64_t i = 0; i < count; ++i)
      cases.push_back(i % 7 == 3 ? randomDense(random) : i % 7 == 5 ? randomWords(random) : i % 7 == 1 ? randomFewRows(random) : i % 3 == 2 ? randomConvolution(random) : randomCase(random, i)), targets.push_back(i % 2 ? test::withRandomTiling(cases.back().spec, builtIn, random()) : builtIn);
    for (size_t first = 0; first < cases.size(); first += 16) {
      size_t last = std::min(cases.size(), first + 16);
      test::KernelHarness harness(cpu);
      auto builder = harness.builder();
      for (size_t i = first; i < last; ++i)
        kernels::buildContract(builder, harness.module(), "kernel" + std::to_string(i), cases[i].spec, targets[i]);
      if (!harness.compile()) {
        ++failures;
        std::printf("FAILED: %s: %s\n", cpu.c_str(), harness.error().c_str());
        continue;
      }
      for (size_t i = first; i < last; ++i)
        run(random, cases[i], cpu, harness.lookup("kernel" + std::to_string(i)), targets[i]);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failures);
  return failures != 0;
}
