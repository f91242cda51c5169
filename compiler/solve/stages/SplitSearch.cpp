// SplitSearch.cpp: the search for the split whose table ends first.
#include "compiler/solve/stages/PairBound.h"
#include "compiler/solve/stages/PairSearch.h"
#include "compiler/solve/stages/SplitBound.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <tuple>

namespace cinch::solve {

namespace {

using namespace detail;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A partial split: the stages up to `stage` are known.
struct Node {
  double bound = 0;
  int stage = -1, first = 0; // the next stage begins at segment `first`
  int parent = -1, choice = -1;
};

class Search {
public:
  Search(const SplitProblem &problem, const SplitLimits &limits)
      : problem(problem), table(generate(problem.request)), work(limits.work), stages(table.stages()), n(problem.size()),
        intervals(problem, table, *std::max_element(problem.budgets.begin(), problem.budgets.end())),
        suffix(problem, table, intervals), chainSeconds(problem, table, intervals) {
    if (!oneChunk())
      average.emplace(problem, table, intervals);
    lastChunk.assign(stages, 0);
    for (int s = 0; s < stages; ++s)
      lastChunk[s] = std::none_of(table.workerOf.begin() + s + 1, table.workerOf.end(),
                                  [&](int w) { return w == table.workerOf[s]; });
    for (int i = 0; i < n; ++i) {
      double least = kInfinity;
      for (const Segment::Way &way : problem.segments[i].ways)
        least = std::min(least, way.seconds);
      leastRecomputed.push_back(least);
    }
    costs.latency = problem.latency, costs.bandwidth = problem.bandwidth;
    actions = double(table.microbatchesOfAllSteps()) * (splitsBackward(problem.request.schedule) ? 3 : 2);
  }

  SplitSolution run() {
    SplitSolution s;
    std::vector<int> smallest;
    int64_t share = work / 4;
    s.leastBudget = leastBudget(problem, table, intervals, share, s.leastProved, smallest);
    int64_t rest = work - work / 2;
    work /= 2;
    start(startCuts(smallest));
    work = std::max<int64_t>(work, 0) + rest;
    double byChains = oneChunk() ? 0 : boundByChains();
    double pairs = problem.request.chunks == 2 && worthwhile(byChains) ? boundOfPairs() : 0;
    nodes.push_back(Node());
    nodes[0].bound = oneChunk() ? suffix.at(0, 0, 0, 0)
                                : std::max({workBound({}, 0), average->ofRest(0, 0) - average->budgets(), pairs, byChains});
    double rootBound = nodes[0].bound;
    bool byPairs = problem.request.chunks == 2 && byChains > 0 && worthwhile(rootBound) && provePairs();
    if (byPairs)
      rootBound = best;
    // The most promising node first; of equals the deeper.
    auto later = [&](int a, int b) {
      return nodes[a].bound > nodes[b].bound || (nodes[a].bound == nodes[b].bound && nodes[a].stage < nodes[b].stage);
    };
    std::priority_queue<int, std::vector<int>, decltype(later)> open(later);
    if (rootBound < kInfinity && worthwhile(rootBound))
      open.push(0);
    while (!open.empty() && work > 0 && worthwhile(nodes[open.top()].bound)) {
      int at = open.top();
      open.pop();
      for (int child : expand(at))
        open.push(child);
    }
    bool proved = open.empty() || !worthwhile(nodes[open.top()].bound);
    bool found = best < kInfinity;
    s.bound = proved && found ? best : proved ? kInfinity : std::min(best, nodes[open.top()].bound);
    if (!intervals.complete() && !byPairs)
      proved = false, s.bound = std::min(s.bound, std::max(workBound({}, 0), byChains));
    s.status = found ? (proved ? SplitSolution::Optimal : SplitSolution::Feasible)
                     : (proved ? SplitSolution::Infeasible : SplitSolution::Unknown);
    if (found)
      s.split = bestSplit, s.makespan = best;
    return s;
  }

private:
  bool oneChunk() const { return problem.request.chunks == 1; }
  bool worthwhile(double bound) const { return bound < best * (1 - 1e-12); }

