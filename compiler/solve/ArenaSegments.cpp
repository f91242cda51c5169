// ArenaSegments.cpp: arenas without slack, by what hands its bytes over to what.
//
// At a time t at which no byte is free just before nor just after, what ends leaves exactly the bytes that what starts takes. They form
// segments: runs of neighbouring bytes, each left by some buffers that end at t and taken by some that start at t, with equal
// sums of sizes and nothing between them that lives on.
//
//          t
//     | a  |  c (3) |       two segments at t: a and b hand over to c and d, and e to f. If no other subsets have equal sums, it is
//     | (4)|--------|       known before anything is placed that a and b are neighbours, and so are c and d.
//     |----|  d (3) |
//     | b  |--------|
//     | (2)| lives on ..
//
// With segments as vertices, each buffer is an edge from the segment where it starts to the one where it ends, and a placement is a drawing of
// this graph in the plane, from left to right, without crossings (Brooks, Smith, Stone and Tutte, 1940, for squares). Every such drawing is a
// placement, so nothing has to be searched: from left to right, the buffers that each segment ends become neighbours in all orders that are still
// possible, and those that it starts take their place (Lempel, Even and Cederbaum, 1967). Buffers that fit each other around a corner only
// (pinwheels) are no harder than others.
//
// What is searched is which sums are equal by chance: where they can be divided in several ways, the likeliest is tried first, and
// a wrong one ends, mostly soon, at a segment whose buffers cannot be neighbours.
#include "compiler/solve/ArenaSegments.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/NeighbourTree.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve::detail {
namespace {

constexpr size_t kMembers = 20;     // that end, or that start, of which all sums are looked at,
constexpr size_t kBothMembers = 34; // and of both together: more have too many sums that are equal by chance
constexpr size_t kFewSums = 4000;   // where there are more, those of few members, on each side
constexpr double kCertain = -3;     // logarithm of the chance of a segment that is then taken for true
constexpr size_t kSegments = 60'000; // equal sums; where there are more they say nothing
constexpr int kDivisions = 50'000;  // steps of the search for ways
constexpr size_t kWays = 200;       // that are kept
constexpr double kDearer = 3;       // how much less likely, as a logarithm, what is tried may be in each further round

struct Sum {
  int64_t sum;
  uint32_t members;
};

struct Equal {
  uint32_t ending, starting;
  double chance;
  int count() const { return __builtin_popcount(ending) + __builtin_popcount(starting); }
};

double logBinomial(size_t n, int k) { return std::lgamma(double(n) + 1) - std::lgamma(k + 1.0) - std::lgamma(double(n) - k + 1); }

double chanceOf(size_t endings, size_t startings, uint32_t ending, uint32_t starting, int64_t sum) {
  return logBinomial(endings, __builtin_popcount(ending)) + logBinomial(startings, __builtin_popcount(starting)) - std::log(double(sum));
}

// Sums of all subsets of one member, of two .. as long as there are at most `most`, by rising sum.
std::vector<Sum> sumsOf(const std::vector<SegmentBuffer> &buffers, const std::vector<int> &list, size_t most) {
  std::vector<Sum> sums, level{{0, 0}}, next;
  double subsets = 1;
  for (size_t count = 1; count <= list.size(); ++count) {
    subsets = subsets * double(list.size() - count + 1) / double(count);
    if (subsets + double(sums.size()) > double(most))
      break;
    next.clear();
    for (const Sum &s : level)
      for (size_t i = s.members ? size_t(32 - __builtin_clz(s.members)) : 0; i < list.size(); ++i)
        next.push_back({s.sum + buffers[list[i]].size, s.members | uint32_t(1) << i});
    sums.insert(sums.end(), next.begin(), next.end());
    level.swap(next);
  }
  std::sort(sums.begin(), sums.end(), [](const Sum &x, const Sum &y) { return x.sum != y.sum ? x.sum < y.sum : x.members < y.members; });
  return sums;
}

// All equal sums, or none if there are too many.
std::vector<Equal> equalSums(const std::vector<SegmentBuffer> &buffers, const std::vector<int> &ending, const std::vector<int> &starting,
                             size_t most, int64_t &work) {
  std::vector<Sum> before = sumsOf(buffers, ending, most), after = sumsOf(buffers, starting, most);
  work -= 20 * int64_t(before.size() + after.size());
  std::vector<Equal> equal;
  size_t from = 0;
  for (const Sum &l : before) {
    while (from < after.size() && after[from].sum < l.sum)
      ++from;
    for (size_t k = from; k < after.size() && after[k].sum == l.sum; ++k) {
      if (equal.size() == kSegments)
        return {};
      equal.push_back({l.members, after[k].members, chanceOf(ending.size(), starting.size(), l.members, after[k].members, l.sum)});
    }
  }
  return equal;
}

std::vector<int> chosen(const std::vector<int> &list, uint32_t members, bool others = false) {
  std::vector<int> some;
  for (size_t i = 0; i < list.size(); ++i)
    if (bool(members >> i & 1) != others)
      some.push_back(list[i]);
  return some;
}

// All ways to divide the members into segments that cannot be divided further.
struct Divider {
  std::vector<Equal> segments;
  std::vector<std::vector<Equal>> found;
  std::vector<Equal> taken;
  int steps = kDivisions;

