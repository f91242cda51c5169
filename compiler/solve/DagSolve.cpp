// DagSolve.cpp: the methods put together: exact where it is small or little of it is open, structure and local search
// for the schedule, bounds for the proof.
#include "compiler/solve/Dag.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/Remat.h"

#include <algorithm>

namespace cinch::solve {

// The graph along an order as one loop body: kernel t computes the t-th node. The turn is where most of the graph
// lies both before and behind: the node with the most ancestors times descendants, which in a training graph is the
// loss.
std::vector<Runs> detail::structuredRuns(const Dag &d, const std::vector<int> &order) {
  int n = d.size();
  std::vector<int> at(n);
  for (int t = 0; t < n; ++t)
    at[order[t]] = t;
  // Ancestors and descendants as bit sets, in blocks of 64 nodes to stay small.
  std::vector<double> above(n, 0), below(n, 0);
  std::vector<uint64_t> reach(n);
  for (int base = 0; base < n; base += 64) {
    for (int pass = 0; pass < 2; ++pass) {
      std::fill(reach.begin(), reach.end(), 0);
      for (int i = 0; i < n; ++i) {
        int v = order[pass ? n - 1 - i : i];
        uint64_t bits = 0;
        for (int u : pass ? d.nodes[v].users : d.nodes[v].sources)
          bits |= reach[u];
        (pass ? below : above)[v] += __builtin_popcountll(bits);
        if (at[v] >= base && at[v] < base + 64)
          bits |= uint64_t(1) << (at[v] - base);
        reach[v] = bits;
      }
    }
  }
  int turn = 0;
  for (int v = 0; v < n; ++v)
    if (above[v] * below[v] > above[turn] * below[turn])
      turn = v;
  StepGraph g;
  for (int t = 0; t < n; ++t) {
    const Dag::Node &node = d.nodes[order[t]];
    Buffer b;
    b.fixedBytes = node.bytes, b.producer = t;
    g.buffers.push_back(b);
    Kernel k;
    for (int u : node.sources)
      k.reads.push_back(at[u]);
    k.writes = {t};
    k.seconds = {node.cost, 0};
    k.backward = t > at[turn];
    g.kernels.push_back(k);
  }
  GraphIndex index(g);
  Sweep sweep(index);
  std::vector<Runs> result;
  for (RematCandidate &c : candidates(sweep, 1)) {
    // Candidates leave out first computations that nobody reads: here they stand in their place again.
    Runs run;
    int next = 0;
    for (int k : c.loop) {
      while (next < k)
        run.push_back(order[next++]);
      next = std::max(next, k + 1);
      run.push_back(order[k]);
    }
    result.push_back(std::move(run));
  }
  return result;
}

DagSolution solve(const Dag &d, Order order, int64_t budget, const DagLimits &limits) {
  DagSolution s;
  double base = detail::totalCost(d);
  s.memoryBound = detail::memoryBound(d);
  s.bound = base;
  double deadline = limits.seconds > 0 ? detail::secondsNow() + limits.seconds : 0;
  int64_t work = limits.work;
  int n = d.size();
  s.leastBudget = INT64_MAX;
  Runs best, least;
  Cost bestCost;
  auto consider = [&](const Runs &runs) {
    if (runs.empty() && n)
      return;
    Cost c = simulate(d, runs);
    if (c.peak < 0)
      return;
    if (c.peak < s.leastBudget)
      s.leastBudget = c.peak, least = runs;
    if (c.peak <= budget && (best.empty() || c.cost < bestCost.cost))
      best = runs, bestCost = c;
  };

  // Starts: every order as it is and under the structured policies.
  std::vector<std::vector<int>> sequences = detail::orders(d, order);
  struct Start {
    int sequence;
    Runs runs;
    Cost cost;
  };
  std::vector<Start> starts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::vector<Runs> list{sequences[i]};
    if (n > 16) // others are searched exactly
      for (Runs &runs : detail::structuredRuns(d, sequences[i]))
        list.push_back(std::move(runs));
    if (n > 16 && budget >= s.memoryBound) {
      int64_t given = std::min<int64_t>(work, limits.work / 16 / int64_t(sequences.size())), left = given;
      for (Runs &runs : detail::evictingRuns(d, sequences[i], budget, left))
        list.push_back(std::move(runs));
      work -= given - left;
    }
    for (Runs &runs : list) {
      consider(runs);
      Cost c = simulate(d, runs);
      starts.push_back({int(i), std::move(runs), c});
      work -= 4 * int64_t(starts.back().runs.size());
    }
  }
  // An exact search first where it is likely to end: it needs no start.
  bool exactDone = false;
  double proved = 0, cut = 0;
  auto exact = [&](int64_t share, double until) {
    int64_t given = std::min(work, share), left = given;
    double upper = best.empty() ? 1e300 : bestCost.cost - base;
    if (!best.empty() && upper <= 0) {
      exactDone = true;
      return;
    }
    detail::ExactResult r = detail::searchExact(d, order, budget, upper, left, until);
    work -= given - left;
    proved = std::max(proved, r.proved);
    exactDone = r.complete;
    if (r.found)
      consider(r.runs);
  };
  // The end of a phase that may take this share of the time limit, but leaves the last tenth of it.
  auto part = [&](double share) {
    return deadline > 0 ? std::min(detail::secondsNow() + share * limits.seconds, deadline - 0.1 * limits.seconds) : 0;
  };
  if (budget >= s.memoryBound) {
    if (n <= 16)
      exact(work, part(0.5));
    if (!exactDone) {
      // The bound needs no schedule, but a share of the time.
      int64_t given = std::min(work, limits.work / 6), left = given;
      cut = detail::cutBound(d, order, budget, left, part(0.15));
      work -= given - left;
      // The starts nearest to the budget, below it the cheap ones, above it the small ones.
      auto score = [&](const Start &x) {
        double over = double(std::max<int64_t>(0, x.cost.peak - budget)) / double(std::max<int64_t>(budget, 1));
        return x.cost.cost / std::max(base, 1e-300) + 4 * over;
      };
      std::stable_sort(starts.begin(), starts.end(),
                       [&](const Start &a, const Start &b) { return score(a) < score(b); });
      std::vector<std::vector<Runs>> chosen(sequences.size());
      for (const Start &x : starts)
        if (chosen[x.sequence].size() < 3)
          chosen[x.sequence].push_back(x.runs);
      // And the cheapest that fits as it is.
      std::vector<const Start *> fitting(sequences.size(), nullptr);
      for (const Start &x : starts)
        if (x.cost.peak <= budget && (!fitting[x.sequence] || x.cost.cost < fitting[x.sequence]->cost.cost))
          fitting[x.sequence] = &x;
      for (size_t i = 0; i < sequences.size(); ++i)
        if (fitting[i] && std::find(chosen[i].begin(), chosen[i].end(), fitting[i]->runs) == chosen[i].end())
          chosen[i].push_back(fitting[i]->runs);
      // A first look at every order, then the rest of the work on the best.
      std::vector<double> reached(sequences.size(), 1e300);
      auto look = [&](size_t i, int64_t share, double until, uint64_t seed) {
        int64_t given = std::min(work, share), left = given;
        Runs smallest;
        Runs runs = detail::searchRetention(d, sequences[i], budget, chosen[i], left, until, seed, smallest);
        work -= given - left;
        consider(smallest);
        if (!runs.empty()) {
          runs = detail::polish(d, runs, budget, true);
          consider(runs);
          reached[i] = std::min(reached[i], simulate(d, runs).cost);
          chosen[i].insert(chosen[i].begin(), runs);
          if (chosen[i].size() > 5)
            chosen[i].pop_back();
        } else if (!smallest.empty()) {
          reached[i] =
              std::min(reached[i], 1e200 * double(simulate(d, smallest).peak) / double(std::max<int64_t>(budget, 1)));
        }
      };
      if (sequences.size() > 1)
        for (size_t i = 0; i < sequences.size(); ++i)
          look(i, limits.work / 16, part(0.05), 1);
      exact(limits.work / 8, part(0.08));
      size_t top = size_t(std::min_element(reached.begin(), reached.end()) - reached.begin());
      if (!exactDone) {
        look(top, work / 2, part(0.3), 2);
        exact(limits.work / 8, part(0.08));
      }
      if (!exactDone && !best.empty() && base + cut < 0.99 * bestCost.cost) {
        given = std::min(work, limits.work / 4), left = given;
        cut = std::max(cut, detail::dualBound(d, order, budget, bestCost.cost - base, left, part(0.25)));
        work -= given - left;
      }
      if (!exactDone)
        look(top, work - limits.work / 8, part(1), 3);
    }
  }
  if (!best.empty())
    consider(detail::polish(d, best, budget, order == Order::Given));