  // Seconds and bytes of the stages of a chain of nodes, in order.
  using Known = StageChoice;
  std::vector<Known> known(int node) const {
    std::vector<Known> list;
    for (; nodes[node].stage >= 0; node = nodes[node].parent)
      list.push_back({nodes[nodes[node].parent].first, nodes[node].first, nodes[node].choice});
    std::reverse(list.begin(), list.end());
    return list;
  }
  StageCost costOf(const Known &k, int stage) const {
    StageCost c = intervals.plain(k.first, k.end, stage);
    const Choice &choice = intervals.choices(k.first, k.end)[k.choice];
    c.input += choice.seconds, c.held += choice.held, c.backwardWork = choice.work;
    return c;
  }
  // Fills `costs` with what is known; stages beyond take nothing.
  void fill(const std::vector<Known> &list) {
    costs.stages.assign(stages, {});
    costs.transfers.clear();
    for (size_t s = 0; s < list.size(); ++s) {
      costs.stages[s] = costOf(list[s], int(s));
      if (int(s) + 1 < stages)
        costs.transfers.push_back({int(s), int(s) + 1, intervals.bytesAt(list[s].end), intervals.gradientBytesAt(list[s].end)});
    }
  }
  // Bytes left to stage `stage` on its worker, and the work that earlier chunks need.
  std::pair<int64_t, int64_t> roomOf(const std::vector<Known> &list, int stage) const {
    int w = table.workerOf[stage];
    int64_t room = problem.budgets[w], most = 0;
    for (size_t s = 0; s < list.size(); ++s)
      if (table.workerOf[s] == w) {
        StageCost c = costOf(list[s], int(s));
        room -= c.fixed + c.held * table.slots[s] + c.late * table.lateSlots[s];
        most = std::max(most, c.backwardWork);
      }
    return {room, most};
  }
  int64_t roomFor(int64_t room, int i, int j, int stage) const {
    StageCost c = intervals.plain(i, j, stage);
    return room - c.fixed - c.held * table.slots[stage] - c.late * table.lateSlots[stage];
  }

  // The largest of what the workers have to do, the unknown rest spread evenly.
  double workBound(const std::vector<Known> &list, int first) const {
    double m = table.microbatchesOfAllSteps(), all = 0, most = 0;
    std::vector<double> of(table.rows.size(), 0);
    for (size_t s = 0; s < list.size(); ++s) {
      StageCost c = costOf(list[s], int(s));
      of[table.workerOf[s]] += m * (c.forward + c.input + c.weight);
    }
    for (double seconds : of)
      all += seconds, most = std::max(most, seconds);
    for (int i = first; i < n; ++i) {
      const Segment &s = problem.segments[i];
      all += m * (s.forward + s.input + s.weight + leastRecomputed[i]);
    }
    return std::max(most, all / double(of.size()));
  }

  // The gate comes before any update: the longest update of a worker follows everything else.
  double updateBound(const std::vector<Known> &list) const {
    double most = 0, all = 0;
    std::vector<double> of(table.rows.size(), 0);
    for (size_t s = 0; s < list.size(); ++s)
      of[table.workerOf[s]] += intervals.plain(list[s].first, list[s].end, int(s)).update;
    for (double seconds : of)
      most = std::max(most, seconds);
    for (const Segment &s : problem.segments)
      all += s.update;
    return problem.request.schedule == Schedule::TwoBW ? 0 : std::max(most, all / double(of.size()));
  }

