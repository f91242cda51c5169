// DagSearch.cpp: local search over what is held from stage to stage.
//
// Stage t ends with the first computation of the t-th node of the order (the frontier-advancing stages of Checkmate).
// A set S[t] of values is held on entering stage t; everything else that stage t reads, or that S[t + 1] asks for, is
// computed in it again, in the order of the nodes. So S decides everything, and a move that changes S for one value
// over a range of stages changes the cost and the peak of those stages alone: it is evaluated exactly, in
// microseconds.
//
// Moves: hold a value from where it last existed to where it was computed again; let it go between two uses; let it go
// and hold one near it in the graph instead.
// Simulated annealing on cost plus a price on bytes above the budget; the price rises while the budget is broken and
// falls while it is kept, so the search walks along the border of what fits.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/Random.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {
namespace {

class Retention {
public:
  Retention(const Dag &d, const std::vector<int> &order, int64_t budget)
      : order(order), budget(budget), n(d.size()), words((n + 63) / 64) {
    std::vector<int> at(n);
    for (int t = 0; t < n; ++t)
      at[order[t]] = t;
    sources.resize(n), users.resize(n);
    double total = 0;
    for (int t = 0; t < n; ++t) {
      const Dag::Node &node = d.nodes[order[t]];
      cost.push_back(node.cost), bytes.push_back(node.bytes);
      total += node.cost;
      for (int u : node.sources)
        sources[t].push_back(at[u]), users[at[u]].push_back(t);
    }
    mean = std::max(total / std::max(n, 1), 1e-30);
    for (double &c : cost)
      c += 1e-7 * mean; // a node without cost is not repeated for nothing
    for (auto &list : sources)
      std::sort(list.begin(), list.end());
    for (auto &list : users)
      std::sort(list.begin(), list.end());
    held.assign(size_t(n + 1) * words, 0), ran.assign(size_t(n) * words, 0);
    stages.resize(n), hold.assign(n + 1, 0), mark.assign(n, 0), uses.assign(n, 0);
  }

  bool isHeld(int t, int v) const { return held[size_t(t) * words + v / 64] >> (v % 64) & 1; }
  bool didRun(int t, int v) const { return ran[size_t(t) * words + v / 64] >> (v % 64) & 1; }
  bool isUsed(int t, int v) const {
    for (int w : users[v]) {
      if (w > t)
        break;
      if (didRun(t, w))
        return true;
    }
    return false;
  }

  struct Stage {
    std::vector<int> runs;
    double cost = 0;
    int64_t peak = 0;
  };

  // Sets S from a run along the order: a value is held between stages as the run holds it.
  void load(const Runs &run) {
    std::fill(held.begin(), held.end(), 0);
    std::vector<int> at(n), stageOf(run.size());
    for (int t = 0; t < n; ++t)
      at[order[t]] = t;
    int stage = 0;
    std::vector<char> done(n, 0);
    for (size_t i = 0; i < run.size(); ++i) {
      stageOf[i] = stage;
      if (!done[at[run[i]]])
        done[at[run[i]]] = 1, ++stage;
    }
    // Backward: the stage of the last read of the copy that is current.
    std::vector<int> needed(n, -1);
    for (size_t i = run.size(); i-- > 0;) {
      int v = at[run[i]], t = std::min(stageOf[i], n - 1);
      for (int s = t + 1; s <= needed[v]; ++s)
        held[size_t(s) * words + v / 64] |= uint64_t(1) << (v % 64);
      needed[v] = -1;
      for (int u : sources[v])
        needed[u] = std::max(needed[u], t);
    }
    reload();
  }

  void reload() {
    for (int t = 0; t <= n; ++t) {
      hold[t] = 0;
      for (int w = 0; w < words; ++w)
        for (uint64_t bits = held[size_t(t) * words + w]; bits; bits &= bits - 1)
          hold[t] += bytes[w * 64 + __builtin_ctzll(bits)];
    }
    totalCost = 0, totalOver = 0;
    for (int t = 0; t < n; ++t) {
      stages[t] = {};
      evaluate(t);
      totalCost += stages[t].cost, totalOver += over(stages[t].peak);
    }
  }

