// LINK: kernel_harness
//
// Contractions against a scalar chain of fma, bit for bit: random groups of dims, layouts (permuted, padded, reversed,
// broadcast), tails, accumulation, blocks of a grain, threads, f32 and f64, on every CPU kind this machine can run. Each with the built-in
// tiles and blocks, every other one with random ones, too.
//   contract [SEED [COUNT]]
#include "compiler/kernels/Kernels.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/Random.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cinch;
using test::Random, test::below;
using kernels::ContractSpec;
using kernels::Elem;
using kernels::View;

static int passed = 0, failures = 0;

struct Layout {
  View view;
  int64_t elems = 0; // of the buffer
};

struct Case {
  ContractSpec spec;
  int64_t elems[3] = {};
  std::string text;
};

// ---- Cases ----------------------------------------------------------------------------------------------------------

// Strides for dims of these sizes: a random order, sometimes padded, sometimes reversed, sometimes broadcast.
static Layout layoutOf(Random &random, const std::vector<int64_t> &sizes, int buffer, bool output, bool plain) {
  Layout layout;
  layout.view.buffer = buffer;
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  if (!plain)
    std::shuffle(order.begin(), order.end(), random);
  layout.view.strides.assign(sizes.size(), 0);
  int64_t stride = !plain && below(random, 8) == 0 ? 2 : 1, first = below(random, 3) == 0 ? below(random, 40) : 0;
  layout.view.offset = first;
  int64_t last = first;
  for (size_t at = order.size(); at-- > 0;) {
    size_t dim = order[at];
    if (!output && !plain && below(random, 16) == 0)
      continue; // broadcast
    int64_t reach = stride * (sizes[dim] - 1);
    last += reach;
    layout.view.strides[dim] = stride;
    if (!plain && below(random, 12) == 0) {
      layout.view.strides[dim] = -stride;
      layout.view.offset += reach;
    }
    stride *= sizes[dim];
    if (below(random, 4) == 0)
      stride += below(random, 9);
  }
  layout.elems = last + 1;
  return layout;
}

static std::vector<int64_t> joined(const std::vector<int64_t> &x, const std::vector<int64_t> &y,
                                   const std::vector<int64_t> &z) {
  std::vector<int64_t> all = x;
  all.insert(all.end(), y.begin(), y.end());
  all.insert(all.end(), z.begin(), z.end());
  return all;
}

static std::string textOf(const std::vector<int64_t> &values) {
  std::string text = "[";
  for (int64_t value : values)
    text += (text.size() > 1 ? " " : "") + std::to_string(value);
  return text + "]";
}

static int64_t divisorOf(Random &random, int64_t number) {
  int64_t divisor = 1 + below(random, number);
  while (number % divisor != 0)
    --divisor;
  return divisor;
}

static void finish(Random &random, Case &c, bool plain) {
  ContractSpec &s = c.spec;
  Layout a = layoutOf(random, joined(s.batch, s.m, s.k), 0, false, plain);
  Layout b = layoutOf(random, joined(s.batch, s.k, s.n), 1, false, plain);
  Layout out = layoutOf(random, joined(s.batch, s.m, s.n), 2, true, plain);
  s.a = a.view;
  s.b = b.view;
  s.c = out.view;
  s.a.elem = s.b.elem = s.c.elem = s.elem;
  if (s.accumulate && !s.k.empty() && below(random, 2) == 0)
    s.grain = divisorOf(random, s.k[0]);
  c.elems[0] = a.elems;
  c.elems[1] = b.elems;
  c.elems[2] = out.elems;
  c.text = std::string(s.elem == Elem::F64 ? "f64" : "f32") + " batch " + textOf(s.batch) + " m " + textOf(s.m) +
           " n " + textOf(s.n) + " k " + textOf(s.k) + " a " + textOf(s.a.strides) + " b " + textOf(s.b.strides) +
           " c " + textOf(s.c.strides) + (s.accumulate ? " accumulate" : "") +
           (s.grain ? " grain " + std::to_string(s.grain) : "");
}

static std::vector<int64_t> dimsOf(Random &random, int64_t most, int64_t count) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < count; ++i)
    dims.push_back(1 + below(random, i == 0 && below(random, 2) ? most : std::min<int64_t>(most, 20)));
  std::shuffle(dims.begin(), dims.end(), random);
  return dims;
}

