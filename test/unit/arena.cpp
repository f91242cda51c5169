// LINK: cinch_solve
// Arena packing against brute force on small sets, on perfect (guillotine-cut) instances, and its verifier on wrong
// answers. Arguments: instances, buffers in each, width in ticks, height and, if given, how many cuts of a hundred are pinwheels: measures
// perfect instances of that kind.
#include "compiler/solve/NeighbourTree.h"
#include "test/unit/Expect.h"
#include "test/unit/PerfectArenas.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <set>

using namespace cinch::solve;

// The least height over all placement orders with first fit: some order gives an optimal canonical placement.
static int64_t bruteForce(const ArenaProblem &p) {
  int n = int(p.buffers.size());
  int64_t best = INT64_MAX;
  std::vector<int64_t> offset(n, -1);
  // Buffers in the order of their offsets; each on the lowest place above those placed that it overlaps.
  std::function<void(int, int64_t, int64_t)> go = [&](int placed, int64_t height, int64_t last) {
    if (height >= best)
      return;
    if (placed == n) {
      best = height;
      return;
    }
    for (int i = 0; i < n; ++i) {
      if (offset[i] >= 0)
        continue;
      const ArenaBuffer &b = p.buffers[i];
      int64_t at = 0;
      for (int j = 0; j < n; ++j)
        if (offset[j] >= 0 && p.buffers[j].lower < b.upper && b.lower < p.buffers[j].upper)
          at = std::max(at, offset[j] + p.buffers[j].size);
      if (at < last)
        continue;
      offset[i] = at;
      go(placed + 1, std::max(height, at + b.size), at);
      offset[i] = -1;
    }
  };
  go(0, 0, 0);
  return best;
}

static void testSmall(int instances) {
  PerfectArenas rng(12345);
  int wrong = 0;
  for (int k = 0; k < instances; ++k) {
    ArenaProblem p;
    int n = 1 + int(rng.below(9)), ticks = 2 + int(rng.below(8));
    int64_t sizes = k % 3 ? 6 : 40;
    for (int i = 0; i < n; ++i) {
      int64_t lower = rng.below(ticks), upper = lower + 1 + rng.below(ticks - lower);
      p.buffers.push_back({1 + rng.below(sizes), lower, upper, -1});
    }
    ArenaSolution s = solve(p);
    std::string why = verify(p, s);
    int64_t best = bruteForce(p);
    if (!why.empty() || s.height != best || s.bound != best) {
      if (++wrong <= 5)
        std::printf("  set %d: height %lld, bound %lld, brute force %lld %s\n", k, (long long)s.height,
                    (long long)s.bound, (long long)best, why.c_str());
    }
  }
  expect(wrong == 0,
         std::to_string(wrong) + " of " + std::to_string(instances) + " small sets differ from brute force");
}

static void testPerfect(int instances, int buffers, int64_t width, int64_t height, double share, double seconds,
                        bool verbose, int64_t pinwheels = 0) {
  PerfectArenas rng(uint64_t(777 + buffers + width));
  int found = 0;
  double worst = 1, slowest = 0;
  for (int k = 0; k < instances; ++k) {
    ArenaProblem p = rng.next(buffers, width, height, 0, pinwheels);
    ArenaLimits limits;
    limits.work = 400'000'000;
    limits.seconds = seconds;
    double start = detail::secondsNow();
    ArenaSolution s = solve(p, limits);
    double took = detail::secondsNow() - start;
    expect(verify(p, s).empty(), "perfect instance: " + verify(p, s));
    found += s.height == height;
    worst = std::max(worst, double(s.height) / double(height)), slowest = std::max(slowest, took);
    if (verbose)
      std::printf("perfect %d x %lld: %.4f in %.2f s\n", buffers, (long long)width, double(s.height) / double(height),
                  took);
  }
  if (verbose)
    std::printf("perfect %d x %lld: %d of %d, worst %.4f, slowest %.2f s\n", buffers, (long long)width, found,
                instances, worst, slowest);
  expect(found >= share * instances, "perfect instances of " + std::to_string(buffers) + " buffers: found " +
                                         std::to_string(found) + " of " + std::to_string(instances));
  expect(worst <= 1.02, "perfect instances of " + std::to_string(buffers) + " buffers: worst " + std::to_string(worst));
}

