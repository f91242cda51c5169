// ArenaOrder.cpp: arenas by the order in which buffers are placed, each as low as it fits. Two ways to a better order:
// squeaky wheel optimization (Joslin and Clements, 1999), where what sticks out above the height that is wanted is
// placed earlier next time, and simulated annealing, where one buffer moves and bytes x time that stick out are counted.
//
// Buffers of training steps differ in size by orders of magnitude and few of them fit each other exactly: there this
// finds what gluing and branch and bound do not. Half of the buffers are so small that all of them together are less
// than the waste that is allowed. They would only be in the way, so they are placed last, into what is left.
#include "compiler/solve/Memory.h"
#include "compiler/solve/Random.h"

#include <algorithm>
#include <utility>

namespace cinch::solve {

namespace {

// Nearly exponentially distributed; no logarithm, which is not the same on every machine.
double exponential(Random &random) {
  double halvings = 0;
  for (uint64_t bits = random.next() | uint64_t(1) << 52; !(bits & 1); bits >>= 1)
    halvings += 1;
  return 0.7 * (halvings + random.unit());
}

// Places buffers in an order, each at the lowest offset that is free over its whole life. What is alive all the time
// lies at the bottom, as it can in every placement; fixed buffers lie where they are.
class Placer {
public:
  Placer(const ArenaProblem &p, int64_t enough) : enough(enough), offsets(p.buffers.size(), 0) {
    std::vector<int64_t> times;
    for (const ArenaBuffer &b : p.buffers) {
      times.push_back(b.lower), times.push_back(b.upper);
      bytes.push_back(roundUp(b.size, p.alignment));
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    auto at = [&](int64_t t) { return int(std::lower_bound(times.begin(), times.end(), t) - times.begin()); };
    for (const ArenaBuffer &b : p.buffers)
      lives.push_back({at(b.lower), at(b.upper)});
    layFloor(p, int(times.size()) - 1);
  }

  // Places the buffers of `order`; the first `same` are known to get the offsets they have. Returns the height.
  int64_t place(const std::vector<int> &order, size_t same, int64_t &steps) {
    int64_t height = least;
    placed = obstacles;
    outside.clear(), area = 0;
    for (size_t k = 0; k < order.size(); ++k) {
      int i = order[k];
      auto [lower, upper] = lives[i];
      int64_t at = floor;
      if (k < same) {
        at = offsets[i];
      } else {
        const Placed *q = placed.data(), *end = q + placed.size();
        for (; q != end; ++q) {
          bool together = (q->lower < upper) & (lower < q->upper); // no branch: there is no telling which
          if (together & (q->offset - at >= bytes[i]))
            break;
          at = together && q->end > at ? q->end : at;
        }
        steps -= q - placed.data();
      }
      Placed entry{at, at + bytes[i], lower, upper};
      auto where = std::lower_bound(placed.begin(), placed.end(), at,
                                    [](const Placed &a, int64_t offset) { return a.offset < offset; });
      steps -= 12 + (placed.end() - where) / 8;
      placed.insert(where, entry);
      offsets[i] = at;
      height = std::max(height, entry.end);
      if (entry.end > enough)
        outside.push_back(i), area += double(std::min(bytes[i], entry.end - enough)) * double(upper - lower);
    }
    return height;
  }

  int64_t enough;
  std::vector<int64_t> offsets, bytes;
  std::vector<std::pair<int, int>> lives; // times are numbered
  std::vector<int> movable;               // all that `place` is asked to place
  std::vector<int> outside;               // what ended above `enough`
  double area = 0;                        // bytes x time of it

private:
  struct Placed {
    int64_t offset, end;
    int lower, upper;
  };

  void layFloor(const ArenaProblem &p, int last) {
    std::vector<int> fixed;
    for (int i = 0; i < int(bytes.size()); ++i)
      if (p.buffers[i].fixedOffset >= 0 && bytes[i] > 0)
        fixed.push_back(i), offsets[i] = p.buffers[i].fixedOffset;
    std::sort(fixed.begin(), fixed.end(), [&](int a, int b) { return offsets[a] < offsets[b]; });
    auto always = [&](int i) { return lives[i] == std::pair(0, last); };
    for (int i : fixed)
      if (obstacles.empty() && always(i) && offsets[i] == floor)
        floor += bytes[i];
      else
        obstacles.push_back({offsets[i], offsets[i] + bytes[i], lives[i].first, lives[i].second});
    for (int i = 0; i < int(bytes.size()); ++i) {
      if (p.buffers[i].fixedOffset >= 0 || bytes[i] == 0)
        continue;
      if (obstacles.empty() && always(i))
        offsets[i] = floor, floor += bytes[i];
      else
        movable.push_back(i);
    }
    least = floor;
    for (const Placed &o : obstacles)
      least = std::max(least, o.end);
  }

  int64_t floor = 0, least = 0; // where others begin; height of what lies
  std::vector<Placed> obstacles, placed; // by offset
};

// An order to begin with: by bytes x time, by bytes, by time.
std::vector<int> firstOrder(const Placer &placer, uint64_t kind) {
  auto weight = [&](int i) {
    double bytes = double(placer.bytes[i]), time = double(placer.lives[i].second - placer.lives[i].first);
    return kind % 3 == 0 ? bytes * time : kind % 3 == 1 ? bytes : time;
  };
  std::vector<int> order = placer.movable;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return weight(a) > weight(b); });
  return order;
}

// The lowest placement met.
struct Lowest {
  void offer(int64_t h, const Placer &placer) {
    if (h < height)
      height = h, offsets = placer.offsets;
  }
  bool done(const Placer &placer, int64_t steps, double deadline) const {
    return height <= placer.enough || placer.movable.size() < 2 || steps <= 0 ||
           (deadline > 0 && detail::secondsNow() > deadline);
  }
  int64_t height = INT64_MAX;
  std::vector<int64_t> offsets;
};

Lowest squeakyWheel(Placer &placer, uint64_t seed, int64_t &steps, double deadline) {
  constexpr int kPatience = 50, kKicked = 6;
  constexpr int64_t kRank = 1024; // between neighbours of the first order
  Random random = Random::seeded(seed);
  Lowest lowest;
  std::vector<int> order = firstOrder(placer, seed), previous;
  int64_t n = int64_t(order.size()), here = INT64_MAX;
  std::vector<int64_t> priorities(placer.bytes.size(), 0);
  for (int64_t k = 0; k < n; ++k)
    priorities[order[k]] = (n - k) * kRank;
  std::vector<int64_t> bestPriorities = priorities;
  int sinceBetter = 0;
  do {
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return priorities[a] != priorities[b] ? priorities[a] > priorities[b] : a < b;
    });
    size_t same = 0;
    while (same < previous.size() && previous[same] == order[same])
      ++same;
    int64_t height = placer.place(order, same, steps);
    previous = order;
    lowest.offer(height, placer);
    ++sinceBetter;
    if (height < here)
      here = height, bestPriorities = priorities, sinceBetter = 0;
    if (sinceBetter > kPatience) {
      priorities = bestPriorities, sinceBetter = 0;
      for (int k = 0; k < kKicked; ++k)
        priorities[placer.movable[random.below(n)]] += (random.below(201) - 100) * 3 * kRank;
    }
    int64_t step = n * (kRank / 20 + random.below(kRank / 4));
    for (int i : placer.outside)
      priorities[i] += step / 2 + random.below(step / 2 + 1);
  } while (!lowest.done(placer, steps, deadline));
  return lowest;
}

