// DagGates.cpp: a lower bound on the cost of repetition from the tightest computations, however often they are done.
//
// Gates are kernels that leave few bytes to others. A schedule is cut at every computation of a gate, the first one and those again: these
// are its stops. At a stop of kernel e there lie what e reads and writes, and besides them what is held across it, H, within the room that is left.
// Between two stops there is room for everything (a relaxation), but no gate is computed there: what the later stop e' and H' need lay there
// at e or was computed in between, and then so lay or was what that reads. A schedule without needless computations is thus a path
//
//     (progress, e, H)  ->  (progress', e', H')       at the cost of what is computed again in between, and of e' if that is done again
//
// where the progress is the number of nodes of a longest path that have been computed; those between progress and progress' are computed in
// between, for the first time. It says which nodes have been computed for certain, so that they cost something, and which cannot have been.
// The cheapest path is a bound. It is searched from the end, from what is wanted to what has to lie there for it, so that only values of use appear;
// few fit beside a gate, so there are few states. What the beginning of a schedule up to some progress costs at least is found first, progress by
// progress, and guides the search of the longer ones (A*; the guess may fall behind, so states are opened again).
// States and what may come before them stay from search to search.
//
// All this is done twice. First small values, which would multiply the states, are there whenever they are wanted. The second time a stop
// says whether any is held: all of them are then, in the bytes of the smallest, and where none is they are computed in between, like
// anything else. First computations of other nodes that leave little room are stops, too, the second time. Computed again such a
// node is no stop, which would multiply the states.
// But what is certain to lie there must have room beside it, as beside all that is computed in between (DagBetween.h).
// Both times a gate's sources must have had room when the last of them was computed (DagStopsBefore.h).
// What the first search has proven of the beginnings guides the second. Where states are many only the first comes to its end.
#include "compiler/solve/dag/DagStopsBefore.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <queue>

namespace cinch::solve {
namespace {

using detail::Stop;

struct GateLimits {
  double first = 0.01;        // of the target: how far beyond what is proven a search looks at first; then twice as far, and so on
  int searches = 32;          // points of progress up to which the beginning is bounded, at most
  double ahead = 0.02;        // of the target: how much farther than asked the states before another are listed, for the next search
  size_t most = 1'000'000;    // states of a search
  int64_t idle = 8;           // without a gain gates are added for such a part of the work,
  int64_t patience = 3;       // or so many times as much as there was work for the last gain
  size_t gates = 64;          // at most
};
constexpr GateLimits kLimits;

class Gates {
public:
  // `strict`: the second time. `known`: of nodes, what is proven to be spent before they are first computed.
  Gates(const Dag &d, Order order, int64_t budget, double target, bool strict, std::vector<double> &known, int64_t &work, double deadline)
      : graph(d, order, budget, strict), target(target), known(known), work(work), deadline(deadline),
        stopsBefore(graph, stops, prefix, work) {}

  // More and more gates, the tightest first, those that leave the same room together.
  double bound() {
    std::vector<int> tightest;
    for (int v = 0; v < graph.n; ++v)
      if (graph.unit[v] == v)
        tightest.push_back(v);
    std::stable_sort(tightest.begin(), tightest.end(), [&](int x, int y) { return graph.at[x] > graph.at[y]; });
    double proven = 0;
    int64_t given = work, gaining = work, idle = 0; // steps: those of the last gain (before it there is no limit), those since
    for (size_t i = 0; i < std::min(tightest.size(), kLimits.gates); ++i) {
      graph.addGate(tightest[i]);
      if (i + 1 < tightest.size() && graph.at[tightest[i + 1]] == graph.at[tightest[i]])
        continue;
      int64_t mine = std::min(work, std::max(given / kLimits.idle, kLimits.patience * gaining) - idle), rest = work - mine;
      work = mine;
      setUp({tightest.begin() + ptrdiff_t(i) + 1, tightest.end()});
      bool complete = prefixes();
      double least = *std::max_element(prefix.begin(), prefix.end());
      idle += mine - work, work += rest;
      if (least > proven)
        proven = least, gaining = idle, idle = 0;
      if (!complete || proven >= target)
        break;
    }
    return proven;
  }

private:
  // A stop that some search came to, and those that may come right before it.
  struct Node {
    std::vector<std::pair<int, double>> before; // with what lies in between costs
    double looked = -1;                         // all of them are listed that lead to a beginning within so many seconds
    int search = 0;                             // of which the rest is
    double cost = 0;
    bool closed = false;
  };

  void setUp(const std::vector<int> &others) {
    graph.divide(others, work);
    stops.clear(), nodes.clear(), stopsBefore.clear();
    // What fewer gates have proven of the beginnings.
    const std::vector<int> &whole = graph.whole, &path = graph.path;
    for (size_t i = 1; i < whole.size(); ++i)
      known[whole[i]] = std::max(known[whole[i]], known[whole[i - 1]]);
    prefix.assign(path.size() + 1, 0);
    for (size_t k = 0; k < path.size(); ++k)
      prefix[k + 1] = known[path[k]];
  }

