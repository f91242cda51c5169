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
// What the first search has proven of the beginnings guides the second. Where states are many only the first comes to its end.
#include "compiler/solve/dag/DagBetween.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <map>
#include <queue>

namespace cinch::solve {
namespace {

using detail::Marks;

struct GateLimits {
  double small = 0.1;         // of the largest value's bytes: values up to there are small
  double first = 0.01;        // of the target: how far beyond what is proven a search looks at first; then twice as far, and so on
  int searches = 32;          // points of progress up to which the beginning is bounded, at most
  double ahead = 0.02;        // of the target: how much farther than asked the states before another are listed, for the next search
  size_t most = 1'000'000;    // states of a search
  int64_t choosing = 2;       // steps that it takes to look at one value
  int64_t opening = 64;       // and a state to be written down
  int64_t idle = 8;           // without a gain gates are added for such a part of the work,
  int64_t patience = 3;       // or so many times as much as there was work for the last gain
  size_t gates = 64;          // at most
  double narrow = 0.4;        // of the budget: kernels that leave no more to others are looked at where they are computed in between
  size_t mostNarrow = 40;     // of these, the tightest
};
constexpr GateLimits kLimits;
constexpr double kHalfByte = 0.5; // of a flow of bytes, which are whole numbers: what is rounding

class Gates {
public:
  // `strict`: the second time. `known`: of nodes, what is proven to be spent before they are first computed.
  Gates(const Dag &d, Order order, int64_t budget, double target, bool strict, std::vector<double> &known, int64_t &work, double deadline)
      : d(d), order(order), strict(strict), budget(budget), target(target), work(work), deadline(deadline), n(d.size()), unit(size_t(n)),
        sources(size_t(n)), cost(size_t(n), 0), at(size_t(n), 0), isGate(size_t(n), 0), isStop(size_t(n), 0), isSmall(size_t(n), 0),
        known(known), between(d, unit, sources) {
    int64_t largest = 0;
    for (const Dag::Node &node : d.nodes)
      largest = std::max(largest, node.bytes);
    for (int v = 0; v < n; ++v) {
      int u = unit[v] = d.firstOfKernel(v);
      cost[u] += d.nodes[v].cost, at[u] += d.nodes[v].bytes;
      for (int s : d.nodes[v].sources) {
        at[u] += u == v ? d.nodes[s].bytes : 0;
        if (strict ? d.nodes[s].bytes > 0 : double(d.nodes[s].bytes) > kLimits.small * double(largest))
          sources[v].push_back(s);
      }
      isSmall[v] = double(d.nodes[v].bytes) <= kLimits.small * double(largest);
      if (isSmall[v] && d.nodes[v].bytes > 0)
        smallest = std::min(smallest, d.nodes[v].bytes);
      if (v + 1 == d.endOfKernel(v))
        at[u] += d.nodes[v].working;
    }
    for (int v : detail::longestPath(d, order))
      if (whole.empty() || unit[v] != whole.back())
        whole.push_back(unit[v]);
  }

