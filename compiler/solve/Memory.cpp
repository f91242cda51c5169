// Memory.cpp: checks, bounds, greedy placement, and which search comes when.
#include "compiler/solve/Memory.h"
#include "compiler/solve/TakenRanges.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

namespace cinch::solve {
namespace {

// Bytes alive just after each moment at which something starts or ends.
std::vector<int64_t> liveProfile(const ArenaProblem &p) {
  std::vector<std::pair<int64_t, int64_t>> changes; // moment, bytes more
  changes.reserve(2 * p.buffers.size());
  for (const ArenaBuffer &b : p.buffers)
    if (b.size > 0) {
      changes.push_back({b.lower, roundUp(b.size, p.alignment)});
      changes.push_back({b.upper, -roundUp(b.size, p.alignment)});
    }
  std::sort(changes.begin(), changes.end());
  std::vector<int64_t> profile;
  int64_t live = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    live += changes[i].second;
    if (i + 1 == changes.size() || changes[i + 1].first != changes[i].first)
      profile.push_back(live);
  }
  return profile;
}

// Is all of the arena in use whenever anything is?
bool isWithoutSlack(const ArenaProblem &p, int64_t height) {
  for (int64_t live : liveProfile(p))
    if (live != 0 && live != height)
      return false;
  return true;
}

std::vector<std::vector<int>> startOrders(const ArenaProblem &p) {
  int n = int(p.buffers.size());
  std::vector<int> base(n);
  std::iota(base.begin(), base.end(), 0);
  auto life = [&](int i) { return p.buffers[i].upper - p.buffers[i].lower; };
  auto size = [&](int i) { return p.buffers[i].size; };
  auto area = [&](int i) { return double(size(i)) * double(life(i)); };
  std::vector<std::vector<int>> orders;
  auto add = [&](auto less) {
    std::vector<int> order = base;
    std::stable_sort(order.begin(), order.end(), less);
    orders.push_back(std::move(order));
  };
  add([&](int a, int b) { return life(a) != life(b) ? life(a) > life(b) : size(a) > size(b); });
  add([&](int a, int b) { return area(a) > area(b); });
  add([&](int a, int b) { return size(a) != size(b) ? size(a) > size(b) : life(a) > life(b); });
  add([&](int a, int b) {
    int64_t la = p.buffers[a].lower, lb = p.buffers[b].lower;
    return la != lb ? la < lb : life(a) > life(b);
  });
  add([&](int a, int b) {
    int64_t ua = p.buffers[a].upper, ub = p.buffers[b].upper;
    return ua != ub ? ua > ub : life(a) > life(b);
  });
  return orders;
}

} // namespace

double detail::secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string check(const ArenaProblem &p) {
  if (p.alignment < 1)
    return "alignment " + std::to_string(p.alignment) + " is not positive";
  double all = 0; // bytes
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const ArenaBuffer &b = p.buffers[i];
    std::string who = "buffer " + std::to_string(i) + ": ";
    if (b.size < 0)
      return who + "size " + std::to_string(b.size) + " is negative";
    constexpr int64_t kMost = int64_t(1) << 60;
    if (b.size > kMost || p.alignment > kMost || b.fixedOffset > kMost || (all += double(roundUp(b.size, p.alignment))) > double(kMost))
      return who + "more than 2^60 bytes with those before it";
    if (b.lower >= b.upper)
      return who + "its life [" + std::to_string(b.lower) + ", " + std::to_string(b.upper) + ") is empty";
    if (b.fixedOffset >= 0 && b.fixedOffset % p.alignment)
      return who + "fixed offset " + std::to_string(b.fixedOffset) + " is not a multiple of " +
             std::to_string(p.alignment);
  }
  ArenaProblem fixed;
  fixed.alignment = p.alignment;
  ArenaSolution placed;
  for (const ArenaBuffer &b : p.buffers)
    if (b.fixedOffset >= 0) {
      fixed.buffers.push_back(b);
      placed.offsets.push_back(b.fixedOffset);
      placed.height = std::max(placed.height, b.fixedOffset + roundUp(b.size, p.alignment));
    }
  return verify(fixed, placed);
}

int64_t lowerBound(const ArenaProblem &p) {
  int64_t bound = 0;
  for (int64_t live : liveProfile(p))
    bound = std::max(bound, live);
  for (const ArenaBuffer &b : p.buffers)
    if (b.fixedOffset >= 0)
      bound = std::max(bound, b.fixedOffset + roundUp(b.size, p.alignment));
  return bound;
}

