// RematSearch.cpp: the schedules among which `auto` chooses: named strategies, nested segments, and for segments of
// several lengths two greedy trajectories between "keep only what crosses the cuts" and "keep everything that is
// needed": dropping first what costs least time a byte, and keeping first what saves most time a byte.
#include "compiler/solve/Remat.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>

namespace cinch::solve {
namespace {

// At how many points the families of schedules are tried: local search (Refine.h) closes what gaps that leaves.
struct CandidatePoints {
  size_t longLoop = 1500; // kernels: longer loops take long to build, so every second point is left out
  int64_t runs = 16, runsBeside = 1024; // most runs, in times of the loop: treeverse is among the candidates and stays far below
  int64_t eachUntil = 24; // every:N for each N up to here, then in steps of an eighth: neighbours hardly differ
  int units = 32;         // a trajectory over single units, whose segments are the finest
  int segments = 8;       // over longer segments: there are several lengths of them
  int nested = 4;         // over segments with units inside
  int halves = 16;        // over half units
  int unitsHalved = 8;
  int64_t longestInRoots = 2; // segments longer than so many roots of the number of units cost more memory and more time
};
constexpr CandidatePoints kPoints;

// One set of level-0 cuts, and what recomputing inside its segments costs for a set of kept values. What crosses a
// cut is kept, so that segments do not affect each other.
class Segments {
public:
  Segments(const Sweep &sweep, int64_t microbatch, const std::vector<int> &cuts)
      : sweep(sweep), g(sweep.index.graph), b(microbatch), segmentOf(sweep.turn) {
    int next = 0;
    size_t at = 0;
    for (int p = 0; p < sweep.turn; ++p) {
      while (at < cuts.size() && cuts[at] <= p)
        ++at, ++next;
      segmentOf[p] = next;
    }
    members.resize(next + 1);
    crosses.assign(g.buffers.size(), false);
    for (size_t v = 0; v < g.buffers.size(); ++v) {
      if (!sweep.forward[v])
        continue;
      int from = sweep.position[g.buffers[v].producer], to = std::min(sweep.lastForward[v], sweep.turn - 1);
      crosses[v] = segmentOf[to] != segmentOf[from] || !sweep.index.mayRecompute[g.buffers[v].producer];
      members[segmentOf[from]].push_back(int(v));
    }
    mark.assign(g.kernels.size(), 0);
  }

  int segment(int v) const { return segmentOf[sweep.position[g.buffers[v].producer]]; }

  // Seconds of the kernels of segment `s` that run again if `keep` (and what crosses) is kept.
  double cost(int s, const std::vector<bool> &keep) {
    double seconds = 0;
    stack.clear(), touched.clear();
    auto visit = [&](int v) {
      if (crosses[v] || keep[v])
        return;
      int k = g.buffers[v].producer;
      if (mark[k])
        return;
      mark[k] = 1;
      touched.push_back(k), stack.push_back(k);
    };
    for (int v : members[s])
      if (sweep.saved[v])
        visit(v);
    while (!stack.empty()) {
      int k = stack.back();
      stack.pop_back();
      seconds += g.kernels[k].seconds.at(b);
      for (int r : g.kernels[k].reads)
        if (sweep.forward[r])
          visit(r);
    }
    for (int k : touched)
      mark[k] = 0;
    return seconds;
  }

  const Sweep &sweep;
  const StepGraph &g;
  int64_t b;
  std::vector<int> segmentOf;
  std::vector<std::vector<int>> members; // values by segment
  std::vector<bool> crosses;

private:
  std::vector<char> mark;
  std::vector<int> stack, touched;
};

// Order in which values leave (drop) or enter (keep) the kept set, best first. Lazy greedy: a score is computed again
// when it comes to the top and only then acted on.
std::vector<int> trajectory(Segments &segments, bool dropping) {
  const StepGraph &g = segments.g;
  std::vector<bool> keep(g.buffers.size(), false);
  for (size_t v = 0; v < g.buffers.size(); ++v)
    keep[v] = dropping && segments.sweep.saved[v];
  std::vector<double> current(segments.members.size());
  std::vector<int> version(segments.members.size(), 0);
  for (size_t s = 0; s < current.size(); ++s)
    current[s] = segments.cost(int(s), keep);

  struct Entry {
    double score;
    int value, version;
    bool operator<(const Entry &o) const { return score != o.score ? score < o.score : value > o.value; }
  };
  auto scoreOf = [&](int v) {
    int s = segments.segment(v);
    keep[v] = !keep[v];
    double changed = segments.cost(s, keep);
    keep[v] = !keep[v];
    double bytes = double(std::max<int64_t>(64, g.buffers[v].bytes(segments.b)));
    // Dropping: bytes freed a second. Keeping: seconds saved a byte.
    return dropping ? bytes / (changed - current[s] + 1e-12) : (current[s] - changed) / bytes;
  };
  std::priority_queue<Entry> queue;
  for (size_t v = 0; v < g.buffers.size(); ++v)
    if (segments.sweep.forward[v] && !segments.crosses[v] && keep[v] == dropping)
      queue.push({scoreOf(int(v)), int(v), 0});
  std::vector<int> order;
  while (!queue.empty()) {
    Entry top = queue.top();
    queue.pop();
    int s = segments.segment(top.value);
    if (top.version != version[s]) {
      queue.push({scoreOf(top.value), top.value, version[s]});
      continue;
    }
    if (!dropping && top.score <= 0)
      continue;
    keep[top.value] = !dropping;
    current[s] = segments.cost(s, keep);
    ++version[s];
    order.push_back(top.value);
  }
  return order;
}

class Collector {
public:
  Collector(const Sweep &sweep, int64_t microbatch) : sweep(sweep), b(microbatch) {
    limit = kPoints.runs * int64_t(sweep.index.loop.size()) + kPoints.runsBeside;
  }

