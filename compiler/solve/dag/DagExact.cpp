// DagExact.cpp: best-first search over states (computed at least once, held now). First computations are free of
// extra cost. A node that is not held though something not yet computed reads it must be computed again, and with it
// everything missing below it: what those cost is the estimate of A*, and a state that cannot end below the extra
// cost already known to be reachable is dropped. Near the keep-all peak, and wherever dear nodes cannot be afforded
// again, little of the space is left.
//
// Frees are decided only when the next computation does not fit, and then for it: holding more is never worse, since
// freeing costs nothing. Nor is it worse to compute at once, for the first time, what leaves no bytes behind (a sum, or a value that is free to
// hold) and fits: with a free order no other choice is tried then.
//
// Values of one kernel are computed together; what stands for them here is the first.
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
    unit.resize(size_t(n)), unitCost.assign(size_t(n), 0), unitBytes.assign(size_t(n), 0);
    for (int v = 0; v < n; ++v) {
      int u = unit[size_t(v)] = d.firstOfKernel(v);
      unitCost[size_t(u)] += d.nodes[v].cost, unitBytes[size_t(u)] += d.nodes[v].bytes;
    }
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
      // A kernel that is computed again reads its sources, whichever of its values is wanted.
      for (int w : d.nodes[v].users)
        if (!computed(s, w) || missing[unit[size_t(w)]]) {
          char &again = missing[unit[size_t(v)]];
          cost += again ? 0 : unitCost[size_t(unit[size_t(v)])];
          again = 1;
          break;
        }
    }
    return cost;
  }

  // Can v still be read? By a node not yet computed, or by one whose repetition is affordable.
  bool mayBeRead(const State &s, int v, double cost) const {
    for (int w : d.nodes[v].users)
      if (!computed(s, w) || cost + unitCost[size_t(unit[size_t(w)])] < upper)
        return true;
    return false;
  }
  bool anyMayBeRead(const State &s, int first, double cost) const {
    for (int v = first; v < d.endOfKernel(first); ++v)
      if (mayBeRead(s, v, cost))
        return true;
    return false;
  }
  bool allHeld(const State &s, int first) const {
    for (int v = first; v < d.endOfKernel(first); ++v)
      if (!held(s, v))
        return false;
    return true;
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
    std::vector<int> choices;
    bool givenDone = false;
    for (int v = 0; v < n; ++v) {
      if (unit[size_t(v)] != v || allHeld(s, v))
        continue;
      bool first = !computed(s, v);
      if (first && order == Order::Given && givenDone)
        continue;
      if (first)
        givenDone = true;
      if (!first && (cost + unitCost[size_t(v)] >= upper || !anyMayBeRead(s, v, cost)))
        continue;
      bool ready = true;
      for (int u : d.nodes[v].sources)
        ready &= held(s, u);
      if (!ready)
        continue;
      if (first && order == Order::Free && unitBytes[size_t(v)] == 0 && bytes + needs(s, v) <= budget)
        return compute(s, v, 0, bytes, record, cost);
      choices.push_back(v);
    }
    for (int v : choices)
      compute(s, v, 0, bytes, record, cost);
  }

  // Bytes beside those that are held: of a kernel that is computed again, values that are held give way to the new ones.
  int64_t needs(const State &s, int v) const {
    int end = d.endOfKernel(v);
    int64_t bytes = unitBytes[size_t(v)] + d.nodes[end - 1].working;
    for (int u = v; u < end; ++u)
      bytes -= held(s, u) ? d.nodes[u].bytes : 0;
    return bytes;
  }

  // Computes v, and all of its kernel, if it fits, else frees one more node, in rising order so that every set of frees is tried once.
  void compute(const State &s, int v, int lowest, int64_t bytes, int record, double cost) {
    if (bytes + needs(s, v) <= budget) {
      State next = s;
      next.pending = -1, next.lowest = 0;
      double extra = computed(s, v) ? unitCost[size_t(v)] : 0;
      for (int u = v; u < d.endOfKernel(v); ++u)
        set(next, 0, u), set(next, words, u);
      push(next, cost + extra, record, v);
      return;
    }
    for (int u = lowest; u < n; ++u) {
      if (!held(s, u) || d.nodes[u].bytes == 0 || unit[size_t(u)] == v ||
          std::find(d.nodes[v].sources.begin(), d.nodes[v].sources.end(), u) != d.nodes[v].sources.end())
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
  std::vector<int> unit;         // of nodes: the first of their kernel
  std::vector<double> unitCost;  // of those: of all of them
  std::vector<int64_t> unitBytes;
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

double detail::exactBound(const Dag &whole, Order order, int64_t budget, double target, int64_t &work, double deadline) {
  constexpr double kSmall = 0.02;    // of the largest value's bytes: values up to there are free to hold
  constexpr int kMostValues = 40;    // that are not: of more, there are too many states
  if (whole.size() == 0 || budget < memoryBound(whole))
    return 0;
  Dag d = order == Order::Free ? merged(whole) : whole;
  int64_t largest = 0;
  for (const Dag::Node &node : d.nodes)
    largest = std::max(largest, node.bytes);
  int values = 0;
  for (Dag::Node &node : d.nodes)
    if (double(node.bytes) > kSmall * double(largest))
      ++values;
    else
      node.working += node.bytes, node.bytes = 0;
  if (values > kMostValues)
    return 0;
  return std::max(0.0, searchExact(d, order, budget, target, work, deadline).proved * (1 - 1e-9));
}

} // namespace cinch::solve
