// PairBound.cpp: see PairBound.h.
#include "compiler/solve/stages/PairBound.h"

#include <algorithm>

namespace cinch::solve::detail {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
} // namespace

Pairs::Pairs(const SplitProblem &problem, const ScheduleTable &table, const Intervals &intervals)
    : problem(problem), table(table), intervals(intervals), p(int(table.rows.size())), n(problem.size()),
      isV(problem.request.schedule == Schedule::ZBV), splits(splitsBackward(problem.request.schedule)), returns(intervals.gradientsReturn()),
      m(table.microbatchesOfAllSteps()) {
  int64_t copies = table.versions - 1 + table.accumulators - 1;
  for (std::vector<double> *sums : {&forward, &input, &weight, &recomputation, &fixed})
    sums->assign(1, 0);
  for (const Segment &s : problem.segments) {
    double fastest = kInfinity;
    for (const Segment::Way &way : s.ways)
      fastest = std::min(fastest, way.seconds);
    forward.push_back(forward.back() + s.forward), input.push_back(input.back() + s.input), weight.push_back(weight.back() + s.weight);
    recomputation.push_back(recomputation.back() + fastest);
    fixed.push_back(fixed.back() + double(s.fixed + copies * s.parameters));
  }
}

// ---- What a pair costs -------------------------------------------------------------------------------------------------
static double of(const std::vector<double> &sums, int begin, int end) { return sums[end] - sums[begin]; }

double Pairs::leastSeconds(const Pair &pair) const {
  auto both = [&](const std::vector<double> &sums) { return of(sums, pair.first, pair.firstEnd) + of(sums, pair.second, pair.secondEnd); };
  double hops = pair.worker * problem.latency, there = forward[pair.first] + hops;
  double back = input[pair.first] + recomputation[pair.first] + hops;
  double most = both(forward) + both(input), all = most + both(weight);
  if (!returns)
    return there + m * all;
  return splits ? there + std::max(m * all, m * most + back) : there + m * all + back + weight[pair.first];
}

double Pairs::recomputed(const Pair &pair, double enough, int64_t &work) const {
  int stages[2] = {pair.worker, secondStage(pair.worker)};
  const std::vector<Choice> &firsts = intervals.choices(pair.first, pair.firstEnd), &seconds = intervals.choices(pair.second, pair.secondEnd);
  int64_t room = problem.budgets[pair.worker];
  for (int which : {0, 1}) {
    StageCost c = which ? intervals.plain(pair.second, pair.secondEnd, stages[1]) : intervals.plain(pair.first, pair.firstEnd, stages[0]);
    room -= c.fixed + c.held * table.slots[stages[which]] + c.late * table.lateSlots[stages[which]];
  }
  double fewest = enough;
  for (const Choice &one : firsts) {
    if (seconds.empty() || one.seconds + seconds.front().seconds >= fewest)
      break;
    int64_t left = room - intervals.heldBytes(one, stages[0]);
    for (const Choice &other : seconds) {
      --work;
      if (one.seconds + other.seconds >= fewest)
        break;
      if (intervals.heldBytes(other, stages[1]) + std::max(one.work, other.work) <= left)
        fewest = one.seconds + other.seconds;
    }
  }
  return fewest;
}

const std::vector<Choice> &Pairs::smallestOf(int i, int j) {
  smallestChoices.resize(key(n, n) + 1);
  std::vector<Choice> &list = smallestChoices[key(i, j)];
  if (list.empty())
    list = intervals.smallest(i, j);
  return list;
}

double Pairs::smallest(const Pair &pair, double enough, int64_t &work) {
  int stages[2] = {pair.worker, secondStage(pair.worker)};
  int64_t always = 0;
  for (int which : {0, 1}) {
    StageCost c = which ? intervals.plain(pair.second, pair.secondEnd, stages[1]) : intervals.plain(pair.first, pair.firstEnd, stages[0]);
    always += c.fixed + c.held * table.slots[stages[which]] + c.late * table.lateSlots[stages[which]];
  }
  if (double(always) >= enough)
    return enough;
  double fewest = enough;
  const std::vector<Choice> &ones = smallestOf(pair.first, pair.firstEnd), &others = smallestOf(pair.second, pair.secondEnd);
  work -= int64_t(ones.size() * others.size());
  for (const Choice &one : ones)
    for (const Choice &other : others)
      fewest = std::min(fewest, double(always + intervals.heldBytes(one, stages[0]) + intervals.heldBytes(other, stages[1]) +
                                       std::max(one.work, other.work)));
  return fewest;
}

