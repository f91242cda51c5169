// ArenaSearch.cpp: is there a placement of at most this height? Branch and bound over canonical placements, those in
// which every buffer rests on the floor or on another, built from the bottom up (the idea of google/minimalloc, with
// a skyline).
//
// Time is cut into sections at every start and end of a life. Section s has a floor (top of what is placed in it),
// bytes still to come, and slack: what may be wasted there under the target. If a section has no slack, its next
// buffer lies exactly on its floor. So in a valley of the skyline (sections of equal floor between higher ones) the
// buffer at the left end must start with the valley and end inside it, the one at the right end likewise: usually few
// candidates, often one or none. The valley end with the fewest is branched on. Only if every valley end has slack,
// waste is a branch too.
//
// Where buffers still to come cross a boundary between sections without slack, the floors on both sides must become
// equal first, by buffers that end there and buffers that start there: a subset-sum test that sees most wrong turns
// at once.
#include "compiler/solve/ArenaSegments.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/Random.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace cinch::solve {
namespace {

class CanonicalSearch {
public:
  CanonicalSearch(const ArenaProblem &p, int64_t target, int64_t &work, double deadline)
      : p(p), target(target), work(work), deadline(deadline) {}

  // The buffers of one stretch of time that no buffer crosses the ends of.
  bool run(const std::vector<int> &buffers, std::vector<int64_t> &offsets, bool &proved) {
    proved = false;
    ids = buffers;
    std::vector<int64_t> times;
    for (int i : ids)
      times.push_back(p.buffers[i].lower), times.push_back(p.buffers[i].upper);
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    sections = int(times.size()) - 1;
    auto at = [&](int64_t t) { return int(std::lower_bound(times.begin(), times.end(), t) - times.begin()); };
    items.clear();
    std::vector<int64_t> total(sections, 0);
    for (int i : ids) {
      const ArenaBuffer &b = p.buffers[i];
      int64_t size = roundUp(b.size, p.alignment);
      items.push_back({size, at(b.lower), at(b.upper), 0, false, 0, 0});
      for (int s = items.back().from; s < items.back().to; ++s)
        total[s] += size;
    }
    std::map<std::pair<int, int>, int> lives;
    for (Item &x : items)
      x.twins = lives.insert({{x.from, x.to}, int(lives.size())}).first->second;
    classes = int(lives.size());
    for (int s = 0; s < sections; ++s)
      if (total[s] > target) {
        proved = true;
        return false;
      }
    if (std::all_of(total.begin(), total.end(), [&](int64_t bytes) { return bytes == target; }) && alongSegments(offsets))
      return true;
    // Each buffer that is placed costs a walk over the skyline (`choose`): with less work than that not even a search without a wrong turn ends.
    if (int64_t(items.size()) * sections > work)
      return false;
    // Restarts with other orders of the candidates, each with more work than the one before: luck first, proof later.
    int64_t allowance = std::max<int64_t>(20'000, 400 * int64_t(items.size()));
    for (int round = 0; work > 0; ++round, allowance += allowance / 8) {
      if (deadline > 0 && detail::secondsNow() > deadline)
        return false;
      start(total, round);
      limit = std::min(work, allowance);
      int64_t before = limit;
      int outcome = descend();
      work -= before - limit;
      if (outcome > 0) {
        for (size_t i = 0; i < ids.size(); ++i)
          offsets[ids[i]] = items[i].offset;
        return true;
      }
      if (outcome == 0) {
        proved = true;
        return false;
      }
    }
    return false;
  }

private:
  struct Item {
    int64_t size;
    int from, to;
    int64_t offset;
    bool placed;
    int rank = 0, twins = 0; // place in the order of candidates; class of the buffers with the same life
  };

  // Without slack, what hands its bytes over to what is nearly all that there is to know.
  bool alongSegments(std::vector<int64_t> &offsets) {
    std::vector<detail::SegmentBuffer> buffers;
    for (const Item &x : items)
      buffers.push_back({x.size, x.from, x.to});
    int64_t share = work / 2, left = share;
    std::vector<int64_t> placed;
    bool found = detail::placeAlongSegments(buffers, sections, left, deadline, placed);
    work -= share - left;
    for (size_t i = 0; found && i < ids.size(); ++i)
      offsets[ids[i]] = placed[i];
    return found;
  }

  void start(const std::vector<int64_t> &total, int round) {
    flushFirst = round % 2;
    floor.assign(sections, 0), left = total, slack.assign(sections, 0);
    for (int s = 0; s < sections; ++s)
      slack[s] = target - total[s];
    startsAt.assign(sections + 1, {}), endsAt.assign(sections + 1, {});
    std::vector<int> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<double> weight(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const Item &x = items[i];
      double life = x.to - x.from, size = double(x.size);
      double drawn = random.unit(), noise = round < 8 ? 0 : drawn;
      switch (round / 2 % 4) {
      case 0: weight[i] = size * life; break;
      case 1: weight[i] = life; break;
      case 2: weight[i] = size; break;
      default: weight[i] = -size; break;
      }
      weight[i] *= 1 + noise * (round % 3 ? 1 : 4);
      items[i].placed = false;
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return weight[a] > weight[b]; });
    int rank = 0;
    for (int i : order) {
      items[i].rank = rank++;
      startsAt[items[i].from].push_back(i), endsAt[items[i].to].push_back(i);
    }
    stacks.assign(classes, {});
    unplaced = int(items.size());
  }

