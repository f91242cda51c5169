// DagBound.cpp: a lower bound on the cost of repetition, from single moments.
//
// Take the moment at which node t is computed for the first time. Its ancestors (with a given order: everything
// listed before it) have been computed, its descendants (everything listed after it) have not. What these will read
// is either held at this moment, within the budget, or computed again later, for which its own sources must be held
// or computed again in turn:
//
//     minimise   sum of cost(u) over repeated u      subject to   sum of bytes(u) over held u <= budget - bytes(t)
//
// With a price on the bytes in place of the budget this is a closure problem, solved by a minimum cut; every price
// gives a bound, and the best of them over all moments is returned.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/dag/DagFlow.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {
namespace {

constexpr size_t kMostNodes = 512;  // whose moments are looked at: those that leave the fewest bytes to others
constexpr size_t kMostMoments = 64; // at which cuts are made, the tightest first
constexpr int kDoublings = 9;       // of the price: higher ones would drown the value in rounding
constexpr int kHalvings = 12;       // of the interval in which the best price lies

class SingleMoments {
public:
  SingleMoments(const Dag &d, Order order, int64_t budget, int64_t &work, double deadline)
      : d(d), order(order), budget(budget), work(work), deadline(deadline), n(d.size()) {
    // Everything is scaled so that numbers lie near 1.
    costScale = std::max(detail::totalCost(d) / std::max(n, 1), 1e-300);
    for (const Dag::Node &node : d.nodes)
      byteScale = std::max(byteScale, double(node.bytes));
  }

  double bound() {
    double best = 0;
    size_t looked = 0;
    for (int t : tightest()) {
      if (work <= 0 || (deadline > 0 && detail::secondsNow() > deadline) || ++looked > kMostMoments)
        break;
      best = std::max(best, at(t));
    }
    return std::max(0.0, best * (1 - 1e-9) - 1e-8 * costScale);
  }

private:
  // Nodes at whose first computation more would be held without any repetition than fits, the most first.
  std::vector<int> tightest() {
    std::vector<std::pair<int64_t, int>> nodes;
    for (int t = 0; t < n; ++t) {
      int64_t bytes = d.nodes[t].needs();
      for (int u : d.nodes[t].sources)
        bytes += d.nodes[u].bytes;
      nodes.push_back({-bytes, t});
    }
    if (nodes.size() > kMostNodes) {
      std::sort(nodes.begin(), nodes.end());
      nodes.resize(kMostNodes);
    }
    std::vector<std::pair<int64_t, int>> tight; // what is left of the budget
    for (auto &[bytes, t] : nodes) {
      split(t);
      work -= n;
      int64_t held = d.nodes[t].needs();
      for (int u = 0; u < n; ++u)
        if (before[u] && (readLater(u) || isSource(u, t)))
          held += d.nodes[u].bytes;
      if (held > budget)
        tight.push_back({budget - held, t});
    }
    std::stable_sort(tight.begin(), tight.end(), [](auto &x, auto &y) { return x.first < y.first; });
    std::vector<int> list;
    for (auto &[left, t] : tight)
      list.push_back(t);
    return list;
  }

  void split(int t) {
    before = detail::everBeside(d, order, t, true), after = detail::everBeside(d, order, t, false);
  }
  bool readLater(int u) const {
    return std::any_of(d.nodes[u].users.begin(), d.nodes[u].users.end(), [&](int w) { return after[w]; });
  }
  bool isSource(int u, int t) const {
    return std::find(d.nodes[t].sources.begin(), d.nodes[t].sources.end(), u) != d.nodes[t].sources.end();
  }

  // The bound from one moment, which is concave in the price: climbed by bisection on the slope.
  double at(int t) {
    split(t);
    held.assign(n, 0), room = double(budget - d.nodes[t].needs());
    for (int u : d.nodes[t].sources)
      held[u] = 1, room -= double(d.nodes[u].bytes);
    room /= byteScale;
    double best = 0, low = 0, high = 1, bytes = 0;
    for (int i = 0; i < kDoublings && work > 0; ++i) {
      best = std::max(best, value(high, bytes) * costScale);
      if (bytes <= room)
        break;
      low = high, high *= 4;
    }
    for (int i = 0; i < kHalvings && work > 0; ++i) {
      double middle = low == 0 ? high / 4 : std::sqrt(low * high);
      best = std::max(best, value(middle, bytes) * costScale);
      (bytes > room ? low : high) = middle;
    }
    return best;
  }

  // At a price. a(u): u must exist after the moment; x(u): it is repeated. Minimise sum of price * bytes * a + (cost - price *
  // bytes) * x with x(u) -> a(u) and x(u) -> a(p) for every source p. What the node itself holds exists for free.
  double value(double price, double &heldBytes) {
    flow.reset(2 * n + 2);
    int source = 2 * n, sink = 2 * n + 1;
    double constant = 0;
    for (int u = 0; u < n; ++u) {
      if (!before[u] || held[u])
        continue;
      double b = double(d.nodes[u].bytes) / byteScale, c = d.nodes[u].cost / costScale;
      // Source side = 1. A variable with positive cost: edge to the sink; with negative: edge from the source and a constant.
      flow.add(u, sink, price * b);
      double x = c - price * b;
      if (x >= 0) {
        flow.add(n + u, sink, x);
      } else {
        constant += x;
        flow.add(source, n + u, -x);
      }
      flow.add(n + u, u, 1e290);
      for (int p : d.nodes[u].sources)
        if (!held[p])
          flow.add(n + u, p, 1e290);
      if (readLater(u))
        flow.add(source, u, 1e290);
    }
    double total = flow.run(source, sink, work) + constant;
    heldBytes = 0;
    for (int u = 0; u < n; ++u)
      if (before[u] && !held[u] && flow.reached(u) && !flow.reached(n + u))
        heldBytes += double(d.nodes[u].bytes) / byteScale;
    return total - price * room;
  }

  const Dag &d;
  Order order;
  int64_t budget;
  int64_t &work;
  double deadline;
  int n;
  double costScale = 1, byteScale = 1;
  detail::Flow flow;
  std::vector<char> before, after, held; // of the moment: computed before and after it for certain; its node's sources
  double room = 0;                       // bytes it leaves to others
};

} // namespace

double detail::cutBound(const Dag &d, Order order, int64_t budget, int64_t &work, double deadline) {
  return SingleMoments(d, order, budget, work, deadline).bound();
}

} // namespace cinch::solve
