// LoopCopies.h: a loop list with its copies: what local search on schedules (Refine.h) looks at and prices its moves by.
#ifndef CINCH_COMPILER_SOLVE_LOOPCOPIES_H
#define CINCH_COMPILER_SOLVE_LOOPCOPIES_H

#include "compiler/solve/Timeline.h"

#include <algorithm>

namespace cinch::solve {

// Who writes, who reads, when.
class LoopCopies {
public:
  struct Copy {
    int buffer = 0, from = 0, to = 0; // written at run `from` and read last at run `to` of the loop
    int part = 0;                     // of the loop body in which it is written
    int before = -1;                  // the copy of the same buffer that it replaces; -1: none
    int64_t bytes = 0;
    std::vector<int> readers;
  };

  struct Copies {
    const Copy *first = nullptr, *last = nullptr;
    const Copy *begin() const { return first; }
    const Copy *end() const { return last; }
    const Copy &operator[](int i) const { return first[i]; }
  };

  LoopCopies(const LoopCopies &) = delete;
  LoopCopies(const GraphIndex &index, int64_t b) : index(index), g(index.graph), b(b), line(index) {
    place.assign(g.kernels.size(), -1);
    for (size_t i = 0; i < index.loop.size(); ++i)
      place[index.loop[i]] = int(i);
    loopBorn = index.values;
    for (size_t v = 0; v < g.buffers.size(); ++v)
      loopBorn[v] &= index.bornIn[v] == g.mainLoop();
  }

  bool build(const std::vector<int> &loop) {
    if (!line.build(b, loop))
      return false;
    int n = int(loop.size());
    live = line.profile();
    live.erase(live.begin(), live.begin() + line.loopBegin);
    live.resize(size_t(n));
    // Emptied, not thrown away: this is built for every move.
    of.resize(g.buffers.size()), reads.resize(std::max(reads.size(), size_t(n))), writes.resize(reads.size());
    for (auto *lists : {&of, &reads, &writes})
      for (std::vector<int> &list : *lists)
        list.clear();
    size_t count = 0;
    int part = 0;
    partOf.resize(size_t(n));
    for (int t = 0; t < n; ++t) {
      int k = loop[t];
      partOf[size_t(t)] = part += g.kernels[k].newPart;
      for (int i = index.firstRead[k]; i < index.firstRead[k + 1]; ++i)
        if (int r = index.reads[i]; loopBorn[r]) {
          int found = latest(r, t);
          Copy &c = made[size_t(found)];
          if (c.readers.empty() || c.readers.back() != t)
            c.readers.push_back(t), reads[t].push_back(found);
          c.to = t;
        }
      for (int i = index.firstWrite[k]; i < index.firstWrite[k + 1]; ++i)
        if (int w = index.writes[i]; loopBorn[w]) {
          Copy &c = count < made.size() ? made[count] : made.emplace_back();
          c.buffer = w, c.from = c.to = t, c.part = part, c.before = latest(w, t), c.bytes = line.bufferBytes(w);
          c.readers.clear();
          writes[t].push_back(int(count));
          of[w].push_back(int(count++));
        }
    }
    copies = {made.data(), made.data() + count};
    // What lies there before each run: all that lives through the loop, and the copies still to be read.
    carried.assign(n + 1, 0);
    if (n)
      carried[0] = live[0] - scratch(loop[0]);
    for (const Copy &c : copies) {
      if (c.from == 0)
        carried[0] -= c.bytes;
      carried[c.from + 1] += c.bytes, carried[c.to + 1] -= c.bytes;
    }
    for (int t = 0; t < n; ++t)
      carried[t + 1] += carried[t];
    return true;
  }
  int64_t scratch(int kernel) const { return g.scratchBytes(g.kernels[kernel], b); }

  // The most that lies there while `cone` runs right before run r to leave the buffer `wanted` there: the copy `old`
  // of it is gone by then.
  int64_t mostInCone(const std::vector<int> &cone, int r, const Copy &old) {
    int64_t alive = carried[r] - old.bytes, most = 0;
    inside.clear();
    for (size_t i = 0; i < cone.size(); ++i)
      for (int v : g.kernels[cone[i]].writes)
        if (loopBorn[v])
          inside.push_back({v, i, v == old.buffer ? cone.size() : i});
    for (size_t i = 0; i < cone.size(); ++i)
      for (int v : g.kernels[cone[i]].reads)
        for (auto &[buffer, from, to] : inside)
          if (buffer == v)
            to = std::max(to, i);
    for (size_t i = 0; i < cone.size(); ++i) {
      for (auto &[buffer, from, to] : inside)
        alive += from == i ? g.buffers[buffer].bytes(b) : 0;
      most = std::max(most, alive + scratch(cone[i]));
      for (auto &[buffer, from, to] : inside)
        alive -= to == i ? g.buffers[buffer].bytes(b) : 0;
    }
    return most;
  }

  // Is a copy of the buffer at hand when run r starts, and read there or later?
  bool aliveBefore(int buffer, int r) const {
    int c = latest(buffer, r);
    return c >= 0 && copies[size_t(c)].to >= r;
  }

  // The last copy of the buffer that run r finds, of those written before it; -1: none.
  int latest(int buffer, int r) const {
    for (size_t i = of[buffer].size(); i-- > 0;)
      if (const Copy &c = made[size_t(of[buffer][i])]; c.from < r && index.reaches(buffer, c.part, partOf[size_t(r)]))
        return of[buffer][i];
    return -1;
  }

  const GraphIndex &index;
  const StepGraph &g;
  int64_t b;
  Timeline line;
  std::vector<int64_t> live, carried; // bytes alive during each run of the loop, and before it
  std::vector<char> loopBorn;
  Copies copies;
  std::vector<std::vector<int>> reads, writes; // copies, of runs; there may be more lists than runs, which are empty
  std::vector<std::vector<int>> of;            // copies, of buffers
  std::vector<int> place;                      // of kernels in the loop without recomputation

private:
  std::vector<Copy> made; // and those of longer loops built before
  struct Inside {
    int buffer;
    size_t from, to;
  };
  std::vector<int> partOf; // of runs
  std::vector<Inside> inside;
};

} // namespace cinch::solve
#endif