  void place(int i, int64_t offset) {
    Item &x = items[i];
    x.placed = true, x.offset = offset, --unplaced;
    stacks[x.twins].push_back(i);
    for (int s = x.from; s < x.to; ++s)
      floor[s] = offset + x.size, left[s] -= x.size;
    limit -= 10 + (x.to - x.from);
  }
  void unplace(int i) {
    Item &x = items[i];
    x.placed = false, ++unplaced;
    for (int s = x.from; s < x.to; ++s)
      floor[s] = x.offset, left[s] += x.size; // a buffer is placed on equal floors only
    stacks[x.twins].pop_back();
  }
  // Of two with the same life, one right on the other, the lower comes first in the order of candidates.
  bool outOfOrder(int i, int64_t base) const {
    const std::vector<int> &stack = stacks[items[i].twins];
    if (stack.empty())
      return false;
    const Item &below = items[stack.back()];
    return below.offset + below.size == base && below.rank > items[i].rank;
  }

  struct Valley {
    int from = 0, to = 0;
    bool leftEnd = true, waste = false;
    int count = 0;
  };

  // How many steps of the skyline buffer i takes away if it is placed in this valley, less those it adds.
  int flush(int i, const Valley &v) const {
    const Item &x = items[i];
    int64_t top = floor[v.from] + x.size;
    int steps = 0;
    if (x.from == v.from)
      steps += x.from > 0 && floor[x.from - 1] == top;
    else
      --steps;
    if (x.to == v.to)
      steps += x.to < sections && floor[x.to] == top;
    else
      --steps;
    return steps;
  }

  // Sums of all subsets of the unplaced buffers in `list`, sorted; false if there are too many.
  bool subsetSums(const std::vector<int> &list, std::vector<int64_t> &sums) {
    sums.assign(1, 0);
    for (int i : list) {
      if (items[i].placed)
        continue;
      if (sums.size() > 128)
        return false;
      size_t n = sums.size();
      for (size_t k = 0; k < n; ++k)
        sums.push_back(sums[k] + items[i].size);
      std::inplace_merge(sums.begin(), sums.begin() + n, sums.end());
    }
    return true;
  }

  // Can the floors on both sides of boundary t still meet, if something has to cross it?
  bool canMeet(int t) {
    if (t <= 0 || t >= sections || slack[t - 1] || slack[t] || left[t - 1] == 0 || left[t] == 0 ||
        floor[t - 1] == floor[t])
      return true;
    int64_t ending = 0;
    for (int i : endsAt[t])
      ending += items[i].placed ? 0 : items[i].size;
    if (ending == left[t - 1])
      return true; // nothing crosses
    if (!subsetSums(endsAt[t], endSums) || !subsetSums(startsAt[t], startSums))
      return true;
    limit -= 3 * int64_t(endSums.size() + startSums.size());
    int64_t difference = floor[t] - floor[t - 1];
    size_t j = 0;
    for (int64_t e : endSums) {
      while (j < startSums.size() && difference + startSums[j] < e)
        ++j;
      if (j < startSums.size() && difference + startSums[j] == e)
        return true;
    }
    return false;
  }

  template <class F> void forCandidates(const Valley &v, F f) {
    const std::vector<int> &list = v.leftEnd ? startsAt[v.from] : endsAt[v.to];
    for (int i : list)
      if (!items[i].placed && items[i].from >= v.from && items[i].to <= v.to)
        f(i);
  }

