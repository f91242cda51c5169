// LINK: cinch_solve
// Splits into stages: equal to brute force over all cuts and all ways on 3,000 random chains and 500 graphs with skips, all under
// memory limits; refusals at the smallest budget; the verifier rejects wrong answers. For two chunks a worker the dynamic program and the
// exact search each find what brute force finds, on 600 chains and graphs of their own. Arguments: chains, graphs, seed, those of two chunks.
#include "compiler/solve/stages/PairBound.h"
#include "compiler/solve/stages/PairSearch.h"
#include "compiler/solve/stages/Split.h"
#include "test/unit/Expect.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

using namespace cinch::solve;

struct Rng {
  uint64_t state;
  int below(int n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return int((state >> 33) % uint64_t(n));
  }
};

static SplitProblem randomProblem(Rng &rng, bool skips, bool twoChunks) {
  static const Schedule schedules[] = {Schedule::GPipe, Schedule::OneFOneB, Schedule::OneFOneB,    Schedule::ZBH1,
                                       Schedule::TwoBW, Schedule::ZBV,      Schedule::Interleaved, Schedule::Naive};
  SplitProblem p;
  ScheduleRequest &r = p.request;
  r.schedule = schedules[twoChunks ? 5 + rng.below(2) : rng.below(8)];
  bool chunks = r.schedule == Schedule::ZBV || r.schedule == Schedule::Interleaved;
  r.workers = 1 + rng.below(chunks && !twoChunks ? 3 : 4), r.chunks = chunks ? 2 : 1;
  r.microbatches = r.schedule == Schedule::Naive ? 1 : 1 + rng.below(8);
  if (r.schedule == Schedule::TwoBW)
    r.microbatches = std::max(r.microbatches, r.workers), r.steps = 1 + rng.below(2), r.gate = rng.below(2);
  int n = r.workers * r.chunks + rng.below(twoChunks ? 6 : chunks ? 3 : 4), product = 1;
  bool whole = rng.below(2); // whole seconds make ties
  auto seconds = [&](int most) { return whole ? rng.below(most) : rng.below(1000 * most) / 1000.0; };
  for (int k = 0; k < n; ++k) {
    Segment s;
    s.name = std::to_string(k);
    s.forward = seconds(6), s.input = seconds(6), s.weight = seconds(4), s.update = rng.below(3) ? 0 : seconds(3);
    s.fixed = rng.below(40), s.parameters = rng.below(10), s.late = rng.below(4);
    s.ways.clear();
    for (int ways = product < (twoChunks ? 12 : 48) ? 1 + rng.below(3) : 1; ways > 0; --ways)
      s.ways.push_back({rng.below(2) ? seconds(6) : 0.0, rng.below(12), rng.below(3) ? 0 : rng.below(12)});
    product *= int(s.ways.size());
    p.segments.push_back(s);
    if (k)
      p.values.push_back({k - 1, {k}, rng.below(5), rng.below(8) ? rng.below(5) : -1});
  }
  if (skips) {
    for (int count = 1 + rng.below(4); count > 0 && n > 2; --count) {
      SegmentValue v;
      v.source = rng.below(n - 2);
      for (int target = v.source + 1; target < n; ++target)
        if (rng.below(3) == 0 || (target == n - 1 && v.targets.empty()))
          v.targets.push_back(target);
      v.bytes = rng.below(6), v.gradientBytes = rng.below(4) ? v.bytes : -1;
      p.values.push_back(v);
    }
    p.shared.push_back({rng.below(30), {0, n - 1}});
  }
  p.latency = rng.below(2) ? 0 : rng.below(10) / 10.0;
  if (rng.below(2))
    p.bandwidth = 1 + rng.below(20);
  return p;
}

struct Truth {
  double makespan = std::numeric_limits<double>::infinity();
  double pairs = std::numeric_limits<double>::infinity(); // two chunks a worker: what the dynamic program bounds makespans by
  int64_t least = INT64_MAX, most = 0;
};

// Some stages have to begin where they are told to; false: no cut does so.
static bool force(SplitProblem &p, Rng &rng) {
  int stages = p.request.workers * p.request.chunks;
  for (int segment = 1; segment < p.size(); ++segment)
    if (stages > 1 && rng.below(p.size()) == 0)
      p.forced.push_back({segment, rng.below(2) ? SplitProblem::kAnyStage : 1 + rng.below(stages - 1)});
  return check(p).empty();
}