// What lives at a moment at which little room is left: its place decides.
std::vector<int> tight(const Placer &placer) {
  int last = 0;
  for (auto [lower, upper] : placer.lives)
    last = std::max(last, upper);
  std::vector<int64_t> live(size_t(last), 0);
  for (size_t i = 0; i < placer.lives.size(); ++i)
    for (int t = placer.lives[i].first; t < placer.lives[i].second; ++t)
      live[t] += placer.bytes[i];
  std::vector<int> found;
  for (int i : placer.movable) {
    auto [lower, upper] = placer.lives[i];
    int64_t most = *std::max_element(live.begin() + lower, live.begin() + upper);
    if (most > placer.enough / 10 * 9)
      found.push_back(i);
  }
  return found.empty() ? placer.movable : found;
}

Lowest anneal(Placer &placer, uint64_t seed, int64_t &steps, double deadline) {
  constexpr int kPatience = 3000;
  constexpr double kWarmth = 0.02; // of the least area found
  Random random = Random::seeded(seed);
  struct State {
    std::vector<int> order, outside;
    std::vector<int64_t> offsets;
    double area;
  };
  std::vector<int> order = firstOrder(placer, seed), decisive = tight(placer);
  Lowest lowest;
  lowest.offer(placer.place(order, 0, steps), placer);
  State here{order, placer.outside, placer.offsets, placer.area}, best = here;
  int64_t n = int64_t(order.size());
  for (int sinceBetter = 0; !lowest.done(placer, steps, deadline); ++sinceBetter) {
    order = here.order;
    int64_t first = n;
    for (int64_t moves = random.below(3) ? 1 : 2; moves > 0; --moves) {
      // What sticks out moves forward, another one anywhere.
      const std::vector<int> &among = random.below(10) == 0   ? here.outside
                                      : random.below(10) != 0 ? decisive
                                                              : placer.movable;
      int who = among[size_t(random.below(int64_t(among.size())))];
      int64_t from = std::find(order.begin(), order.end(), who) - order.begin();
      bool isOutside = placer.enough < here.offsets[order[from]] + placer.bytes[order[from]];
      int64_t to = random.below(isOutside ? from : n);
      auto at = order.begin();
      if (to < from)
        std::rotate(at + to, at + from, at + from + 1);
      else
        std::rotate(at + from, at + from + 1, at + to + 1);
      first = std::min({first, from, to});
    }
    steps -= n / 4;
    placer.offsets = here.offsets;
    lowest.offer(placer.place(order, size_t(first), steps), placer);
    if (placer.area < here.area || placer.area - here.area <= exponential(random) * kWarmth * best.area)
      here = {order, placer.outside, placer.offsets, placer.area};
    if (here.area < best.area)
      best = here, sinceBetter = 0;
    if (sinceBetter > kPatience)
      here = best, sinceBetter = 0;
  }
  return lowest;
}