  double boundOf(const std::vector<Known> &list, int first) {
    work -= 2 * stages + n - first;
    double bound = workBound(list, first) + updateBound(list);
    int next = int(list.size());
    if (!worthwhile(bound))
      return bound;
    fill(list);
    double there = 0, back = 0, rest = 0;
    bool split = splitsBackward(problem.request.schedule);
    for (int s = 0; s < next; ++s) {
      const StageCost &c = costs.stages[s];
      const Transfer &t = costs.transfers[s];
      there += c.forward + problem.latency + double(t.bytes) / problem.bandwidth;
      back += c.input + (split ? 0 : c.weight);
      if (t.gradientBytes >= 0)
        back += problem.latency + double(t.gradientBytes) / problem.bandwidth;
    }
    if (oneChunk()) {
      bound = std::max(bound, suffix.at(next, first, there, back) + updateBound(list));
    } else {
      double sum = average->ofRest(next, first) - average->budgets();
      for (int s = 0; s < next; ++s)
        sum += average->ofStage(costs.stages[s], s);
      bound = std::max(bound, sum + updateBound(list));
    }
    if (!worthwhile(bound))
      return bound;
    // What the last known stage sends comes back after the rest has run forward and backward, and after two messages if the next
    // stage lies on another worker.
    const Transfer &cut = costs.transfers.back();
    if (cut.gradientBytes < 0)
      return bound;
    if (table.workerOf[next - 1] != table.workerOf[next])
      rest = 2 * problem.latency + double(cut.bytes + cut.gradientBytes) / problem.bandwidth;
    for (int i = first; i < n && intervals.gradientsReturn(); ++i) {
      const Segment &s = problem.segments[i];
      rest += s.forward + s.input + leastRecomputed[i] + (split ? 0 : s.weight);
    }
    work -= int64_t(actions * next);
    return std::max(bound, makespanOfFirst(table, costs, next, rest));
  }

  std::vector<int> expand(int at) {
    std::vector<int> children;
    int stage = nodes[at].stage + 1, first = nodes[at].first;
    std::vector<Known> list = known(at);
    auto [room, most] = roomOf(list, stage);
    for (int j = stage == stages - 1 ? n : first + 1; j <= n - (stages - stage - 1); ++j) {
      --work;
      int64_t left = roomFor(room, first, j, stage);
      int fastest = intervals.fastest(first, j, stage, left, most);
      if (fastest < 0)
        continue;
      int end = lastChunk[stage] ? fastest + 1 : int(intervals.choices(first, j).size());
      for (int choice = fastest; choice < end; ++choice) {
        const Choice &c = intervals.choices(first, j)[choice];
        if (intervals.heldBytes(c, stage) + std::max(c.work, most) > left)
          continue;
        list.push_back({first, j, choice});
        if (stage == stages - 1)
          finish(list);
        else if (double bound = std::max(nodes[at].bound, boundOf(list, j)); worthwhile(bound)) {
          children.push_back(int(nodes.size()));
          nodes.push_back({bound, stage, j, at, choice});
        }
        list.pop_back();
      }
    }
    return children;
  }

  // A whole split: is it better than the best?
  double finish(const std::vector<Known> &list) {
    fill(list);
    work -= int64_t(actions * stages);
    double seconds = makespan(table, costs);
    if (!worthwhile(seconds))
      return seconds;
    best = seconds;
    bestSplit = Split();
    for (const Known &k : list) {
      if (k.first)
        bestSplit.cuts.push_back(k.first);
      std::vector<int> ways = intervals.waysOf(k.first, k.end, k.choice);
      bestSplit.ways.insert(bestSplit.ways.end(), ways.begin(), ways.end());
    }
    return seconds;
  }

  // The first choice of each of the worker's stages, which none is faster than; false: they do not fit.
  bool takeFastest(std::vector<Known> &list, int w) const {
    int64_t room = problem.budgets[w], most = 0;
    for (int s = 0; s < stages; ++s)
      if (table.workerOf[s] == w) {
        if (intervals.choices(list[s].first, list[s].end).empty())
          return false;
        const Choice &fastest = intervals.choices(list[s].first, list[s].end)[0];
        list[s].choice = 0;
        room = roomFor(room, list[s].first, list[s].end, s) - intervals.heldBytes(fastest, s);
        most = std::max(most, fastest.work);
      }
    return most <= room;
  }

