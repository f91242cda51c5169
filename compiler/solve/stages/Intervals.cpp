// Intervals.cpp: fronts of choices, each from the interval one segment shorter.
#include "compiler/solve/stages/Intervals.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace cinch::solve::detail {

namespace {

constexpr size_t kLongestFront = 4096;

} // namespace

Intervals::Intervals(const SplitProblem &problem, const ScheduleTable &table, int64_t most) : problem(problem), table(table) {
  int n = problem.size();
  addUp();
  findReadAndShared();
  fronts.resize(size_t(n + 1) * (n + 1)), origins.resize(fronts.size()), thinned.assign(fronts.size(), false);
  for (int i = 0; i < n; ++i) {
    fronts[key(i, i)] = {Choice()}, origins[key(i, i)] = {{-1, -1}};
    for (int j = i + 1; j <= n; ++j)
      extend(i, j, most);
  }
}

// What is sent over each border, and sums over the segments before it.
void Intervals::addUp() {
  int n = problem.size();
  sent.assign(n + 1, 0), returned.assign(n + 1, -1);
  for (const SegmentValue &v : problem.values) {
    int last = *std::max_element(v.targets.begin(), v.targets.end());
    for (int i = v.source + 1; i <= last; ++i) {
      sent[i] += v.bytes;
      if (v.gradientBytes >= 0)
        returned[i] = std::max<int64_t>(returned[i], 0) + v.gradientBytes;
    }
  }
  fixedUpTo.assign(n + 1, 0), parametersUpTo = lateUpTo = fixedUpTo;
  forwardUpTo.assign(n + 1, 0), inputUpTo = weightUpTo = updateUpTo = forwardUpTo;
  for (int i = 0; i < n; ++i) {
    const Segment &s = problem.segments[i];
    fixedUpTo[i + 1] = fixedUpTo[i] + s.fixed, parametersUpTo[i + 1] = parametersUpTo[i] + s.parameters;
    lateUpTo[i + 1] = lateUpTo[i] + s.late;
    forwardUpTo[i + 1] = forwardUpTo[i] + s.forward, inputUpTo[i + 1] = inputUpTo[i] + s.input;
    weightUpTo[i + 1] = weightUpTo[i] + s.weight, updateUpTo[i + 1] = updateUpTo[i] + s.update;
  }
}

void Intervals::findReadAndShared() {
  int n = problem.size();
  read.assign(size_t(n + 1) * (n + 1), 0), shared = read;
  for (int i = 0; i < n; ++i) {
    // What an interval from i on reads or shares, it does from the first such segment on.
    auto from = [&](std::vector<int64_t> &table, const std::vector<int> &segments, int64_t bytes) {
      int first = n;
      for (int k : segments)
        if (k >= i)
          first = std::min(first, k);
      if (first < n)
        table[key(i, first + 1)] += bytes;
    };
    for (const SegmentValue &v : problem.values)
      if (v.source < i)
        from(read, v.targets, v.bytes);
    for (const SplitProblem::Shared &s : problem.shared)
      from(shared, s.segments, s.bytes);
    for (int j = i + 2; j <= n; ++j)
      read[key(i, j)] += read[key(i, j - 1)], shared[key(i, j)] += shared[key(i, j - 1)];
  }
}