  // False: work ran out.
  bool prefixes() {
    size_t K = graph.path.size(), every = (K + kLimits.searches - 1) / kLimits.searches;
    for (size_t k = 1; k <= K; ++k) {
      prefix[k] = std::max(prefix[k], prefix[k - 1]);
      bool found = k != K && k % every, complete = true;
      for (double more = kLimits.first * target; !found && complete && prefix[k] < target; more *= 2)
        prefix[k] = std::max(prefix[k], search(int(k), std::min(target, prefix[k] + more), complete, found));
      known[graph.path[k - 1]] = prefix[k];
      if (!complete || prefix[k] >= target)
        return complete;
    }
    return true;
  }

  // The least that is spent up to this progress, if it is below the limit; else the limit, or what was reached before work ran out.
  double search(int progress, double below, bool &complete, bool &found) {
    settled.clear(), queue = {}, limit = below, ++searches;
    open(stops.idOf({progress, -1, false, false, {}}), 0);
    double reached = 0;
    while (!queue.empty()) {
      auto [estimate, unused, id] = queue.top();
      queue.pop();
      if (nodes[size_t(id)].closed)
        continue;
      if (work <= 0 || stops.size() > kLimits.most || (deadline > 0 && detail::secondsNow() > deadline))
        return complete = false, std::min(reached, below);
      nodes[size_t(id)].closed = true;
      reached = std::max(reached, -estimate);
      const Stop &state = stops[id];
      if (state.progress == 0 && state.kernel < 0)
        return found = true, std::min(reached, below);
      double c = nodes[size_t(id)].cost;
      // With less to hold at no more cost the same stop serves as well.
      auto &list = settled[{state.progress, state.kernel, state.first}];
      work -= int64_t(list.size());
      if (std::any_of(list.begin(), list.end(), [&](auto &other) {
            const Stop &less = *other.second;
            return other.first <= c && less.small <= state.small &&
                   std::includes(state.held.begin(), state.held.end(), less.held.begin(), less.held.end());
          }))
        continue;
      list.push_back({c, &state});
      if (limit - c > nodes[size_t(id)].looked)
        expand(id, limit - c + kLimits.ahead * target);
      work -= int64_t(nodes[size_t(id)].before.size());
      for (auto &[other, more] : nodes[size_t(id)].before)
        open(other, c + more);
    }
    // Where work ran out, the last list of stops is not whole.
    return work > 0 ? below : (complete = false, std::min(reached, below));
  }

  double leastBefore(const Stop &s) const { return s.kernel < 0 && s.progress > 0 ? 0 : prefix[size_t(s.progress)]; }

  void open(int id, double c) {
    nodes.resize(std::max(nodes.size(), stops.size()));
    Node &node = nodes[size_t(id)];
    double estimate = c + leastBefore(stops[id]);
    if (estimate >= limit || (node.search == searches && node.cost <= c))
      return;
    node.search = searches, node.cost = c, node.closed = false;
    queue.push({-estimate, -stops[id].progress, id});
  }

  void expand(int id, double seconds) {
    const std::map<int, double> &before = stopsBefore.of(id, seconds);
    nodes[size_t(id)].looked = seconds;
    nodes[size_t(id)].before.assign(before.begin(), before.end());
  }

  detail::StopGraph graph;
  double target;
  std::vector<double> &known; // of nodes of the longest path: what is spent at least before they are computed
  int64_t &work;
  double deadline;
  detail::StopList stops;
  std::vector<Node> nodes;    // of stops
  std::vector<double> prefix; // by progress: what is spent at least before
  detail::StopsBefore stopsBefore;

  int searches = 0;
  double limit = 0; // of a search
  std::map<std::tuple<int, int, bool>, std::vector<std::pair<double, const Stop *>>> settled;
  std::priority_queue<std::tuple<double, int, int>> queue;
};

} // namespace

double detail::gateBound(const Dag &whole, Order order, int64_t budget, double target, int64_t &work, double deadline) {
  if (whole.size() == 0 || budget < memoryBound(whole))
    return 0;
  Dag d = order == Order::Free ? merged(whole) : whole;
  for (int v = 0; v < d.size(); ++v)
    for (int s : d.nodes[v].sources)
      if (s > v)
        return 0; // the list is in no order in which it can be computed
  std::vector<double> known(size_t(d.size()), 0);
  constexpr int64_t kSecondShare = 4; // such a part of the work is left to the second time
  int64_t first = work - work / kSecondShare, rest = first;
  double proven = Gates(d, order, budget, target, false, known, rest, deadline).bound();
  work -= first - rest;
  if (proven < target)
    proven = std::max(proven, Gates(d, order, budget, target, true, known, work, deadline).bound());
  return std::max(0.0, proven * (1 - 1e-9));
}

} // namespace cinch::solve