  // Seconds of these cuts, with the ways that cost each worker the fewest seconds within its budget; infinity if nothing fits.
  double tryCuts(const std::vector<int> &cuts) {
    struct Together { // choices for a worker's stages so far
      double seconds = 0;
      int64_t bytes = 0, work = 0;
      std::vector<int> choices;
    };
    std::vector<Known> list(stages);
    for (int s = 0; s < stages; ++s)
      list[s] = {s ? cuts[s - 1] : 0, s + 1 < stages ? cuts[s] : n, -1};
    for (int s = 0; s < stages; ++s)
      if (!problem.allows(list[s].first, list[s].end, s))
        return kInfinity;
    for (int w = 0; w < int(table.rows.size()); ++w) {
      work -= 1;
      if (takeFastest(list, w))
        continue;
      std::vector<Together> front = {Together()};
      int64_t room = problem.budgets[w];
      for (int s = 0; s < stages; ++s) {
        if (table.workerOf[s] != w)
          continue;
        room = roomFor(room, list[s].first, list[s].end, s);
        const std::vector<Choice> &choices = intervals.choices(list[s].first, list[s].end);
        work -= int64_t(front.size() * choices.size()) / 8 + 1;
        std::vector<Together> all;
        for (const Together &t : front)
          for (size_t c = 0; c < choices.size(); ++c) {
            Together next = {t.seconds + choices[c].seconds, t.bytes + intervals.heldBytes(choices[c], s),
                             std::max(t.work, choices[c].work), t.choices};
            if (next.bytes + next.work > room)
              continue;
            next.choices.push_back(int(c));
            all.push_back(std::move(next));
          }
        std::sort(all.begin(), all.end(), [](const Together &a, const Together &b) {
          return std::tie(a.seconds, a.bytes, a.work, a.choices) < std::tie(b.seconds, b.bytes, b.work, b.choices);
        });
        front.clear();
        for (const Together &t : all)
          if (front.size() < 512 && (front.empty() || t.bytes < front.back().bytes || t.work < front.back().work))
            front.push_back(t);
        if (!all.empty()) // the smallest stays, so that later stages find room
          front.push_back(*std::min_element(all.begin(), all.end(), [](const Together &a, const Together &b) {
            return a.bytes + a.work < b.bytes + b.work;
          }));
      }
      if (front.empty())
        return kInfinity;
      auto next = front[0].choices.begin();
      for (int s = 0; s < stages; ++s)
        if (table.workerOf[s] == w)
          list[s].choice = *next++;
    }
    return finish(list);
  }

  // Two chunks a worker: what no split is below, and where cuts must lie for that, which is a good place to begin at.
  double boundOfPairs() {
    int64_t share = work / 2, given = share;
    Pairs pairs(problem, table, intervals);
    double update = updateBound({}), seconds = pairs.makespan(best - update, share);
    work -= given - std::max<int64_t>(share, 0);
    if (!pairs.cuts().empty())
      start({pairs.cuts()});
    return seconds < 0 ? 0 : seconds + update;
  }

  // What no split is below by the table's chains, and a split near the cuts for which they are short.
  double boundByChains() {
    if (!intervals.gradientsReturn())
      return 0;
    int64_t share = work / 4, given = share;
    chains = boundOfChains(problem, table, chainSeconds, share);
    work -= given - std::max<int64_t>(share, 0);
    if (!chains.cuts.empty())
      start({chains.cuts});
    return chains.seconds;
  }

  // Two chunks a worker: the exact search. A try there takes a fourth of a simulated action's time.
  bool provePairs() {
    constexpr int kTriesAnAction = 4;
    int64_t given = work * 3 / 4, tries = given * kTriesAnAction;
    work -= given;
    PairSearch search(problem, table, intervals, chainSeconds, best, tries, [this](const std::vector<Known> &list) {
      finish(list);
      return criticalChain(table, costs);
    });
    for (const CriticalChain &chain : chainsOfBusyWorkers())
      search.know(chain);
    search.know(chains.mean);
    bool proved = search.prove();
    work += std::max<int64_t>(tries, 0) / kTriesAnAction;
    return proved;
  }

