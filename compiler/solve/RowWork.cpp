// RowWork.cpp: finds the ranges where row blocks help. Kernels that share a wide value belong together; a range around
// them is good if some order keeps it together. Where it is not (the backward sweep needs what lies between), the
// forward and the backward kernels become a range each, and the wide values are computed again in the second.
#include "compiler/solve/RowBlocks.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace cinch::solve {
namespace {

class Finder {
public:
  explicit Finder(const StepGraph &g) : g(g), readers(g.buffers.size()), taken(g.kernels.size(), false) {
    for (size_t k = 0; k < g.kernels.size(); ++k)
      for (int b : g.kernels[k].reads)
        readers[b].push_back(int(k));
  }

  std::vector<RowWork> find() {
    std::set<int64_t, std::greater<int64_t>> widths;
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (canBeLocal(int(b)))
        widths.insert(width(int(b)));
    for (int64_t w : widths)
      for (const std::vector<int> &members : components(w))
        if (!std::any_of(members.begin(), members.end(), [&](int k) { return taken[k]; }))
          tryMembers(members, w);
    return std::move(found);
  }

private:
  int64_t width(int b) const { return g.buffers[b].perExampleBytes / g.positions; }

  bool isRowKernel(int k) const { return g.kernels[k].rows && g.kernels[k].section == Section::Loop; }

  // Made and read by work on rows alone.
  bool canBeLocal(int b) const {
    const Buffer &buffer = g.buffers[b];
    return buffer.kind == Buffer::Value && buffer.producer >= 0 && buffer.perExampleBytes > 0 &&
           isRowKernel(buffer.producer) && !readers[b].empty() &&
           std::all_of(readers[b].begin(), readers[b].end(), [&](int k) { return isRowKernel(k); });
  }

  // Kernels that values of at least width `w` connect; only those with a value of just that width.
  std::vector<std::vector<int>> components(int64_t w) const {
    std::vector<int> parent(g.kernels.size());
    std::iota(parent.begin(), parent.end(), 0);
    std::function<int(int)> root = [&](int k) { return parent[k] == k ? k : parent[k] = root(parent[k]); };
    std::set<int> wanted;
    for (int pass = 0; pass < 2; ++pass)
      for (size_t b = 0; b < g.buffers.size(); ++b)
        if (canBeLocal(int(b)) && width(int(b)) >= w) {
          for (int k : readers[b])
            parent[root(k)] = root(g.buffers[b].producer);
          if (pass == 1 && width(int(b)) == w)
            wanted.insert(root(g.buffers[b].producer));
        }
    std::vector<std::vector<int>> list;
    for (int r : wanted) {
      list.emplace_back();
      for (size_t k = 0; k < g.kernels.size(); ++k)
        if (root(int(k)) == r)
          list.back().push_back(int(k));
    }
    return list;
  }

  // Rows that the kernels read and leave must be at most half as wide as the narrowest value that would be local.
  bool worthwhile(const std::vector<int> &members, int64_t w) const {
    for (int k : members)
      for (const std::vector<int> *list : {&g.kernels[k].reads, &g.kernels[k].writes})
        for (int b : *list)
          if (2 * width(b) > w && !(canBeLocal(b) && width(b) >= w))
            return false;
    return true;
  }

  bool accept(std::vector<RowRange> ranges, int64_t w) {
    std::vector<RowRange> all;
    for (const RowWork &work : found)
      all.insert(all.end(), work.ranges.begin(), work.ranges.end());
    all.insert(all.end(), ranges.begin(), ranges.end());
    if (!canStandTogether(g, all))
      return false;
    for (const RowRange &range : ranges)
      for (int k : range.kernels)
        taken[k] = true;
    found.push_back({std::move(ranges), w});
    return true;
  }

  void tryMembers(const std::vector<int> &members, int64_t w) {
    if (!worthwhile(members, w) || accept({{members, 0}}, w))
      return;
    RowRange forward, backward;
    for (int k : members)
      (g.kernels[k].backward ? backward : forward).kernels.push_back(k);
    if (forward.kernels.empty() || backward.kernels.empty())
      return;
    // What the backward kernels read of the forward ones' wide values, and what these need.
    std::set<int> again;
    std::vector<int> stack = backward.kernels;
    while (!stack.empty()) {
      int k = stack.back();
      stack.pop_back();
      for (int b : g.kernels[k].reads) {
        int producer = g.buffers[b].producer;
        if (!canBeLocal(b) || width(b) < w || g.kernels[producer].backward)
          continue;
        if (!g.kernels[producer].recomputable)
          return;
        if (again.insert(producer).second)
          stack.push_back(producer);
      }
    }
    backward.again = int(again.size());
    backward.kernels.insert(backward.kernels.begin(), again.begin(), again.end());
    accept({forward, backward}, w);
  }

  const StepGraph &g;
  std::vector<std::vector<int>> readers; // of buffers
  std::vector<bool> taken;               // of kernels
  std::vector<RowWork> found;
};

} // namespace

std::vector<RowWork> findRowWork(const StepGraph &g) { return Finder(g).find(); }

} // namespace cinch::solve
