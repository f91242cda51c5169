// TakenRanges.cpp: see TakenRanges.h.
#include "compiler/solve/TakenRanges.h"

#include <algorithm>

namespace cinch::solve::detail {

void ByteSet::add(ByteRange added) {
  if (added.begin >= added.end)
    return;
  // Those that overlap or touch it: from the first that ends at its begin or later, to the last that begins at its end or before.
  auto first = std::lower_bound(list.begin(), list.end(), added.begin, [](const ByteRange &r, int64_t at) { return r.end < at; });
  auto last = first;
  for (; last != list.end() && last->begin <= added.end; ++last)
    added.begin = std::min(added.begin, last->begin), added.end = std::max(added.end, last->end);
  if (first == last) {
    list.insert(first, added);
    return;
  }
  *first = added;
  list.erase(first + 1, last);
}

int64_t ByteSet::endOfTaken(int64_t at, int64_t size) const {
  auto above = std::upper_bound(list.begin(), list.end(), at, [](int64_t x, const ByteRange &r) { return x < r.end; });
  return above == list.end() || above->begin >= at + size ? at : above->end;
}

TakenRanges::TakenRanges(const std::vector<ArenaBuffer> &buffers) {
  for (const ArenaBuffer &b : buffers) {
    moments.push_back(b.lower);
    moments.push_back(b.upper);
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  size_t leaves = 1;
  while (leaves + 1 < moments.size())
    leaves *= 2;
  nodes.resize(2 * leaves - 1);
}

int TakenRanges::momentOf(int64_t time) const { return int(std::lower_bound(moments.begin(), moments.end(), time) - moments.begin()); }

void TakenRanges::take(int64_t lower, int64_t upper, ByteRange range) {
  take(0, 0, int(nodes.size() + 1) / 2, momentOf(lower), momentOf(upper), range);
}

void TakenRanges::take(size_t node, int begin, int end, int from, int to, ByteRange range) {
  if (to <= begin || end <= from)
    return;
  nodes[node].ever.add(range);
  if (from <= begin && end <= to) {
    nodes[node].always.add(range);
    return;
  }
  int middle = begin + (end - begin) / 2;
  take(2 * node + 1, begin, middle, from, to, range);
  take(2 * node + 2, middle, end, from, to, range);
}

void TakenRanges::collect(int64_t lower, int64_t upper) {
  sets.clear();
  collect(0, 0, int(nodes.size() + 1) / 2, momentOf(lower), momentOf(upper));
}

void TakenRanges::collect(size_t node, int begin, int end, int from, int to) {
  if (to <= begin || end <= from || nodes[node].ever.ranges().empty())
    return;
  bool whole = from <= begin && end <= to;
  const ByteSet &set = whole ? nodes[node].ever : nodes[node].always;
  if (!set.ranges().empty())
    sets.push_back(&set);
  if (whole)
    return;
  int middle = begin + (end - begin) / 2;
  collect(2 * node + 1, begin, middle, from, to);
  collect(2 * node + 2, middle, end, from, to);
}

int64_t TakenRanges::lowestFree(int64_t lower, int64_t upper, int64_t size) {
  collect(lower, upper);
  // Goes up behind what is in the way until no set has anything there.
  int64_t at = 0;
  for (size_t agreed = 0, i = 0; agreed < sets.size(); i = (i + 1) % sets.size()) {
    int64_t next = sets[i]->endOfTaken(at, size);
    // A set may have more in the way above that.
    while (next != at)
      at = next, agreed = 0, next = sets[i]->endOfTaken(at, size);
    ++agreed;
  }
  return at;
}

int64_t TakenRanges::leastGap(int64_t lower, int64_t upper, int64_t size) {
  collect(lower, upper);
  merged.clear();
  for (const ByteSet *set : sets)
    merged.insert(merged.end(), set->ranges().begin(), set->ranges().end());
  std::sort(merged.begin(), merged.end(), [](const ByteRange &a, const ByteRange &b) { return a.begin < b.begin; });
  int64_t at = 0, best = -1, least = INT64_MAX;
  for (const ByteRange &taken : merged) {
    int64_t gap = taken.begin - at;
    if (gap >= size && gap < least)
      best = at, least = gap;
    at = std::max(at, taken.end);
  }
  return best < 0 ? at : best;
}

} // namespace cinch::solve::detail
