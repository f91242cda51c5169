// RefineFill.cpp: takes out runs whose results can be held instead.
//
// Of every run beyond the first of its kernel: if the copy before it were held until here, would the bytes fit? The best
// seconds a byte go first, and with a run go those that nobody else needs. Moves are priced on the bytes alive at each run;
// the exact timeline is built again after every pass.
#include "compiler/solve/LoopCopies.h"
#include "compiler/solve/Refine.h"

namespace cinch::solve {
namespace {

constexpr int kPasses = 8; // what one pass takes out may make room for another; mostly a pass that finds nothing ends it

class Filling {
public:
  Filling(const LoopCopies &state, const std::vector<int> &loop, int64_t target)
      : state(state), g(state.g), loop(loop), target(target), n(int(loop.size())), live(state.live), again(n, 0), gone(n, 0) {
    for (const LoopCopies::Copy &c : state.copies)
      unread.push_back(int(c.readers.size())), end.push_back(c.to), heir.push_back(int(heir.size()));
  }

  // One pass: the loop without the runs that can go, or nothing if none can.
  std::vector<int> pass() {
    bool any = false;
    for (int t : byWorth())
      if (!gone[t] && canGo(t))
        takeOut(t), any = true;
    return any ? rest() : std::vector<int>();
  }

  // The loop without some of the runs that may go, whether the bytes fit or not.
  std::vector<int> without(const std::vector<int> &mayGo, const std::vector<size_t> &chosen) {
    for (size_t i : chosen)
      takeOut(mayGo[i]);
    return rest();
  }

  // Runs that may go, the best seconds a byte first.
  std::vector<int> byWorth() {
    struct Candidate {
      double score;
      int run;
    };
    std::vector<Candidate> order;
    for (int t = 0; t < n; ++t) {
      again[t] = !state.writes[t].empty();
      int64_t bytes = 64;
      for (int c : state.writes[t]) {
        again[t] &= state.copies[c].before >= 0;
        bytes += state.copies[c].bytes;
      }
      if (again[t])
        order.push_back({secondsWith(t) / double(bytes), t});
    }
    std::stable_sort(order.begin(), order.end(), [](const Candidate &x, const Candidate &y) { return x.score > y.score; });
    std::vector<int> runs;
    for (const Candidate &c : order)
      runs.push_back(c.run);
    return runs;
  }

private:
  std::vector<int> rest() const {
    std::vector<int> shorter;
    for (int t = 0; t < n; ++t)
      if (!gone[t])
        shorter.push_back(loop[t]);
    return shorter;
  }

  // Seconds of this run and of those that only it needs.
  double secondsWith(int t) const {
    double seconds = 0;
    std::vector<int> stack{t};
    while (!stack.empty()) {
      int r = stack.back();
      stack.pop_back();
      seconds += g.kernels[loop[r]].seconds.at(state.b);
      for (int c : state.reads[r]) {
        int from = state.copies[c].from;
        if (state.copies[c].readers.size() == 1 && again[from] && state.writes[from].size() == 1)
          stack.push_back(from);
      }
    }
    return seconds;
  }

  int root(int c) const {
    while (heir[c] != c)
      c = heir[c];
    return c;
  }
  int64_t most(int from, int to) const { // over runs [from, to)
    int64_t m = 0;
    for (int t = from; t < to; ++t)
      m = std::max(m, live[t]);
    return m;
  }

  // Do the bytes fit if what run t writes is held from the last read of the copy before (in-place work there no longer takes
  // its bytes) up to this run?
  bool canGo(int t) const {
    for (int c : state.writes[t]) {
      const LoopCopies::Copy &copy = state.copies[c];
      if (end[c] == copy.from) // nobody reads it any more
        continue;
      int before = root(copy.before);
      if (most(end[before] + 1, copy.from) + copy.bytes > target || live[end[before]] + copy.bytes > target)
        return false;
    }
    return true;
  }

  // Run t and those that nobody needs without it.
  void takeOut(int t) {
    std::vector<int> stack{t};
    while (!stack.empty()) {
      int r = stack.back();
      stack.pop_back();
      if (gone[r])
        continue;
      gone[r] = 1;
      for (int c : state.writes[r])
        handOver(c);
      for (int read : state.reads[r]) {
        int c = root(read);
        if (--unread[c] == 0) {
          int from = state.copies[c].from;
          bool nobody = again[from] && !gone[from];
          for (int w : state.writes[from])
            nobody &= unread[w] == 0;
          if (nobody)
            stack.push_back(from);
        }
      }
    }
  }
  // The readers of a copy come from the one before it.
  void handOver(int c) {
    const LoopCopies::Copy &copy = state.copies[c];
    int before = root(copy.before);
    if (end[c] > copy.from || unread[c] > 0) {
      for (int t = end[before]; t < copy.from; ++t)
        live[t] += copy.bytes;
      end[before] = std::max(end[before], end[c]);
      unread[before] += unread[c];
    }
    heir[c] = before;
  }

  const LoopCopies &state;
  const StepGraph &g;
  const std::vector<int> &loop;
  int64_t target;
  int n;
  std::vector<int64_t> live;      // bytes alive during each run, with what was taken out
  std::vector<char> again, gone;  // of runs: may go; went
  std::vector<int> unread;        // of copies: readers that are left
  std::vector<int> end, heir;     // of copies: where it ends now; the copy that has its readers, itself while it is there
};

} // namespace

Refiner::Loop Refiner::fill(Loop loop, int64_t target) {
  LoopCopies &state = *copies;
  if (!state.build(loop) || state.line.peak > target)
    return loop;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<int> shorter = Filling(state, loop, target).pass();
    if (shorter.empty() || !state.build(shorter) || state.line.peak > target)
      break;
    loop = std::move(shorter);
  }
  return loop;
}

Refiner::Loop Refiner::withHeld(const Loop &loop, const std::function<std::vector<size_t>(size_t)> &choose) {
  LoopCopies &state = *copies;
  if (!state.build(loop))
    return loop;
  Filling filling(state, loop, 0);
  std::vector<int> repetitions = filling.byWorth();
  std::sort(repetitions.begin(), repetitions.end());
  return filling.without(repetitions, choose(repetitions.size()));
}

} // namespace cinch::solve