// What the workers behind this one must do at least, if they share it evenly.
double Pairs::leftToOthers(const Pair &pair, int border) const {
  int others = p - 1 - pair.worker;
  auto left = [&](const std::vector<double> &sums) {
    return isV ? of(sums, pair.firstEnd, pair.second) : of(sums, pair.firstEnd, border) + of(sums, pair.secondEnd, n);
  };
  return others ? m * (left(forward) + left(input) + left(weight) + left(recomputation)) / others : 0;
}

// ---- The dynamic program -----------------------------------------------------------------------------------------------
double Pairs::solve(const Cost &cost, double enough, int64_t &work) {
  best.clear();
  least = enough;
  if (isV)
    walk(cost, n, work);
  else
    for (int border = p; border <= n - p && work > 0; ++border)
      walk(cost, border, work);
  if (work > 0)
    return least;
  best.clear();
  return -1;
}

// One worker after the other; `reached`: the largest cost so far, by where the next chunks begin (or the second one ends).
void Pairs::walk(const Cost &cost, int border, int64_t &work) {
  std::vector<double> reached(key(n, n) + 1, kInfinity), next;
  std::vector<std::vector<std::pair<int, int>>> from(size_t(p), std::vector<std::pair<int, int>>(reached.size()));
  reached[key(0, border)] = 0;
  // False: the cost alone is too much, and larger stages cost more.
  auto attempt = [&](const Pair &pair, double before, int second, int nextSecond) {
    --work;
    if (cost.least(pair) >= least)
      return false;
    if (!intervals.allows(pair.first, pair.firstEnd, pair.worker) || !intervals.allows(pair.second, pair.secondEnd, secondStage(pair.worker)) ||
        (cost.isWork && leftToOthers(pair, border) >= least))
      return true;
    double &known = pair.worker == p - 1 ? least : next[key(pair.firstEnd, nextSecond)];
    double value = std::max(before, cost.exact(pair, std::min(known, least), work));
    if (value < known && value < least) {
      known = value;
      from[size_t(pair.worker)][key(pair.firstEnd, nextSecond)] = {pair.first, second};
      if (pair.worker == p - 1)
        follow(from, pair);
    }
    return true;
  };
  for (int w = 0; w < p; ++w) {
    int behind = p - 1 - w; // workers
    next.assign(reached.size(), kInfinity);
    for (int i = w; i < n; ++i)
      for (int k = 0; k <= n && work > 0; ++k) {
        double before = reached[key(i, k)];
        if (before >= least)
          continue;
        if (isV) {
          for (int end = i + 1, goes = 1; goes && end < k - 2 * behind; ++end)
            for (int second = behind ? k - 1 : end; second >= end + 2 * behind; --second) {
              bool more = attempt({w, i, end, second, k}, before, k, second);
              goes = more || second < k - 1;
              if (!more || !behind)
                break;
            }
        } else {
          for (int end = behind ? i + 1 : border, goes = 1; goes && i < border && end <= border - behind; ++end)
            for (int secondEnd = behind ? k + 1 : n; k < n && secondEnd <= n - behind; ++secondEnd) {
              bool more = attempt({w, i, end, k, secondEnd}, before, k, secondEnd);
              goes = more || secondEnd > k + 1;
              if (!more)
                break;
            }
        }
      }
    reached.swap(next);
  }
}

void Pairs::follow(const std::vector<std::vector<std::pair<int, int>>> &from, const Pair &last) {
  best.assign(size_t(2 * p - 1), 0); // stage s begins at best[s - 1]
  Pair pair = last;
  for (int w = p - 1;; --w) {
    best[size_t(secondStage(w) - 1)] = pair.second;
    if (w == 0)
      return;
    best[size_t(w - 1)] = pair.first;
    auto [first, second] = from[size_t(w - 1)][key(pair.first, isV ? pair.secondEnd : pair.second)];
    pair = isV ? Pair{w - 1, first, pair.first, pair.secondEnd, second} : Pair{w - 1, first, pair.first, second, pair.second};
  }
}

double Pairs::makespan(double enough, int64_t &work) {
  auto exact = [this](const Pair &pair, double enough, int64_t &work) {
    double own = leastSeconds(pair), most = (enough - own) / m, seconds = most > 0 ? recomputed(pair, most, work) : most;
    return seconds < most ? own + m * seconds : enough;
  };
  return solve({[this](const Pair &pair) { return leastSeconds(pair); }, exact, true}, enough, work);
}

int64_t Pairs::leastBudget(int64_t enough, int64_t &work) {
  auto atLeast = [this](const Pair &pair) { return of(fixed, pair.first, pair.firstEnd) + of(fixed, pair.second, pair.secondEnd); };
  auto smallestOf = [this](const Pair &pair, double enough, int64_t &work) { return smallest(pair, enough, work); };
  return int64_t(solve({atLeast, smallestOf, false}, double(enough), work));
}

} // namespace cinch::solve::detail