  // Chains through each worker, as the longest are if that one has more to do, and the means of those through the last ones, which know that what some
  // workers do not do is left to the others.
  std::vector<CriticalChain> chainsOfBusyWorkers() const {
    std::vector<CriticalChain> busy;
    int workers = int(table.rows.size());
    for (int w = 0; w < workers; ++w) {
      TableCosts more = chainSeconds.meanOf({chains.cuts}, {1});
      for (int s = 0; s < stages; ++s)
        for (double StageCost::*seconds : {&StageCost::forward, &StageCost::input, &StageCost::weight})
          more.stages[s].*seconds *= table.workerOf[s] == w ? 4 : 1;
      busy.push_back(criticalChain(table, more));
    }
    for (int w = 0; w + 1 < workers; ++w)
      busy.push_back(meanOf({busy.begin() + w, busy.begin() + workers}, std::vector<double>(size_t(workers - w), 1.0 / (workers - w))));
    return busy;
  }

  // Splits to begin with: the dynamic program's, equal work, the smallest.
  std::vector<std::vector<int>> startCuts(const std::vector<int> &smallest) const {
    std::vector<std::vector<int>> starts = {smallest};
    std::vector<int> cuts;
    for (int s = 0, i = 0; s + 1 < stages; ++s)
      cuts.push_back(i = std::min(suffix.cut(s, i), n - (stages - s - 1)));
    if (oneChunk() && suffix.at(0, 0, 0, 0) < kInfinity)
      starts.push_back(cuts);
    double all = 0, soFar = 0;
    for (const Segment &s : problem.segments)
      all += s.forward + s.input + s.weight;
    cuts.clear();
    for (int i = 0; i < n && int(cuts.size()) + 1 < stages; ++i) {
      int cut = int(cuts.size()) + 1;
      soFar += problem.segments[i].forward + problem.segments[i].input + problem.segments[i].weight;
      if ((soFar >= all * cut / stages || n - (i + 1) == stages - cut) && (cuts.empty() || cuts.back() < i + 1))
        cuts.push_back(i + 1);
    }
    starts.push_back(cuts);
    return starts;
  }

  // Each with its cuts moved as long as that helps.
  void start(std::vector<std::vector<int>> starts) {
    for (std::vector<int> &s : starts) {
      double seconds = tryCuts(s);
      for (bool moved = seconds < kInfinity; moved && work > 0;) {
        moved = false;
        // Neighbouring cuts together: a segment moves from one stage to another, those between pass one on.
        for (size_t from = 0; from < s.size(); ++from)
          for (size_t to = from; to < s.size() && work > 0; ++to)
            for (int by : {-1, 1}) {
              int low = from ? s[from - 1] : 0, high = to + 1 < s.size() ? s[to + 1] : n;
              if (s[from] + by <= low || s[to] + by >= high)
                continue;
              std::vector<int> before = s;
              for (size_t k = from; k <= to; ++k)
                s[k] += by;
              double now = tryCuts(s);
              if (now < seconds * (1 - 1e-12))
                seconds = now, moved = true;
              else
                s = before;
            }
      }
    }
  }

  const SplitProblem &problem;
  ScheduleTable table;
  int64_t work;
  int stages, n;
  Intervals intervals;
  SuffixBound suffix;
  ChainSeconds chainSeconds;
  ChainBound chains; // with several chunks
  std::optional<AverageBound> average; // with several chunks
  std::vector<char> lastChunk;
  std::vector<double> leastRecomputed;
  TableCosts costs;
  double actions = 0;
  std::vector<Node> nodes;
  double best = kInfinity;
  Split bestSplit;
};

} // namespace

SplitSolution solve(const SplitProblem &problem, const SplitLimits &limits) { return Search(problem, limits).run(); }

} // namespace cinch::solve
