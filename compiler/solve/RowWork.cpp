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
    for (int64_t w : widths) {
      std::vector<Work> list;
      for (const std::vector<int> &members : components(w))
        if (!std::any_of(members.begin(), members.end(), [&](int k) { return taken[k]; }) && worthwhile(members, w))
          list.push_back({members, isConvex(members)});
      accept(list, w);
    }
    return std::move(found);
  }

private:
  // Kernels that belong together, as one range or as a forward and a backward one.
  struct Work {
    std::vector<int> members;
    bool whole;
  };

  int64_t width(int b) const { return g.buffers[b].perExampleBytes / g.positions; }

  bool isRowKernel(int k) const { return g.kernels[k].rows && g.inMainLoop(k); }

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
    std::vector<int> place(g.kernels.size(), -1); // of roots in the list
    for (int r : wanted) {
      place[r] = int(list.size());
      list.emplace_back();
    }
    for (size_t k = 0; k < g.kernels.size(); ++k)
      if (int at = place[root(int(k))]; at >= 0)
        list[at].push_back(int(k));
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

  // Can nothing that one of them leaves come back to them through other kernels? Else no order keeps them together.
  bool isConvex(const std::vector<int> &members) {
    reached.assign(g.kernels.size(), 0);
    std::vector<int> stack = members;
    for (int k : members)
      reached[k] = 1;
    while (!stack.empty()) {
      int k = stack.back();
      stack.pop_back();
      for (int b : g.kernels[k].writes)
        if (g.buffers[b].kind == Buffer::Value)
          for (int reader : readers[b]) {
            if (reached[reader] == 1 && reached[k] == 2)
              return false;
            if (reached[reader] || reader > members.back())
              continue;
            reached[reader] = 2;
            stack.push_back(reader);
          }
    }
    return true;
  }

  // Accepts what can stand beside all that was accepted before, one after the other in this order. Where all of them can
  // stand together each of them can, so halves are asked only where that fails.
  void accept(const std::vector<Work> &list, int64_t w) {
    std::vector<RowWork> works;
    std::vector<RowRange> all;
    for (const RowWork &work : found)
      all.insert(all.end(), work.ranges.begin(), work.ranges.end());
    for (const Work &work : list)
      if (std::vector<RowRange> ranges = rangesOf(work, w); !ranges.empty()) {
        all.insert(all.end(), ranges.begin(), ranges.end());
        works.push_back({std::move(ranges), w});
      }
    if (works.empty())
      return;
    if (canStandTogether(g, all)) {
      for (RowWork &work : works) {
        for (const RowRange &range : work.ranges)
          for (int k : range.kernels)
            taken[k] = true;
        found.push_back(std::move(work));
      }
    } else if (list.size() > 1) {
      auto middle = list.begin() + list.size() / 2;
      accept(std::vector<Work>(list.begin(), middle), w);
      accept(std::vector<Work>(middle, list.end()), w);
    } else if (list.front().whole) {
      accept({{list.front().members, false}}, w);
    }
  }

  // Empty: there are none.
  std::vector<RowRange> rangesOf(const Work &work, int64_t w) const {
    if (work.whole)
      return {{work.members, 0}};
    RowRange forward, backward;
    for (int k : work.members)
      (g.kernels[k].backward ? backward : forward).kernels.push_back(k);
    if (forward.kernels.empty() || backward.kernels.empty())
      return {};
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
          return {};
        if (again.insert(producer).second)
          stack.push_back(producer);
      }
    }
    backward.again = int(again.size());
    backward.kernels.insert(backward.kernels.begin(), again.begin(), again.end());
    return {forward, backward};
  }

  const StepGraph &g;
  std::vector<std::vector<int>> readers; // of buffers
  std::vector<bool> taken;               // of kernels
  std::vector<char> reached;             // of kernels: 1, a member; 2, behind one
  std::vector<RowWork> found;
};

} // namespace

std::vector<RowWork> findRowWork(const StepGraph &g) { return Finder(g).find(); }

} // namespace cinch::solve
