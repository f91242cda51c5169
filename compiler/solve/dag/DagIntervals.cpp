// DagIntervals.cpp: a lower bound on the cost of repetition from many moments and all intervals between them.
//
// Moments m_0 < m_1 < ... are first computations of nodes that follow each other in every order, and computations that the budget forces
// (DagMoments.h); window j lies between m_j and m_(j+1), the last one reaches to the end. For a value u that may be there at m_a:
//
//     h[a, u]      it is held at m_a
//     y[j, u]      it is computed in window j: again, and at a cost, if it is computed for certain before m_j
//     Y[a, t, u]   it is computed in at least one of the windows a .. t; Y[a, a, u] = y[a, u]
//
//     Y[a, t, u] <= Y[a, t - 1, u] + y[t, u]
//     Y[a, t, u] <= h[a, p] + Y[a, t, p]          for every source p of u
//     h[a, u] + Y[a, t, u] >= 1                   if a node first computed for certain in the windows a .. t reads u
//     y[a, u] >= 1                                if u is what is forced at m_a
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
#include "compiler/solve/dag/DagMoments.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cinch::solve {
namespace {

using detail::Marks;
using detail::Moment;

class Intervals {
public:
  // `forced`: with the computations that the budget forces (DagMoments.h).
  Intervals(const Dag &d, Order order, int64_t budget, bool forced)
      : d(d), order(order), budget(budget), n(d.size()), path(detail::longestPath(d, order)), kernelOf(n), kernelCost(n, 0) {
    for (int v = 0; v < n; ++v)
      kernelOf[v] = d.firstOfKernel(v), kernelCost[kernelOf[v]] += d.nodes[v].cost;
    scale = std::max(detail::totalCost(d) / std::max(n, 1), 1e-300);
    std::vector<Moment> all = detail::pathMoments(d, order, path);
    if (forced)
      all = detail::forcedMoments(d, all, budget);
    // A moment says something if without repetition more would be held than fits.
    for (Moment &m : all) {
      int64_t most = m.again ? m.bytes : std::max(m.bytes, gathering(m.node).bytes), bytes = most;
      for (int u = 0; u < n; ++u)
        if (m.before[u] && !m.there[u] &&
            std::any_of(d.nodes[u].users.begin(), d.nodes[u].users.end(), [&](int w) { return m.after[w]; }))
          bytes += d.nodes[u].bytes;
      anyForced |= m.again;
      if (bytes > budget || m.again)
        tight.push_back({std::move(m), most});
    }
  }

  double scale;
  bool anyForced = false;
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
        Marks wanted = closure(demandedIn(a, t));
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

  struct Tight {
    Moment moment;
    int64_t most; // bytes at it, or where its sources gather if that is more
  };

  // Where little room is left to others, moments may be worth more.
  double weight(const Tight &t, bool evenly) const {
    return evenly ? 1 : 1 / (double(budget - t.most) + 0.02 * double(budget));
  }

  // Of each of about `cells` stretches of the list, of equal weight, the moment that leaves the fewest bytes to others.
  std::vector<const Moment *> chosen(int cells, bool evenly) const {
    std::vector<const Moment *> moments;
    double all = 0, sum = 0;
    for (const Tight &t : tight)
      all += weight(t, evenly);
    for (size_t from = 0, to = 0; from < tight.size(); from = to) {
      double end = (std::floor(sum / all * cells * (1 + 1e-12)) + 1) * all / cells;
      do
        sum += weight(tight[to++], evenly);
      while (to < tight.size() && sum + 0.5 * weight(tight[to], evenly) < end);
      moments.push_back(&std::max_element(tight.begin() + from, tight.begin() + to,
                                          [&](const Tight &x, const Tight &y) { return x.most < y.most; })
                             ->moment);
    }
    return moments;
  }

  void choose(int cells, bool evenly) {
    std::vector<const Moment *> moments = chosen(cells, evenly);
    std::vector<Gathering> gathered; // where that is the tighter moment, it stands for the computation of the node
    for (const Moment *m : moments) {
      Gathering g = m->again ? Gathering() : gathering(m->node);
      gathered.push_back(g.bytes > m->bytes ? g : Gathering());
    }
    K = int(moments.size());
    relevant.assign(K, Marks(n, 0)), sure = perhaps = repeated = relevant;
    demandedFrom.assign(K, std::vector<int>(n, -1));
    room.assign(K, 0), roomForAll = room, forced.assign(K, -1);
    // Of a node: the last moment that it is first computed behind, and the window in which, or earlier, it is.
    std::vector<int> from(n, -1), until(n, K - 1);
    for (int k = K - 1; k >= 0; --k) {
      const Moment &m = *moments[k];
      for (int w = 0; w < n; ++w) {
        if (from[w] < 0 && (m.after[w] || (w == m.node && gathered[k].bytes >= 0)))
          from[w] = k;
        if (m.before[w])
          until[w] = k - 1;
      }
    }
    for (int w = 0; w < n; ++w)
      for (int u : d.nodes[w].sources)
        demandFrom(u, from[w], until[w]);
    Marks later(n, 0); // wanted in a window or a later one
    for (int k = K - 1; k >= 0; --k) {
      const Moment &m = *moments[k];
      room[k] = roomForAll[k] = budget - m.bytes;
      sure[k] = m.there;
      if (m.again)
        forced[k] = kernelOf[m.node];
      for (int u : d.nodes[m.node].sources)
        demandFrom(u, k - 1, k - 1);
      if (const Gathering &g = gathered[k]; g.bytes >= 0) {
        room[k] = budget - g.bytes, roomForAll[k] = budget - g.without;
        perhaps[k] = g.perhaps;
        for (int u = 0; u < n; ++u) {
          sure[k][u] |= g.always[u], roomForAll[k] -= g.always[u] ? d.nodes[u].bytes : 0;
          if (g.always[u])
            demandFrom(u, k - 1, k - 1);
        }
      }
    }
    for (int k = K - 1; k >= 0; --k) {
      for (int u = 0; u < n; ++u)
        later[u] |= demandedFrom[k][u] >= 0;
      later = closure(std::move(later));
      const Moment &m = *moments[k];
      for (int u = 0; u < n; ++u) {
        repeated[k][u] = m.before[u];
        relevant[k][u] = !m.after[u] && u != m.node && later[u] && !sure[k][u];
      }
    }
  }

