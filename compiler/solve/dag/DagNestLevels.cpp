// DagNestLevels.cpp: finds the nested levels of a training graph along an order. For every begin of an interval each
// end is weighed by how many values, and of how many bytes, cross the interval's border; the values are counted for all
// ends at once while the begin moves. Borders of one value in and one value out make the levels; where two of them lie
// far apart, borders of more values divide what lies between.
#include "compiler/solve/dag/DagNest.h"

#include <algorithm>

namespace cinch::solve::detail {
namespace {

struct Border {
  int begin = 0, end = 0, count = 0;
  int64_t bytes = 0;
};

class Borders {
public:
  Borders(const Dag &d, const std::vector<int> &order) : n(d.size()), uses(n), last(n), bytes(n) {
    std::vector<int> at(n);
    for (int t = 0; t < n; ++t)
      at[order[t]] = t;
    for (int t = 0; t < n; ++t) {
      for (int w : d.nodes[order[t]].users)
        uses[t].push_back(at[w]);
      std::sort(uses[t].begin(), uses[t].end());
      last[t] = uses[t].empty() ? t : uses[t].back();
      bytes[t] = d.nodes[order[t]].bytes;
    }
  }

  // Calls see(begin, counts, bytes) for every begin from 1 on: what crosses the border of [begin, end), by end.
  template <typename See> void sweep(See see) const {
    // Of the values before `begin`: those read in [begin, end), and those read at or after end. Of all values before
    // end: those read at or after it.
    std::vector<int> reads(n + 2, 0), past(n + 2, 0), alive(n + 2, 0), count(n + 2);
    std::vector<int64_t> readBytes(n + 2, 0), pastBytes(n + 2, 0), aliveBytes(n + 2, 0), weight(n + 2);
    for (int u = 0; u < n; ++u)
      for (int end = u + 1; end <= last[u]; ++end)
        ++alive[end], aliveBytes[end] += bytes[u];
    std::vector<std::vector<int>> readAt(n); // values read at a place
    for (int u = 0; u < n; ++u)
      for (int t : uses[u])
        readAt[t].push_back(u);
    std::vector<size_t> next(n, 0);
    for (int begin = 1; begin < n; ++begin) {
      // The value at begin - 1 lies before now; a value read there is next read later.
      int v = begin - 1;
      for (int u : readAt[v]) {
        size_t k = next[u]++;
        int until = k + 1 < uses[u].size() ? uses[u][k + 1] : n + 1;
        for (int end = v + 1; end <= std::min(until, n); ++end)
          --reads[end], readBytes[end] -= bytes[u];
      }
      for (int end = v + 1; end <= last[v]; ++end)
        ++past[end], pastBytes[end] += bytes[v];
      if (!uses[v].empty())
        for (int end = uses[v][0] + 1; end <= n; ++end)
          ++reads[end], readBytes[end] += bytes[v];
      for (int end = begin + 1; end <= n; ++end) {
        count[end] = reads[end] + alive[end] - past[end];
        weight[end] = readBytes[end] + aliveBytes[end] - pastBytes[end];
      }
      see(begin, reads, alive, past, count, weight);
    }
  }