static Case randomCase(Random &random) {
  Case c;
  c.spec.elem = below(random, 4) == 0 ? Elem::F64 : Elem::F32;
  c.spec.accumulate = below(random, 3) == 0;
  bool plain = below(random, 3) == 0;
  auto groups = [&] { return below(random, 5) == 0 ? 0 : below(random, 3) == 0 ? 2 : 1; };
  c.spec.batch = dimsOf(random, 4, below(random, 3) == 0 ? 1 + below(random, 2) : 0);
  c.spec.m = dimsOf(random, 70, groups());
  c.spec.n = dimsOf(random, 130, groups());
  c.spec.k = dimsOf(random, 90, groups());
  finish(random, c, plain);
  return c;
}

// Shapes that reach every block loop: several k blocks, several column blocks, several row blocks, each transposition.
static std::vector<Case> largeCases(Random &random) {
  std::vector<Case> cases;
  struct Shape {
    int64_t m, n, k;
    bool transposeA, transposeB, transposeC;
  };
  static const Shape shapes[] = {
      {67, 530, 1601, false, false, false}, {130, 97, 3100, false, true, false}, {301, 70, 2050, true, false, false},
      {70, 330, 1700, true, true, false},   {333, 67, 200, false, false, true},  {700, 40, 600, true, false, false},
      {64, 64, 64, false, false, false},    {64, 64, 64, false, true, false},    {64, 64, 64, true, false, false},
      {50, 10, 700, false, false, false},   {1, 300, 500, false, false, false},  {1, 300, 500, false, true, false},
      {300, 1, 500, false, false, false},   {33, 1200, 3, false, false, false},  {310, 500, 40, true, false, false},
      {310, 500, 40, true, true, false},    {20, 330, 1100, true, false, false}};
  for (const Shape &shape : shapes) {
    for (int variant = 0; variant < 2; ++variant) {
      Case c;
      c.spec.elem = variant == 1 && shape.k % 2 ? Elem::F64 : Elem::F32;
      c.spec.accumulate = variant == 1;
      c.spec.m = {shape.m};
      c.spec.n = {shape.n};
      c.spec.k = {shape.k};
      finish(random, c, true);
      auto set = [&](View &view, int64_t rows, int64_t columns, bool transposed, int64_t &elems) {
        view.offset = 0;
        view.strides = transposed ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{columns, 1};
        elems = rows * columns;
      };
      set(c.spec.a, shape.m, shape.k, shape.transposeA, c.elems[0]);
      set(c.spec.b, shape.k, shape.n, shape.transposeB, c.elems[1]);
      set(c.spec.c, shape.m, shape.n, shape.transposeC, c.elems[2]);
      c.text += " (large)";
      cases.push_back(c);
    }
  }
  // k = (batch, time) of unequal strides, heads apart in C: a gradient of a projection.
  for (auto [time, grain] : {std::pair<int64_t, int64_t>{40, 0}, {1700, 0}, {40, 1}, {1700, 1}, {1700, 3}}) {
    Case c;
    c.spec.grain = grain;
    c.spec.accumulate = grain > 0;
    c.spec.m = {9};
    c.spec.n = {3, 40};
    c.spec.k = {3, time};
    c.spec.a.strides = {1, time * 9 + 5, 9};
    c.spec.b.strides = {3 * time * 40, 40, time * 40, 1};
    c.spec.c.strides = {120, 40, 1};
    c.spec.a.buffer = 0, c.spec.b.buffer = 1, c.spec.c.buffer = 2;
    c.elems[0] = 3 * (time * 9 + 5);
    c.elems[1] = 9 * time * 40;
    c.elems[2] = 9 * 120;
    c.text = "(batch, time) " + std::to_string(time) + " grain " + std::to_string(grain);
    cases.push_back(c);
  }
  return cases;
}

// What a dense layer's products pack, so that a budget that has room for a few examples has room for their products: few columns of the weight at a
// time, and the gradient's rows once.
static void checkScratch() {
  struct Product {
    const char *what;
    int64_t m, n, k;
    bool transposeA, transposeB;
    int64_t kibibytes; // most that a thread may need
  };
  static const Product products[] = {{"forward of 32 examples", 32, 1024, 1024, false, true, 128},
                                     {"forward of 128 examples", 128, 1024, 1024, false, true, 128},
                                     {"a weight's gradient of 32 examples", 1024, 1024, 32, true, false, 192}};
  for (const Product &p : products) {
    ContractSpec spec;
    spec.m = {p.m}, spec.n = {p.n}, spec.k = {p.k};
    spec.a.strides = p.transposeA ? std::vector<int64_t>{1, p.m} : std::vector<int64_t>{p.k, 1};
    spec.b.strides = p.transposeB ? std::vector<int64_t>{1, p.k} : std::vector<int64_t>{p.n, 1};
    spec.c.strides = {p.n, 1};
    for (const char *cpu : {"haswell", "skylake-avx512"}) {
      int64_t bytes = kernels::scratchBytesPerThread(spec, target::infoOf(cpu));
      bool few = bytes <= p.kibibytes * 1024;
      few ? ++passed : ++failures;
      if (!few)
        std::printf("FAILED: %s: %s needs %lld bytes of scratch a thread\n", cpu, p.what, (long long)bytes);
    }
  }
}