// Orders in which sets of leaves are neighbours, beside the list of all of them.
static void testNeighbours() {
  PerfectArenas rng(4711);
  int wrong = 0, impossible = 0, kept = 0;
  for (int k = 0; k < 400; ++k) {
    std::vector<int> leaves(4 + size_t(rng.below(3)));
    std::iota(leaves.begin(), leaves.end(), 0);
    detail::NeighbourTree tree(leaves);
    std::set<std::vector<int>> orders;
    do
      orders.insert(leaves);
    while (std::next_permutation(leaves.begin(), leaves.end()));
    int next = int(leaves.size());
    for (int step = 0; step < 6; ++step) {
      std::vector<int> now = *orders.begin(), some;
      for (int leaf : now)
        if (rng.below(2))
          some.push_back(leaf);
      if (some.empty())
        continue;
      // Of each order the run of `some`, if they are neighbours: what is before, what is behind.
      auto runOf = [&](const std::vector<int> &order) {
        auto in = [&](int leaf) { return std::find(some.begin(), some.end(), leaf) != some.end(); };
        size_t from = 0, to;
        while (!in(order[from]))
          ++from;
        for (to = from; to < order.size() && in(order[to]);)
          ++to;
        return std::make_pair(from, to);
      };
      std::set<std::vector<int>> left;
      for (const std::vector<int> &order : orders)
        if (auto [from, to] = runOf(order); to - from == some.size())
          left.insert(order);
      if (tree.makeNeighbours(some) == left.empty())
        ++wrong;
      if (left.empty()) {
        ++impossible;
        break;
      }
      orders = left;
      if (rng.below(2)) {
        std::vector<int> fresh;
        for (int64_t i = rng.below(3); i >= 0 && now.size() - some.size() + fresh.size() < 7; --i)
          fresh.push_back(next++);
        tree.replace(fresh);
        std::set<std::vector<int>> replaced;
        for (const std::vector<int> &order : orders) {
          auto [from, to] = runOf(order);
          do {
            std::vector<int> other(order.begin(), order.begin() + long(from));
            other.insert(other.end(), fresh.begin(), fresh.end());
            other.insert(other.end(), order.begin() + long(to), order.end());
            replaced.insert(other);
          } while (std::next_permutation(fresh.begin(), fresh.end()));
        }
        orders = replaced;
      }
      // Every order that is left is one of the tree's, and whatever is asked for, the tree gives one of them.
      std::vector<int> rank(size_t(next), 0);
      for (const std::vector<int> &order : orders) {
        for (size_t i = 0; i < order.size(); ++i)
          rank[order[i]] = int(i);
        wrong += tree.order(rank) != order;
      }
      for (int &r : rank)
        r = int(rng.below(next));
      wrong += !orders.count(tree.order(rank));
      ++kept;
    }
  }
  expect(wrong == 0, std::to_string(wrong) + " orders of neighbours differ from the list of all");
  expect(impossible > 50 && kept > 200, "neighbours: both outcomes are tried");
}

