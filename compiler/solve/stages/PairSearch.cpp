// PairSearch.cpp: see PairSearch.h.
#include "compiler/solve/stages/PairSearch.h"

#include <algorithm>

namespace cinch::solve::detail {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kMostEntries = 8'000'000; // of all chains' tables
} // namespace

PairSearch::PairSearch(const SplitProblem &problem, const ScheduleTable &table, const Intervals &intervals, const ChainSeconds &stageSeconds,
                       const double &best, int64_t &work, Attempt attempt)
    : problem(problem), table(table), intervals(intervals), stageSeconds(stageSeconds), best(best), work(work), attempt(std::move(attempt)),
      p(int(table.rows.size())), n(problem.size()), isV(problem.request.schedule == Schedule::ZBV), lengths(size_t(p + 1)), stages(size_t(2 * p)) {}

// ---- What chains take --------------------------------------------------------------------------------------------------
double PairSearch::added(const Chain &chain, int worker, const Pair &pair, const double *seconds) const {
  int other = secondStage(worker);
  return stageSeconds.ofStage(chain.counts, worker, pair.first, pair.firstEnd) +
         stageSeconds.ofStage(chain.counts, other, pair.second, pair.secondEnd) +
         chain.counts.input[size_t(worker)] * seconds[0] + chain.counts.input[size_t(other)] * seconds[1];
}

void PairSearch::know(const CriticalChain &counts) {
  size_t entries = size_t(p + 1) * key(n, n);
  work -= int64_t(entries) / 2;
  if ((chains.size() + 1) * entries > kMostEntries)
    work = 0;
  if (work <= 0)
    return;
  Chain chain{counts, stageSeconds.ofHops(counts), {}, {}, {}, {}};
  for (int w = 0; w <= p; ++w) {
    std::vector<double> rest, tail, upper;
    auto append = [](std::vector<double> &table, const std::vector<double> &row) { table.insert(table.end(), row.begin(), row.end()); };
    for (int i = 0; i <= n; ++i) {
      append(rest, stageSeconds.cover(counts, w, isV ? 2 * p - 1 - w : p - 1, i));
      if (isV)
        upper.push_back(stageSeconds.cover(counts, 2 * p - w, 2 * p - 1, i)[size_t(n)]);
      else
        append(upper, stageSeconds.cover(counts, p, p + w - 1, i)), tail.push_back(stageSeconds.cover(counts, p + w, 2 * p - 1, i)[size_t(n)]);
    }
    chain.rest.push_back(rest), chain.tail.push_back(tail), chain.upper.push_back(upper);
    chain.head.push_back(stageSeconds.cover(counts, 0, w - 1, 0));
  }
  order.insert(order.begin(), int(chains.size()));
  chains.push_back(std::move(chain));
}

// The least that the workers behind the settled ones add.
double PairSearch::left(const Chain &chain, int settled, int i, int k) const {
  return isV ? chain.rest[size_t(settled)][key(i, k)] : chain.rest[size_t(settled)][key(i, border)] + chain.tail[size_t(settled)][size_t(k)];
}

// The least that the settled workers have added.
double PairSearch::settledLeast(const Chain &chain, int settled, const Pair &next) const {
  size_t upper = isV ? size_t(next.secondEnd) : key(border, next.second);
  return chain.messages + chain.head[size_t(settled)][size_t(next.first)] + chain.upper[size_t(settled)][upper];
}

// Lengths of chains that were not known when the workers were settled.
void PairSearch::extend(int settled) {
  std::vector<double> &list = lengths[size_t(settled)];
  if (list.size() == chains.size())
    return;
  if (settled > 0)
    extend(settled - 1);
  while (list.size() < chains.size()) {
    const Chain &chain = chains[list.size()];
    if (settled == 0) {
      list.push_back(chain.messages);
      continue;
    }
    int w = settled - 1;
    const StageChoice &one = stages[size_t(w)], &other = stages[size_t(secondStage(w))];
    double seconds[2] = {intervals.choices(one.first, one.end)[size_t(one.choice)].seconds,
                         intervals.choices(other.first, other.end)[size_t(other.choice)].seconds};
    list.push_back(lengths[size_t(w)][list.size()] + added(chain, w, {one.first, one.end, other.first, other.end}, seconds));
  }
}

