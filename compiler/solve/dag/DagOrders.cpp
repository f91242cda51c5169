// DagOrders.cpp: a lower bound on the cost of repetition by cases: one of two nodes is first computed before the other.
//
// The other bounds look at moments that follow each other in every order, and ask what lies there for certain. Of two parts of a graph that
// need nothing of each other (the two directions of a recurrence, say) either may come first; but if one does, it finds what the
// other one still needs lying there. So each case is bounded for itself, with the order of the two as if one read the other, and the smaller
// of both bounds holds. Cases are divided on, the weakest first.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"

#include <algorithm>

namespace cinch::solve {
namespace {

using Marks = std::vector<char>;

struct OrderLimits {
  size_t nodes = 40;       // looked at in pairs: those that leave the fewest bytes to others
  size_t tried = 4;        // pairs of these that promise most, and are bounded to choose among them
  int64_t whole = 2;       // of the work a part of so many goes to the graph without cases, if there are any
  int64_t trial = 64;      // and to a trial
  int64_t bounds = 16;     // and to a case that was chosen
  int64_t firstRound = 64; // where DagLimits::near is given: a part of so many of the work is tried first,
  int64_t nextRound = 4;   // then so many times as much,
  int idleRounds = 2;      // until so many of them gain nothing: a search may need four times its work to gain anything, seldom sixteen times
};
constexpr OrderLimits kLimits;

struct Pair {
  int u, v;
  int64_t bytes; // too many at one of both, whichever comes first, that are not certain to be otherwise
};

// What is certain of the moments at which some nodes are first computed.
class Moments {
public:
  Moments(const Dag &d, int64_t budget) : d(d), budget(budget) {
    std::vector<std::pair<int64_t, int>> order;
    for (int v = 0; v < d.size(); ++v)
      if (d.firstOfKernel(v) == v)
        order.push_back({-bytesAt(v), v});
    std::sort(order.begin(), order.end());
    order.resize(std::min(order.size(), kLimits.nodes));
    for (auto &[bytes, v] : order) {
      nodes.push_back(v);
      before.push_back(detail::everBeside(d, Order::Free, v, true)), after.push_back(detail::everBeside(d, Order::Free, v, false));
      after.back()[v] = 1;
      plain.push_back(held(v, before.back(), after.back()));
    }
  }

  // Pairs in no certain order, the most promising first.
  std::vector<Pair> pairs() const {
    std::vector<Pair> list;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (size_t j = i + 1; j < nodes.size(); ++j) {
        if (before[i][nodes[j]] || after[i][nodes[j]])
          continue;
        if (int64_t bytes = std::min(gain(i, j), gain(j, i)); bytes > 0)
          list.push_back({nodes[i], nodes[j], bytes});
      }
    std::stable_sort(list.begin(), list.end(), [](const Pair &x, const Pair &y) { return x.bytes > y.bytes; });
    return list;
  }

private:
  int64_t bytesAt(int v) const {
    int64_t bytes = d.nodes[v].needs();
    for (int u : d.nodes[v].sources)
      bytes += d.nodes[u].bytes;
    return bytes;
  }
  // At the moment of v, without repetition, if these are computed before it and these after.
  int64_t held(int v, const Marks &before, const Marks &after) const {
    int64_t bytes = bytesAt(v);
    for (int u = 0; u < d.size(); ++u)
      if (before[u] && std::find(d.nodes[v].sources.begin(), d.nodes[v].sources.end(), u) == d.nodes[v].sources.end() &&
          std::any_of(d.nodes[u].users.begin(), d.nodes[u].users.end(), [&](int w) { return after[w] && w != v; }))
        bytes += d.nodes[u].bytes;
    return bytes;
  }
  static Marks either(Marks x, const Marks &y) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] |= y[i];
    return x;
  }
  // Bytes beyond the budget that it adds at either moment to know that node i comes before node j.
  int64_t gain(size_t i, size_t j) const {
    int64_t first = held(nodes[i], before[i], either(after[i], after[j]));
    Marks early = either(before[j], before[i]);
    for (int u = nodes[i]; u < d.endOfKernel(nodes[i]); ++u)
      early[u] = 1;
    int64_t second = held(nodes[j], early, after[j]);
    return std::max(first - std::max(plain[i], budget), second - std::max(plain[j], budget));
  }

  const Dag &d;
  int64_t budget;
  std::vector<int> nodes;
  std::vector<Marks> before, after; // of those; a node is among what comes after its moment
  std::vector<int64_t> plain;       // bytes at the moment for certain
};

// The graph if all that is computed with u is first computed before all that is computed with v.
Dag inOrder(Dag d, int u, int v) {
  for (int x = d.firstOfKernel(u); x < d.endOfKernel(u); ++x)
    for (int y = d.firstOfKernel(v); y < d.endOfKernel(v); ++y)
      d.nodes[x].later.push_back(y), d.nodes[y].earlier.push_back(x);
  return d;
}

