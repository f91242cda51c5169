// SplitBound.cpp: dynamic programs over (stage, first segment).
#include "compiler/solve/stages/SplitBound.h"

#include "compiler/solve/stages/PairBound.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve::detail {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMostBytes = int64_t(1) << 52; // more than `check` lets a problem have

SuffixBound::SuffixBound(const SplitProblem &problem, const ScheduleTable &table, const Intervals &intervals)
    : segments(problem.size()) {
  int stages = table.stages(), n = problem.size(), m = table.microbatchesOfAllSteps();
  bool split = splitsBackward(problem.request.schedule);
  through.assign(size_t(stages + 1) * (n + 1), kInfinity), apart = through;
  cuts.assign(through.size(), n);
  through[key(stages, n)] = apart[key(stages, n)] = 0;
  // Where no gradient goes back over some cut, a stage's last gradient need not come after those of the stages behind it.
  returns = intervals.gradientsReturn();
  for (int s = stages - 1; s >= 0; --s)
    for (int i = n - (stages - s); i >= s; --i)
      for (int j = i + 1; j <= n - (stages - s - 1); ++j) {
        if (through[key(s + 1, j)] == kInfinity || (s == 0 && i > 0))
          continue;
        StageCost c = intervals.plain(i, j, s);
        int64_t room = problem.budgets[table.workerOf[s]] - c.fixed - c.held * table.slots[s] - c.late * table.lateSlots[s];
        int choice = intervals.fastest(i, j, s, room);
        if (choice < 0)
          continue;
        double input = c.input + intervals.choices(i, j)[choice].seconds;
        double hop = j < n ? problem.latency + double(intervals.bytesAt(j)) / problem.bandwidth : 0;
        double back = split ? input : input + c.weight, after = 0;
        if (returns)
          after = back + (j < n ? problem.latency + double(intervals.gradientBytesAt(j)) / problem.bandwidth : 0);
        double a = std::max(m * (c.forward + back), c.forward + hop + after + through[key(s + 1, j)]);
        double b = std::max(m * (c.forward + input + c.weight), c.forward + hop + apart[key(s + 1, j)]);
        if (a < through[key(s, i)])
          through[key(s, i)] = a, cuts[key(s, i)] = j;
        apart[key(s, i)] = std::min(apart[key(s, i)], b);
      }
}

double SuffixBound::at(int stage, int first, double there, double back) const {
  return std::max(there + (returns ? back : 0) + through[key(stage, first)], there + apart[key(stage, first)]);
}

AverageBound::AverageBound(const SplitProblem &problem, const ScheduleTable &table, const Intervals &intervals)
    : problem(problem), table(table), intervals(intervals) {
  for (int64_t budget : problem.budgets)
    bytes += double(budget);
  // A price at which the dearest recomputation just pays; the best one lies between none and a multiple of it.
  double p = table.rows.size(), m = table.microbatchesOfAllSteps(), most = 0;
  for (const Segment &s : problem.segments)
    for (const Segment::Way &a : s.ways)
      for (const Segment::Way &b : s.ways)
        if (a.held > b.held)
          most = std::max(most, (b.seconds - a.seconds) * m / p / double(a.held - b.held));
  double best = -kInfinity, at = 0;
  auto attempt = [&](double candidate) {
    price = candidate;
    tabulate();
    double bound = ofRest(0, 0) - budgets();
    if (bound > best)
      best = bound, at = candidate;
    return bound;
  };
  attempt(0);
  if (most > 0) {
    double low = most / 1024, high = 2 * most; // concave in the price: thirds of the logarithm
    for (int round = 0; round < 24; ++round) {
      double ratio = std::cbrt(high / low);
      if (attempt(low * ratio) < attempt(high / ratio))
        low *= ratio;
      else
        high /= ratio;
    }
  }
  price = at;
  tabulate();
}

double AverageBound::ofStage(const StageCost &c, int stage) const {
  double p = table.rows.size(), m = table.microbatchesOfAllSteps();
  double behind = std::max(0.0, p - 1 - stage) / p; // share of the workers whose first stage comes later
  double seconds = m / p * (c.forward + c.input + c.weight) + behind * c.forward;
  if (!splitsBackward(problem.request.schedule) && intervals.gradientsReturn())
    seconds += behind * (c.input + c.weight);
  return seconds + price * double(c.fixed + c.held * table.slots[stage] + c.late * table.lateSlots[stage]);
}

