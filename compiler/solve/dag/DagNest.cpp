// DagNest.cpp: schedules of training graphs by their nested levels. Dynamic programming over pairs of levels a < b:
// what the level a reads is held, and what the level b hands out; wanted is what the level a hands out. Either block a
// keeps some of its values while the levels inside are done, and goes back from them; or a level j between them is
// reached keeping nothing, the levels from j on are done beside what level a reads, and then those from a to j: what
// was not kept is computed again (the recursion of rotor: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal
// checkpointing for heterogeneous chains"). Each pair has a list of peaks and costs of which none is better in both, in
// real bytes; long lists are thinned by leaving some out, so no answer is too good. Pairs between the same blocks are
// one: a net of many equal layers is as quick as one of few different ones.
#include "compiler/solve/dag/DagNest.h"
#include "compiler/solve/dag/DagNestFront.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace cinch::solve::detail {
namespace {

// How finely the rows of blocks are searched. A point is a pair of peak and cost; every row of blocks has a list of them.
struct NestLimits {
  int largeBlock = 26;     // values: ways through larger blocks are not found anew for each depth
  double tight = 0.85;     // share of the budget that a block alone takes: there getting back what comes in is looked at
  int manyLevels = 120;    // more levels than these are taken together in rows first
  int longestRow = 48;     // blocks in such a row
  int fewSlots = 24;       // points a row that are worth having: below it shorter rows come first
  int manyRows = 400'000;  // different rows: no lists worth having for so many
  int splitsLooked = 90;   // of a row on average, to tell the work
  int allSplits = 96;      // up to this length a row is split everywhere, beyond it near its ends and at even distances
  int64_t mostPoints = 12'000'000; // of all rows: memory
  int64_t mostSlots = 256; // points a row: what is left out between two of them is small, and the time of a row grows with them
  size_t rowPoints = 24;   // of a row that becomes one block
};
constexpr NestLimits kNest;

class Nest {
public:
  Nest(const Dag &d, const std::vector<int> &order, int64_t budget, int64_t &work, double deadline)
      : d(d), order(order), budget(budget), work(work), deadline(deadline) {}

  // `coarse`: rows of blocks are taken as one where there are many.
  bool prepare(bool inOrder, bool coarse) {
    levels = findLevels(d, order, work);
    blocks = makeBlocks(d, order, levels);
    count = int(blocks.size());
    if (count < 2)
      return false;
    // Equal blocks once.
    std::vector<int> firstOf;
    for (int j = 0; j < count; ++j) {
      int kind = 0;
      while (kind < int(firstOf.size()) && !blocks[firstOf[kind]].sameAs(blocks[j]))
        ++kind;
      if (kind == int(firstOf.size())) {
        firstOf.push_back(j);
        ways.push_back(waysOf(blocks[j], inOrder || isLarge(j), budget, work));
        if ((j + 1 < count && ways.back().forward[0].peak < 0) || late())
          return false;
      }
      kinds.push_back(kind);
    }
    for (int j = 0; j < count; ++j) {
      inBytes.push_back(blocks[j].bytesOf(blocks[j].in));
      outBytes.push_back(blocks[j].bytesOf(blocks[j].out));
      overlaps |= blocks[j].passed != 0;
    }
    outBytes.push_back(0);
    refetch(inOrder);
    for (int j = 0; j < count; ++j)
      if (!wayOf(j).possible)
        return false;
    for (int j = 0; j < count; ++j)
      firstBlock.push_back(j);
    blockWays = ways, blockKinds = kinds;
    if (!coarse)
      start(count);
    if (coarse ? count <= kNest.manyLevels : slots < kNest.fewSlots)
      return false;
    if (coarse) {
      start(kNest.longestRow);
      if (slots == 0)
        return false;
      coarsen();
      start(count);
    }
    return !late();
  }

  // Peaks and costs of everything; empty if nothing fits, or if time ran out.
  const Front &all() {
    const Front &front = cell(0, count, 0);
    static const Front none;
    return late() ? none : front;
  }