  // The valley end to branch on. Sections with nothing to come count as infinitely high.
  Valley choose() {
    Valley best;
    best.count = INT32_MAX;
    Valley lowest;
    int64_t lowestFloor = INT64_MAX;
    for (int s = 0; s < sections;) {
      if (left[s] == 0) {
        ++s;
        continue;
      }
      int to = s + 1;
      while (to < sections && left[to] > 0 && floor[to] == floor[s])
        ++to;
      bool leftHigher = s == 0 || left[s - 1] == 0 || floor[s - 1] > floor[s];
      bool rightHigher = to == sections || left[to] == 0 || floor[to] > floor[s];
      if (leftHigher && rightHigher) {
        if (floor[s] < lowestFloor)
          lowestFloor = floor[s], lowest.from = s, lowest.to = to;
        for (int end = 0; end < 2; ++end) {
          if (slack[end ? to - 1 : s] != 0)
            continue;
          Valley v{s, to, end == 0, false, 0};
          forCandidates(v, [&](int) { ++v.count; });
          limit -= int64_t((v.leftEnd ? startsAt[v.from] : endsAt[v.to]).size());
          if (v.count < best.count)
            best = v;
          if (best.count == 0)
            return best;
        }
      }
      s = to;
    }
    limit -= 1 + sections;
    if (best.count < INT32_MAX)
      return best;
    lowest.leftEnd = lowest.waste = true;
    return lowest;
  }

  // 1: placed everything; 0: impossible from here; -1: out of work.
  int descend() {
    if (unplaced == 0)
      return 1;
    if (limit <= 0 || (deadline > 0 && (++steps & 1023) == 0 && detail::secondsNow() > deadline))
      return -1;
    Valley v = choose();
    std::vector<int> candidates;
    forCandidates(v, [&](int i) {
      if (outOfOrder(i, floor[v.from]))
        return;
      for (int j : candidates)
        if (items[j].size == items[i].size && items[j].from == items[i].from && items[j].to == items[i].to)
          return; // the same thing again
      candidates.push_back(i);
    });
    int64_t base = floor[v.from];
    if (flushFirst)
      std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) { return flush(a, v) > flush(b, v); });
    for (int i : candidates) {
      place(i, base);
      if (!canMeet(items[i].from) || !canMeet(items[i].to)) {
        unplace(i);
        continue;
      }
      int outcome = descend();
      if (outcome != 0)
        return outcome;
      unplace(i);
    }
    if (!v.waste)
      return 0;
    // Nothing lies on the floor of the first section: its next buffer rests on something higher, which is the floor
    // next to the valley or the top of a buffer still to come beside it.
    int s = v.from;
    int64_t up = INT64_MAX;
    for (int i = 0; i < int(items.size()); ++i) {
      const Item &x = items[i];
      if (x.placed)
        continue;
      if (x.from <= s && x.to > s) {
        for (int t = x.from; t < x.to; ++t)
          if (floor[t] > base)
            up = std::min(up, floor[t]);
      } else {
        int64_t least = 0; // where this one could lie at best
        for (int t = x.from; t < x.to; ++t)
          least = std::max(least, floor[t]);
        if (least + x.size > base)
          up = std::min(up, least + x.size);
      }
    }
    limit -= int64_t(items.size());
    if (up == INT64_MAX || up - base > slack[s])
      return 0;
    floor[s] = up, slack[s] -= up - base;
    int outcome = descend();
    if (outcome != 0)
      return outcome;
    floor[s] = base, slack[s] += up - base;
    return 0;
  }

  const ArenaProblem &p;
  int64_t target;
  int64_t &work;
  double deadline;
  int64_t limit = 0, steps = 0;
  Random random = Random::seeded(0);
  std::vector<int> ids;
  std::vector<Item> items;
  int sections = 0, unplaced = 0, classes = 0;
  bool flushFirst = false; // candidates that smooth the skyline come first
  std::vector<std::vector<int>> stacks; // of each class, what is placed
  std::vector<int64_t> floor, left, slack, endSums, startSums;
  std::vector<std::vector<int>> startsAt, endsAt;
};

} // namespace

bool detail::searchCanonical(const ArenaProblem &p, int64_t target, int64_t &work, double deadline,
                             std::vector<int64_t> &offsets, bool &proved) {
  proved = false;
  offsets.assign(p.buffers.size(), 0);
  std::vector<int> order;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    if (p.buffers[i].fixedOffset >= 0)
      return false; // the search knows only free buffers
    if (p.buffers[i].size > 0)
      order.push_back(int(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p.buffers[a].lower < p.buffers[b].lower; });
  // Stretches that no buffer crosses the ends of are independent.
  for (size_t i = 0; i < order.size();) {
    std::vector<int> part;
    int64_t end = p.buffers[order[i]].upper;
    for (; i < order.size() && p.buffers[order[i]].lower < end; ++i) {
      part.push_back(order[i]);
      end = std::max(end, p.buffers[order[i]].upper);
    }
    if (!CanonicalSearch(p, target, work, deadline).run(part, offsets, proved))
      return false;
  }
  return true;
}

} // namespace cinch::solve