  void add(const std::string &name, std::vector<int> loop, bool named = false) {
    if (!loop.empty() && seen.insert(loop).second)
      list.push_back({name, std::move(loop), named});
  }
  void addPolicy(const std::string &name, Policy policy) {
    policy.runLimit = limit;
    add(name, expand(sweep, policy));
    policy.lastAgain = true;
    add(name, expand(sweep, policy));
  }

  // Both trajectories over these cuts, `points` schedules each.
  void addTrajectories(const std::string &name, const std::vector<int> &cuts, const std::vector<int> &inner,
                       int points) {
    Segments segments(sweep, b, cuts);
    const StepGraph &g = sweep.index.graph;
    Policy base;
    for (int c : cuts)
      base.cuts.push_back({c, 0});
    for (int c : inner)
      base.cuts.push_back({c, 1});
    for (int dropping = 0; dropping < 2; ++dropping) {
      std::vector<int> order = trajectory(segments, dropping);
      double total = 0, sum = 0;
      for (int v : order)
        total += double(g.buffers[v].bytes(b));
      Policy policy = base;
      policy.keep.assign(g.buffers.size(), false);
      for (size_t v = 0; v < g.buffers.size(); ++v)
        policy.keep[v] = dropping && sweep.saved[v];
      int next = 0;
      for (size_t i = 0; i <= order.size(); ++i) {
        while (next <= points && sum >= total * next / points) {
          addPolicy(name + (dropping ? ", drops " : ", keeps ") + std::to_string(i), policy);
          while (next <= points && sum >= total * next / points)
            ++next;
        }
        if (i < order.size()) {
          policy.keep[order[i]] = !dropping;
          sum += double(g.buffers[order[i]].bytes(b));
        }
      }
      addPolicy(name + (dropping ? ", drops all" : ", keeps all"), policy);
    }
  }

  const Sweep &sweep;
  int64_t b, limit;
  std::vector<RematCandidate> list;
  std::set<std::vector<int>> seen;
};

// The units, and inside each the cut near its middle that the fewest bytes cross.
std::vector<int> halfUnits(const Sweep &sweep, int64_t b) {
  std::vector<int> cuts;
  int from = 0;
  for (size_t i = 0; i <= sweep.units.size(); ++i) {
    int to = i < sweep.units.size() ? sweep.units[i] : sweep.turn;
    int best = -1;
    int64_t bestBytes = INT64_MAX;
    for (int c = from + 1 + (to - from) / 4; c < to - (to - from) / 4; ++c) {
      int64_t bytes = sweep.crossingBytes(c, b);
      if (bytes < bestBytes)
        best = c, bestBytes = bytes;
    }
    if (best > 0)
      cuts.push_back(best);
    if (i < sweep.units.size())
      cuts.push_back(to);
    from = to;
  }
  return cuts;
}

} // namespace

std::vector<RematCandidate> candidates(const Sweep &sweep, int64_t microbatch) {
  Collector out(sweep, microbatch);
  for (Strategy::Kind kind : {Strategy::None, Strategy::Marked, Strategy::Cheap, Strategy::Sqrt, Strategy::All})
    out.add(str({kind, 0}), schedule(sweep, {kind, 0}), true);

  // Without a forward sweep, or if the backward sweep reads nothing of it, there is nothing to decide.
  if (std::find(sweep.saved.begin(), sweep.saved.end(), true) == sweep.saved.end())
    return std::move(out.list);

  std::vector<int> fine = sweep.units;
  int64_t units = int64_t(fine.size()) + 1;
  int coarse = sweep.index.loop.size() > kPoints.longLoop ? 2 : 1;
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n < units; n = std::max(n + 1, n * (coarse > 1 ? 2 : 4) / (coarse > 1 ? 1 : 3)))
    lengths.push_back(n);
  for (int64_t n = 1; n < units; n = n < kPoints.eachUntil ? n + 1 : n * 9 / 8)
    out.add("every:" + std::to_string(n), schedule(sweep, {Strategy::Every, n}), true);
  int64_t root = std::max<int64_t>(1, int64_t(std::ceil(std::sqrt(double(units)))));
  for (int64_t n : lengths) {
    std::vector<int> cuts;
    for (size_t i = size_t(n) - 1; i < fine.size(); i += size_t(n))
      cuts.push_back(fine[i]);
    std::string name = "segments of " + std::to_string(n);
    if (n <= kPoints.longestInRoots * root)
      out.addTrajectories(name, cuts, {}, (n == 1 ? kPoints.units : kPoints.segments) / coarse);
    if (n > 1)
      out.addTrajectories(name + " nested", cuts, fine, kPoints.nested / coarse);
  }
  if (lengths.empty())
    out.addTrajectories("one segment", {}, {}, kPoints.units);
  std::vector<int> halves = halfUnits(sweep, microbatch);
  out.addTrajectories("half segments", halves, {}, kPoints.halves / coarse);
  out.addTrajectories("segments, halved", fine, halves, kPoints.unitsHalved / coarse);
  for (int64_t n = 2; n < units; n *= 2) {
    Policy policy; // three levels: segments, units, halves
    for (size_t i = size_t(n) - 1; i < fine.size(); i += size_t(n))
      policy.cuts.push_back({fine[i], 0});
    for (int c : fine)
      policy.cuts.push_back({c, 1});
    for (int c : halves)
      policy.cuts.push_back({c, 2});
    out.addPolicy("three levels, " + std::to_string(n), policy);
  }
  return std::move(out.list);
}

} // namespace cinch::solve
