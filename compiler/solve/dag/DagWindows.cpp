// DagWindows.cpp: a lower bound on the cost of repetition from a few moments together.
//
// Moments m_0 < m_1 < ... are first computations of nodes that follow each other in every order; window k lies between
// m_k and m_(k+1), the last one reaches to the end. For a value u computed for certain before m_k:
//
//     h[k, u]   it is held at m_k                 y[k, u]   it is computed again in window k
//     e[k, u] = h[k, u] + y[k, u] <= 1            it exists in window k
//
//     y[k, u] <= e[k, p]       for every source p of u
//     e[k, u]  = 1             if a node that is first computed in window k for certain reads u
//     h[k + 1, u] <= e[k, u]                                                                    price nu[k + 1, u]
//     bytes(m_k) + sum of bytes(u) h[k, u] <= budget                                            price lambda[k]
//
// A window counts one repetition of a value however it is pieced together, which makes this stronger than the linear
// relaxation over all moments, where fractions of a source at every moment add up to whole repetitions. With prices on
// the last two kinds each window is a closure problem, a minimum cut. Any prices >= 0 give a bound; subgradient steps
// improve them, and moments are added where they help most.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/dag/DagFlow.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cinch::solve {
namespace {

class Windows {
public:
  Windows(const Dag &d, Order order, int64_t budget, int64_t &work, double deadline)
      : d(d), order(order), budget(budget), work(work), deadline(deadline), n(d.size()) {
    costScale = std::max(detail::totalCost(d) / std::max(n, 1), 1e-300), byteScale = 1;
    for (const Dag::Node &node : d.nodes)
      byteScale = std::max(byteScale, double(node.bytes));
  }

  struct Prices {
    std::vector<int> moments;
    std::vector<double> lambda;
    std::vector<std::vector<double>> nu; // nu[k]: on what is held at moment k having existed before
    double bound = 0;
  };

  bool late() const { return work <= 0 || (deadline > 0 && detail::secondsNow() > deadline); }

  // Improves the prices by subgradient steps; the goal comes nearer after `patience` steps without success.
  void climb(Prices &p, int iterations, int patience, double target) {
    setUp(p.moments);
    int K = int(p.moments.size());
    double best = p.bound, step = 1;
    std::vector<double> lambda = p.lambda, slopeL(K, 0), gradientL(K);
    std::vector<std::vector<double>> nu = p.nu, slopeN(K), gradientN(K);
    for (int k = 0; k < K; ++k)
      slopeN[k].assign(n, 0), gradientN[k].assign(n, 0);
    double ahead = -1;
    int sinceBetter = 0;
    for (int i = 0; i < iterations && !late(); ++i) {
      double value = evaluate(lambda, nu, gradientL, gradientN);
      if (ahead < 0)
        ahead = 0.1 * std::max(value, 0.1 * target);
      if (value > best) {
        if (value > best + 0.02 * ahead)
          sinceBetter = 0;
        best = value, p.lambda = lambda, p.nu = nu;
      }
      if (best >= target)
        break;
      if (++sinceBetter > patience) {
        ahead /= 2, sinceBetter = 0;
        lambda = p.lambda, nu = p.nu;
        if (ahead < 1e-4 * std::max(best, 1e-3))
          break;
        for (int k = 0; k < K; ++k)
          slopeL[k] = 0, std::fill(slopeN[k].begin(), slopeN[k].end(), 0);
        evaluate(lambda, nu, gradientL, gradientN);
      }
      double norm = 0;
      auto blend = [&](double &slope, double gradient, double price) {
        slope = gradient + 0.6 * slope;
        if (price <= 0 && slope < 0)
          slope = 0;
        norm += slope * slope;
      };
      for (int k = 0; k < K; ++k) {
        blend(slopeL[k], gradientL[k], lambda[k]);
        for (int u = 0; k > 0 && u < n; ++u)
          if (coupled[k][u])
            blend(slopeN[k][u], gradientN[k][u], nu[k][u]);
      }
      if (norm <= 1e-18)
        break;
      double length = step * (std::min(best + ahead, target) - value) / norm;
      for (int k = 0; k < K; ++k) {
        lambda[k] = std::clamp(lambda[k] + length * slopeL[k], 0.0, kDearest);
        for (int u = 0; k > 0 && u < n; ++u)
          if (coupled[k][u])
            nu[k][u] = std::clamp(nu[k][u] + length * slopeN[k][u], 0.0, kDearest);
      }
    }
    p.bound = best;
  }

  // The moment alone, by bisection on its one price.
  Prices single(int moment) {
    Prices p{{moment}, {0}, {std::vector<double>(n, 0)}, 0};
    setUp(p.moments);
    std::vector<double> gradient(1), lambda(1);
    std::vector<std::vector<double>> nu = p.nu, unused(1, std::vector<double>(n, 0));
    auto at = [&](double price) {
      lambda[0] = price;
      double value = evaluate(lambda, nu, gradient, unused);
      if (value > p.bound)
        p.bound = value, p.lambda = lambda;
      return gradient[0] > 0;
    };
    double low = 0, high = 1;
    for (int i = 0; i < 9 && !late() && at(high); ++i)
      low = high, high *= 4;
    for (int i = 0; i < 9 && !late(); ++i) {
      double middle = low == 0 ? high / 4 : std::sqrt(low * high);
      (at(middle) ? low : high) = middle;
    }
    return p;
  }