  void divide(uint32_t ending, uint32_t starting) {
    if (--steps < 0)
      return;
    if (ending == 0 && starting == 0) {
      found.push_back(taken);
      return;
    }
    for (const Equal &e : segments)
      if ((e.ending & ending & -ending) && (e.ending & ~ending) == 0 && (e.starting & ~starting) == 0) {
        taken.push_back(e);
        divide(ending & ~e.ending, starting & ~e.starting);
        taken.pop_back();
      }
  }
};

} // namespace

std::vector<SegmentWay> waysToDivide(const std::vector<SegmentBuffer> &buffers, const std::vector<int> &allEnding,
                                     const std::vector<int> &allStarting, int64_t &work) {
  std::vector<int> ending = allEnding, starting = allStarting;
  SegmentWay certain;
  // Of many members the segments of few members come first, as far as they can hardly be a coincidence.
  while (ending.size() > kMembers || starting.size() > kMembers || ending.size() + starting.size() > kBothMembers) {
    if (ending.size() > 31 || starting.size() > 31)
      return {};
    std::vector<Equal> equal = equalSums(buffers, ending, starting, kFewSums, work);
    auto best = std::min_element(equal.begin(), equal.end(), [](const Equal &x, const Equal &y) { return x.chance < y.chance; });
    if (best == equal.end() || best->chance > kCertain)
      return {};
    certain.segments.push_back({chosen(ending, best->ending), chosen(starting, best->starting)});
    ending = chosen(ending, best->ending, true), starting = chosen(starting, best->starting, true);
  }
  Divider divider;
  std::vector<Equal> equal = equalSums(buffers, ending, starting, size_t(1) << kMembers, work);
  std::stable_sort(equal.begin(), equal.end(), [](const Equal &x, const Equal &y) { return x.count() < y.count(); });
  for (const Equal &e : equal) {
    work -= int64_t(divider.segments.size()) / 4 + 1;
    if (std::none_of(divider.segments.begin(), divider.segments.end(),
                     [&](const Equal &s) { return (s.ending & ~e.ending) == 0 && (s.starting & ~e.starting) == 0; }))
      divider.segments.push_back(e);
  }
  std::stable_sort(divider.segments.begin(), divider.segments.end(), [](const Equal &x, const Equal &y) { return x.chance < y.chance; });
  divider.divide((uint32_t(1) << ending.size()) - 1, (uint32_t(1) << starting.size()) - 1);
  work -= 10 * int64_t(kDivisions - std::max(divider.steps, 0));
  std::vector<SegmentWay> ways;
  auto keep = [&](const std::vector<Equal> &segments) {
    SegmentWay way = certain;
    for (const Equal &e : segments) {
      way.segments.push_back({chosen(ending, e.ending), chosen(starting, e.starting)});
      way.chance += e.chance;
    }
    ways.push_back(std::move(way));
  };
  for (const std::vector<Equal> &found : divider.found)
    keep(found);
  // A true segment may be divisible by chance.
  for (const std::vector<Equal> &found : divider.found)
    for (size_t i = 0; i < found.size() && ways.size() < 10 * kWays; ++i)
      for (size_t k = i + 1; k < found.size(); ++k) {
        std::vector<Equal> fewer = found;
        Equal &both = fewer[i];
        both.ending |= found[k].ending, both.starting |= found[k].starting;
        int64_t sum = 0;
        for (int b : chosen(ending, both.ending))
          sum += buffers[b].size;
        both.chance = chanceOf(ending.size(), starting.size(), both.ending, both.starting, sum);
        fewer.erase(fewer.begin() + long(k));
        keep(fewer);
      }
  std::stable_sort(ways.begin(), ways.end(), [](auto &x, auto &y) { return x.chance < y.chance; });
  if (ways.size() > kWays)
    ways.resize(kWays);
  return ways;
}

