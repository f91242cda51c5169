// LINK: kernel_harness
//
// Streaming attention against plain loops in double precision, its gradients also against finite differences, and its
// bits over CPUs and thread counts: ragged sizes, strided and interleaved views, grouped heads, masks, bias, dropout.
#include "test/unit/Expect.h"
#include "compiler/kernels/HostOps.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/bit.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace cinch;
using namespace cinch::kernels;

enum class Layout { Separate, Stacked, Interleaved };

struct AttendCase {
  std::string name;
  std::vector<int64_t> lead;
  int64_t A, G, T, S, K, E;
  bool causal = false, keys = false, bias = false;
  double dropout = 0;
  int batchDim = -1;
  Layout layout = Layout::Separate;
  bool keyAsWord = false; // the key and the dropout's numbers come behind the offsets
  bool pairs = false;     // products of bf16
  bool narrow = false;    // of operands that lie as bf16
};

// Buffers: 0 q, 1 k, 2 v, 3 o, 4 lse, 5 keys, 6 bias, 7 dout, 8 dq, 9 dk, 10 dv, 11 dbias, 12 scratch; Stacked has q,
// k, v in buffer 0.
enum { Q, K, V, O, Lse, Keys, Bias, DOut, DQ, DK, DV, DBias, Scratch, Buffers };

constexpr int64_t kTestStep = 3, kTestExample = 5, kTestSeed = 0x1122334455667788, kTestKey = 0x1234567890abcdef;

static int64_t product(const std::vector<int64_t> &sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

static View contiguous(int buffer, Elem elem, const std::vector<int64_t> &sizes) {
  View view;
  view.buffer = buffer;
  view.elem = elem;
  view.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i])
    view.strides[i] = stride;
  return view;
}

struct Problem {
  const AttendCase &c;
  AttendGradSpec grad;
  std::vector<int64_t> bytes;

  Problem(const AttendCase &c, Elem elem) : c(c), bytes(Buffers) {
    AttendSpec &f = grad.forward;
    int64_t size = elem == Elem::F64 ? 8 : 4, leads = product(c.lead);
    f.elem = elem;
    f.lead = c.lead;
    f.pairs = c.pairs;
    f.A = c.A, f.G = c.G, f.T = c.T, f.S = c.S, f.K = c.K, f.E = c.E;
    f.causal = c.causal;
    f.scale = 1 / std::sqrt(double(c.K));
    f.dropout = c.dropout;
    f.key = c.keyAsWord ? 0 : kTestKey;
    f.keyWord = c.keyAsWord ? 0 : -1;
    f.dropoutWord = c.keyAsWord && c.dropout > 0 ? 1 : -1;
    if (f.dropoutWord > 0)
      f.dropout = 0.5; // the words say it
    f.batchDim = c.batchDim;
    auto view = [&](int buffer, int64_t heads, int64_t positions, int64_t features) {
      std::vector<int64_t> sizes = c.lead;
      bytes[buffer] = size * leads * heads * positions * features;
      bool swap = c.layout == Layout::Interleaved;
      sizes.push_back(swap ? positions : heads);
      sizes.push_back(swap ? heads : positions);
      sizes.push_back(features);
      View result = contiguous(buffer, elem, sizes);
      if (swap)
        std::swap(result.strides[c.lead.size()], result.strides[c.lead.size() + 1]);
      return result;
    };
    f.q = view(Q, c.A, c.T, c.K);
    f.k = view(K, c.G, c.S, c.K);
    f.v = view(V, c.G, c.S, c.E);
    if (c.layout == Layout::Stacked) {
      // [lead, 3, position, head, feature]: one product made all three.
      for (View *part : {&f.q, &f.k, &f.v}) {
        int64_t rest = c.A * c.T * c.K, n = c.lead.size();
        part->offset = (part == &f.q ? 0 : part == &f.k ? 1 : 2) * rest;
        part->buffer = Q;
        for (int64_t i = 0; i < n; ++i)
          part->strides[i] *= 3;
        part->strides[n] = c.K;
        part->strides[n + 1] = c.A * c.K;
      }
      bytes[Q] *= 3;
    }
    f.o = view(O, c.A, c.T, c.E);
    std::vector<int64_t> rows = c.lead, keySizes = c.lead;
    rows.push_back(c.A);
    rows.push_back(c.T);
    f.lse = contiguous(Lse, elem, rows);
    bytes[Lse] = size * product(rows);
    keySizes.push_back(c.S);
    f.keys = contiguous(Keys, Elem::Bool, keySizes);
    bytes[Keys] = product(keySizes);
    f.hasKeys = c.keys;
    f.bias = contiguous(Bias, elem, {c.A, c.T, c.S});
    bytes[Bias] = size * c.A * c.T * c.S;
    f.hasBias = c.bias;
    grad.dout = view(DOut, c.A, c.T, c.E);
    grad.dq = view(DQ, c.A, c.T, c.K);
    grad.dk = view(DK, c.G, c.S, c.K);
    grad.dv = view(DV, c.G, c.S, c.E);
    grad.wantsBiasGrad = c.bias;
    grad.dbias = contiguous(DBias, elem, {c.A, c.T, c.S});
    bytes[DBias] = bytes[Bias];
    if (c.bias && f.batchDim >= 0 && f.lead[f.batchDim] % 2 == 0)
      grad.grain = f.lead[f.batchDim] / 2;
    if (c.narrow)
      for (View *operand : {&f.q, &f.k, &f.v, &grad.dout})
        operand->elem = Elem::BF16;
  }
  bool isNarrow(int buffer) const { return c.narrow && (buffer == Q || buffer == K || buffer == V || buffer == DOut); }
};

