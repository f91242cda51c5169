// DagSolve.cpp: the methods put together: exact where it is small or little of it is open, structure and local search
// for the schedule, bounds for the proof.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

namespace cinch::solve {

void detail::judge(DagSolution &s, double bound, bool complete) {
  // The methods add up the same costs in other orders.
  constexpr double kRounding = 1e-9;
  if (bound > s.cost.cost + kRounding * s.cost.cost) {
    s.fault = "the cost " + std::to_string(s.cost.cost) + " was found, below the bound " + std::to_string(bound) +
              " that was proven";
    return;
  }
  bool optimal = complete || bound >= s.cost.cost * (1 - 1e-12);
  s.status = optimal ? DagSolution::Optimal : DagSolution::Feasible;
  s.bound = optimal ? s.cost.cost : bound;
}

namespace {

// Two tasks at a time. Each has its own share of the work and its own results, so the answer does not depend on their
// pace.
void inPairs(const std::vector<std::function<void()>> &tasks) {
  for (size_t i = 0; i < tasks.size(); i += 2) {
    std::thread other;
    if (i + 1 < tasks.size())
      other = std::thread(tasks[i + 1]);
    tasks[i]();
    if (other.joinable())
      other.join();
  }
}

// What of the work each method may take, as a divisor of all of it. What is left goes to the search and the bounds.
struct Shares {
  int64_t glance = 64;       // greedy eviction and an exact search: where little is affordable they end at once
  int64_t mostGlance = 8'000'000; // steps, however much is allowed in all: it is a glance
  int64_t nest = 8, nestLarge = 3; // the nested structure; on large graphs the moves of the search get less far
  int64_t look = 8;          // a first look along every order, all of them together
  int64_t cut = 16;          // the bound at single moments, beside it
  int64_t exact = 16;        // exact searches from a good start, after each phase
  int64_t least = 32;        // the search for the least budget
  int64_t leastSteps = 1'000'000; // of it, on every order
};
constexpr Shares kShares;

class Solver {
public:
  Solver(const Dag &d, Order order, int64_t budget, const DagLimits &limits)
      : d(d), order(order), budget(budget), limits(limits), n(d.size()), base(detail::totalCost(d)), work(limits.work) {
    // With a time limit no more work than that time can hold, so that no phase starts what it cannot end. A step on a
    // large graph takes longer.
    if (limits.seconds > 0 && limits.seconds < 1e6)
      work = std::min(work, int64_t(limits.seconds * kStepsPerSecond));
    this->limits.work = work = work / (1 + n / 4000);
    deadline = limits.seconds > 0 ? detail::secondsNow() + limits.seconds : 0;
    s.memoryBound = detail::memoryBound(d);
    s.bound = base;
    s.leastBudget = INT64_MAX;
  }

  DagSolution run() {
    for (std::vector<int> &sequence : detail::orders(d, order))
      if (trails.empty() || (has(DagPart::Orders) && (n <= kLarge || trails.size() < 2)))
        trails.push_back({std::move(sequence), {}, 1e300, {}});
    for (Trail &t : trails)
      consider(t.sequence);
    if (budget >= s.memoryBound) {
      // An exact search first where it is likely to end: it needs no start.
      if (n <= kSmall)
        exact(work, part(0.5));
      if (!exactDone)
        searchLarge();
    }
    if (!best.empty())
      consider(polished(best, budget, order == Order::Given));
    findLeastBudget();
    return conclude();
  }

private:
  static constexpr double kStepsPerSecond = 6e8; // of two threads, at most
  static constexpr int kSmall = 16, kMedium = 500, kLarge = 2000; // above this an order is dear to look at

  struct Start {
    Runs runs;
    Cost cost;
  };
  // An order of first computations, what was found along it, the cheapest that fits first, and its cost.
  struct Trail {
    std::vector<int> sequence;
    std::vector<Runs> starts;
    double reached;
    std::vector<Runs> nested; // by structure
  };
  struct Look {
    Runs runs, smallest;
    int64_t used = 0;
  };

  bool has(DagPart part) const { return limits.without != part; }

  Runs polished(const Runs &runs, int64_t most, bool inOrder) const {
    return has(DagPart::Polish) ? detail::polish(d, runs, most, inOrder) : runs;
  }
  std::vector<Runs> evicting(const std::vector<int> &sequence, int64_t most, int64_t &share, double until) const {
    return has(DagPart::Evicting) ? detail::evictingRuns(d, sequence, most, share, until) : std::vector<Runs>();
  }