static bool isForced(const SplitProblem &p, const std::vector<int> &cuts) {
  for (auto [segment, stage] : p.forced) {
    bool found = false;
    for (size_t c = 0; c < cuts.size(); ++c)
      found |= cuts[c] == segment && (stage < 0 || stage == int(c) + 1);
    if (!found)
      return false;
  }
  return true;
}

// The formula of PairBound.h, for one split.
static double pairBound(const SplitProblem &p, const ScheduleTable &table, const TableCosts &costs, const Split &split) {
  bool splits = splitsBackward(p.request.schedule), returns = true;
  for (int i = 1; i < p.size(); ++i) // over every place where a cut could be
    returns &= std::any_of(p.values.begin(), p.values.end(), [&](const SegmentValue &v) {
      return v.gradientBytes >= 0 && v.source < i && *std::max_element(v.targets.begin(), v.targets.end()) >= i;
    });
  double most = 0, m = table.microbatchesOfAllSteps();
  for (int w = 0; w < p.request.workers; ++w) {
    double there = w * p.latency, back = w * p.latency, moves = 0, weights = 0;
    for (int s = 0; s < table.stages(); ++s)
      if (table.workerOf[s] == w)
        moves += costs.stages[s].forward + costs.stages[s].input, weights += costs.stages[s].weight;
    for (int i = 0; w > 0 && i < split.cuts[w - 1]; ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (const Segment::Way &way : p.segments[i].ways)
        least = std::min(least, way.seconds);
      there += p.segments[i].forward, back += p.segments[i].input + least + (splits ? 0 : p.segments[i].weight);
    }
    back = returns ? back : 0;
    most = std::max(most, splits ? there + std::max(m * (moves + weights), m * moves + back) : there + m * (moves + weights) + back);
  }
  return most;
}

// Every cut with every way of every segment.
static Truth bruteForce(const SplitProblem &p, bool underBudget) {
  Truth truth;
  ScheduleTable table = generate(p.request);
  int stages = table.stages(), n = p.size();
  Split split;
  for (int s = 1; s < stages; ++s)
    split.cuts.push_back(s);
  for (;;) {
    split.ways.assign(n, 0);
    while (isForced(p, split.cuts)) {
      TableCosts costs = costsOf(p, table, split);
      int64_t most = 0;
      bool fits = true;
      for (int w = 0; w < p.request.workers; ++w) {
        int64_t bytes = bytesOf(table, costs, w);
        most = std::max(most, bytes);
        fits &= underBudget && bytes <= p.budgets[w];
      }
      truth.least = std::min(truth.least, most), truth.most = std::max(truth.most, most);
      if (fits)
        truth.makespan = std::min(truth.makespan, makespan(table, costs));
      if (fits && p.request.chunks == 2)
        truth.pairs = std::min(truth.pairs, pairBound(p, table, costs, split));
      int k = 0;
      while (k < n && ++split.ways[k] == int(p.segments[k].ways.size()))
        split.ways[k++] = 0;
      if (k == n)
        break;
    }
    int c = stages - 2; // the next combination of cuts
    while (c >= 0 && split.cuts[c] == n - (stages - 1 - c))
      --c;
    if (c < 0)
      break;
    ++split.cuts[c];
    for (int d = c + 1; d < stages - 1; ++d)
      split.cuts[d] = split.cuts[d - 1] + 1;
  }
  return truth;
}

static std::string describe(const SplitProblem &p, int number) {
  return "problem " + std::to_string(number) + " (" + name(p.request.schedule) + ", " + std::to_string(p.request.workers) + " x " +
         std::to_string(p.request.chunks) + ", m=" + std::to_string(p.request.microbatches) + ", " + std::to_string(p.size()) +
         " segments)";
}

