// Reorder.cpp: exact moves of single runs. A run walks away from its place by exchanges with its neighbours; an
// exchange changes what is alive at two places only, so that every place on the way is priced exactly for the degree
// of the two runs. It stays where the most that is alive on the whole stretch it could walk is least, and of those
// places where the sum over the other runs is: the bytes beside its own place say nothing of what it keeps waiting.
// Nothing outside the stretch changes, so the peak never rises.
#include "compiler/solve/Reorder.h"
#include "compiler/solve/Random.h"

#include <algorithm>

namespace cinch::solve {

class RunOrder {
public:
  RunOrder(const GraphIndex &index, int64_t b) : index(index), g(index.graph), microbatch(b) { findBuffers(); }

  void start(const std::vector<int> &loop, bool apart) {
    kernels = loop, n = int(loop.size()), turn = -1;
    runs.resize(std::max(runs.size(), loop.size()));
    copyCount = 0;
    readRuns();
    for (int t = 0; t < n; ++t)
      for (int before : runs[t].before)
        runs[before].after.push_back(t);
    if (apart) {
      turn = n;
      for (int t = 0; t < n && turn == n; ++t)
        if (g.kernels[loop[t]].backward)
          turn = t;
    }
    at.resize(n), place.resize(n), live.resize(n), kept.assign(size_t(n) + 1, 0);
    for (int t = 0; t < n; ++t)
      at[t] = place[t] = t;
    last.resize(copyCount);
    for (size_t c = 0; c < copyCount; ++c)
      last[c] = copies[c].readers.empty() ? copies[c].run : copies[c].readers.back();
    price(0, n - 1);
  }

  std::vector<int> improve(int passes) {
    for (int pass = 0; pass < passes; ++pass) {
      bool moved = false;
      for (int t = 0; t < n; ++t)
        moved |= tryRun(at[pass % 2 ? n - 1 - t : t]);
      if (!moved)
        break;
    }
    std::vector<int> result(n);
    for (int p = 0; p < n; ++p)
      result[p] = kernels[at[p]];
    return result;
  }

  std::vector<int> shuffle(uint64_t seed) {
    std::vector<int> missing(n), ready[2], result; // by sweep
    auto sweepOf = [&](int t) { return turn >= 0 && t >= turn; };
    for (int t = 0; t < n; ++t) {
      missing[t] = int(runs[t].before.size());
      if (!missing[t])
        ready[sweepOf(t)].push_back(t);
    }
    Random random = Random::seeded(seed);
    for (int p = 0; p < n; ++p) {
      std::vector<int> &from = ready[p >= turn];
      size_t i = size_t(random.below(int64_t(from.size())));
      int t = from[i];
      from.erase(from.begin() + i);
      result.push_back(kernels[t]);
      for (int after : runs[t].after)
        if (--missing[after] == 0)
          ready[sweepOf(after)].push_back(after);
    }
    return result;
  }

private:
  static constexpr int kReach = 96; // farthest walk of a run: blocks of a network are shorter, and the price of a look grows with it

  struct Copy {
    int run;
    int64_t bytes;
    std::vector<int> readers;
  };
  struct Pair {
    int write;
    std::vector<int> reads; // copies whose bytes it may take
  };
  struct Run {
    std::vector<int> before, after, reads, writes;
    std::vector<Pair> pairs;
    int64_t born = 0, scratch = 0; // born: copies, and sums that begin with the run and stay
    void clear() { before.clear(), after.clear(), reads.clear(), writes.clear(), pairs.clear(), born = scratch = 0; }
  };

