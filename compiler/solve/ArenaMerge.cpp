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
// Two sums may be equal by chance and their block wrong: the more pairs of subsets of so many members there are, and
// the smaller the sums, the more equalities there are by chance. So the fit with the fewest expected of its kind is
// glued first, over all times, until what is left would be guessing; blocks are glued again. Any placement of the
// blocks is one of the buffers. What is taken for less likely is drawn anew for each seed, and so is how far it goes;
// every other seed only counts the members, since what is right on one instance misleads on another.
#include "compiler/solve/Memory.h"
#include "compiler/solve/Random.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace cinch::solve {
namespace {

struct Block {
  int64_t size;
  std::vector<std::pair<int, int64_t>> parts; // buffer, offset inside the block
};

class Glue {
public:
  Glue(const ArenaProblem &p, uint64_t seed)
      : random{seed * Random::kSpread + 1}, noise(seed == 1 ? 0 : seed % 3 ? 4 : 2),
        most(seed % 5 == 4 ? 6000 : seed % 2 ? 1000 : 2000), limit(seed % 3 == 1 ? 0.03 : seed % 3 ? 1 : 0.2),
        byMembers(seed % 2 == 0) {
    if (byMembers)
      limit = seed % 8 ? 8192 : 32; // twelve members, or four
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const ArenaBuffer &b = p.buffers[i];
      if (b.size > 0)
        add({roundUp(b.size, p.alignment), {{int(i), 0}}}, b.lower, b.upper);
    }
  }

  void run(int64_t &work, double deadline) {
    std::set<int64_t> times;
    for (auto &entry : starts)
      times.insert(entry.first);
    std::map<int64_t, Fit> fits;
    for (int64_t t : times)
      fits[t] = bestAt(t, work);
    while (work > 0 && (deadline <= 0 || detail::secondsNow() < deadline)) {
      Fit fit;
      int64_t at = 0;
      for (auto &[t, candidate] : fits)
        if (candidate.chance < fit.chance)
          fit = candidate, at = t;
      work -= int64_t(fits.size());
      if (fit.chance > limit)
        return;
      Block block{0, {}};
      for (bool right : {false, true}) {
        Class &c = classes[right ? fit.right : fit.left];
        uint64_t members = right ? fit.rightMembers : fit.leftMembers;
        std::vector<int> rest;
        block.size = 0;
        for (size_t i = 0; i < c.blocks.size(); ++i) {
          if (i >= 64 || !(members >> i & 1)) {
            rest.push_back(c.blocks[i]);
            continue;
          }
          for (auto &[buffer, offset] : blocks[c.blocks[i]].parts)
            block.parts.push_back({buffer, block.size + offset});
          block.size += blocks[c.blocks[i]].size;
        }
        c.blocks = std::move(rest), c.fresh = false;
      }
      int64_t lower = classes[fit.left].lower, upper = classes[fit.right].upper;
      add(std::move(block), lower, upper);
      for (int64_t t : {lower, at, upper})
        fits[t] = bestAt(t, work);
    }
  }

  // The blocks that are left, as a problem; `parts` of each.
  ArenaProblem rest(std::vector<const Block *> &parts) const {
    ArenaProblem smaller;
    for (const Class &c : classes)
      for (int id : c.blocks) {
        smaller.buffers.push_back({blocks[id].size, c.lower, c.upper, -1});
        parts.push_back(&blocks[id]);
      }
    return smaller;
  }

private:
  struct Sum {
    int64_t sum;
    int of; // class
    uint64_t members;
    double subsets; // of so many members
  };
  struct Class { // blocks of one life
    int64_t lower, upper;
    std::vector<int> blocks; // by rising size
    std::vector<Sum> sums;   // of subsets of few members
    bool fresh = false;      // `sums` is of these blocks
  };
  struct Fit {
    double chance = 1e300; // about so many of its kind are equal by chance
    int left = -1, right = -1;
    uint64_t leftMembers = 0, rightMembers = 0;
  };

  // At least 1, seldom near 2^noise: powers of two, linear between them.
  double draw() {
    if (noise == 0)
      return 1;
    double x = random.unit() * noise;
    return std::ldexp(1 + (x - double(int(x))), int(x));
  }

  void add(Block b, int64_t lower, int64_t upper) {
    auto [it, isNew] = classOf.insert({{lower, upper}, int(classes.size())});
    if (isNew) {
      classes.push_back({lower, upper, {}, {}});
      starts[lower].push_back(it->second), ends[upper].push_back(it->second);
    }
    Class &c = classes[it->second];
    auto smaller = [&](int64_t size, int id) { return size < blocks[id].size; };
    c.blocks.insert(std::upper_bound(c.blocks.begin(), c.blocks.end(), b.size, smaller), int(blocks.size()));
    c.fresh = false;
    blocks.push_back(std::move(b));
  }