  // The least budget: exactly where the graph is small, else a search for the smallest peak.
  if (n <= 14) {
    // Every query either finds a schedule, whose own peak is the new upper end, or proves that the budget is too small.
    int64_t low = s.memoryBound; // not yet known to be too small
    while (low < s.leastBudget) {
      int64_t middle = low + (s.leastBudget - low) / 2, left = INT64_MAX / 4;
      detail::ExactResult r = detail::searchExact(d, order, middle, 1e300, left, 0);
      if (r.found)
        consider(r.runs);
      else if (r.complete)
        low = middle + 1;
      else
        break;
    }
  } else if (s.leastBudget > s.memoryBound && !sequences.empty()) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      std::stable_sort(starts.begin(), starts.end(),
                       [](const Start &a, const Start &b) { return a.cost.peak < b.cost.peak; });
      std::vector<Runs> small;
      for (const Start &x : starts)
        if (x.sequence == int(i) && small.size() < 2)
          small.push_back(x.runs);
      int64_t left = std::max<int64_t>(limits.work / 16 / int64_t(sequences.size()), 1'000'000);
      Runs smallest;
      consider(detail::searchRetention(
          d, sequences[i], s.memoryBound, small, left,
          deadline > 0 ? std::min(detail::secondsNow() + 0.04 * limits.seconds, deadline) : 0, 7, smallest));
      consider(smallest);
    }
  }

  if (budget < s.memoryBound || (exactDone && best.empty()))
    s.status = DagSolution::Infeasible;
  else if (best.empty())
    s.status = DagSolution::Unknown;
  else
    s.status = DagSolution::Feasible;
  if (!best.empty()) {
    s.runs = best, s.cost = bestCost;
    if (exactDone)
      proved = bestCost.cost - base;
    else
      proved = std::max(proved, cut);
    s.bound = std::min(base + proved, bestCost.cost);
    if (exactDone || s.bound >= bestCost.cost * (1 - 1e-12))
      s.status = DagSolution::Optimal, s.bound = bestCost.cost;
  } else {
    s.bound = base + std::max({proved, cut, 0.0});
  }
  return s;
}

} // namespace cinch::solve
