// Shards.cpp: see Shards.h.
#include "compiler/solve/shards/Shards.h"

#include <algorithm>
#include <map>

namespace cinch::solve {
namespace {

// Of a value that is still read.
struct Live {
  int value = 0, form = 0;
  uint32_t met = 0; // needs, a bit each
  bool operator<(const Live &other) const { return std::tie(value, form, met) < std::tie(other.value, other.form, other.met); }
};
using Frontier = std::vector<Live>; // by value

// Brings the operands into the forms that a way needs. False: it cannot be.
bool take(const ShardProblem &p, const ShardProblem::Op &op, const ShardProblem::Way &way, Frontier &frontier, ShardCost &cost) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    auto live = std::find_if(frontier.begin(), frontier.end(), [&](const Live &each) { return each.value == op.operands[i]; });
    if (live == frontier.end())
      return false;
    int need = way.needs[i];
    if (live->met >> need & 1)
      continue;
    const std::optional<ShardCost> &become = p.values[size_t(live->value)].become[size_t(live->form)][size_t(need)];
    if (!become)
      return false;
    live->met |= uint32_t(1) << need;
    cost += *become;
  }
  return true;
}

void give(const ShardProblem &p, const ShardProblem::Op &op, const ShardProblem::Way &way, Frontier &frontier, ShardCost &cost) {
  cost += way.cost;
  for (size_t i = 0; i < op.results.size(); ++i) {
    frontier.push_back({op.results[i], way.gives[i], 0});
    cost += p.values[size_t(op.results[i])].forms[size_t(way.gives[i])];
  }
}

struct State {
  ShardCost cost;
  int before = -1, way = -1; // the state of the step before, and what was done since
};

using States = std::map<Frontier, State>;

} // namespace

std::optional<ShardCost> costOf(const ShardProblem &p, const std::vector<int> &ways) {
  ShardCost cost;
  Frontier frontier;
  for (size_t i = 0; i < p.ops.size(); ++i) {
    const ShardProblem::Way &way = p.ops[i].ways[size_t(ways[i])];
    if (!take(p, p.ops[i], way, frontier, cost))
      return std::nullopt;
    give(p, p.ops[i], way, frontier, cost);
  }
  return cost;
}

namespace {

// The walk over the ops.
class Walk {
public:
  Walk(const ShardProblem &p, size_t limit) : p(p), limit(limit), uses(p.values.size()) {
    for (size_t i = 0; i < p.ops.size(); ++i)
      for (size_t k = 0; k < p.ops[i].operands.size(); ++k) {
        uint32_t needs = 0;
        for (const ShardProblem::Way &way : p.ops[i].ways)
          needs |= uint32_t(1) << way.needs[k];
        uses[size_t(p.ops[i].operands[k])].push_back({i, needs});
      }
  }

  ShardSolution run() {
    ShardSolution solution;
    steps.push_back({State()});
    for (size_t i = 0; i < p.ops.size(); ++i) {
      States next = statesAfter(i);
      std::vector<States::iterator> order = undominated(next, i);
      if (order.size() > limit) {
        order.resize(limit); // they stand by their cost
        solution.exact = false;
      }
      frontiers.clear();
      steps.emplace_back();
      for (auto it : order) {
        frontiers.push_back(it->first);
        steps.back().push_back(it->second);
      }
      if (order.empty())
        return solution;
    }
    choose(solution);
    return solution;
  }

private:
  States statesAfter(size_t i) const {
    const ShardProblem::Op &op = p.ops[i];
    States next;
    for (size_t s = 0; s < frontiers.size(); ++s)
      for (size_t w = 0; w < op.ways.size(); ++w) {
        Frontier frontier = frontiers[s];
        State state{steps.back()[s].cost, int(s), int(w)};
        if (!take(p, op, op.ways[w], frontier, state.cost))
          continue;
        give(p, op, op.ways[w], frontier, state.cost);
        forget(frontier, i);
        auto [known, fresh] = next.try_emplace(std::move(frontier), state);
        if (!fresh && state.cost < known->second.cost)
          known->second = state;
      }
    return next;
  }

  bool isReadAfter(int value, size_t op) const { return !uses[size_t(value)].empty() && uses[size_t(value)].back().op > op; }
  uint32_t needsAfter(int value, size_t op) const {
    uint32_t needs = 0;
    for (auto use = uses[size_t(value)].rbegin(); use != uses[size_t(value)].rend() && use->op > op; ++use)
      needs |= use->needs;
    return needs;
  }