  Runs runsAt(int64_t peak) {
    std::vector<int> found;
    emit(0, count, 0, peak, found);
    Runs runs;
    for (int v : found)
      decode(v, runs);
    return runs;
  }

private:
  const BlockWays &wayOf(int j) const { return ways[kinds[j]]; }
  bool late() const { return work <= 0 || (deadline > 0 && secondsNow() > deadline); }

  bool isLarge(int j) const { return blocks[j].values > kNest.largeBlock; }

  // Where a block alone nearly needs the budget, and what the next level inside hands out stands in the way of what
  // comes in: ways that get it back from the start. They are dearer the deeper the block lies, so equal blocks differ.
  void refetch(bool inOrder) {
    Refetch way{0, 0};
    for (int j = 0; j < count; ++j) {
      const BlockWays &known = wayOf(j);
      bool tight = !known.possible || double(known.alone[0].front().peak) > kNest.tight * double(budget);
      if (j && blocks[j].in && tight && way.peak <= budget && !isLarge(j)) {
        BlockWays more = known;
        addRefetching(more, blocks[j], inOrder, way, budget, work);
        kinds[j] = int(ways.size());
        ways.push_back(std::move(more));
      }
      if (j + 1 < count)
        way.peak = std::max(way.peak, wayOf(j).forward[0].peak), way.cost += wayOf(j).forward[0].cost;
    }
  }

  // Rows of equal blocks have one name, so that what is known for one is known for all: what passes through a row of
  // levels shows in the blocks. Rows of up to `longest` blocks.
  void start(int longest) {
    reach.assign(count, {}), prefix.assign(count + 1, 0);
    for (int j = 0; j < count; ++j)
      prefix[j + 1] = prefix[j] + (j + 1 < count ? wayOf(j).forward[0].cost : 0);
    rows.assign(count, {});
    rowCount = 0;
    std::unordered_map<uint64_t, int> names;
    for (int a = count - 1; a >= 0; --a) {
      int most = std::min(count - a, longest);
      rows[a].resize(most + 1);
      for (int length = 1; length <= most; ++length) {
        uint64_t rest = length == 1 ? 0 : uint64_t(rows[a + 1][length - 1]) + 1;
        auto [it, fresh] = names.insert({uint64_t(kinds[a]) << 32 | rest, rowCount});
        rowCount += fresh;
        rows[a][length] = it->second;
      }
      work -= 8 * most;
      if (rowCount > kNest.manyRows) { // no lists worth having for so many
        slots = 0;
        return;
      }
    }
    fronts.assign(size_t(rowCount) * 3, Front());
    done.assign(size_t(rowCount) * 3, 0);
    // As many points as the work allows, and the memory.
    int64_t pairs = int64_t(std::max(rowCount, 1)) * std::min({count, longest, kNest.splitsLooked});
    slots = int(std::clamp<int64_t>(std::min(work / 3 / pairs, kNest.mostPoints / int64_t(std::max(rowCount, 1))), 1, kNest.mostSlots));
  }

