// DagMoments.cpp: which moments follow each other in every schedule; what has to be computed again, and when.
//
// Let u be read by w, and first computed before a moment c at which there is no room for it. Then it is computed again between c and the
// first computation of w; take the last time, R. From R to w it lies there. A second such computation R' that has no room for u is
// not between R and w: if it comes after R, it comes after w.
#include "compiler/solve/dag/DagMoments.h"

#include <algorithm>

namespace cinch::solve::detail {
namespace {

constexpr int kDeepest = 64; // values one behind the other that are forced for one reader

Marks none(const Dag &d) { return Marks(size_t(d.size()), 0); }

Marks sourcesOf(const Dag &d, int v) {
  Marks marks = none(d);
  for (int u : d.nodes[v].sources)
    marks[u] = 1;
  return marks;
}

// A computation of v that may not be the first, so that other values of its kernel may lie there as what is held.
Moment again(const Dag &d, int v) {
  Moment m;
  m.node = v, m.again = true, m.there = sourcesOf(d, v);
  int end = d.endOfKernel(v);
  for (int u = d.firstOfKernel(v); u < end; ++u)
    m.there[u] = 1;
  m.bytes = d.nodes[end - 1].working;
  for (int u = 0; u < d.size(); ++u)
    m.bytes += m.there[u] ? d.nodes[u].bytes : 0;
  return m;
}

class Forced {
public:
  Forced(const Dag &d, int64_t budget) : d(d), budget(budget) {}

  void add(const Moment &first) {
    std::vector<Entry> chain; // the last in time first
    int kept = int(list.size());
    for (const Moment *reader = &first; int(chain.size()) < kDeepest; reader = &chain.back().moment) {
      Entry next = tightest(*reader, first, kept);
      if (next.moment.node < 0)
        break;
      kept = std::min(kept, next.behind + 1);
      chain.push_back(std::move(next));
    }
    list.resize(size_t(kept));
    int holder = -1, held = -1;
    for (size_t i = chain.size(); i-- > 0;) {
      chain[i].since = holder, chain[i].held = held;
      holder = int(list.size()), held = chain[i].moment.node;
      list.push_back(std::move(chain[i]));
    }
    Entry last;
    last.moment = first, last.since = holder, last.held = held;
    list.push_back(std::move(last));
  }

  std::vector<Moment> result() {
    std::vector<Moment> moments;
    for (Entry &e : list)
      moments.push_back(std::move(e.moment));
    return moments;
  }

private:
  struct Entry {
    Moment moment;
    int behind = -1;          // place of the moment that it is certain to come after
    int since = -1, held = -1; // from that place to this moment this node lies there
  };

  // Of what the reader reads, the forced computation that leaves the fewest bytes to others, if it is worth the moments that it drives out
  // of the list, which stays as it is up to `kept`.
  Entry tightest(const Moment &reader, const Moment &first, int kept) const {
    Entry best;
    for (int u : d.nodes[reader.node].sources) {
      int at = blockerOf(u, kept);
      if (at < 0)
        continue;
      Entry next;
      next.moment = again(d, u);
      if (next.moment.bytes <= best.moment.bytes)
        continue;
      at = next.behind = lifted(next.moment, at, kept);
      bool worth = true;
      for (int i = at + 1; i < kept; ++i)
        worth &= list[size_t(i)].moment.bytes < next.moment.bytes;
      if (!worth)
        continue;
      const Moment &past = list[size_t(at)].moment;
      next.moment.before = past.before;
      for (int v = d.firstOfKernel(past.node); v <= past.node; ++v)
        next.moment.before[v] = 1;
      next.moment.after = first.after, next.moment.after[first.node] = 1;
      best = std::move(next);
    }
    return best;
  }

  // The last moment with no room for u, which exists already; -1: it may be held all the time.
  int blockerOf(int u, int kept) const {
    for (int i = kept; i-- > 0;) {
      const Moment &m = list[size_t(i)].moment;
      if (m.there[u] || m.node == u || !m.before[u])
        return -1;
      if (d.nodes[u].bytes > budget - m.bytes)
        return i;
    }
    return -1;
  }

  // What comes after `at` comes after what waits for its reader then, if there is no room for both.
  int lifted(const Moment &m, int at, int kept) const {
    for (int i = at + 1; i < kept; ++i) {
      const Entry &e = list[size_t(i)];
      if (e.since >= 0 && e.since <= at && !m.there[e.held] && d.nodes[e.held].bytes > budget - m.bytes)
        at = i;
    }
    return at;
  }

  const Dag &d;
  int64_t budget;
  std::vector<Entry> list;
};

} // namespace

std::vector<Moment> pathMoments(const Dag &d, Order order, const std::vector<int> &path) {
  std::vector<Moment> list;
  for (int v : path) {
    Moment m;
    m.node = v, m.there = sourcesOf(d, v);
    m.before = everBeside(d, order, v, true), m.after = everBeside(d, order, v, false);
    m.bytes = d.nodes[v].needs();
    for (int u : d.nodes[v].sources)
      m.bytes += d.nodes[u].bytes;
    list.push_back(std::move(m));
  }
  return list;
}

std::vector<Moment> forcedMoments(const Dag &d, const std::vector<Moment> &path, int64_t budget) {
  Forced forced(d, budget);
  for (const Moment &m : path)
    forced.add(m);
  return forced.result();
}

std::vector<int> longestPath(const Dag &d, Order order) {
  int n = d.size();
  std::vector<int> path;
  if (order == Order::Given) {
    for (int v = 0; v < n; ++v)
      path.push_back(v);
    return path;
  }
  std::vector<int> waits(n), sequence, length(n, 1), from(n, -1);
  for (int v = 0; v < n; ++v)
    if (!(waits[v] = int(d.nodes[v].sources.size() + d.nodes[v].earlier.size())))
      sequence.push_back(v);
  int end = -1;
  for (size_t k = 0; k < sequence.size(); ++k) {
    int v = sequence[k];
    if (end < 0 || length[v] > length[end])
      end = v;
    for (auto *list : {&d.nodes[v].users, &d.nodes[v].later})
      for (int w : *list) {
        if (length[v] + 1 > length[w])
          length[w] = length[v] + 1, from[w] = v;
        if (!--waits[w])
          sequence.push_back(w);
      }
  }
  for (; end >= 0; end = from[end])
    path.push_back(end);
  std::reverse(path.begin(), path.end());
  return path;
}

} // namespace cinch::solve::detail