// The choices of (i, j): those of (i, j - 1) with every way of segment j - 1.
void Intervals::extend(int i, int j, int64_t most) {
  using Origin = std::pair<int, int>;
  const std::vector<Choice> &shorter = fronts[key(i, j - 1)];
  std::vector<std::pair<Choice, Origin>> all;
  for (size_t c = 0; c < shorter.size(); ++c)
    for (size_t w = 0; w < problem.segments[j - 1].ways.size(); ++w) {
      const Segment::Way &way = problem.segments[j - 1].ways[w];
      Choice next = {shorter[c].seconds + way.seconds, shorter[c].held + way.held, std::max(shorter[c].work, way.work)};
      if (next.held + next.work <= most)
        all.push_back({next, {int(c), int(w)}});
    }
  std::sort(all.begin(), all.end(), [](auto &a, auto &b) {
    return std::tie(a.first.seconds, a.first.held, a.first.work, a.second) <
           std::tie(b.first.seconds, b.first.held, b.first.work, b.second);
  });
  std::vector<Choice> &front = fronts[key(i, j)];
  std::vector<Origin> &origin = origins[key(i, j)];
  // Of the choices so far, those undominated in (held, work) alone: what comes later takes no fewer seconds.
  std::vector<Choice> corners;
  for (auto &[choice, from] : all) {
    bool worse = false;
    for (const Choice &corner : corners)
      worse |= corner.held <= choice.held && corner.work <= choice.work;
    if (worse)
      continue;
    corners.erase(std::remove_if(corners.begin(), corners.end(),
                                 [&](const Choice &c) { return choice.held <= c.held && choice.work <= c.work; }),
                  corners.end());
    corners.push_back(choice);
    front.push_back(choice), origin.push_back(from);
  }
  thinned[key(i, j)] = thinned[key(i, j - 1)];
  if (front.size() <= kLongestFront)
    return;
  thinned[key(i, j)] = true, whole = false;
  for (size_t c = 0; c < kLongestFront; ++c) { // both ends stay
    size_t at = c * (front.size() - 1) / (kLongestFront - 1);
    front[c] = front[at], origin[c] = origin[at];
  }
  front.resize(kLongestFront), origin.resize(kLongestFront);
}

StageCost Intervals::plain(int i, int j, int stage) const {
  StageCost c;
  c.forward = forwardUpTo[j] - forwardUpTo[i], c.input = inputUpTo[j] - inputUpTo[i];
  c.weight = weightUpTo[j] - weightUpTo[i], c.update = updateUpTo[j] - updateUpTo[i];
  int64_t copies = table.versions - 1 + table.accumulators - 1;
  c.fixed = fixedUpTo[j] - fixedUpTo[i] + copies * (parametersUpTo[j] - parametersUpTo[i]);
  c.fixed += shared[key(i, j)];
  c.held = read[key(i, j)];
  if (table.slots[stage] < table.microbatchesOfAllSteps())
    c.fixed += c.held;
  c.fixed += sent[j] + std::max<int64_t>(returned[j], 0) + std::max<int64_t>(returned[i], 0);
  c.late = lateUpTo[j] - lateUpTo[i];
  return c;
}

bool Intervals::gradientsReturn() const {
  return std::all_of(returned.begin() + 1, returned.end() - 1, [](int64_t bytes) { return bytes >= 0; });
}

int Intervals::fastest(int i, int j, int stage, int64_t room, int64_t work) const {
  const std::vector<Choice> &front = choices(i, j);
  for (size_t c = 0; c < front.size() && allows(i, j, stage); ++c)
    if (heldBytes(front[c], stage) + std::max(work, front[c].work) <= room)
      return int(c);
  return -1;
}

std::vector<int> Intervals::waysOf(int i, int j, int choice) const {
  std::vector<int> ways(j - i);
  for (; j > i; --j) {
    auto [shorter, way] = origins[key(i, j)][choice];
    ways[j - 1 - i] = way, choice = shorter;
  }
  return ways;
}

std::vector<Choice> Intervals::smallest(int i, int j) const {
  std::set<int64_t> limits;
  for (int k = i; k < j; ++k)
    for (const Segment::Way &way : problem.segments[k].ways)
      limits.insert(way.work);
  std::vector<Choice> list;
  for (int64_t limit : limits) {
    Choice c;
    for (int k = i; k < j && c.held >= 0; ++k) {
      const Segment::Way *least = nullptr;
      for (const Segment::Way &way : problem.segments[k].ways)
        if (way.work <= limit && (!least || way.held < least->held))
          least = &way;
      c.held = least ? c.held + least->held : -1;
    }
    c.work = limit;
    if (c.held >= 0 && (list.empty() || c.held < list.back().held))
      list.push_back(c);
  }
  return list;
}

} // namespace cinch::solve::detail