  double over(int64_t peak) const { return peak > budget ? double(peak - budget) : 0; }

  // What stage t computes, at what cost and peak.
  void evaluate(int t) {
    Stage &s = stages[t];
    const uint64_t *now = &held[size_t(t) * words], *next = &held[size_t(t + 1) * words];
    uint64_t *bits = &ran[size_t(t) * words];
    for (int v : s.runs)
      bits[v / 64] = 0;
    std::vector<int> &cone = s.runs;
    cone.clear();
    cone.push_back(t), mark[t] = 1;
    for (int w = 0; w < words; ++w)
      for (uint64_t b = next[w] & ~now[w]; b; b &= b - 1) {
        int v = w * 64 + __builtin_ctzll(b);
        if (!mark[v])
          mark[v] = 1, cone.push_back(v);
      }
    s.cost = 0;
    for (size_t i = 0; i < cone.size(); ++i) {
      s.cost += cost[cone[i]];
      for (int u : sources[cone[i]]) {
        ++uses[u];
        if (!mark[u] && !(now[u / 64] >> (u % 64) & 1))
          mark[u] = 1, cone.push_back(u);
      }
    }
    steps += int64_t(cone.size()) * 6 + words * 2 + 4;
    std::sort(cone.begin(), cone.end());
    int64_t live = hold[t], peak = 0;
    for (int w = 0; w < words; ++w)
      for (uint64_t b = now[w] & ~next[w]; b; b &= b - 1) {
        int v = w * 64 + __builtin_ctzll(b);
        if (!uses[v])
          live -= bytes[v];
      }
    for (int v : cone) {
      live += bytes[v];
      peak = std::max(peak, live);
      mark[v] = 0;
      bits[v / 64] |= uint64_t(1) << (v % 64);
      for (int u : sources[v])
        if (--uses[u] == 0 && !(next[u / 64] >> (u % 64) & 1))
          live -= bytes[u];
      if (!uses[v] && !(next[v / 64] >> (v % 64) & 1))
        live -= bytes[v];
    }
    s.peak = peak;
  }

  // Holds (or not) v on entering the stages [from, to]. A stage that v only passes through, held where it was not or
  // the other way round, keeps its computations: its peak moves by the bytes of v. The others are evaluated.
  void change(int v, int from, int to, bool on) {
    if (changes == int(undos.size()))
      undos.emplace_back();
    Undo &u = undos[changes++];
    u.from = from, u.to = to, u.value = v, u.count = 0;
    u.bits.clear(), u.shifted.clear();
    u.cost = totalCost, u.over = totalOver;
    int64_t move = on ? bytes[v] : -bytes[v];
    for (int t = from; t <= to; ++t) {
      bool flips = isHeld(t, v) != on;
      u.bits.push_back(flips);
      if (!flips)
        continue;
      held[size_t(t) * words + v / 64] ^= uint64_t(1) << (v % 64);
      hold[t] += move;
    }
    for (int t = from - 1; t <= std::min(to, n - 1); ++t) {
      bool passes = t >= from && t < to && u.bits[t - from] && u.bits[t + 1 - from] && !didRun(t, v) &&
                    (on || !isUsed(t, v));
      u.shifted.push_back(passes);
      Stage &s = stages[t];
      if (passes) {
        totalOver -= over(s.peak);
        s.peak += move;
        totalOver += over(s.peak);
        continue;
      }
      if (u.count == int(u.stages.size()))
        u.stages.emplace_back();
      totalCost -= s.cost, totalOver -= over(s.peak);
      uint64_t *bits = &ran[size_t(t) * words];
      for (int w : s.runs)
        bits[w / 64] = 0;
      std::swap(s, u.stages[u.count++]);
      s.runs.clear();
      evaluate(t);
      totalCost += s.cost, totalOver += over(s.peak);
    }
    steps += (to - from) / 2;
  }
  // The changes since the last accept or undo are kept, or taken back.
  void accept() { changes = 0; }
  void undo() {
    while (changes > 0)
      undoOne(undos[--changes]);
  }

