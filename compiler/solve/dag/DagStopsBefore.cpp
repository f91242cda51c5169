// DagStopsBefore.cpp: from a stop back to those before it, value by value of what is wanted.
#include "compiler/solve/dag/DagStopsBefore.h"

#include <algorithm>

namespace cinch::solve::detail {
namespace {

constexpr double kHalfByte = 0.5; // of a flow of bytes, which are whole numbers: what is rounding

} // namespace

// Lists the stops that may come right before this one, if all from there to the beginning may take so long.
const std::map<int, double> &StopsBefore::of(int id, double seconds) {
  const Stop &s = stops[id];
  until = s.first ? s.progress - 1 : s.progress, left = seconds;
  found.clear(), fits.clear(), later = &s;
  need.assign(size_t(g.n + 63) / 64, 0), made.assign(size_t(g.n), 0);
  auto wantAll = [&](const std::vector<int> &list) {
    for (int v : list)
      need[size_t(v) / 64] |= bit(v);
  };
  wantAll(s.held);
  if (s.kernel >= 0)
    wantAll(g.sources[s.kernel]);
  findLast();
  for (now = until;; --now) {
    if (now < until)
      made[g.path[size_t(now)]] = kFirst, wantAll(g.sources[g.path[size_t(now)]]);
    findUseful();
    if (now == 0)
      from(-1, true);
    else if (g.isGate[g.path[size_t(now) - 1]] || g.isStop[g.path[size_t(now) - 1]])
      from(g.path[size_t(now) - 1], true);
    for (int gate : g.gates)
      if (g.possible[size_t(now)][gate] && useful[gate])
        from(gate, false);
    if (now == g.stopBefore[size_t(until)])
      break;
  }
  return found;
}

// Which sources of the later stop may be computed last of those that are computed in between. From then on all of its sources lie there, so
// that a kernel that has no room beside them is not computed any more before the stop; what is held across the stop lies there, too, or is
// computed behind it from what lies there, by other kernels.
void StopsBefore::findLast() {
  last.clear();
  if (later->kernel < 0)
    return;
  const std::vector<int> &reads = g.sources[later->kernel];
  auto [known, fresh] = noRoom.insert({later->kernel, {}});
  if (fresh) {
    known->second = g.isGate;
    for (int k = 0; k < g.n; ++k)
      if (g.unit[k] == k && g.at[k] + g.bytesBeside(k, reads) > g.budget)
        known->second[k] = 1;
    work -= g.n;
  }
  for (int s : reads) {
    int f = g.unit[s];
    double room = double(g.budget - g.at[f] - g.bytesBeside(f, reads)) + kHalfByte;
    if (!g.isGate[f] && (double(g.bytesBeside(f, later->held)) <= room ||
                       between.leastBytes(f, reads, later->held, known->second, work) <= room))
      last.push_back(s);
  }
}

// Is some source of the later stop computed in between, and none of them as the last? Of one that lies at the stop before, or that may as
// well be held there, it is not certain that it is not computed again.
bool StopsBefore::noneIsLast() const {
  if (later->kernel < 0)
    return false;
  auto sure = [&](int s) { return made[g.unit[s]] && made[g.unit[s]] != kPerhaps && !there[s]; };
  auto may = [&](int s) { return made[g.unit[s]] || there[s] || isThereSmall(s); };
  return std::any_of(g.sources[later->kernel].begin(), g.sources[later->kernel].end(), sure) && std::none_of(last.begin(), last.end(), may);
}

// Kernels from which something that is wanted may come without a gate in between.
void StopsBefore::findUseful() {
  useful.assign(size_t(g.n), 0);
  std::vector<int> stack;
  for (int v = 0; v < g.n; ++v)
    if (wanted(v))
      stack.push_back(v);
  work -= g.n;
  while (!stack.empty()) {
    int u = g.unit[stack.back()];
    stack.pop_back();
    if (useful[u])
      continue;
    useful[u] = 1;
    if (!g.isGate[u])
      stack.insert(stack.end(), g.sources[u].begin(), g.sources[u].end());
  }
}

// All that may be held across the stop.
void StopsBefore::from(int stop, bool first) {
  from(stop, first, false);
  if (g.strict && stop >= 0)
    from(stop, first, true);
}

void StopsBefore::from(int stop, bool first, bool small) {
  withSmall = small, ofSmall = 0;
  there.assign(size_t(g.n), 0), held.clear();
  previous = stop, isFirst = first, ofStop = 0, must = 0;
  int64_t room = 0;
  if (stop >= 0) {
    if ((room = g.budget - g.at[stop] - (small ? g.smallest : 0)) < 0)
      return;
    for (int v : g.d.nodes[stop].sources)
      there[v] = 1;
    for (int v = stop; v < g.d.endOfKernel(stop); ++v)
      there[v] = 2;
  }
  for (int v = 0; v < g.n; ++v)
    if (wanted(v) && !made[g.unit[v]] && !isThereSmall(v) && mustBeHeld(v))
      must += g.d.nodes[v].bytes;
  // What has to be held at least to have a value behind the stop; of what is computed, its dearest source.
  hold.assign(size_t(g.n), 0);
  for (int v = 0; v < g.n; ++v) {
    if (there[v] || made[g.unit[v]])
      continue;
    constexpr int64_t kNever = INT64_MAX;
    int64_t least = isThereSmall(v) ? 0 : mayBeHeld(v) && !g.isSmall[v] ? g.d.nodes[v].bytes : kNever, most = mustBeHeld(v) ? kNever : 0;
    for (int s : g.sources[v])
      most = std::max(most, hold[s]);
    hold[v] = std::min(least, most);
    if (wanted(v) && hold[v] > room)
      return;
  }
  choose(g.n - 1, room, first || !g.repeated[size_t(now)][stop] ? 0 : g.cost[stop]);
}

// For each value that is wanted, from the last one back to the first: it lies there, or is held, or is computed behind the stop.
void StopsBefore::choose(int v, int64_t room, double again) {
  if ((work -= kChoosing) <= 0 || must > room)
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
    work -= kOpening;
    auto [entry, fresh] =
        found.insert({stops.idOf({now, previous, isFirst && previous >= 0, withSmall, {held.rbegin(), held.rend()}}), again});
    entry->second = std::min(entry->second, again);
    return;
  }
  int u = g.unit[v];
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
  double more = again + (g.repeated[size_t(now)][u] ? g.cost[u] : 0);
  // What costs nothing and needs nothing new need not be held.
  bool free =
      !forced && more == again && std::all_of(g.sources[v].begin(), g.sources[v].end(), [&](int s) { return there[s] || wanted(s); });
  if (int64_t bytes = g.d.nodes[v].bytes; !free && bytes <= room && mayBeHeld(v) && !g.isSmall[v]) {
    held.push_back(v), must -= forced ? bytes : 0;
    choose(v - 1, room - bytes, again);
    held.pop_back(), must += forced ? bytes : 0;
  }
  if (forced || more + prefix[size_t(now)] >= left)
    return;
  size_t before = added.size();
  int64_t mustBefore = must;
  if (std::any_of(g.sources[v].begin(), g.sources[v].end(), [&](int s) { return hold[s] > room; }))
    return;
  made[u] = free ? kPerhaps : kAgain;
  for (int s : g.sources[v])
    if (!wanted(s)) {
      need[size_t(s) / 64] |= bit(s), added.push_back(s);
      must += !made[g.unit[s]] && !isThereSmall(s) && mustBeHeld(s) ? g.d.nodes[s].bytes : 0;
    }
  choose(v - 1, room, more);
  for (; added.size() > before; added.pop_back())
    need[size_t(added.back()) / 64] &= ~bit(added.back());
  made[u] = 0, must = mustBefore;
}

