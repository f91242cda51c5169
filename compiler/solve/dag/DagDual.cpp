// DagDual.cpp: a lower bound on the cost of repetition from all moments together, by Lagrangian relaxation.
//
// Moments are the first computations of the nodes on a path (with a given order: of all nodes). h[t, i]: value i is
// held at moment t; R[t, i]: it is computed again between the moments t - 1 and t. Every schedule obeys
//
//     h[t, i] <= h[t - 1, i] + R[t, i]                  what is held was held before or computed again
//     R[t, k] <= h[t - 1, i] + R[t, i]                  for every source i of k                  price mu[t, k, i]
//     h[t, i]  = 1                                      for every source i of the node of moment t
//     bytes(node t) + sum of bytes(i) h[t, i] <= budget                                          price lambda[t]
//
// With prices on the second and the fourth the problem falls apart into one shortest path over the moments for each
// value. Any prices >= 0 give a bound; subgradient steps (Polyak's length, with momentum) improve them. In the limit
// this is the bound of the linear relaxation of that formulation, without solving a linear program.
//
// With a free order a value counts from the first moment by which it has certainly been computed; what happens before
// costs nothing here.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {
namespace {

class Dual {
public:
  Dual(const Dag &d, Order order, int64_t budget, int most) : d(d), budget(double(budget)) {
    n = d.size();
    path = detail::longestPath(d, order);
    while (int(path.size()) > most || int64_t(path.size()) * edgeCount() > 3'000'000) {
      // Fewer moments are a relaxation, too.
      std::vector<int> fewer;
      for (size_t i = 0; i < path.size(); i += 2)
        fewer.push_back(path[i]);
      if (fewer.size() == path.size())
        break;
      path = fewer;
    }
    moments = int(path.size());
    since.assign(n, moments);
    if (order == Order::Given) {
      for (int i = 0, t = 0; i < n; ++i) {
        while (t < moments && path[t] < i)
          ++t;
        since[i] = t;
      }
    } else {
      for (int t = moments - 1; t >= 0; --t)
        for (int v : ancestors(path[t]))
          since[v] = t;
    }
    scale = std::max(detail::totalCost(d) / std::max(n, 1), 1e-300);
    for (int i = 0; i < n; ++i)
      for (int p : d.nodes[i].sources)
        edges.push_back({i, p});
    in.resize(n), out.resize(n);
    for (size_t e = 0; e < edges.size(); ++e)
      in[edges[e].first].push_back(int(e)), out[edges[e].second].push_back(int(e));
    forced.assign(size_t(moments) * n, 0);
    for (int t = 0; t < moments; ++t)
      for (int p : d.nodes[path[t]].sources)
        forced[size_t(t) * n + p] = 1;
    lambda.assign(moments, 0), mu.assign(size_t(moments) * edges.size(), 0);
    held.assign(size_t(moments) * n, 0), again.assign(size_t(moments) * n, 0);
  }

  double run(double target, int64_t &work, double deadline) {
    std::vector<double> slopeL(moments, 0), slopeM(mu.size(), 0), bestL, bestM;
    double best = 0, step = 1;
    int sinceBetter = 0;
    target /= scale;
    for (int iteration = 0; iteration < 20000; ++iteration) {
      work -= int64_t(mu.size()) * 2 + int64_t(moments) * n * 2;
      if (work <= 0 || (deadline > 0 && detail::secondsNow() > deadline))
        break;
      double value = evaluate();
      if (value > best + 1e-7 * std::max(best, 1.0)) {
        best = value, sinceBetter = 0;
        bestL = lambda, bestM = mu;
      } else if (++sinceBetter >= 100) {
        step *= 0.7, sinceBetter = 0;
        if (step < 1e-4)
          break;
        if (!bestL.empty())
          lambda = bestL, mu = bestM;
        std::fill(slopeL.begin(), slopeL.end(), 0), std::fill(slopeM.begin(), slopeM.end(), 0);
        evaluate();
      }
      if (best >= target)
        break;
      // Momentum along the subgradient.
      double norm = 0;
      for (int t = 0; t < moments; ++t) {
        double g = (double(d.nodes[path[t]].needs()) - budget) / budget;
        for (int i = 0; i < n; ++i)
          if (held[size_t(t) * n + i])
            g += double(d.nodes[i].bytes) / budget;
        slopeL[t] = g + kMomentum * slopeL[t];
        if (lambda[t] <= 0 && slopeL[t] < 0)
          slopeL[t] = 0;
        norm += slopeL[t] * slopeL[t];
      }
      for (int t = 1; t < moments; ++t)
        for (size_t e = 0; e < edges.size(); ++e) {
          auto [k, i] = edges[e];
          if (since[k] >= t)
            continue;
          size_t at = size_t(t) * edges.size() + e;
          double g = double(again[size_t(t) * n + k]) - double(again[size_t(t) * n + i]) - double(heldBefore(t, i));
          double s = g + kMomentum * slopeM[at];
          if (mu[at] <= 0 && s < 0)
            s = 0;
          slopeM[at] = s;
          norm += s * s;
        }
      if (norm <= 1e-18)
        break; // all of it is rounding
      double length = step * (target - value) / norm;
      for (int t = 0; t < moments; ++t)
        lambda[t] = std::clamp(lambda[t] + length * slopeL[t], 0.0, kDearest);
      for (size_t at = 0; at < mu.size(); ++at)
        if (slopeM[at] != 0)
          mu[at] = std::clamp(mu[at] + length * slopeM[at], 0.0, kDearest);
    }
    return std::max(0.0, best * (1 - 1e-9) - 1e-8) * scale;
  }

private:
  static constexpr double kMomentum = 0.7;
  static constexpr double kDearest = 1e5; // no price is higher, so that rounding stays far below what is claimed

