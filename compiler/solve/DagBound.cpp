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
#include "compiler/solve/Dag.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {
namespace {

// Maximum flow (Dinic) on doubles.
class Flow {
public:
  void reset(int n) { first.assign(n, -1), edges.clear(); }
  void add(int from, int to, double capacity) {
    edges.push_back({to, first[from], capacity});
    first[from] = int(edges.size()) - 1;
    edges.push_back({from, first[to], 0});
    first[to] = int(edges.size()) - 1;
  }
  double run(int source, int sink, int64_t &work) {
    double flow = 0;
    while (levels(source, sink, work)) {
      next = first;
      for (double f; (f = push(source, sink, 1e300, work)) > 0;)
        flow += f;
    }
    return flow;
  }
  // After run: lies v on the source's side?
  bool reached(int v) const { return level[v] >= 0; }

private:
  struct Edge {
    int to, next;
    double capacity;
  };
  bool levels(int source, int sink, int64_t &work) {
    level.assign(first.size(), -1);
    level[source] = 0;
    queue.assign(1, source);
    for (size_t i = 0; i < queue.size(); ++i)
      for (int e = first[queue[i]]; e >= 0; e = edges[e].next, --work)
        if (edges[e].capacity > 1e-12 && level[edges[e].to] < 0) {
          level[edges[e].to] = level[queue[i]] + 1;
          queue.push_back(edges[e].to);
        }
    return level[sink] >= 0;
  }
  double push(int v, int sink, double limit, int64_t &work) {
    if (v == sink)
      return limit;
    for (int &e = next[v]; e >= 0; e = edges[e].next, --work) {
      Edge &edge = edges[e];
      if (edge.capacity <= 1e-12 || level[edge.to] != level[v] + 1)
        continue;
      double f = push(edge.to, sink, std::min(limit, edge.capacity), work);
      if (f > 0) {
        edge.capacity -= f, edges[e ^ 1].capacity += f;
        return f;
      }
    }
    return 0;
  }
  std::vector<int> first, next, level, queue;
  std::vector<Edge> edges;
};

} // namespace

double detail::cutBound(const Dag &d, Order order, int64_t budget, int64_t &work, double deadline) {
  int n = d.size();
  // Everything is scaled so that numbers lie near 1.
  double costScale = std::max(detail::totalCost(d) / std::max(n, 1), 1e-300), byteScale = 1;
  for (const Dag::Node &node : d.nodes)
    byteScale = std::max(byteScale, double(node.bytes));

  struct Moment {
    int node;
    int64_t slack; // budget less what would be held without any repetition: the tightest first
  };
  std::vector<char> before(n), after(n);
  std::vector<int> stack;
  auto split = [&](int t) {
    std::fill(before.begin(), before.end(), 0), std::fill(after.begin(), after.end(), 0);
    if (order == Order::Given) {
      for (int v = 0; v < n; ++v)
        (v < t ? before : after)[v] = v != t;
      return;
    }
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<char> &seen = pass ? after : before;
      stack.assign(1, t);
      while (!stack.empty()) {
        int v = stack.back();
        stack.pop_back();
        for (int u : pass ? d.nodes[v].users : d.nodes[v].sources)
          if (!seen[u])
            seen[u] = 1, stack.push_back(u);
      }
    }
  };
  auto readLater = [&](int u) {
    for (int w : d.nodes[u].users)
      if (after[w])
        return true;
    return false;
  };
  std::vector<Moment> moments;
  for (int t = 0; t < n; ++t) {
    split(t);
    int64_t held = d.nodes[t].bytes;
    for (int u = 0; u < n; ++u)
      if (before[u] && (readLater(u) ||
                        std::find(d.nodes[t].sources.begin(), d.nodes[t].sources.end(), u) != d.nodes[t].sources.end()))
        held += d.nodes[u].bytes;
    if (held > budget)
      moments.push_back({t, budget - held});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment &a, const Moment &b) { return a.slack < b.slack; });

  Flow flow;
  double best = 0;
  int looked = 0;
  for (const Moment &m : moments) {
    if (work <= 0 || (deadline > 0 && detail::secondsNow() > deadline) || ++looked > 64)
      break;
    int t = m.node;
    split(t);
    std::vector<char> held(n, 0);
    double room = double(budget - d.nodes[t].bytes);
    for (int u : d.nodes[t].sources)
      held[u] = 1, room -= double(d.nodes[u].bytes);
    room /= byteScale;
    // a(u): u must exist after the moment; x(u): it is repeated. Minimise sum of price * bytes * a + (cost - price *
    // bytes) * x with x(u) -> a(u) and x(u) -> a(p) for every source p. What t itself holds exists for free.
    auto value = [&](double price, double &heldBytes) {
      flow.reset(2 * n + 2);
      int source = 2 * n, sink = 2 * n + 1;
      double constant = 0;
      for (int u = 0; u < n; ++u) {
        if (!before[u] || held[u])
          continue;
        double b = double(d.nodes[u].bytes) / byteScale, c = d.nodes[u].cost / costScale;
        // Source side = 1. A variable with positive cost: edge to the sink; with negative: edge from the source and a
        // constant.
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
    };
    // Concave in the price: climb by bisection on the slope.
    double low = 0, high = 1, bytes = 0;
    for (int i = 0; i < 40 && work > 0; ++i) {
      best = std::max(best, value(high, bytes) * costScale);
      if (bytes <= room)
        break;
      low = high, high *= 4;
    }
    for (int i = 0; i < 12 && work > 0; ++i) {
      double middle = low == 0 ? high / 4 : std::sqrt(low * high);
      best = std::max(best, value(middle, bytes) * costScale);
      (bytes > room ? low : high) = middle;
    }
  }
  return best * (1 - 1e-9);
}

} // namespace cinch::solve
