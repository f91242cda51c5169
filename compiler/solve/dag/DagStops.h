// DagStops.h: where schedules are cut by their tightest computations (DagGates.cpp), and how far they are there.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGSTOPS_H
#define CINCH_COMPILER_SOLVE_DAG_DAGSTOPS_H

#include "compiler/solve/dag/DagMoments.h"

#include <map>
#include <tuple>

namespace cinch::solve::detail {

// A stop of a schedule, and what lies there for later.
struct Stop {
  int progress, kernel; // nodes of the path that have been computed, the stop's among them; -1: the begin or the end
  bool first;           // the stop is the first computation of a node of the path
  bool small;           // small values are held across it, too
  std::vector<int> held;
  bool operator<(const Stop &o) const {
    return std::tie(progress, kernel, first, small, held) < std::tie(o.progress, o.kernel, o.first, o.small, o.held);
  }
};

// Stops by numbers, in the order in which they were found.
class StopList {
public:
  int idOf(Stop &&s) {
    auto [at, fresh] = ids.insert({std::move(s), int(stops.size())});
    if (fresh)
      stops.push_back(&at->first);
    return at->second;
  }
  const Stop &operator[](int id) const { return *stops[size_t(id)]; }
  size_t size() const { return stops.size(); }
  void clear() { ids.clear(), stops.clear(); }

private:
  std::map<Stop, int> ids;
  std::vector<const Stop *> stops;
};

// What gates know of a graph. Values of one kernel are computed together, and the first of them stands for it.
class StopGraph {
public:
  // `strict`: small values count.
  StopGraph(const Dag &, Order, int64_t budget, bool strict);

  // One more gate. `divide` then says what follows from all of them; `others`: kernels that are none, the tightest first.
  void addGate(int kernel) { gates.push_back(kernel), isGate[size_t(kernel)] = 1; }
  void divide(const std::vector<int> &others, int64_t &work);
  // Of these values, bytes of what neither is read by a kernel nor made by it.
  int64_t bytesBeside(int kernel, const std::vector<int> &values) const;

  const Dag &d;
  Order order;
  int64_t budget;
  bool strict;
  int n;
  std::vector<int> unit;                 // of nodes: the first of their kernel
  std::vector<std::vector<int>> sources; // of nodes: those that have bytes that count
  std::vector<double> cost;              // of kernels
  std::vector<int64_t> at;               // of kernels: bytes that lie there while they are computed
  Marks isGate, isStop;                  // of kernels: always a stop; a stop when it is first computed
  Marks isSmall;                         // of values
  int64_t smallest = INT64_MAX;          // bytes of such a value that has any
  std::vector<int> whole, path, gates;   // the longest path; what is looked at of it
  std::vector<int> stopBefore;           // by progress: up to the last stop of the path
  std::vector<Marks> repeated, possible; // by progress: of kernels, computed for certain; of values, possibly computed
  std::vector<int> narrow;               // kernels for which there must be room in between
};

} // namespace cinch::solve::detail
#endif
