// TreeMachine.h: runs a tree (StepTrees.h) on symbols, every loop unrolled: as it is written, every value somewhere of its own, or by a
// plan, in the bytes of its arena.
//
// 64 bytes are a cell, a cell holds a symbol. A leaf makes the cells of an example (or of a row, if it works on rows) from the cells of
// that example that it reads; sums go on from example to example. So a tree computes the same under every micro-batch, every block of
// rows and every plan.
#ifndef CINCH_TEST_UNIT_TREEMACHINE_H
#define CINCH_TEST_UNIT_TREEMACHINE_H

#include "test/unit/StepTrees.h"

#include <array>
#include <functional>

namespace cinch::solve {

using Symbol = uint64_t;

inline Symbol mixed(Symbol a, Symbol b) {
  a ^= b + 0x9e3779b97f4a7c15 + (a << 12) + (a >> 4);
  a *= 0xff51afd7ed558ccd;
  return a ^ (a >> 32);
}

// Where a buffer's cells lie: those of example e at first + e * stride, `count` of them; stride 0: it has no examples.
struct Cells {
  Symbol *first = nullptr;
  int64_t stride = 0, count = 0;
  Symbol *at(int64_t example) const { return first + example * stride; }
  // Part i of n of each example.
  Cells part(int64_t i, int64_t n) const { return stride ? Cells{first + i * (count / n), stride, count / n} : *this; }
  Cells from(int64_t example) const { return {first + example * stride, stride, count}; }
};
inline Cells cellsOf(const Buffer &b, Symbol *first) {
  return b.perExampleBytes ? Cells{first, b.perExampleBytes / kCell, b.perExampleBytes / kCell} : Cells{first, 0, b.fixedBytes / kCell};
}

// One leaf on so many examples; on rows, each part of an example for itself.
inline void runLeaf(Symbol name, const Kernel &k, const std::vector<Cells> &reads, const std::vector<Cells> &writes,
                    const std::vector<bool> &sums, int64_t examples, int64_t rows) {
  for (int64_t e = 0; e < examples; ++e)
    for (int64_t r = 0; r < rows; ++r) {
      Symbol all = name;
      for (const Cells &whole : reads) {
        Cells c = whole.part(r, rows);
        for (int64_t i = 0; i < c.count; ++i)
          all = mixed(all, c.at(e)[i]);
      }
      for (size_t w = 0; w < writes.size(); ++w) {
        Cells c = writes[w].part(r, rows);
        for (int64_t i = 0; i < c.count; ++i)
          c.at(e)[i] = mixed(sums[w] ? mixed(c.at(e)[i], all) : all, Symbol(w * 1000 + i));
      }
    }
}

// Memory of the values that lie nowhere in particular.
class Heap {
public:
  Symbol *fresh(int64_t cells) {
    blocks.emplace_back(size_t(std::max<int64_t>(cells, 1)), 0);
    return blocks.back().data();
  }

private:
  std::vector<std::vector<Symbol>> blocks;
};

using Resolve = std::function<Cells(int buffer)>;

// A loop along an axis on `examples` examples. `memory`: its scratch, in which the plan of a trip says what lies where; none: the loop
// as it is written, every value somewhere of its own.
inline void runLoop(Symbol name, const TreeLoop &l, const Resolve &outside, int64_t examples, Symbol *memory, Heap &heap) {
  std::vector<std::array<Symbol *, 2>> slots;
  int64_t used = 0;
  for (const Buffer &carried : l.slots) {
    std::array<Symbol *, 2> two;
    for (Symbol *&slot : two) {
      int64_t cells = carried.bytes(examples) / kCell;
      slot = memory ? memory + used : heap.fresh(cells);
      used += cells;
    }
    std::fill_n(two[0], carried.perExampleBytes * examples / kCell, Symbol(7));
    slots.push_back(two);
  }
  Plan plan = l.plan(examples);
  ScheduledProgram program = scheduledProgram(l.trip, plan.decision);
  for (int64_t t = 0; t < l.trips; ++t) {
    std::vector<Symbol *> own(l.trip.buffers.size(), nullptr);
    for (const Launch &launch : program.launches) {
      const Kernel &k = l.trip.kernels[launch.kernel];
      auto cells = [&](const Place &place) {
        const TreeLoop::Outer &o = l.outer[place.buffer];
        if (o.role == TreeLoop::Local) {
          Symbol *&first = own[place.buffer];
          if (!memory && !first)
            first = heap.fresh(place.bytes / kCell);
          return cellsOf(l.trip.buffers[place.buffer], memory ? memory + used + place.offset / kCell : first);
        }
        if (o.role == TreeLoop::Part)
          return outside(o.of).part(t, l.trips);
        if (o.role == TreeLoop::Whole)
          return outside(o.of);
        int64_t count = l.slots[o.of].perExampleBytes / kCell;
        return Cells{slots[o.of][(t + (o.role == TreeLoop::CarriedOut)) % 2], count, count};
      };
      std::vector<Cells> reads, writes;
      for (const Place &place : launch.reads)
        reads.push_back(cells(place));
      for (const Place &place : launch.writes)
        writes.push_back(cells(place));
      Symbol inside = mixed(name, Symbol(launch.kernel) + 1);
      auto found = l.inner.find(launch.kernel);
      if (found == l.inner.end()) {
        runLeaf(inside, k, reads, writes, std::vector<bool>(writes.size(), false), examples, 1);
        continue;
      }
      auto operand = [&](int b) {
        for (size_t r = 0; r < k.reads.size(); ++r)
          if (k.reads[r] == b)
            return reads[r];
        return writes[0];
      };
      runLoop(inside, *found->second, operand, examples, memory ? memory + used + launch.scratch.offset / kCell : nullptr, heap);
    }
  }
}

class Machine {
public:
  explicit Machine(const StepTree &tree) : tree(tree), flat(tree.flat) {}

