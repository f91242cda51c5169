// LINK: cinch_solve
// What is saved of a loop's trip: cuts of small random graphs against all subsets of their nodes.
#include "compiler/solve/VertexCut.h"
#include "test/unit/Expect.h"

#include <random>

using namespace cinch::solve;

// Can everything wanted be computed from the nodes of a set?
static bool serves(const std::vector<CutNode> &nodes, const std::vector<int> &wanted, unsigned set) {
  std::vector<bool> there(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    bool computed = !nodes[i].source;
    for (int operand : nodes[i].operands)
      computed = computed && there[operand];
    there[i] = (set >> i & 1) || computed;
  }
  for (int node : wanted)
    if (!there[node])
      return false;
  return true;
}

static double costOf(const std::vector<CutNode> &nodes, unsigned set) {
  double cost = 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    cost += set >> i & 1 ? nodes[i].cost : 0;
  return cost;
}

int main() {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    int n = 2 + int(random() % 9);
    std::vector<CutNode> nodes(n);
    for (int i = 0; i < n; ++i) {
      nodes[i].cost = int(random() % 5);
      nodes[i].source = random() % 3 == 0;
      for (int k = 0; k < 2 && i > 0; ++k)
        if (random() % 4)
          nodes[i].operands.push_back(int(random() % unsigned(i)));
    }
    std::vector<int> wanted;
    for (int i = 0; i < n; ++i)
      if (random() % 3 == 0)
        wanted.push_back(i);
    unsigned found = 0;
    for (int node : cheapestCut(nodes, wanted))
      found |= 1u << node;
    double least = 1e9;
    for (unsigned set = 0; set < 1u << n; ++set)
      if (serves(nodes, wanted, set))
        least = std::min(least, costOf(nodes, set));
    std::string name = "round " + std::to_string(round);
    expect(serves(nodes, wanted, found), name + ": the cut does not serve what is wanted");
    expect(costOf(nodes, found) == least,
           name + ": the cut costs " + std::to_string(costOf(nodes, found)) + ", the least is " + std::to_string(least));
  }
  return tally();
}
