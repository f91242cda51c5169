// ArenaMerge.cpp: buffers that fit each other exactly are glued together, which leaves a smaller problem.
//
// Where there is no slack, whatever ends at a time t must hand its bytes over without a gap. If buffers that live in
// [a, t) and buffers that live in [t, c) have subsets of equal sums, the two stacks make one block that lives in [a,
// c):
//
//     | x (3) |   z    |
//     | y (2) |  (5)   |      becomes one block of 5 in [a, c)
//     a       t        c
//
// Blocks are glued again, the smallest subsets first, until nothing fits. Any placement of the blocks is one of the
// buffers. Two sums may be equal by chance and their block wrong; random ties and a new start then help.
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <map>
#include <set>

namespace cinch::solve {
namespace {

struct Block {
  int64_t size, lower, upper;
  std::vector<std::pair<int, int64_t>> parts; // buffer, offset inside the block
};

struct Fit {
  std::vector<int> left, right;
  size_t count() const { return left.size() + right.size(); }
};

class Glue {
public:
  Glue(const ArenaProblem &p, uint64_t seed)
      : rng(seed * 0x9e3779b97f4a7c15ull + 1), largest(seed % 2), limit(seed % 4   ? 12
                                                                        : seed % 8 ? 4
                                                                                   : 2) {
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const ArenaBuffer &b = p.buffers[i];
      if (b.size > 0)
        add({(b.size + p.alignment - 1) / p.alignment * p.alignment, b.lower, b.upper, {{int(i), 0}}});
    }
  }

  void run(int64_t &work, double deadline) {
    // Small fits first: the more members, the more likely an equality by chance.
    for (size_t most = 2; most <= limit && work > 0;) {
      bool glued = false;
      std::vector<int64_t> times;
      for (auto &entry : starts)
        if (ends.count(entry.first))
          times.push_back(entry.first);
      for (size_t i = times.size(); i > 1; --i)
        std::swap(times[i - 1], times[next() % i]);
      for (int64_t t : times) {
        if (deadline > 0 && detail::secondsNow() > deadline)
          return;
        while (work > 0 && glueAt(t, most, work))
          glued = true;
      }
      most = glued ? 2 : most + 1;
    }
  }

  std::vector<Block> blocks;
  std::vector<bool> alive;

private:
  uint64_t next() {
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return rng >> 11;
  }
  void add(Block b) {
    int id = int(blocks.size());
    starts[b.lower].insert(id), ends[b.upper].insert(id);
    blocks.push_back(std::move(b)), alive.push_back(true);
  }
  void remove(int id) {
    alive[id] = false;
    starts[blocks[id].lower].erase(id), ends[blocks[id].upper].erase(id);
  }

  // Subset sums of at most `most` members: the smallest subset for each sum.
  void sums(const std::vector<int> &ids, size_t most, std::map<int64_t, std::vector<int>> &result, int64_t &work) {
    result.clear();
    result[0] = {};
    for (int id : ids) {
      if (result.size() > 4096)
        break;
      std::vector<std::pair<int64_t, std::vector<int>>> more;
      for (auto &[sum, members] : result)
        if (members.size() < most) {
          more.push_back({sum + blocks[id].size, members});
          more.back().second.push_back(id);
        }
      for (auto &[sum, members] : more) {
        auto it = result.find(sum);
        if (it == result.end() || it->second.size() > members.size())
          result[sum] = std::move(members);
      }
      work -= int64_t(more.size()) + 1;
    }
    result.erase(0);
  }