  // What nobody asks for any more.
  void forget(Frontier &frontier, size_t op) const {
    frontier.erase(std::remove_if(frontier.begin(), frontier.end(), [&](const Live &live) { return !isReadAfter(live.value, op); }), frontier.end());
    for (Live &live : frontier)
      live.met &= needsAfter(live.value, op);
    std::sort(frontier.begin(), frontier.end());
  }

  // Adds to `cost` what it costs at most that a value is as in `one`, not as in `other`, whatever is still asked of it (`needs`). False: `other`
  // can become what `one` cannot.
  bool addWorse(const Live &one, const Live &other, uint32_t needs, ShardCost &cost) const {
    auto &become = p.values[size_t(one.value)].become;
    for (int need = 0; need < 32; ++need) {
      if (!(needs >> need & 1) || one.met >> need & 1)
        continue;
      const std::optional<ShardCost> &mine = become[size_t(one.form)][size_t(need)];
      std::optional<ShardCost> its = other.met >> need & 1 ? ShardCost() : become[size_t(other.form)][size_t(need)];
      if (!its)
        continue;
      if (!mine)
        return false;
      cost += {std::max<int64_t>(0, mine->work - its->work), std::max<int64_t>(0, mine->bytes - its->bytes),
               std::max<int64_t>(0, mine->held - its->held)};
    }
    return true;
  }

  // By their cost, without those that another one makes useless: whatever is done from there can be done from the other, and costs no more.
  std::vector<States::iterator> undominated(States &states, size_t op) const {
    std::vector<States::iterator> order, left;
    for (auto it = states.begin(); it != states.end(); ++it)
      order.push_back(it);
    std::stable_sort(order.begin(), order.end(), [](auto a, auto b) { return a->second.cost < b->second.cost; });
    const size_t values = order.empty() ? 0 : order.front()->first.size(); // those that are alive: the same in all states
    // States have each of them in few kinds, which are compared once.
    std::vector<std::vector<Live>> kinds(values);
    std::vector<size_t> kindOf; // of each state and value
    for (States::iterator it : order)
      for (size_t i = 0; i < values; ++i) {
        const Live &live = it->first[i];
        auto known = std::find_if(kinds[i].begin(), kinds[i].end(), [&](const Live &kind) { return kind.form == live.form && kind.met == live.met; });
        kindOf.push_back(size_t(known - kinds[i].begin()));
        if (known == kinds[i].end())
          kinds[i].push_back(live);
      }
    std::vector<std::vector<std::optional<ShardCost>>> worse(values); // of two kinds: what addWorse adds; none: it says false
    for (size_t i = 0; i < values; ++i)
      for (const Live &one : kinds[i])
        for (const Live &other : kinds[i]) {
          ShardCost cost;
          worse[i].push_back(addWorse(one, other, needsAfter(one.value, op), cost) ? std::optional<ShardCost>(cost) : std::nullopt);
        }
    auto serves = [&](size_t one, size_t other) {
      ShardCost cost = order[one]->second.cost;
      for (size_t i = 0; i < values; ++i) {
        const std::optional<ShardCost> &more = worse[i][kindOf[one * values + i] * kinds[i].size() + kindOf[other * values + i]];
        if (!more || order[other]->second.cost < (cost += *more))
          return false;
      }
      return true;
    };
    std::vector<size_t> kept;
    for (size_t s = 0; s < order.size() && kept.size() <= limit; ++s) // behind more than these all cost more, and are left out
      if (std::none_of(kept.begin(), kept.end(), [&](size_t other) { return serves(other, s); })) {
        kept.push_back(s);
        left.push_back(order[s]);
      }
    return left;
  }

  void choose(ShardSolution &solution) const {
    size_t best = 0;
    for (size_t s = 1; s < steps.back().size(); ++s)
      if (steps.back()[s].cost < steps.back()[best].cost)
        best = s;
    solution.cost = steps.back()[best].cost;
    solution.ways.resize(p.ops.size());
    for (size_t i = p.ops.size(); i-- > 0;) {
      const State &state = steps[i + 1][best];
      solution.ways[i] = state.way;
      best = size_t(state.before);
    }
  }

  const ShardProblem &p;
  size_t limit;
  struct Use {
    size_t op;
    uint32_t needs; // that its ways have of the value
  };
  std::vector<std::vector<Use>> uses; // of each value, in the order of the ops
  std::vector<std::vector<State>> steps;
  std::vector<Frontier> frontiers{{}};
};

} // namespace

ShardSolution solve(const ShardProblem &p, size_t limit) { return Walk(p, limit).run(); }

} // namespace cinch::solve
