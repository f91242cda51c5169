// Refine.cpp: exact moves on a loop list.
//
// `fill` asks of every run beyond the first of its kernel: if the copy before it were held until here, would the bytes
// fit? The best seconds a byte go first, and with a run go those that nobody else needs. `shrink` looks at the moment
// with the most bytes: of the values that lie there unread it gives up the one that frees most of what is too much for
// the seconds of computing it again at its next use (with whatever that needs and is gone by then). Both price their
// moves on the bytes alive at each run; the exact timeline is built again after every pass or move.
#include "compiler/solve/Refine.h"
#include "compiler/solve/Reorder.h"

#include <algorithm>

namespace cinch::solve {
namespace {

// A loop list with its copies: who writes, who reads, when.
class Copies {
public:
  struct Copy {
    int buffer = 0, from = 0, to = 0; // written at run `from` and read last at run `to` of the loop
    int before = -1;                  // the copy of the same buffer that it replaces; -1: none
    int64_t bytes = 0;
    std::vector<int> readers;
  };

  Copies(const GraphIndex &index, int64_t b) : index(index), g(index.graph), b(b), line(index) {
    place.assign(g.kernels.size(), -1);
    for (size_t i = 0; i < index.loop.size(); ++i)
      place[index.loop[i]] = int(i);
    loopBorn = index.values;
    for (size_t v = 0; v < g.buffers.size(); ++v)
      loopBorn[v] &= index.bornIn[v] == Section::Loop;
  }

  bool build(const std::vector<int> &loop) {
    if (!line.build(b, loop))
      return false;
    int n = int(loop.size());
    live = line.profile();
    live.erase(live.begin(), live.begin() + line.loopBegin);
    live.resize(size_t(n));
    current.assign(g.buffers.size(), -1);
    // Emptied, not thrown away: this is built for every move.
    for (auto *lists : {&of, &reads, &writes})
      for (std::vector<int> &list : *lists)
        list.clear();
    of.resize(g.buffers.size()), reads.resize(n), writes.resize(n);
    size_t count = 0;
    for (int t = 0; t < n; ++t) {
      int k = loop[t];
      for (int i = index.firstRead[k]; i < index.firstRead[k + 1]; ++i)
        if (int r = index.reads[i]; loopBorn[r]) {
          Copy &c = copies[current[r]];
          if (c.readers.empty() || c.readers.back() != t)
            c.readers.push_back(t), reads[t].push_back(current[r]);
          c.to = t;
        }
      for (int i = index.firstWrite[k]; i < index.firstWrite[k + 1]; ++i)
        if (int w = index.writes[i]; loopBorn[w]) {
          Copy &c = count < copies.size() ? copies[count] : copies.emplace_back();
          c.buffer = w, c.from = c.to = t, c.before = current[w], c.bytes = line.bufferBytes(w);
          c.readers.clear();
          current[w] = int(count++);
          writes[t].push_back(current[w]);
          of[w].push_back(current[w]);
        }
    }
    copies.resize(count);
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
    for (size_t i = of[buffer].size(); i-- > 0;)
      if (const Copy &c = copies[of[buffer][i]]; c.from < r)
        return c.to >= r;
    return false;
  }
  int64_t most(int from, int to) const { // over runs [from, to)
    int64_t m = 0;
    for (int t = from; t < to; ++t)
      m = std::max(m, live[t]);
    return m;
  }
  void add(int from, int to, int64_t bytes) {
    for (int t = from; t < to; ++t)
      live[t] += bytes;
  }