  void consider(const Runs &runs) {
    if (runs.empty() && n)
      return;
    Cost c = simulate(d, runs);
    if (c.peak < 0)
      return;
    s.leastBudget = std::min(s.leastBudget, c.peak);
    if (c.peak <= budget && (best.empty() || c.cost < bestCost.cost))
      best = runs, bestCost = c;
  }

  // The end of a phase that may take this share of the time limit, but leaves the last tenth of it.
  double part(double share) const {
    return deadline > 0 ? std::min(detail::secondsNow() + share * limits.seconds, deadline - 0.1 * limits.seconds) : 0;
  }

  void exact(int64_t share, double until) {
    if (!has(DagPart::Exact))
      return;
    int64_t given = std::min(work, share), left = given;
    double upper = best.empty() ? 1e300 : bestCost.cost - base;
    if (!best.empty() && upper <= 0) {
      exactDone = true;
      return;
    }
    detail::ExactResult r = detail::searchExact(d, order, budget, upper, left, until);
    work -= given - left;
    proved = std::max(proved, r.proved);
    exactDone = r.complete;
    if (r.found)
      consider(r.runs);
  }

  // Below the budget the cheap ones, above it the small ones.
  double score(const Cost &c) const {
    double over = double(std::max<int64_t>(0, c.peak - budget)) / double(std::max<int64_t>(budget, 1));
    return c.cost / std::max(base, 1e-300) + 4 * over;
  }

  // Schedules by the nested structure along an order, polished; if nothing fits this way, some that need a little more.
  std::vector<Runs> nested(const std::vector<int> &sequence, int64_t &share, double until) const {
    std::vector<Runs> result;
    if (!has(DagPart::Nested))
      return result;
    for (double more : {1.0, 1.15}) {
      int64_t most = int64_t(double(budget) * more);
      for (Runs &runs : detail::nestedRuns(d, order, sequence, most, share, until)) {
        share -= 8 * int64_t(runs.size());
        result.push_back(polished(runs, most, order == Order::Given));
      }
      if (!result.empty())
        break;
    }
    return result;
  }

  // Fills the starts of a trail: what its nested structure allows, and greedy eviction. If nothing fits, eviction is tried with a little more than
  // the budget, too. Returns the work done.
  int64_t prepare(Trail &t, int64_t share, double until) const {
    std::vector<Start> list;
    int64_t left = share;
    auto add = [&](Runs &&runs) {
      Cost c = simulate(d, runs);
      left -= 4 * int64_t(runs.size());
      list.push_back({std::move(runs), c});
    };
    add(Runs(t.sequence));
    bool fits = false, nests = false;
    if (&t != &trails.front()) {
      int64_t half = left / 2, unused = half;
      t.nested = nested(t.sequence, unused, until);
      left -= half - unused;
    }
    for (Runs &runs : t.nested) {
      add(std::move(runs));
      nests |= list.back().cost.peak <= budget;
    }
    for (double more : {1.0, 1.1, 1.3}) {
      if (more > 1 && nests)
        break;
      int64_t given = std::max<int64_t>(left, 0) / (more > 1 ? 4 : 1), rest = given;
      if (!fits)
        for (Runs &runs : evicting(t.sequence, int64_t(double(budget) * more), rest, until))
          add(std::move(runs)), fits = true;
      left -= given - rest;
      fits = fits && more == 1.0;
    }
    std::stable_sort(list.begin(), list.end(),
                     [&](const Start &a, const Start &b) { return score(a.cost) < score(b.cost); });
    // And the cheapest that fits as it is.
    const Start *fitting = nullptr;
    for (const Start &x : list)
      if (x.cost.peak <= budget && (!fitting || x.cost.cost < fitting->cost.cost))
        fitting = &x;
    for (const Start &x : list)
      if (t.starts.size() < 4 && std::find(t.starts.begin(), t.starts.end(), x.runs) == t.starts.end())
        t.starts.push_back(x.runs);
    if (fitting && std::find(t.starts.begin(), t.starts.end(), fitting->runs) == t.starts.end())
      t.starts.push_back(fitting->runs);
    return share - left;
  }