static double draw(uint64_t &state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return double(int64_t(state >> 11)) / double(1ull << 52) - 1;
}

// Philox4x32-10 and the 16-bit draws, from the formulas.
struct Draws {
  static void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      uint64_t p0 = uint64_t(c[0]) * 0xD2511F53u, p1 = uint64_t(c[2]) * 0xCD9E8D57u;
      uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
      std::memcpy(c, next, sizeof(next));
    }
  }
  static uint32_t bits16(uint64_t seed, uint64_t step, uint64_t key, uint64_t example, uint64_t element) {
    uint32_t drawKey[4] = {uint32_t(key), uint32_t(key >> 32), uint32_t(step), uint32_t(step >> 32)};
    philox(drawKey, uint32_t(seed), uint32_t(seed >> 32));
    uint64_t block = element / 64 * 8 + element % 8, j = element % 64 / 8;
    uint32_t words[4] = {uint32_t(block), uint32_t(block >> 32), uint32_t(example), uint32_t(example >> 32)};
    philox(words, drawKey[0], drawKey[1]);
    return j % 2 ? words[j / 2] >> 16 : words[j / 2] & 0xffff;
  }
};

// Which probabilities are kept, by [lead.., head, query, key].
static std::vector<bool> keptShares(const Problem &p) {
  const AttendCase &c = p.c;
  std::vector<bool> kept;
  if (c.dropout == 0)
    return kept;
  for (int64_t l = 0; l < product(c.lead); ++l) {
    int64_t example = 0, within = 0, stride = product(c.lead);
    for (size_t i = 0; i < c.lead.size(); ++i) {
      stride /= c.lead[i];
      int64_t index = l / stride % c.lead[i];
      if (int64_t(i) == c.batchDim)
        example = kTestExample + index;
      else
        within = within * c.lead[i] + index;
    }
    for (int64_t i = 0; i < c.A * c.T * c.S; ++i)
      kept.push_back(Draws::bits16(kTestSeed, kTestStep, kTestKey, example, within * c.A * c.T * c.S + i) <
                     std::lround((1 - c.dropout) * 65536));
  }
  return kept;
}

