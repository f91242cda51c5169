// ArenaBlame.cpp: arenas by squeaky wheel optimization (Joslin and Clements, 1999): buffers are placed one after the
// other, each as low as it fits; those that stick out above the height that is wanted are placed earlier next time.
//
// Buffers of training steps differ in size by orders of magnitude and few of them fit each other exactly: there this
// finds what gluing and branch and bound do not.
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <utility>

namespace cinch::solve {

namespace {

class Blame {
public:
  Blame(const ArenaProblem &p, uint64_t seed, int64_t enough)
      : p(p), enough(enough), state(0x9e3779b97f4a7c15ull * (seed + 1)), offsets(p.buffers.size(), 0) {
    layFloor();
    for (int i = 0; i < int(p.buffers.size()); ++i)
      if (!lies[i] && p.buffers[i].size > 0)
        movable.push_back(i);
    others.resize(p.buffers.size());
    for (int i : movable)
      for (int j = 0; j < int(p.buffers.size()); ++j)
        if (j != i && !onFloor[j] && p.buffers[j].size > 0 && p.buffers[i].lower < p.buffers[j].upper &&
            p.buffers[j].lower < p.buffers[i].upper)
          others[i].push_back(j);
    startPriorities(seed);
  }

  // Steps that building took.
  int64_t size() const { return int64_t(movable.size()) * int64_t(p.buffers.size()); }

  // Improves on `best`, the height of `found`.
  void run(int64_t &best, std::vector<int64_t> &found, int64_t &work, double deadline) {
    constexpr int kPatience = 200, kKicked = 6, kCharged = 8; // a step here is an eighth of one elsewhere
    int64_t here = INT64_MAX, steps = work * kCharged;
    std::vector<int64_t> bestPriorities = priorities;
    std::vector<int> blamed;
    int n = int(movable.size()), sinceBetter = 0;
    while (steps > 0 && best > enough && n > 1 && (deadline <= 0 || detail::secondsNow() < deadline)) {
      int64_t height = place(blamed, steps);
      ++sinceBetter;
      if (height < here)
        here = height, bestPriorities = priorities, sinceBetter = 0;
      if (height < best)
        best = height, found = offsets;
      if (sinceBetter > kPatience) {
        priorities = bestPriorities, sinceBetter = 0;
        for (int k = 0; k < kKicked; ++k)
          priorities[movable[below(n)]] += (below(201) - 100) * kRank;
      }
      int64_t step = int64_t(n) * (kRank / 20 + below(kRank / 4));
      for (int i : blamed)
        priorities[i] += step / 2 + below(step / 2 + 1);
    }
    work = std::max<int64_t>(0, steps) / kCharged;
  }

private:
  static constexpr int64_t kRank = 1024; // between neighbours of the first order

  int64_t below(int64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return int64_t((state >> 11) % uint64_t(std::max<int64_t>(n, 1)));
  }
  int64_t bytesOf(int i) const { return (p.buffers[i].size + p.alignment - 1) / p.alignment * p.alignment; }

  // What is alive all the time lies at the bottom, as it can in every placement; fixed buffers lie where they are.
  void layFloor() {
    int n = int(p.buffers.size());
    lies.assign(n, false), onFloor.assign(n, false);
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (const ArenaBuffer &b : p.buffers)
      first = std::min(first, b.lower), last = std::max(last, b.upper);
    std::vector<int> fixed;
    for (int i = 0; i < n; ++i)
      if (p.buffers[i].fixedOffset >= 0)
        fixed.push_back(i), lies[i] = true, offsets[i] = p.buffers[i].fixedOffset;
    std::sort(fixed.begin(), fixed.end(), [&](int a, int b) { return offsets[a] < offsets[b]; });
    bool allOnFloor = true;
    for (int i : fixed) {
      const ArenaBuffer &b = p.buffers[i];
      onFloor[i] = allOnFloor && offsets[i] == floor && b.lower == first && b.upper == last;
      allOnFloor = onFloor[i];
      if (onFloor[i])
        floor += bytesOf(i);
    }
    for (int i = 0; allOnFloor && i < n; ++i)
      if (!lies[i] && p.buffers[i].lower == first && p.buffers[i].upper == last)
        lies[i] = onFloor[i] = true, offsets[i] = floor, floor += bytesOf(i);
  }

  // The first order: by bytes x time, by bytes, by time.
  void startPriorities(uint64_t seed) {
    auto weight = [&](int i) {
      double bytes = double(p.buffers[i].size), time = double(p.buffers[i].upper - p.buffers[i].lower);
      return seed % 3 == 0 ? bytes * time : seed % 3 == 1 ? bytes : time;
    };
    order = movable;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return weight(a) > weight(b); });
    priorities.assign(p.buffers.size(), 0);
    for (size_t k = 0; k < order.size(); ++k)
      priorities[order[k]] = int64_t(order.size() - k) * kRank;
  }

  // Places all buffers; `blamed` becomes those that end above what is wanted.
  int64_t place(std::vector<int> &blamed, int64_t &steps) {
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return priorities[a] != priorities[b] ? priorities[a] > priorities[b] : a < b;
    });
    std::vector<bool> placed = lies;
    int64_t height = floor;
    blamed.clear();
    for (int i : order) {
      taken.clear();
      for (int j : others[i])
        if (placed[j])
          taken.push_back({offsets[j], offsets[j] + bytesOf(j)});
      steps -= int64_t(others[i].size() + 4 * taken.size());
      std::sort(taken.begin(), taken.end());
      int64_t at = floor, bytes = bytesOf(i);
      for (auto [begin, end] : taken) {
        if (begin - at >= bytes)
          break;
        at = std::max(at, end);
      }
      offsets[i] = at, placed[i] = true;
      height = std::max(height, at + bytes);
      if (at + bytes > enough)
        blamed.push_back(i);
    }
    for (size_t i = 0; i < lies.size(); ++i)
      if (lies[i])
        height = std::max(height, offsets[i] + bytesOf(int(i)));
    return height;
  }

  const ArenaProblem &p;
  int64_t enough;
  uint64_t state;
  int64_t floor = 0;
  std::vector<bool> lies, onFloor; // not placed by us; part of the floor
  std::vector<int> movable, order;
  std::vector<std::vector<int>> others; // alive at the same time, but for the floor
  std::vector<int64_t> priorities, offsets;
  std::vector<std::pair<int64_t, int64_t>> taken;
};

} // namespace

void detail::placeByBlame(const ArenaProblem &p, int64_t enough, ArenaSolution &best, int64_t &work, double deadline) {
  constexpr size_t kLarge = 3000; // the lists of what is alive together grow with the square
  if (p.buffers.size() > kLarge)
    return;
  constexpr int kStarts = 3;
  for (int seed = 0; seed < kStarts && best.height > enough && work > 0; ++seed) {
    Blame blame(p, uint64_t(seed), enough);
    int64_t share = work / (kStarts - seed), left = share - blame.size() / 8;
    if (left > 0)
      blame.run(best.height, best.offsets, left, deadline);
    work -= share - std::max<int64_t>(left, 0);
  }
}

} // namespace cinch::solve
