// LINK: cinch_solve
// Bands of image rows: random chains of convolutions with strides, dilations and paddings, and their gradients, are run on symbols, whole
// and block by block. A row that is made of other rows, in another order or not at all has another symbol. Wrong rows are refused.
#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Random.h"
#include "compiler/solve/RowBlocks.h"
#include "test/unit/Expect.h"

#include <map>

using namespace cinch::solve;

namespace {
using Symbol = uint64_t;
Symbol mix(Symbol a, Symbol b) { return (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u; }

// A window over rows, of a convolution or its gradient.
struct Window {
  int64_t stride, pad, reach;
  RowReach forward() const { return {stride, 1, -pad, reach - pad}; }
  RowReach gradient() const { return {1, stride, pad - reach, pad}; }
};

// x -> f1 -> .. -> fn, and from the gradient of fn back to that of x. Every kernel but the last of a sweep leaves what only the range
// reads.
struct Chain {
  StepGraph g;
  std::vector<RowRange> ranges{2};
  bool allowed = true; // the analysis would take these kernels for work on rows

  explicit Chain(Random &random) {
    int layers = 1 + int(random.below(4));
    std::vector<Window> windows;
    std::vector<int64_t> heights{1 + int64_t(random.below(24))};
    for (int i = 0; i < layers; ++i) {
      int64_t dilate = 1 + int64_t(random.below(2)), reach = dilate * 2 * int64_t(random.below(3));
      Window w{1 + int64_t(random.below(3)), reach / 2 + int64_t(random.below(2)), reach};
      int64_t below = (heights.back() + 2 * w.pad - reach - 1) / w.stride + 1;
      allowed &= heights.back() + 2 * w.pad > reach && below > 0;
      windows.push_back(w), heights.push_back(below);
    }
    if (!allowed)
      return;
    g.batch = 2, g.positions = heights.back(), g.threads = 1;
    std::vector<int64_t> scales(size_t(layers + 1), 1);
    for (size_t i = size_t(layers); i-- > 0;)
      scales[i] = scales[i + 1] * windows[i].stride;
    for (size_t i = 0; i < heights.size(); ++i)
      allowed &= heights[i] <= g.positions * scales[i];
    allowed &= g.positions > 1;
    auto rows = [&](size_t layer, Buffer::Kind kind) {
      Buffer b;
      b.kind = kind, b.rows = heights[layer], b.rowScale = scales[layer], b.perExampleBytes = 64 * heights[layer];
      g.buffers.push_back(b);
      return int(g.buffers.size()) - 1;
    };
    auto kernel = [&](std::vector<int> reads, std::vector<RowReach> reach, int write, size_t layer, bool backward) {
      Kernel k;
      k.reads = std::move(reads), k.writes = {write}, k.reach = std::move(reach);
      k.rows = true, k.rowScale = scales[layer], k.backward = backward;
      k.name = "k" + std::to_string(g.kernels.size());
      k.scratch = 0;
      k.recomputable = !(k.ownRows = g.buffers[write].kind == Buffer::Accumulator);
      g.buffers[write].producer = int(g.kernels.size());
      g.kernels.push_back(k);
      return int(g.kernels.size()) - 1;
    };
    std::vector<int> f{rows(0, Buffer::Persistent)};
    for (size_t i = 0; i < size_t(layers); ++i) {
      f.push_back(rows(i + 1, Buffer::Value));
      int k = kernel({f[i]}, {windows[i].forward()}, f[i + 1], i + 1, false);
      ranges[0].kernels.push_back(k);
      if (int(i) + 1 < layers)
        ranges[1].kernels.push_back(k), ++ranges[1].again;
    }
    int dy = rows(size_t(layers), Buffer::Value); // made of what the forward sweep leaves, by no work on rows
    int loss = kernel({f.back()}, {}, dy, size_t(layers), false);
    g.kernels[loss].rows = false;
    for (size_t i = size_t(layers); i-- > 0;) {
      if (random.below(3) > 0 && heights[i + 1] == g.positions * scales[i + 1]) {
        Buffer sum;
        sum.kind = Buffer::Accumulator, sum.fixedBytes = 64;
        g.buffers.push_back(sum);
        ranges[1].kernels.push_back(kernel({f[i], dy}, {windows[i].forward(), {}}, int(g.buffers.size()) - 1, i + 1, true));
      }
      int dx = rows(i, Buffer::Value);
      ranges[1].kernels.push_back(kernel({dy}, {windows[i].gradient()}, dx, i, true));
      dy = dx;
      if (i > 0) { // .. where the value was positive
        dx = rows(i, Buffer::Value);
        ranges[1].kernels.push_back(kernel({f[i], dy}, {}, dx, i, true));
        dy = dx;
      }
    }
    allowed &= heights[0] == g.positions * scales[0];
    Buffer end;
    end.kind = Buffer::Accumulator;
    g.buffers.push_back(end);
    g.kernels[kernel({dy}, {}, int(g.buffers.size()) - 1, 0, true)].rows = false;
  }
};

// Rows of an example on symbols: whole, or block by block.
class Machine {
public:
  explicit Machine(const StepGraph &g) : g(g) {
    for (size_t b = 0; b < g.buffers.size(); ++b)
      for (int64_t p = 0; g.buffers[b].kind == Buffer::Persistent && p < g.buffers[b].rows; ++p)
        values[int(b)][p] = mix(b + 1, Symbol(p));
  }

  void runWhole(int k) {
    make(
        k, {0, heightOf(k), 0}, 0, [&](int b, size_t) -> std::map<int64_t, Symbol> & { return values[b]; }, values[g.kernels[k].writes[0]]);
  }

  // False: a kernel reads a row that is not there.
  bool runBlocks(const RowKernel &range, const RowBlock &block) {
    bool found = true;
    for (int64_t i = 0; i < g.positions / block.positions; ++i) {
      std::map<int, std::map<int64_t, Symbol>> local; // of the trip
      auto of = [&](int b) -> std::map<int64_t, Symbol> & { return range.local[b] ? local[b] : values[range.buffers[b]]; };
      for (size_t t = 0; t < range.trip.kernels.size(); ++t) {
        const Kernel &kernel = range.trip.kernels[t];
        const TripRows own{0, block.positions, block.positions}, &rows = range.rows.empty() ? own : range.rows[t];
        if (range.work[t] < 0) {
          auto &from = of(kernel.reads[0]), &to = of(kernel.writes[0]);
          for (int64_t p = rows.first + i * rows.step; p < rows.end() + i * rows.step; ++p)
            to[p] = from.count(p) ? from[p] : 0;
          continue;
        }
        int k = range.range.kernels[range.work[t]];
        found &= make(k, rows, i, [&](int, size_t r) -> std::map<int64_t, Symbol> & { return of(kernel.reads[r]); }, of(kernel.writes[0]));
      }
    }
    return found;
  }

  std::map<int, std::map<int64_t, Symbol>> values; // of buffers; a sum is row 0

private:
  int64_t heightOf(int k) const {
    const Buffer &made = g.buffers[g.kernels[k].writes[0]];
    return made.rows > 0 ? made.rows : g.positions * g.kernels[k].rowScale;
  }

  template <typename Read> bool make(int k, const TripRows &rows, int64_t trip, const Read &read, std::map<int64_t, Symbol> &to) {
    const Kernel &kernel = g.kernels[k];
    bool sum = g.buffers[kernel.writes[0]].kind == Buffer::Accumulator, found = true;
    for (int64_t p = rows.first + trip * rows.step; p < rows.end() + trip * rows.step; ++p) {
      bool inside = p >= 0 && p < heightOf(k);
      Symbol made = sum ? to[0] : Symbol(k) + 77;
      for (size_t r = 0; r < kernel.reads.size() && inside; ++r) {
        RowReach reach = kernel.reach.empty() ? RowReach() : kernel.reach[r];
        auto &from = read(kernel.reads[r], r);
        for (int64_t at = p * reach.up + reach.from; at <= p * reach.up + reach.to; ++at) {
          if (at % reach.down)
            continue;
          int64_t q = at / reach.down;
          auto it = from.find(q);
          found &= it != from.end() || rows.step == 0; // of what is whole, those outside are zeros
          made = mix(made, it == from.end() ? 0 : it->second);
        }
      }
      if (sum && inside)
        to[0] = made;
      else if (!sum && (inside || rows.step > 0))
        to[p] = inside ? made : 0; // cleared
    }
    return found;
  }

  const StepGraph &g;
};

int64_t noScratch(int, const KernelRows *) { return 0; }
} // namespace

// Do both ranges, block by block, leave what the whole does?
static bool isSame(const Chain &chain, const RowBlocked &blocked, Machine &whole) {
  Machine machine(chain.g);
  bool same = machine.runBlocks(blocked.ranges[0], blocked.block);
  machine.runWhole(int(chain.ranges[0].kernels.size()));
  same &= machine.runBlocks(blocked.ranges[1], blocked.block);
  for (int k : {chain.ranges[0].kernels.back(), int(chain.g.kernels.size()) - 2}) // what each range leaves last
    same &= !machine.values[chain.g.kernels[k].writes[0]].empty();
  for (auto &[b, rows] : machine.values)
    same &= rows.empty() || rows == whole.values[b];
  return same;
}

// The checker refuses all other rows but those that leave the same.
static int mutants(const Chain &chain, RowBlocked blocked, Machine &whole, const std::string &name, Random &random) {
  int refused = 0;
  for (RowKernel &range : blocked.ranges) {
    if (range.rows.empty())
      continue;
    TripRows &rows = range.rows[size_t(random.below(int64_t(range.rows.size())))];
    const TripRows good = rows;
    for (const TripRows &other : {TripRows{good.first + 1, good.count, good.step}, TripRows{good.first, good.count - 1, good.step},
                                  TripRows{good.first + 1, good.count - 1, good.step}, TripRows{good.first - 1, good.count, good.step},
                                  TripRows{good.first, good.count, good.step + 1}, TripRows{good.first - 1, good.count + 2, good.step}}) {
      rows = other;
      bool wrong = !checkRows(chain.g, blocked).empty();
      refused += wrong;
      expect(wrong || isSame(chain, blocked, whole), name + "other rows, which leave something else, are not refused");
    }
    rows = good;
  }
  return refused;
}

int main() {
  int ran = 0, wide = 0, refused = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Random random = Random::seeded(seed);
    Chain chain(random);
    if (!chain.allowed)
      continue;
    Machine whole(chain.g);
    for (size_t k = 0; k + 1 < chain.g.kernels.size(); ++k)
      whole.runWhole(int(k));
    for (int64_t positions = 1; positions < chain.g.positions; ++positions) {
      if (chain.g.positions % positions)
        continue;
      std::string name =
          "seed " + std::to_string(seed) + ", " + std::to_string(positions) + " of " + std::to_string(chain.g.positions) + ": ";
      RowBlocked blocked = withRowBlocks(chain.g, chain.ranges, {1, positions}, noScratch);
      expect(blocked.error.empty(), name + blocked.error);
      if (!blocked.error.empty())
        continue;
      std::string wrong = checkRows(chain.g, blocked);
      expect(wrong.empty(), name + wrong);
      expect(isSame(chain, blocked, whole), name + "blocks leave something else");
      wide += !blocked.ranges[1].rows.empty();
      refused += mutants(chain, blocked, whole, name, random);
      ++ran;
    }
  }
  expect(ran > 500 && wide > 300 && refused > 1000, "too little was tried: " + std::to_string(ran) + " blocks, " + std::to_string(wide) +
                                                        " with bands, " + std::to_string(refused) + " mutants refused");
  return tally();
}
