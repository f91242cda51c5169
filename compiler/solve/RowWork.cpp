// RowWork.cpp: finds the ranges where row blocks help. Kernels that share a wide value belong together; a range around
// them is good if some order keeps it together. Where it is not (the backward sweep needs what lies between), the
// forward and the backward kernels become a range each, and the wide values are computed again in the second. Where not even these stand
// together (a worker of several runs gradients of inputs and of parameters in parts of their own), each part has a range.
#include "compiler/solve/RowBlocks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace cinch::solve {
namespace {

class Finder {
public:
  explicit Finder(const StepGraph &g) : g(g), readers(g.buffers.size()), taken(g.kernels.size(), false) {
    for (size_t k = 0; k < g.kernels.size(); ++k) {
      parts += g.kernels[k].newPart;
      partOf.push_back(parts - 1);
      for (int b : g.kernels[k].reads)
        readers[b].push_back(int(k));
    }
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
          list.push_back({members, isConvex(members) ? Whole : Sweeps});
      accept(list, w);
    }
    return std::move(found);
  }

private:
  // Kernels that belong together, as one range, as a forward and a backward one, or as one for each part of the loop body.
  enum Cut { Whole, Sweeps, Parts };
  struct Work {
    std::vector<int> members;
    Cut cut;
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
    } else if (Cut cut = list.front().cut; cut < (parts > 1 ? Parts : Sweeps)) {
      accept({{list.front().members, Cut(cut + 1)}}, w);
    }
  }

  // Empty: there are none.
  std::vector<RowRange> rangesOf(const Work &work, int64_t w) const {
    if (work.cut == Whole)
      return {{work.members, 0}};
    std::map<int, RowRange> ranges; // in the order of the sweeps, or of the parts
    for (int k : work.members)
      ranges[work.cut == Sweeps ? int(g.kernels[k].backward) : partOf[k]].kernels.push_back(k);
    if (ranges.size() < 2)
      return {};
    std::vector<RowRange> list;
    for (auto &[place, range] : ranges) {
      if (!list.empty() && !computeAgain(range, w))
        return {};
      list.push_back(std::move(range));
    }
    return list;
  }

  // Adds what the kernels of a range read of other ranges' wide values, and what these need. False if some of it may run only once.
  bool computeAgain(RowRange &range, int64_t w) const {
    std::set<int> own(range.kernels.begin(), range.kernels.end()), again;
    std::vector<int> stack = range.kernels;
    while (!stack.empty()) {
      int k = stack.back();
      stack.pop_back();
      for (int b : g.kernels[k].reads) {
        int producer = g.buffers[b].producer;
        if (!canBeLocal(b) || width(b) < w || own.count(producer))
          continue;
        if (!g.kernels[producer].recomputable)
          return false;
        if (again.insert(producer).second)
          stack.push_back(producer);
      }
    }
    range.again = int(again.size());
    range.kernels.insert(range.kernels.begin(), again.begin(), again.end());
    return true;
  }

  const StepGraph &g;
  std::vector<std::vector<int>> readers; // of buffers
  std::vector<int> partOf;               // of kernels: the part of the loop body in which they stand
  int parts = 1;
  std::vector<bool> taken;               // of kernels
  std::vector<char> reached;             // of kernels: 1, a member; 2, behind one
  std::vector<RowWork> found;
};

} // namespace

std::vector<RowWork> findRowWork(const StepGraph &g) { return Finder(g).find(); }

} // namespace cinch::solve
