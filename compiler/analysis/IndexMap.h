// IndexMap.h: where in a tensor a point of a kernel's domain lies.
//
// Fusing a chain of shape operations (transposes, slices, broadcasts, reshapes) into one loop means asking, for each tensor on
// the way, "which element does domain point (d0, d1, ..) need?". All answers used here are linear: an axis index is
// offset + sum(coef_i * d_i). A *group* is a run of neighbouring axes with one flat row-major index for all of them; reshapes
// merge and cut groups, so that most of them cost nothing. What is not linear (cutting one loop index into two) is refused,
// and the caller stores the tensor instead.
#ifndef CINCH_COMPILER_ANALYSIS_INDEXMAP_H
#define CINCH_COMPILER_ANALYSIS_INDEXMAP_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cinch::analysis {

using Shape = std::vector<int64_t>;

// offset + sum(coef[i] * d_i) over the dims of a domain.
struct LinearIndex {
  int64_t offset = 0;
  std::vector<int64_t> coef;

  static LinearIndex zero(size_t dims) { return {0, std::vector<int64_t>(dims, 0)}; }
  static LinearIndex dim(size_t dims, size_t d) {
    LinearIndex index = zero(dims);
    index.coef[d] = 1;
    return index;
  }
  bool dependsOn(size_t d) const { return coef[d] != 0; }
  void addScaled(const LinearIndex &other, int64_t factor) {
    offset += factor * other.offset;
    for (size_t i = 0; i < coef.size(); ++i)
      coef[i] += factor * other.coef[i];
  }
};

struct AxisGroup {
  size_t first = 0, last = 0; // axes [first, last)
  LinearIndex at;             // flat index over them, row-major
};

// The index of one element of a tensor, as groups that cover its axes in order.
struct IndexMap {
  std::vector<AxisGroup> groups;
};

// `domain` holds the sizes of the domain's dims; it bounds what a LinearIndex can reach.
// Row-major element number of `map` in a contiguous tensor of `shape`.
LinearIndex flatIndex(const IndexMap &map, const Shape &shape, size_t dims);
// One group an axis; nothing if a group cannot be cut linearly.
std::optional<IndexMap> splitAxes(const IndexMap &map, const Shape &shape, const Shape &domain);
// Map of the operand of an operation, given the map of its result.
std::optional<IndexMap> throughReshape(const IndexMap &map, const Shape &result, const Shape &operand,
                                       const Shape &domain);
std::optional<IndexMap> throughBroadcast(const IndexMap &map, const Shape &result, const Shape &operand,
                                         const std::vector<int64_t> &axes, const Shape &domain);
std::optional<IndexMap> throughTranspose(const IndexMap &map, const Shape &result, const std::vector<int64_t> &permutation,
                                         const Shape &domain);
std::optional<IndexMap> throughSlice(const IndexMap &map, const Shape &result, const Shape &operand, int64_t axis,
                                     int64_t begin, const Shape &domain);
std::optional<IndexMap> throughReverse(const IndexMap &map, const Shape &result, int64_t axis, const Shape &domain);

// The map of a tensor whose axis i has index `axes[i]`.
IndexMap mapOfAxes(const std::vector<LinearIndex> &axes);

} // namespace cinch::analysis
#endif