// ---- The reference --------------------------------------------------------------------------------------------------

static float fused(float a, float b, float c) { return std::fmaf(a, b, c); }
static double fused(double a, double b, double c) { return std::fma(a, b, c); }

// Calls `body` with the offsets of every element of `sizes`, row-major; strides come in three rows.
template <class Body>
static void walk(const std::vector<int64_t> &sizes, const std::vector<int64_t> *strides, int64_t a, int64_t b,
                 int64_t c, size_t dim, Body body) {
  if (dim == sizes.size())
    return body(a, b, c);
  for (int64_t i = 0; i < sizes[dim]; ++i)
    walk(sizes, strides, a + i * strides[0][dim], b + i * strides[1][dim], c + i * strides[2][dim], dim + 1, body);
}

template <class T> static void reference(const ContractSpec &s, const T *a, const T *b, T *c) {
  size_t nb = s.batch.size(), nm = s.m.size(), nn = s.n.size(), nk = s.k.size();
  std::vector<int64_t> outputs = joined(s.batch, s.m, s.n), outer[3], inner[3];
  auto part = [](const View &view, size_t from, size_t count) {
    return std::vector<int64_t>(view.strides.begin() + from, view.strides.begin() + from + count);
  };
  outer[0] = joined(part(s.a, 0, nb), part(s.a, nb, nm), std::vector<int64_t>(nn, 0));
  outer[1] = joined(part(s.b, 0, nb), std::vector<int64_t>(nm, 0), part(s.b, nb + nk, nn));
  outer[2] = s.c.strides;
  inner[0] = part(s.a, nb + nm, nk);
  inner[1] = part(s.b, nb, nk);
  inner[2] = std::vector<int64_t>(nk, 0);
  walk(outputs, outer, s.a.offset, s.b.offset, s.c.offset, 0, [&](int64_t ia, int64_t ib, int64_t ic) {
    T chain = s.accumulate && s.grain == 0 ? c[ic] : T(0);
    int64_t length = 1, steps = 0; // of a block, in steps of all of k
    for (size_t i = 0; i < nk; ++i)
      length *= i == 0 && s.grain ? s.grain : s.k[i];
    walk(s.k, inner, ia, ib, 0, 0, [&](int64_t ka, int64_t kb, int64_t) {
      chain = fused(a[ka], b[kb], chain);
      if (s.grain && ++steps % length == 0) {
        c[ic] += chain;
        chain = T(0);
      }
    });
    if (s.grain == 0)
      c[ic] = chain;
  });
}

// ---- Running --------------------------------------------------------------------------------------------------------

template <class T> static T randomValue(Random &random) {
  static const T special[] = {T(0), T(-0.0), T(1e-30), T(-1), T(1e20)};
  if (below(random, 50) == 0)
    return special[below(random, 5)];
  return T(double(below(random, 2000001) - 1000000) * 1e-6);
}

// Every thread alone, on an output full of a value that no product has: each element must be written by one thread.
template <class T>
static void checkParts(const Case &c, const std::string &cpu, test::KernelFunction function, test::Arena &arena,
                       int threads) {
  const T unwritten = T(-12345.5);
  std::vector<int> writers(c.elems[2], 0);
  int64_t context[kernels::kContextWords] = {};
  std::vector<T> result(arena.at<T>(2), arena.at<T>(2) + c.elems[2]);
  for (int thread = 0; thread < threads; ++thread) {
    std::fill_n(arena.at<T>(2), c.elems[2], unwritten);
    function(arena.data(), arena.offsetsOf(), context, thread, threads);
    for (int64_t i = 0; i < c.elems[2]; ++i)
      writers[i] += arena.at<T>(2)[i] != unwritten;
  }
  std::copy(result.begin(), result.end(), arena.at<T>(2));
  int most = *std::max_element(writers.begin(), writers.end());
  most <= 1 ? ++passed : ++failures;
  if (most > 1)
    std::printf("FAILED: %s, %d threads, %s: an element was written by %d threads\n", cpu.c_str(), threads,
                c.text.c_str(), most);
}

