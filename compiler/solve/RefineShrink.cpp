// RefineShrink.cpp: computes values again until the bytes fit.
//
// At the moment with the most bytes: of the values that lie there unread it gives up the one that frees most of what is too
// much for the seconds of computing it again at its next use (with whatever that needs and is gone by then). Moves are
// priced on the bytes alive at each run; the exact timeline is built again after every move.
#include "compiler/solve/LoopCopies.h"
#include "compiler/solve/Refine.h"

namespace cinch::solve {
namespace {

struct ShrinkLimits {
  size_t largestCone = 48; // kernels computed again for one value: chains of more are seldom worth their time, and looking at them is dear
  size_t longest = 6;      // runs, in times of the plain loop: beyond that the moves undo each other
  size_t longestBeside = 64; // and so many more, for short loops
};
constexpr ShrinkLimits kLimits;

// Computing a value again right before a run that reads it.
struct Move {
  double score;
  int at; // the run
  int64_t bytes;
  std::vector<int> cone;     // kernels, in their order
  std::pair<int, int> name;  // the value's kernel, the reader's
};

class Shrinking {
public:
  // `now` has the loop as it is, `then` what a step would make of it.
  Shrinking(LoopCopies &now, LoopCopies &then, int64_t target) : index(now.index), g(now.g), target(target), now(&now), then(&then) {}

  std::vector<int> run(std::vector<int> loop, int steps) {
    if (!now->build(loop))
      return {};
    size_t longest = index.loop.size() * kLimits.longest + kLimits.longestBeside;
    double least = excess(*now);
    bool careful = false;
    for (int step = 0; step < steps && now->line.peak > target && loop.size() < longest; ++step) {
      int peak = int(std::max_element(now->live.begin(), now->live.end()) - now->live.begin());
      if (now->live[peak] <= target)
        return {}; // the peak stands outside the loop
      std::vector<Move> moves = movesAt(peak, loop);
      if (moves.empty())
        return {};
      size_t taken = chosen(moves, (now->live[peak] - target) / 2, careful);
      std::pair<int, int> first = moves.front().name;
      moves.resize(taken);
      std::vector<int> longer = withMoves(loop, moves);
      if (!then->build(longer))
        return {};
      if (double more = excess(*then); more < least) {
        least = more, careful = false;
        loop = std::move(longer);
        std::swap(now, then);
        continue;
      }
      if (taken == 1)
        refused.push_back(first);
      careful = true;
    }
    return now->line.peak <= target ? loop : std::vector<int>();
  }

private:
  double excess(const LoopCopies &state) const {
    double sum = 0;
    for (int64_t bytes : state.live)
      sum += double(std::max<int64_t>(0, bytes - target));
    return sum;
  }

  // Every value that lies unread at this run and could be computed again, with what that gains a second.
  std::vector<Move> movesAt(int peak, const std::vector<int> &loop) {
    std::vector<Move> moves;
    // What is too much, summed up to each run, and at how many runs.
    LoopCopies &state = *now;
    int n = int(loop.size());
    std::vector<double> over(n + 1, 0);
    std::vector<int> times(n + 1, 0);
    for (int t = 0; t < n; ++t) {
      over[t + 1] = over[t] + double(std::max<int64_t>(0, state.live[t] - target));
      times[t + 1] = times[t] + (state.live[t] > target);
    }
    for (const LoopCopies::Copy &copy : state.copies) {
      int kernel = g.buffers[copy.buffer].producer;
      if (copy.from >= peak || copy.to <= peak || !index.mayRecompute[kernel])
        continue;
      auto next = std::lower_bound(copy.readers.begin(), copy.readers.end(), peak);
      if (next == copy.readers.end() || *next == peak)
        continue;
      int r = *next, q = next == copy.readers.begin() ? copy.from : *(next - 1);
      std::pair<int, int> name(kernel, loop[r]);
      if (std::find(refused.begin(), refused.end(), name) != refused.end())
        continue;
      double seconds = 0;
      std::vector<int> cone = coneOf(kernel, r, seconds);
      double gain = std::min(over[r] - over[q + 1], double(copy.bytes) * double(times[r] - times[q + 1]));
      if (cone.empty() || gain <= 0)
        continue;
      gain -= double(std::max<int64_t>(0, state.mostInCone(cone, r, copy) - target));
      if (gain > 0)
        moves.push_back({gain / (seconds + 1e-9), r, copy.bytes, std::move(cone), name});
    }
    std::stable_sort(moves.begin(), moves.end(), [](const Move &x, const Move &y) { return x.score > y.score; });
    return moves;
  }

  // What computing a kernel again right before run r needs: copies alive there are at hand, others are computed, too. Empty
  // if that cannot be.
  std::vector<int> coneOf(int kernel, int r, double &seconds) const {
    const LoopCopies &state = *now;
    std::vector<int> cone, stack{kernel};
    while (!stack.empty()) {
      int k = stack.back();
      stack.pop_back();
      if (std::find(cone.begin(), cone.end(), k) != cone.end())
        continue;
      cone.push_back(k);
      seconds += g.kernels[k].seconds.at(state.b);
      if (!index.mayRecompute[k] || cone.size() > kLimits.largestCone)
        return {};
      for (int read : g.kernels[k].reads)
        if (state.loopBorn[read] && !state.aliveBefore(read, r))
          stack.push_back(g.buffers[read].producer);
    }
    std::sort(cone.begin(), cone.end(), [&](int x, int y) { return state.place[x] < state.place[y]; });
    return cone;
  }

  // How many of the moves to make at once: the best, and while they go well those behind it up to so many bytes.
  static size_t chosen(const std::vector<Move> &moves, int64_t enough, bool careful) {
    int64_t freed = 0;
    size_t taken = 0;
    while (taken < moves.size() && (taken == 0 || (!careful && freed < enough)))
      freed += moves[taken++].bytes;
    return taken;
  }

  static std::vector<int> withMoves(const std::vector<int> &loop, std::vector<Move> &moves) {
    std::stable_sort(moves.begin(), moves.end(), [](const Move &x, const Move &y) { return x.at < y.at; });
    std::vector<int> longer;
    int done = 0;
    for (const Move &move : moves) {
      longer.insert(longer.end(), loop.begin() + done, loop.begin() + move.at);
      longer.insert(longer.end(), move.cone.begin(), move.cone.end());
      done = move.at;
    }
    longer.insert(longer.end(), loop.begin() + done, loop.end());
    return longer;
  }

  const GraphIndex &index;
  const StepGraph &g;
  int64_t target;
  LoopCopies *now, *then;
  std::vector<std::pair<int, int>> refused; // moves that did not help, by name
};

} // namespace

Refiner::Loop Refiner::shrink(Loop loop, int64_t target, int steps) { return Shrinking(*copies, *longer, target).run(std::move(loop), steps); }

} // namespace cinch::solve