// The lower bounds of a problem's small buffers and of its others, for one size after the other up to which a buffer is small.
class Peaks {
public:
  explicit Peaks(const ArenaProblem &p) {
    for (const ArenaBuffer &b : p.buffers) {
      int64_t bytes = roundUp(b.size, p.alignment), size = b.fixedOffset < 0 ? b.size : INT64_MAX;
      changes.push_back({b.lower, bytes, size}), changes.push_back({b.upper, -bytes, size});
      if (b.fixedOffset >= 0)
        fixedEnd = std::max(fixedEnd, b.fixedOffset + bytes);
    }
    std::sort(changes.begin(), changes.end(), [](const Change &x, const Change &y) { return x.time < y.time; });
  }

  // Of those up to `largest`, and of those above and the fixed ones.
  std::pair<int64_t, int64_t> of(int64_t largest) const {
    int64_t live[2] = {0, 0}, most[2] = {0, fixedEnd};
    for (size_t i = 0; i < changes.size(); ++i) {
      live[changes[i].size > largest] += changes[i].bytes;
      if (i + 1 == changes.size() || changes[i + 1].time != changes[i].time)
        for (int k = 0; k < 2; ++k)
          most[k] = std::max(most[k], live[k]);
    }
    return {most[0], most[1]};
  }

private:
  struct Change {
    int64_t time, bytes, size;
  };
  std::vector<Change> changes; // by time
  int64_t fixedEnd = 0;
};

// The buffers above a size, the largest such that all up to it, were they above the others, would take at most `share`
// of the waste that is allowed.
struct Large {
  Large(const ArenaProblem &p, int64_t enough, double share) {
    std::vector<int64_t> sizes;
    for (const ArenaBuffer &b : p.buffers)
      sizes.push_back(b.fixedOffset < 0 ? b.size : 0);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    int64_t whole = lowerBound(p), size = 0;
    const Peaks peaks(p);
    for (int64_t next : sizes) {
      auto [small, others] = peaks.of(next);
      if (next > 0 && double(small + others - whole) > share * double(enough - whole))
        break;
      size = next;
    }
    above = peaks.of(size).first;
    problem.alignment = p.alignment;
    for (int i = 0; i < int(p.buffers.size()); ++i) {
      bool isSmall = p.buffers[i].fixedOffset < 0 && p.buffers[i].size <= size;
      (isSmall ? smallIds : ids).push_back(i);
      if (!isSmall)
        problem.buffers.push_back(p.buffers[i]);
    }
    std::stable_sort(smallIds.begin(), smallIds.end(),
                     [&](int a, int b) { return p.buffers[a].size > p.buffers[b].size; });
  }

  // Offsets of all buffers from those of the large ones; returns the height.
  int64_t complete(const ArenaProblem &p, const std::vector<int64_t> &placed, std::vector<int64_t> &offsets) const {
    ArenaProblem rest = p;
    for (size_t i = 0; i < ids.size(); ++i)
      rest.buffers[ids[i]].fixedOffset = placed[i];
    std::vector<int> order = ids;
    order.insert(order.end(), smallIds.begin(), smallIds.end());
    return detail::placeInOrder(rest, order, offsets, -1);
  }

  ArenaProblem problem;
  std::vector<int> ids, smallIds; // in the whole problem: of the problem's buffers; of the others, by falling size
  int64_t above = 0;              // most bytes of small buffers that are alive at a time
};

} // namespace

void detail::placeByOrder(const ArenaProblem &p, int64_t enough, uint64_t seed, ArenaSolution &best, int64_t &work,
                          double deadline) {
  constexpr size_t kLarge = 3000; // one placement takes time that grows with the square
  constexpr int kStarts = 12, kCharged = 16; // a step here is a sixteenth of one elsewhere
  if (p.buffers.size() > kLarge)
    return;
  const Large most(p, enough, 0.9), all(p, enough, 0.0); // now and then the small ones take part
  std::vector<int64_t> offsets;
  for (int start = 0; start < kStarts && best.height > enough && work > 0; ++start) {
    const Large &large = start % 6 == 5 ? all : most;
    Placer placer(large.problem, enough - large.above);
    int64_t share = work / (kStarts - start), steps = share * kCharged;
    double now = secondsNow(), until = deadline > 0 ? now + (deadline - now) / (kStarts - start) : 0;
    uint64_t drawn = seed * kStarts + uint64_t(start);
    Lowest found = start % 4 ? anneal(placer, drawn, steps, until) : squeakyWheel(placer, drawn, steps, until);
    work -= share - std::max<int64_t>(0, steps) / kCharged;
    if (int64_t height = large.complete(p, found.offsets, offsets); height < best.height)
      best.height = height, best.offsets = offsets;
  }
}

} // namespace cinch::solve
