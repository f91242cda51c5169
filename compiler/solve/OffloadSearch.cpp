// OffloadSearch.cpp: see OffloadSearch.h.
#include "compiler/solve/OffloadSearch.h"
#include "compiler/solve/Engines.h"
#include "compiler/solve/MemoryBound.h"
#include "compiler/solve/SwapPlans.h"

#include <algorithm>

namespace cinch::solve {

namespace {

// So many ways are searched, those that look best; each costs as much as a search without copies. Mostly the first is the best, and rules out the others.
constexpr int kMostSearched = 12;

class OffloadSearch {
public:
  OffloadSearch(const std::vector<Variant> &variants, const SearchResult &plain, const SearchOptions &options, int64_t hostBudget,
                const MayLeave &allowed)
      : variants(variants), options(options), hostBudget(hostBudget), allowed(allowed), graph(variants.front().rows.graph) {
    answer.result = plain;
    answer.result.feasible &= !allowed.allState;
    // As much as the host has room for, large state first.
    std::vector<UpdateState> all = movableState(graph, allowed.state);
    std::stable_sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.bytes > b.bytes; });
    int64_t left = hostBudget;
    for (UpdateState &state : all)
      if (state.bytes <= left)
        left -= state.bytes, movable.push_back(std::move(state));
    std::stable_sort(movable.begin(), movable.end(), [](auto &a, auto &b) { return a.kernel < b.kernel; });
  }

  OffloadAnswer run(const std::vector<LadderSchedule> &ladder) {
    int64_t everything = bytesOf(movable);
    if (!movable.empty())
      moveState(ladder);
    searchSwaps(variants, ladder, options, hostBudget, allowed, statesWorthTrying(), answer);
    if (!answer.result.feasible) {
      std::vector<Offload> states(size_t(!allowed.allState));
      if (!movable.empty())
        states.push_back({movable, windowsFor(graph, movable).back()});
      searchSmallestSwaps(variants, options, hostBudget, allowed, states, answer);
    }
    if (!answer.rows.graph.kernels.empty())
      finish(everything);
    return std::move(answer);
  }

private:
  struct Way {
    std::vector<UpdateState> moved;
    int64_t bytes;
    double copies, seconds; // that are not hidden; of a step, with the fastest plan that the ladder has
  };
  static int64_t bytesOf(const std::vector<UpdateState> &states) { return Offload{states, 0}.bytes(); }

  // State alone.
  void moveState(const std::vector<LadderSchedule> &ladder) {
    int64_t everything = bytesOf(movable);
    for (const LadderSchedule &schedule : ladder) {
      if (allowed.allState)
        break;
      // What is only known to be alive there may take a little more.
      const LadderPoint &point = schedule.point;
      int64_t need = point.arenaBytes + point.arenaBytes / 1000 - *options.arenaBudget;
      if (need <= 0 || need >= everything)
        continue;
      addWay(need, point.seconds);
      // Where not the loop is what needs most, but the updates behind it, the window takes its room there, too.
      if (int64_t more = need + windowsFor(graph, stateOf(movable, need)).back(); more < everything)
        addWay(more, point.seconds);
    }
    addWay(everything, ladder.empty() ? 0 : ladder.front().point.seconds);
    std::stable_sort(ways.begin(), ways.end(), [](const Way &a, const Way &b) { return a.seconds < b.seconds; });
    int searched = 0;
    for (const Way &way : ways)
      if (searched < kMostSearched && !isBeaten(way))
        ++searched, search(way.moved, false);
    if (!answer.result.feasible)
      search(movable, true);
  }

  // Beside values of the loop: none, what the best plan has so far, a half and all that may move.
  std::vector<Offload> statesWorthTrying() const {
    if (allowed.allState)
      return movable.empty() ? std::vector<Offload>() : std::vector<Offload>{{movable, windowsThatFit(movable).front()}};
    std::vector<Offload> states{{}};
    if (!answer.offload.moved.empty())
      states.push_back(answer.offload);
    for (int64_t bytes : {bytesOf(movable) / 2, bytesOf(movable)}) {
      std::vector<UpdateState> moved = stateOf(movable, bytes);
      bool known = std::any_of(states.begin(), states.end(), [&](const Offload &state) { return state.bytes() == bytesOf(moved); });
      if (!known)
        states.push_back({moved, windowsThatFit(moved).front()});
    }
    return states;
  }