  // Rows of blocks become blocks: the levels between them are those with the lightest borders, and where these lie far
  // apart, or are too many, others at even distances.
  void coarsen() {
    std::vector<int64_t> weights;
    for (int j = 1; j < count; ++j)
      weights.push_back(inBytes[j] + outBytes[j]);
    std::vector<int64_t> sorted = weights;
    std::sort(sorted.begin(), sorted.end());
    size_t light = sorted.size() > size_t(kNest.manyLevels) ? kNest.manyLevels : sorted.size() - 1;
    int64_t limit = sorted[light]; // those below it are no more than that
    std::vector<int> cuts{0};
    for (int j = 1; j <= count; ++j)
      if (j == count || weights[j - 1] < limit) {
        int from = cuts.back(), parts = (j - from + kNest.longestRow - 1) / kNest.longestRow;
        parts = std::max(parts, int(int64_t(kNest.manyLevels) * (j - from) / count));
        for (int k = 1; k <= std::min(parts, j - from); ++k)
          if (int cut = from + (j - from) * k / std::min(parts, j - from); cut > cuts.back())
            cuts.push_back(cut);
        if (cuts.back() < j)
          cuts.push_back(j);
      }
    std::map<std::vector<int>, int> known;
    std::vector<BlockWays> newWays;
    std::vector<int> newKinds, newFirst;
    std::vector<Level> newLevels;
    std::vector<int64_t> newIn, newOut;
    for (size_t k = 0; k + 1 < cuts.size() && !late(); ++k) {
      int from = cuts[k], to = cuts[k + 1];
      std::vector<int> key(kinds.begin() + from, kinds.begin() + to);
      auto [it, fresh] = known.insert({key, int(newWays.size())});
      if (fresh)
        newWays.push_back(wayOfRow(from, to));
      newKinds.push_back(it->second);
      newFirst.push_back(from), newLevels.push_back(levels[from]);
      newIn.push_back(inBytes[from]), newOut.push_back(outBytes[from]);
    }
    newOut.push_back(0);
    ways = std::move(newWays), kinds = std::move(newKinds), firstBlock = std::move(newFirst);
    levels = std::move(newLevels), inBytes = std::move(newIn), outBytes = std::move(newOut);
    count = int(kinds.size());
  }

  BlockWays wayOfRow(int from, int to) {
    std::vector<const BlockWays *> row;
    for (int j = from; j < to; ++j)
      row.push_back(&wayOf(j));
    BlockWays w = waysOfRow(row, budget);
    w.forward[1] = w.forward[0];
    w.forward[1].peak = wayTo(from, to);
    w.forward[1].cost += wayOf(from).forward[1].cost - wayOf(from).forward[0].cost;
    std::vector<int> &runs = w.forward[1].runs;
    runs.erase(runs.begin(), runs.begin() + wayOf(from).forward[0].runs.size());
    runs.insert(runs.begin(), wayOf(from).forward[1].runs.begin(), wayOf(from).forward[1].runs.end());
    for (int keeps = 0; keeps < 3; ++keeps) {
      const Front &front = cell(from, to, keeps);
      size_t points = std::min<size_t>(front.size(), kNest.rowPoints);
      for (size_t i = 0; i < points; ++i) {
        const Point &p = front[points > 1 ? i * (front.size() - 1) / (points - 1) : front.size() - 1];
        Passage passage{p.peak, p.cost, {}};
        emit(from, to, keeps, p.peak, passage.runs);
        for (int &v : passage.runs)
          v += v < 0 ? from : -from * Passage::kBlock;
        w.alone[keeps].push_back(std::move(passage));
      }
    }
    w.possible = !w.alone[0].empty();
    return w;
  }

  // Bytes that level a reads and level j does not: beside what counts in the level j. Does j read some of them?
  int64_t besideOf(int a, int j, bool &shares) const {
    shares = false;
    if (!overlaps)
      return inBytes[a];
    int64_t bytes = 0;
    for (int t : levels[a].in)
      if (std::binary_search(levels[j].in.begin(), levels[j].in.end(), t))
        shares = true;
      else
        bytes += d.nodes[order[t]].bytes;
    return bytes;
  }

  // Most bytes on the way from level a to level j, keeping what level a reads.
  int64_t wayTo(int a, int j) {
    std::vector<int64_t> &list = reach[a];
    if (list.empty())
      list.push_back(wayOf(a).forward[1].peak);
    while (int(list.size()) < j - a) {
      int i = a + int(list.size()); // block i, from level i to level i + 1
      int64_t beside = 0;
      if (!overlaps) {
        beside = inBytes[a];
      } else {
        // Only what lies in both levels is surely counted in the block.
        for (int t : levels[a].in)
          if (!std::binary_search(levels[i].in.begin(), levels[i].in.end(), t) ||
              !std::binary_search(levels[i + 1].in.begin(), levels[i + 1].in.end(), t))
            beside += d.nodes[order[t]].bytes;
        work -= int64_t(levels[a].in.size());
      }
      list.push_back(std::max(list.back(), beside + wayOf(i).forward[0].peak));
    }
    return list[j - a - 1];
  }