  // A value exists at some time behind moment a and before the end of window t.
  void demandFrom(int u, int a, int t) {
    if (a >= 0 && a <= t)
      demandedFrom[t][u] = std::max(demandedFrom[t][u], a);
  }
  Marks demandedIn(int a, int t) const {
    Marks marks(n, 0);
    for (int u = 0; u < n; ++u)
      marks[u] = demandedFrom[t][u] >= a;
    return marks;
  }

  // Variables of moment a and what they may hold.
  void memory(detail::LinearProgram &p, int a) {
    std::vector<std::pair<int, int64_t>> list, all;
    for (int u = 0; u < n; ++u)
      if (relevant[a][u]) {
        if (int k = kernelOf[u]; y[a][k] < 0)
          y[a][k] = p.variable(repeated[a][u] ? kernelCost[k] / scale : 0);
        if (d.nodes[u].bytes <= (perhaps[a][u] ? roomForAll[a] : room[a])) {
          held[a][u] = p.variable(0), all.push_back({held[a][u], d.nodes[u].bytes});
          if (!perhaps[a][u])
            list.push_back(all.back());
        }
      }
    if (int k = forced[a]; k >= 0) {
      if (y[a][k] < 0)
        y[a][k] = p.variable(kernelCost[k] / scale);
      p.row(1), p.term(y[a][k], 1);
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
      bool demanded = demandedFrom[t][u] >= a;
      if (!relevant[a][u] || (!demanded && !next))
        continue;
      p.row(demanded ? 1 : 0);
      exists(p, a, u, again);
      if (!demanded)
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
  std::vector<int> path;
  std::vector<Tight> tight;
  std::vector<int> kernelOf;      // of nodes: the first one of their kernel
  std::vector<double> kernelCost; // of those
  std::vector<std::vector<int>> demandedFrom; // by window: behind which moment at the latest a value exists before the window ends, -1: none
  std::vector<Marks> relevant, repeated;     // by moment: has h and y; computed before for certain, so that y costs something
  std::vector<Marks> sure;                   // by moment; sure: lies there for certain, and is counted
  std::vector<int> forced;                   // by moment: the kernel that is computed again at it, -1: none
  std::vector<Marks> perhaps;                // by moment: counted already if the last source is one that reads it
  std::vector<int64_t> room, roomForAll;     // by moment: without those values, and with them
  std::vector<std::vector<int>> y, held; // variables, -1: none
};

} // namespace

namespace {

// The more moments the better, as long as there is work for the steps that a program of that size takes.
double boundOf(Intervals &intervals, bool evenly, double target, int64_t &work, double deadline) {
  int cells = 0;
  int64_t given = work;
  detail::LinearProgram p;
  for (int more : {3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96}) {
    detail::LinearProgram larger = intervals.program(std::min(more, intervals.tightMoments()), evenly);
    work -= 8 * larger.terms();
    if (cells && larger.stepWork() * 2000 > given)
      break;
    cells = more, p = std::move(larger);
    if (more >= intervals.tightMoments())
      break;
  }
  return p.bound(target, work, deadline);
}

} // namespace

double detail::intervalBound(const Dag &whole, Order order, int64_t budget, double target, int64_t &work,
                             double deadline) {
  if (whole.size() == 0 || budget < memoryBound(whole))
    return 0;
  Dag d = order == Order::Free ? merged(whole) : whole;
  work -= int64_t(d.size()) * d.size();
  double best = 0;
  int64_t given = work;
  Intervals plain(d, order, budget, false), forced(d, order, budget, true);
  target /= plain.scale;
  // First more moments where there is least room, then evenly; with what is forced, if there is such.
  struct Way {
    Intervals *intervals;
    bool evenly;
    double share; // of the work, at most
  };
  std::vector<Way> ways{{&plain, false, 0.4}, {&plain, true, 1}};
  if (forced.anyForced)
    ways = {{&plain, false, 0.2}, {&forced, false, 0.4}, {&plain, true, 0.5}, {&forced, true, 1}};
  for (const Way &way : ways) {
    int64_t mine = std::min(work, int64_t(double(given) * way.share));
    if (best >= target || mine <= 0 || way.intervals->tightMoments() == 0)
      continue;
    int64_t left = mine;
    best = std::max(best, boundOf(*way.intervals, way.evenly, target, left, deadline));
    work -= mine - left;
  }
  return std::max(0.0, best * (1 - 1e-9) - 1e-8) * plain.scale;
}

} // namespace cinch::solve