  Look look(const Trail &t, int64_t share, double until, uint64_t seed) const {
    Look result;
    int64_t left = share;
    if (!has(DagPart::Annealing))
      return result;
    result.runs = detail::searchRetention(d, t.sequence, budget, t.starts, left, until, seed, result.smallest);
    if (!result.runs.empty())
      result.runs = polished(result.runs, budget, true);
    result.used = share - left;
    return result;
  }

  void take(Trail &t, Look &&found) {
    work -= found.used;
    consider(found.smallest);
    consider(found.runs);
    if (!found.runs.empty()) {
      double cost = simulate(d, found.runs).cost;
      bool better = cost < t.reached;
      t.reached = std::min(t.reached, cost);
      t.starts.insert(t.starts.begin() + (better || t.starts.empty() ? 0 : 1), std::move(found.runs));
      if (t.starts.size() > 5)
        t.starts.pop_back();
    } else if (!found.smallest.empty()) {
      Cost c = simulate(d, found.smallest);
      t.reached = std::min(t.reached, 1e200 * double(c.peak) / double(std::max<int64_t>(budget, 1)));
    }
  }

  // From many moments together, the quick methods first. Returns the extra cost that is proved.
  double lowerBound(int64_t left, double until) const {
    double target = bestCost.cost - base, proof = cut;
    using Bound = double (*)(const Dag &, Order, int64_t, double, int64_t &, double);
    int fraction = 4;
    for (auto [method, bound] : {std::pair<DagPart, Bound>{DagPart::Windows, detail::windowBound}, {DagPart::Intervals, detail::intervalBound}}) {
      int64_t given = left / fraction, rest = given;
      if (proof < target && has(method))
        proof = std::max(proof, bound(d, order, budget, target, rest, fraction > 1 ? part(0.1) : until));
      left -= given - rest, fraction /= 4;
    }
    return proof;
  }

  void searchLarge() {
    // A glance: where little is affordable an exact search from a good start ends at once.
    int64_t glance = std::min<int64_t>(limits.work / kShares.glance, kShares.mostGlance), rest = glance;
    for (const Runs &runs : evicting(trails.front().sequence, budget, rest, part(0.02)))
      consider(runs);
    work -= glance - rest;
    int64_t most = limits.work / (n > kMedium ? kShares.nestLarge : kShares.nest), unused = most;
    trails.front().nested = nested(trails.front().sequence, unused, part(0.2));
    for (const Runs &runs : trails.front().nested)
      consider(runs);
    work -= most - unused;
    if (exact(3 * glance, part(0.03)); exactDone)
      return;
    // A first look along every order.
    std::vector<int64_t> used(trails.size(), 0);
    std::vector<Look> looks(trails.size());
    std::vector<std::function<void()>> tasks;
    int64_t share = limits.work / kShares.look / int64_t(std::max<size_t>(trails.size(), 2));
    double until = part(0.2), mid = part(0.1);
    for (size_t i = 0; i < trails.size(); ++i)
      tasks.push_back([&, i] {
        used[i] = prepare(trails[i], share, mid);
        looks[i] = look(trails[i], share, until, 1);
      });
    // The bound at single moments needs no schedule.
    int64_t cutWork = limits.work / kShares.cut, cutLeft = cutWork;
    if (has(DagPart::Cuts))
      tasks.push_back([&] { cut = detail::cutBound(d, order, budget, cutLeft, mid); });
    inPairs(tasks);
    work -= cutWork - cutLeft;
    for (size_t i = 0; i < trails.size(); ++i) {
      work -= used[i];
      for (const Runs &runs : trails[i].starts)
        consider(runs);
      take(trails[i], std::move(looks[i]));
    }
    exact(limits.work / kShares.exact, part(0.05));
    if (exactDone)
      return;
    // The rest on the best order, beside the bound.
    Trail &top = *std::min_element(trails.begin(), trails.end(),
                                   [](const Trail &a, const Trail &b) { return a.reached < b.reached; });
    for (int phase = 0; phase < 2 && work > 0; ++phase) {
      // A large graph is done when hardly anything is left to find.
      if (n > kMedium && !best.empty() && base + cut >= bestCost.cost * (1 - 1e-4))
        break;
      bool bounds = phase == 0 && !best.empty() && base + cut < 0.999 * bestCost.cost;
      int64_t each = std::max<int64_t>(phase ? work / 2 : work / 3, 1), left = each;
      double end = part(phase ? 1 : 0.4), bound = 0;
      Look first, second;
      inPairs({[&] { first = look(top, each, end, 2 + 2 * phase); },
               [&] {
                 if (!bounds) {
                   second = look(top, each, end, 3 + 2 * phase);
                   return;
                 }
                 bound = lowerBound(5 * each / 2, end); // its steps are short ones
                 left = 0;
               }});
      cut = std::max(cut, bound), work -= each - left;
      take(top, std::move(first));
      if (!bounds)
        take(top, std::move(second));
      if (phase == 0 && base + cut < bestCost.cost)
        exact(limits.work / kShares.exact, part(0.05));
      if (exactDone)
        return;
    }
  }