static std::string wrongPairs(const SplitProblem &p, const Truth &truth) {
  ScheduleTable table = generate(p.request);
  detail::Intervals intervals(p, table, *std::max_element(p.budgets.begin(), p.budgets.end()));
  detail::Pairs pairs(p, table, intervals);
  int64_t work = int64_t(1) << 40, most = int64_t(1) << 52, least = pairs.leastBudget(most, work);
  if (least != truth.least)
    return "pairs: smallest budget " + std::to_string(least) + ", brute force " + std::to_string(truth.least);
  double infinity = std::numeric_limits<double>::infinity(), bound = pairs.makespan(infinity, work);
  if (bound != truth.pairs && std::abs(bound - truth.pairs) > 1e-9 * std::max(1.0, truth.pairs))
    return "pairs: " + std::to_string(bound) + ", brute force " + std::to_string(truth.pairs);
  std::vector<int> cuts = pairs.cuts();
  if (bound < infinity && (int(cuts.size()) != table.stages() - 1 || !isForced(p, cuts)))
    return "pairs: no cuts, or not those that were asked for";
  if (pairs.leastBudget(least + 1, work) != least || (bound < infinity && pairs.makespan(bound + 1e-6, work) != bound))
    return "pairs: what is hardly below the limit is not found";
  if (bound < infinity && (pairs.makespan(bound, work) != bound || !pairs.cuts().empty()))
    return "pairs: something is below the least";
  return bound <= truth.makespan + 1e-9 * std::max(1.0, truth.makespan) ? "" : "pairs: above the best split";
}

// The exact search by itself, from no split at all.
static std::string wrongSearch(const SplitProblem &p, const Truth &truth) {
  ScheduleTable table = generate(p.request);
  detail::Intervals intervals(p, table, *std::max_element(p.budgets.begin(), p.budgets.end()));
  if (!intervals.gradientsReturn())
    return "";
  detail::ChainSeconds seconds(p, table, intervals);
  double best = std::numeric_limits<double>::infinity(), most = std::max(1.0, truth.makespan) * 1e-9;
  int64_t work = int64_t(1) << 40;
  detail::ChainBound bound = detail::boundOfChains(p, table, seconds, work);
  if (bound.seconds > truth.makespan + most)
    return "chains: bound " + std::to_string(bound.seconds) + " above the best split, " + std::to_string(truth.makespan);
  std::string wrong;
  detail::PairSearch search(p, table, intervals, seconds, best, work, [&](const std::vector<detail::StageChoice> &list) {
    Split split;
    for (const detail::StageChoice &s : list) {
      if (s.first)
        split.cuts.push_back(s.first);
      std::vector<int> ways = intervals.waysOf(s.first, s.end, s.choice);
      split.ways.insert(split.ways.end(), ways.begin(), ways.end());
    }
    TableCosts costs = costsOf(p, table, split);
    double end = makespan(table, costs);
    for (int w = 0; w < p.request.workers; ++w)
      if (bytesOf(table, costs, w) > p.budgets[size_t(w)])
        wrong = "search: tries a split above the budget";
    if (!isForced(p, split.cuts))
      wrong = "search: tries cuts that are not those that were asked for";
    best = std::min(best, end);
    return criticalChain(table, costs);
  });
  if (!search.prove())
    return "search: proves nothing";
  if (best != truth.makespan && !(std::abs(best - truth.makespan) <= most))
    return "search: " + std::to_string(best) + ", brute force " + std::to_string(truth.makespan);
  return wrong;
}

static void againstBruteForce(int count, bool skips, uint64_t seed, bool twoChunks = false) {
  Rng rng{seed};
  int feasible = 0, infeasible = 0;
  for (int number = 0; number < count; ++number) {
    SplitProblem p = randomProblem(rng, skips, twoChunks);
    p.budgets.assign(p.request.workers, 0);
    if (number % 4 == 0 && !force(p, rng)) {
      expect(bruteForce(p, false).least == INT64_MAX, describe(p, number) + ": there is a cut as it is told");
      p.forced.clear();
    }
    Truth sizes = bruteForce(p, false);
    int64_t range = sizes.most - sizes.least;
    for (int64_t &budget : p.budgets)
      budget = std::max<int64_t>(0, sizes.least - range / 8 + rng.below(int(range / 2 + range / 4 + 2)));
    if (rng.below(3)) // the same for all
      p.budgets.assign(p.request.workers, p.budgets[0]);
    std::string who = describe(p, number);
    if (std::string wrong = check(p); !wrong.empty()) {
      expect(false, who + ": " + wrong);
      continue;
    }
    Truth truth = bruteForce(p, true);
    SplitSolution s = solve(p);
    std::string wrong = verify(p, s);
    bool exists = !std::isinf(truth.makespan);
    exists ? ++feasible : ++infeasible;
    if (wrong.empty() && s.status != (exists ? SplitSolution::Optimal : SplitSolution::Infeasible))
      wrong = "status " + std::to_string(s.status) + ", a split " + (exists ? "exists" : "does not exist");
    if (wrong.empty() && exists && std::abs(s.makespan - truth.makespan) > 1e-9 * std::max(1.0, truth.makespan))
      wrong = "makespan " + std::to_string(s.makespan) + ", brute force " + std::to_string(truth.makespan);
    if (wrong.empty() && (s.leastBudget != truth.least || !s.leastProved))
      wrong = "smallest budget " + std::to_string(s.leastBudget) + ", brute force " + std::to_string(truth.least);
    if (wrong.empty() && p.request.chunks == 2)
      wrong = wrongPairs(p, truth);
    if (wrong.empty() && p.request.chunks == 2)
      wrong = wrongSearch(p, truth);
    expect(wrong.empty(), who + ": " + wrong);
  }
  expect(feasible > count / 2 && infeasible > count / 50,
         std::to_string(feasible) + " of " + std::to_string(count) + " had a split, too many or too few to tell");
}