// What the kernels compute, as plain loops over the same views.
template <class T> struct Reference {
  const Problem &p;
  const AttendSpec &f;
  std::vector<std::vector<T>> input; // by buffer
  std::vector<double> out, lse, dq, dk, dv, dbias;

  int64_t at(const View &view, std::vector<int64_t> indices) const {
    int64_t result = view.offset;
    for (size_t i = 0; i < indices.size(); ++i)
      result += indices[i] * view.strides[i];
    return result;
  }
  static std::vector<int64_t> join(std::vector<int64_t> lead, std::initializer_list<int64_t> rest) {
    lead.insert(lead.end(), rest);
    return lead;
  }
  double get(const View &view, const std::vector<int64_t> &indices) const {
    return input[view.buffer][at(view, indices)];
  }

  void run(const unsigned char *keys, const std::vector<bool> &kept) {
    const AttendCase &c = p.c;
    int64_t leads = product(c.lead);
    auto size = [&](const View &view) { return size_t(p.bytes[view.buffer] / sizeof(T)); };
    out.assign(size(f.o), 0);
    lse.assign(size(f.lse), 0);
    dq.assign(size(p.grad.dq), 0);
    dk.assign(size(p.grad.dk), 0);
    dv.assign(size(p.grad.dv), 0);
    dbias.assign(size(p.grad.dbias), 0.25); // it accumulates
    for (int64_t l = 0; l < leads; ++l) {
      std::vector<int64_t> lead(c.lead.size());
      int64_t rest = l;
      for (size_t i = c.lead.size(); i-- > 0; rest /= c.lead[i])
        lead[i] = rest % c.lead[i];
      for (int64_t a = 0; a < c.A; ++a)
        for (int64_t t = 0; t < c.T; ++t)
          row(lead, l, a, t, keys, kept);
    }
  }

  void row(const std::vector<int64_t> &lead, int64_t l, int64_t a, int64_t t, const unsigned char *keys,
           const std::vector<bool> &kept) {
    const AttendCase &c = p.c;
    int64_t g = a * c.G / c.A;
    std::vector<double> score(c.S), share(c.S), slope(c.S);
    double top = -INFINITY, sum = 0, delta = 0;
    for (int64_t s = 0; s < c.S; ++s) {
      double x = 0;
      for (int64_t i = 0; i < c.K; ++i)
        x += get(f.q, join(lead, {a, t, i})) * get(f.k, join(lead, {g, s, i}));
      x *= f.scale;
      if (c.bias)
        x += get(f.bias, {a, t, s});
      if ((c.causal && s > t) || (c.keys && !keys[at(f.keys, join(lead, {s}))]))
        x = -INFINITY;
      score[s] = x;
      top = std::max(top, x);
    }
    for (int64_t s = 0; s < c.S; ++s)
      sum += share[s] = top == -INFINITY ? 0 : std::exp(score[s] - top);
    lse[at(f.lse, join(lead, {a, t}))] = top + std::log(sum);
    std::vector<double> factor(c.S, 1.0);
    for (int64_t s = 0; s < c.S; ++s) {
      share[s] = sum == 0 ? 0 : share[s] / sum;
      if (c.dropout > 0)
        factor[s] = kept[((l * c.A + a) * c.T + t) * c.S + s] ? 1 / (1 - c.dropout) : 0;
      for (int64_t e = 0; e < c.E; ++e) {
        double v = get(f.v, join(lead, {g, s, e})), d = get(p.grad.dout, join(lead, {a, t, e}));
        out[at(f.o, join(lead, {a, t, e}))] += share[s] * factor[s] * v;
        slope[s] += d * v * factor[s];
        dv[at(p.grad.dv, join(lead, {g, s, e}))] += share[s] * factor[s] * d;
      }
      delta += share[s] * slope[s];
    }
    for (int64_t s = 0; s < c.S; ++s) {
      double ds = share[s] * (slope[s] - delta);
      if (c.bias)
        dbias[at(p.grad.dbias, {a, t, s})] += ds;
      for (int64_t i = 0; i < c.K; ++i) {
        dq[at(p.grad.dq, join(lead, {a, t, i}))] += f.scale * ds * get(f.k, join(lead, {g, s, i}));
        dk[at(p.grad.dk, join(lead, {g, s, i}))] += f.scale * ds * get(f.q, join(lead, {a, t, i}));
      }
    }
  }
};