  // The least budget: exactly where the graph is small, else a search for the smallest peak.
  void findLeastBudget() {
    if (n <= 14) {
      // Every query either finds a schedule, whose own peak is the new upper end, or proves that the budget is too
      // small.
      int64_t low = s.memoryBound; // not yet known to be too small
      while (low < s.leastBudget) {
        int64_t middle = low + (s.leastBudget - low) / 2, left = INT64_MAX / 4;
        detail::ExactResult r = detail::searchExact(d, order, middle, 1e300, left, 0);
        if (r.found)
          consider(r.runs);
        else if (r.complete)
          low = middle + 1;
        else
          break;
      }
      return;
    }
    if (s.leastBudget <= s.memoryBound || trails.empty())
      return;
    int64_t share = std::max<int64_t>(limits.work / kShares.least / int64_t(trails.size()), kShares.leastSteps);
    double until = deadline > 0 ? std::min(detail::secondsNow() + 0.04 * limits.seconds, deadline) : 0;
    std::vector<std::array<Runs, 3>> found(trails.size());
    std::vector<std::function<void()>> tasks;
    for (size_t i = 0; i < trails.size(); ++i)
      tasks.push_back([&, i] {
        // Halving between what is known and the bound by eviction, then the retention search from the smallest.
        int64_t low = s.memoryBound, high = s.leastBudget, left = share;
        Runs &smallest = found[i][0];
        for (int step = 0; step < 6 && low < high && left > 0; ++step) {
          int64_t middle = low + (high - low) / 2, given = left / 4, rest = given;
          std::vector<Runs> list = evicting(trails[i].sequence, middle, rest, until);
          left -= given - rest;
          for (Runs &runs : list)
            if (int64_t peak = simulate(d, runs).peak; peak < high)
              high = peak, smallest = std::move(runs);
          if (list.empty())
            low = middle + 1;
        }
        std::vector<Runs> starts = trails[i].starts;
        if (!smallest.empty())
          starts.assign(1, smallest);
        if (starts.empty())
          starts.push_back(trails[i].sequence);
        left = std::max<int64_t>(left, share / 2);
        found[i][1] = detail::searchRetention(d, trails[i].sequence, s.memoryBound, starts, left, until, 7,
                                              found[i][2]);
      });
    inPairs(tasks);
    for (auto &list : found)
      for (const Runs &runs : list)
        consider(runs);
  }

  DagSolution conclude() {
    if (budget < s.memoryBound || (exactDone && best.empty()))
      s.status = DagSolution::Infeasible;
    else if (best.empty())
      s.status = DagSolution::Unknown;
    if (best.empty()) {
      s.bound = base + std::max({proved, cut, 0.0});
      return s;
    }
    s.runs = best, s.cost = bestCost;
    detail::judge(s, base + std::max(proved, cut), exactDone);
    return s;
  }

  const Dag &d;
  Order order;
  int64_t budget;
  DagLimits limits;
  int n;
  double base;
  int64_t work;
  double deadline = 0;
  DagSolution s;
  Runs best;
  Cost bestCost;
  std::vector<Trail> trails;
  bool exactDone = false;
  double proved = 0, cut = 0; // extra cost below which there is no schedule
};

} // namespace

DagSolution solve(const Dag &d, Order order, int64_t budget, const DagLimits &limits) {
  if (d.nodes.empty()) { // nothing is run, at no cost, and nothing is held
    DagSolution s;
    s.status = DagSolution::Optimal;
    return s;
  }
  return Solver(d, order, budget, limits).run();
}

} // namespace cinch::solve