struct Case {
  Dag dag;
  double bound = 0;
  bool closed = false; // no pair is left to divide it by
};

class Cases {
public:
  Cases(int64_t budget, double target, int64_t &work, int64_t all, double deadline)
      : budget(budget), target(target), work(work), all(all), deadline(deadline) {}

  double run(Case whole) {
    std::vector<Case> open;
    open.push_back(std::move(whole));
    for (;;) {
      auto weakest = std::min_element(open.begin(), open.end(), [](const Case &x, const Case &y) { return x.bound < y.bound; });
      if (weakest->bound >= target || weakest->closed || late())
        return weakest->bound;
      std::vector<Case> halves = divided(*weakest);
      if (halves.empty()) {
        weakest->closed = true;
        continue;
      }
      *weakest = std::move(halves[0]);
      open.push_back(std::move(halves[1]));
    }
  }

private:
  bool late() const { return work <= 0 || (deadline > 0 && detail::secondsNow() > deadline); }

  double bound(const Dag &d, int64_t share) {
    int64_t given = std::min(work, all / share), rest = given;
    double proof = detail::intervalBound(d, Order::Free, budget, target, rest, deadline);
    work -= given - rest;
    return proof;
  }

  // By the pair whose weaker case is strongest.
  std::vector<Case> divided(const Case &from) {
    std::vector<Pair> pairs = Moments(from.dag, budget).pairs();
    work -= int64_t(from.dag.size()) * int64_t(kLimits.nodes * kLimits.nodes);
    std::vector<Case> best;
    double least = -1;
    for (size_t i = 0; i < std::min(pairs.size(), kLimits.tried) && !late(); ++i) {
      std::vector<Case> halves;
      for (bool turned : {false, true}) {
        Case half;
        half.dag = turned ? inOrder(from.dag, pairs[i].v, pairs[i].u) : inOrder(from.dag, pairs[i].u, pairs[i].v);
        half.bound = std::max(from.bound, bound(half.dag, kLimits.trial));
        halves.push_back(std::move(half));
      }
      double weaker = std::min(halves[0].bound, halves[1].bound);
      if (weaker > least)
        least = weaker, best = std::move(halves);
      if (least >= target)
        break;
    }
    for (Case &half : best)
      if (half.bound < target && !late())
        half.bound = std::max(half.bound, bound(half.dag, kLimits.bounds));
    return best;
  }

  int64_t budget;
  double target;
  int64_t &work, all;
  double deadline;
};

// From the graph as it is. `all`: the work that the searches take shares of.
double plainBound(const Dag &d, Order order, int64_t budget, double target, int64_t work, int64_t all, double deadline) {
  using Bound = double (*)(const Dag &, Order, int64_t, double, int64_t &, double);
  // Each may take a share of the work that is left, the last one what there is; the searches have theirs besides, of all the work.
  static const struct {
    Bound bound;
    int64_t share;
    bool besides;
  } methods[] = {{[](const Dag &d, Order order, int64_t budget, double, int64_t &work, double deadline) {
                    return detail::cutBound(d, order, budget, work, deadline);
                  },
                  16, false},
                 {detail::windowBound, 4, false},
                 {detail::exactBound, 8, true},
                 {detail::gateBound, 2, true},
                 {detail::intervalBound, 1, false}};
  double proof = 0;
  int64_t left = work;
  for (auto &[bound, share, besides] : methods) {
    int64_t given = (besides ? all : left) / share, rest = given;
    if (proof < target)
      proof = std::max(proof, bound(d, order, budget, target, rest, deadline));
    left -= besides ? 0 : given - rest;
  }
  return proof;
}

// From the graph as it is, then by cases. `proven`: what is known already.
double boundWith(const Dag &d, Order order, int64_t budget, double target, bool cases, double proven, int64_t all, double deadline) {
  int64_t work = cases ? all / kLimits.whole : all;
  double proof = std::max(proven, plainBound(d, order, budget, target, work, all, deadline));
  if (!cases || proof >= target)
    return proof;
  int64_t rest = all - work;
  Case whole;
  whole.dag = d, whole.bound = proof;
  return std::min(target, Cases(budget, target, rest, all, deadline).run(std::move(whole)));
}

} // namespace

double detail::repetitionBound(const Dag &d, Order order, int64_t budget, double target, const DagLimits &limits) {
  double deadline = limits.seconds > 0 ? secondsNow() + limits.seconds : 0;
  bool cases = order == Order::Free && !Moments(d, budget).pairs().empty();
  double proven = 0;
  int idle = 0;
  for (int64_t part = limits.near > 0 ? kLimits.firstRound : 1; part > 0 && idle < kLimits.idleRounds; part /= kLimits.nextRound) {
    double before = proven;
    proven = boundWith(d, order, budget, target, cases, proven, limits.work / part, deadline);
    idle = proven < before + limits.near ? idle + 1 : 0;
    if (proven >= target - limits.near || (deadline > 0 && secondsNow() > deadline))
      break;
  }
  return proven;
}

} // namespace cinch::solve