  Runs runs() const {
    Runs result;
    for (const Stage &s : stages)
      for (int v : s.runs)
        result.push_back(order[v]);
    return result;
  }
  int64_t peak() const {
    int64_t most = 0;
    for (const Stage &s : stages)
      most = std::max(most, s.peak);
    return most;
  }

  const std::vector<int> &order;
  int64_t budget;
  int n, words;
  std::vector<double> cost;
  std::vector<int64_t> bytes;
  std::vector<std::vector<int>> sources, users;
  std::vector<uint64_t> held, ran;
  std::vector<Stage> stages;
  std::vector<int64_t> hold;
  double totalCost = 0, totalOver = 0, mean = 1;
  int64_t steps = 0;

private:
  std::vector<char> mark;
  std::vector<int> uses;
  struct Undo {
    std::vector<Stage> stages; // the first `count` of them, for the stages that did not shift
    std::vector<char> bits, shifted;
    int from = 0, to = 0, value = 0, count = 0;
    double cost = 0, over = 0;
  };
  void undoOne(Undo &u) {
    int64_t move = 0;
    for (int t = u.from; t <= u.to; ++t) {
      if (!u.bits[t - u.from])
        continue;
      move = isHeld(t, u.value) ? -bytes[u.value] : bytes[u.value];
      held[size_t(t) * words + u.value / 64] ^= uint64_t(1) << (u.value % 64);
      hold[t] += move;
    }
    for (size_t i = 0, k = 0; i < u.shifted.size(); ++i) {
      int t = u.from - 1 + int(i);
      if (u.shifted[i]) {
        stages[t].peak += move;
        continue;
      }
      uint64_t *bits = &ran[size_t(t) * words];
      for (int v : stages[t].runs)
        bits[v / 64] = 0;
      std::swap(stages[t], u.stages[k++]);
      for (int v : stages[t].runs)
        bits[v / 64] |= uint64_t(1) << (v % 64);
    }
    totalCost = u.cost, totalOver = u.over;
  }

  std::vector<Undo> undos; // the first `changes` of them
  int changes = 0;
};

struct Move {
  int value = -1, from = 0, to = 0;
  bool on = false;
};

struct AnnealingLimits {
  int stageTries = 12;           // to hit a stage that breaks the budget
  int letGo = 35, letGoOver = 75; // of a hundred moves give up a value: more of them while the budget is broken
  int swaps = 20;                // of a hundred moves give up one value for another
  // Walk along the border: every so many moves bytes become dearer if the budget was mostly broken, cheaper if mostly kept.
  int check = 200, mostlyBroken = 140, mostlyKept = 60;
  double dearer = 1.15, cheaper = 0.92;
  // Steps of one annealing for each node, and at least; while nothing fits longer ones, so that the price of bytes has time to rise.
  int64_t steps = 20'000, leastSteps = 200'000, stepsUnfit = 400'000;
  int64_t timesUnfit = 8, shareOfWork = 8;
  // Temperatures in mean costs of a node: at first, while nothing fits, and then in turn; at the end.
  double hotFirst = 0.1, hotUnfit = 0.3, hotInTurn[6] = {0.05, 0.15, 0.1, 0.25, 0.05, 0.1};
  double cold = 0.003, coldUnfit = 0.01;
};
constexpr AnnealingLimits kAnneal;

class Annealer {
public:
  Annealer(Retention &r, Random &rng) : r(r), rng(rng) {}