  // More and more gates, the tightest first, those that leave the same room together.
  double bound() {
    std::vector<int> tightest;
    for (int v = 0; v < n; ++v)
      if (unit[v] == v)
        tightest.push_back(v);
    std::stable_sort(tightest.begin(), tightest.end(), [&](int x, int y) { return at[x] > at[y]; });
    double proven = 0;
    int64_t given = work, gaining = work, idle = 0; // steps: those of the last gain (before it there is no limit), those since
    for (size_t i = 0; i < std::min(tightest.size(), kLimits.gates); ++i) {
      gates.push_back(tightest[i]), isGate[tightest[i]] = 1;
      if (i + 1 < tightest.size() && at[tightest[i + 1]] == at[tightest[i]])
        continue;
      findNarrow({tightest.begin() + ptrdiff_t(i) + 1, tightest.end()});
      int64_t mine = std::min(work, std::max(given / kLimits.idle, kLimits.patience * gaining) - idle), rest = work - mine;
      work = mine;
      setUp();
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
  struct State {
    int progress, stop; // nodes of the path that have been computed, the stop's among them; its kernel, -1: the begin or the end
    bool first;         // the stop is the first computation of a node of the path
    bool small;         // small values are held across it, too
    std::vector<int> held;
    bool operator<(const State &o) const {
      return std::tie(progress, stop, first, small, held) < std::tie(o.progress, o.stop, o.first, o.small, o.held);
    }
  };
  // A state that some search came to, and those that may come right before it.
  struct Node {
    const State *state;
    std::vector<std::pair<int, double>> before; // with what lies in between costs
    double looked = -1;                         // all of them are listed that lead to a beginning within so many seconds
    int search = 0;                             // of which the rest is
    double cost = 0;
    bool closed = false;
  };

  // Of kernels that are no gates, the tightest first: those that leave few bytes to others.
  void findNarrow(const std::vector<int> &others) {
    narrow.clear(), isStop.assign(size_t(n), 0);
    for (int f : others)
      if (strict && narrow.size() < kLimits.mostNarrow && double(budget - at[f]) <= kLimits.narrow * double(budget))
        narrow.push_back(f);
    for (int f : narrow)
      isStop[f] = at[f] == at[narrow.front()];
  }

  // Of the longest path: stops, and nodes that read something which the node before neither reads nor makes.
  void setUp() {
    path.clear(), ids.clear(), nodes.clear(), noRoom.clear();
    for (size_t i = 0; i < whole.size(); ++i) {
      bool stays = isGate[whole[i]] || isStop[whole[i]] || i + 1 == whole.size();
      for (int s : sources[whole[i]])
        stays |= i && unit[s] != whole[i - 1] && !std::count(sources[whole[i - 1]].begin(), sources[whole[i - 1]].end(), s);
      if (stays)
        path.push_back(whole[i]);
    }
    size_t K = path.size();
    repeated.assign(K + 1, Marks(size_t(n), 0)), possible.assign(K + 1, Marks(size_t(n), 1)), stopBefore.assign(K + 1, 0);
    for (size_t k = 0; k < K; ++k) {
      Marks before = detail::everBeside(d, order, path[k], true), after = detail::everBeside(d, order, path[k], false);
      stopBefore[k + 1] = isGate[path[k]] || isStop[path[k]] ? int(k) + 1 : stopBefore[k];
      for (int v = 0; v < n; ++v) {
        bool own = unit[v] == path[k];
        if (before[v] || own)
          repeated[k + 1][unit[v]] = 1;
        for (int u = unit[v]; (after[v] || own) && u < d.endOfKernel(v); ++u)
          possible[k][u] = 0;
      }
      work -= n;
    }
    // What fewer gates have proven of the beginnings.
    for (size_t i = 1; i < whole.size(); ++i)
      known[whole[i]] = std::max(known[whole[i]], known[whole[i - 1]]);
    prefix.assign(K + 1, 0);
    for (size_t k = 0; k < K; ++k)
      prefix[k + 1] = known[path[k]];
  }

  // False: work ran out.
  bool prefixes() {
    size_t K = path.size(), every = (K + kLimits.searches - 1) / kLimits.searches;
    for (size_t k = 1; k <= K; ++k) {
      prefix[k] = std::max(prefix[k], prefix[k - 1]);
      bool found = k != K && k % every, complete = true;
      for (double more = kLimits.first * target; !found && complete && prefix[k] < target; more *= 2)
        prefix[k] = std::max(prefix[k], search(int(k), std::min(target, prefix[k] + more), complete, found));
      known[path[k - 1]] = prefix[k];
      if (!complete || prefix[k] >= target)
        return complete;
    }
    return true;
  }

  // The least that is spent up to this progress, if it is below the limit; else the limit, or what was reached before work ran out.
  double search(int progress, double below, bool &complete, bool &found) {
    settled.clear(), queue = {}, limit = below, ++searches;
    open(idOf({progress, -1, false, false, {}}), 0);
    double reached = 0;
    while (!queue.empty()) {
      auto [estimate, unused, id] = queue.top();
      queue.pop();
      if (nodes[size_t(id)].closed)
        continue;
      if (work <= 0 || nodes.size() > kLimits.most || (deadline > 0 && detail::secondsNow() > deadline))
        return complete = false, std::min(reached, below);
      nodes[size_t(id)].closed = true;
      reached = std::max(reached, -estimate);
      const State &state = *nodes[size_t(id)].state;
      if (state.progress == 0 && state.stop < 0)
        return found = true, std::min(reached, below);
      double c = nodes[size_t(id)].cost;
      // With less to hold at no more cost the same stop serves as well.
      auto &list = settled[{state.progress, state.stop, state.first}];
      work -= int64_t(list.size());
      if (std::any_of(list.begin(), list.end(), [&](auto &other) {
            const State &less = *other.second;
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

  int idOf(State &&s) {
    auto [at, fresh] = ids.insert({std::move(s), int(nodes.size())});
    if (fresh)
      nodes.push_back({&at->first, {}});
    return at->second;
  }
  double leastBefore(const State &s) const { return s.stop < 0 && s.progress > 0 ? 0 : prefix[size_t(s.progress)]; }

  void open(int id, double c) {
    Node &node = nodes[size_t(id)];
    double estimate = c + leastBefore(*node.state);
    if (estimate >= limit || (node.search == searches && node.cost <= c))
      return;
    node.search = searches, node.cost = c, node.closed = false;
    queue.push({-estimate, -node.state->progress, id});
  }

  // Lists the stops that may come right before this one, if all from there to the beginning may take so long.
  void expand(int id, double seconds) {
    const State &s = *nodes[size_t(id)].state;
    until = s.first ? s.progress - 1 : s.progress, left = seconds;
    found.clear(), fits.clear(), later = &s;
    need.assign(size_t(n + 63) / 64, 0), made.assign(size_t(n), 0);
    auto wantAll = [&](const std::vector<int> &list) {
      for (int v : list)
        need[size_t(v) / 64] |= bit(v);
    };
    wantAll(s.held);
    if (s.stop >= 0)
      wantAll(sources[s.stop]);
    findLast();
    for (now = until;; --now) {
      if (now < until)
        made[path[size_t(now)]] = kFirst, wantAll(sources[path[size_t(now)]]);
      findUseful();
      if (now == 0)
        from(-1, true);
      else if (isGate[path[size_t(now) - 1]] || isStop[path[size_t(now) - 1]])
        from(path[size_t(now) - 1], true);
      for (int g : gates)
        if (possible[size_t(now)][g] && useful[g])
          from(g, false);
      if (now == stopBefore[size_t(until)])
        break;
    }
    nodes[size_t(id)].looked = seconds;
    nodes[size_t(id)].before.assign(found.begin(), found.end());
  }

  // Which sources of the later stop may be computed last of those that are computed in between. From then on all of its sources lie there, so that
  // a kernel that has no room beside them is not computed any more before the stop; what is held across the stop lies there, too, or is
  // computed behind it from what lies there, by other kernels.
  void findLast() {
    last.clear();
    if (later->stop < 0)
      return;
    const std::vector<int> &reads = sources[later->stop];
    auto [known, fresh] = noRoom.insert({later->stop, {}});
    if (fresh) {
      known->second = isGate;
      for (int k = 0; k < n; ++k)
        if (unit[k] == k && at[k] + bytesBeside(k, reads) > budget)
          known->second[k] = 1;
      work -= n;
    }
    for (int s : reads) {
      int f = unit[s];
      double room = double(budget - at[f] - bytesBeside(f, reads)) + kHalfByte;
      if (!isGate[f] && (double(bytesBeside(f, later->held)) <= room ||
                         between.leastBytes(f, reads, later->held, known->second, work) <= room))
        last.push_back(s);
    }
  }
  // Of these values, what neither is read by a kernel nor made by it.
  int64_t bytesBeside(int kernel, const std::vector<int> &values) const {
    int64_t bytes = 0;
    const std::vector<int> &reads = d.nodes[kernel].sources;
    for (int v : values)
      if (unit[v] != kernel && std::find(reads.begin(), reads.end(), v) == reads.end())
        bytes += d.nodes[v].bytes;
    return bytes;
  }
  // Is some source of the later stop computed in between, and none of them as the last? Of one that lies at the stop before, or that may as well
  // be held there, it is not certain that it is not computed again.
  bool noneIsLast() const {
    if (later->stop < 0)
      return false;
    auto sure = [&](int s) { return made[unit[s]] && made[unit[s]] != kPerhaps && !there[s]; };
    auto may = [&](int s) { return made[unit[s]] || there[s] || isThereSmall(s); };
    return std::any_of(sources[later->stop].begin(), sources[later->stop].end(), sure) && std::none_of(last.begin(), last.end(), may);
  }

  // Kernels from which something that is wanted may come without a gate in between.
  void findUseful() {
    useful.assign(size_t(n), 0);
    std::vector<int> stack;
    for (int v = 0; v < n; ++v)
      if (wanted(v))
        stack.push_back(v);
    work -= n;
    while (!stack.empty()) {
      int u = unit[stack.back()];
      stack.pop_back();
      if (useful[u])
        continue;
      useful[u] = 1;
      if (!isGate[u])
        stack.insert(stack.end(), sources[u].begin(), sources[u].end());
    }
  }

  static uint64_t bit(int v) { return uint64_t(1) << (v % 64); }
  bool wanted(int v) const { return (need[size_t(v) / 64] & bit(v)) != 0; }

  // All that may be held across the stop.
  void from(int stop, bool first) {
    from(stop, first, false);
    if (strict && stop >= 0)
      from(stop, first, true);
  }
  void from(int stop, bool first, bool small) {
    withSmall = small, ofSmall = 0;
    there.assign(size_t(n), 0), held.clear();
    previous = stop, isFirst = first, ofStop = 0, must = 0;
    int64_t room = 0;
    if (stop >= 0) {
      if ((room = budget - at[stop] - (small ? smallest : 0)) < 0)
        return;
      for (int v : d.nodes[stop].sources)
        there[v] = 1;
      for (int v = stop; v < d.endOfKernel(stop); ++v)
        there[v] = 2;
    }
    for (int v = 0; v < n; ++v)
      if (wanted(v) && !made[unit[v]] && !isThereSmall(v) && mustBeHeld(v))
        must += d.nodes[v].bytes;
    // What has to be held at least to have a value behind the stop; of what is computed, its dearest source.
    hold.assign(size_t(n), 0);
    for (int v = 0; v < n; ++v) {
      if (there[v] || made[unit[v]])
        continue;
      constexpr int64_t kNever = INT64_MAX;
      int64_t least = isThereSmall(v) ? 0 : mayBeHeld(v) && !isSmall[v] ? d.nodes[v].bytes : kNever, most = mustBeHeld(v) ? kNever : 0;
      for (int s : sources[v])
        most = std::max(most, hold[s]);
      hold[v] = std::min(least, most);
      if (wanted(v) && hold[v] > room)
        return;
    }
    choose(n - 1, room, first || !repeated[size_t(now)][stop] ? 0 : cost[stop]);
  }
  bool mustBeHeld(int v) const { return !there[v] && (isGate[unit[v]] || !possible[size_t(until)][v]); }
  bool isThereSmall(int v) const { return withSmall && isSmall[v] && mayBeHeld(v); }
  bool mayBeHeld(int v) const { return previous >= 0 && possible[size_t(isFirst ? now - 1 : now)][v]; }

  // For each value that is wanted, from the last one back to the first: it lies there, or is held, or is computed behind the stop.
  void choose(int v, int64_t room, double again) {
    if ((work -= kLimits.choosing) <= 0 || must > room)
      return;
    if (!isFirst && !ofStop && v < previous)
      return; // the stop is of no use
    if (v >= 0) {
      size_t word = size_t(v) / 64;
      uint64_t bits = need[word] & (~uint64_t(0) >> (63 - v % 64));
      while (!bits && word > 0)
        bits = need[--word];
      v = bits ? int(word) * 64 + 63 - __builtin_clzll(bits) : -1;
    }
    if (v < 0) {
      if ((withSmall && !ofSmall) || noneIsLast() || !allFit())
        return;
      work -= kLimits.opening;
      auto [at, fresh] = found.insert({idOf({now, previous, isFirst && previous >= 0, withSmall, {held.rbegin(), held.rend()}}), again});
      at->second = std::min(at->second, again);
      return;
    }
    int u = unit[v];
    if (there[v] || made[u]) {
      bool own = there[v] == 2;
      ofStop += own;
      choose(v - 1, room, again);
      ofStop -= own;
      return;
    }
    if (isThereSmall(v)) {
      ++ofSmall;
      choose(v - 1, room, again);
      --ofSmall;
      return;
    }
    bool forced = mustBeHeld(v);
    double more = again + (repeated[size_t(now)][u] ? cost[u] : 0);
    // What costs nothing and needs nothing new need not be held.
    bool free = !forced && more == again && std::all_of(sources[v].begin(), sources[v].end(), [&](int s) { return there[s] || wanted(s); });
    if (int64_t bytes = d.nodes[v].bytes; !free && bytes <= room && mayBeHeld(v) && !isSmall[v]) {
      held.push_back(v), must -= forced ? bytes : 0;
      choose(v - 1, room - bytes, again);
      held.pop_back(), must += forced ? bytes : 0;
    }
    if (forced || more + prefix[size_t(now)] >= left)
      return;
    size_t before = added.size();
    int64_t mustBefore = must;
    if (std::any_of(sources[v].begin(), sources[v].end(), [&](int s) { return hold[s] > room; }))
      return;
    made[u] = free ? kPerhaps : kAgain;
    for (int s : sources[v])
      if (!wanted(s)) {
        need[size_t(s) / 64] |= bit(s), added.push_back(s);
        must += !made[unit[s]] && !isThereSmall(s) && mustBeHeld(s) ? d.nodes[s].bytes : 0;
      }
    choose(v - 1, room, more);
    for (; added.size() > before; added.pop_back())
      need[size_t(added.back()) / 64] &= ~bit(added.back());
    made[u] = 0, must = mustBefore;
  }

  // Is there room for all that is wanted behind what is computed in between?
  bool allFit() {
    bool fresh = true;
    for (int f : narrow)
      if (made[f] && made[f] != kPerhaps) {
        if (fresh)
          wantedFrom.assign(size_t(n), -1), fresh = false, work -= n / 8;
        if (!fitsBefore(f, firstReader(f)))
          return false;
      }
    return true;
  }

  // A kernel that is computed in between is wanted by a node of the path that is first computed there, or by what is computed for it, or
  // by the later stop. The progress up to that node; where the kernel is such a node itself, with it.
  int firstReader(int f) {
    if (wantedFrom[size_t(f)] >= 0)
      return wantedFrom[size_t(f)];
    if (made[f] == kFirst)
      return wantedFrom[size_t(f)] = placeOf(f) + 1;
    int least = until;
    for (int v = f; v < d.endOfKernel(f); ++v) {
      if (there[v] || isThereSmall(v) || std::find(held.begin(), held.end(), v) != held.end())
        continue;
      for (int w : d.nodes[v].users)
        if (int u = unit[w]; made[u] && made[u] != kPerhaps)
          least = std::min(least, made[u] == kFirst ? placeOf(u) : firstReader(u));
    }
    return wantedFrom[size_t(f)] = least;
  }
  int placeOf(int u) const { return int(std::find(path.begin() + now, path.begin() + until, u) - path.begin()); }

  // Can f be computed before the nodes of the path from this progress on, up to the later stop?
  bool fitsBefore(int f, int progress) {
    auto [known, fresh] = fits.insert({{f, progress}, true});
    if (!fresh)
      return known->second;
    std::vector<int> behind = later->held;
    if (later->stop >= 0)
      behind.insert(behind.end(), sources[later->stop].begin(), sources[later->stop].end());
    for (int k = progress; k < until; ++k)
      behind.insert(behind.end(), sources[path[size_t(k)]].begin(), sources[path[size_t(k)]].end());
    std::sort(behind.begin(), behind.end());
    behind.erase(std::unique(behind.begin(), behind.end()), behind.end());
    return known->second = between.leastBytes(f, {}, behind, isGate, work) <= double(budget - at[f]) + kHalfByte;
  }

  const Dag &d;
  Order order;
  bool strict;
  int64_t budget;
  double target;
  int64_t &work;
  double deadline;
  int n;
  std::vector<int> unit;                 // of nodes: the first of their kernel
  std::vector<std::vector<int>> sources; // those that have bytes
  std::vector<double> cost;              // of kernels
  std::vector<int64_t> at;               // of kernels: bytes that lie there while they are computed
  Marks isGate, isStop;                  // of kernels: always a stop; a stop when it is first computed
  Marks isSmall;                         // of values
  int64_t smallest = INT64_MAX;          // bytes of such a value that has any
  std::vector<double> &known;            // of nodes of the longest path: what is spent at least before they are computed
  std::vector<int> whole, path, gates;   // the longest path; what is looked at of it
  std::vector<int> stopBefore;           // by progress: up to the last stop of the path
  std::vector<Marks> repeated, possible; // by progress: of kernels, computed for certain; of values, possibly computed
  std::vector<double> prefix;            // by progress: what is spent at least before
  std::vector<int> narrow;               // kernels for which there must be room in between
  detail::Between between;

  int searches = 0;
  double limit = 0; // of a search
  std::map<State, int> ids;
  std::vector<Node> nodes;
  std::map<std::tuple<int, int, bool>, std::vector<std::pair<double, const State *>>> settled;
  std::priority_queue<std::tuple<double, int, int>> queue;

  // Of the state that is expanded, and the stop before it that is looked at.
  int until = 0, now = 0;     // progress between the two: at its end and at its begin
  int previous = -1;          // the stop's kernel
  bool isFirst = false;
  int ofStop = 0;             // values of it that are of use
  bool withSmall = false;     // small values are held across it
  int ofSmall = 0;            // of those that are wanted
  double left = 0;            // seconds from the beginning up to it
  std::map<int, double> found; // states before it
  int64_t must = 0;           // bytes wanted that can only be held
  std::vector<int64_t> hold;  // of values: the fewest bytes that must be held to have them
  std::vector<uint64_t> need; // a bit a value: wanted
  // Kernels computed in between: for the first time, again, or perhaps, because that is as good as holding what they make.
  enum : char { kFirst = 1, kAgain, kPerhaps };
  Marks made, there, useful;  // .. ; values that lie there for the stop (2: its own)
  std::vector<int> held, added;
  const State *later = nullptr;              // the state that is expanded
  std::vector<int> wantedFrom;               // of kernels: what firstReader found; -1: nothing yet
  std::map<std::pair<int, int>, bool> fits; // what fitsBefore found
  std::vector<int> last;                     // what findLast found
  std::map<int, Marks> noRoom;               // of stops: kernels that are gates, or have no room beside what the stop reads
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
