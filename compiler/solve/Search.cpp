// Search.cpp: the ladder, lazily packed, and the explanation of a budget that cannot be met.
#include "compiler/solve/Search.h"
#include "compiler/solve/Refine.h"
#include "compiler/solve/Reorder.h"

#include <algorithm>

namespace cinch::solve {

struct Planner::Rung {
  int64_t microbatch;
  std::string name;
  std::vector<int> loop;
  int64_t peakLive;
  double seconds;
  std::shared_ptr<Plan> plan; // packed when first needed
  bool packedWell = false;    // no packing of it is known to be lower, or the search for one has been done
  bool asked = false;         // only there because a user named the strategy: no part of the ladder
};

// The order of the loop is settled first: every schedule is made from it.
static GraphIndex ordered(const StepGraph &graph, uint64_t orderSeed) {
  GraphIndex index(graph);
  if (index.error.empty())
    index.loop = orderSeed ? shuffled(index, index.loop, orderSeed) : reorder(index, graph.batch, index.loop, true);
  return index;
}

Planner::Planner(const StepGraph &g, uint64_t orderSeed)
    : graph(g), index(ordered(graph, orderSeed)), sweep(index) {}
Planner::~Planner() = default;

// The schedules are made once, at the largest micro-batch: bytes and seconds of kernels keep nearly the same
// proportions at others. Those stay that no other beats in bytes and time at the largest or at the smallest
// micro-batch, and whatever a user can name.
void Planner::makeSchedules() {
  if (!schedules.empty())
    return;
  std::vector<int64_t> sizes = microbatches(graph);
  std::vector<RematCandidate> all = candidates(sweep, sizes.back());
  std::vector<bool> stays(all.size(), false);
  Timeline line(index);
  for (int64_t b : {sizes.front(), sizes.back()}) {
    struct Point {
      int64_t peak;
      double seconds;
      size_t at;
    };
    std::vector<Point> points;
    for (size_t i = 0; i < all.size(); ++i)
      if (line.build(b, all[i].loop))
        points.push_back({line.peak, predictedSeconds(index, b, all[i].loop), i});
    std::stable_sort(points.begin(), points.end(), [](const Point &x, const Point &y) {
      return x.peak != y.peak ? x.peak < y.peak : x.seconds < y.seconds;
    });
    double fastest = 1e300;
    for (const Point &p : points)
      if (p.seconds < fastest)
        fastest = p.seconds, stays[p.at] = true;
  }
  for (size_t i = 0; i < all.size(); ++i)
    if (stays[i] || all[i].named)
      schedules.push_back(std::move(all[i]));
}

void Planner::addMicrobatch(int64_t b) {
  if (std::find(done.begin(), done.end(), b) != done.end())
    return;
  done.push_back(b);
  makeSchedules();
  Timeline line(index);
  plainRung(b);
  for (const RematCandidate &c : schedules)
    if (c.loop != index.loop && line.build(b, c.loop))
      rungs.push_back({b, c.name, c.loop, line.peak, predictedSeconds(index, b, c.loop), nullptr});
}

// Between the plan that keeps everything and the bound, at targets that depend on the graph alone: the plan of the
// target before gives up more, the best schedule within the target fills it, and the best a little above it gives up.
void Planner::refineMicrobatch(int64_t b) {
  if (std::find(refined.begin(), refined.end(), b) != refined.end())
    return;
  refined.push_back(b);
  addMicrobatch(b);
  // Longer loops repeat their blocks, and the dynamic program serves them; the moves would take too long.
  size_t kernels = index.loop.size();
  Timeline line(index);
  if (std::find(sweep.saved.begin(), sweep.saved.end(), true) == sweep.saved.end() || kernels > 20'000 ||
      !line.build(b, index.loop))
    return;
  std::vector<int> given = ladderOf(b), chain = index.loop;
  sortByTime(given);
  int64_t high = line.peak, low = std::min(memoryBound(b), high);
  int refinements = 0;
  std::vector<int> smallest;
  int64_t reached = INT64_MAX;
  for (int r : given)
    if (rungs[r].peakLive < reached)
      reached = rungs[r].peakLive, smallest = rungs[r].loop;
  // Adds the best plan found within the target, if there is one.
  auto attempt = [&](int64_t target) {
    std::vector<int> best;
    double least = 1e300;
    auto offer = [&](std::vector<int> loop) {
      double seconds = loop.empty() ? least : predictedSeconds(index, b, loop);
      if (seconds < least)
        least = seconds, best = std::move(loop);
    };
    auto lower = [&](const std::vector<int> &from) {
      std::vector<int> loop = shrink(index, b, from, target, 400);
      if (!loop.empty())
        offer(fill(index, b, reorder(index, b, loop, false, 2), target));
    };
    int within = -1, above = -1;
    for (int r : given) {
      if (within < 0 && rungs[r].peakLive <= target)
        within = r;
      if (above < 0 && rungs[r].peakLive <= target + (high - target) / 8)
        above = r;
    }
    if (within >= 0)
      offer(fill(index, b, rungs[within].loop, target));
    lower(chain);
    if (above >= 0 && above != within)
      lower(rungs[above].loop);
    if (within < 0)
      lower(smallest);
    if (best.empty() || !line.build(b, best))
      return false;
    chain = best;
    if (line.peak < reached)
      reached = line.peak, smallest = best;
    rungs.push_back({b, "refined " + std::to_string(++refinements), std::move(best), line.peak, least, nullptr});
    return true;
  };
  int points = int(std::clamp<size_t>(30'000 / kernels, 6, 28));
  int64_t refused = low - 1;
  for (int i = points - 1; i >= 0; --i) {
    double share = double(i) / points;
    int64_t target = low + int64_t(double(high - low) * share * share) / 64 * 64;
    if (attempt(target))
      continue;
    refused = target;
    break;
  }
  // How low does it go?
  for (int i = 0; i < 6 && reached - refused > std::max<int64_t>(64, (high - low) / 1000); ++i)
    if (int64_t target = refused + (reached - refused) / 2; !attempt(target))
      refused = target;
}

std::vector<int> Planner::ladderOf(int64_t b) const {
  std::vector<int> list;
  for (size_t i = 0; i < rungs.size(); ++i)
    if (rungs[i].microbatch == b && !rungs[i].asked)
      list.push_back(int(i));
  return list;
}

// Of equals the larger micro-batch comes first, then the one that was there first: those of one micro-batch always
// come in the same order.
void Planner::sortByTime(std::vector<int> &list) const {
  std::stable_sort(list.begin(), list.end(), [&](int x, int y) {
    const Rung &a = rungs[x], &b = rungs[y];
    if (a.seconds != b.seconds)
      return a.seconds < b.seconds;
    return a.peakLive != b.peakLive ? a.peakLive < b.peakLive : a.microbatch > b.microbatch;
  });
}
void Planner::sortByBytes(std::vector<int> &list) const {
  std::stable_sort(list.begin(), list.end(), [&](int x, int y) {
    const Rung &a = rungs[x], &b = rungs[y];
    if (a.peakLive != b.peakLive)
      return a.peakLive < b.peakLive;
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.microbatch > b.microbatch;
  });
}

const Plan &Planner::packed(int rung, bool thorough) {
  Rung &r = rungs[rung];
  ArenaLimits limits;
  if (!r.plan) {
    limits.work /= 20;
    r.plan = std::make_shared<Plan>(evaluate(index, {r.microbatch, r.loop}, limits));
    r.packedWell = r.plan->decision.arenaBytes == r.plan->peakLive;
  }
  if (thorough && !r.packedWell) {
    r.packedWell = true;
    limits = {};
    Plan better = evaluate(index, {r.microbatch, r.loop}, limits);
    if (better.error.empty() && better.decision.arenaBytes < r.plan->decision.arenaBytes)
      *r.plan = std::move(better);
  }
  return *r.plan;
}

static bool isFree(const SearchOptions &options) {
  return options.strategy.kind == Strategy::Auto || options.strategy.kind == Strategy::Optimal;
}

std::vector<int64_t> Planner::sizesOf(const SearchOptions &options, std::string &error) const {
  error = index.error;
  std::vector<int64_t> sizes = microbatches(graph);
  if (!error.empty())
    return {};
  if (options.microbatch <= 0)
    return sizes;
  if (std::find(sizes.begin(), sizes.end(), options.microbatch) != sizes.end())
    return {options.microbatch};
  int64_t below = 0, above = 0;
  for (int64_t b : sizes) {
    if (b < options.microbatch)
      below = b;
    if (b > options.microbatch && !above)
      above = b;
  }
  error = "expected a micro-batch that divides the batch of " + std::to_string(graph.batch) +
          (graph.grain > 1 ? " and is a multiple of the grain " + std::to_string(graph.grain) : "") + ", got " +
          std::to_string(options.microbatch) + "; nearest: " + (below ? std::to_string(below) : "") +
          (below && above ? " and " : "") + (above ? std::to_string(above) : "");
  return {};
}

// The plan that computes nothing again, whose ladder may not be needed.
int Planner::plainRung(int64_t b) {
  for (size_t i = 0; i < rungs.size(); ++i)
    if (rungs[i].microbatch == b && !rungs[i].asked && rungs[i].loop == index.loop)
      return int(i);
  Timeline line(index);
  line.build(b, index.loop);
  rungs.push_back({b, "none", index.loop, line.peak, predictedSeconds(index, b, index.loop), nullptr});
  return int(rungs.size()) - 1;
}

std::vector<int> Planner::rungsOf(const SearchOptions &options, std::string &error) {
  std::vector<int64_t> sizes = sizesOf(options, error);
  std::vector<int> chosen;
  bool free = isFree(options);
  for (int64_t b : sizes) {
    if (free) {
      addMicrobatch(b);
      std::vector<int> ladder = ladderOf(b);
      chosen.insert(chosen.end(), ladder.begin(), ladder.end());
      continue;
    }
    // A named strategy is one schedule a micro-batch.
    std::string name = str(options.strategy);
    std::vector<int> loop = schedule(sweep, options.strategy);
    int found = -1;
    for (size_t i = 0; i < rungs.size(); ++i)
      if (rungs[i].microbatch == b && rungs[i].loop == loop)
        found = int(i);
    if (found < 0) {
      Timeline line(index);
      if (!line.build(b, loop)) {
        error = line.error;
        return {};
      }
      found = int(rungs.size());
      rungs.push_back({b, name, loop, line.peak, predictedSeconds(index, b, loop), nullptr, true});
    }
    chosen.push_back(found);
  }
  return chosen;
}

int64_t Planner::memoryBound(int64_t b) const {
  const StepGraph &g = graph;
  // Before and after the loop the order is the graph's, so its exact peak counts. Inside it every kernel needs its
  // operands, besides what lives through the loop in any order.
  Timeline line(index);
  std::vector<int> loop = plainLoop(g);
  if (!line.build(b, loop))
    return 0;
  std::vector<int64_t> profile = line.profile();
  int64_t bound = 0, through = 0;
  for (int t = 0; t < int(profile.size()); ++t)
    if (t < line.loopBegin || t >= line.loopEnd)
      bound = std::max(bound, profile[t]);
  std::vector<bool> isThrough(line.storageBytes.size(), false);
  for (size_t s = 0; s < line.storageBytes.size(); ++s)
    if (line.storageLower[s] <= line.loopBegin && line.storageUpper[s] >= line.loopEnd &&
        line.loopEnd > line.loopBegin) {
      isThrough[s] = true;
      through += line.storageBytes[s];
    }
  // A storage that happens to span the loop because of its order alone is not certain to.
  for (size_t i = 0; i < line.instances.size(); ++i) {
    const Timeline::Life &life = line.instances[i];
    if (life.run >= line.loopBegin && life.run < line.loopEnd && isThrough[life.storage]) {
      isThrough[life.storage] = false;
      through -= line.storageBytes[life.storage];
    }
  }
  for (int t = line.loopBegin; t < line.loopEnd; ++t) {
    const Kernel &kernel = g.kernels[line.runs[t]];
    int64_t bytes = through;
    auto add = [&](int i) {
      if (!isThrough[line.instances[i].storage])
        bytes += line.bytes(i);
    };
    for (int i = line.firstRead[t]; i < line.firstRead[t + 1]; ++i)
      add(line.readInstances[i]);
    for (int i = line.firstWrite[t]; i < line.firstWrite[t + 1]; ++i)
      add(line.writeInstances[i]);
    if (line.scratch[t] >= 0)
      bytes += line.bytes(line.scratch[t]);
    // Every write may at best take the bytes of a read.
    std::vector<int> taken;
    for (int w : kernel.writes)
      for (auto &[to, from] : kernel.inPlace)
        if (to == w && g.buffers[from].bytes(b) == g.buffers[w].bytes(b) && !index.persistent[from] &&
            g.buffers[from].kind == Buffer::Value && index.bornIn[from] == Section::Loop &&
            std::find(taken.begin(), taken.end(), from) == taken.end()) {
          bytes -= g.buffers[w].bytes(b);
          taken.push_back(from);
          break;
        }
    bound = std::max(bound, bytes);
  }
  return bound;
}

SearchResult Planner::search(const SearchOptions &options) {
  SearchResult result;
  bool free = isFree(options);
  std::vector<int> chosen = free ? std::vector<int>() : rungsOf(options, result.error);
  std::vector<int64_t> allowed = sizesOf(options, result.error);
  if (!result.error.empty() || allowed.empty())
    return result;
  auto fits = [&](int64_t bytes) { return options.arenaBudget < 0 || bytes <= options.arenaBudget; };

  result.bound = INT64_MAX, result.secondsBound = INT64_MAX;
  struct Size {
    int64_t microbatch, bound;
    double seconds; // of the plan that computes nothing again
  };
  std::vector<Size> sizes;
  for (int64_t b : allowed) {
    sizes.push_back({b, memoryBound(b), predictedSeconds(index, b, index.loop)});
    result.bound = std::min(result.bound, sizes.back().bound);
    result.secondsBound = std::min(result.secondsBound, sizes.back().seconds);
  }

  // The fastest that fits; of equally fast ones the smaller.
  int best = -1;
  auto fastest = [&](std::vector<int> list) {
    sortByTime(list);
    for (int r : list) {
      if (best >= 0 && rungs[r].seconds >= rungs[best].seconds)
        return;
      if (fits(rungs[r].peakLive) && packed(r).error.empty() &&
          (fits(packed(r).decision.arenaBytes) || fits(packed(r, true).decision.arenaBytes)))
        best = r;
    }
  };
  if (free) {
    // No plan of a micro-batch is faster than without recomputation or smaller than its bound: where that rules it
    // out, its ladder is not needed.
    std::stable_sort(sizes.begin(), sizes.end(), [](const Size &x, const Size &y) { return x.seconds < y.seconds; });
    for (size_t i = 0; i < sizes.size() && best < 0; ++i)
      if (fits(sizes[i].bound))
        fastest({plainRung(sizes[i].microbatch)});
    for (const Size &size : sizes)
      if (fits(size.bound) && (best < 0 || size.seconds < rungs[best].seconds)) {
        addMicrobatch(size.microbatch);
        fastest(ladderOf(size.microbatch));
        refineMicrobatch(size.microbatch);
        fastest(ladderOf(size.microbatch));
      }
  } else {
    fastest(chosen);
  }
  // The smallest: those whose live bytes already exceed the best packing cannot win.
  int smallest = -1;
  auto smaller = [&](std::vector<int> list) {
    sortByBytes(list);
    for (int r : list) {
      if (smallest >= 0 && rungs[r].peakLive >= packed(smallest).decision.arenaBytes)
        return;
      if (packed(r, best < 0).error.empty() &&
          (smallest < 0 || packed(r).decision.arenaBytes < packed(smallest).decision.arenaBytes))
        smallest = r;
    }
  };
  if (!free) {
    smaller(chosen);
  } else {
    std::stable_sort(sizes.begin(), sizes.end(), [](const Size &x, const Size &y) { return x.bound < y.bound; });
    for (const Size &size : sizes)
      if (smallest < 0 || size.bound < packed(smallest).decision.arenaBytes) {
        if (best < 0)
          refineMicrobatch(size.microbatch);
        smaller(ladderOf(size.microbatch));
      }
  }
  if (smallest < 0) {
    result.error = chosen.empty() ? "no schedule can be packed" : packed(chosen.front()).error;
    return result;
  }
  result.smallestArena = packed(smallest).decision.arenaBytes;
  result.feasible = best >= 0;
  int shown = best >= 0 ? best : smallest;
  result.plan = packed(shown);
  result.choice = {rungs[shown].microbatch, rungs[shown].loop};
  result.name = rungs[shown].name;
  if (result.feasible)
    return result;

  result.holders = largestLive(graph, result.plan, result.plan.peakRun, 10);
  // The cheapest change: give up the fixed strategy, then the fixed micro-batch, then both; else a larger budget.
  bool fixedStrategy = options.strategy.kind != Strategy::Auto && options.strategy.kind != Strategy::Optimal;
  std::vector<SearchOptions> relaxed;
  SearchOptions freer = options;
  if (fixedStrategy) {
    freer.strategy = {};
    relaxed.push_back(freer);
  }
  if (options.microbatch > 0) {
    SearchOptions freed = options;
    freed.microbatch = 0;
    relaxed.push_back(freed);
    if (fixedStrategy) {
      freer.microbatch = 0;
      relaxed.push_back(freer);
    }
  }
  double least = 0;
  for (const SearchOptions &o : relaxed) {
    SearchResult other = Planner::search(o);
    if (!other.feasible || (!result.advice.empty() && other.plan.seconds >= least))
      continue;
    least = other.plan.seconds;
    result.advice.clear();
    if (o.microbatch != options.microbatch)
      result.advice = "micro-batch " + std::to_string(other.choice.microbatch) + " instead of " +
                      std::to_string(options.microbatch);
    if (o.strategy.kind != options.strategy.kind)
      result.advice +=
          std::string(result.advice.empty() ? "" : " and ") + "strategy auto instead of " + str(options.strategy);
  }
  return result;
}

std::vector<LadderPoint> Planner::tradeOff(const SearchOptions &options) {
  std::string error;
  if (isFree(options))
    for (int64_t b : sizesOf(options, error))
      refineMicrobatch(b);
  std::vector<int> order = rungsOf(options, error);
  sortByBytes(order);
  std::vector<LadderPoint> points;
  double fastest = 0;
  for (int r : order) {
    if (!points.empty() && rungs[r].seconds >= fastest)
      continue;
    fastest = rungs[r].seconds;
    points.push_back({-1, rungs[r].peakLive, rungs[r].seconds, rungs[r].microbatch, rungs[r].name});
    // Only plans already packed know their arena; the others say what they need at least.
    points.back().arenaBytes = rungs[r].plan ? rungs[r].plan->decision.arenaBytes : rungs[r].peakLive;
  }
  return points;
}

} // namespace cinch::solve