void AverageBound::tabulate() {
  int stages = table.stages(), n = problem.size();
  rest.assign(size_t(stages + 1) * (n + 1), kInfinity);
  rest[key(stages, n)] = 0;
  for (int s = stages - 1; s >= 0; --s) {
    // The ways that add least, each segment for itself: bytes of work are left out.
    std::vector<double> ways(n + 1, 0);
    for (int k = 0; k < n; ++k) {
      double least = kInfinity;
      for (const Segment::Way &way : problem.segments[k].ways) {
        StageCost c;
        c.input = way.seconds, c.held = way.held;
        least = std::min(least, ofStage(c, s));
      }
      ways[k + 1] = ways[k] + least;
    }
    for (int i = n - (stages - s); i >= s; --i)
      for (int j = i + 1; j <= n - (stages - s - 1); ++j)
        if (rest[key(s + 1, j)] < kInfinity)
          rest[key(s, i)] =
              std::min(rest[key(s, i)], ofStage(intervals.plain(i, j, s), s) + ways[j] - ways[i] + rest[key(s + 1, j)]);
  }
}

namespace {

// Bytes of a stage for its smallest choices: without work, and work.
struct Need {
  int64_t bytes, work;
};
std::vector<Need> needs(const ScheduleTable &table, const Intervals &intervals, int i, int j, int stage) {
  std::vector<Need> list;
  if (!intervals.allows(i, j, stage))
    return list;
  StageCost c = intervals.plain(i, j, stage);
  for (const Choice &choice : intervals.smallest(i, j))
    list.push_back({c.fixed + (c.held + choice.held) * table.slots[stage] + c.late * table.lateSlots[stage], choice.work});
  return list;
}

// Branch and bound for workers with several chunks: the largest sum over a worker's stages.
struct LeastSearch {
  const SplitProblem &problem;
  const ScheduleTable &table;
  const Intervals &intervals;
  int64_t &work;
  std::vector<Need> of; // of each worker, so far
  std::vector<int> cuts, bestCuts;
  int64_t best;
  bool whole = true;

  void go(int stage, int first) {
    int n = problem.size(), stages = table.stages(), w = stage < stages ? table.workerOf[stage] : 0;
    if (stage == stages) {
      int64_t most = 0;
      for (const Need &need : of)
        most = std::max(most, need.bytes + need.work);
      if (most < best)
        best = most, bestCuts = cuts;
      return;
    }
    for (int j = stage == stages - 1 ? n : first + 1; j <= n - (stages - stage - 1); ++j) {
      work -= j - first + 8;
      if (work < 0) {
        whole = false;
        return;
      }
      for (const Need &need : needs(table, intervals, first, j, stage)) {
        Need before = of[w];
        of[w] = {before.bytes + need.bytes, std::max(before.work, need.work)};
        if (of[w].bytes + of[w].work < best) {
          if (stage + 1 < stages)
            cuts.push_back(j);
          go(stage + 1, j);
          if (stage + 1 < stages)
            cuts.pop_back();
        }
        of[w] = before;
      }
    }
  }
};

} // namespace

int64_t leastBudget(const SplitProblem &problem, const ScheduleTable &table, const Intervals &intervals, int64_t &work,
                    bool &proved, std::vector<int> &cuts) {
  int stages = table.stages(), n = problem.size();
  // Each stage for itself: exact with one chunk a worker, else a good start.
  std::vector<std::vector<int64_t>> least(stages + 1, std::vector<int64_t>(n + 1, INT64_MAX));
  std::vector<std::vector<int>> next(stages, std::vector<int>(n + 1, n));
  least[stages][n] = 0;
  for (int s = stages - 1; s >= 0; --s)
    for (int i = n - (stages - s); i >= s; --i)
      for (int j = i + 1; j <= n - (stages - s - 1); ++j) {
        if (least[s + 1][j] == INT64_MAX || (s == 0 && i > 0))
          continue;
        int64_t own = INT64_MAX;
        for (const Need &need : needs(table, intervals, i, j, s))
          own = std::min(own, need.bytes + need.work);
        if (std::max(own, least[s + 1][j]) < least[s][i])
          least[s][i] = std::max(own, least[s + 1][j]), next[s][i] = j;
      }
  cuts.clear();
  for (int s = 0, i = 0; s + 1 < stages; ++s)
    cuts.push_back(i = next[s][i]);
  proved = table.request.chunks == 1;
  if (proved)
    return least[0][0];
  int64_t rest = table.request.chunks == 2 ? work / 2 : 0;
  work -= rest;
  LeastSearch search{problem, table, intervals, work, std::vector<Need>(table.rows.size(), Need{0, 0}), {}, cuts, INT64_MAX};
  search.go(0, 0);
  proved = search.whole;
  cuts = search.bestCuts;
  int64_t smallest = search.best;
  work = std::max<int64_t>(work, 0) + rest;
  if (!proved && table.request.chunks == 2) {
    Pairs pairs(problem, table, intervals);
    int64_t found = pairs.leastBudget(std::min(smallest, kMostBytes), work);
    proved = found >= 0;
    if (!pairs.cuts().empty())
      smallest = found, cuts = pairs.cuts();
  }
  return smallest;
}

} // namespace cinch::solve::detail
