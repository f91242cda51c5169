// Dag.cpp: checks, the exact simulator, the verifier and the polish that any schedule goes through.
#include "compiler/solve/dag/Dag.h"

#include <algorithm>
#include <cmath>
#include <queue>

namespace cinch::solve {

std::string check(const Dag &d, Order order) {
  int n = d.size();
  std::vector<int> waits(n, 0);
  double bytes = 0, cost = 0; // of all: below these limits no sum over a schedule overflows
  for (int v = 0; v < n; ++v) {
    const std::string who = "node " + std::to_string(d.nodes[v].id) + ": ";
    if (d.nodes[v].bytes < 0 || !(d.nodes[v].cost >= 0) || std::isinf(d.nodes[v].cost))
      return who + "cost and bytes must be finite and not negative";
    if ((bytes += double(d.nodes[v].bytes)) > double(int64_t(1) << 60) || (cost += d.nodes[v].cost) > 1e100)
      return who + "more than 2^60 bytes or a cost above 1e100 with the nodes before it";
    for (int u : d.nodes[v].sources) {
      if (u == v)
        return "node " + std::to_string(d.nodes[v].id) + " is its own source";
      if (order == Order::Given && u > v)
        return "node " + std::to_string(d.nodes[v].id) + " is listed before its source " +
               std::to_string(d.nodes[u].id) + ", so the given order cannot be kept";
      ++waits[v];
    }
  }
  std::vector<int> ready;
  for (int v = 0; v < n; ++v)
    if (!waits[v])
      ready.push_back(v);
  for (size_t i = 0; i < ready.size(); ++i)
    for (int w : d.nodes[ready[i]].users)
      if (!--waits[w])
        ready.push_back(w);
  if (int(ready.size()) != n)
    return "the graph has a cycle";
  return "";
}

Cost simulate(const Dag &d, const Runs &runs) {
  // Backward over the run: is the value wanted by a later read before it is computed again?
  int n = d.size();
  std::vector<char> wanted(n, 0), held(n, 0);
  std::vector<std::vector<int>> dies(runs.size());
  for (size_t t = runs.size(); t-- > 0;) {
    int v = runs[t];
    if (!wanted[v])
      dies[t].push_back(v);
    wanted[v] = 0;
    for (int u : d.nodes[v].sources)
      if (!wanted[u]) {
        wanted[u] = 1;
        dies[t].push_back(u);
      }
  }
  Cost c;
  int64_t live = 0;
  for (size_t t = 0; t < runs.size(); ++t) {
    int v = runs[t];
    for (int u : d.nodes[v].sources)
      if (!held[u]) {
        c.peak = -1;
        return c;
      }
    c.cost += d.nodes[v].cost;
    if (!held[v])
      live += d.nodes[v].bytes;
    held[v] = 1;
    c.peak = std::max(c.peak, live);
    for (int u : dies[t]) {
      held[u] = 0;
      live -= d.nodes[u].bytes;
    }
  }
  return c;
}

std::vector<int> withFrees(const Dag &d, const Runs &runs) {
  std::vector<char> wanted(d.size(), 0);
  std::vector<int> reversed;
  for (size_t t = runs.size(); t-- > 0;) {
    int v = runs[t];
    if (!wanted[v])
      reversed.push_back(~v);
    wanted[v] = 0;
    for (size_t i = d.nodes[v].sources.size(); i-- > 0;) {
      int u = d.nodes[v].sources[i];
      if (!wanted[u]) {
        wanted[u] = 1;
        reversed.push_back(~u);
      }
    }
    reversed.push_back(v);
  }
  return {reversed.rbegin(), reversed.rend()};
}

std::string verify(const Dag &d, Order order, int64_t budget, const std::vector<int> &schedule, const Cost &claimed) {
  int n = d.size(), next = 0;
  std::vector<char> held(n, 0), done(n, 0);
  int64_t live = 0, peak = 0;
  double cost = 0;
  auto who = [&](int v) { return "node " + std::to_string(d.nodes[v].id); };
  for (size_t t = 0; t < schedule.size(); ++t) {
    bool frees = schedule[t] < 0;
    int v = frees ? ~schedule[t] : schedule[t];
    std::string at = "step " + std::to_string(t) + ": ";
    if (v >= n)
      return at + "there is no node " + std::to_string(v);
    if (frees) {
      if (!held[v])
        return at + who(v) + " is freed but not held";
      held[v] = 0, live -= d.nodes[v].bytes;
      continue;
    }
    if (held[v])
      return at + who(v) + " is computed while it is held";
    for (int u : d.nodes[v].sources)
      if (!held[u])
        return at + who(v) + " needs " + who(u) + ", which is not held";
    held[v] = 1, live += d.nodes[v].bytes, cost += d.nodes[v].cost;
    peak = std::max(peak, live);
    if (live > budget)
      return at + who(v) + " needs " + std::to_string(live) + " bytes, the budget is " + std::to_string(budget);
    if (!done[v]) {
      if (order == Order::Given && v != next)
        return at + "expected the first computation of " + who(next) + ", got " + who(v);
      done[v] = 1, ++next;
    }
  }
  if (next != n)
    return std::to_string(n - next) + " nodes are never computed";
  if (peak != claimed.peak)
    return "expected a peak of " + std::to_string(claimed.peak) + " bytes, got " + std::to_string(peak);
  if (std::abs(cost - claimed.cost) > 1e-9 * std::max(1.0, std::abs(cost)))
    return "expected a cost of " + std::to_string(claimed.cost) + ", got " + std::to_string(cost);
  return "";
}

int64_t detail::memoryBound(const Dag &d) {
  int64_t bound = 0;
  for (const Dag::Node &node : d.nodes) {
    int64_t bytes = node.needs();
    for (int u : node.sources)
      bytes += d.nodes[u].bytes;
    bound = std::max(bound, bytes);
  }
  return bound;
}

double detail::totalCost(const Dag &d) {
  double cost = 0;
  for (const Dag::Node &node : d.nodes)
    cost += node.cost;
  return cost;
}

Runs detail::polish(const Dag &d, const Runs &given, int64_t budget, bool inOrder) {
  Runs runs = given;
  int n = d.size();
  // Lives of the values as the run stands: bytes in use at each step, and for each run that computes again, when the
  // copy before it died.
  for (bool again = true; again;) {
    again = false;
    // What nobody reads goes first.
    std::vector<char> wanted(n, 0);
    std::vector<int> left(n, 0);
    for (int v : runs)
      ++left[v];
    Runs kept;
    std::vector<char> any(n, 0);
    for (size_t t = runs.size(); t-- > 0;) {
      int v = runs[t];
      --left[v];
      if (!wanted[v] && (left[v] > 0 || (any[v] && !inOrder)))
        continue;
      any[v] = 1, wanted[v] = 0;
      for (int u : d.nodes[v].sources)
        wanted[u] = 1;
      kept.push_back(v);
    }
    std::reverse(kept.begin(), kept.end());
    runs = std::move(kept);

    int64_t live = 0;
    std::vector<int64_t> use(runs.size());
    std::vector<int> lastUse(runs.size(), 0), owner(n, -1), previous(runs.size(), -1);
    for (size_t t = 0; t < runs.size(); ++t) {
      int v = runs[t];
      for (int u : d.nodes[v].sources)
        lastUse[owner[u]] = int(t);
      previous[t] = owner[v], owner[v] = int(t), lastUse[t] = int(t);
    }
    std::vector<std::vector<int>> dies(runs.size());
    for (size_t t = 0; t < runs.size(); ++t)
      dies[lastUse[t]].push_back(int(t));
    for (size_t t = 0; t < runs.size(); ++t) {
      live += d.nodes[runs[t]].bytes;
      use[t] = live;
      for (int k : dies[t])
        live -= d.nodes[runs[k]].bytes;
    }
    std::vector<int> candidates;
    for (size_t t = 0; t < runs.size(); ++t)
      if (previous[t] >= 0)
        candidates.push_back(int(t));
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](int a, int b) { return d.nodes[runs[a]].cost > d.nodes[runs[b]].cost; });
    std::vector<char> dropped(runs.size(), 0);
    for (int t : candidates) {
      int64_t bytes = d.nodes[runs[t]].bytes;
      int from = lastUse[previous[t]];
      if (dropped[previous[t]])
        continue; // its life has changed in this round
      bool fits = true;
      for (int s = from + 1; s <= t - 1 && fits; ++s)
        fits = use[s] + (dropped[s] ? 0 : bytes) <= budget;
      if (!fits)
        continue;
      for (int s = from + 1; s < t; ++s)
        use[s] += bytes;
      dropped[t] = 1, again = true;
    }
    if (again) {
      Runs next;
      for (size_t t = 0; t < runs.size(); ++t)
        if (!dropped[t])
          next.push_back(runs[t]);
      if (Cost c = simulate(d, next); c.peak < 0 || c.peak > budget)
        break; // sources of a dropped run lived on for it alone: the estimate was off; keep what is proven
      runs = std::move(next);
    }
  }
  return runs;
}