std::string verify(const ArenaProblem &p, const ArenaSolution &s) {
  if (s.offsets.size() != p.buffers.size())
    return "expected " + std::to_string(p.buffers.size()) + " offsets, got " + std::to_string(s.offsets.size());
  struct Event {
    int64_t time;
    bool starts;
    int id;
  };
  std::vector<Event> events;
  int64_t height = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const ArenaBuffer &b = p.buffers[i];
    std::string who = "buffer " + std::to_string(i) + ": ";
    if (s.offsets[i] < 0)
      return who + "offset " + std::to_string(s.offsets[i]) + " is negative";
    if (s.offsets[i] % p.alignment)
      return who + "offset " + std::to_string(s.offsets[i]) + " is not a multiple of " + std::to_string(p.alignment);
    if (b.fixedOffset >= 0 && s.offsets[i] != b.fixedOffset)
      return who + "expected its fixed offset " + std::to_string(b.fixedOffset) + ", got " +
             std::to_string(s.offsets[i]);
    height = std::max(height, s.offsets[i] + roundUp(b.size, p.alignment));
    if (b.size == 0)
      continue;
    events.push_back({b.lower, true, int(i)});
    events.push_back({b.upper, false, int(i)});
  }
  // A sweep over time: the ranges alive at a moment are disjoint, so a newcomer can only clash with its two neighbours.
  std::sort(events.begin(), events.end(),
            [](const Event &a, const Event &b) { return a.time != b.time ? a.time < b.time : a.starts < b.starts; });
  std::map<int64_t, int> alive;
  for (const Event &e : events) {
    int64_t begin = s.offsets[e.id], end = begin + roundUp(p.buffers[e.id].size, p.alignment);
    if (!e.starts) {
      alive.erase(begin);
      continue;
    }
    auto next = alive.lower_bound(begin);
    int clash = -1;
    if (next != alive.end() && next->first < end)
      clash = next->second;
    if (next != alive.begin()) {
      int below = std::prev(next)->second;
      if (s.offsets[below] + roundUp(p.buffers[below].size, p.alignment) > begin)
        clash = below;
    }
    if (clash >= 0)
      return "buffers " + std::to_string(clash) + " and " + std::to_string(e.id) + " are both alive at " +
             std::to_string(e.time) + " and share bytes";
    alive[begin] = e.id;
  }
  if (height != s.height)
    return "expected height " + std::to_string(height) + ", got " + std::to_string(s.height);
  return "";
}

namespace {

// What is placed, in one list by offset: quicker than TakenRanges where that list is short.
class PlacedList {
public:
  explicit PlacedList(const std::vector<ArenaBuffer> &buffers) { list.reserve(buffers.size()); }

  void take(int64_t lower, int64_t upper, detail::ByteRange range) {
    auto above = [](const Placed &x, const Placed &y) { return x.range.begin < y.range.begin; };
    Placed placed{range, lower, upper};
    list.insert(std::upper_bound(list.begin(), list.end(), placed, above), placed);
  }
  int64_t lowestFree(int64_t lower, int64_t upper, int64_t size) const { return find(lower, upper, size, false); }
  int64_t leastGap(int64_t lower, int64_t upper, int64_t size) const { return find(lower, upper, size, true); }

private:
  struct Placed {
    detail::ByteRange range;
    int64_t lower, upper;
  };

  int64_t find(int64_t lower, int64_t upper, int64_t size, bool leastGap) const {
    int64_t at = 0, best = -1, least = INT64_MAX;
    for (const Placed &q : list) {
      if (q.lower >= upper || lower >= q.upper)
        continue;
      if (int64_t gap = q.range.begin - at; gap >= size && gap < least) {
        if (!leastGap)
          return at;
        best = at, least = gap;
      }
      at = std::max(at, q.range.end);
    }
    return best < 0 ? at : best;
  }

  std::vector<Placed> list;
};

template <class Taken>
int64_t placeOnto(Taken taken, const ArenaProblem &p, const std::vector<int> &order, std::vector<int64_t> &offsets, int64_t cap, bool bestFit) {
  offsets.assign(p.buffers.size(), 0);
  int64_t height = 0;
  auto place = [&](int i, int64_t offset) {
    const ArenaBuffer &b = p.buffers[i];
    int64_t end = offset + roundUp(b.size, p.alignment);
    offsets[i] = offset;
    height = std::max(height, end);
    if (b.size > 0)
      taken.take(b.lower, b.upper, {offset, end});
  };
  for (int i : order)
    if (p.buffers[i].fixedOffset >= 0)
      place(i, p.buffers[i].fixedOffset);
  for (int i : order) {
    const ArenaBuffer &b = p.buffers[i];
    if (b.fixedOffset >= 0)
      continue;
    int64_t size = roundUp(b.size, p.alignment), offset = 0;
    if (size > 0)
      offset = bestFit ? taken.leastGap(b.lower, b.upper, size) : taken.lowestFree(b.lower, b.upper, size);
    if (cap >= 0 && offset + size > cap)
      return -1;
    place(i, offset);
  }
  return height;
}

} // namespace

