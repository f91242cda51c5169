// DagExact.cpp: best-first search over states (computed at least once, held now). First computations are free of
// extra cost. A node that is not held though something not yet computed reads it must be computed again, and with it
// everything missing below it: what those cost is the estimate of A*, and a state that cannot end below the extra
// cost already known to be reachable is dropped. Near the keep-all peak, and wherever dear nodes cannot be afforded
// again, little of the space is left.
//
// Frees are decided only when the next computation does not fit, and then for it: holding more is never worse, since
// freeing costs nothing.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace cinch::solve {
namespace {

struct State {
  std::vector<uint64_t> bits; // computed, then held
  int pending, lowest;        // computing `pending`, freeing nodes from `lowest` on to make room; -1: none
  bool operator==(const State &o) const { return pending == o.pending && lowest == o.lowest && bits == o.bits; }
};
struct Hash {
  size_t operator()(const State &s) const {
    uint64_t h = uint64_t(s.pending) * 0x9e3779b97f4a7c15ull + uint64_t(s.lowest);
    for (uint64_t b : s.bits)
      h = (h ^ b) * 0xff51afd7ed558ccdull, h ^= h >> 29;
    return size_t(h);
  }
};

class Exact {
public:
  Exact(const Dag &d, Order order, int64_t budget, double upper) : d(d), order(order), budget(budget), upper(upper) {
    n = d.size(), words = (n + 63) / 64;
    std::vector<int> waits(n);
    for (int v = 0; v < n; ++v)
      if (!(waits[v] = int(d.nodes[v].sources.size())))
        topological.push_back(v);
    for (size_t i = 0; i < topological.size(); ++i)
      for (int w : d.nodes[topological[i]].users)
        if (!--waits[w])
          topological.push_back(w);
  }

  detail::ExactResult run(int64_t &work, double deadline) {
    pushed = 0;
    detail::ExactResult result;
    State first{std::vector<uint64_t>(2 * words, 0), -1, 0};
    push(first, 0, -1, 0);
    int64_t steps = 0;
    while (!queue.empty()) {
      Entry top = queue.top();
      queue.pop();
      if (records[top.record].closed)
        continue;
      records[top.record].closed = true;
      result.proved = std::max(result.proved, top.cost);
      State s = *states[top.record];
      work -= (2 * n + 8) * (1 + pushed), pushed = 0;
      if (work <= 0 || int64_t(records.size()) > 3'000'000 ||
          (deadline > 0 && (++steps & 255) == 0 && detail::secondsNow() > deadline))
        return result;
      if (s.pending < 0 && isDone(s)) {
        result.found = result.complete = true;
        for (int at = top.record; records[at].from >= 0; at = records[at].from)
          if (records[at].action >= 0)
            result.runs.push_back(records[at].action);
        std::reverse(result.runs.begin(), result.runs.end());
        return result;
      }
      expand(s, top.record, records[top.record].cost);
    }
    result.complete = true;
    result.proved = upper;
    return result;
  }

private:
  struct Record {
    double cost;
    int from, action; // action: node computed, or -1
    bool closed;
  };
  struct Entry {
    double cost;
    int progress, record;
    bool operator<(const Entry &o) const {
      return cost != o.cost ? cost > o.cost : progress != o.progress ? progress < o.progress : record < o.record;
    }
  };

  static bool has(const State &s, int base, int v) { return s.bits[base + v / 64] >> (v % 64) & 1; }
  static void set(State &s, int base, int v) { s.bits[base + v / 64] |= uint64_t(1) << (v % 64); }
  static void clear(State &s, int base, int v) { s.bits[base + v / 64] &= ~(uint64_t(1) << (v % 64)); }
  bool computed(const State &s, int v) const { return has(s, 0, v); }
  bool held(const State &s, int v) const { return has(s, words, v); }