// Is there room for all that is wanted behind what is computed in between?
bool StopsBefore::allFit() {
  bool fresh = true;
  for (int f : g.narrow)
    if (made[f] && made[f] != kPerhaps) {
      if (fresh)
        wantedFrom.assign(size_t(g.n), -1), fresh = false, work -= g.n / 8;
      if (!fitsBefore(f, firstReader(f)))
        return false;
    }
  return true;
}

// A kernel that is computed in between is wanted by a node of the path that is first computed there, or by what is computed for it, or
// by the later stop. The progress up to that node; where the kernel is such a node itself, with it.
int StopsBefore::firstReader(int f) {
  if (wantedFrom[size_t(f)] >= 0)
    return wantedFrom[size_t(f)];
  if (made[f] == kFirst)
    return wantedFrom[size_t(f)] = placeOf(f) + 1;
  int least = until;
  for (int v = f; v < g.d.endOfKernel(f); ++v) {
    if (there[v] || isThereSmall(v) || std::find(held.begin(), held.end(), v) != held.end())
      continue;
    for (int w : g.d.nodes[v].users)
      if (int u = g.unit[w]; made[u] && made[u] != kPerhaps)
        least = std::min(least, made[u] == kFirst ? placeOf(u) : firstReader(u));
  }
  return wantedFrom[size_t(f)] = least;
}

// Can f be computed before the nodes of the path from this progress on, up to the later stop?
bool StopsBefore::fitsBefore(int f, int progress) {
  auto [known, fresh] = fits.insert({{f, progress}, true});
  if (!fresh)
    return known->second;
  std::vector<int> behind = later->held;
  if (later->kernel >= 0)
    behind.insert(behind.end(), g.sources[later->kernel].begin(), g.sources[later->kernel].end());
  for (int k = progress; k < until; ++k)
    behind.insert(behind.end(), g.sources[g.path[size_t(k)]].begin(), g.sources[g.path[size_t(k)]].end());
  std::sort(behind.begin(), behind.end());
  behind.erase(std::unique(behind.begin(), behind.end()), behind.end());
  return known->second = between.leastBytes(f, {}, behind, g.isGate, work) <= double(g.budget - g.at[f]) + kHalfByte;
}

} // namespace cinch::solve::detail