  double scale() const { return costScale; }

  static constexpr double kDearest = 1e5; // no price is higher, so that rounding stays far below what is claimed

private:
  void setUp(const std::vector<int> &moments) {
    int K = int(moments.size());
    before.resize(K), held.assign(K, {}), demand.assign(K, {}), coupled.assign(K, {}), room.assign(K, 0);
    std::vector<std::vector<char>> after(K);
    for (int k = 0; k < K; ++k) {
      before[k] = detail::everBeside(d, order, moments[k], true);
      after[k] = detail::everBeside(d, order, moments[k], false);
    }
    std::vector<char> later(n, 0); // wanted in this window or a later one, perhaps to compute something else
    for (int k = K - 1; k >= 0; --k) {
      int m = moments[k];
      held[k].assign(n, 0), demand[k].assign(n, 0), coupled[k].assign(n, 0);
      int64_t bytes = budget - d.nodes[m].needs();
      for (int u : d.nodes[m].sources)
        held[k][u] = 1, bytes -= d.nodes[u].bytes;
      for (int w = 0; w < n; ++w)
        if (after[k][w] && (k + 1 == K || before[k + 1][w] || w == moments[k + 1]))
          for (int u : d.nodes[w].sources)
            demand[k][u] |= before[k][u];
      std::vector<int> stack;
      for (int u = 0; u < n; ++u)
        if (demand[k][u] && !later[u])
          later[u] = 1, stack.push_back(u);
      while (!stack.empty()) {
        int v = stack.back();
        stack.pop_back();
        for (int u : d.nodes[v].sources)
          if (!later[u])
            later[u] = 1, stack.push_back(u);
      }
      for (int u = 0; k > 0 && u < n; ++u)
        coupled[k][u] = before[k - 1][u] && !held[k][u];
      room[k] = double(usable(k, later, bytes)) / byteScale;
    }
  }

  // The most of `bytes` that values which can be held at moment k can fill, if few sums are possible.
  int64_t usable(int k, const std::vector<char> &later, int64_t bytes) {
    std::set<int64_t> sums{0};
    for (int u = 0; u < n; ++u) {
      if (!before[k][u] || held[k][u] || !later[u] || d.nodes[u].bytes > bytes)
        continue;
      std::vector<int64_t> more;
      for (int64_t sum : sums)
        if (sum + d.nodes[u].bytes <= bytes)
          more.push_back(sum + d.nodes[u].bytes);
      sums.insert(more.begin(), more.end());
      work -= int64_t(more.size()) * 16;
      if (sums.size() > 256)
        return bytes;
    }
    return *sums.rbegin();
  }

  double evaluate(const std::vector<double> &lambda, const std::vector<std::vector<double>> &nu,
                  std::vector<double> &gradientL, std::vector<std::vector<double>> &gradientN) {
    int K = int(lambda.size());
    double value = 0;
    for (int k = 0; k < K; ++k)
      std::fill(gradientN[k].begin(), gradientN[k].end(), 0);
    for (int k = 0; k < K; ++k) {
      flow.reset(2 * n + 2);
      int source = 2 * n, sink = 2 * n + 1;
      bool coupledNext = k + 1 < K;
      auto weigh = [&](int variable, double weight) {
        if (weight >= 0) {
          flow.add(variable, sink, weight);
        } else {
          value += weight;
          flow.add(source, variable, -weight);
        }
      };
      value -= lambda[k] * room[k];
      for (int u = 0; u < n; ++u) {
        if (!before[k][u])
          continue;
        double next = coupledNext && coupled[k + 1][u] ? nu[k + 1][u] : 0;
        if (held[k][u]) {
          value -= next;
          if (next > 0 || (coupledNext && coupled[k + 1][u]))
            gradientN[k + 1][u] -= 1;
          continue;
        }
        double hold = lambda[k] * double(d.nodes[u].bytes) / byteScale + (coupled[k][u] ? nu[k][u] : 0);
        weigh(u, hold - next);
        weigh(n + u, d.nodes[u].cost / costScale - hold);
        flow.add(n + u, u, 1e290);
        for (int p : d.nodes[u].sources)
          if (!held[k][p])
            flow.add(n + u, p, 1e290);
        if (demand[k][u])
          flow.add(source, u, 1e290);
      }
      value += flow.run(source, sink, work);
      work -= 4 * n;
      double bytes = -room[k];
      for (int u = 0; u < n; ++u) {
        if (!before[k][u] || held[k][u])
          continue;
        bool exists = flow.reached(u), again = flow.reached(n + u);
        if (exists && !again) {
          bytes += double(d.nodes[u].bytes) / byteScale;
          if (coupled[k][u])
            gradientN[k][u] += 1;
        }
        if (exists && coupledNext && coupled[k + 1][u])
          gradientN[k + 1][u] -= 1;
      }
      gradientL[k] = bytes;
    }
    return value;
  }