  // A stage that breaks the budget, if there is one and luck has it; else any.
  int pickStage(bool broken) {
    if (broken)
      for (int tries = 0; tries < kAnneal.stageTries; ++tries) {
        int t = rng.below(r.n);
        if (r.stages[t].peak > r.budget)
          return t;
      }
    return rng.below(r.n);
  }

  Move letGo(int t) {
    Move m;
    if (t == 0)
      return m;
    // A random held value.
    int count = 0;
    const uint64_t *now = &r.held[size_t(t) * r.words];
    for (int w = 0; w < r.words; ++w)
      count += __builtin_popcountll(now[w]);
    if (!count)
      return m;
    int pick = rng.below(count), v = -1;
    for (int w = 0; w < r.words && v < 0; ++w) {
      int here = __builtin_popcountll(now[w]);
      if (pick >= here) {
        pick -= here;
        continue;
      }
      uint64_t b = now[w];
      while (pick--)
        b &= b - 1;
      v = w * 64 + __builtin_ctzll(b);
    }
    // The gap between the uses before and after; sometimes all of the hold, or a part.
    int from = t, to = t;
    int kind = rng.below(8);
    while (from - 1 > v && r.isHeld(from - 1, v) && (kind == 0 || !r.isUsed(from - 1, v)) && !r.didRun(from - 1, v))
      --from;
    while (to + 1 <= r.n - 1 && r.isHeld(to + 1, v) && (kind == 0 || !r.isUsed(to, v)))
      ++to;
    if (kind == 1 && to > from)
      to = from + rng.below(to - from);
    m = {v, from, to, false};
    return m;
  }

  Move keep(int t) {
    Move m;
    const std::vector<int> &runs = r.stages[t].runs;
    if (runs.size() < 2)
      return m;
    int v = runs[rng.below(int(runs.size()) - 1)];
    if (v == t)
      return m;
    int from = t;
    while (from - 1 >= v && !r.isHeld(from - 1, v) && !r.didRun(from - 1, v))
      --from;
    if (rng.below(8) == 0 && t > from) // computed again earlier, from where on it is held
      from += rng.below(t - from + 1);
    m = {v, from, t, true};
    return m;
  }

  // Lets go of a held value and holds another one near it in the graph over the same stages: a checkpoint moves.
  bool swap(int t) {
    Move m = letGo(t);
    if (m.value < 0)
      return false;
    int other = m.value;
    for (int hops = 1 + rng.below(3); hops > 0; --hops) {
      const std::vector<int> &up = r.sources[other], &down = r.users[other];
      int pick = rng.below(int(up.size() + down.size()));
      other = pick < int(up.size()) ? up[pick] : down[pick - int(up.size())];
    }
    int from = std::max(m.from, other + 1);
    if (other == m.value || from > m.to)
      return false;
    while (from - 1 > other && !r.isHeld(from - 1, other) && !r.didRun(from - 1, other))
      --from;
    r.change(m.value, m.from, m.to, false);
    r.change(other, from, m.to, true);
    return true;
  }