// ---- What a worker can do ----------------------------------------------------------------------------------------------
std::vector<PairSearch::Pair> PairSearch::pairsOf(int w, int i, int k) const {
  std::vector<Pair> pairs;
  int behind = p - 1 - w; // workers
  auto take = [&](const Pair &pair) {
    if (intervals.allows(pair.first, pair.firstEnd, w) && intervals.allows(pair.second, pair.secondEnd, secondStage(w)))
      pairs.push_back(pair);
  };
  if (isV)
    for (int end = i + 1; end < k - 2 * behind; ++end)
      for (int second = end + 2 * behind; second < (behind ? k : end + 1); ++second)
        take({i, end, second, k});
  else
    for (int end = behind ? i + 1 : border; end <= border - behind; ++end)
      for (int secondEnd = behind ? k + 1 : n; secondEnd <= n - behind; ++secondEnd)
        take({i, end, k, secondEnd});
  return pairs;
}

const std::vector<PairSearch::Ways> &PairSearch::waysOf(int w, const Pair &pair) {
  uint64_t name = ((((uint64_t(w) * (n + 1) + pair.first) * (n + 1) + pair.firstEnd) * (n + 1) + pair.second) * (n + 1)) + pair.secondEnd;
  auto [at, isNew] = ways.try_emplace(name);
  if (!isNew)
    return at->second;
  int stageOf[2] = {w, secondStage(w)};
  StageCost c[2] = {intervals.plain(pair.first, pair.firstEnd, stageOf[0]), intervals.plain(pair.second, pair.secondEnd, stageOf[1])};
  int64_t room = problem.budgets[size_t(w)];
  for (int which : {0, 1})
    room -= c[which].fixed + c[which].held * table.slots[stageOf[which]] + c[which].late * table.lateSlots[stageOf[which]];
  const std::vector<Choice> &ones = intervals.choices(pair.first, pair.firstEnd), &others = intervals.choices(pair.second, pair.secondEnd);
  double fewest = kInfinity;
  int64_t tried = 0;
  for (size_t one = 0; one < ones.size() && !others.empty() && fewest > others.front().seconds; ++one) {
    int64_t left = room - intervals.heldBytes(ones[one], stageOf[0]);
    for (size_t other = 0; other < others.size() && others[other].seconds < fewest; ++other) {
      ++tried;
      if (intervals.heldBytes(others[other], stageOf[1]) + std::max(ones[one].work, others[other].work) > left)
        continue;
      fewest = others[other].seconds;
      at->second.push_back({{int(one), int(other)}, {ones[one].seconds, fewest}});
    }
  }
  work -= 1 + tried / 8;
  // Where choices are missing, none is missed if the fastest of all fit.
  double least = stageSeconds.leastRecomputed(pair.first, pair.firstEnd) + stageSeconds.leastRecomputed(pair.second, pair.secondEnd);
  if (!intervals.complete(pair.first, pair.firstEnd) || !intervals.complete(pair.second, pair.secondEnd))
    missed |= at->second.empty() || at->second[0].seconds[0] + at->second[0].seconds[1] > least * (1 + 1e-12);
  return at->second;
}

// ---- The search --------------------------------------------------------------------------------------------------------
// A chain is no shorter than `least` once the workers before are settled. Left out where it never is.
void PairSearch::raise(Needs &needs, int chain, double least, int settled, const Pair &pair) const {
  if (least <= settledLeast(chains[size_t(chain)], settled, pair))
    return;
  least = std::min(least, lengths[size_t(settled)][size_t(chain)]); // roundings
  for (Need &need : needs)
    if (need.chain == chain) {
      need.least = std::max(need.least, least);
      return;
    }
  needs.push_back({chain, least});
}