// Placing in better and better orders: valid with fixed buffers, a floor and an alignment, the same every time, and as low
// as asked or never worse than one greedy order, where sizes differ by orders of magnitude, as in a training step. A third of the buffers is
// tiny; where some waste is allowed, those are placed last.
static void testOrders() {
  PerfectArenas rng(77);
  int wrong = 0, better = 0, instances = 60;
  for (int k = 0; k < instances; ++k) {
    ArenaProblem p;
    p.alignment = k % 2 ? 64 : 1;
    int ticks = 40;
    int64_t floor = 0;
    for (int i = 0; i < k % 4; ++i) { // parameters, and something fixed elsewhere
      p.buffers.push_back({64 * (1 + rng.below(50)), 0, ticks, floor});
      floor += p.buffers.back().size;
    }
    if (k % 5 == 4)
      p.buffers.push_back({640, 3, 9, floor + 6400});
    for (int i = 0; i < 100; ++i) {
      int64_t lower = rng.below(ticks), length = i % 10 ? 1 + rng.below(6) : 1 + rng.below(ticks);
      int64_t most = i % 3 == 0 ? 20000 : i % 3 == 1 ? 300 : 3;
      p.buffers.push_back({1 + rng.below(most), lower, std::min<int64_t>(ticks, lower + length), -1});
    }
    ArenaSolution s;
    s.bound = lowerBound(p), s.height = INT64_MAX;
    std::vector<int> order(p.buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p.buffers[a].size > p.buffers[b].size; });
    std::vector<int64_t> greedy;
    int64_t work = 2'000'000, height = detail::placeInOrder(p, order, greedy, -1);
    int64_t enough = s.bound + (k % 3 ? s.bound / 100 : 0), workAgain = work;
    ArenaSolution again = s;
    detail::placeByOrder(p, enough, 0, s, work, 0);
    detail::placeByOrder(p, enough, 0, again, workAgain, 0);
    std::string why = verify(p, s);
    if (!why.empty() || work < 0 || work != workAgain || s.offsets != again.offsets)
      ++wrong, std::printf("orders, instance %d: %s, work %lld left\n", k, why.c_str(), (long long)work);
    better += s.height <= std::max(height, enough);
  }
  expect(wrong == 0, "placing in better orders is valid and repeatable");
  expect(better == instances, "placing in better orders is not worse than first fit by size: " + std::to_string(better));
}

// What is taken is found by time or in a list: the same offsets.
static void testByTime() {
  PerfectArenas rng(20261127);
  int differ = 0;
  for (int k = 0; k < 200; ++k) {
    ArenaProblem p;
    p.alignment = k % 4 ? 1 : 64;
    int64_t ticks = 1 + rng.below(k % 2 ? 60 : 6), floor = 0;
    for (int i = 0; i < 5 * (k % 3); ++i) {
      p.buffers.push_back({64 * (1 + rng.below(9)), 0, ticks, floor});
      floor += p.buffers.back().size + 64 * rng.below(2);
    }
    for (int i = 0, n = int(rng.below(150)); i < n; ++i) {
      int64_t lower = rng.below(ticks), upper = lower + 1 + rng.below(i % 7 ? std::min<int64_t>(4, ticks - lower) : ticks - lower);
      p.buffers.push_back({rng.below(k % 5 ? 9 : 3000), lower, upper, -1}); // some of no bytes
    }
    std::vector<int> order(p.buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p.buffers[a].size * (k % 2 ? 1 : -1) > p.buffers[b].size * (k % 2 ? 1 : -1); });
    for (bool bestFit : {false, true}) {
      std::vector<int64_t> byTime, byList;
      ArenaSolution s;
      s.height = detail::placeInOrder(p, order, byTime, -1, bestFit, true);
      int64_t height = detail::placeInOrder(p, order, byList, -1, bestFit, false);
      s.offsets = byTime;
      differ += height != s.height || byTime != byList || !verify(p, s).empty();
      // One byte less than it takes: both give up.
      differ += height > floor && detail::placeInOrder(p, order, byTime, height - 1, bestFit, true) >= 0;
    }
  }
  expect(differ == 0, "placed by time as in a list: " + std::to_string(differ) + " differ");
}

