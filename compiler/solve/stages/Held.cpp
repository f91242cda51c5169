// Held.cpp: what the arena holds at each run of the plan, less the places of micro-batches that are not in flight.
#include "compiler/solve/stages/Held.h"

#include "compiler/solve/Timeline.h"

#include <algorithm>
#include <numeric>

namespace cinch::solve {
namespace {

class Counter {
public:
  Counter(const StepGraph &g, const Decision &d) : g(g), d(d), at(occupancy(g, d)), partOf(d.runs.size(), 0) {
    int part = 0;
    for (int t = d.loopBegin(); t < d.loopEnd(); ++t)
      partOf[size_t(t)] = part += g.kernels[size_t(d.runs[size_t(t)].kernel)].newPart;
    parts = part + 1;
    findWaiting();
  }

  HeldBytes run() {
    HeldBytes held;
    held.before = most(0, d.loopBegin());
    held.behind = most(d.loopEnd(), int(d.runs.size()));
    std::vector<int64_t> begun = firstOfParts(g.actions);
    begun.resize(size_t(parts), 0);
    std::vector<int64_t> ended = begun;
    for (const PartAction &action : g.actions) {
      HeldBytes::Action &bytes = held.actions.emplace_back();
      ++begun[size_t(action.part)];
      auto [first, end] = runsOf(action.part);
      bytes.during = less(most(first, end), begun, ended);
      ++ended[size_t(action.part)];
      bytes.after = less(across(end), begun, ended);
    }
    return held;
  }

private:
  // A value that waits from one part of the loop body to another, in as many places as it has copies.
  struct Waiting {
    int from = 0, to = 0;
    int64_t bytes = 0, copies = 1;
    int memoryClass = 0;
  };

  void findWaiting() {
    std::vector<int> last(d.instances.size(), -1); // part in which it is read last
    for (int t = d.loopBegin(); t < d.loopEnd(); ++t)
      for (int read : d.runs[size_t(t)].reads)
        last[size_t(read)] = std::max(last[size_t(read)], partOf[size_t(t)]);
    for (size_t i = 0; i < d.instances.size(); ++i) {
      const Instance &instance = d.instances[i];
      bool made = instance.run >= d.loopBegin() && instance.run < d.loopEnd();
      if (made && throughLoop(instance.lower, instance.upper) && last[i] > partOf[size_t(instance.run)])
        waiting.push_back({partOf[size_t(instance.run)], last[i], instance.bytes, instance.copies, int(classOf(g, d, instance))});
    }
  }

  bool throughLoop(int lower, int upper) const { return lower <= d.loopBegin() && upper >= d.loopEnd(); }

  std::pair<int, int> runsOf(int part) const {
    auto begin = partOf.begin() + d.loopBegin(), end = partOf.begin() + d.loopEnd();
    return {int(std::lower_bound(begin, end, part) - partOf.begin()), int(std::upper_bound(begin, end, part) - partOf.begin())};
  }

  ClassBytes most(int begin, int end) const {
    ClassBytes bytes{};
    auto sum = [](const ClassBytes &b) { return std::accumulate(b.begin(), b.end(), int64_t(0)); };
    for (int t = begin; t < end; ++t)
      if (sum(at[size_t(t)]) > sum(bytes))
        bytes = at[size_t(t)];
    return bytes;
  }

  // What lies in the arena between the runs before `t` and those from `t` on; at the loop's end, between two rounds of it.
  ClassBytes across(int t) const {
    ClassBytes bytes{};
    std::vector<int> newest(d.storages.size(), -1); // instance that owns a storage
    for (size_t i = 0; i < d.instances.size(); ++i) {
      int &owner = newest[size_t(d.instances[i].storage)];
      if (d.instances[i].lower < t && (owner < 0 || d.instances[size_t(owner)].lower <= d.instances[i].lower))
        owner = int(i);
    }
    for (size_t s = 0; s < d.storages.size(); ++s) {
      const Storage &storage = d.storages[s];
      bool held = t == d.loopEnd() ? throughLoop(storage.lower, storage.upper) : storage.lower < t && storage.upper > t;
      if (held && newest[s] >= 0)
        bytes[size_t(classOf(g, d, d.instances[size_t(newest[s])]))] += storage.bytes;
    }
    return bytes;
  }

  ClassBytes less(ClassBytes bytes, const std::vector<int64_t> &begun, const std::vector<int64_t> &ended) const {
    for (const Waiting &w : waiting) {
      int64_t taken = begun[size_t(w.from)] - ended[size_t(w.to)];
      bytes[size_t(w.memoryClass)] -= w.bytes * (w.copies - std::min(w.copies, taken));
    }
    return bytes;
  }

  const StepGraph &g;
  const Decision &d;
  std::vector<ClassBytes> at;
  std::vector<int> partOf; // of runs
  int parts = 1;
  std::vector<Waiting> waiting;
};

} // namespace

HeldBytes heldBytes(const StepGraph &graph, const Decision &decision) { return Counter(graph, decision).run(); }

} // namespace cinch::solve
