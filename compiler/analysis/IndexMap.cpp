// IndexMap.cpp: linear index maps through shape operations.
#include "compiler/analysis/IndexMap.h"

#include <algorithm>

namespace cinch::analysis {

static int64_t product(const Shape &shape, size_t first, size_t last) {
  int64_t n = 1;
  for (size_t i = first; i < last; ++i)
    n *= shape[i];
  return n;
}

// The least and the largest value of an index over the domain.
static std::pair<int64_t, int64_t> range(const LinearIndex &index, const Shape &domain) {
  int64_t low = index.offset, high = index.offset;
  for (size_t d = 0; d < domain.size(); ++d)
    (index.coef[d] < 0 ? low : high) += index.coef[d] * (domain[d] - 1);
  return {low, high};
}

// Cuts a flat index over axes of the given sizes into one index an axis. Terms go to the slowest axis whose stride divides
// their coefficient; the rest must stay below that stride everywhere, or a carry would make the cut wrong.
static std::optional<std::vector<LinearIndex>> cut(LinearIndex flat, const Shape &sizes, const Shape &domain) {
  std::vector<LinearIndex> axes;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t stride = product(sizes, axis + 1, sizes.size());
    LinearIndex here = LinearIndex::zero(flat.coef.size());
    if (sizes[axis] == 1) {
      axes.push_back(here);
      continue;
    }
    for (size_t d = 0; d < flat.coef.size(); ++d) {
      if (domain[d] == 1) {
        flat.coef[d] = 0;
        continue;
      }
      if (flat.coef[d] % stride == 0) {
        here.coef[d] = flat.coef[d] / stride;
        flat.coef[d] = 0;
      }
    }
    here.offset = flat.offset / stride;
    flat.offset -= here.offset * stride;
    auto [low, high] = range(flat, domain);
    if (low < 0 || high >= stride) {
      // Moving one unit between the parts can help when an offset is negative there; anything else is no linear cut.
      return std::nullopt;
    }
    auto [axisLow, axisHigh] = range(here, domain);
    if (axisLow < 0 || axisHigh >= sizes[axis])
      return std::nullopt;
    axes.push_back(here);
  }
  return axes;
}

LinearIndex flatIndex(const IndexMap &map, const Shape &shape, size_t dims) {
  LinearIndex flat = LinearIndex::zero(dims);
  for (const AxisGroup &group : map.groups)
    flat.addScaled(group.at, product(shape, group.last, shape.size()));
  return flat;
}

std::optional<IndexMap> splitAxes(const IndexMap &map, const Shape &shape, const Shape &domain) {
  IndexMap split;
  for (const AxisGroup &group : map.groups) {
    if (group.last - group.first == 1) {
      split.groups.push_back(group);
      continue;
    }
    auto axes = cut(group.at, Shape(shape.begin() + group.first, shape.begin() + group.last), domain);
    if (!axes)
      return std::nullopt;
    for (size_t i = 0; i < axes->size(); ++i)
      split.groups.push_back({group.first + i, group.first + i + 1, (*axes)[i]});
  }
  return split;
}

IndexMap mapOfAxes(const std::vector<LinearIndex> &axes) {
  IndexMap map;
  for (size_t i = 0; i < axes.size(); ++i)
    map.groups.push_back({i, i + 1, axes[i]});
  return map;
}

