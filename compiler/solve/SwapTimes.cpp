// SwapTimes.cpp: see SwapTimes.h.
#include "compiler/solve/SwapTimes.h"

#include <algorithm>
#include <numeric>

namespace cinch::solve {

SwapTimes::SwapTimes(const SwapLoop &loop) : loop(loop) {
  size_t places = loop.seconds.size() + 1;
  storesAt.resize(places), gapsAt.resize(places), usesAt.resize(places), needed.resize(places), early.resize(places);
}

double SwapTimes::run(const std::vector<Away> &away, bool inTime, int64_t room, std::vector<Swap> *moments) {
  start(away);
  if (!findNeeded(room))
    return kNever;
  findLatest(inTime);
  for (int t = 0; t < int(loop.seconds.size()); ++t) {
    store(t);
    if (!leave(t, room))
      return kNever;
    fetchAhead(t, room);
    for (int i : usesAt[size_t(t)])
      if (trips[size_t(i)].when.fetch < 0)
        fetch(i, t);
    for (int i : usesAt[size_t(t)])
      now = std::max(now, trips[size_t(i)].fetchEnd);
    now += loop.seconds[size_t(t)];
  }
  if (moments) {
    moments->clear();
    for (const Trip &trip : trips)
      moments->push_back(trip.when);
  }
  return now;
}

void SwapTimes::start(const std::vector<Away> &away) {
  for (auto *list : {&storesAt, &gapsAt, &usesAt})
    for (std::vector<int> &at : *list)
      at.clear();
  std::fill(early.begin(), early.end(), 0);
  trips.assign(away.size(), {});
  leaving.clear();
  leavingBytes = 0, now = freeOut = freeIn = 0, next = 0;
  for (int i = 0; i < int(away.size()); ++i) {
    const IdleValue &value = loop.idle[size_t(away[size_t(i)].value)];
    Trip &trip = trips[size_t(i)];
    trip.value = &value;
    trip.when = {value.buffer, (away[size_t(i)].late ? value.from : value.made) + 1, -1, -1, value.to};
    storesAt[size_t(trip.when.store)].push_back(i);
    gapsAt[size_t(value.from) + 1].push_back(i);
    usesAt[size_t(value.to)].push_back(i);
  }
  order.resize(away.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return trips[size_t(a)].value->to < trips[size_t(b)].value->to; });
}

// Bytes alive with every value gone all through its gap.
bool SwapTimes::findNeeded(int64_t room) {
  int64_t gone = 0;
  for (size_t t = 0; t < loop.alive.size(); ++t) {
    for (int i : usesAt[t])
      gone -= trips[size_t(i)].value->bytes;
    for (int i : gapsAt[t])
      gone += trips[size_t(i)].value->bytes;
    needed[t] = loop.alive[t] - gone;
    if (needed[t] > room)
      return false;
  }
  return true;
}

// The latest begin of each copy in with which all are in time if no kernel waits.
void SwapTimes::findLatest(bool inTime) {
  double free = kNever;
  for (size_t i = order.size(); inTime && i-- > 0;) {
    Trip &trip = trips[size_t(order[i])];
    trip.latest = free = std::min(free, loop.begins[size_t(trip.value->to)]) - loop.link.seconds(Kernel::Fetch, trip.value->bytes);
  }
}

void SwapTimes::store(int t) {
  for (int i : storesAt[size_t(t)]) {
    Trip &trip = trips[size_t(i)];
    trip.storeEnd = freeOut = std::max(freeOut, now) + loop.link.seconds(Kernel::Store, trip.value->bytes);
  }
  for (int i : gapsAt[size_t(t)])
    leaving.push_back(i), leavingBytes += trips[size_t(i)].value->bytes;
}

// What has left, what is used now, and as much more as run t needs the bytes of.
bool SwapTimes::leave(int t, int64_t room) {
  leaveIfEnded(t);
  for (int i : usesAt[size_t(t)])
    if (trips[size_t(i)].when.gone < 0)
      leaveNow(size_t(std::find(leaving.begin(), leaving.end(), i) - leaving.begin()), t);
  while (needed[size_t(t)] + early[size_t(t)] + leavingBytes > room) {
    if (leaving.empty())
      return false;
    auto first = std::min_element(leaving.begin(), leaving.end(), [&](int a, int b) { return trips[size_t(a)].storeEnd < trips[size_t(b)].storeEnd; });
    leaveNow(size_t(first - leaving.begin()), t);
  }
  leaveIfEnded(t);
  return true;
}

void SwapTimes::leaveNow(size_t at, int t) {
  Trip &trip = trips[size_t(leaving[at])];
  now = std::max(now, trip.storeEnd);
  trip.when.gone = t;
  leavingBytes -= trip.value->bytes;
  leaving.erase(leaving.begin() + int64_t(at));
}

void SwapTimes::leaveIfEnded(int t) {
  for (size_t at = leaving.size(); at-- > 0;)
    if (trips[size_t(leaving[at])].storeEnd <= now)
      leaveNow(at, t);
}

// None overtakes another that is used earlier.
void SwapTimes::fetchAhead(int t, int64_t room) {
  for (; next < order.size(); ++next) {
    int i = order[next];
    const Trip &trip = trips[size_t(i)];
    if (trip.value->to <= t)
      continue;
    bool busy = freeIn >= now + loop.seconds[size_t(t)], tooEarly = trip.latest >= loop.begins[size_t(t) + 1];
    if (trip.when.gone < 0 || busy || tooEarly || !hasRoom(i, t, room))
      return;
    fetch(i, t);
  }
}

bool SwapTimes::hasRoom(int i, int t, int64_t room) {
  Trip &trip = trips[size_t(i)];
  if (trip.blocked >= t)
    return false;
  for (int u = trip.value->to - 1; u >= t; --u) {
    int64_t bytes = needed[size_t(u)] + early[size_t(u)] + trip.value->bytes;
    if (bytes > room)
      trip.blocked = u;
    if (bytes + leavingBytes > room)
      return false;
  }
  return true;
}

void SwapTimes::fetch(int i, int t) {
  Trip &trip = trips[size_t(i)];
  trip.fetchEnd = freeIn = std::max(freeIn, now) + loop.link.seconds(Kernel::Fetch, trip.value->bytes);
  trip.when.fetch = t;
  for (int u = t; u < trip.value->to; ++u)
    early[size_t(u)] += trip.value->bytes;
}

} // namespace cinch::solve
