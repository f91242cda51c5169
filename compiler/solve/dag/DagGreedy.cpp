// DagGreedy.cpp: starts for graphs without cut vertices: the nodes are computed in an order, and when the next one does
// not fit, the held value is let go that is cheap to get back for the bytes and the time it stands in the way. A
// missing source is computed again on demand, and what it misses in turn (the rule of Dynamic Tensor
// Rematerialization, with the future known). Several weights of cost, bytes and time, then random ones.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/Random.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {
namespace {

struct Weights {
  double cost, bytes, time; // exponents
  bool pinFirst, dearFirst; // hold what a node finds held while the rest is computed; dearest missing source first
};

class Evicting {
public:
  Evicting(const Dag &d, const std::vector<int> &order, int64_t budget, int64_t &work)
      : d(d), order(order), budget(budget), work(work), n(d.size()) {
    at.resize(n), uses.resize(n);
    for (int t = 0; t < n; ++t)
      at[order[t]] = t;
    for (int v = 0; v < n; ++v) {
      for (int w : d.nodes[v].users)
        uses[v].push_back(at[w]);
      std::sort(uses[v].begin(), uses[v].end());
    }
  }

  // False if the nodes do not fit this way, or cost more extra than `most`. Each value is as dear as `factor` times
  // what the rule says.
  bool run(const Weights &weights, const std::vector<double> &factors, double most) {
    w = weights, factor = factors, mostExtra = most, extra = 0;
    held.assign(n, 0), done.assign(n, 0), pinned.assign(n, 0), nextUse.assign(n, 0);
    need.assign(n, 0), again.assign(n, 0);
    live = 0, runs.clear();
    for (now = 0; now < n; ++now)
      if (!compute(order[now], 0))
        return false;
    return true;
  }

  Runs runs;
  double extra = 0; // what computing again costs

private:
  bool compute(int v, int depth) {
    if (depth > 4 * n || work <= 0 || extra > mostExtra || int64_t(runs.size()) > 40 * int64_t(n) + 1000)
      return false;
    const std::vector<int> &sources = d.nodes[v].sources;
    std::vector<int> mine;
    auto pin = [&](int u) { ++pinned[u], mine.push_back(u); };
    if (w.pinFirst)
      for (int u : sources)
        if (held[u])
          pin(u);
    bool fits = true;
    for (bool missing = true; missing && fits;) {
      // The dearest missing source first, since the others need not be there meanwhile; or the last in the order.
      int pick = -1;
      double most = -1;
      missing = false;
      for (int u : sources)
        if (!held[u]) {
          double key = w.dearFirst ? coneCost(u) : double(at[u]);
          if (key > most)
            most = key, pick = u;
        }
      if (pick >= 0) {
        missing = true;
        fits = compute(pick, depth + 1);
        if (fits)
          pin(pick);
      }
    }
    if (fits && !w.pinFirst)
      for (int u : sources)
        if (std::find(mine.begin(), mine.end(), u) == mine.end())
          pin(u);
    fits = fits && makeRoom(d.nodes[v].bytes);
    if (fits) {
      held[v] = 1, live += d.nodes[v].bytes;
      extra += done[v] ? d.nodes[v].cost : 0;
      done[v] = 1;
      runs.push_back(v);
      --work;
    }
    for (int u : mine)
      --pinned[u];
    return fits;
  }

  double coneCost(int v) {
    std::vector<int> list{v};
    std::vector<char> seen(n, 0);
    seen[v] = 1;
    double cost = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      cost += d.nodes[list[i]].cost;
      for (int u : d.nodes[list[i]].sources)
        if (!held[u] && !seen[u])
          seen[u] = 1, list.push_back(u);
    }
    work -= int64_t(list.size()) + n / 16;
    return cost;
  }

