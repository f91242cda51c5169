// StepTrees.h: random small steps that are trees of loops: loops over the micro-batches before the main one, and kernels that are loops:
// work in blocks of rows (RowBlocks.h), loops along an axis in loops along an axis, with slices, carried and stacked values. Some have work on
// parameters before the main loop.
#ifndef CINCH_TEST_UNIT_STEPTREES_H
#define CINCH_TEST_UNIT_STEPTREES_H

#include "compiler/solve/PlanChecker.h"
#include "compiler/solve/Random.h"
#include "compiler/solve/RowBlocks.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

namespace cinch::solve {

constexpr int64_t kCell = 64;

// A loop along an axis. Buffers of the trip that are not local lie outside: a part of an operand or of a stacked result, a whole operand,
// or a carried value, read from one of its two slots and written to the other.
struct TreeLoop : LoopBody {
  enum Role { Local, Part, Whole, CarriedIn, CarriedOut };
  struct Outer {
    Role role = Local;
    int of = -1; // buffer of the graph around the loop, or number of the carried value
  };
  int trips = 1;
  std::vector<Outer> outer;        // of each buffer of the trip
  std::map<int, std::shared_ptr<TreeLoop>> inner; // kernels of the trip that are loops
};

// The step before ranges of rows become kernels, and the graph that is planned.
struct StepTree {
  StepGraph flat;
  std::map<int, std::shared_ptr<TreeLoop>> loops; // kernels of `flat`
  RowBlocked rows;
  const StepGraph &graph() const { return rows.graph; }
  // Of a kernel that is planned: the kernel of `flat`; -1: a range.
  int original(int kernel) const { return rows.original[kernel]; }
};

class TreeMaker {
public:
  explicit TreeMaker(uint64_t seed) : random(Random::seeded(seed)) {}

  StepTree next() {
    for (;;) {
      StepTree tree;
      make(tree);
      if (tree.rows.error.empty())
        return tree;
    }
  }

private:
  static constexpr int64_t kPositions = 2;

  int64_t below(int64_t n) { return int64_t(random.below(n)); }

  static int buffer(StepGraph &g, Buffer::Kind kind, int64_t fixed, int64_t perExample) {
    Buffer b;
    b.kind = kind, b.fixedBytes = fixed, b.perExampleBytes = perExample, b.name = "v" + std::to_string(g.buffers.size());
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  }
  int kernel(StepGraph &g, int section, std::vector<int> reads, std::vector<int> writes) {
    Kernel k;
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    for (int w : writes) {
      k.recomputable &= g.buffers[w].kind == Buffer::Value;
      if (g.buffers[w].kind != Buffer::Persistent)
        g.buffers[w].producer = int(g.kernels.size());
    }
    k.reads = std::move(reads), k.writes = std::move(writes), k.section = section;
    k.seconds = {double(1 + below(3)), double(1 + below(5))};
    if (below(2))
      k.seconds.near.push_back({double(1 + below(3)), 0.5 * k.seconds.perExample});
    k.scratch = kCell * std::max<int64_t>(0, below(4) - 1);
    k.name = "k" + std::to_string(g.kernels.size());
    for (int w : k.writes)
      for (int r : k.reads)
        if (isLoop(section) && g.buffers[w].kind == Buffer::Value && g.buffers[r].kind == Buffer::Value && g.buffers[r].producer >= 0 &&
            g.buffers[r].perExampleBytes == g.buffers[w].perExampleBytes && g.buffers[r].fixedBytes == 0 && below(2))
          k.inPlace.push_back({w, r});
    g.kernels.push_back(k);
    return int(g.kernels.size()) - 1;
  }

  // A loop that reads `sliced` part by part and `whole` in each trip, and stacks its results in `stacked` of the graph around it.
  std::shared_ptr<TreeLoop> loop(const StepGraph &around, int sliced, int whole, int stacked, int depth) {
    auto made = std::make_shared<TreeLoop>();
    TreeLoop &l = *made;
    l.trips = int(kPositions);
    StepGraph &t = l.trip;
    t.batch = around.batch, t.positions = 1;
    auto outside = [&](TreeLoop::Role role, int of) {
      l.outer.push_back({role, of}), l.local.push_back(false);
      return buffer(t, Buffer::Persistent, 0, 0);
    };
    auto local = [&] {
      l.outer.push_back({}), l.local.push_back(true);
      // A loop inside takes two parts of it.
      return buffer(t, Buffer::Value, 0, kCell * kPositions * (1 + below(2)));
    };
    int part = outside(TreeLoop::Part, sliced), all = outside(TreeLoop::Whole, whole);
    l.slots.emplace_back().perExampleBytes = kCell * (1 + below(3));
    int in = outside(TreeLoop::CarriedIn, 0), out = outside(TreeLoop::CarriedOut, 0), y = outside(TreeLoop::Part, stacked);
    int a = local(), b = local();
    kernel(t, 1, {part, in}, {a});
    int second = kernel(t, 1, below(2) ? std::vector<int>{a, all} : std::vector<int>{a}, {b});
    if (depth > 0 && below(2)) {
      t.kernels[second].reads = {all, a}, t.kernels[second].inPlace.clear();
      l.inner[second] = loop(t, a, all, b, depth - 1);
      finish(l.inner[second], t.kernels[second], t);
    }
    int c = local();
    kernel(t, 1, {a, b}, {c});
    kernel(t, 1, {c, in}, {out});
    kernel(t, 1, below(2) ? std::vector<int>{out, b} : std::vector<int>{out, part}, {y});
    for (Kernel &k : t.kernels)
      k.recomputable = false;
    return made;
  }
  // The kernel of a loop, to the graph around it.
  void finish(const std::shared_ptr<TreeLoop> &loop, Kernel &k, const StepGraph &around) {
    const TreeLoop &l = *loop;
    for (int64_t b : microbatches(around))
      k.scratch.exactly.push_back({b, l.scratchBytesPerThread(b)});
    k.body = loop;
    // The stacked result may take the bytes of the operand, part by part, if the part is read before the result's is written.
    const std::vector<int> &last = l.trip.kernels.back().reads;
    bool before = std::find(last.begin(), last.end(), 0) == last.end();
    auto &pairs = k.inPlace;
    int sliced = l.outer[0].of;
    pairs.erase(std::remove_if(pairs.begin(), pairs.end(), [&](auto &pair) { return !before || pair.second != sliced; }), pairs.end());
  }