  struct Split {
    int64_t floor, beside;
    int inside; // how much of what the level j reads must stay
    double cost;
  };
  int64_t floorOf(const BlockOption &o, int b) const {
    return std::max(o.forward.peak + outBytes[b], o.backward.peak);
  }
  Split splitAt(int a, int j, int b) {
    bool shares;
    Split s;
    s.beside = besideOf(a, j, shares);
    s.inside = shares ? 1 : 0;
    s.floor = wayTo(a, j) + outBytes[b];
    s.cost = prefix[j] - prefix[a] - wayOf(a).forward[0].cost + wayOf(a).forward[1].cost;
    return s;
  }
  // Levels to split at; in long rows not all of them.
  int nextSplit(int a, int j, int b) const {
    int length = b - a;
    if (length <= kNest.allSplits)
      return j + 1;
    int from = std::min(j - a, b - j);
    return j + std::max(1, std::min(length / 64, from / 6));
  }

  const Front &cell(int a, int b, int keeps) {
    const BlockWays &way = wayOf(a);
    size_t key = size_t(rows[a][b - a]) * 3 + keeps;
    if (done[key])
      return fronts[key];
    done[key] = 1;
    if (late())
      return fronts[key];
    if (b == a + 1) {
      for (const Passage &p : way.alone[keeps])
        fronts[key].push_back({p.peak, p.cost});
      return fronts[key];
    }
    // From inside to outside, so that the recursion stays shallow.
    for (int j = b - 1; j > a; --j)
      cell(j, b, 0);
    int64_t least = INT64_MAX, most = 0;
    auto see = [&](const Front &inside, int64_t beside, const Front *last, int64_t floor) {
      int64_t peak = leastPeak(inside, beside, last, floor);
      if (peak <= budget) {
        int64_t high = std::max({peak, inside.back().peak + beside, last ? last->back().peak : 0});
        least = std::min(least, peak), most = std::max(most, std::min(high, budget));
      }
    };
    std::vector<Split> splits;
    std::vector<int> at;
    for (const BlockOption &o : way.options[keeps])
      see(cell(a + 1, b, o.insideKeeps), o.beside, nullptr, floorOf(o, b));
    for (int j = a + 1; j < b; j = nextSplit(a, j, b)) {
      Split s = splitAt(a, j, b);
      if (s.floor > budget)
        continue;
      splits.push_back(s), at.push_back(j);
      see(cell(j, b, s.inside), s.beside, &cell(a, j, keeps), s.floor);
    }
    if (least > most)
      return fronts[key];
    Slots found(slots, least, most);
    for (const BlockOption &o : way.options[keeps])
      combine(found, cell(a + 1, b, o.insideKeeps), o.beside, nullptr, floorOf(o, b), o.cost(), budget, work);
    for (size_t i = 0; i < splits.size(); ++i) {
      const Split &s = splits[i];
      combine(found, cell(at[i], b, s.inside), s.beside, &cell(a, at[i], keeps), s.floor, s.cost, budget, work);
    }
    work -= slots / 4;
    return fronts[key] = found.front();
  }

  // A run of a block's value, or of what a block reads from outside, numbered over all blocks.
  void put(int level, const std::vector<int> &values, std::vector<int> &runs) const {
    for (int v : values)
      runs.push_back(v < 0 ? v - firstBlock[level] : v + Passage::kBlock * firstBlock[level]);
  }
  void decode(int v, Runs &runs) const {
    if (v >= 0) {
      runs.push_back(order[blocks[v / Passage::kBlock].place[v % Passage::kBlock]]);
      return;
    }
    for (int j = 0; j < -1 - v; ++j)
      for (int u : blockWays[blockKinds[j]].forward[0].runs)
        runs.push_back(order[blocks[j].place[u]]);
  }

