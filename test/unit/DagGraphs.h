// DagGraphs.h: graphs of training steps for the planner of any graph, as a user would hand them in: chains with
// heterogeneous costs, U-shapes, transformers, dense blocks, residual nets. A forward graph is written down; backward
// nodes follow by one rule. All of it is deterministic.
#ifndef CINCH_TEST_UNIT_DAGGRAPHS_H
#define CINCH_TEST_UNIT_DAGGRAPHS_H

#include "compiler/solve/dag/Dag.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {

class ForwardGraph {
public:
  enum Saves { Inputs, Output, Nothing }; // what the backward node of an operation reads

  explicit ForwardGraph(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull) {}

  int add(const std::string &name, double cost, double bytes, std::vector<int> inputs, Saves saves,
          double backward = 2) {
    ops.push_back({name, std::round(cost), int64_t(bytes), std::move(inputs), saves, std::round(backward * cost)});
    return int(ops.size()) - 1;
  }
  double unit() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return double(state >> 11) / 9007199254740992.0;
  }
  // Between 1 / spread and spread, evenly in the logarithm.
  double around(double middle, double spread) { return middle * std::pow(spread, 2 * unit() - 1); }

  // The backward node of an operation reads those of its users and what the operation saves, and holds one gradient
  // for each input (for each input that is no parameter, of which there are none here).
  Dag train() const {
    Dag d;
    int n = int(ops.size());
    std::vector<std::vector<int>> users(n);
    std::vector<int> backward(n, -1);
    auto node = [&](const std::string &name, double cost, int64_t bytes, const std::vector<int> &sources) {
      int v = d.size();
      d.nodes.push_back({v, name, std::max(cost, 1.0), std::max<int64_t>(bytes, 1), {}, {}});
      for (int u : sources)
        if (std::find(d.nodes[v].sources.begin(), d.nodes[v].sources.end(), u) == d.nodes[v].sources.end())
          d.nodes[v].sources.push_back(u), d.nodes[u].users.push_back(v);
      return v;
    };
    for (int v = 0; v < n; ++v) {
      node(ops[v].name, ops[v].cost, ops[v].bytes, ops[v].inputs);
      for (int u : ops[v].inputs)
        users[u].push_back(v);
    }
    for (int v = n - 1; v >= 0; --v) {
      std::vector<int> sources;
      for (int w : users[v])
        sources.push_back(backward[w]);
      if (ops[v].saves == Inputs)
        sources.insert(sources.end(), ops[v].inputs.begin(), ops[v].inputs.end());
      if (ops[v].saves == Output || users[v].empty())
        sources.push_back(v);
      int64_t bytes = 0;
      for (int u : ops[v].inputs)
        bytes += ops[u].bytes;
      backward[v] = node("d." + ops[v].name, ops[v].backward, bytes, sources);
    }
    return d;
  }

private:
  struct Op {
    std::string name;
    double cost;
    int64_t bytes;
    std::vector<int> inputs;
    Saves saves;
    double backward;
  };
  std::vector<Op> ops;
  uint64_t state;
};

