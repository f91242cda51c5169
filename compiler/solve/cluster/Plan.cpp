// Plan.cpp: the search over layouts.
#include "compiler/solve/cluster/Cluster.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cinch::solve {

namespace {

constexpr int kLargestMicrobatch = 64, kMostChunks = 8;

std::vector<int> divisors(int64_t n, int64_t most) {
  std::vector<int> list;
  for (int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0)
      list.push_back(int(d));
  return list;
}

// Bytes of the fullest device from the slots of the schedule, which are known before its table is.
int64_t leastBytes(const Priced &p) {
  int64_t most = 0;
  for (const StageCost &c : p.costs.stages)
    most = std::max(most, c.fixed + c.held + c.backwardWork);
  return most;
}

} // namespace

ClusterPlan plan(const GptModel &model, const Cluster &cluster, const ClusterRequest &request, int64_t actions) {
  std::vector<Schedule> schedules = request.schedules;
  if (schedules.empty())
    schedules = {Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZBH1, Schedule::ZBV, Schedule::GPipe};
  std::vector<Recompute> recomputes = request.recomputes;
  if (recomputes.empty())
    recomputes = {Recompute::None, Recompute::Selective, Recompute::Full};
  int devices = cluster.devices(), node = INT32_MAX;
  int64_t memory = INT64_MAX;
  for (const DeviceGroup &g : cluster.groups)
    memory = std::min(memory, g.memory), node = std::min(node, g.devices);

  struct Candidate {
    Layout layout;
    double work;
  };
  std::vector<Candidate> candidates;
  ClusterPlan result;
  result.leastBytes = INT64_MAX;
  auto free = [](int fixed, int value) { return fixed == 0 || fixed == value; };
  for (int T : divisors(node, node))
    for (int P : divisors(devices / T, model.layers)) {
      int D = devices / T / P;
      if (int64_t(P) * T * D != devices || model.batch % D || !free(request.stages, P) || !free(request.shards, T) ||
          !free(request.replicas, D))
        continue;
      for (int b : divisors(model.batch / D, request.microbatch ? request.microbatch : kLargestMicrobatch))
        for (Schedule schedule : schedules) {
          bool one = P == 1; // without stages all schedules are one after the other
          if (!free(request.microbatch, b) || (one && schedule != schedules[0]))
            continue;
          int first = schedule == Schedule::ZBV ? 2 : schedule == Schedule::Interleaved ? (request.chunks ? 1 : 2) : 1;
          int last = schedule == Schedule::Interleaved ? std::min<int64_t>(std::max(kMostChunks, request.chunks), model.layers / P)
                                                       : first;
          for (int v = first; v <= last; ++v)
            for (Recompute recompute : recomputes) {
              Layout layout = {P, T, D, b, schedule, v, recompute};
              if (!free(request.chunks, v) || !check(model, cluster, layout).empty())
                continue;
              ++result.candidates;
              Priced p = price(model, cluster, layout);
              if (leastBytes(p) > memory) {
                ++result.tooLarge, result.leastBytes = std::min(result.leastBytes, leastBytes(p));
                continue;
              }
              candidates.push_back({layout, p.work});
            }
        }
    }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) { return a.work < b.work; });

  using Grid = std::tuple<int, int, int>;
  auto gridOf = [](const Layout &l) { return Grid{l.stages, l.shards, l.replicas}; };
  std::map<Grid, Prediction> best;
  double fastest = std::numeric_limits<double>::infinity();
  // Simulates a candidate that fits, as long as there are actions left.
  auto consider = [&](const Candidate &c) {
    int64_t size = int64_t(c.layout.stages) * c.layout.chunks * (model.batch / c.layout.replicas / c.layout.microbatch) * 3;
    if (actions < size)
      return false;
    actions -= size;
    Prediction p = predict(model, cluster, c.layout);
    ++result.simulated;
    result.leastBytes = std::min(result.leastBytes, p.bytes);
    if (p.bytes > memory) {
      ++result.tooLarge;
      return true;
    }
    fastest = std::min(fastest, p.seconds);
    auto [at, isNew] = best.insert({gridOf(c.layout), p});
    if (!isNew && p.seconds < at->second.seconds)
      at->second = p;
    return true;
  };
  std::vector<Candidate> later;
  for (const Candidate &c : candidates) {
    if (c.work >= fastest)
      later.push_back(c);
    else if (!consider(c))
      result.proved = false;
  }
  // Nothing of the rest is faster. What each other grid can do, as far as the actions go.
  for (const Candidate &c : later)
    if (auto at = best.find(gridOf(c.layout)); at == best.end() || c.work < at->second.seconds)
      consider(c);
  for (auto &[grid, p] : best)
    result.ranked.push_back(p);
  std::stable_sort(result.ranked.begin(), result.ranked.end(),
                   [](const Prediction &a, const Prediction &b) { return a.seconds < b.seconds; });
  return result;
}

} // namespace cinch::solve
