// ChainBound.cpp: see ChainBound.h.
#include "compiler/solve/stages/ChainBound.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve::detail {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNearEnough = 1e-6; // the value of the game is known up to this part of it
} // namespace

// ---- What stages add ---------------------------------------------------------------------------------------------------
ChainSeconds::ChainSeconds(const SplitProblem &problem, const ScheduleTable &table, const Intervals &intervals)
    : problem(problem), table(table), intervals(intervals) {
  for (std::vector<double> *sums : {&forward, &input, &weight, &update, &recomputed})
    sums->assign(1, 0);
  for (const Segment &s : problem.segments) {
    double fastest = kInfinity;
    for (const Segment::Way &way : s.ways)
      fastest = std::min(fastest, way.seconds);
    forward.push_back(forward.back() + s.forward), input.push_back(input.back() + s.input), weight.push_back(weight.back() + s.weight);
    update.push_back(update.back() + s.update), recomputed.push_back(recomputed.back() + fastest);
  }
}

double ChainSeconds::ofStage(const CriticalChain &c, int stage, int i, int j) const {
  size_t s = size_t(stage);
  double seconds = c.forward[s] * (forward[j] - forward[i]) + c.input[s] * (input[j] - input[i]) + c.weight[s] * (weight[j] - weight[i]) +
                   c.update[size_t(table.workerOf[s])] * (update[j] - update[i]);
  if (stage + 1 < table.stages())
    seconds += (c.sent[s] * double(intervals.bytesAt(j)) + c.returned[s] * double(intervals.gradientBytesAt(j))) / problem.bandwidth;
  return seconds;
}

std::vector<double> ChainSeconds::cover(const CriticalChain &chain, int stage, int last, int i, std::vector<std::vector<int>> *cuts) const {
  int n = problem.size();
  std::vector<double> before(size_t(n + 1), kInfinity), now;
  before[size_t(i)] = 0;
  for (int s = stage; s <= last; ++s) {
    now.assign(size_t(n + 1), kInfinity);
    double open = kInfinity; // the stage so far
    int begin = i;
    if (cuts)
      cuts->push_back(std::vector<int>(size_t(n + 1), i));
    for (int j = i + 1; j <= n; ++j) {
      double empty = ofStage(chain, s, j, j); // messages alone
      if (before[size_t(j - 1)] < open)
        open = before[size_t(j - 1)], begin = j - 1;
      open += ofStage(chain, s, j - 1, j) - empty + chain.input[size_t(s)] * leastRecomputed(j - 1, j);
      now[size_t(j)] = open + empty;
      if (cuts)
        cuts->back()[size_t(j)] = begin;
    }
    before.swap(now);
  }
  return before;
}

TableCosts ChainSeconds::meanOf(const std::vector<std::vector<int>> &cuts, const std::vector<double> &weights) const {
  int stages = table.stages();
  TableCosts costs;
  costs.latency = problem.latency, costs.bandwidth = problem.bandwidth;
  costs.stages.resize(size_t(stages));
  std::vector<double> sent(size_t(stages), 0), returned = sent;
  for (size_t at = 0; at < cuts.size(); ++at)
    for (int s = 0; s < stages; ++s) {
      int i = s ? cuts[at][size_t(s - 1)] : 0, j = s + 1 < stages ? cuts[at][size_t(s)] : problem.size();
      StageCost &c = costs.stages[size_t(s)];
      c.forward += weights[at] * (forward[j] - forward[i]), c.weight += weights[at] * (weight[j] - weight[i]);
      c.input += weights[at] * (input[j] - input[i] + leastRecomputed(i, j)), c.update += weights[at] * (update[j] - update[i]);
      sent[size_t(s)] += weights[at] * double(intervals.bytesAt(j)), returned[size_t(s)] += weights[at] * double(intervals.gradientBytesAt(j));
    }
  for (int s = 0; s + 1 < stages; ++s)
    costs.transfers.push_back({s, s + 1, int64_t(std::round(sent[size_t(s)])), int64_t(std::round(returned[size_t(s)]))});
  return costs;
}

static bool isSame(const CriticalChain &a, const CriticalChain &b) {
  return a.forward == b.forward && a.input == b.input && a.weight == b.weight && a.update == b.update && a.sent == b.sent &&
         a.returned == b.returned && a.hops == b.hops;
}

CriticalChain meanOf(const std::vector<CriticalChain> &list, const std::vector<double> &weights) {
  CriticalChain mean = list[0];
  for (auto counts : {&CriticalChain::forward, &CriticalChain::input, &CriticalChain::weight, &CriticalChain::update, &CriticalChain::sent,
                      &CriticalChain::returned})
    for (size_t at = 0; at < (mean.*counts).size(); ++at) {
      double sum = 0;
      for (size_t chain = 0; chain < list.size(); ++chain)
        sum += weights[chain] * (list[chain].*counts)[at];
      (mean.*counts)[at] = sum;
    }
  mean.hops = 0;
  for (size_t chain = 0; chain < list.size(); ++chain)
    mean.hops += weights[chain] * list[chain].hops;
  return mean;
}