  bool makeRoom(int64_t bytes) {
    if (live + bytes <= budget)
      return true;
    // When is each value wanted again, directly or to compute what is missing; what does it cost to get it back.
    for (int t = n - 1; t >= 0; --t) {
      int v = order[t], &k = nextUse[v];
      if (!done[v])
        continue;
      while (k < int(uses[v].size()) && uses[v][k] < now)
        ++k;
      double when = k < int(uses[v].size()) ? uses[v][k] : 1e30;
      for (int u : d.nodes[v].users)
        if (done[u] && !held[u])
          when = std::min(when, need[u]);
      need[v] = when;
    }
    for (int t = 0; t < n; ++t) {
      int v = order[t];
      double cost = d.nodes[v].cost;
      for (int u : d.nodes[v].sources)
        if (!held[u])
          cost += again[u];
      again[v] = std::min(cost, 1e200);
    }
    work -= 4 * n;
    std::vector<std::pair<double, int>> candidates;
    for (int v = 0; v < n; ++v) {
      if (!held[v] || pinned[v])
        continue;
      double score = need[v] >= 1e30 ? -1
                                     : factor[v] * std::pow(again[v] + 1e-30, w.cost) /
                                           std::pow(double(d.nodes[v].bytes) + 1, w.bytes) /
                                           std::pow(need[v] - now + 1, w.time);
      candidates.push_back({score, v});
    }
    std::sort(candidates.begin(), candidates.end());
    std::vector<int> gone;
    for (auto &[score, v] : candidates) {
      if (live + bytes <= budget && score >= 0)
        break;
      held[v] = 0, live -= d.nodes[v].bytes;
      gone.push_back(v);
    }
    // The last ones let go may have made the first ones' going needless.
    for (int v : gone)
      if (need[v] < 1e30 && live + bytes + d.nodes[v].bytes <= budget)
        held[v] = 1, live += d.nodes[v].bytes;
    return live + bytes <= budget;
  }

  const Dag &d;
  const std::vector<int> &order;
  int64_t budget, live = 0;
  int64_t &work;
  int n, now = 0;
  Weights w{};
  std::vector<int> at, nextUse, pinned;
  std::vector<std::vector<int>> uses;
  std::vector<char> held, done;
  std::vector<double> need, again, factor;
  double mostExtra = 0;
};

} // namespace

// How much cost, bytes and the time to the next use count when room is made: no rule is best on all graphs, and each is tried.
constexpr double kExponents[][3] = {{1, 1, 1},   {1, 1, 0.5}, {0.5, 1, 1},  {0.5, 1, 0.5}, {1, 0.5, 1},
                                    {0, 1, 1},   {0, 0, 1},   {1, 1, 0},    {0.3, 0.3, 1}, {1, 1, 2},
                                    {0.5, 0, 1}, {0.2, 1, 2}, {0.5, 0.5, 2}};
constexpr size_t kMostFound = 6; // schedules that are kept and varied
constexpr double kWidest = 6;    // a changed value becomes up to e^3 times as dear, or as cheap

std::vector<Runs> detail::evictingRuns(const Dag &d, const std::vector<int> &order, int64_t budget, int64_t &work,
                                       double deadline) {
  int n = d.size();
  Evicting evicting(d, order, budget, work);
  // The best few, the cheapest first.
  struct Found {
    double extra;
    Weights weights;
    std::vector<double> factors;
    Runs runs;
  };
  std::vector<Found> found;
  auto note = [&](const Weights &weights, const std::vector<double> &factors) {
    Found f{evicting.extra, weights, factors, evicting.runs};
    auto at = std::upper_bound(found.begin(), found.end(), f,
                               [](const Found &a, const Found &b) { return a.extra < b.extra; });
    if (at != found.begin() && std::prev(at)->runs == f.runs)
      return;
    found.insert(at, std::move(f));
    if (found.size() > kMostFound)
      found.pop_back();
  };
  auto late = [&] { return work <= 0 || (deadline > 0 && detail::secondsNow() > deadline); };
  std::vector<double> factors(n, 1);
  for (const double *e : kExponents)
    for (int flags = 0; flags < 4 && !late(); ++flags) {
      Weights weights{e[0], e[1], e[2], (flags & 1) != 0, (flags & 2) != 0};
      if (evicting.run(weights, factors, found.size() < kMostFound ? 1e300 : found.back().extra))
        note(weights, factors);
    }
  // Then the factors of a few values at a time are changed, in the best of them and in the others by turns.
  Random rng = Random::seeded(0);
  for (int round = 0; !found.empty() && !late(); ++round) {
    const Found &from = found[round % 2 ? 0 : size_t(rng.unit() * double(found.size()))];
    std::vector<double> trial = from.factors;
    Weights weights = from.weights;
    int changes = 1 << int(rng.unit() * 6);
    for (int k = 0; k < changes; ++k)
      trial[int(rng.unit() * n)] *= std::exp(kWidest * (rng.unit() - 0.5));
    if (evicting.run(weights, trial, found.back().extra))
      note(weights, trial);
  }
  std::vector<Runs> result;
  for (Found &f : found)
    result.push_back(std::move(f.runs));
  return result;
}

} // namespace cinch::solve