  // What the runs read, write and come behind, in the order given.
  void readRuns() {
    for (int t = 0; t < n; ++t)
      runs[t].clear();
    current.assign(g.buffers.size(), -1), lastTouch.assign(g.buffers.size(), -1);
    int barrier = -1;
    std::vector<char> hasBegun(g.buffers.size(), 0);
    for (int t = 0; t < n; ++t) {
      const Kernel &kernel = g.kernels[kernels[t]];
      comesBehind(t, barrier);
      readOperands(t, kernel);
      for (int v : kernel.writes)
        if (loopBorn[v])
          writeCopy(t, kernel, v);
        else if (index.beginsLate(v, microbatch) && !hasBegun[v])
          hasBegun[v] = 1, runs[t].born += g.buffers[v].bytes(microbatch);
      runs[t].scratch = g.scratchBytes(kernel, microbatch);
      // What leaves the program keeps its place; where not all parts find what those before them left, so does the border of two.
      if (kernel.writes.empty() || (kernel.newPart && !index.finds.empty())) {
        for (int other = 0; other < t; ++other)
          comesBehind(t, other);
        barrier = t;
      }
    }
  }
  void findBuffers() {
    loopBorn.assign(g.buffers.size(), 0), changed = loopBorn;
    for (size_t v = 0; v < g.buffers.size(); ++v)
      loopBorn[v] = g.buffers[v].kind == Buffer::Value && !index.persistent[v] && index.bornIn[v] == g.mainLoop();
    std::vector<int> touches(g.buffers.size(), 0);
    std::vector<char> written(g.buffers.size(), 0);
    for (int k : index.loop) {
      for (int v : g.kernels[k].writes)
        ++touches[v], written[v] = 1;
      for (int v : g.kernels[k].reads)
        ++touches[v];
    }
    for (size_t v = 0; v < g.buffers.size(); ++v)
      changed[v] = !loopBorn[v] && written[v] && touches[v] > 1;
  }
  void comesBehind(int t, int before) {
    std::vector<int> &list = runs[t].before;
    if (before >= 0 && before != t && std::find(list.begin(), list.end(), before) == list.end())
      list.push_back(before);
  }
  void readOperands(int t, const Kernel &kernel) {
    Run &run = runs[t];
    for (int r : kernel.reads)
      if (int c = loopBorn[r] ? current[r] : -1; c >= 0) {
        comesBehind(t, copies[c].run);
        if (std::find(run.reads.begin(), run.reads.end(), c) == run.reads.end()) {
          run.reads.push_back(c);
          copies[c].readers.push_back(t);
        }
      }
    for (auto *list : {&kernel.reads, &kernel.writes})
      for (int v : *list)
        if (changed[v])
          comesBehind(t, lastTouch[v]), lastTouch[v] = t;
  }
  // Run `t` makes a copy of a buffer, behind all readers of the older one.
  void writeCopy(int t, const Kernel &kernel, int v) {
    Run &run = runs[t];
    if (current[v] >= 0) {
      comesBehind(t, copies[current[v]].run);
      for (int reader : copies[current[v]].readers)
        comesBehind(t, reader);
    }
    int64_t bytes = g.buffers[v].bytes(microbatch);
    Pair pair;
    pair.write = int(copyCount);
    for (auto &[to, from] : kernel.inPlace)
      if (to == v && loopBorn[from] && current[from] >= 0 && g.buffers[from].bytes(microbatch) == bytes)
        pair.reads.push_back(current[from]);
    current[v] = pair.write;
    run.writes.push_back(pair.write);
    if (!pair.reads.empty())
      run.pairs.push_back(std::move(pair));
    run.born += bytes;
    if (copyCount == copies.size())
      copies.emplace_back();
    Copy &copy = copies[copyCount++];
    copy.run = t, copy.bytes = bytes, copy.readers.clear();
  }

  // Bytes of writes that take those of reads that die here.
  template <class Dies> int64_t shared(const Run &run, Dies &&dies) {
    int64_t bytes = 0;
    taken.clear();
    for (const Pair &pair : run.pairs)
      for (int c : pair.reads)
        if (dies(c) && std::find(taken.begin(), taken.end(), c) == taken.end()) {
          bytes += copies[c].bytes;
          taken.push_back(c);
          break;
        }
    return bytes;
  }
  // Runs `r` with `carried` bytes alive before it: returns the bytes alive during it, and leaves those after it.
  template <class Dies> int64_t step(int r, int64_t &carried, Dies &&dies) {
    const Run &run = runs[r];
    int64_t during = carried + run.born + run.scratch - shared(run, dies);
    carried += run.born;
    for (int c : run.reads)
      if (dies(c))
        carried -= copies[c].bytes;
    for (int c : run.writes)
      if (copies[c].readers.empty())
        carried -= copies[c].bytes;
    return during;
  }
  void price(int from, int to) {
    int64_t carried = kept[from];
    for (int p = from; p <= to; ++p) {
      live[p] = step(at[p], carried, [&](int c) { return last[c] == at[p]; });
      kept[p + 1] = carried;
    }
  }
  bool reads(int run, int c) const {
    return std::find(runs[run].reads.begin(), runs[run].reads.end(), c) != runs[run].reads.end();
  }

