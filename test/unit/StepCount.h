// StepCount.h: what a schedule of a step's loop holds and costs, counted by plain code that shares nothing with the planner, and the
// cheapest schedule of all, by Dijkstra's method over (computed, held). For small steps with a few kernels before the main loop, every one of
// which is a loop's or reads what another one made, and one kernel behind it.
#ifndef CINCH_TEST_UNIT_STEPCOUNT_H
#define CINCH_TEST_UNIT_STEPCOUNT_H

#include "compiler/solve/StepGraph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

namespace cinch::solve {

// Bytes and seconds of the loop of a step, told once more: what is held through all of it, and what a run adds.
class Count {
public:
  Count(const StepGraph &g, int64_t b) : g(g), b(b), values(g.buffers.size(), 0) {
    for (size_t v = 0; v < g.buffers.size(); ++v) {
      const Buffer &buffer = g.buffers[v];
      int made = isInput(buffer) ? -1 : g.kernels[buffer.producer].section;
      values[v] = buffer.kind == Buffer::Value && made == g.mainLoop();
      if (isInput(buffer) || (buffer.kind == Buffer::Accumulator && made == g.mainLoop()) || (made < g.mainLoop() && readFrom(g.mainLoop(), int(v))))
        through += buffer.bytes(b);
    }
    for (size_t k = 0; k < g.kernels.size(); ++k)
      if (int section = g.kernels[k].section; section != g.mainLoop()) {
        outside = std::max(outside, during(int(k)));
        seconds += g.kernels[k].seconds.at(double(b)) * double(isLoop(section) ? g.batch / b : 1);
      }
  }

  // Bytes while k runs with `held` bytes of the loop's values there (its operands are), of which `dying` are read for the last time.
  template <class Dies> int64_t during(int k, int64_t held, Dies &&dies) const {
    const Kernel &kernel = g.kernels[k];
    int64_t bytes = through + held + g.scratchBytes(kernel, b);
    std::vector<int> taken;
    for (int w : kernel.writes) {
      if (!values[w])
        continue;
      bytes += g.buffers[w].bytes(b);
      for (auto &[to, from] : kernel.inPlace)
        if (to == w && values[from] && dies(from) && g.buffers[from].bytes(b) == g.buffers[w].bytes(b) &&
            !std::count(taken.begin(), taken.end(), from)) {
          bytes -= g.buffers[w].bytes(b);
          taken.push_back(from);
          break;
        }
    }
    return bytes;
  }

  // Peak and seconds of a schedule of the loop.
  std::pair<int64_t, double> of(const std::vector<int> &loop) const {
    int64_t peak = outside;
    double body = 0;
    auto readNext = [&](int v, size_t t) { // is the copy that is there after run t read again?
      for (size_t s = t + 1; s < loop.size(); ++s) {
        const Kernel &k = g.kernels[loop[s]];
        if (std::count(k.reads.begin(), k.reads.end(), v))
          return true;
        if (std::count(k.writes.begin(), k.writes.end(), v))
          return false;
      }
      return false;
    };
    std::vector<char> there(g.buffers.size(), 0);
    for (size_t t = 0; t < loop.size(); ++t) {
      const Kernel &k = g.kernels[loop[t]];
      int64_t held = 0;
      for (size_t v = 0; v < there.size(); ++v)
        held += there[v] ? g.buffers[v].bytes(b) : 0;
      peak = std::max(peak, during(loop[t], held, [&](int v) { return !readNext(v, t); }));
      body += k.seconds.at(double(b));
      for (int v : k.writes)
        there[v] = values[v];
      for (size_t v = 0; v < there.size(); ++v)
        there[v] = there[v] && readNext(int(v), t);
    }
    return {peak, seconds + body * double(g.batch / b)};
  }