template <class T> struct Run {
  double dropout;
  test::Arena arena;
  int64_t context[kContextWords] = {kTestStep, kTestExample, kTestSeed};

  Run(const Problem &p, const std::vector<std::vector<T>> &input, const std::vector<unsigned char> &keys,
      int64_t threads, const TargetInfo &target)
      : dropout(p.c.dropout) {
    for (int i = 0; i < Scratch; ++i)
      arena.add(p.isNarrow(i) ? p.bytes[i] / 2 : p.bytes[i]);
    arena.add(threads * std::max(scratchBytesPerThread(p.grad, target), scratchBytesPerThread(p.grad.forward, target)));
    for (int i = 0; i < Scratch; ++i)
      for (int64_t j = 0; i != Keys && j < p.bytes[i] / int64_t(sizeof(T)); ++j)
        if (p.isNarrow(i))
          arena.at<uint16_t>(i)[j] = uint16_t(llvm::bit_cast<uint32_t>(float(input[i][j])) >> 16);
        else
          arena.at<T>(i)[j] = input[i].empty() ? std::numeric_limits<T>::quiet_NaN() : input[i][j];
    std::memcpy(arena.at<char>(Keys), keys.data(), keys.size());
    for (int64_t j = 0; j < p.bytes[DBias] / int64_t(sizeof(T)); ++j)
      arena.at<T>(DBias)[j] = T(0.25);
  }
  // The scratch is the buffer after those that a spec names.
  void call(test::KernelFunction function, int64_t lastNamed, int64_t threads) {
    std::vector<int64_t> offsets(arena.offsetsOf(), arena.offsetsOf() + Buffers);
    offsets.resize(lastNamed + 1);
    offsets.push_back(arena.offsetsOf()[Scratch]);
    offsets.push_back(kTestKey);
    offsets.push_back(std::lround((1 - dropout) * 65536));
    double factor = 1 / (1 - dropout);
    offsets.push_back(0);
    std::memcpy(&offsets.back(), &factor, 8);
    test::callKernel(function, arena.data(), offsets.data(), context, threads);
  }
};

static int64_t lastForward(const AttendCase &c) { return c.bias ? Bias : c.keys ? Keys : Lse; }
static int64_t lastBackward(const AttendCase &c) { return c.bias ? DBias : DV; }

template <class T> static double worst(const T *got, const std::vector<double> &expected) {
  double scale = 1e-30, error = 0;
  for (double x : expected)
    if (std::isfinite(x))
      scale = std::max(scale, std::fabs(x));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == got[i])
      continue;
    double difference = std::fabs(double(got[i]) - expected[i]) / scale;
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error;
}