// What a chain counts adds up to the makespan, and is no longer than that of other costs with the same table.
static void chainsOfTables() {
  Rng rng{987654321};
  for (int number = 0; number < 400; ++number) {
    SplitProblem p = randomProblem(rng, false, number % 2);
    for (SegmentValue &value : p.values)
      value.gradientBytes = std::max<int64_t>(value.gradientBytes, 0);
    p.budgets.assign(size_t(p.request.workers), INT64_MAX / 4);
    ScheduleTable table = generate(p.request);
    auto random = [&] {
      Split split;
      std::vector<int> places;
      for (int k = 1; k < p.size(); ++k)
        places.push_back(k);
      while (int(places.size()) > table.stages() - 1)
        places.erase(places.begin() + rng.below(int(places.size())));
      split.cuts = places, split.ways.assign(size_t(p.size()), 0);
      return costsOf(p, table, split);
    };
    TableCosts own = random(), others = random();
    CriticalChain chain = criticalChain(table, own);
    auto length = [&](const TableCosts &costs) {
      double sum = chain.hops * costs.latency;
      for (int s = 0; s < table.stages(); ++s) {
        const StageCost &c = costs.stages[size_t(s)];
        sum += chain.forward[s] * c.forward + chain.input[s] * c.input + chain.weight[s] * c.weight + chain.update[table.workerOf[s]] * c.update;
      }
      for (size_t t = 0; t < costs.transfers.size(); ++t)
        sum += (chain.sent[t] * double(costs.transfers[t].bytes) + chain.returned[t] * double(costs.transfers[t].gradientBytes)) / costs.bandwidth;
      return sum;
    };
    double end = makespan(table, own), endOfOthers = makespan(table, others);
    expect(std::abs(length(own) - end) <= 1e-9 * std::max(1.0, end),
           describe(p, number) + ": the longest chain has " + std::to_string(length(own)) + " s of " + std::to_string(end));
    expect(length(others) <= endOfOthers + 1e-9 * std::max(1.0, endOfOthers), describe(p, number) + ": a chain is longer than the makespan");
  }
}

// Both players' weights promise the same value.
static void matrixGames() {
  Rng rng{13579};
  for (int number = 0; number < 300; ++number) {
    size_t rows = size_t(1 + rng.below(12)), columns = size_t(1 + rng.below(12));
    std::vector<std::vector<double>> matrix(rows, std::vector<double>(columns));
    for (std::vector<double> &row : matrix)
      for (double &entry : row)
        entry = number % 3 ? rng.below(4) : rng.below(1000000) / 7.0; // few values make ties
    int64_t work = 1 << 20;
    detail::MatrixGame game = detail::solveGame(matrix, work);
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (size_t i = 0; i < rows; ++i)
        sum += game.rows[i] * matrix[i][j];
      least = std::min(least, sum);
    }
    for (size_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (size_t j = 0; j < columns; ++j)
        sum += game.columns[j] * matrix[i][j];
      most = std::max(most, sum);
    }
    expect(most - least <= 1e-9 * std::max(1.0, most), "game " + std::to_string(number) + ": " + std::to_string(least) + " and " + std::to_string(most));
  }
}