  // The cheapest schedule within the budget, over all orders and all that may be computed again: seconds, or infinity.
  double cheapest(int64_t budget, const std::vector<bool> &again) const {
    if (outside > budget)
      return INFINITY;
    std::vector<int> loop;
    for (size_t k = 0; k < g.kernels.size(); ++k)
      if (g.inMainLoop(int(k)))
        loop.push_back(int(k));
    struct State {
      double cost;
      uint64_t done, there; // kernels of the loop, buffers
      bool operator<(const State &o) const { return cost > o.cost; }
    };
    std::map<std::pair<uint64_t, uint64_t>, double> best;
    std::priority_queue<State> queue;
    queue.push({0, 0, 0});
    auto has = [](uint64_t set, int i) { return (set >> i & 1) != 0; };
    while (!queue.empty()) {
      State s = queue.top();
      queue.pop();
      if (s.done + 1 == uint64_t(1) << loop.size())
        return seconds + s.cost * double(g.batch / b);
      auto [seen, fresh] = best.insert({{s.done, s.there}, s.cost});
      if (!fresh)
        continue;
      int64_t held = 0;
      for (int v = 0; v < int(g.buffers.size()); ++v)
        held += has(s.there, v) ? g.buffers[v].bytes(b) : 0;
      for (int i = 0; i < int(loop.size()); ++i) {
        const Kernel &k = g.kernels[loop[i]];
        if (has(s.done, i) && !again[loop[i]])
          continue;
        std::vector<int> mine;
        bool possible = true, needless = false;
        for (int r : k.reads)
          if (values[r])
            possible &= has(s.there, r), mine.push_back(r);
        for (int w : k.writes)
          needless |= values[w] && has(s.there, w);
        if (!possible || needless)
          continue;
        uint64_t there = s.there;
        for (int w : k.writes)
          if (values[w])
            there |= uint64_t(1) << w, mine.push_back(w);
        // What dies here: any of its operands and results.
        for (uint64_t drop = 0; drop < uint64_t(1) << mine.size(); ++drop) {
          uint64_t left = there;
          for (size_t m = 0; m < mine.size(); ++m)
            if (has(drop, int(m)))
              left &= ~(uint64_t(1) << mine[m]);
          if (during(loop[i], held, [&](int v) { return !has(left, v); }) <= budget)
            queue.push({s.cost + k.seconds.at(double(b)), s.done | uint64_t(1) << i, left});
        }
      }
    }
    return INFINITY;
  }

private:
  bool readFrom(int section, int buffer) const {
    return std::any_of(g.kernels.begin(), g.kernels.end(), [&](const Kernel &k) {
      return k.section >= section && std::count(k.reads.begin(), k.reads.end(), buffer);
    });
  }
  // What is there while kernel k runs, outside of the main loop: inputs, sums whose loop has begun and that are still read (or never), and
  // values on their way from their maker to a reader. A value of its own loop takes the bytes of one that dies there where it may.
  int64_t during(int at) const {
    const Kernel &k = g.kernels[size_t(at)];
    int64_t bytes = g.scratchBytes(k, b);
    auto readBehind = [&](int v, int from) {
      for (int other = from; other < int(g.kernels.size()); ++other)
        if (std::count(g.kernels[size_t(other)].reads.begin(), g.kernels[size_t(other)].reads.end(), v))
          return true;
      return false;
    };
    for (size_t i = 0; i < g.buffers.size(); ++i) {
      const Buffer &buffer = g.buffers[i];
      int v = int(i), made = buffer.producer;
      bool there = isInput(buffer);
      if (buffer.kind == Buffer::Accumulator) {
        int loop = g.kernels[size_t(made)].section;
        there = k.section >= loop && (k.section == loop || !readFrom(loop + 1, v) || readBehind(v, at));
      } else if (!there) {
        there = made == at || (made < at && readBehind(v, at)) ;
      }
      bytes += there ? buffer.bytes(b) : 0;
    }
    for (auto &[to, from] : k.inPlace)
      if (!isInput(g.buffers[size_t(from)]) && !readBehind(from, at + 1) && g.buffers[size_t(from)].bytes(b) == g.buffers[size_t(to)].bytes(b))
        return bytes - g.buffers[size_t(to)].bytes(b); // there is one such pair at most
    return bytes;
  }
  static bool isInput(const Buffer &b) { return b.kind == Buffer::Persistent || (b.kind == Buffer::Value && b.producer < 0); }

  const StepGraph &g;
  int64_t b;
  std::vector<char> values; // of the loop
  int64_t through = 0, outside = 0;
  double seconds = 0;
};

} // namespace cinch::solve
#endif