template <class T> static void check(const AttendCase &c) {
  constexpr bool isDouble = sizeof(T) == 8;
  std::string label = c.name + (isDouble ? " f64" : c.pairs ? " bf16" : " f32");
  Problem p(c, isDouble ? Elem::F64 : Elem::F32);
  std::vector<std::vector<T>> input(Scratch);
  uint64_t state = 7;
  for (int i : {Q, K, V, Bias, DOut}) {
    input[i].resize(p.bytes[i] / sizeof(T));
    for (T &x : input[i])
      x = T(draw(state) * (i == Q ? 3 : 1));
    if (c.pairs && i != Bias)
      for (T &x : input[i])
        x = T(host::roundedToBF16(float(x)));
  }
  std::vector<unsigned char> keys(p.bytes[Keys]);
  for (size_t i = 0; i < keys.size(); ++i) // the first row of keys is wholly masked
    keys[i] = int64_t(i) >= c.S && draw(state) < 0.4;
  std::vector<bool> kept = keptShares(p);
  Reference<T> reference{p, p.grad.forward, input, {}, {}, {}, {}, {}, {}};
  reference.run(keys.data(), kept);

  std::vector<std::string> bits; // of every CPU and thread count: o, lse, dq, dk, dv, dbias
  AttendCase narrowCase = c;
  narrowCase.narrow = c.pairs;
  const Problem narrow(narrowCase, p.grad.forward.elem);
  for (const std::string &cpu : test::runnableCpus()) {
    test::KernelHarness harness(cpu);
    mlir::OpBuilder builder = harness.builder();
    TargetInfo target = target::infoOf(cpu);
    buildAttend(builder, harness.module(), "forward", p.grad.forward, target);
    buildAttendGrad(builder, harness.module(), "backward", p.grad, target);
    if (c.pairs) {
      buildAttend(builder, harness.module(), "narrow forward", narrow.grad.forward, target);
      buildAttendGrad(builder, harness.module(), "narrow backward", narrow.grad, target);
    }
    if (!harness.compile()) {
      expect(false, label + " " + cpu + ": " + harness.error());
      return;
    }
    auto forward = harness.lookup("forward"), backward = harness.lookup("backward");
    auto bitsOf = [&](Run<T> &run) {
      expect(run.arena.guardsIntact(), label + " " + cpu + ": writes outside of its buffers");
      std::string all;
      for (int i : {O, Lse, DQ, DK, DV, DBias})
        all.append(run.arena.template at<char>(i), p.bytes[i]);
      return all;
    };
    for (int64_t threads : {1, 2, 3}) {
      if (c.pairs) { // operands that lie as bf16
        Run<T> run(narrow, input, keys, threads, target);
        run.call(harness.lookup("narrow forward"), lastForward(c), threads);
        run.call(harness.lookup("narrow backward"), lastBackward(c), threads);
        bits.push_back(bitsOf(run));
      }
      Run<T> run(p, input, keys, threads, target);
      run.call(forward, lastForward(c), threads);
      run.call(backward, lastBackward(c), threads);
      bits.push_back(bitsOf(run));
      if (bits.size() > (c.pairs ? 2 : 1))
        continue;
      double tolerance = isDouble ? 1e-12 : c.pairs ? 1e-2 : 1e-5; // shares and slopes are rounded, too
      std::pair<int, const std::vector<double> *> outputs[] = {{O, &reference.out}, {Lse, &reference.lse},
                                                               {DQ, &reference.dq}, {DK, &reference.dk},
                                                               {DV, &reference.dv}, {DBias, &reference.dbias}};
      const char *names[] = {"o", "lse", "dq", "dk", "dv", "dbias"};
      for (int i = 0; i < 6; ++i) {
        double error = worst(run.arena.template at<T>(outputs[i].first), *outputs[i].second);
        expect(error < tolerance, label + " " + cpu + ": " + names[i] + " is off by " +
                                      std::to_string(error / tolerance) + " of the tolerance");
      }
      if constexpr (isDouble) {
        // Central differences of sum(dout * o), through the kernel itself.
        auto objective = [&]() {
          run.call(forward, lastForward(c), threads);
          double sum = 0;
          for (int64_t i = 0; i < p.bytes[O] / 8; ++i)
            sum += run.arena.template at<double>(O)[i] * run.arena.template at<double>(DOut)[i];
          return sum;
        };
        const AttendSpec &f = p.grad.forward;
        std::pair<const View *, const View *> wanted[] = {
            {&f.q, &p.grad.dq}, {&f.k, &p.grad.dk}, {&f.v, &p.grad.dv}, {&f.bias, &p.grad.dbias}};
        for (auto [value, gradient] : wanted) {
          if (value == &f.bias && !c.bias)
            continue;
          int64_t heads = value == &f.q || value == &f.bias ? c.A : c.G;
          int64_t positions = value == &f.q || value == &f.bias ? c.T : c.S;
          int64_t features = value == &f.bias ? c.S : value == &f.v ? c.E : c.K;
          for (int64_t trial = 0; trial < 4; ++trial) {
            auto pick = [&](int64_t n) { return int64_t((draw(state) + 1) / 2 * double(n)) % n; };
            std::vector<int64_t> where;
            if (value != &f.bias)
              for (int64_t size : c.lead)
                where.push_back(pick(size));
            where.insert(where.end(), {pick(heads), pick(positions), pick(features)});
            double &x = run.arena.template at<double>(value->buffer)[reference.at(*value, where)];
            double old = x, h = 1e-5;
            x = old + h;
            double above = objective();
            x = old - h;
            double below = objective();
            x = old;
            double got = run.arena.template at<double>(gradient->buffer)[reference.at(*gradient, where)];
            if (value == &f.bias)
              got -= 0.25;
            double expected = (above - below) / (2 * h);
            expect(std::fabs(got - expected) < 1e-8 + 1e-6 * std::fabs(expected),
                   label + ": gradient " + std::to_string(got) + ", by differences " + std::to_string(expected));
          }
        }
      }
    }
  }
  bool same = true;
  for (const std::string &other : bits)
    same &= other == bits[0];
  expect(same, label + ": bits depend on the CPU or the number of threads");
}