// Three equal layers on two workers under 1f1b, in numbers that can be checked by hand.
static SplitProblem byHand() {
  SplitProblem p;
  for (int k = 0; k < 3; ++k) {
    Segment s;
    s.name = "layer" + std::to_string(k), s.forward = 1, s.input = 1, s.weight = 1, s.fixed = 100;
    s.ways = {{0, 10, 0}, {1, 2, 5}};
    p.segments.push_back(s);
  }
  p.values = {{0, {1}, 4, 4}, {1, {2}, 4, 4}, {0, {2}, 3, -1}};
  p.request = {Schedule::OneFOneB, 2, 4, 1, 1, true};
  p.budgets = {1000, 1000};
  return p;
}

static void costsByHand() {
  SplitProblem p = byHand();
  ScheduleTable table = generate(p.request);
  TableCosts c = costsOf(p, table, {{1}, {1, 0, 1}});
  // Stage 0: layer 0, two slots of 2, sent 4 + 3, gradient received 4, work 5.
  expect(bytesOf(table, c, 0) == 100 + 2 * 2 + 7 + 4 + 5, "bytes of stage 0: " + std::to_string(bytesOf(table, c, 0)));
  // Stage 1: layers 1 and 2, one slot of 10 + 2 and of what it reads, 4 and 3; 7 once more, gradient sent 4, work 5.
  expect(bytesOf(table, c, 1) == 200 + (12 + 7) + 7 + 4 + 5, "bytes of stage 1: " + std::to_string(bytesOf(table, c, 1)));
  expect(c.stages[0].input == 2 && c.stages[1].input == 3 && c.stages[1].forward == 2, "seconds of the stages");
  expect(c.transfers[0].bytes == 7 && c.transfers[0].gradientBytes == 4, "bytes over the cut");
  // A value read two stages later is handed on by the stage between, which holds one.
  p.request.workers = 3, p.budgets.push_back(1000);
  ScheduleTable three = generate(p.request);
  c = costsOf(p, three, {{1, 2}, {0, 0, 0}});
  expect(bytesOf(three, c, 1) == 100 + 2 * (10 + 4) + 4 + 4 + 7 + 4, "bytes of a stage that hands on: " +
                                                                         std::to_string(bytesOf(three, c, 1)));
  // 2bw with a gate: one more version and one more accumulator.
  p = byHand(), p.request = {Schedule::TwoBW, 2, 4, 1, 1, true};
  for (Segment &s : p.segments)
    s.parameters = 30;
  ScheduleTable delayed = generate(p.request);
  expect(costsOf(p, delayed, {{1}, {0, 0, 0}}).stages[1].fixed == 200 + 120 + 7 + 4, "fixed bytes of 2bw");
}

// With less memory the first stage, which holds more in flight, computes again; with more nobody does.
static void earlyStagesRecompute() {
  SplitProblem p = byHand();
  p.values = {{0, {1}, 0, 0}, {1, {2}, 0, 0}, {2, {3}, 0, 0}};
  p.segments.push_back(p.segments[0]);
  SplitSolution s = solve(p);
  expect(s.status == SplitSolution::Optimal && s.split.cuts == std::vector<int>{2} && s.split.ways == std::vector<int>(4, 0),
         "with enough memory nothing is computed again");
  p.budgets = {230, 230}; // stage 0 keeps 2 x (10 + 10) = 40, or 2 x (10 + 2) + 5 = 29
  s = solve(p);
  expect(verify(p, s).empty() && s.split.cuts == std::vector<int>{2} && s.split.ways[0] + s.split.ways[1] == 1 &&
             s.split.ways[2] + s.split.ways[3] == 0,
         "the first stage computes one layer again");
  p.budgets = {212, 212};
  s = solve(p);
  expect(s.status == SplitSolution::Infeasible && s.leastBudget == 213 && s.leastProved,
         "refused with the smallest budget, got " + std::to_string(s.leastBudget));
  p.budgets = {213, 213};
  expect(solve(p).status == SplitSolution::Optimal, "the smallest budget is enough");
}