  // Moves run x to the best place that it can walk to.
  bool tryRun(int x) {
    int p = place[x], low = 0, high = n - 1;
    for (int before : runs[x].before)
      low = std::max(low, place[before] + 1);
    for (int after : runs[x].after)
      high = std::min(high, place[after] - 1);
    if (turn >= 0)
      (p < turn ? high : low) = p < turn ? std::min(high, turn - 1) : std::max(low, turn);
    low = std::max(low, p - kReach), high = std::min(high, p + kReach);
    if (low >= high)
      return false;
    findOtherReaders(x);
    most.assign(size_t(high - low) + 1, 0), sum.assign(size_t(high - low) + 1, 0);
    priceLater(x, low, high);
    priceEarlier(x, low);
    int best = bestPlace(p, low, high);
    if (best == p)
      return false;
    move(p, best);
    return true;
  }
  // Where x does not stand, who reads its operands last?
  void findOtherReaders(int x) {
    lastOther.clear();
    for (int c : runs[x].reads) {
      int other = -1;
      for (int reader : copies[c].readers)
        if (reader != x && (other < 0 || place[reader] > place[other]))
          other = reader;
      lastOther.push_back(other);
    }
  }
  int otherOf(int x, int c) const {
    for (size_t i = 0; i < runs[x].reads.size(); ++i)
      if (runs[x].reads[i] == c)
        return lastOther[i];
    return -1;
  }
  // The runs behind x go first.
  void priceLater(int x, int low, int high) {
    int p = place[x];
    int64_t carried = kept[p], top = 0, change = 0;
    for (int q = p + 1; q <= high; ++q) {
      int y = at[q];
      int64_t during = step(y, carried, [&](int c) { return last[c] == y && !reads(x, c); });
      top = std::max(top, during), change += during - live[q];
      int64_t after = carried;
      int64_t mine = step(x, after, [&](int c) {
        int other = otherOf(x, c);
        return other < 0 || place[other] <= q;
      });
      most[q - low] = std::max(top, mine), sum[q - low] = change;
    }
  }
  // The runs before x go behind it. What is alive at each then depends on nothing before it but x.
  void priceEarlier(int x, int low) {
    int p = place[x];
    int64_t top = 0, change = 0;
    for (int q = p - 1; q >= low; --q) {
      // x at q with what is carried to there, then the run that stood at q.
      int y = at[q];
      int64_t carry = kept[q];
      int64_t mine = step(x, carry, [&](int c) {
        int other = otherOf(x, c);
        return other < 0 || place[other] < q;
      });
      int64_t during = step(y, carry, [&](int c) {
        return last[c] == y ? true : last[c] == x && otherOf(x, c) == y;
      });
      top = std::max(top, during), change += during - live[q];
      most[q - low] = std::max(top, mine), sum[q - low] = change;
    }
  }
  // The whole stretch is the measure for every place.
  int bestPlace(int p, int low, int high) {
    prefix.assign(size_t(high - low) + 2, 0), suffix.assign(size_t(high - low) + 2, 0);
    for (int q = low; q <= high; ++q)
      prefix[q - low + 1] = std::max(prefix[q - low], live[q]);
    for (int q = high; q >= low; --q)
      suffix[q - low] = std::max(suffix[q - low + 1], live[q]);
    int best = p;
    int64_t bestMost = suffix[0], bestSum = 0;
    for (int q = low; q <= high; ++q) {
      if (q == p)
        continue;
      int from = std::min(p, q), to = std::max(p, q);
      int64_t m = std::max({most[q - low], prefix[from - low], suffix[to - low + 1]});
      if (m < bestMost || (m == bestMost && sum[q - low] < bestSum))
        best = q, bestMost = m, bestSum = sum[q - low];
    }
    return best;
  }
  // The run at p goes to place q, those between move by one.
  void move(int p, int q) {
    if (q > p)
      std::rotate(at.begin() + p, at.begin() + p + 1, at.begin() + q + 1);
    else
      std::rotate(at.begin() + q, at.begin() + p, at.begin() + p + 1);
    int from = std::min(p, q), to = std::max(p, q);
    for (int i = from; i <= to; ++i)
      place[at[i]] = i;
    for (int i = from; i <= to; ++i)
      for (int c : runs[at[i]].reads) {
        int l = copies[c].readers.front();
        for (int reader : copies[c].readers)
          if (place[reader] > place[l])
            l = reader;
        last[c] = l;
      }
    price(from, to);
  }

  const GraphIndex &index;
  const StepGraph &g;
  int64_t microbatch;
  std::vector<int> kernels; // of the runs
  int n = 0, turn = -1;
  std::vector<Run> runs;    // the first n, as the first `copyCount` of the copies: the rest are of longer loops before
  std::vector<Copy> copies;
  size_t copyCount = 0;
  std::vector<char> loopBorn; // of buffers: does every pass of the loop make it anew?
  std::vector<char> changed;  // those that are there before and that single kernels change in place: all who touch them keep their order
  std::vector<int> current, lastTouch; // of buffers, while the runs are read: the newest copy, the run that touched it last
  std::vector<int> at, place; // run at each place, place of each run
  std::vector<int> last;      // of copies: the run that reads it last (its own if none does)
  std::vector<int64_t> live;  // during the run at a place, beside what lives through the whole loop
  std::vector<int64_t> kept;  // before the run at a place
  std::vector<int> lastOther, taken;
  std::vector<int64_t> most, sum, prefix, suffix;
};

Reorderer::Reorderer(const GraphIndex &index, int64_t microbatch)
    : microbatch(microbatch), line(index), order(std::make_unique<RunOrder>(index, microbatch)) {}
Reorderer::~Reorderer() = default;

std::vector<int> Reorderer::operator()(const std::vector<int> &loop, bool apart, int passes) {
  if (loop.size() < 3)
    return loop;
  order->start(loop, apart);
  std::vector<int> better = order->improve(passes);
  // The exact timeline has the last word.
  if (better == loop || !line.build(microbatch, loop))
    return loop;
  int64_t before = line.peak;
  return line.build(microbatch, better) && line.peak <= before ? better : loop;
}

std::vector<int> reorder(const GraphIndex &index, int64_t microbatch, const std::vector<int> &loop, bool apart, int passes) {
  return Reorderer(index, microbatch)(loop, apart, passes);
}

std::vector<int> shuffled(const GraphIndex &index, const std::vector<int> &loop, uint64_t seed) {
  RunOrder order(index, 1);
  order.start(loop, true);
  return order.shuffle(seed);
}

} // namespace cinch::solve