namespace {

class AlongSegments {
public:
  AlongSegments(const std::vector<SegmentBuffer> &buffers, int sections, int64_t &work, double deadline)
      : buffers(buffers), sections(sections), work(work), deadline(deadline) {}

  bool run(std::vector<int64_t> &offsets) {
    std::vector<std::vector<int>> ending(sections + 1), starting(sections + 1);
    for (int i = 0; i < int(buffers.size()); ++i)
      ending[buffers[i].to].push_back(i), starting[buffers[i].from].push_back(i);
    ways.resize(sections);
    for (int t = 1; t < sections; ++t) {
      ways[t] = waysToDivide(buffers, ending[t], starting[t], work);
      if (ways[t].empty() || late())
        return false;
    }
    for (double most = kDearer; !late(); most += kDearer) {
      leftOut = false;
      steps.clear();
      if (go(1, NeighbourTree(starting[0]), most)) {
        placeBackwards(offsets);
        return true;
      }
      if (!leftOut)
        return false;
    }
    return false;
  }

private:
  struct Step { // what is known when the buffers that end in a segment are neighbours
    NeighbourTree tree;
    const SegmentWay::Segment *segment;
  };

  // From time t on; what is tried may be less likely than the likeliest by `most`.
  bool go(int t, const NeighbourTree &tree, double most) {
    if (t == sections) {
      last = tree;
      return true;
    }
    for (const SegmentWay &way : ways[t]) {
      double dearer = way.chance - ways[t].front().chance;
      if (dearer > most) {
        leftOut = true;
        break;
      }
      NeighbourTree next = tree;
      size_t before = steps.size();
      bool possible = true;
      for (const SegmentWay::Segment &segment : way.segments) {
        work -= 10 * next.size();
        possible = next.makeNeighbours(segment.ending);
        if (!possible)
          break;
        steps.push_back({next, &segment});
        next.replace(segment.starting);
      }
      if (possible && go(t + 1, next, most - dearer))
        return true;
      steps.erase(steps.begin() + long(before), steps.end());
      if (late())
        return false;
    }
    return false;
  }

  bool late() const { return work <= 0 || (deadline > 0 && secondsNow() > deadline); }

  // Any order of the last buffers will do. Of those before, whatever lives on keeps its place, and those that a segment ends stand where
  // those that it starts stood.
  void placeBackwards(std::vector<int64_t> &offsets) {
    std::vector<int> rank(buffers.size(), 0);
    std::vector<int> order = last.order(rank);
    offsets.assign(buffers.size(), 0);
    auto place = [&] {
      int64_t offset = 0;
      for (int i : order)
        offsets[i] = offset, offset += buffers[i].size;
    };
    place();
    for (size_t k = steps.size(); k-- > 0;) {
      for (size_t i = 0; i < order.size(); ++i)
        rank[order[i]] = int(i);
      int least = INT32_MAX;
      for (int i : steps[k].segment->starting)
        least = std::min(least, rank[i]);
      for (int i : steps[k].segment->ending)
        rank[i] = least;
      order = steps[k].tree.order(rank);
      place();
    }
  }

  const std::vector<SegmentBuffer> &buffers;
  int sections;
  int64_t &work;
  double deadline;
  std::vector<std::vector<SegmentWay>> ways; // at each end of a section
  std::vector<Step> steps;
  NeighbourTree last{{}};
  bool leftOut = false;
};

} // namespace

bool placeAlongSegments(const std::vector<SegmentBuffer> &buffers, int sections, int64_t &work, double deadline,
                        std::vector<int64_t> &offsets) {
  return AlongSegments(buffers, sections, work, deadline).run(offsets);
}

} // namespace cinch::solve::detail