  const GraphIndex &index;
  const StepGraph &g;
  int64_t b;
  Timeline line;
  std::vector<int64_t> live, carried; // bytes alive during each run of the loop, and before it
  std::vector<char> loopBorn;
  std::vector<Copy> copies;
  std::vector<std::vector<int>> reads, writes; // copies, of runs
  std::vector<std::vector<int>> of;            // copies, of buffers
  std::vector<int> place;                      // of kernels in the loop without recomputation

private:
  struct Inside {
    int buffer;
    size_t from, to;
  };
  std::vector<int> current;
  std::vector<Inside> inside;
};

} // namespace

std::vector<int> fill(const GraphIndex &index, int64_t b, std::vector<int> loop, int64_t target) {
  const StepGraph &g = index.graph;
  Copies state(index, b);
  if (!state.build(loop) || state.line.peak > target)
    return loop;
  for (int pass = 0; pass < 8; ++pass) {
    int n = int(loop.size());
    // Runs that may go, and what goes with them.
    struct Candidate {
      double score;
      int run;
    };
    std::vector<Candidate> order;
    std::vector<char> again(n, 0), gone(n, 0);
    std::vector<int> unread(state.copies.size());
    for (size_t c = 0; c < state.copies.size(); ++c)
      unread[c] = int(state.copies[c].readers.size());
    for (int t = 0; t < n; ++t) {
      again[t] = !state.writes[t].empty();
      int64_t bytes = 64;
      for (int c : state.writes[t]) {
        again[t] &= state.copies[c].before >= 0;
        bytes += state.copies[c].bytes;
      }
      if (!again[t])
        continue;
      // Seconds of this run and of those that only it needs.
      double seconds = 0;
      std::vector<int> stack{t};
      while (!stack.empty()) {
        int r = stack.back();
        stack.pop_back();
        seconds += g.kernels[loop[r]].seconds.at(b);
        for (int c : state.reads[r]) {
          int from = state.copies[c].from;
          if (state.copies[c].readers.size() == 1 && again[from] && state.writes[from].size() == 1)
            stack.push_back(from);
        }
      }
      order.push_back({seconds / double(bytes), t});
    }
    std::stable_sort(order.begin(), order.end(), [](const Candidate &x, const Candidate &y) {
      return x.score > y.score;
    });
    // Where a copy ends now: readers may have gone, or come from the copy behind it.
    std::vector<int> end(state.copies.size()), heir(state.copies.size());
    for (size_t c = 0; c < state.copies.size(); ++c)
      end[c] = state.copies[c].to, heir[c] = int(c);
    auto root = [&](int c) {
      while (heir[c] != c)
        c = heir[c];
      return c;
    };
    bool any = false;
    for (const Candidate &candidate : order) {
      int t = candidate.run;
      if (gone[t])
        continue;
      bool good = true;
      for (int c : state.writes[t]) {
        const Copies::Copy &copy = state.copies[c];
        if (end[c] == copy.from) // nobody reads it any more
          continue;
        int before = root(copy.before);
        // From the last read of the copy before (in-place work there no longer takes its bytes) up to this run.
        good &= state.most(end[before] + 1, copy.from) + copy.bytes <= target &&
                state.live[end[before]] + copy.bytes <= target;
      }
      if (!good)
        continue;
      any = true;
      std::vector<int> stack{t};
      while (!stack.empty()) {
        int r = stack.back();
        stack.pop_back();
        if (gone[r])
          continue;
        gone[r] = 1;
        for (int c : state.writes[r]) {
          const Copies::Copy &copy = state.copies[c];
          int before = root(copy.before);
          if (end[c] > copy.from || unread[c] > 0) {
            state.add(end[before], copy.from, copy.bytes);
            end[before] = std::max(end[before], end[c]);
            unread[before] += unread[c];
          }
          heir[c] = before;
        }
        for (int read : state.reads[r]) {
          int c = root(read);
          if (--unread[c] == 0) {
            int from = state.copies[c].from;
            bool nobody = again[from] && !gone[from];
            for (int w : state.writes[from])
              nobody &= unread[w] == 0;
            if (nobody)
              stack.push_back(from);
          }
        }
      }
    }
    if (!any)
      break;
    std::vector<int> shorter;
    for (int t = 0; t < n; ++t)
      if (!gone[t])
        shorter.push_back(loop[t]);
    if (!state.build(shorter) || state.line.peak > target)
      break;
    loop = std::move(shorter);
  }
  return loop;
}

std::vector<int> shrink(const GraphIndex &index, int64_t b, std::vector<int> loop, int64_t target, int steps) {
  const StepGraph &g = index.graph;
  Copies state(index, b);
  if (!state.build(loop))
    return {};
  auto excess = [&] {
    double sum = 0;
    for (int64_t bytes : state.live)
      sum += double(std::max<int64_t>(0, bytes - target));
    return sum;
  };
  std::vector<std::pair<int, int>> refused; // (kernel, reader): moves that did not help
  double now = excess();
  bool careful = false;
  size_t longest = index.loop.size() * 6 + 64;
  for (int step = 0; step < steps && state.line.peak > target && loop.size() < longest; ++step) {
    int p = int(std::max_element(state.live.begin(), state.live.end()) - state.live.begin());
    if (state.live[p] <= target)
      return {}; // the peak stands outside the loop
    struct Move {
      double score;
      int at;
      int64_t bytes;
      std::vector<int> cone;
      std::pair<int, int> name;
    };
    std::vector<Move> moves;
    // What is too much, summed up to each run, and at how many runs.
    int n = int(loop.size());
    std::vector<double> over(n + 1, 0);
    std::vector<int> times(n + 1, 0);
    for (int t = 0; t < n; ++t) {
      over[t + 1] = over[t] + double(std::max<int64_t>(0, state.live[t] - target));
      times[t + 1] = times[t] + (state.live[t] > target);
    }
    for (size_t i = 0; i < state.copies.size(); ++i) {
      const Copies::Copy &copy = state.copies[i];
      int kernel = g.buffers[copy.buffer].producer;
      if (copy.from >= p || copy.to <= p || !index.mayRecompute[kernel])
        continue;
      auto next = std::lower_bound(copy.readers.begin(), copy.readers.end(), p);
      if (next == copy.readers.end() || *next == p)
        continue;
      int r = *next, q = next == copy.readers.begin() ? copy.from : *(next - 1);
      if (std::find(refused.begin(), refused.end(), std::pair(kernel, loop[r])) != refused.end())
        continue;
      // What computing it again right before r needs: copies alive there are at hand, others are computed, too.
      std::vector<int> cone, stack{kernel};
      double seconds = 0;
      bool possible = true;
      while (!stack.empty() && possible) {
        int k = stack.back();
        stack.pop_back();
        if (std::find(cone.begin(), cone.end(), k) != cone.end())
          continue;
        cone.push_back(k);
        seconds += g.kernels[k].seconds.at(b);
        possible = index.mayRecompute[k] && cone.size() <= 48;
        for (int read : g.kernels[k].reads) {
          if (!state.loopBorn[read])
            continue;
          if (!state.aliveBefore(read, r))
            stack.push_back(g.buffers[read].producer);
        }
      }
      if (!possible)
        continue;
      double gain = std::min(over[r] - over[q + 1], double(copy.bytes) * double(times[r] - times[q + 1]));
      if (gain <= 0)
        continue;
      std::sort(cone.begin(), cone.end(), [&](int x, int y) { return state.place[x] < state.place[y]; });
      gain -= double(std::max<int64_t>(0, state.mostInCone(cone, r, copy) - target));
      double score = gain / (seconds + 1e-9);
      if (gain > 0)
        moves.push_back({score, r, copy.bytes, std::move(cone), {kernel, loop[r]}});
    }
    if (moves.empty())
      return {};
    // The best move, and while they go well those behind it up to half of what is too much here.
    std::stable_sort(moves.begin(), moves.end(), [](const Move &x, const Move &y) { return x.score > y.score; });
    int64_t freed = 0, enough = (state.live[p] - target) / 2;
    size_t taken = 0;
    while (taken < moves.size() && (taken == 0 || (!careful && freed < enough)))
      freed += moves[taken++].bytes;
    std::pair<int, int> first = moves.front().name;
    moves.resize(taken);
    std::stable_sort(moves.begin(), moves.end(), [](const Move &x, const Move &y) { return x.at < y.at; });
    std::vector<int> longer;
    int done = 0;
    for (const Move &move : moves) {
      longer.insert(longer.end(), loop.begin() + done, loop.begin() + move.at);
      longer.insert(longer.end(), move.cone.begin(), move.cone.end());
      done = move.at;
    }
    longer.insert(longer.end(), loop.begin() + done, loop.end());
    std::vector<int> old = std::move(loop);
    loop = std::move(longer);
    if (!state.build(loop))
      return {};
    double then = excess();
    if (then < now) {
      now = then;
      careful = false;
      continue;
    }
    if (taken == 1)
      refused.push_back(first);
    careful = true;
    loop = std::move(old);
    if (!state.build(loop))
      return {};
  }
  return state.line.peak <= target ? loop : std::vector<int>();
}

} // namespace cinch::solve
