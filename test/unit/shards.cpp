// LINK: cinch_solve
// How values are shared among shards: random small programs against all ways of doing their ops.
#include "compiler/solve/shards/Shards.h"
#include "test/unit/Expect.h"

#include <random>

using namespace cinch::solve;

static ShardProblem randomProblem(std::mt19937 &random) {
  auto below = [&](int n) { return int(random() % unsigned(n)); };
  auto cost = [&] { return ShardCost{below(3), below(6), below(4)}; };
  ShardProblem p;
  int ops = 2 + below(5);
  for (int i = 0; i < ops; ++i) {
    ShardProblem::Op op;
    for (int tries = below(3); tries > 0 && !p.values.empty(); --tries)
      op.operands.push_back(below(int(p.values.size())));
    ShardProblem::Value value;
    int forms = 1 + below(3);
    for (int form = 0; form < forms; ++form) {
      value.forms.push_back(cost());
      value.become.emplace_back();
      for (int need = 0; need <= forms; ++need)
        value.become.back().push_back(below(5) ? std::optional(cost()) : std::nullopt);
    }
    op.results = {int(p.values.size())};
    for (int way = 0; way < 1 + below(3); ++way) {
      ShardProblem::Way made{{}, {below(forms)}, cost()};
      for (int operand : op.operands)
        made.needs.push_back(below(int(p.values[size_t(operand)].forms.size()) + 1));
      op.ways.push_back(made);
    }
    p.values.push_back(value);
    p.ops.push_back(op);
  }
  return p;
}

static std::optional<ShardCost> bestOf(const ShardProblem &p) {
  std::vector<int> ways(p.ops.size(), 0);
  std::optional<ShardCost> best;
  while (true) {
    if (std::optional<ShardCost> cost = costOf(p, ways); cost && (!best || *cost < *best))
      best = cost;
    size_t i = 0;
    while (i < ways.size() && ++ways[i] == int(p.ops[i].ways.size()))
      ways[i++] = 0;
    if (i == ways.size())
      return best;
  }
}

// So many values, each in one of three forms, all of them alive until one op reads them: 3^24 states, of which few are worth keeping.
static void aliveTogether() {
  ShardProblem p;
  ShardProblem::Op last;
  for (int i = 0; i < 24; ++i) {
    ShardProblem::Value value;
    value.forms = {{2, 0, 0}, {1, 0, 3}, {1, 1, 0}};
    for (int form = 0; form < 3; ++form)
      value.become.push_back({std::optional(ShardCost{0, form == 0 ? 0 : 4, 0}), std::optional(ShardCost{0, form == 1 ? 0 : 5, 0})});
    p.values.push_back(value);
    p.ops.push_back({{}, {i}, {{{}, {0}, {}}, {{}, {1}, {}}, {{}, {2}, {}}}});
    last.operands.push_back(i);
  }
  last.ways = {{std::vector<int>(24, 0), {}, {1, 0, 0}}, {std::vector<int>(24, 1), {}, {0, 7, 0}}};
  p.ops.push_back(last);
  ShardSolution found = solve(p, 200);
  Case one;
  expect(found.exact, "24 values alive: few states are kept, and nothing better was dropped");
  expect(found.cost == ShardCost{24, 7, 72}, "24 values alive: the least cost");
}

int main() {
  aliveTogether();
  std::mt19937 random(7);
  int impossible = 0;
  for (int i = 0; i < 4000; ++i) {
    ShardProblem p = randomProblem(random);
    std::optional<ShardCost> best = bestOf(p);
    ShardSolution found = solve(p, 1 << 20), few = solve(p, 2);
    Case one;
    std::string name = "program " + std::to_string(i);
    impossible += !best;
    expect(found.exact && best.has_value() == !found.ways.empty(), name + ": whether there is a way");
    if (!best)
      continue;
    expect(found.cost == *best, name + ": the least cost");
    expect(costOf(p, found.ways) == found.cost, name + ": the ways cost what is said");
    if (!few.ways.empty()) {
      expect(costOf(p, few.ways) == few.cost, name + ": few states: the ways cost what is said");
      expect(!few.exact || few.cost == *best, name + ": few states: exact or not said so");
    }
  }
  expect(impossible > 20 && impossible < 3900, "programs of both kinds");
  return tally();
}