std::vector<std::vector<int>> detail::orders(const Dag &d, Order order) {
  int n = d.size();
  std::vector<std::vector<int>> result;
  auto add = [&](std::vector<int> candidate) {
    if (std::find(result.begin(), result.end(), candidate) == result.end())
      result.push_back(std::move(candidate));
  };
  std::vector<int> listed(n);
  for (int v = 0; v < n; ++v)
    listed[v] = v;
  if (check(d, Order::Given).empty())
    add(listed);
  if (order == Order::Given)
    return result;
  // List scheduling: among the nodes whose sources exist, the one that leaves the fewest bytes; ties by what unlocks
  // most, by the list.
  for (int variant = 0; variant < 3; ++variant) {
    std::vector<int> waits(n, 0), uses(n, 0), sequence;
    for (int v = 0; v < n; ++v)
      waits[v] = int(d.nodes[v].sources.size()), uses[v] = int(d.nodes[v].users.size());
    std::vector<int> ready;
    for (int v = 0; v < n; ++v)
      if (!waits[v])
        ready.push_back(v);
    std::vector<int> age(n, 0);
    int now = 0;
    while (!ready.empty()) {
      size_t best = 0;
      double bestScore = 0;
      for (size_t i = 0; i < ready.size(); ++i) {
        int v = ready[i];
        double score = double(d.nodes[v].users.empty() ? 0 : d.nodes[v].bytes);
        for (int u : d.nodes[v].sources)
          if (uses[u] == 1)
            score -= double(d.nodes[u].bytes);
        if (variant == 1)
          score = -double(age[v]); // depth first: what became possible last
        if (variant == 2)
          score = score * 1e-3 - double(age[v]) * double(d.nodes[v].bytes ? 1 : 2);
        if (i == 0 || score < bestScore)
          best = i, bestScore = score;
      }
      int v = ready[best];
      ready.erase(ready.begin() + best);
      sequence.push_back(v);
      ++now;
      for (int u : d.nodes[v].sources)
        --uses[u];
      for (int w : d.nodes[v].users)
        if (!--waits[w]) {
          age[w] = now;
          ready.insert(std::lower_bound(ready.begin(), ready.end(), w), w);
        }
    }
    add(std::move(sequence));
  }
  return result;
}

std::vector<char> detail::everBeside(const Dag &d, Order order, int node, bool up) {
  std::vector<char> seen(d.size(), 0);
  if (order == Order::Given) {
    for (int v = 0; v < d.size(); ++v)
      seen[v] = up ? v < node : v > node;
    return seen;
  }
  std::vector<int> stack{node};
  auto visit = [&](int u) {
    if (!seen[u])
      seen[u] = 1, stack.push_back(u);
  };
  // Of the values that are computed with the node those before it or behind it, and what reads them.
  for (int u = up ? d.firstOfKernel(node) : node + 1; u < (up ? node : d.endOfKernel(node)); ++u)
    visit(u);
  while (!stack.empty()) {
    int v = stack.back();
    stack.pop_back();
    for (int u : up ? d.nodes[v].sources : d.nodes[v].users)
      for (int w = d.firstOfKernel(u); w < d.endOfKernel(u); ++w)
        visit(w);
    for (int u : up ? d.nodes[v].earlier : d.nodes[v].later)
      visit(u);
  }
  return seen;
}

} // namespace cinch::solve
