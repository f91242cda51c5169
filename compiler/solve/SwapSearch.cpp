// SwapSearch.cpp: see SwapSearch.h.
#include "compiler/solve/SwapSearch.h"
#include "compiler/solve/Random.h"

#include <algorithm>

namespace cinch::solve {

SwapSearch::SwapSearch(const GraphIndex &index, int64_t microbatch, const std::vector<int> &runs, const std::vector<bool> &allowed) {
  const StepGraph &g = index.graph;
  loop.link = g.link;
  loop.begins.push_back(0);
  for (int k : runs) {
    loop.seconds.push_back(g.kernels[size_t(k)].seconds.at(double(microbatch)));
    loop.begins.push_back(loop.begins.back() + loop.seconds.back());
  }
  Timeline line(index);
  if (!line.build(microbatch, runs))
    return;
  std::vector<int64_t> profile = line.profile();
  for (int t = 0; t < int(profile.size()); ++t)
    if (t >= line.loopBegin && t < line.loopEnd)
      loop.alive.push_back(profile[size_t(t)]);
    else
      outside = std::max(outside, profile[size_t(t)]);
  findIdle(line, allowed);
}

// Of each value that the loop makes the longest time between two uses.
void SwapSearch::findIdle(const Timeline &line, const std::vector<bool> &allowed) {
  std::vector<int> last(line.instances.size(), -1);
  std::vector<IdleValue> longest(line.instances.size());
  auto length = [&](const IdleValue &value) { return loop.begins[size_t(value.to)] - loop.begins[size_t(value.from) + 1]; };
  for (int t = line.loopBegin; t < line.loopEnd; ++t) {
    for (int r = line.firstRead[size_t(t)]; r < line.firstRead[size_t(t) + 1]; ++r) {
      int i = line.readInstances[size_t(r)], now = t - line.loopBegin;
      const Timeline::Life &life = line.instances[size_t(i)];
      if (last[size_t(i)] < 0)
        continue;
      IdleValue gap{life.buffer, life.run - line.loopBegin, last[size_t(i)], now, line.bytes(i)};
      if (gap.to > gap.from + 1 && (longest[size_t(i)].buffer < 0 || length(gap) > length(longest[size_t(i)])))
        longest[size_t(i)] = gap;
      last[size_t(i)] = now;
    }
    for (int w = line.firstWrite[size_t(t)]; w < line.firstWrite[size_t(t) + 1]; ++w) {
      int i = line.writeInstances[size_t(w)], buffer = line.instances[size_t(i)].buffer;
      bool may = allowed.empty() || (size_t(buffer) < allowed.size() && allowed[size_t(buffer)]);
      if (may && line.instances[size_t(i)].run == t && line.index.graph.buffers[size_t(buffer)].kind == Buffer::Value && line.bytes(i) > 0)
        last[size_t(i)] = t - line.loopBegin;
    }
  }
  for (const IdleValue &gap : longest)
    if (gap.buffer >= 0)
      loop.idle.push_back(gap);
}

int64_t SwapSearch::leastBytes() const {
  std::vector<int64_t> less(loop.alive.size() + 1, 0);
  for (const IdleValue &value : loop.idle)
    less[size_t(value.from) + 1] += value.bytes, less[size_t(value.to)] -= value.bytes;
  int64_t most = outside, away = 0;
  for (size_t t = 0; t < loop.alive.size(); ++t)
    away += less[t], most = std::max(most, loop.alive[t] - away);
  return most;
}

int64_t SwapSearch::smallestRoom(int64_t hostBytes) {
  int64_t low = leastBytes(), high = std::max(outside, loop.alive.empty() ? int64_t(0) : *std::max_element(loop.alive.begin(), loop.alive.end()));
  if (solve(low, hostBytes, 0).fits)
    return low;
  while (high - low > 64) { // `high` fits
    int64_t middle = low + (high - low) / 2;
    (solve(middle, hostBytes, 0).fits ? high : low) = middle;
  }
  return high;
}

// What is alive beyond the room has left by then, and comes back behind it.
double SwapSearch::leastSeconds(int64_t arenaBytes) const {
  int64_t most = loop.alive.empty() ? 0 : *std::max_element(loop.alive.begin(), loop.alive.end());
  int64_t over = std::max<int64_t>(0, most - arenaBytes);
  double copies = over > 0 ? loop.link.seconds(Kernel::Store, over) + loop.link.seconds(Kernel::Fetch, over) : 0;
  return std::max(loop.begins.back(), copies);
}

void SwapSearch::price(SwapTimes &times, Choice &choice) const {
  choice.bytes = 0;
  for (const Away &one : choice.away)
    choice.bytes += loop.idle[size_t(one.value)].bytes;
  choice.seconds = choice.bytes > hostRoom ? SwapTimes::kNever : times.run(choice.away, choice.inTime, room);
}

// Where most is alive beyond the room, one more value leaves, until all fits: the one that is idle for the longest time, the largest, the
// smallest that suffices, or the one that was made first.
SwapSearch::Choice SwapSearch::greedy(int order) const {
  Choice choice;
  std::vector<int64_t> left = loop.alive;
  std::vector<bool> taken(loop.idle.size(), false);
  int64_t host = hostRoom;
  while (true) {
    auto most = std::max_element(left.begin(), left.end());
    int64_t over = most == left.end() ? 0 : *most - room;
    if (over <= 0)
      return choice;
    int at = int(most - left.begin()), best = -1;
    auto better = [&](const IdleValue &a, const IdleValue &b) {
      double x = loop.begins[size_t(a.to)] - loop.begins[size_t(a.from) + 1], y = loop.begins[size_t(b.to)] - loop.begins[size_t(b.from) + 1];
      if (order == 2 && (a.bytes >= over) != (b.bytes >= over))
        return a.bytes >= over;
      if (order == 1 || order == 2)
        return a.bytes != b.bytes ? (a.bytes > b.bytes) == (order == 1 || a.bytes < over) : x > y;
      if (order == 3 && a.made != b.made)
        return a.made < b.made;
      return x != y ? x > y : a.bytes > b.bytes;
    };
    for (int v : useful) {
      const IdleValue &value = loop.idle[size_t(v)];
      if (!taken[size_t(v)] && value.from < at && value.to > at && value.bytes <= host && (best < 0 || better(value, loop.idle[size_t(best)])))
        best = v;
    }
    if (best < 0)
      return choice;
    taken[size_t(best)] = true;
    host -= loop.idle[size_t(best)].bytes;
    choice.away.push_back({best, false});
    for (int t = loop.idle[size_t(best)].from + 1; t < loop.idle[size_t(best)].to; ++t)
      left[size_t(t)] -= loop.idle[size_t(best)].bytes;
  }
}

bool SwapSearch::improve(SwapTimes &times, Choice &choice, std::vector<Away> changed) const {
  Choice other = choice;
  other.away = std::move(changed);
  price(times, other);
  if (other.seconds > choice.seconds || (other.seconds == choice.seconds && other.bytes >= choice.bytes))
    return false;
  choice = std::move(other);
  return true;
}

// Single values in and out, exchanges, and copies out that begin later, drawn until so many tries have led nowhere.
void SwapSearch::search(SwapTimes &times, Choice &choice, int tries) const {
  Random random = Random::seeded(choice.away.size());
  auto draw = [&](size_t below) { return size_t(random.below(int64_t(below))); };
  std::vector<int> outside;
  auto findOutside = [&] {
    std::vector<bool> inside(loop.idle.size(), false);
    for (const Away &one : choice.away)
      inside[size_t(one.value)] = true;
    outside.clear();
    for (int v : useful)
      if (!inside[size_t(v)])
        outside.push_back(v);
  };
  findOutside();
  int since = 0;
  const int patience = int(40 + 4 * useful.size() + useful.size() * useful.size() / 4);
  while (tries > 0 && since < patience && !choice.away.empty()) {
    std::vector<Away> changed = choice.away;
    size_t at = draw(changed.size());
    int kind = int(draw(8));
    if (kind == 0)
      changed.erase(changed.begin() + int64_t(at));
    else if (kind == 1)
      changed[at].late = !changed[at].late;
    else if (outside.empty())
      changed.erase(changed.begin() + int64_t(at));
    else if (kind == 2)
      changed.push_back({outside[draw(outside.size())], false});
    else if (kind < 7)
      changed[at] = {outside[draw(outside.size())], changed[at].late};
    else { // two for one
      changed[at] = {outside[draw(outside.size())], false};
      size_t second = draw(changed.size());
      if (second != at)
        changed.erase(changed.begin() + int64_t(second));
    }
    --tries, ++since;
    if (improve(times, choice, std::move(changed)))
      since = 0, findOutside();
  }
}

SwapAnswer SwapSearch::solve(int64_t arenaBytes, int64_t hostBytes, int tries) {
  SwapAnswer answer;
  room = arenaBytes, hostRoom = hostBytes;
  if (outside > room || leastBytes() > room)
    return answer;
  useful.clear();
  for (int v = 0; v < int(loop.idle.size()); ++v)
    if (std::any_of(loop.alive.begin() + loop.idle[size_t(v)].from + 1, loop.alive.begin() + loop.idle[size_t(v)].to, [&](int64_t bytes) { return bytes > room; }))
      useful.push_back(v);
  SwapTimes times(loop);
  Choice best;
  for (int order = 0; order < 4; ++order) {
    Choice choice = greedy(order);
    for (bool inTime : {false, true}) {
      choice.inTime = inTime;
      price(times, choice);
      if (choice.seconds < best.seconds || (choice.seconds == best.seconds && choice.bytes < best.bytes))
        best = choice;
    }
  }
  if (best.seconds >= SwapTimes::kNever)
    return answer;
  search(times, best, tries);
  for (bool inTime : {false, true}) {
    Choice other = best;
    other.inTime = inTime;
    price(times, other);
    if (other.seconds < best.seconds)
      best = std::move(other);
  }
  answer.fits = true;
  answer.seconds = times.run(best.away, best.inTime, room, &answer.swaps);
  answer.hostBytes = best.bytes;
  return answer;
}

} // namespace cinch::solve