  void make(StepTree &tree) {
    StepGraph &g = tree.flat;
    g.batch = 4, g.positions = kPositions, g.threads = 1;
    int w = buffer(g, Buffer::Persistent, kCell * (1 + below(3)), 0), x = buffer(g, Buffer::Persistent, 0, kCell * kPositions);
    int sum = -1;
    auto value = [&] { return buffer(g, Buffer::Value, 0, kCell * kPositions * (1 + below(3))); };
    std::vector<int> ofParameters{w}; // w, and what is made of it
    auto prepare = [&] {
      int made = buffer(g, Buffer::Value, kCell * (1 + below(4)), 0);
      kernel(g, g.mainLoop() - 1, {ofParameters[size_t(below(int64_t(ofParameters.size())))]}, {made});
      ofParameters.push_back(made);
    };
    if (below(2))
      prepare();
    if (below(2)) { // a sum that the main loop needs: a loop before it
      sum = buffer(g, Buffer::Accumulator, kCell, 0);
      int s = value();
      g.loops = 2;
      kernel(g, 1, {x, w}, {s});
      kernel(g, 1, {s}, {sum});
      if (below(2)) { // what follows from it, between the loops
        int prepared = buffer(g, Buffer::Value, kCell, 0);
        kernel(g, 2, {sum, w}, {prepared});
        sum = prepared;
      }
    }
    for (int64_t more = below(3); more > 0; --more)
      prepare();
    auto parameter = [&] { return ofParameters[size_t(below(int64_t(ofParameters.size())))]; };
    int first = int(g.kernels.size()), main = g.mainLoop();
    int layers = 2 + int(below(3));
    std::vector<int> forward{x};
    auto leafOrLoop = [&](std::vector<int> reads, int out, bool backward) {
      int k = kernel(g, main, reads, {out});
      g.kernels[k].backward = backward;
      if (below(3) == 0) {
        g.kernels[k].reads = {std::min(w, reads[0]), std::max(w, reads[0])};
        if (reads.size() > 1) // read as a whole by each trip
          g.kernels[k].reads = {std::min(reads[0], reads[1]), std::max(reads[0], reads[1])};
        tree.loops[k] = loop(g, reads[0], reads.size() > 1 ? reads[1] : w, out, 1);
        if (reads.size() > 1 && reads[0] == reads[1])
          g.kernels[k].reads = {reads[0]};
        finish(tree.loops[k], g.kernels[k], g);
      } else {
        g.kernels[k].rows = below(3) > 0;
      }
    };
    for (int i = 0; i < layers; ++i) {
      std::vector<int> reads{forward.back()};
      if (sum >= 0 && i == layers - 1)
        reads.push_back(sum);
      else if (below(2))
        reads.push_back(parameter());
      int out = value();
      leafOrLoop(reads, out, false);
      forward.push_back(out);
    }
    int gradient = forward.back();
    std::vector<int> sums;
    for (int i = layers - 1; i >= 1; --i) {
      if (i == 1 || below(2)) {
        int dw = buffer(g, Buffer::Accumulator, kCell * (1 + below(2)), 0);
        int k = kernel(g, main, below(2) ? std::vector<int>{gradient, forward[i]} : std::vector<int>{gradient, forward[i], parameter()}, {dw});
        g.kernels[k].backward = true, g.kernels[k].rows = below(2);
        sums.push_back(dw);
      }
      if (i > 1) {
        int out = value();
        leafOrLoop({gradient, forward[i]}, out, true);
        gradient = out;
      }
    }
    sums.push_back(w);
    if (below(4) == 0)
      sums.push_back(parameter());
    g.kernels[kernel(g, main + 1, sums, {w})].recomputable = false;
    blocks(tree, first);
  }

  // Runs of kernels on rows, one after the other in the list, in blocks of some rows.
  void blocks(StepTree &tree, int first) {
    const StepGraph &g = tree.flat;
    std::vector<RowRange> ranges;
    std::vector<int64_t> scratch;
    for (const Kernel &k : g.kernels)
      scratch.push_back(k.scratch.otherwise);
    for (int k = first; k + 1 < int(g.kernels.size()); ++k) {
      int end = k;
      while (end < int(g.kernels.size()) && g.kernels[end].rows && g.inMainLoop(end))
        ++end;
      if (end - k < 2 || below(2))
        continue;
      RowRange range;
      range.kernels.resize(size_t(end - k));
      std::iota(range.kernels.begin(), range.kernels.end(), k);
      ranges.push_back(range);
      k = end;
    }
    RowBlock block{1, kPositions};
    if (int64_t which = below(3); which == 0)
      block = {1, 1};
    else if (which == 1)
      block = {2, kPositions};
    tree.rows = withRowBlocks(g, ranges, block, [&](int k, const KernelRows *) { return scratch[size_t(k)]; });
  }

  Random random;
};

} // namespace cinch::solve
#endif
