// DagNestFront.h: lists of peaks and costs of which none is better in both, and how two of them become one. Used by
// DagNest.cpp only.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGNESTFRONT_H
#define CINCH_COMPILER_SOLVE_DAG_DAGNESTFRONT_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cinch::solve::detail {

struct Point {
  int64_t peak;
  double cost;
};
using Front = std::vector<Point>; // peaks rise, costs fall

// The number of the cheapest point within a peak, or -1.
inline int lastWithin(const Front &front, int64_t peak) {
  auto it = std::upper_bound(front.begin(), front.end(), peak, [](int64_t p, const Point &x) { return p < x.peak; });
  return int(it - front.begin()) - 1;
}

// The cheapest for each stretch of peaks between two, with its own peak.
class Slots {
public:
  Slots(int count, int64_t least, int64_t most)
      : points(count, {0, 1e300}), least(least), scale(double(count) / double(most - least + 1)) {}
  void add(int64_t peak, double cost) {
    Point &p = points[std::min(size_t(double(peak - least) * scale), points.size() - 1)];
    if (cost < p.cost || (cost == p.cost && peak < p.peak))
      p = {peak, cost};
  }
  Front front() const {
    Front result;
    double least = 1e300;
    for (const Point &p : points)
      if (p.cost < least)
        least = p.cost, result.push_back(p);
    return result;
  }

private:
  std::vector<Point> points;
  int64_t least;
  double scale;
};

// The least peak that going on inside, and then `last` if there is one, can have.
inline int64_t leastPeak(const Front &inside, int64_t beside, const Front *last, int64_t floor) {
  if (inside.empty() || (last && last->empty()))
    return INT64_MAX;
  return std::max({floor, inside[0].peak + beside, last ? (*last)[0].peak : 0});
}

// Going on inside, beside `beside` bytes; then `last`, or nothing.
inline void combine(Slots &slots, const Front &inside, int64_t beside, const Front *last, int64_t floor, double cost,
                    int64_t budget, int64_t &work) {
  int64_t peak = leastPeak(inside, beside, last, floor);
  if (peak > budget)
    return;
  size_t i = size_t(lastWithin(inside, peak - beside)), k = last ? size_t(lastWithin(*last, peak)) : 0;
  for (;;) {
    slots.add(peak, cost + inside[i].cost + (last ? (*last)[k].cost : 0));
    --work;
    int64_t nextInside = i + 1 < inside.size() ? inside[i + 1].peak + beside : INT64_MAX;
    int64_t nextLast = last && k + 1 < last->size() ? (*last)[k + 1].peak : INT64_MAX;
    peak = std::min(nextInside, nextLast);
    if (peak > budget)
      return;
    i += nextInside == peak, k += nextLast == peak;
  }
}

} // namespace cinch::solve::detail
#endif