template <class T>
static void runCase(Random &random, const Case &c, const std::string &cpu, test::KernelFunction function,
                    const kernels::TargetInfo &target) {
  for (int threads : {1, 2 + int(below(random, 2)), 4 + int(below(random, 5))}) {
    test::Arena arena;
    for (int64_t elems : c.elems)
      arena.add(elems * int64_t(sizeof(T)));
    int64_t perThread = kernels::scratchBytesPerThread(c.spec, target);
    if (perThread > 0)
      arena.add(perThread * threads);
    for (int buffer = 0; buffer < 3; ++buffer) {
      for (int64_t i = 0; i < c.elems[buffer]; ++i)
        arena.at<T>(buffer)[i] = randomValue<T>(random);
    }
    if (perThread > 0) {
      for (int64_t i = 0; i < perThread * threads / int64_t(sizeof(T)); ++i)
        arena.at<T>(3)[i] = T(NAN); // what the arena held before must not matter
    }
    std::vector<T> expected(arena.at<T>(2), arena.at<T>(2) + c.elems[2]);
    reference(c.spec, arena.at<T>(0), arena.at<T>(1), expected.data());
    int64_t context[kernels::kContextWords] = {};
    test::callKernel(function, arena.data(), arena.offsetsOf(), context, threads);
    int64_t wrong = 0;
    while (wrong < c.elems[2] && std::memcmp(&expected[wrong], arena.at<T>(2) + wrong, sizeof(T)) == 0)
      ++wrong;
    if (threads > 1 && !c.spec.accumulate)
      checkParts<T>(c, cpu, function, arena, threads);
    bool same = wrong == c.elems[2], intact = arena.guardsIntact();
    same &&intact ? ++passed : ++failures;
    if (!same)
      std::printf("FAILED: %s, %d threads, %s: element %lld is %a, expected %a\n", cpu.c_str(), threads, c.text.c_str(),
                  (long long)wrong, double(arena.at<T>(2)[wrong]), double(expected[wrong]));
    if (!intact)
      std::printf("FAILED: %s, %d threads, %s: wrote outside of its buffers\n", cpu.c_str(), threads, c.text.c_str());
  }
}

static void runAll(const std::string &cpu, uint64_t seed, int64_t count) {
  Random random(seed);
  kernels::TargetInfo target;
  target = target::infoOf(cpu);
  std::vector<Case> cases = largeCases(random);
  while (int64_t(cases.size()) < count)
    cases.push_back(randomCase(random));
  const size_t perModule = 16;
  double seconds = 0;
  for (size_t first = 0; first < cases.size(); first += perModule) {
    size_t last = std::min(cases.size(), first + perModule);
    test::KernelHarness harness(cpu);
    auto builder = harness.builder();
    auto name = [](const char *kind, size_t i) { return kind + std::to_string(i); };
    std::vector<kernels::TargetInfo> odd;
    for (size_t i = first; i < last; ++i) {
      odd.push_back(test::withRandomTiling(cases[i].spec, target, random()));
      kernels::buildContract(builder, harness.module(), name("kernel", i), cases[i].spec, target);
      if (i % 2)
        kernels::buildContract(builder, harness.module(), name("odd", i), cases[i].spec, odd.back());
    }
    if (!harness.compile()) {
      ++failures;
      std::printf("FAILED: %s: %s\n", cpu.c_str(), harness.error().c_str());
      continue;
    }
    seconds += harness.compileSeconds();
    for (size_t i = first; i < last; ++i)
      for (bool isOdd : {false, true}) {
        if (isOdd && i % 2 == 0)
          continue;
        test::KernelFunction function = harness.lookup(name(isOdd ? "odd" : "kernel", i));
        const kernels::TargetInfo &tiled = isOdd ? odd[i - first] : target;
        if (cases[i].spec.elem == Elem::F64)
          runCase<double>(random, cases[i], cpu, function, tiled);
        else
          runCase<float>(random, cases[i], cpu, function, tiled);
      }
  }
  std::printf("%s: %.3f s of processor time to compile a kernel\n", cpu.c_str(), seconds / (1.5 * double(cases.size())));
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  int64_t count = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 70;
  checkScratch();
  for (const std::string &cpu : test::runnableCpus())
    runAll(cpu, seed, count);
  std::printf("%d passed, %d failed\n", passed, failures);
  return failures != 0;
}