  bool glueAt(int64_t t, size_t most, int64_t &work) {
    std::map<int64_t, std::vector<int>> left, right; // by the other end
    for (int id : ends[t])
      left[blocks[id].lower].push_back(id);
    for (int id : starts[t])
      right[blocks[id].upper].push_back(id);
    std::map<int64_t, std::map<int64_t, std::vector<int>>> rightSums;
    for (auto &[end, ids] : right) {
      shuffle(ids);
      sums(ids, most - 1, rightSums[end], work);
    }
    std::vector<Fit> fits;
    std::map<int64_t, std::vector<int>> leftSums;
    for (auto &[begin, ids] : left) {
      shuffle(ids);
      sums(ids, most - 1, leftSums, work);
      for (auto &[end, table] : rightSums)
        for (auto &[sum, members] : leftSums) {
          --work;
          auto it = table.find(sum);
          if (it != table.end() && members.size() + it->second.size() <= most)
            fits.push_back({members, it->second});
        }
    }
    if (fits.empty())
      return false;
    // Large sums are seldom equal by chance.
    size_t pick = next() % fits.size();
    if (largest)
      for (size_t i = 0; i < fits.size(); ++i)
        if (sumOf(fits[i]) > sumOf(fits[pick]))
          pick = i;
    const Fit fit = fits[pick];
    Block block{0, blocks[fit.left[0]].lower, blocks[fit.right[0]].upper, {}};
    for (const std::vector<int> *side : {&fit.left, &fit.right}) {
      int64_t at = 0;
      for (int id : *side) {
        for (auto &[buffer, offset] : blocks[id].parts)
          block.parts.push_back({buffer, at + offset});
        at += blocks[id].size;
      }
      block.size = at;
    }
    for (int id : fit.left)
      remove(id);
    for (int id : fit.right)
      remove(id);
    add(std::move(block));
    return true;
  }
  int64_t sumOf(const Fit &fit) const {
    int64_t sum = 0;
    for (int id : fit.left)
      sum += blocks[id].size;
    return sum;
  }
  void shuffle(std::vector<int> &ids) {
    for (size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[next() % i]);
  }

  uint64_t rng;
  bool largest;
  size_t limit; // members of a fit; few leave more to the search and glue less by chance
  std::map<int64_t, std::set<int>> starts, ends;
};

} // namespace

int64_t detail::placeGlued(const ArenaProblem &p, uint64_t seed, int64_t enough, int64_t &work, double deadline,
                           std::vector<int64_t> &offsets) {
  for (const ArenaBuffer &b : p.buffers)
    if (b.fixedOffset >= 0)
      return -1;
  Glue glue(p, seed);
  int64_t share = work / 2, left = share;
  glue.run(left, deadline);
  work -= share - left;
  ArenaProblem smaller;
  smaller.alignment = p.alignment;
  std::vector<int> ids, order;
  for (size_t i = 0; i < glue.blocks.size(); ++i)
    if (glue.alive[i]) {
      order.push_back(int(ids.size()));
      ids.push_back(int(i));
      smaller.buffers.push_back({glue.blocks[i].size, glue.blocks[i].lower, glue.blocks[i].upper, -1});
    }
  std::vector<int64_t> placed;
  bool proved = false;
  int64_t height = -1;
  share = std::min<int64_t>(work, (seed % 4 ? 200 : 2000) * int64_t(ids.size()) + 20'000), left = share;
  if (searchCanonical(smaller, enough, left, deadline, placed, proved)) {
    height = enough;
  } else {
    auto area = [&](int i) {
      return double(smaller.buffers[i].size) * double(smaller.buffers[i].upper - smaller.buffers[i].lower);
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return area(a) > area(b); });
    height = placeInOrder(smaller, order, placed, -1, left);
    work -= share - left;
    // Few blocks are left, so moves in their order reach far.
    ArenaSolution moved;
    moved.offsets = placed, moved.height = height;
    share = work / 2, left = share;
    improveOrder(smaller, order, moved, enough, 400, seed, left, deadline);
    placed = moved.offsets, height = moved.height;
  }
  work -= share - left;
  offsets.assign(p.buffers.size(), 0);
  for (size_t i = 0; i < ids.size(); ++i)
    for (auto &[buffer, offset] : glue.blocks[ids[i]].parts)
      offsets[buffer] = placed[i] + offset;
  return height;
}

} // namespace cinch::solve
