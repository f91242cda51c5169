// Remat.cpp: policies become schedules; the named strategies are policies.
#include "compiler/solve/Remat.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {

bool parseStrategy(const std::string &text, Strategy &strategy, std::string &error) {
  static const std::pair<const char *, Strategy::Kind> names[] = {
      {"none", Strategy::None},     {"all", Strategy::All},     {"sqrt", Strategy::Sqrt},
      {"marked", Strategy::Marked}, {"cheap", Strategy::Cheap}, {"optimal", Strategy::Optimal},
      {"auto", Strategy::Auto}};
  for (auto &[name, kind] : names)
    if (text == name) {
      strategy = {kind, 0};
      return true;
    }
  if (text.rfind("every:", 0) == 0) {
    int64_t n = 0;
    for (char c : text.substr(6)) {
      if (c < '0' || c > '9' || n > 1'000'000) {
        n = 0;
        break;
      }
      n = n * 10 + (c - '0');
    }
    if (n > 0) {
      strategy = {Strategy::Every, n};
      return true;
    }
    error = "expected a positive number after `every:`, got `" + text.substr(6) + "`";
    return false;
  }
  error = "expected none, all, sqrt, every:N, marked, cheap, optimal or auto, got `" + text + "`";
  return false;
}

std::string str(const Strategy &s) {
  switch (s.kind) {
  case Strategy::None: return "none";
  case Strategy::All: return "all";
  case Strategy::Sqrt: return "sqrt";
  case Strategy::Every: return "every:" + std::to_string(s.every);
  case Strategy::Marked: return "marked";
  case Strategy::Cheap: return "cheap";
  case Strategy::Optimal: return "optimal";
  case Strategy::Auto: return "auto";
  }
  return "";
}

Sweep::Sweep(const GraphIndex &index) : index(index) {
  const StepGraph &g = index.graph;
  const std::vector<int> &loop = index.loop;
  position.assign(g.kernels.size(), -1);
  for (size_t i = 0; i < loop.size(); ++i)
    position[loop[i]] = int(i);
  turn = int(loop.size());
  for (int i = 0; i < int(loop.size()); ++i)
    if (g.kernels[loop[i]].backward) {
      turn = i;
      break;
    }
  forward.assign(g.buffers.size(), false), saved.assign(g.buffers.size(), false),
      lastForward.assign(g.buffers.size(), -1);
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    if (g.buffers[b].kind != Buffer::Value || index.persistent[b] || index.bornIn[b] != g.mainLoop())
      continue;
    int at = position[g.buffers[b].producer];
    forward[b] = at < turn;
    lastForward[b] = at;
    for (int reader : index.readers[b])
      if (g.inMainLoop(reader)) {
        if (position[reader] < turn)
          lastForward[b] = std::max(lastForward[b], position[reader]);
        else if (forward[b])
          saved[b] = true;
      }
  }
  // Units: blocks of a `repeat` if there are two or more, else the stretches between points that a single value
  // crosses.
  int previous = -1;
  for (int i = 0; i < turn; ++i) {
    int block = g.kernels[loop[i]].block;
    if (block != previous && i > 0)
      units.push_back(i);
    previous = block;
  }
  if (units.size() < 2) {
    units.clear();
    std::vector<int> crossing(turn + 2, 0);
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (forward[b] && lastForward[b] > position[g.buffers[b].producer]) {
        ++crossing[position[g.buffers[b].producer] + 1];
        --crossing[lastForward[b] + 1];
      }
    int live = 0;
    for (int i = 0; i < turn; ++i) {
      live += crossing[i];
      if (i > 0 && live == 1)
        units.push_back(i);
    }
  }
}

int64_t Sweep::crossingBytes(int cut, int64_t microbatch) const {
  int64_t bytes = 0;
  for (size_t b = 0; b < forward.size(); ++b)
    if (forward[b] && position[index.graph.buffers[b].producer] < cut && lastForward[b] >= cut)
      bytes += index.graph.buffers[b].bytes(microbatch);
  return bytes;
}

namespace {

// Levels of the values and the segment numbers that say who is held together.
struct Levels {
  std::vector<int> level;                // of buffers
  std::vector<std::vector<int>> segment; // [level][position]: number of cuts of a lower level at or before it
  int deepest = 1;