int64_t detail::placeInOrder(const ArenaProblem &p, const std::vector<int> &order, std::vector<int64_t> &offsets, int64_t cap, bool bestFit,
                             std::optional<bool> byTime) {
  constexpr size_t kShortList = 2000;
  if (byTime.value_or(p.buffers.size() > kShortList))
    return placeOnto(TakenRanges(p.buffers), p, order, offsets, cap, bestFit);
  return placeOnto(PlacedList(p.buffers), p, order, offsets, cap, bestFit);
}

ArenaSolution solve(const ArenaProblem &p, const ArenaLimits &limits) {
  ArenaSolution best;
  best.bound = lowerBound(p);
  best.height = INT64_MAX;
  double deadline = limits.seconds > 0 ? detail::secondsNow() + limits.seconds : 0;
  // The greedy start always runs, and costs so little that it goes on where the height is good enough; only what follows it counts against the limit.
  int64_t enough = std::max(best.bound, limits.capacity.value_or(0)), least = limits.onlyWithin ? enough : best.bound;
  std::vector<int64_t> offsets;
  auto orders = startOrders(p);
  for (int fit = 0; fit < 2 && best.height > least; ++fit)
    for (const std::vector<int> &order : orders) {
      int64_t cap = best.height == INT64_MAX ? -1 : limits.onlyWithin ? std::min(best.height, enough) : best.height;
      int64_t h = detail::placeInOrder(p, order, offsets, cap, fit == 1);
      if (h < 0 || h >= best.height)
        continue;
      best.height = h, best.offsets = offsets;
      if (h <= least)
        break;
    }
  int64_t work = limits.work;
  auto heightOf = [&](const std::vector<int64_t> &o) {
    int64_t height = 0;
    for (size_t i = 0; i < o.size(); ++i)
      height = std::max(height, o[i] + roundUp(p.buffers[i].size, p.alignment));
    return height;
  };
  // Branch and bound: first at the bound itself, then ever lower below what is known until there is a proof or no
  // work left.
  auto searchAt = [&](int64_t target, int64_t share, bool &proved, double timeShare) {
    int64_t given = share;
    double until = deadline > 0 ? std::min(deadline, detail::secondsNow() + timeShare * limits.seconds) : 0;
    bool found = detail::searchCanonical(p, target, share, until, offsets, proved);
    work -= std::max<int64_t>(given - share, 1);
    if (found)
      best.offsets = offsets, best.height = heightOf(offsets);
    return found;
  };
  auto late = [&] { return work <= 0 || (deadline > 0 && detail::secondsNow() > deadline); };
  auto searchAtEnough = [&](int64_t share, double timeShare) {
    bool proved = false;
    searchAt(enough, share, proved, timeShare);
    if (proved && enough == best.bound)
      best.bound += p.alignment;
  };
  if (best.height > enough && isWithoutSlack(p, enough))
    searchAtEnough(work / 2, 0.5);
  if (best.height > enough && work > 0) {
    constexpr int64_t kMost = 30'000'000; // what it does not find by then it rarely finds
    int64_t given = std::min(work / 4 * 3, kMost), left = given;
    detail::placeByOrder(p, enough, 0, best, left, deadline > 0 ? detail::secondsNow() + limits.seconds / 8 : 0);
    work -= given - left;
  }
  // Blocks of buffers that fit exactly, with other random ties each time.
  double glueUntil = deadline > 0 ? deadline - 0.3 * limits.seconds : 0;
  int64_t kept = work / 8;
  for (uint64_t seed = 1; best.height > enough && work > kept; ++seed) {
    if (glueUntil > 0 && detail::secondsNow() > glueUntil)
      break;
    int64_t given = std::min(work - kept, std::max((work - kept) / 8, limits.work / 32)), left = given;
    if (detail::placeGlued(p, seed, enough, best.height, left, glueUntil, offsets) >= 0 &&
        heightOf(offsets) < best.height)
      best.offsets = offsets, best.height = heightOf(offsets);
    work -= std::max<int64_t>(given - left, 1 + limits.work / 4000);
  }
  if (best.height > enough && !late())
    searchAtEnough(work / 2, 0.6);
  while (best.height > std::max(best.bound, limits.capacity.value_or(0)) && !late()) {
    bool proved = false;
    if (searchAt(best.height - p.alignment, work, proved, 1))
      continue;
    if (proved)
      best.bound = best.height;
    break;
  }
  best.exhausted = best.height > std::max(best.bound, limits.capacity.value_or(0));
  return best;
}

} // namespace cinch::solve