static void wrongAnswers() {
  SplitProblem p = byHand();
  p.budgets = {300, 300};
  SplitSolution right = solve(p);
  expect(right.status == SplitSolution::Optimal && verify(p, right).empty(), "the right answer: " + verify(p, right));
  auto rejects = [&](const std::string &what, auto change, const std::string &why) {
    SplitSolution s = right;
    change(s);
    std::string wrong = verify(p, s);
    expect(wrong.find(why) != std::string::npos, what + ": expected `" + why + "`, got `" + wrong + "`");
  };
  rejects("an empty stage", [](SplitSolution &s) { s.split.cuts[0] = 3; }, "empty stage");
  rejects("an empty first stage", [](SplitSolution &s) { s.split.cuts[0] = 0; }, "empty stage");
  rejects("a cut too many", [](SplitSolution &s) { s.split.cuts.push_back(2); }, "expected 1 cuts");
  rejects("no such way", [](SplitSolution &s) { s.split.ways[1] = 2; }, "has no way");
  rejects("a way too few", [](SplitSolution &s) { s.split.ways.pop_back(); }, "a way for each");
  rejects("a makespan too small", [](SplitSolution &s) { s.makespan -= 1; }, "claimed");
  rejects("a bound too large", [](SplitSolution &s) { s.bound += 1; }, "bound contradicts");
  p.budgets = {150, 150};
  rejects("above the budget", [](SplitSolution &) {}, "its budget is 150");
}

static void wrongProblems() {
  auto refused = [](const std::string &why, auto change) {
    SplitProblem p = byHand();
    change(p);
    std::string wrong = check(p);
    expect(wrong.find(why) != std::string::npos, "expected a refusal with `" + why + "`, got `" + wrong + "`");
  };
  refused("never empty", [](SplitProblem &p) { p.request.workers = 4, p.budgets = {1, 1, 1, 1}; });
  refused("not negative", [](SplitProblem &p) { p.segments[1].forward = -1; });
  refused("not negative", [](SplitProblem &p) { p.segments[1].forward = NAN; });
  refused("at least one way", [](SplitProblem &p) { p.segments[1].ways.clear(); });
  refused("a later one", [](SplitProblem &p) { p.values[0].targets = {0}; });
  refused("2^50", [](SplitProblem &p) { p.segments[0].ways[0].held = INT64_MAX, p.values[0].bytes = INT64_MAX; });
  refused("a budget for each", [](SplitProblem &p) { p.budgets.pop_back(); });
  refused("a bandwidth of at least", [](SplitProblem &p) { p.bandwidth = 0; });
  refused("does not exist", [](SplitProblem &p) { p.shared = {{5, {7}}}; });
  refused("one chunk", [](SplitProblem &p) { p.request.chunks = 2; });
}

// A larger model: blocks of a transformer, an embedding before and a loss behind; the answer holds what it says and is near its bound.
static void largerModels() {
  for (int blocks : {16, 48})
    for (Schedule schedule : {Schedule::OneFOneB, Schedule::GPipe, Schedule::ZBH1}) {
      SplitProblem p;
      for (int k = 0; k < blocks + 2; ++k) {
        Segment s;
        bool end = k == 0 || k == blocks + 1;
        s.name = std::to_string(k), s.forward = end ? 0.4 + k * 0.05 : 1, s.input = s.forward, s.weight = s.forward;
        s.fixed = end ? 500 : 100, s.ways = {{0, 34, 0}, {0.2, 20, 14}, {1, 2, 34}};
        p.segments.push_back(s);
        if (k)
          p.values.push_back({k - 1, {k}, 2, 2});
      }
      p.request = {schedule, 8, 32, 1, 1, true};
      p.budgets.assign(8, 100 * blocks / 8 + 900), p.latency = 0.01, p.bandwidth = 1000;
      SplitSolution s = solve(p);
      std::string wrong = verify(p, s);
      expect(wrong.empty() && (s.status == SplitSolution::Optimal || s.status == SplitSolution::Feasible) &&
                 s.makespan <= 1.1 * s.bound,
             std::to_string(blocks) + " blocks, " + name(schedule) + ": " + wrong + " " + std::to_string(s.makespan) + ", bound " +
                 std::to_string(s.bound));
    }
}

int main(int argc, char **argv) {
  int chains = argc > 1 ? std::atoi(argv[1]) : 3000, graphs = argc > 2 ? std::atoi(argv[2]) : 500;
  uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  int twoChunks = argc > 4 ? std::atoi(argv[4]) : 600;
  costsByHand();
  earlyStagesRecompute();
  wrongAnswers();
  wrongProblems();
  largerModels();
  againstBruteForce(chains, false, 88172645463325252ull * seed);
  againstBruteForce(graphs, true, 1234567891011ull * seed);
  againstBruteForce(twoChunks / 2, false, 777777777777ull * seed, true);
  againstBruteForce(twoChunks / 2, true, 555555555555ull * seed, true);
  chainsOfTables();
  matrixGames();
  return tally();
}