  void run(int64_t allowance, double hot, double cold, double &price, Runs &best, double &bestCost,
           int64_t &smallestPeak, Runs &smallest, double deadline) {
    int64_t start = r.steps;
    double current = r.totalCost + price * r.totalOver;
    double temperature = hot;
    int sinceCheck = 0, broken = 0;
    for (int64_t iteration = 0;; ++iteration) {
      if ((iteration & 63) == 0) {
        double part = double(r.steps - start) / double(std::max<int64_t>(allowance, 1));
        if (part >= 1 || (deadline > 0 && (iteration & 1023) == 0 && detail::secondsNow() > deadline))
          return;
        temperature = hot * std::pow(cold / hot, part);
      }
      r.steps += 8;
      bool over = r.totalOver > 0.5;
      int choice = rng.below(100);
      bool swaps = rng.below(100) < kAnneal.swaps;
      Move m;
      if (!swaps)
        m = choice < (over ? kAnneal.letGoOver : kAnneal.letGo) ? letGo(pickStage(over)) : keep(rng.below(r.n));
      broken += over;
      if (++sinceCheck == kAnneal.check) {
        if (broken > kAnneal.mostlyBroken)
          price *= kAnneal.dearer;
        else if (broken < kAnneal.mostlyKept)
          price *= kAnneal.cheaper;
        current = r.totalCost + price * r.totalOver;
        sinceCheck = broken = 0;
        if (int64_t peak = r.peak(); peak < smallestPeak) {
          smallestPeak = peak;
          smallest = r.runs();
        }
      }
      if (swaps ? !swap(pickStage(over && choice < 50)) : m.value < 0)
        continue;
      if (!swaps)
        r.change(m.value, m.from, m.to, m.on);
      double next = r.totalCost + price * r.totalOver;
      double worse = next - current;
      if (worse > 0 && rng.unit() >= std::exp(-worse / temperature)) {
        r.undo();
        continue;
      }
      r.accept();
      current = next;
      if (r.totalOver < 0.5 && r.totalCost < bestCost - 1e-9 * r.mean) {
        bestCost = r.totalCost;
        best = r.runs();
      }
    }
  }

private:
  Retention &r;
  Random &rng;
};

} // namespace

Runs detail::searchRetention(const Dag &d, const std::vector<int> &order, int64_t budget,
                             const std::vector<Runs> &starts, int64_t &work, double deadline, uint64_t seed,
                             Runs &smallest) {
  Retention r(d, order, budget);
  Random rng{seed * Random::kSpread + 0x1234567};
  Annealer annealer(r, rng);
  Runs best;
  double bestCost = 1e300;
  int64_t smallestPeak = INT64_MAX;
  int64_t totalBytes = 1;
  for (int64_t b : r.bytes)
    totalBytes += b;
  double basePrice = r.mean * r.n / double(totalBytes);
  auto note = [&] {
    if (r.peak() < smallestPeak)
      smallestPeak = r.peak(), smallest = r.runs();
    if (r.totalOver < 0.5 && r.totalCost < bestCost)
      bestCost = r.totalCost, best = r.runs();
  };
  // Annealings from each start, then in turn from the best, from the best heated more, and from a start again, ever
  // longer.
  Runs promising;
  double promisingScore = 1e300;
  int64_t quota = std::clamp<int64_t>(kAnneal.steps * int64_t(r.n), kAnneal.leastSteps, std::max<int64_t>(work / kAnneal.shareOfWork, 1));
  int count = int(starts.size());
  for (int round = 0; work > 0 && count > 0; ++round) {
    if (deadline > 0 && detail::secondsNow() > deadline)
      break;
    int turn = round - count;
    double hot = turn < 0 ? kAnneal.hotFirst : kAnneal.hotInTurn[turn % 6];
    bool fits = !best.empty();
    int64_t allowance =
        fits ? quota
             : std::max<int64_t>(kAnneal.timesUnfit * quota, std::min<int64_t>(work / kAnneal.shareOfWork, kAnneal.stepsUnfit * int64_t(r.n)));
    if (!fits)
      hot = kAnneal.hotUnfit;
    if (turn < 0 || turn % 3 == 2)
      r.load(starts[turn < 0 ? round : turn / 3 % count]);
    else
      r.load(best.empty() ? promising : best);
    note();
    double price = basePrice;
    int64_t before = r.steps;
    annealer.run(std::min(allowance, work), r.mean * hot, r.mean * (fits ? kAnneal.cold : kAnneal.coldUnfit), price, best, bestCost,
                 smallestPeak, smallest, deadline);
    work -= r.steps - before;
    double score = r.totalCost + 3 * price * r.totalOver;
    if (score < promisingScore)
      promisingScore = score, promising = r.runs();
    if (turn >= 0 && turn % 3 == 2)
      quota += quota / 2;
  }
  return best;
}

} // namespace cinch::solve
