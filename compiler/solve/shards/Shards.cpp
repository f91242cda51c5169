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

// Drops states that another one makes useless: it costs no more, and of the same values in the same forms it has met all the needs.
std::vector<States::iterator> undominated(States &states) {
  std::map<std::vector<int>, std::vector<States::iterator>> alike; // by value and form
  for (auto it = states.begin(); it != states.end(); ++it) {
    std::vector<int> forms;
    for (const Live &live : it->first)
      forms.push_back(live.value), forms.push_back(live.form);
    alike[forms].push_back(it);
  }
  std::vector<States::iterator> kept;
  for (auto &[forms, group] : alike) {
    std::stable_sort(group.begin(), group.end(), [](auto a, auto b) { return a->second.cost < b->second.cost; });
    size_t first = kept.size();
    for (States::iterator it : group) {
      bool useless = std::any_of(kept.begin() + ptrdiff_t(first), kept.end(), [&](States::iterator other) {
        for (size_t i = 0; i < it->first.size(); ++i)
          if (it->first[i].met & ~other->first[i].met)
            return false;
        return true;
      });
      if (!useless)
        kept.push_back(it);
    }
  }
  return kept;
}

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

ShardSolution solve(const ShardProblem &p, size_t limit) {
  std::vector<size_t> lastUse(p.values.size(), 0);
  for (size_t i = 0; i < p.ops.size(); ++i)
    for (int value : p.ops[i].operands)
      lastUse[size_t(value)] = i;
  ShardSolution solution;
  std::vector<std::vector<State>> steps;
  std::vector<Frontier> frontiers{{}};
  steps.push_back({State()});
  for (size_t i = 0; i < p.ops.size(); ++i) {
    const ShardProblem::Op &op = p.ops[i];
    States next;
    for (size_t s = 0; s < frontiers.size(); ++s)
      for (size_t w = 0; w < op.ways.size(); ++w) {
        Frontier frontier = frontiers[s];
        State state{steps.back()[s].cost, int(s), int(w)};
        if (!take(p, op, op.ways[w], frontier, state.cost))
          continue;
        give(p, op, op.ways[w], frontier, state.cost);
        frontier.erase(std::remove_if(frontier.begin(), frontier.end(), [&](const Live &live) { return lastUse[size_t(live.value)] <= i; }),
                       frontier.end());
        std::sort(frontier.begin(), frontier.end());
        auto [known, fresh] = next.try_emplace(std::move(frontier), state);
        if (!fresh && state.cost < known->second.cost)
          known->second = state;
      }
    if (next.empty())
      return solution;
    std::vector<States::iterator> order = undominated(next);
    if (order.size() > limit) {
      std::stable_sort(order.begin(), order.end(), [](auto a, auto b) { return a->second.cost < b->second.cost; });
      order.resize(limit);
      solution.exact = false;
    }
    frontiers.clear();
    steps.emplace_back();
    for (auto it : order) {
      frontiers.push_back(it->first);
      steps.back().push_back(it->second);
    }
  }
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
  return solution;
}

} // namespace cinch::solve