  Levels(const Sweep &sweep, const Policy &policy) {
    const StepGraph &g = sweep.index.graph;
    for (auto &[at, l] : policy.cuts)
      deepest = std::max(deepest, l + 1);
    segment.assign(deepest + 1, std::vector<int>(sweep.turn + 1, 0));
    // cutAt[l][p]: number of cuts of level l at positions <= p.
    std::vector<std::vector<int>> cuts(deepest + 1, std::vector<int>(sweep.turn + 2, 0));
    for (auto &[at, l] : policy.cuts)
      ++cuts[l][at];
    for (int l = 0; l <= deepest; ++l)
      for (int p = 1; p <= sweep.turn + 1; ++p)
        cuts[l][p] += cuts[l][p - 1];
    for (int l = 1; l <= deepest; ++l)
      for (int p = 0; p <= sweep.turn; ++p)
        segment[l][p] = segment[l - 1][p] + cuts[l - 1][p];
    level.assign(g.buffers.size(), 0);
    for (size_t b = 0; b < g.buffers.size(); ++b) {
      if (!sweep.forward[b])
        continue;
      int producer = g.buffers[b].producer, from = sweep.position[producer], to = sweep.lastForward[b];
      if (!sweep.index.mayRecompute[producer] || (!policy.keep.empty() && policy.keep[b]))
        continue;
      level[b] = deepest;
      for (int l = 0; l < deepest; ++l)
        if (cuts[l][to] > cuts[l][from]) {
          level[b] = l;
          break;
        }
    }
  }

  // Is the value `b`, produced at `from`, held when the sweep works at position `at`?
  bool held(int b, int from, int at) const { return level[b] == 0 || segment[level[b]][from] == segment[level[b]][at]; }
};

// Takes away runs whose results nobody reads before they are computed again.
std::vector<int> withoutUnread(const Sweep &sweep, const std::vector<int> &runs) {
  const StepGraph &g = sweep.index.graph;
  std::vector<int> left(g.kernels.size(), 0);
  int part = 0;
  for (int k : runs)
    ++left[k], part += g.kernels[k].newPart;
  std::vector<uint64_t> wanted(g.buffers.size(), 0); // by the parts whose bits are set (GraphIndex::seenBy)
  std::vector<char> kept(g.kernels.size(), 0);
  std::vector<int> result;
  for (size_t i = runs.size(); i-- > 0;) {
    int k = runs[i];
    --left[k];
    auto finding = [&](int w) { return sweep.index.hasNoBytes(w) ? ~uint64_t(0) : sweep.index.seenBy(part); };
    bool need = !sweep.index.mayRecompute[k] || (left[k] == 0 && !kept[k]);
    for (int w : g.kernels[k].writes)
      need |= (wanted[w] & finding(w)) != 0;
    if (need) {
      kept[k] = 1;
      for (int w : g.kernels[k].writes)
        wanted[w] &= ~finding(w);
      for (int r : g.kernels[k].reads)
        wanted[r] |= sweep.index.bitOf(part);
      result.push_back(k);
    }
    part -= g.kernels[k].newPart;
  }
  std::reverse(result.begin(), result.end());
  return result;
}

} // namespace