  // What the persistent buffers hold after a step, without a plan: one trip, every value somewhere of its own.
  std::vector<Symbol> expected() {
    std::vector<Symbol *> first;
    for (const Buffer &b : flat.buffers)
      first.push_back(heap.fresh(b.bytes(flat.batch) / kCell));
    auto at = [&](int b) { return cellsOf(flat.buffers[b], first[b]); };
    input(at, flat.batch, 0);
    for (size_t k = 0; k < flat.kernels.size(); ++k)
      run(int(k), at, flat.batch, flat.positions, nullptr);
    return output(at);
  }

  // The same, by a plan, in its arena.
  std::vector<Symbol> planned(const ScheduledProgram &p) {
    std::vector<Symbol> arena(size_t(p.arenaBytes / kCell), Symbol(99));
    Symbol *base = arena.data();
    const StepGraph &g = tree.graph();
    std::map<int, int64_t> fixed;
    for (const Place &place : p.persistent)
      fixed[place.buffer] = place.offset;
    auto persistent = [&](int b) { return cellsOf(flat.buffers[b], base + fixed.at(b) / kCell); };
    size_t done = 0;
    auto runTo = [&](int end) {
      for (size_t i = done; i < size_t(end); ++i)
        launchOne(g, p.launches[i], base, p.microbatch);
    };
    for (const LaunchLoop &loop : p.loops) {
      input(persistent, p.microbatch, 0);
      runTo(loop.begin);
      done = size_t(loop.begin);
      for (const Place &place : loop.zeroed)
        std::fill_n(base + place.offset / kCell, place.bytes / kCell, Symbol(0));
      for (int64_t trip = 0; trip < p.count; ++trip) {
        input(persistent, p.microbatch, trip * p.microbatch);
        runTo(loop.end);
      }
      done = size_t(loop.end);
    }
    runTo(int(p.launches.size()));
    return output(persistent);
  }

private:
  // Parameters, and the data of `count` examples from `first` on.
  void input(const Resolve &at, int64_t count, int64_t first) {
    for (size_t b = 0; b < flat.buffers.size(); ++b) {
      if (flat.buffers[b].kind != Buffer::Persistent)
        continue;
      Cells c = at(int(b));
      for (int64_t e = 0; e < (c.stride ? count : 1); ++e)
        for (int64_t i = 0; i < c.count; ++i)
          c.at(e)[i] = mixed(Symbol(b) + 1, Symbol((c.stride ? first + e : 0) * 100 + i));
    }
  }
  std::vector<Symbol> output(const Resolve &at) {
    std::vector<Symbol> all;
    for (size_t b = 0; b < flat.buffers.size(); ++b)
      if (flat.buffers[b].kind == Buffer::Persistent && !flat.buffers[b].perExampleBytes)
        all.insert(all.end(), at(int(b)).first, at(int(b)).first + at(int(b)).count);
    return all;
  }

  // A kernel of the flat step on so many examples and rows.
  void run(int k, const Resolve &at, int64_t examples, int64_t rows, Symbol *scratch) {
    const Kernel &kernel = flat.kernels[k];
    if (auto found = tree.loops.find(k); found != tree.loops.end()) {
      runLoop(Symbol(k) * 31 + 5, *found->second, at, examples, scratch, heap);
      return;
    }
    std::vector<Cells> reads, writes;
    std::vector<bool> sums;
    for (int r : kernel.reads)
      reads.push_back(at(r));
    for (int w : kernel.writes)
      writes.push_back(at(w)), sums.push_back(flat.buffers[w].kind == Buffer::Accumulator);
    bool once = !isLoop(kernel.section);
    runLeaf(Symbol(k) * 31 + 5, kernel, reads, writes, sums, once ? 1 : examples, kernel.rows ? rows : 1);
  }

  // In the arena: a kernel of the step, or a range in blocks of rows.
  void launchOne(const StepGraph &g, const Launch &launch, Symbol *base, int64_t examples) {
    Symbol *scratch = base + launch.scratch.offset / kCell;
    auto at = [&](int b) {
      for (auto *list : {&launch.reads, &launch.writes})
        for (const Place &place : *list)
          if (place.buffer == b)
            return cellsOf(flat.buffers[b], base + place.offset / kCell);
      return Cells();
    };
    if (int k = tree.original(launch.kernel); k >= 0) {
      run(k, at, examples, flat.positions, scratch);
      return;
    }
    const RowKernel &range = *std::find_if(tree.rows.ranges.begin(), tree.rows.ranges.end(),
                                           [&](const RowKernel &r) { return r.kernel == launch.kernel; });
    const RowBlock &block = tree.rows.block;
    ScheduledProgram p = scheduledProgram(range.trip, range.packed->decision);
    for (int64_t e = 0; e < examples; e += block.examples)
      for (int64_t r = 0; r < flat.positions; r += block.positions)
        for (const Launch &inside : p.launches) {
          auto cells = [&](int buffer) {
            for (auto *list : {&inside.reads, &inside.writes})
              for (const Place &place : *list)
                if (range.buffers[place.buffer] == buffer && range.local[place.buffer]) {
                  int64_t count = place.bytes / kCell / block.examples;
                  return Cells{scratch + place.offset / kCell, count, count};
                }
            Cells whole = at(buffer);
            return whole.stride ? whole.from(e).part(r / block.positions, flat.positions / block.positions) : whole;
          };
          int k = range.range.kernels[range.work[inside.kernel]];
          run(k, cells, block.examples, block.positions, scratch + inside.scratch.offset / kCell);
        }
  }

  const StepTree &tree;
  const StepGraph &flat;
  Heap heap;
};

} // namespace cinch::solve
#endif