  void emit(int a, int b, int keeps, int64_t peak, std::vector<int> &runs) {
    const BlockWays &way = wayOf(a);
    if (b == a + 1) {
      const Passage *best = nullptr;
      for (const Passage &p : way.alone[keeps])
        if (p.peak <= peak)
          best = &p;
      if (best)
        put(a, best->runs, runs);
      return;
    }
    double least = 1e300;
    const BlockOption *option = nullptr;
    int level = -1;
    for (const BlockOption &o : way.options[keeps]) {
      if (floorOf(o, b) > peak)
        continue;
      const Front &inside = cell(a + 1, b, o.insideKeeps);
      int i = lastWithin(inside, peak - o.beside);
      if (i >= 0 && o.cost() + inside[i].cost < least)
        least = o.cost() + inside[i].cost, option = &o;
    }
    for (int j = a + 1; j < b; j = nextSplit(a, j, b)) {
      Split s = splitAt(a, j, b);
      if (s.floor > peak)
        continue;
      const Front &inside = cell(j, b, s.inside), &last = cell(a, j, keeps);
      int i = lastWithin(inside, peak - s.beside), k = lastWithin(last, peak);
      if (i >= 0 && k >= 0 && s.cost + inside[i].cost + last[k].cost < least)
        least = s.cost + inside[i].cost + last[k].cost, option = nullptr, level = j;
    }
    if (option) {
      put(a, option->forward.runs, runs);
      emit(a + 1, b, option->insideKeeps, peak - option->beside, runs);
      put(a, option->backward.runs, runs);
    } else if (level >= 0) {
      Split s = splitAt(a, level, b);
      put(a, way.forward[1].runs, runs);
      for (int i = a + 1; i < level; ++i)
        put(i, wayOf(i).forward[0].runs, runs);
      emit(level, b, s.inside, peak - s.beside, runs);
      emit(a, level, keeps, peak, runs);
    }
  }

  const Dag &d;
  const std::vector<int> &order;
  int64_t budget;
  int64_t &work;
  double deadline;
  std::vector<Level> levels;
  std::vector<Block> blocks;
  std::vector<BlockWays> ways;
  std::vector<int> kinds;
  std::vector<int64_t> inBytes, outBytes;
  std::vector<std::vector<int64_t>> reach;
  std::vector<double> prefix;
  bool overlaps = false;
  int count = 0, rowCount = 0, slots = 0;
  // Of each level its first block; the blocks' own ways.
  std::vector<int> firstBlock, blockKinds;
  std::vector<BlockWays> blockWays;
  std::vector<std::vector<int>> rows;
  std::vector<Front> fronts;
  std::vector<char> done;
};

// Are first computations those of the order?
bool inOrder(const std::vector<int> &order, const Runs &runs) {
  std::vector<char> done(order.size(), 0);
  size_t next = 0;
  for (int v : runs)
    if (!done[v]) {
      if (order[next++] != v)
        return false;
      done[v] = 1;
    }
  return next == order.size();
}

} // namespace

std::vector<Runs> nestedRuns(const Dag &d, Order order, const std::vector<int> &sequence, int64_t budget,
                             int64_t &work, double deadline) {
  std::vector<Runs> result;
  for (bool coarse : {false, true}) {
    Nest nest(d, sequence, budget, work, deadline);
    if (!nest.prepare(order == Order::Given, coarse))
      continue;
    const Front front = nest.all();
    if (front.empty())
      continue;
    for (int64_t peak : {front.back().peak, front.front().peak}) {
      Runs runs = nest.runsAt(peak);
      if ((order == Order::Free || inOrder(sequence, runs)) &&
          std::find(result.begin(), result.end(), runs) == result.end())
        result.push_back(std::move(runs));
    }
  }
  std::stable_sort(result.begin(), result.end(),
                   [&](const Runs &a, const Runs &b) { return simulate(d, a).cost < simulate(d, b).cost; });
  return result;
}

} // namespace cinch::solve::detail