// ---- The game ----------------------------------------------------------------------------------------------------------
// The simplex method for: the largest sum of y, matrix y <= 1, y >= 0, of a matrix that is made positive. The columns' weights are y, those of the
// rows its prices, both scaled to a sum of one.
MatrixGame solveGame(const std::vector<std::vector<double>> &matrix, int64_t &work) {
  constexpr double kZero = 1e-11;
  size_t m = matrix.size(), n = matrix[0].size(), right = n + m;
  double scale = 0;
  for (const std::vector<double> &row : matrix)
    for (double entry : row)
      scale = std::max(scale, std::abs(entry));
  std::vector<std::vector<double>> t(m + 1, std::vector<double>(right + 1, 0));
  std::vector<size_t> basis;
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j)
      t[i][j] = 2 + (scale > 0 ? matrix[i][j] / scale : 0);
    t[i][n + i] = 1, t[i][right] = 1, basis.push_back(n + i);
  }
  std::fill(t[m].begin(), t[m].begin() + long(n), -1);
  for (size_t pivots = 0; pivots < 20 * (m + n); ++pivots) {
    // After many steps the first column that helps, which cannot go round in circles.
    size_t enter = right, leave = m;
    for (size_t j = 0; j < right && (enter == right || pivots < 10 * (m + n)); ++j)
      if (t[m][j] < (enter == right ? -kZero : t[m][enter]))
        enter = j;
    if (enter == right)
      break;
    for (size_t i = 0; i < m; ++i)
      if (t[i][enter] > kZero && (leave == m || t[i][right] * t[leave][enter] < t[leave][right] * t[i][enter]))
        leave = i;
    if (leave == m)
      break;
    work -= int64_t((m + 1) * right) / 64 + 1;
    basis[leave] = enter;
    double pivot = t[leave][enter];
    for (double &entry : t[leave])
      entry /= pivot;
    for (size_t i = 0; i <= m; ++i)
      if (double factor = t[i][enter]; i != leave && factor != 0)
        for (size_t j = 0; j <= right; ++j)
          t[i][j] -= factor * t[leave][j];
  }
  MatrixGame game{std::vector<double>(m), std::vector<double>(n)};
  for (size_t i = 0; i < m; ++i) {
    game.rows[i] = std::max(0.0, t[m][n + i]);
    if (basis[i] < n)
      game.columns[basis[i]] = std::max(0.0, t[i][right]);
  }
  for (std::vector<double> *weights : {&game.rows, &game.columns}) {
    double sum = 0;
    for (double weight : *weights)
      sum += weight;
    for (double &weight : *weights)
      weight = sum > 0 ? weight / sum : 1 / double(weights->size());
  }
  return game;
}

ChainBound boundOfChains(const SplitProblem &problem, const ScheduleTable &table, const ChainSeconds &seconds, int64_t &work) {
  int stages = table.stages(), n = problem.size();
  int64_t actions = 0;
  for (const std::vector<Action> &row : table.rows)
    actions += int64_t(row.size());
  auto lengthOf = [&](const CriticalChain &chain, const std::vector<int> &cuts) {
    double sum = seconds.ofHops(chain);
    for (int s = 0; s < stages; ++s) {
      int i = s ? cuts[size_t(s - 1)] : 0, j = s + 1 < stages ? cuts[size_t(s)] : n;
      sum += seconds.ofStage(chain, s, i, j) + chain.input[size_t(s)] * seconds.leastRecomputed(i, j);
    }
    return sum;
  };
  std::vector<CriticalChain> chains;
  std::vector<std::vector<int>> cuts(1);
  for (int s = 1; s < stages; ++s)
    cuts[0].push_back(int(int64_t(n) * s / stages));
  std::vector<std::vector<double>> lengths; // of chains, by cuts
  auto learn = [&](const TableCosts &costs) {
    work -= 4 * actions;
    CriticalChain chain = criticalChain(table, costs);
    if (std::any_of(chains.begin(), chains.end(), [&](const CriticalChain &known) { return isSame(chain, known); }))
      return false;
    lengths.emplace_back();
    for (const std::vector<int> &known : cuts)
      lengths.back().push_back(lengthOf(chain, known));
    chains.push_back(std::move(chain));
    return true;
  };
  learn(seconds.meanOf(cuts, {1}));
  ChainBound best;
  while (work > 0) {
    MatrixGame game = solveGame(lengths, work);
    CriticalChain mean = meanOf(chains, game.rows);
    std::vector<std::vector<int>> begins;
    double value = seconds.cover(mean, 0, stages - 1, 0, &begins)[size_t(n)] + seconds.ofHops(mean);
    work -= stages * n / 4;
    if (value >= best.seconds)
      best.seconds = value, best.mean = mean;
    best.cuts = cuts[0];
    for (int s = 1; s < stages; ++s) {
      double place = 0;
      for (size_t at = 0; at < cuts.size(); ++at)
        place += game.columns[at] * cuts[at][size_t(s - 1)];
      best.cuts[size_t(s - 1)] = std::clamp(int(std::lround(place)), s == 1 ? 1 : best.cuts[size_t(s - 2)] + 1, n - (stages - s));
    }
    bool isNew = learn(seconds.meanOf(cuts, game.columns));
    std::vector<int> shortest = cuts[0];
    for (int s = stages - 1, end = n; s > 0; --s)
      shortest[size_t(s - 1)] = end = begins[size_t(s)][size_t(end)];
    if (!std::count(cuts.begin(), cuts.end(), shortest)) {
      cuts.push_back(shortest);
      for (size_t chain = 0; chain < chains.size(); ++chain)
        lengths[chain].push_back(lengthOf(chains[chain], shortest));
      learn(seconds.meanOf({shortest}, {1}));
      isNew = true;
    }
    double longest = 0; // for the mean of cuts; no mean of chains is longer for all cuts
    for (const std::vector<double> &ofChain : lengths) {
      double sum = 0;
      for (size_t at = 0; at < game.columns.size(); ++at)
        sum += game.columns[at] * ofChain[at];
      longest = std::max(longest, sum);
    }
    if (!isNew || longest <= best.seconds * (1 + kNearEnough))
      break;
  }
  return best;
}

} // namespace cinch::solve::detail