  int64_t edgeCount() const {
    int64_t count = 0;
    for (const Dag::Node &node : d.nodes)
      count += int64_t(node.sources.size());
    return count;
  }

  std::vector<int> ancestors(int of) const {
    std::vector<int> list{of};
    std::vector<char> seen(n, 0);
    seen[of] = 1;
    for (size_t k = 0; k < list.size(); ++k)
      for (int u : d.nodes[list[k]].sources)
        if (!seen[u])
          seen[u] = 1, list.push_back(u);
    return list;
  }

  // Is i there when interval t begins: held at moment t - 1, or computed at it.
  bool heldBefore(int t, int i) const { return path[t - 1] == i || held[size_t(t - 1) * n + i]; }

  double evaluate() {
    double value = 0;
    for (int t = 0; t < moments; ++t)
      value += lambda[t] * (double(d.nodes[path[t]].needs()) - budget) / budget;
    std::fill(held.begin(), held.end(), 0), std::fill(again.begin(), again.end(), 0);
    sigma.resize(moments + 1), rho.resize(moments + 1), after.resize(2 * (moments + 2));
    choice.resize(2 * (moments + 2));
    for (int i = 0; i < n; ++i) {
      int first = since[i] + 1; // first interval in which computing i is repetition
      if (since[i] >= moments)
        continue;
      double bytes = double(d.nodes[i].bytes) / budget, cost = d.nodes[i].cost / scale;
      for (int t = first; t < moments; ++t) {
        double s = 0, r = cost;
        for (int e : out[i])
          if (since[edges[e].first] < t)
            s += mu[size_t(t) * edges.size() + e];
        for (int e : in[i])
          r += mu[size_t(t) * edges.size() + e];
        sigma[t] = s, rho[t] = r - s;
      }
      // Backward over the intervals: after[2 t + s] is the least from interval t on if i is there (s = 1) or not.
      after[2 * moments] = after[2 * moments + 1] = 0;
      for (int t = moments - 1; t >= first; --t) {
        double hold = lambda[t] * bytes + after[2 * (t + 1) + 1], drop = after[2 * (t + 1)];
        bool must = forced[size_t(t) * n + i];
        for (int s = 0; s < 2; ++s) {
          double least = 1e300;
          char best = 0;
          for (int r = 0; r < 2; ++r)
            for (int h = 0; h < 2; ++h) {
              if ((h && !s && !r) || (!h && must))
                continue;
              double x = (r ? rho[t] : 0) + (h ? hold : drop);
              if (x < least)
                least = x, best = char(r + 2 * h);
            }
          after[2 * t + s] = least - (s ? sigma[t] : 0);
          choice[2 * t + s] = best;
        }
      }
      // At its own moment a value of the path is there for nothing; another one may be held at the price of its bytes.
      int t = since[i], s = 1;
      if (path[t] != i) {
        double hold = lambda[t] * bytes + after[2 * (t + 1) + 1], drop = after[2 * (t + 1)];
        s = forced[size_t(t) * n + i] || hold < drop;
        held[size_t(t) * n + i] = char(s);
        value += s ? hold : drop;
      } else {
        value += after[2 * (t + 1) + 1];
      }
      for (t = first; t < moments; ++t) {
        char c = choice[2 * t + s];
        again[size_t(t) * n + i] = c & 1;
        s = c >> 1;
        held[size_t(t) * n + i] = char(s);
      }
    }
    return value;
  }

  const Dag &d;
  double budget, scale = 1;
  int n, moments = 0;
  std::vector<int> path, since;           // since: moment by which a value has certainly been computed
  std::vector<std::pair<int, int>> edges; // (node, source)
  std::vector<std::vector<int>> in, out;
  std::vector<char> forced, held, again, choice;
  std::vector<double> lambda, mu, sigma, rho, after;
};

} // namespace

std::vector<int> detail::longestPath(const Dag &d, Order order) {
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

double detail::dualBound(const Dag &d, Order order, int64_t budget, double target, int64_t &work, double deadline) {
  if (d.size() == 0 || budget <= 0)
    return 0;
  return Dual(d, order, budget, 512).run(target, work, deadline);
}

} // namespace cinch::solve
