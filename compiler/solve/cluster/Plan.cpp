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

bool allows(int fixed, int value) { return fixed == 0 || fixed == value; }

// What a device holds at most, and how many of them exchange quickly: of the smallest group.
struct Devices {
  int count, node = INT32_MAX;
  int64_t memory = INT64_MAX;
  explicit Devices(const Cluster &cluster) : count(cluster.devices()) {
    for (const DeviceGroup &g : cluster.groups)
      memory = std::min(memory, g.memory), node = std::min(node, g.devices);
  }
};

// First and last number of chunks a stage.
std::pair<int, int> chunksOf(Schedule schedule, const ClusterRequest &request, int64_t layersOfStage) {
  if (schedule == Schedule::ZBV)
    return {2, 2};
  if (schedule == Schedule::Interleaved)
    return {request.chunks ? 1 : 2, int(std::min<int64_t>(std::max(kMostChunks, request.chunks), layersOfStage))};
  return {1, 1};
}

// All layouts that the request allows.
std::vector<Layout> layoutsOf(const GptModel &model, const Cluster &cluster, const ClusterRequest &request) {
  std::vector<Schedule> schedules = request.schedules;
  if (schedules.empty())
    schedules = {Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZBH1, Schedule::ZBV, Schedule::GPipe};
  std::vector<Recompute> recomputes = request.recomputes;
  if (recomputes.empty())
    recomputes = {Recompute::None, Recompute::Selective, Recompute::Full};
  const Devices devices(cluster);
  std::vector<Layout> layouts;
  auto add = [&](Layout layout) { // with every schedule
    for (Schedule schedule : schedules) {
      if (layout.stages == 1 && schedule != schedules[0])
        continue; // without stages all schedules are one after the other
      auto [first, last] = chunksOf(schedule, request, model.layers / layout.stages);
      for (int chunks = first; chunks <= last; ++chunks)
        for (Recompute recompute : recomputes) {
          layout.schedule = schedule, layout.chunks = chunks, layout.recompute = recompute;
          if (allows(request.chunks, chunks) && check(model, cluster, layout).empty())
            layouts.push_back(layout);
        }
    }
  };
  for (int T : divisors(devices.node, devices.node))
    for (int P : divisors(devices.count / T, model.layers)) {
      int D = devices.count / T / P;
      if (int64_t(P) * T * D != devices.count || model.batch % D || !allows(request.stages, P) || !allows(request.shards, T) ||
          !allows(request.replicas, D))
        continue;
      for (int b : divisors(model.batch / D, request.microbatch ? request.microbatch : kLargestMicrobatch))
        if (allows(request.microbatch, b))
          add({P, T, D, b});
    }
  return layouts;
}

struct Candidate {
  Layout layout;
  double work;
};

// Simulates candidates that fit, as long as there are actions left, and keeps the best of each grid.
class Simulations {
public:
  using Grid = std::tuple<int, int, int>;

  Simulations(const GptModel &model, const Cluster &cluster, int64_t memory, int64_t actions, ClusterPlan &result)
      : model(model), cluster(cluster), memory(memory), actions(actions), result(result) {}

  // False if the actions did not go that far.
  bool consider(const Candidate &c) {
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
  }
  // Could it be faster than anything of its grid?
  bool helpsItsGrid(const Candidate &c) const {
    auto at = best.find(gridOf(c.layout));
    return at == best.end() || c.work < at->second.seconds;
  }

  double fastest = std::numeric_limits<double>::infinity();
  std::map<Grid, Prediction> best;

private:
  static Grid gridOf(const Layout &l) { return Grid{l.stages, l.shards, l.replicas}; }

  const GptModel &model;
  const Cluster &cluster;
  int64_t memory, actions;
  ClusterPlan &result;
};

} // namespace

ClusterPlan plan(const GptModel &model, const Cluster &cluster, const ClusterRequest &request, int64_t actions) {
  const int64_t memory = Devices(cluster).memory;
  std::vector<Candidate> candidates;
  ClusterPlan result;
  result.leastBytes = INT64_MAX;
  for (const Layout &layout : layoutsOf(model, cluster, request)) {
    ++result.candidates;
    Priced p = price(model, cluster, layout);
    if (leastBytes(p) > memory)
      ++result.tooLarge, result.leastBytes = std::min(result.leastBytes, leastBytes(p));
    else
      candidates.push_back({layout, p.work});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) { return a.work < b.work; });

  Simulations simulations(model, cluster, memory, actions, result);
  std::vector<Candidate> later;
  for (const Candidate &c : candidates) {
    if (c.work >= simulations.fastest)
      later.push_back(c);
    else if (!simulations.consider(c))
      result.proved = false;
  }
  // Nothing of the rest is faster. What each other grid can do, as far as the actions go.
  for (const Candidate &c : later)
    if (simulations.helpsItsGrid(c))
      simulations.consider(c);
  for (auto &[grid, p] : simulations.best)
    result.ranked.push_back(p);
  std::stable_sort(result.ranked.begin(), result.ranked.end(),
                   [](const Prediction &a, const Prediction &b) { return a.seconds < b.seconds; });
  return result;
}

} // namespace cinch::solve
