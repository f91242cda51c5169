// DagIntervals.cpp: a lower bound on the cost of repetition from many moments and all intervals between them.
//
// Moments m_0 < m_1 < ... are first computations of nodes that follow each other in every order; window j lies between
// m_j and m_(j+1), the last one reaches to the end. For a value u computed for certain before m_a:
//
//     h[a, u]      it is held at m_a
//     y[j, u]      it is computed again in window j
//     Y[a, t, u]   it is computed again in at least one of the windows a .. t; Y[a, a, u] = y[a, u]
//
//     Y[a, t, u] <= Y[a, t - 1, u] + y[t, u]
//     Y[a, t, u] <= h[a, p] + Y[a, t, p]          for every source p of u
//     h[a, u] + Y[a, t, u] >= 1                   if a node first computed for certain in window t reads u
//     h[a, u] + y[a, u] >= h[a + 1, u]
//     bytes(m_a) + sum of bytes(u) h[a, u] <= budget
//
// and the sum of cost(u) y[j, u] is what repetition costs. Every schedule obeys this with values 0 and 1, since what
// exists in an interval was held when it began or computed in it, and then so were its sources. With windows alone the
// linear relaxation is weak: fractions of a value computed in many windows add up to a whole one, while each needs no
// more than the same fraction of its sources, held from the beginning. The intervals forbid that: a whole one in the
// interval needs its sources whole (the inequalities of lot sizing, for every pair of moments).
//
// A moment may also be the one at which the last source of a node is computed before the node is (it is not known which of them
// that is): then the others lie there beside what computing that one takes, which may be more than the node itself takes. The
// window before it ends when all its sources exist, and the node is the first thing to be computed in the window behind it.
//
// Values of one kernel are computed together: they have the y and Y of the first of them, at the cost of all, and each has its h.
//
// Because h is 0 or 1, a value that does not fit beside the node of the moment and its sources is not held, the room is
// rounded down to a sum of bytes that can be held, and bytes are also counted in coarse units: with w(u) = bytes(u) *
// (q + 1) / room, made a little smaller and rounded down, the sum of w(u) h[a, u] is at most q (Chvatal and Gomory).
//
// The program is solved approximately; its prices prove the bound (DagLinear).
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/dag/DagLinear.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cinch::solve {
namespace {

using Marks = std::vector<char>;

class Intervals {
public:
  Intervals(const Dag &d, Order order, int64_t budget)
      : d(d), order(order), budget(budget), n(d.size()), path(detail::longestPath(d, order)), kernelOf(n), kernelCost(n, 0) {
    for (int v = 0; v < n; ++v)
      kernelOf[v] = d.firstOfKernel(v), kernelCost[kernelOf[v]] += d.nodes[v].cost;
    scale = std::max(detail::totalCost(d) / std::max(n, 1), 1e-300);
    most.assign(n, 0);
    // A moment says something if without repetition more would be held than fits.
    for (int m : path) {
      int64_t bytes = most[m] = std::max(bytesAt(m), gathering(m).bytes);
      Marks before = detail::everBeside(d, order, m, true), after = detail::everBeside(d, order, m, false);
      for (int u = 0; u < n; ++u)
        if (before[u] && !isSource(u, m) &&
            std::any_of(d.nodes[u].users.begin(), d.nodes[u].users.end(), [&](int w) { return after[w]; }))
          bytes += d.nodes[u].bytes;
      if (bytes > budget)
        tight.push_back(m);
    }
  }

  double scale;
  int tightMoments() const { return int(tight.size()); }

  // With about this many moments, spread evenly or more of them where there is least room.
  detail::LinearProgram program(int cells, bool evenly) {
    choose(cells, evenly);
    detail::LinearProgram p;
    y.assign(K, std::vector<int>(n, -1)), held = y;
    for (int a = 0; a < K; ++a)
      memory(p, a);
    for (int a = 0; a < K; ++a) {
      std::vector<int> again = y[a], last; // of the interval, and of the one a window shorter
      relate(p, a, a, again);
      for (int t = a + 1; t < K; ++t) {
        last = again;
        Marks wanted = closure(demand[t]);
        again.assign(n, -1);
        for (int u = 0; u < n; ++u) {
          if (!relevant[a][u] || !wanted[u] || again[kernelOf[u]] >= 0)
            continue;
          again[kernelOf[u]] = p.variable(0);
        }
        for (int u = 0; u < n; ++u) {
          if (again[u] < 0)
            continue;
          p.row(0), p.term(again[u], -1);
          if (last[u] >= 0)
            p.term(last[u], 1);
          for (int j = last[u] >= 0 ? t : a; j <= t; ++j)
            if (y[j][u] >= 0)
              p.term(y[j][u], 1);
        }
        relate(p, a, t, again);
      }
    }
    return p;
  }

private:
  bool isSource(int u, int of) const {
    return std::find(d.nodes[of].sources.begin(), d.nodes[of].sources.end(), u) != d.nodes[of].sources.end();
  }
  int64_t bytesAt(int v) const {
    int64_t bytes = d.nodes[v].needs();
    for (int u : d.nodes[v].sources)
      bytes += d.nodes[u].bytes;
    return bytes;
  }

  // What a node needs while it is computed, perhaps again: other values of its kernel are among what is held then.
  int64_t whenItLies(int v) const { return d.nodes[v].bytes + d.nodes[d.endOfKernel(v) - 1].working; }

  // The moment at which the last of a node's sources is computed before the node is, whichever of them that is: the others lie
  // there, and what computing that one takes.
  struct Gathering {
    int64_t bytes = -1;    // at least; -1: nothing is known
    int64_t without = 0;   // the same without what is beside the last one: its sources, other values of its kernel
    Marks always, perhaps; // beside the last one whichever it is, or if it is the right one
  };
  Gathering gathering(int m) const {
    Gathering result;
    const std::vector<int> &sources = d.nodes[m].sources;
    size_t at = size_t(std::find(path.begin(), path.end(), m) - path.begin());
    if (at == 0 || !isSource(path[at - 1], m)) // else it may come before the moment before
      return result;
    std::vector<int> readBy(n, 0);
    int cases = 0;
    for (int last : sources) {
      int64_t others = whenItLies(last);
      for (int u : sources)
        others += u == last ? 0 : d.nodes[u].bytes;
      std::vector<int> beside; // what it reads and what is computed with it
      for (int u : d.nodes[last].sources)
        if (!isSource(u, m))
          beside.push_back(u);
      for (int u = d.firstOfKernel(last); u < d.endOfKernel(last); ++u)
        if (u != last && !isSource(u, m))
          beside.push_back(u);
      int64_t all = others;
      for (int u : beside)
        all += d.nodes[u].bytes;
      if (all > budget)
        continue; // it cannot be the last one
      for (int u : beside)
        ++readBy[u];
      result.bytes = cases ? std::min(result.bytes, all) : all;
      result.without = cases ? std::min(result.without, others) : others;
      ++cases;
    }
    result.always.assign(n, 0), result.perhaps.assign(n, 0);
    for (int u = 0; u < n; ++u)
      result.always[u] = cases && readBy[u] == cases, result.perhaps[u] = readBy[u] && readBy[u] < cases;
    return result;
  }

  // What is wanted and all it may take to compute that.
  Marks closure(Marks wanted) const {
    std::vector<int> stack;
    for (int u = 0; u < n; ++u)
      if (wanted[u])
        stack.push_back(u);
    while (!stack.empty()) {
      int v = stack.back();
      stack.pop_back();
      for (int u : d.nodes[v].sources)
        if (!wanted[u])
          wanted[u] = 1, stack.push_back(u);
    }
    return wanted;
  }

  // Where little room is left to others, moments may be worth more.
  double weight(int m, bool evenly) const {
    return evenly ? 1 : 1 / (double(budget - most[m]) + 0.02 * double(budget));
  }

  // Of each of about `cells` stretches of the path, of equal weight, the moment that leaves the fewest bytes to others.
  void choose(int cells, bool evenly) {
    std::vector<int> moments;
    double all = 0, sum = 0;
    for (int m : tight)
      all += weight(m, evenly);
    for (size_t from = 0, to = 0; from < tight.size(); from = to) {
      double end = (std::floor(sum / all * cells * (1 + 1e-12)) + 1) * all / cells;
      do
        sum += weight(tight[to++], evenly);
      while (to < tight.size() && sum + 0.5 * weight(tight[to], evenly) < end);
      moments.push_back(*std::max_element(tight.begin() + from, tight.begin() + to,
                                          [&](int u, int v) { return most[u] < most[v]; }));
    }
    std::vector<Gathering> gathered; // where that is the tighter moment, it stands for the computation of the node
    for (int m : moments) {
      Gathering g = gathering(m);
      gathered.push_back(g.bytes > bytesAt(m) ? g : Gathering());
    }
    K = int(moments.size());
    std::vector<Marks> before(K), after(K);
    for (int k = 0; k < K; ++k) {
      before[k] = detail::everBeside(d, order, moments[k], true);
      after[k] = detail::everBeside(d, order, moments[k], false);
      after[k][moments[k]] = gathered[k].bytes >= 0;
    }
    demand.assign(K, Marks(n, 0)), relevant = sure = perhaps = demand;
    room.assign(K, 0), roomForAll = room;
    Marks later(n, 0); // wanted in a window or a later one
    for (int k = K - 1; k >= 0; --k) {
      room[k] = roomForAll[k] = budget - bytesAt(moments[k]);
      for (int u : d.nodes[moments[k]].sources)
        sure[k][u] = 1;
      if (const Gathering &g = gathered[k]; g.bytes >= 0) {
        room[k] = budget - g.bytes, roomForAll[k] = budget - g.without;
        perhaps[k] = g.perhaps;
        for (int u = 0; u < n; ++u)
          sure[k][u] |= g.always[u], roomForAll[k] -= g.always[u] ? d.nodes[u].bytes : 0;
      }
      if (k + 1 < K && gathered[k + 1].bytes >= 0)
        for (int u = 0; u < n; ++u)
          demand[k][u] |= gathered[k + 1].always[u];
      for (int w = 0; w < n; ++w)
        if (after[k][w] && (k + 1 == K || before[k + 1][w] || w == moments[k + 1]))
          for (int u : d.nodes[w].sources)
            demand[k][u] = 1;
      for (int u = 0; u < n; ++u)
        later[u] |= demand[k][u];
      later = closure(std::move(later));
      for (int u = 0; u < n; ++u)
        relevant[k][u] = before[k][u] && later[u] && !sure[k][u];
    }
  }

  // Variables of moment a and what they may hold.
  void memory(detail::LinearProgram &p, int a) {
    std::vector<std::pair<int, int64_t>> list, all;
    for (int u = 0; u < n; ++u)
      if (relevant[a][u]) {
        if (int k = kernelOf[u]; y[a][k] < 0)
          y[a][k] = p.variable(kernelCost[k] / scale);
        if (d.nodes[u].bytes <= (perhaps[a][u] ? roomForAll[a] : room[a])) {
          held[a][u] = p.variable(0), all.push_back({held[a][u], d.nodes[u].bytes});
          if (!perhaps[a][u])
            list.push_back(all.back());
        }
      }
    fits(p, list, room[a]);
    if (list.size() < all.size())
      fits(p, all, roomForAll[a]);
  }

  // Values of these sizes may be held together only if they take no more than so many bytes.
  static void fits(detail::LinearProgram &p, const std::vector<std::pair<int, int64_t>> &list, int64_t room) {
    int64_t bytes = usable(list, room);
    double unit = double(std::max<int64_t>(bytes, 1));
    p.row(-double(bytes) / unit);
    for (auto [variable, size] : list)
      p.term(variable, -double(size) / unit);
    for (int q = 1; q <= 3 && bytes > 0; ++q) {
      auto coarse = [&](int64_t size) { return std::floor(double(size) / unit * (q + 1 - 1e-6)); };
      // Only if it counts some values for more than the bytes do.
      if (std::none_of(list.begin(), list.end(),
                       [&](auto &v) { return coarse(v.second) > double(v.second) / unit * q + 1e-9; }))
        continue;
      p.row(-1);
      for (auto [variable, size] : list)
        if (coarse(size) > 0)
          p.term(variable, -coarse(size) / q);
    }
  }

  // Rows of the interval from moment a to window t.
  void relate(detail::LinearProgram &p, int a, int t, const std::vector<int> &again) {
    for (int u = 0; u < n; ++u) {
      if (again[u] >= 0)
        for (int s : d.nodes[u].sources)
          if (!sure[a][s]) {
            p.row(0), p.term(again[u], -1);
            exists(p, a, s, again);
          }
      bool next = t == a && t + 1 < K && held[t + 1][u] >= 0;
      if (!relevant[a][u] || (!demand[t][u] && !next))
        continue;
      p.row(demand[t][u] ? 1 : 0);
      exists(p, a, u, again);
      if (!demand[t][u])
        p.term(held[t + 1][u], -1);
    }
  }
  // A value is held at the moment, or computed again in the interval from there.
  void exists(detail::LinearProgram &p, int a, int u, const std::vector<int> &again) const {
    if (int v = again[kernelOf[u]]; v >= 0)
      p.term(v, 1);
    if (held[a][u] >= 0)
      p.term(held[a][u], 1);
  }

  // The most of `bytes` that values of these sizes can fill, if few sums are possible.
  static int64_t usable(const std::vector<std::pair<int, int64_t>> &list, int64_t bytes) {
    std::set<int64_t> sums{0};
    for (auto [variable, size] : list) {
      std::vector<int64_t> more;
      for (int64_t sum : sums)
        if (sum + size <= bytes)
          more.push_back(sum + size);
      sums.insert(more.begin(), more.end());
      if (sums.size() > 256)
        return bytes;
    }
    return *sums.rbegin();
  }

  const Dag &d;
  Order order;
  int64_t budget;
  int n, K = 0;
  std::vector<int> path, tight;
  std::vector<int> kernelOf;      // of nodes: the first one of their kernel
  std::vector<double> kernelCost; // of those
  std::vector<int64_t> most; // of nodes of the path: bytes at their moment, or where their sources gather if that is more
  std::vector<Marks> demand, relevant, sure; // by moment; sure: source of the node of the moment, held for certain
  std::vector<Marks> perhaps;                // by moment: counted already if the last source is one that reads it
  std::vector<int64_t> room, roomForAll;     // by moment: without those values, and with them
  std::vector<std::vector<int>> y, held; // variables, -1: none
};

} // namespace

namespace {

// A value c that only u reads, while u reads nothing else and is no larger, is never worth holding: u is. So both are
// one node, computed when c is. In every schedule without needless computations whatever comes from c comes from u, and
// u is computed at least as often; where c is held, u could count as held, and is no larger. Its moment is the first
// computation of the head of such a chain, whose sources are all that come from outside.
Dag merged(const Dag &d) {
  int n = d.size();
  std::vector<int> into(n), number(n, -1);
  for (int v = 0; v < n; ++v)
    into[v] = v;
  auto target = [&](int v) {
    while (into[v] != v)
      v = into[v];
    return v;
  };
  auto alone = [](const Dag::Node &node) { return node.kernel < 0 && node.earlier.empty() && node.later.empty(); };
  for (int c = 0; c < n; ++c)
    if (const std::vector<int> &users = d.nodes[c].users; users.size() == 1 && alone(d.nodes[c]))
      if (const Dag::Node &u = d.nodes[users[0]]; u.sources.size() == 1 && u.bytes <= d.nodes[c].bytes && alone(u))
        into[c] = users[0];
  Dag result;
  for (int v = 0; v < n; ++v)
    if (into[v] == v) {
      number[v] = result.size();
      result.nodes.push_back(d.nodes[v]);
      result.nodes.back().cost = 0;
      result.nodes.back().sources.clear(), result.nodes.back().users.clear();
    }
  for (Dag::Node &node : result.nodes)
    for (auto *list : {&node.earlier, &node.later})
      for (int &v : *list)
        v = number[v];
  for (int v = 0; v < n; ++v) {
    int t = number[target(v)];
    result.nodes[t].cost += d.nodes[v].cost;
    const std::vector<int> &sources = d.nodes[v].sources;
    if (sources.empty() || into[sources.front()] == sources.front()) // v is the head
      result.nodes[t].working = d.nodes[v].needs() - result.nodes[t].bytes;
    for (int s : d.nodes[v].sources)
      if (into[s] == s) // else v and s are one
        result.nodes[t].sources.push_back(number[s]), result.nodes[number[s]].users.push_back(t);
  }
  return result;
}

} // namespace

double detail::intervalBound(const Dag &whole, Order order, int64_t budget, double target, int64_t &work,
                             double deadline) {
  if (whole.size() == 0 || budget < memoryBound(whole))
    return 0;
  Dag d = order == Order::Free ? merged(whole) : whole;
  Intervals intervals(d, order, budget);
  work -= int64_t(d.size()) * d.size();
  target /= intervals.scale;
  // The more moments the better, as long as there is work for the steps that a program of that size takes. First more
  // of them where there is least room, then evenly.
  double best = 0;
  int64_t given = work;
  for (bool evenly : {false, true}) {
    int64_t mine = std::min(work, evenly ? given : given * 2 / 5);
    if (best >= target || mine <= 0 || intervals.tightMoments() == 0)
      break;
    int cells = 0;
    LinearProgram p;
    for (int more : {3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96}) {
      LinearProgram larger = intervals.program(std::min(more, intervals.tightMoments()), evenly);
      work -= 8 * larger.terms();
      if (cells && larger.stepWork() * 2000 > mine)
        break;
      cells = more, p = std::move(larger);
      if (more >= intervals.tightMoments())
        break;
    }
    int64_t left = std::min(work, mine), before = left;
    best = std::max(best, p.bound(target, left, deadline));
    work -= before - left;
  }
  return std::max(0.0, best * (1 - 1e-9) - 1e-8) * intervals.scale;
}

} // namespace cinch::solve