std::vector<int> expand(const Sweep &sweep, const Policy &policy) {
  const StepGraph &g = sweep.index.graph;
  const std::vector<int> &loop = sweep.index.loop;
  Levels levels(sweep, policy);
  std::vector<int> runs(loop.begin(), loop.begin() + sweep.turn);
  std::vector<char> valid(g.buffers.size(), 1);
  int part = 0;                                   // of the loop body, at hand
  std::vector<int> madeIn(g.buffers.size(), 0);   // the part that computed a value last
  for (int k : runs) {
    part += g.kernels[k].newPart;
    for (int w : g.kernels[k].writes)
      madeIn[w] = part;
  }
  for (size_t b = 0; b < g.buffers.size(); ++b)
    if (sweep.forward[b])
      valid[b] = policy.lastAgain ? levels.level[b] == 0
                                  : levels.held(int(b), sweep.position[g.buffers[b].producer], sweep.turn - 1);
  auto isThere = [&](int b) { return valid[b] && sweep.index.reaches(b, madeIn[b], part); };

  std::vector<int> cone, stack, mine;
  std::vector<char> inCone(g.kernels.size(), 0);
  for (size_t i = sweep.turn; i < loop.size(); ++i) {
    const Kernel &kernel = g.kernels[loop[i]];
    part += kernel.newPart;
    // Latest needs first would hold the earlier ones' inputs; ascending order lets a need reuse what the one before
    // computed.
    mine.clear();
    int home = -1;
    for (int r : kernel.reads)
      if (sweep.forward[r]) {
        home = std::max(home, sweep.position[g.buffers[r].producer]);
        if (!isThere(r))
          mine.push_back(r);
      }
    if (!mine.empty()) {
      cone.clear(), stack.clear();
      for (int r : mine)
        stack.push_back(g.buffers[r].producer);
      while (!stack.empty()) {
        int k = stack.back();
        stack.pop_back();
        if (inCone[k])
          continue;
        inCone[k] = 1;
        cone.push_back(k);
        for (int r : g.kernels[k].reads)
          if (sweep.forward[r] && !isThere(r))
            stack.push_back(g.buffers[r].producer);
      }
      std::sort(cone.begin(), cone.end(), [&](int a, int b) { return sweep.position[a] < sweep.position[b]; });
      for (int k : cone) {
        inCone[k] = 0;
        runs.push_back(k);
        for (int w : g.kernels[k].writes)
          valid[w] = 1, madeIn[w] = part;
      }
      if (policy.runLimit > 0 && int64_t(runs.size()) > policy.runLimit)
        return {};
    }
    runs.push_back(loop[i]);
    // What the cone computed on the way and what this kernel used stays valid only inside its segment.
    auto release = [&](int b) {
      if (sweep.forward[b] && !levels.held(b, sweep.position[g.buffers[b].producer], home))
        valid[b] = 0;
    };
    if (!mine.empty())
      for (int k : cone)
        for (int w : g.kernels[k].writes)
          release(w);
    for (int r : kernel.reads)
      if (home >= 0)
        release(r);
  }
  return withoutUnread(sweep, runs);
}

namespace {

// Cuts of level 0 after every `n` units; the last segment may be shorter.
std::vector<std::pair<int, int>> everyUnits(const Sweep &sweep, int64_t n, int level = 0) {
  std::vector<std::pair<int, int>> cuts;
  for (size_t i = size_t(n) - 1; i < sweep.units.size(); i += size_t(n))
    cuts.push_back({sweep.units[i], level});
  return cuts;
}

void halve(int low, int high, int level, std::vector<std::pair<int, int>> &cuts) {
  if (high - low < 2)
    return;
  int middle = low + (high - low) / 2;
  cuts.push_back({middle, level});
  halve(low, middle, level + 1, cuts);
  halve(middle, high, level + 1, cuts);
}

} // namespace

std::vector<int> schedule(const Sweep &sweep, const Strategy &strategy) {
  const StepGraph &g = sweep.index.graph;
  Policy policy;
  switch (strategy.kind) {
  case Strategy::None:
  case Strategy::Optimal:
  case Strategy::Auto: policy.keep.assign(g.buffers.size(), true); break;
  case Strategy::All:
    // Nothing is kept: the backward sweep gets what it needs by halving the forward sweep, level under level.
    halve(0, sweep.turn, 1, policy.cuts);
    policy.lastAgain = true;
    break;
  case Strategy::Sqrt: {
    int64_t units = int64_t(sweep.units.size()) + 1;
    policy.cuts = everyUnits(sweep, std::max<int64_t>(1, int64_t(std::ceil(std::sqrt(double(units)) - 1e-9))));
    break;
  }
  case Strategy::Every: policy.cuts = everyUnits(sweep, strategy.every); break;
  case Strategy::Marked: {
    bool anyKeep = false;
    for (int k : sweep.index.loop)
      anyKeep |= g.kernels[k].keepHint;
    policy.keep.assign(g.buffers.size(), !anyKeep);
    for (int i = 0; i < sweep.turn; ++i) {
      const Kernel &kernel = g.kernels[sweep.index.loop[i]];
      for (int w : kernel.writes)
        policy.keep[w] = kernel.recomputeHint ? false : kernel.keepHint || !anyKeep;
      if (kernel.keepHint && i + 1 < sweep.turn)
        policy.cuts.push_back({i + 1, 1});
    }
    break;
  }
  case Strategy::Cheap: {
    policy.keep.assign(g.buffers.size(), false);
    for (int i = 0; i < sweep.turn; ++i)
      for (int w : g.kernels[sweep.index.loop[i]].writes)
        policy.keep[w] = !g.kernels[sweep.index.loop[i]].cheap;
    policy.cuts = everyUnits(sweep, 1, 1);
    break;
  }
  }
  return expand(sweep, policy);
}

} // namespace cinch::solve