  // Sums of all subsets of one member, of two, .. as long as there are at most `most`.
  void makeSums(int id, int64_t &work) {
    Class &c = classes[id];
    if (c.fresh)
      return;
    c.fresh = true, c.sums.clear();
    int n = int(std::min<size_t>(c.blocks.size(), 64));
    std::vector<Sum> level{{0, id, 0, 1}}, next;
    double subsets = 1;
    for (int members = 1; members <= n; ++members) {
      subsets = subsets * (n - members + 1) / members;
      if (subsets + double(c.sums.size()) > double(most))
        return;
      next.clear();
      for (const Sum &s : level) {
        int first = 0;
        while (first < n && s.members >> first)
          ++first;
        for (int i = first; i < n; ++i) {
          int64_t size = blocks[c.blocks[i]].size;
          if (i > first && blocks[c.blocks[i - 1]].size == size)
            continue; // the same subset, but for twins
          next.push_back({s.sum + size, id, s.members | uint64_t(1) << i, subsets});
        }
      }
      work -= 2 * int64_t(next.size());
      c.sums.insert(c.sums.end(), next.begin(), next.end());
      level.swap(next);
    }
  }

  Fit bestAt(int64_t t, int64_t &work) {
    Fit best;
    auto e = ends.find(t), s = starts.find(t);
    if (e == ends.end() || s == starts.end())
      return best;
    for (bool right : {false, true}) {
      std::vector<Sum> &sums = right ? rightSums : leftSums;
      sums.clear();
      for (int id : right ? s->second : e->second) {
        makeSums(id, work);
        sums.insert(sums.end(), classes[id].sums.begin(), classes[id].sums.end());
      }
      std::sort(sums.begin(), sums.end(), [](const Sum &x, const Sum &y) {
        return x.sum != y.sum ? x.sum < y.sum : x.of != y.of ? x.of < y.of : x.members < y.members;
      });
      work -= 20 * int64_t(sums.size());
    }
    size_t from = 0;
    for (const Sum &l : leftSums) {
      while (from < rightSums.size() && rightSums[from].sum < l.sum)
        ++from;
      for (size_t k = from; k < rightSums.size() && rightSums[k].sum == l.sum; ++k) {
        const Sum &r = rightSums[k];
        double chance = byMembers ? std::ldexp(random.unit() + 1, __builtin_popcountll(l.members) +
                                                                   __builtin_popcountll(r.members))
                                  : draw() * l.subsets * r.subsets / double(l.sum);
        if (chance < best.chance)
          best = {chance, l.of, r.of, l.members, r.members};
        --work;
      }
    }
    return best;
  }

  Random random;
  double noise; // chances are scaled by up to two to the power of this
  size_t most;  // subsets of a class
  double limit; // fits of a larger chance are not glued
  bool byMembers; // fits of few members first, any of them: two to the power of their number stands for the chance
  std::vector<Block> blocks;
  std::vector<Class> classes;
  std::map<std::pair<int64_t, int64_t>, int> classOf;
  std::map<int64_t, std::vector<int>> starts, ends; // classes
  std::vector<Sum> leftSums, rightSums;
};

} // namespace

int64_t detail::placeGlued(const ArenaProblem &p, uint64_t seed, int64_t enough, int64_t known, int64_t &work,
                           double deadline, std::vector<int64_t> &offsets) {
  for (const ArenaBuffer &b : p.buffers)
    if (b.fixedOffset >= 0)
      return -1;
  Glue glue(p, seed);
  int64_t share = work / 2, left = share;
  glue.run(left, deadline);
  work -= share - left;
  std::vector<const Block *> parts;
  ArenaProblem smaller = glue.rest(parts);
  smaller.alignment = p.alignment;
  std::vector<int64_t> placed, trial;
  int64_t height = -1;
  // A height of at most `target`, if that is soon found.
  auto search = [&](int64_t target, int64_t steps) {
    bool proved = false;
    int64_t given = std::min(work, steps * int64_t(parts.size()) + 200'000), rest = given;
    bool found = searchCanonical(smaller, target, rest, deadline, trial, proved);
    work -= given - rest;
    if (!found)
      return false;
    placed = trial, height = 0;
    for (size_t i = 0; i < parts.size(); ++i)
      height = std::max(height, placed[i] + parts[i]->size);
    return true;
  };
  // What is not to be had without any waste may be had with little.
  if (!search(enough, seed % 4 ? 4'000 : 20'000)) {
    while (work > 0 && known - enough > std::max<int64_t>(p.alignment, enough / 2000) &&
           search(enough + (known - enough) / 2, 4'000))
      known = height;
  }
  if (height < 0 && seed % 4 == 1) {
    // Few blocks are left: a better order of them is soon found, or not at all.
    ArenaSolution moved;
    moved.height = INT64_MAX;
    int64_t given = std::min(work / 2, 10'000 * int64_t(parts.size())), rest = given;
    placeByOrder(smaller, enough, seed, moved, rest, deadline);
    work -= given - rest;
    placed = moved.offsets, height = placed.empty() ? -1 : moved.height;
  }
  if (height < 0)
    return -1;
  offsets.assign(p.buffers.size(), 0);
  for (size_t i = 0; i < parts.size(); ++i)
    for (auto &[buffer, offset] : parts[i]->parts)
      offsets[buffer] = placed[i] + offset;
  return height;
}

} // namespace cinch::solve