static void testVerify() {
  PerfectArenas rng(99);
  ArenaProblem p = rng.next(30, 40, 4096);
  p.alignment = 1;
  ArenaSolution good = solve(p);
  expect(verify(p, good).empty(), "verify accepts a right answer");
  int rejected = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    ArenaSolution bad = good;
    bad.offsets[i] += 1; // there is no gap: something overlaps or the height grows
    rejected += !verify(p, bad).empty();
  }
  expect(rejected == int(p.buffers.size()), "verify rejects moved buffers");
  ArenaSolution bad = good;
  bad.height -= 1;
  expect(!verify(p, bad).empty(), "verify rejects a height too small");
  bad = good, bad.offsets.pop_back();
  expect(!verify(p, bad).empty(), "verify rejects missing offsets");
  bad = good, bad.offsets[0] = -1;
  expect(!verify(p, bad).empty(), "verify rejects negative offsets");
  ArenaProblem aligned = p;
  aligned.alignment = 64;
  ArenaSolution s = solve(aligned);
  expect(verify(aligned, s).empty(), "aligned: " + verify(aligned, s));
  ArenaProblem insane;
  insane.buffers.push_back({1, 3, 3, -1});
  expect(!check(insane).empty(), "check rejects an empty life");
  insane.buffers[0] = {-1, 0, 3, -1};
  expect(!check(insane).empty(), "check rejects a negative size");
  insane.buffers = {{4, 0, 2, 0}, {4, 1, 3, 2}};
  expect(!check(insane).empty(), "check rejects fixed buffers that clash");
  ArenaProblem fixed;
  fixed.buffers = {{4, 0, 2, 8}, {8, 0, 3, -1}, {4, 1, 2, -1}};
  s = solve(fixed);
  expect(verify(fixed, s).empty() && s.offsets[0] == 8, "fixed buffers stay: " + verify(fixed, s));
}

// A height that is good enough ends the searches, not the greedy start. Where nothing above it is of use, what fits is found and no other height
// is claimed; of so few buffers the searches come to their end.
static void testGoodEnough() {
  std::mt19937_64 random(29);
  int within = 0, none = 0;
  for (int i = 0; i < 300; ++i) {
    Case one;
    ArenaProblem p;
    for (int j = 0; j < 8; ++j) {
      int64_t from = int64_t(random() % 8);
      p.buffers.push_back({int64_t(1 + random() % 9), from, from + 1 + int64_t(random() % 5), -1});
    }
    ArenaSolution best = solve(p);
    expect(!best.exhausted, "eight buffers are packed as low as they can be");
    ArenaLimits greedy;
    greedy.work = 0;
    ArenaSolution start = solve(p, greedy);
    greedy.capacity = 2 * start.height;
    expect(solve(p, greedy).height == start.height, "the greedy start goes on below what is good enough");
    for (int64_t capacity = best.height - 2; capacity <= best.height + 2; ++capacity) {
      ArenaLimits limits;
      limits.capacity = capacity, limits.onlyWithin = true;
      ArenaSolution s = solve(p, limits);
      expect(verify(p, s).empty(), "only within: " + verify(p, s));
      expect((s.height <= capacity) == (best.height <= capacity), "only within " + std::to_string(capacity) + ": " + std::to_string(s.height));
      s.height <= capacity ? ++within : ++none;
    }
  }
  expect(within > 100 && none > 100, "good enough: all outcomes are tried");
}

int main(int argc, char **argv) {
  if (argc == 5 || argc == 6) {
    testPerfect(std::atoi(argv[1]), std::atoi(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]), 0.95, 10, true,
                argc == 6 ? std::atoll(argv[5]) : 0);
  } else {
    testOrders();
    testByTime();
    testVerify();
    testSmall(2000);
    testPerfect(6, 150, 1000, 1 << 20, 0.95, 5, false);
    testPerfect(6, 300, 100, 1 << 20, 0.95, 5, false);
    testPerfect(6, 150, 50, 1 << 20, 0.95, 5, false, 40);
    testPerfect(6, 250, 100, 1 << 20, 0.95, 5, false, 100);
    testNeighbours();
  }
  testGoodEnough();
  return tally();
}