  void addWay(int64_t bytes, double seconds) {
    std::vector<UpdateState> moved = stateOf(movable, bytes);
    for (Way &known : ways)
      if (known.bytes == bytesOf(moved)) {
        known.seconds = std::min(known.seconds, seconds + known.copies);
        return;
      }
    StepGraph with = withOffload(graph, {moved, windowsFor(graph, moved).front()}).graph;
    GraphIndex before(graph), after(with);
    double more = runEngines(with, after.behind, graph.grain).end - runEngines(graph, before.behind, graph.grain).end;
    ways.push_back({moved, bytesOf(moved), more, seconds + more});
  }
  bool isBeaten(const Way &way) const { return answer.result.feasible && way.seconds >= answer.result.plan.seconds; }

  // With the fastest window that fits. `smallest`: what it takes at least is told, too, if nothing fits.
  void search(const std::vector<UpdateState> &moved, bool smallest) {
    std::vector<int64_t> windows = windowsThatFit(moved);
    for (int64_t window : windows) {
      std::vector<Variant> changed;
      for (const Variant &variant : variants) {
        Variant &with = changed.emplace_back(variant);
        Offload offload{stateOfGraph(variant.rows.graph, moved, allowed.state), window};
        Offloaded made = withOffload(variant.rows.graph, offload, variant.rows.original);
        with.rows.graph = std::move(made.graph), with.rows.original = std::move(made.original);
      }
      VariantPlanner planner(std::move(changed));
      SearchOptions own = options;
      own.smallest = smallest && window == windows.back();
      if (answer.result.feasible)
        own.fasterThan = std::min(own.fasterThan, answer.result.plan.seconds);
      int chosen = 0;
      SearchResult result = planner.search(own, false, chosen);
      bool smaller = own.smallest && !result.feasible && !answer.result.feasible && result.smallestArena < answer.result.smallestArena;
      if (!result.error.empty() || !(result.feasible || smaller))
        continue;
      answer.result = std::move(result);
      answer.rows = planner.variant(chosen).rows;
      answer.offload = {moved, window};
      if (answer.result.feasible)
        return;
    }
  }
  // The fastest window with which what is behind the loop fits, and the smallest, whose plan may be packed where that one's is not. What is
  // in the loop is the same with all of them.
  std::vector<int64_t> windowsThatFit(const std::vector<UpdateState> &moved) const {
    std::vector<int64_t> windows = windowsFor(graph, moved), some;
    for (int64_t window : windows) {
      StepGraph with = withOffload(graph, {moved, window}).graph;
      GraphIndex index(with);
      Timeline line(index);
      if (!some.empty() || !line.build(options.microbatch > 0 ? options.microbatch : graph.grain, index.loop))
        continue;
      std::vector<int64_t> profile = line.profile();
      if (std::all_of(profile.begin() + std::min<int64_t>(line.loopEnd, int64_t(profile.size())), profile.end(),
                      [&](int64_t bytes) { return bytes <= *options.arenaBudget; }))
        some.push_back(window);
    }
    if (some.empty() || some.back() != windows.back())
      some.push_back(windows.back());
    return some;
  }

  // Bounds for anything on the host, of all variants: no step is faster than without a limit, and no arena smaller by more than the state that may
  // leave it. Values of the loop change nothing about it, since each kernel needs its operands beside what lives through the loop.
  void finish(int64_t everything) {
    double least = 1e300;
    answer.result.bound = INT64_MAX;
    for (int64_t b : microbatches(graph))
      if (options.microbatch <= 0 || b == options.microbatch) {
        answer.result.bound = std::min(answer.result.bound, memoryBound(variants, b));
        for (const Variant &variant : variants)
          if (GraphIndex index(variant.rows.graph); b % variant.rows.graph.grain == 0 && index.error.empty())
            least = std::min(least, predictedSeconds(index, b, index.loop));
      }
    answer.result.secondsBound = std::min(least, answer.result.plan.seconds);
    answer.result.bound = std::max<int64_t>(0, answer.result.bound - everything);
  }

  const std::vector<Variant> &variants;
  const SearchOptions &options;
  const int64_t hostBudget;
  const MayLeave &allowed;
  const StepGraph &graph;
  std::vector<UpdateState> movable; // as much as the host has room for
  std::vector<Way> ways;
  OffloadAnswer answer;
};

} // namespace

OffloadAnswer searchOffload(const std::vector<Variant> &variants, const SearchResult &plain, const std::vector<LadderSchedule> &ladder,
                            const SearchOptions &options, int64_t hostBudget, const MayLeave &allowed) {
  return OffloadSearch(variants, plain, options, hostBudget, allowed).run(ladder);
}

} // namespace cinch::solve