  int n;
  std::vector<std::vector<int>> uses;
  std::vector<int> last;
  std::vector<int64_t> bytes;
};

// A longest row of borders each inside the one before. Of those with one end a later one that is no heavier replaces an
// earlier one.
std::vector<Border> longestRow(const std::vector<Border> &list) {
  // Begins rise; ends must not: a longest falling subsequence.
  std::vector<int> tail, from(list.size(), -1);
  for (int i = 0; i < int(list.size()); ++i) {
    auto at = std::upper_bound(tail.begin(), tail.end(), i, [&](int a, int b) { return list[a].end > list[b].end; });
    if (at != tail.begin())
      from[i] = *std::prev(at);
    if (at == tail.end())
      tail.push_back(i);
    else
      *at = i;
  }
  std::vector<Border> row;
  for (int i = tail.empty() ? -1 : tail.back(); i >= 0; i = from[i])
    if (row.empty() || row.back().end != list[i].end || list[i].bytes < row.back().bytes)
      row.push_back(list[i]);
  std::reverse(row.begin(), row.end());
  return row;
}

} // namespace

// Nodes of a block that is not divided further: the search inside of it takes all subsets. Values that cross a border: with more
// of them the block on either side is too large for that.
constexpr int kMostNodes = 20, kMostValues = 40;

std::vector<Level> findLevels(const Dag &d, const std::vector<int> &order, int64_t &work) {
  int n = d.size();
  if (n < 8)
    return {};
  Borders borders(d, order);
  int64_t edges = 0;
  for (const Dag::Node &node : d.nodes)
    edges += int64_t(node.sources.size());
  int64_t sweep = (3 * n + edges) * int64_t(n) / 16; // plain sums over arrays
  if (work < 2 * sweep)
    return {};
  work -= sweep;
  // Where most values are alive the sweep turns: levels reach beyond it.
  int turn = 0;
  std::vector<Border> single;
  borders.sweep([&](int begin, auto &reads, auto &alive, auto &past, auto &count, auto &weight) {
    if (begin == 1)
      turn = int(std::max_element(alive.begin(), alive.end()) - alive.begin());
    for (int end = std::max(turn, begin + 1); end < n; ++end)
      if (reads[end] == 1 && alive[end] - past[end] == 1) {
        single.push_back({begin, end, count[end], weight[end]});
        break;
      }
  });
  std::vector<Border> row = longestRow(single);
  row.insert(row.begin(), Border{0, n, 0, 0});
  // Wide blocks: at every begin inside, the border of the fewest values between the two levels.
  auto nodesOf = [&](size_t j) {
    int inside = j + 1 < row.size() ? row[j + 1].end - row[j + 1].begin : 0;
    return row[j].end - row[j].begin - inside;
  };
  bool wide = false;
  for (size_t j = 0; j < row.size(); ++j)
    wide |= nodesOf(j) > kMostNodes;
  if (wide) {
    work -= sweep;
    std::vector<std::vector<Border>> fewest(row.size());
    size_t j = 0;
    borders.sweep([&](int begin, auto &, auto &, auto &, auto &count, auto &weight) {
      while (j + 1 < row.size() && row[j + 1].begin <= begin)
        ++j;
      if (nodesOf(j) <= kMostNodes || begin <= row[j].begin)
        return;
      Border best;
      for (int end = j + 1 < row.size() ? row[j + 1].end : std::max(turn, begin + 1); end < row[j].end; ++end)
        if (count[end] <= kMostValues && (!best.end || count[end] < best.count ||
                                          (count[end] == best.count && weight[end] < best.bytes)))
          best = {begin, end, count[end], weight[end]};
      if (best.end)
        fewest[j].push_back(best);
    });
    std::vector<Border> result;
    for (size_t k = 0; k < row.size(); ++k) {
      result.push_back(row[k]);
      for (const Border &b : longestRow(fewest[k]))
        result.push_back(b);
    }
    row = std::move(result);
  }
  if (row.size() < 3)
    return {};
  // The values that cross.
  std::vector<Level> levels;
  for (const Border &b : row) {
    Level l{b.begin, b.end, {}, {}};
    for (int t = 0; t < b.begin; ++t) {
      auto use = std::lower_bound(borders.uses[t].begin(), borders.uses[t].end(), b.begin);
      if (use != borders.uses[t].end() && *use < b.end)
        l.in.push_back(t);
    }
    for (int t = b.begin; t < b.end; ++t)
      if (borders.last[t] >= b.end)
        l.out.push_back(t);
    levels.push_back(std::move(l));
  }
  work -= int64_t(row.size()) * n;
  return levels;
}

std::vector<Block> makeBlocks(const Dag &d, const std::vector<int> &order, const std::vector<Level> &levels) {
  int n = d.size();
  std::vector<int> at(n), number(n, -1);
  for (int t = 0; t < n; ++t)
    at[order[t]] = t;
  std::vector<Block> blocks;
  for (size_t j = 0; j < levels.size(); ++j) {
    const Level &level = levels[j];
    bool hasInner = j + 1 < levels.size();
    Level none{level.begin, level.begin, {}, {}};
    const Level &inner = hasInner ? levels[j + 1] : none;
    Block b;
    size_t count =
        level.in.size() + size_t(inner.begin - level.begin) + size_t(level.end - inner.end) + inner.out.size();
    if (count > Block::kMost)
      return {};
    auto take = [&](int t, uint64_t &set) {
      const Dag::Node &node = d.nodes[order[t]];
      number[t] = b.values;
      set |= uint64_t(1) << b.values++;
      b.place.push_back(t), b.bytes.push_back(node.bytes), b.cost.push_back(node.cost), b.sources.push_back(0);
    };
    for (int t : level.in)
      take(t, b.in);
    for (int t = level.begin; t < inner.begin; ++t)
      take(t, b.forward);
    for (int t = inner.end; t < level.end; ++t)
      take(t, b.backward);
    for (int t : inner.out)
      take(t, b.inner);
    auto setOf = [&](const std::vector<int> &places) {
      uint64_t set = 0;
      for (int t : places)
        set |= uint64_t(1) << number[t];
      return set;
    };
    for (int v = 0; v < b.values; ++v) {
      if (!((b.forward | b.backward) >> v & 1))
        continue;
      for (int u : d.nodes[order[b.place[v]]].sources)
        b.sources[v] |= uint64_t(1) << number[at[u]];
      if (d.nodes[order[b.place[v]]].users.empty())
        b.sinks |= uint64_t(1) << v;
    }
    b.out = setOf(level.out), b.innerIn = setOf(inner.in);
    if (j)
      for (int t : level.in)
        if (std::binary_search(levels[j - 1].in.begin(), levels[j - 1].in.end(), t))
          b.passed |= uint64_t(1) << number[t];
    for (int t : b.place)
      number[t] = -1;
    blocks.push_back(std::move(b));
  }
  return blocks;
}

} // namespace cinch::solve::detail