std::optional<IndexMap> throughReshape(const IndexMap &map, const Shape &result, const Shape &operand,
                                       const Shape &domain) {
  // Segments: the shortest runs of axes on both sides with equal products.
  IndexMap out;
  IndexMap in = map;
  size_t r = 0, o = 0;
  bool split = false;
  while (r < result.size() || o < operand.size()) {
    size_t r0 = r, o0 = o;
    int64_t a = r < result.size() ? result[r++] : 1, b = o < operand.size() ? operand[o++] : 1;
    while (a != b) {
      if (a < b) {
        if (r == result.size())
          return std::nullopt;
        a *= result[r++];
      } else {
        if (o == operand.size())
          return std::nullopt;
        b *= operand[o++];
      }
    }
    if (o == operand.size()) // axes of size 1 at the end
      while (r < result.size() && result[r] == 1)
        ++r;
    if (r == result.size())
      while (o < operand.size() && operand[o] == 1)
        ++o;
    // Flat index over the result's axes [r0, r).
    LinearIndex flat = LinearIndex::zero(domain.size());
    auto straddles = [&](const AxisGroup &g) {
      return (g.first < r0 && g.last > r0) || (g.first < r && g.last > r);
    };
    if (!split && std::any_of(in.groups.begin(), in.groups.end(), straddles)) {
      auto cutUp = splitAxes(in, result, domain);
      if (!cutUp)
        return std::nullopt;
      in = *cutUp;
      split = true;
    }
    for (const AxisGroup &group : in.groups)
      if (group.first >= r0 && group.last <= r)
        flat.addScaled(group.at, product(result, group.last, r));
    if (o > o0)
      out.groups.push_back({o0, o, flat});
  }
  return out;
}

std::optional<IndexMap> throughBroadcast(const IndexMap &map, const Shape &result, const Shape &operand,
                                         const std::vector<int64_t> &axes, const Shape &domain) {
  std::vector<int> operandAxis(result.size(), -1);
  for (size_t i = 0; i < axes.size(); ++i)
    operandAxis[axes[i]] = int(i);
  // A group survives whole if its axes are neighbours in the operand too, and vanishes if none is there.
  auto kind = [&](const AxisGroup &group) {
    size_t present = 0;
    for (size_t r = group.first; r < group.last; ++r)
      present += operandAxis[r] >= 0;
    return present == 0 ? 0 : present == group.last - group.first ? 1 : 2;
  };
  IndexMap in = map;
  for (const AxisGroup &group : map.groups)
    if (kind(group) == 2) {
      auto split = splitAxes(map, result, domain);
      if (!split)
        return std::nullopt;
      in = *split;
      break;
    }
  IndexMap out;
  for (const AxisGroup &group : in.groups)
    if (kind(group) == 1) {
      size_t first = operandAxis[group.first];
      out.groups.push_back({first, first + (group.last - group.first), group.at});
    }
  return out;
}

std::optional<IndexMap> throughTranspose(const IndexMap &map, const Shape &result, const std::vector<int64_t> &permutation,
                                         const Shape &domain) {
  auto split = splitAxes(map, result, domain);
  if (!split)
    return std::nullopt;
  std::vector<LinearIndex> axes(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    axes[permutation[i]] = split->groups[i].at;
  return mapOfAxes(axes);
}

std::optional<IndexMap> throughSlice(const IndexMap &map, const Shape &result, const Shape &operand, int64_t axis,
                                     int64_t begin, const Shape &domain) {
  IndexMap in = map;
  for (const AxisGroup &group : map.groups) // only the slowest axis of a group may be cut without cutting the group
    if (int64_t(group.first) < axis && axis < int64_t(group.last)) {
      auto split = splitAxes(map, result, domain);
      if (!split)
        return std::nullopt;
      in = *split;
      break;
    }
  for (AxisGroup &group : in.groups)
    if (int64_t(group.first) == axis)
      group.at.offset += begin * product(operand, group.first + 1, group.last);
  return in;
}

std::optional<IndexMap> throughReverse(const IndexMap &map, const Shape &result, int64_t axis, const Shape &domain) {
  auto split = splitAxes(map, result, domain);
  if (!split)
    return std::nullopt;
  LinearIndex &at = split->groups[axis].at;
  LinearIndex reversed = LinearIndex::zero(domain.size());
  reversed.offset = result[axis] - 1;
  reversed.addScaled(at, -1);
  at = reversed;
  return split;
}

} // namespace cinch::analysis