// Is some chain too long with this pair? Then `needs` says so, too: of such chains the one that is so for most ways to settle the workers before.
bool PairSearch::isTooLong(int w, const Pair &pair, const double *seconds, Needs &needs, double *longest) {
  auto rest = [&](int c) { return added(chains[size_t(c)], w, pair, seconds) + left(chains[size_t(c)], w + 1, pair.firstEnd, nextOf(pair)); };
  for (const Need &need : needs)
    if (need.least + rest(need.chain) >= limit())
      return true;
  int found = -1;
  double least = 0, above = kInfinity;
  for (size_t at = 0; at < order.size() && above > 0; ++at) {
    int c = order[at];
    double more = rest(c), sum = lengths[size_t(w)][size_t(c)] + more;
    if (longest)
      *longest = std::max(*longest, sum);
    if (sum < limit())
      continue;
    double aboveLeast = limit() - more - settledLeast(chains[size_t(c)], w, pair);
    if (aboveLeast < above)
      found = c, least = limit() - more, above = aboveLeast;
    if (above <= 0)
      std::rotate(order.begin(), order.begin() + long(at), order.begin() + long(at) + 1);
  }
  work -= int64_t(order.size()) / 4;
  if (found < 0)
    return false;
  raise(needs, found, least, w, pair);
  return true;
}

// Why a state fails, if that is known for chains of these lengths.
const PairSearch::Needs *PairSearch::failure(uint64_t state, int settled) {
  std::vector<Needs> &list = failures[state];
  for (size_t f = 0; f < list.size(); ++f)
    if (std::all_of(list[f].begin(), list[f].end(),
                    [&](const Need &need) { return lengths[size_t(settled)][size_t(need.chain)] >= need.least; })) {
      work -= int64_t(f) / 8;
      std::swap(list[f], list[f / 2]); // what often serves comes first
      return &list[f / 2];
    }
  work -= int64_t(list.size()) / 8;
  return nullptr;
}

// Why the workers from `w` on cannot take what is left: no chain that is named may be as long as it says.
PairSearch::Needs PairSearch::explore(int w, int i, int k) {
  uint64_t state = (uint64_t(border) * (p + 1) + w) * (n + 1) * (n + 1) + key(i, k);
  if (const Needs *known = failure(state, w))
    return *known;
  Needs needs;
  std::vector<std::pair<double, Pair>> open;
  for (const Pair &pair : pairsOf(w, i, k)) {
    --work;
    double least[2] = {stageSeconds.leastRecomputed(pair.first, pair.firstEnd), stageSeconds.leastRecomputed(pair.second, pair.secondEnd)};
    double longest = 0;
    if (!isTooLong(w, pair, least, needs, &longest))
      open.push_back({longest, pair});
  }
  std::stable_sort(open.begin(), open.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  for (const auto &[longest, pair] : open)
    for (const Ways &way : waysOf(w, pair)) {
      extend(w);
      if (work > 0 && !isTooLong(w, pair, way.seconds, needs))
        settle(w, pair, way, needs);
      if (work <= 0)
        return {};
    }
  failures[state].push_back(needs);
  return needs;
}

void PairSearch::settle(int w, const Pair &pair, const Ways &way, Needs &needs) {
  stages[size_t(w)] = {pair.first, pair.firstEnd, way.choices[0]};
  stages[size_t(secondStage(w))] = {pair.second, pair.secondEnd, way.choices[1]};
  if (w == p - 1) {
    know(attempt(stages));
    extend(w);
    if (work > 0 && !isTooLong(w, pair, way.seconds, needs)) // its own chain is
      work = 0;
    return;
  }
  lengths[size_t(w + 1)].clear();
  extend(w + 1);
  Needs ofRest = explore(w + 1, pair.firstEnd, nextOf(pair));
  extend(w);
  for (const Need &need : ofRest)
    raise(needs, need.chain, need.least - added(chains[size_t(need.chain)], w, pair, way.seconds), w, pair);
}

bool PairSearch::prove() {
  for (border = isV ? n : p; border <= (isV ? n : n - p) && work > 0; ++border) {
    extend(0);
    explore(0, 0, border);
  }
  return work > 0 && !missed;
}

} // namespace cinch::solve::detail