  bool isDone(const State &s) const {
    for (int v = 0; v < n; ++v)
      if (!computed(s, v))
        return false;
    return true;
  }
  int progress(const State &s) const {
    int count = 0;
    for (int w = 0; w < words; ++w)
      count += __builtin_popcountll(s.bits[w]);
    return count;
  }

  void push(State &s, double cost, int from, int action) {
    ++pushed;
    double estimate = cost + mustRepeat(s);
    if (estimate >= upper)
      return;
    auto [it, fresh] = index.insert({s, int(records.size())});
    if (fresh) {
      records.push_back({cost, from, action, false});
      states.push_back(&it->first);
    } else {
      Record &r = records[it->second];
      if (r.closed || r.cost <= cost)
        return;
      r = {cost, from, action, false};
    }
    queue.push({estimate, progress(s), it->second});
  }

  // What has to be computed again whatever comes.
  double mustRepeat(const State &s) {
    double cost = 0;
    missing.assign(n, 0);
    for (size_t i = topological.size(); i-- > 0;) {
      int v = topological[i];
      if (!computed(s, v) || held(s, v))
        continue;
      for (int w : d.nodes[v].users)
        if (!computed(s, w) || missing[w]) {
          missing[v] = 1;
          cost += d.nodes[v].cost;
          break;
        }
    }
    return cost;
  }

  // Can v still be read? By a node not yet computed, or by one whose repetition is affordable.
  bool mayBeRead(const State &s, int v, double cost) const {
    for (int w : d.nodes[v].users)
      if (!computed(s, w) || cost + d.nodes[w].cost < upper)
        return true;
    return false;
  }

  void expand(State &s, int record, double cost) {
    int64_t bytes = 0;
    for (int v = 0; v < n; ++v)
      if (held(s, v)) {
        if (s.pending < 0 && !mayBeRead(s, v, cost))
          clear(s, words, v);
        else
          bytes += d.nodes[v].bytes;
      }
    if (s.pending >= 0) {
      compute(s, s.pending, s.lowest, bytes, record, cost);
      return;
    }
    bool givenDone = false;
    for (int v = 0; v < n; ++v) {
      if (held(s, v))
        continue;
      bool first = !computed(s, v);
      if (first && order == Order::Given && givenDone)
        continue;
      if (first)
        givenDone = true;
      if (!first && (cost + d.nodes[v].cost >= upper || !mayBeRead(s, v, cost)))
        continue;
      bool ready = true;
      for (int u : d.nodes[v].sources)
        ready &= held(s, u);
      if (ready)
        compute(s, v, 0, bytes, record, cost);
    }
  }

  // Computes v if it fits, else frees one more node, in rising order so that every set of frees is tried once.
  void compute(const State &s, int v, int lowest, int64_t bytes, int record, double cost) {
    if (bytes + d.nodes[v].bytes <= budget) {
      State next = s;
      next.pending = -1, next.lowest = 0;
      double extra = computed(s, v) ? d.nodes[v].cost : 0;
      set(next, 0, v), set(next, words, v);
      push(next, cost + extra, record, v);
      return;
    }
    for (int u = lowest; u < n; ++u) {
      if (!held(s, u) || std::find(d.nodes[v].sources.begin(), d.nodes[v].sources.end(), u) != d.nodes[v].sources.end())
        continue;
      State next = s;
      next.pending = v, next.lowest = u + 1;
      clear(next, words, u);
      push(next, cost, record, -1);
    }
  }

  const Dag &d;
  Order order;
  int64_t budget;
  double upper;
  int n, words;
  int64_t pushed = 0; // since the last state was taken
  std::vector<int> topological;
  std::vector<char> missing;
  std::unordered_map<State, int, Hash> index;
  std::vector<const State *> states;
  std::vector<Record> records;
  std::priority_queue<Entry> queue;
};

} // namespace

detail::ExactResult detail::searchExact(const Dag &d, Order order, int64_t budget, double upper, int64_t &work,
                                        double deadline) {
  return Exact(d, order, budget, upper).run(work, deadline);
}

} // namespace cinch::solve