int main() {
  std::vector<AttendCase> cases = {
      {"plain", {2}, 2, 2, 64, 64, 64, 64},
      {"ragged", {3}, 2, 2, 37, 53, 24, 24},
      {"long ragged", {}, 1, 1, 130, 201, 64, 64},
      {"tiny", {2, 2}, 1, 1, 1, 1, 1, 1},
      {"small and odd", {2}, 3, 3, 5, 7, 3, 5},
      {"values wider than keys", {1}, 2, 2, 70, 70, 20, 72},
      {"wide features", {}, 1, 1, 33, 90, 160, 200},
      {"causal", {2}, 2, 2, 150, 150, 32, 32, true},
      {"causal, more keys", {1}, 1, 1, 60, 150, 16, 16, true},
      {"causal, fewer keys", {1}, 1, 1, 150, 60, 16, 16, true},
      {"grouped heads", {2}, 6, 2, 40, 70, 16, 16, true},
      {"keys masked", {3}, 2, 1, 33, 90, 16, 24, false, true},
      {"bias", {3}, 4, 2, 20, 70, 16, 16, false, false, true},
      {"causal, keys, bias", {2, 2}, 2, 2, 70, 70, 16, 16, true, true, true},
      {"stacked", {2}, 3, 3, 70, 70, 20, 20, true, false, false, 0, -1, Layout::Stacked},
      {"interleaved", {2}, 4, 2, 70, 90, 32, 24, false, false, false, 0, -1, Layout::Interleaved},
      {"dropout", {2}, 2, 2, 70, 64, 16, 16, false, false, false, 0.25, 0},
      {"dropout, ragged keys", {2}, 2, 1, 40, 77, 16, 16, true, true, true, 0.1, 0},
      {"dropout, inner batch", {2, 3}, 2, 2, 20, 33, 8, 8, false, false, false, 0.5, 1},
      {"dropout, key as a word", {2}, 2, 2, 40, 77, 16, 16, true, false, false, 0.1, 0, Layout::Separate, true},
      {"dropout, no batch", {2}, 1, 1, 20, 130, 8, 8, true, false, false, 0.5, -1, Layout::Interleaved},
  };
  for (AttendCase &c : cases) {
    check<float>(c);
    check<double>(c);
    c.pairs = true;
    check<float>(c);
  }
  return tally();
}