// About `nodes` nodes of a family; an empty graph for an unknown name.
inline Dag trainingDag(const std::string &family, int nodes, uint64_t seed = 1) {
  ForwardGraph g(seed * 7919 + uint64_t(nodes));
  int n = nodes / 2;
  using F = ForwardGraph;
  auto name = [](const char *what, int i) { return what + std::to_string(i); };
  if (family == "chain") {
    int h = g.add("x", 1, g.around(3e6, 2), {}, F::Nothing);
    for (int i = 1; i < n; ++i)
      h = i % 3 ? g.add(name("conv", i), g.around(1000, 6), g.around(3e6, 4), {h}, F::Inputs)
                : g.add(name("act", i), g.around(20, 2), g.around(3e6, 4), {h}, F::Output, 1);
  } else if (family == "unet") {
    // Down and up again; every level hands its last value across. A level has as many convolutions as the size asks.
    int levels = n >= 60 ? 5 : 4, each = std::max(1, (n - 4 * levels) / (4 * levels));
    int h = g.add("x", 1, 1e6, {}, F::Nothing);
    std::vector<int> across;
    auto bytes = [&](int level) { return 1.6e7 / std::pow(2, level); };
    auto stack = [&](int level) {
      for (int i = 0; i < each; ++i) {
        h = g.add("conv", 900 + 50 * level, bytes(level), {h}, F::Inputs);
        h = g.add("relu", 16 / std::pow(2, level), bytes(level), {h}, F::Output, 1);
      }
    };
    for (int l = 0; l < levels; ++l) {
      stack(l);
      across.push_back(h);
      h = g.add("pool", 10, bytes(l) / 4, {h}, F::Inputs, 1);
    }
    stack(levels);
    for (int l = levels - 1; l >= 0; --l) {
      h = g.add("up", 400, bytes(l), {h}, F::Inputs);
      h = g.add("concat", 12, 2 * bytes(l), {h, across[l]}, F::Nothing, 1);
      stack(l);
    }
    g.add("loss", 5, 4, {h}, F::Inputs, 1);
  } else if (family == "transformer") {
    double u = 4e6;
    int x = g.add("embed", 8, u, {}, F::Nothing);
    for (int l = 0, layers = std::max(1, (n - 4) / 10); l < layers; ++l) {
      int y = g.add(name("ln1.", l), 10, u, {x}, F::Inputs, 2);
      int qkv = g.add(name("qkv.", l), 1500, 3 * u, {y}, F::Inputs);
      int o = g.add(name("attend.", l), 700, u, {qkv}, F::Inputs, 2.5);
      int p = g.add(name("proj.", l), 500, u, {o}, F::Inputs);
      int r = g.add(name("add1.", l), 12, u, {x, p}, F::Nothing, 1);
      int z = g.add(name("ln2.", l), 10, u, {r}, F::Inputs, 2);
      int up = g.add(name("up.", l), 2000, 4 * u, {z}, F::Inputs);
      int a = g.add(name("gelu.", l), 30, 4 * u, {up}, F::Inputs, 1);
      int down = g.add(name("down.", l), 2000, u, {a}, F::Inputs);
      x = g.add(name("add2.", l), 12, u, {r, down}, F::Nothing, 1);
    }
    int y = g.add("lnf", 10, u, {x}, F::Inputs, 2);
    int logits = g.add("logits", 4000, 10 * u, {y}, F::Inputs);
    g.add("loss", 50, 4, {logits}, F::Inputs, 1);
  } else if (family == "dense") {
    int h = g.add("x", 1, 2e6, {}, F::Nothing), perBlock = n >= 100 ? 12 : 8;
    for (int block = 0; block < std::max(1, n / (2 * perBlock + 2)); ++block) {
      std::vector<int> all{h};
      double unit = 1.5e6 / (1 + block % 4);
      for (int i = 0; i < perBlock; ++i) {
        int c = g.add("bottleneck", 200 + 60 * i, 2 * unit, all, F::Inputs);
        all.push_back(g.add("conv", 500, unit, {c}, F::Inputs));
      }
      int c = g.add("concat", 20, unit * perBlock + 1e6, all, F::Nothing, 1);
      h = g.add("transition", 400, 2e6, {c}, F::Inputs);
    }
    g.add("loss", 5, 4, {h}, F::Inputs, 1);
  } else if (family == "residual") {
    int h = g.add("x", 1, 4e6, {}, F::Nothing);
    int blocks = std::max(1, (n - 2) / 7);
    for (int b = 0; b < blocks; ++b) {
      double unit = 8e6 / (1 << std::min(3, 4 * b / blocks));
      int c = g.add("conv1.", 800, unit, {h}, F::Inputs);
      c = g.add("bn1.", 40, unit, {c}, F::Inputs, 1.5);
      c = g.add("relu1.", 15, unit, {c}, F::Output, 1);
      c = g.add("conv2.", 900, unit, {c}, F::Inputs);
      c = g.add("bn2.", 40, unit, {c}, F::Inputs, 1.5);
      if (b == 0 || 4 * b / blocks != 4 * (b - 1) / blocks)
        h = g.add("shortcut", 150, unit, {h}, F::Inputs);
      c = g.add("add", 20, unit, {c, h}, F::Nothing, 1);
      h = g.add("relu2.", 15, unit, {c}, F::Output, 1);
    }
    g.add("loss", 5, 4, {h}, F::Inputs, 1);
  }
  return g.train();
}

} // namespace cinch::solve
#endif