  const Dag &d;
  Order order;
  int64_t budget;
  int64_t &work;
  double deadline;
  int n;
  double costScale, byteScale;
  detail::Flow flow;
  std::vector<std::vector<char>> before, held, demand, coupled;
  std::vector<double> room;
};

// More and more moments of a path, at which what is held is priced together.
class MomentSearch {
public:
  MomentSearch(const Dag &d, Order order, int64_t budget, double target, Windows &windows)
      : d(d), budget(budget), target(target), w(windows), path(detail::longestPath(d, order)), alone(path.size()) {}

  // The best prices found. Without moments: no moment says anything.
  Windows::Prices run() {
    for (size_t i : tightest(64))
      look(i);
    Windows::Prices best = *std::max_element(
        alone.begin(), alone.end(), [](const Windows::Prices &a, const Windows::Prices &b) { return a.bound < b.bound; });
    if (best.moments.empty())
      return best;
    // If no further one helps, two of them may.
    Windows::Prices reached = best;
    int without = 0;
    for (int moments = 2; moments <= 12 && !w.late() && best.bound < target && without < 3; ++moments) {
      reached = withOneMore(reached, size_t(20 + 4 * moments));
      if (reached.moments.empty())
        break;
      ++without;
      if (reached.bound > best.bound * (1 + 1e-5))
        best = reached, without = 0;
    }
    if (best.moments.size() > 1)
      w.climb(best, 1000, 30, target);
    return best;
  }

private:
  int64_t roomAt(size_t i) const {
    int64_t bytes = d.nodes[path[i]].needs();
    for (int u : d.nodes[path[i]].sources)
      bytes += d.nodes[u].bytes;
    return budget - bytes;
  }
  // Where the path is cut into cells, the moment of each that leaves the fewest bytes to others.
  std::vector<size_t> tightest(size_t cells) const {
    std::vector<size_t> list;
    for (size_t c = 0; c < cells; ++c) {
      size_t from = c * path.size() / cells, to = (c + 1) * path.size() / cells;
      if (from == to)
        continue;
      size_t pick = from;
      for (size_t i = from; i < to; ++i)
        if (roomAt(i) < roomAt(pick))
          pick = i;
      list.push_back(pick);
    }
    return list;
  }
  void look(size_t i) {
    if (alone[i].moments.empty() && !w.late())
      alone[i] = w.single(path[i]);
  }
  size_t position(int node) const { return size_t(std::find(path.begin(), path.end(), node) - path.begin()); }
  Windows::Prices with(const Windows::Prices &p, size_t i) const {
    Windows::Prices next = p;
    size_t at = 0;
    while (at < next.moments.size() && position(next.moments[at]) < i)
      ++at;
    next.moments.insert(next.moments.begin() + at, path[i]);
    next.lambda.insert(next.lambda.begin() + at, alone[i].lambda[0]);
    next.nu.insert(next.nu.begin() + at, std::vector<double>(size_t(d.size()), 0));
    next.bound = 0;
    return next;
  }
  // Another moment, where a short climb gets highest; then a long one. Without moments: there is no other.
  Windows::Prices withOneMore(const Windows::Prices &reached, size_t cells) {
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t i : tightest(cells)) {
      if (std::find(reached.moments.begin(), reached.moments.end(), path[i]) != reached.moments.end())
        continue;
      look(i);
      if (alone[i].moments.empty())
        break;
      Windows::Prices trial = with(reached, i);
      w.climb(trial, 25, 6, target);
      ranked.push_back({-trial.bound, i});
    }
    std::sort(ranked.begin(), ranked.end());
    Windows::Prices next;
    for (size_t r = 0; r < std::min<size_t>(3, ranked.size()) && !w.late(); ++r) {
      Windows::Prices trial = with(reached, ranked[r].second);
      w.climb(trial, 250, 15, target);
      if (next.moments.empty() || trial.bound > next.bound)
        next = trial;
    }
    return next;
  }

  const Dag &d;
  int64_t budget;
  double target;
  Windows &w;
  std::vector<int> path;
  std::vector<Windows::Prices> alone; // of each moment of the path, if it was looked at
};

} // namespace

double detail::windowBound(const Dag &d, Order order, int64_t budget, double target, int64_t &work, double deadline) {
  if (d.size() == 0 || budget < memoryBound(d))
    return 0;
  Windows w(d, order, budget, work, deadline);
  Windows::Prices best = MomentSearch(d, order, budget, target / w.scale(), w).run();
  return best.moments.empty() ? 0 : std::max(0.0, best.bound * (1 - 1e-9) - 1e-8) * w.scale();
}

} // namespace cinch::solve
