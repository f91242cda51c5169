// Ladder.cpp: the plans among which a search chooses: every micro-batch x every candidate schedule, and what local search
// makes of them. They depend on the graph alone; which of them are made, and which are packed, on what is asked.
#include "compiler/solve/Refine.h"
#include "compiler/solve/Reorder.h"
#include "compiler/solve/Search.h"
#include "compiler/solve/SmallestRung.h"

#include <algorithm>

namespace cinch::solve {

// The order of the loop is settled first: every schedule is made from it, at every micro-batch. All but one have their sums from the begin of the
// loop, so sums do not count in it.
static GraphIndex ordered(const StepGraph &graph, uint64_t orderSeed) {
  GraphIndex index(graph);
  if (!index.error.empty())
    return index;
  if (orderSeed) {
    index.loop = shuffled(index, index.loop, orderSeed);
    return index;
  }
  StepGraph early = graph;
  early.sumsBeginLate = false;
  GraphIndex ofAll(early);
  index.loop = reorder(ofAll, graph.batch, ofAll.loop, true);
  return index;
}

Planner::Planner(const StepGraph &g, uint64_t orderSeed)
    : graph(g), shuffledLoop(orderSeed != 0), index(ordered(graph, orderSeed)), sweep(index) {
  if (index.error.empty())
    findHeldOver();
}
Planner::~Planner() = default;

// How much work refining a micro-batch may be: in proportion to what compiling so many kernels takes.
namespace {
struct RefineWork {
  size_t kernelPoints = 30'000, leastPoints = 6, mostPoints = 28; // targets: so many kernels of all of them together
  size_t kernelSteps = 150'000, leastSteps = 30, mostSteps = 400; // steps towards one, likewise
  int lastPoints = 6; // more targets at the low end, where the first is refused
  size_t shortLoop = 300; // kernels: then another row of targets between those, refined for itself
  int points(size_t kernels) const { return int(std::clamp(kernelPoints / kernels, leastPoints, mostPoints)); }
  int steps(size_t kernels) const { return int(std::clamp(kernelSteps / kernels, leastSteps, mostSteps)); }
};
constexpr RefineWork kRefine;

// How much work the lower end of a ladder may be (`deepen`): some seconds where loops are short.
struct DeepWork {
  double much = 1.2;          // times the step without repetition: plans that take longer are worth it
  size_t mostKernels = 3'000; // in longer loops too few tries would be left
  size_t kernelTries = 600'000, triesAKernel = 3; // tries of all rungs together, times kernels; short loops are soon searched
  size_t mostRungs = 12;
  int64_t littleMore = 128, hardlyMore = 1024; // parts of the smallest rung's room, see deepenToSmallest
  int lastTimes = 6;          // times as many tries for the smallest rung: on examples/gpt one start in four led to the best that is known
  size_t mostStarts = 6;      // loops that a rung's search begins from
  // Of the smallest rung: storages that are placed in loops that are packed into its room (most of the first hundreds of loops do not fit). A storage takes 10 us
  // where there are 1,400 of them, as on a worker that keeps several micro-batches.
  int64_t placings = 600'000;
  int64_t packingWork = 30'000; // of a loop, beyond the greedy start; more finds hardly more
};
constexpr DeepWork kDeep;
} // namespace

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

// The micro-batch at which sums begin late has an order of its own.
std::vector<int> Planner::inOrder(const std::vector<int> &loop, int64_t b) const {
  bool late = graph.sumsBeginLate && b == graph.batch && !shuffledLoop;
  return late ? reorder(index, b, loop, true) : loop;
}

void Planner::addMicrobatch(int64_t b) {
  if (std::find(done.begin(), done.end(), b) != done.end())
    return;
  done.push_back(b);
  makeSchedules();
  Timeline line(index);
  plainRung(b);
  for (const RematCandidate &c : schedules)
    if (std::vector<int> loop = inOrder(c.loop, b); c.loop != index.loop && line.build(b, loop))
      rungs.push_back({b, c.name, loop, line.peak, predictedSeconds(index, b, loop), nullptr});
}

// Between the plan that keeps everything and the bound, at targets that depend on the graph alone: the plan of the
// target before gives up more, the best schedule within the target fills it, and the best a little above it gives up.
void Planner::refineMicrobatch(int64_t b) {
  if (std::find(refined.begin(), refined.end(), b) != refined.end())
    return;
  refined.push_back(b);
  addMicrobatch(b);
  size_t kernels = index.loop.size();
  Timeline line(index);
  if (std::find(sweep.saved.begin(), sweep.saved.end(), true) == sweep.saved.end() || kernels > kMostRefinedKernels ||
      !line.build(b, index.loop))
    return;
  std::vector<int> given = ladderOf(b), chain = index.loop;
  sortByTime(given);
  int64_t high = line.peak, low = std::min(memoryBound(b), high);
  int points = kRefine.points(kernels), steps = kRefine.steps(kernels);
  int refinements = 0;
  Refiner refiner(index, b);
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
    auto lower = [&](const std::vector<int> &from) { offer(refiner.lowered(from, target, target, steps)); };
    int within = -1, above = -1;
    for (int r : given) {
      if (within < 0 && rungs[r].peakLive <= target)
        within = r;
      if (above < 0 && rungs[r].peakLive <= target + (high - target) / 8)
        above = r;
    }
    if (within >= 0)
      offer(refiner.fill(rungs[within].loop, target));
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
  // From the largest target down; returns the one that is refused.
  auto descend = [&](double between) {
    chain = index.loop;
    for (int i = points - 1; i >= 0; --i) {
      double share = (double(i) + between) / points;
      int64_t target = low + roundDown(int64_t(double(high - low) * share * share));
      if (!attempt(target))
        return target;
    }
    return low - 1;
  };
  int64_t refused = descend(0);
  // How low does it go?
  for (int i = 0; i < std::min(kRefine.lastPoints, points / 3) && reached - refused > std::max<int64_t>(64, (high - low) / 1000); ++i)
    if (int64_t target = refused + (reached - refused) / 2; !attempt(target))
      refused = target;
  if (kernels <= kRefine.shortLoop)
    descend(0.5);
}

// The lower end of the ladder: rungs that none beats in both bytes and time and that compute much again, the largest first. `fastest`: seconds
// of the rung above them, below which no deeper plan counts: what answers a larger budget need not know of them.
std::vector<int> Planner::lowerEnd(int64_t b, double &fastest) const {
  std::vector<int> ladder = ladderOf(b), list;
  sortByBytes(ladder);
  double limit = kDeep.much * predictedSeconds(index, b, index.loop);
  fastest = 1e300;
  for (int r : ladder) {
    if (rungs[r].seconds >= fastest)
      continue;
    fastest = rungs[r].seconds;
    if (fastest <= limit)
      break;
    list.insert(list.begin(), r);
  }
  return list;
}

// Where much is computed again, local search depends on what it gave up first: it is disturbed and done again, from the best of these bytes
// and from what was found for more bytes. The smallest rung, which takes most of the time, is searched only where its room is within
// `arenaBudget`, and what is found may take less than `seconds`.
void Planner::deepen(int64_t b, int64_t arenaBudget, double seconds) {
  auto known = std::find_if(deepened.begin(), deepened.end(), [&](const SmallestSearch &search) { return search.microbatch == b; });
  if (known == deepened.end())
    known = deepened.insert(deepened.end(), deepenToSmallest(b));
  if (known->rung < 0 || (!known->room && smallestRoom(known->rung, arenaBudget) > arenaBudget))
    return;
  if (!known->room)
    findRoom(*known);
  if (known->room > arenaBudget || known->fastest >= seconds)
    return;
  addPacked(*known);
  known->rung = -1;
}

// All rungs of the lower end but the smallest, and what the search of that one begins with.
Planner::SmallestSearch Planner::deepenToSmallest(int64_t b) {
  SmallestSearch smallest{b};
  std::vector<int> lower = lowerEnd(b, smallest.fastest);
  size_t kernels = index.loop.size();
  if (lower.empty() || kernels > kDeep.mostKernels)
    return smallest;
  // Of many rungs some, the smallest among them.
  size_t every = (lower.size() + kDeep.mostRungs - 1) / kDeep.mostRungs;
  std::reverse(lower.begin(), lower.end());
  std::vector<int> some;
  for (size_t i = 0; i < lower.size(); i += every)
    some.insert(some.begin(), lower[i]);
  lower = some;
  // The more is repeated, the more there is to gain.
  double plain = predictedSeconds(index, b, index.loop), all = 0;
  auto weight = [&](int rung) {
    double more = rungs[size_t(rung)].seconds / plain - 1;
    return more * more;
  };
  for (int rung : lower)
    all += weight(rung);
  auto triesOf = [&](int rung) {
    return int(std::min(double(kDeep.kernelTries) / double(kernels) * weight(rung) / all, double(kDeep.triesAKernel * kernels)));
  };
  int steps = kRefine.steps(kernels);
  Timeline line(index);
  Refiner refiner(index, b);
  smallest.known = ladderOf(b);
  for (size_t i = 0; i + 1 < lower.size(); ++i) {
    int64_t target = rungs[lower[i]].peakLive;
    std::vector<int> loop =
        shakenFrom(refiner, startsOf(refiner, lower[i], smallest.above, target, steps), target, triesOf(lower[i]), steps, i, {});
    double seconds = predictedSeconds(index, b, loop);
    if (seconds >= smallest.fastest && seconds < rungs[lower[i]].seconds && line.build(b, loop)) {
      rungs.push_back({b, "searched " + std::to_string(i + 1), loop, line.peak, seconds, nullptr});
      rungs.back().deep = true;
      smallest.known.push_back(int(rungs.size()) - 1);
    }
    smallest.above.push_back(std::move(loop));
  }
  smallest.rung = lower.back();
  smallest.tries = kDeep.lastTimes * triesOf(lower.back());
  return smallest;
}

// Packing the smallest rung well takes a second, so it waits, too.
void Planner::findRoom(SmallestSearch &smallest) {
  smallest.room = smallestRoom(smallest.rung, kAsFewAsPossible);
  // Nothing faster counts than a plan that needs a little more memory. Budgets with room for that plan then need no search of the smallest
  // rung, which takes long, and a larger budget is still never slower. A plan that needs hardly more memory does not count here: it is nearly as slow as the rung.
  double least = 1e300;
  for (int r : smallest.known) {
    int64_t more = rungs[size_t(r)].peakLive - smallest.room;
    if (more > smallest.room / kDeep.hardlyMore && more <= smallest.room / kDeep.littleMore)
      least = std::min(least, rungs[size_t(r)].seconds);
  }
  if (least < 1e300)
    smallest.fastest = std::max(smallest.fastest, least);
}

Planner::Loops Planner::startsOf(Refiner &refiner, int rung, const Loops &above, int64_t target, int steps) const {
  return solve::startsOf(refiner, rungs[size_t(rung)].loop, above, target, steps, kDeep.mostStarts);
}

// Half of the tries are shared out among the starts, the rest goes to the best that comes of them. `serves`: as for Refiner::shake.
std::vector<int> Planner::shakenFrom(Refiner &refiner, const Loops &starts, int64_t target, int tries, int steps, uint64_t seed,
                                     const std::function<Serves(const std::vector<int> &)> &serves) const {
  std::vector<int> best = starts.front();
  double least = predictedSeconds(index, refiner.microbatch, best);
  auto take = [&](std::vector<int> loop) {
    double seconds = predictedSeconds(index, refiner.microbatch, loop);
    if (seconds < least && (!serves || serves(loop) == Serves::Yes))
      least = seconds, best = std::move(loop);
  };
  for (const std::vector<int> &start : starts)
    take(refiner.shake(start, target, tries / 2 / int(starts.size()), steps, seed, serves));
  take(refiner.shake(best, target, tries / 2, steps, seed + 1, serves));
  return best;
}

// Bytes that the smallest plan takes packed, this rung's or another one's: no budget that has a plan has less room. Where they are more than `wanted`,
// they may be fewer than this says.
int64_t Planner::smallestRoom(int rung, int64_t wanted) {
  std::vector<int> ladder = ladderOf(rungs[size_t(rung)].microbatch);
  sortByBytes(ladder);
  int64_t room = bytesOf(rung, wanted);
  for (int r : ladder) {
    if (rungs[size_t(r)].peakLive >= room)
      break;
    room = std::min(room, bytesOf(r, INT64_MAX));
  }
  return room;
}

// Of the smallest rung only what is packed into its room counts (SmallestRung.h). Where the rung itself takes more than what is alive in it, half
// of that may be alive as well, and half is left to packing.
void Planner::addPacked(const SmallestSearch &search) {
  const int64_t b = search.microbatch, alive = rungs[size_t(search.rung)].peakLive;
  // Its place in this micro-batch's ladder does not depend on what was asked before.
  std::vector<int> ladder = ladderOf(b);
  auto seed = uint64_t(std::find(ladder.begin(), ladder.end(), search.rung) - ladder.begin());
  int steps = kRefine.steps(index.loop.size());
  int64_t target = alive + std::max<int64_t>(0, search.room - alive) / 2;
  Refiner refiner(index, b);
  PackedInto packedInto(index, b, search.room, search.fastest, kDeep.placings, kDeep.packingWork);
  shakenFrom(refiner, startsOf(refiner, search.rung, search.above, target, steps), target, search.tries, steps, seed, std::ref(packedInto));
  if (!packedInto.best)
    return;
  rungs.push_back({b, "searched and packed", packedInto.bestLoop, packedInto.best->peakLive, packedInto.best->seconds, packedInto.best});
  const int64_t bytes = packedInto.best->decision.arenaBytes;
  rungs.back().packings = {bytes, bytes, bytes};
  rungs.back().deep = true;
  rungs.back().leastBudget = search.room;
}

std::vector<int> Planner::ladderOf(int64_t b, bool deep, int64_t arenaBudget) const {
  std::vector<int> list;
  for (size_t i = 0; i < rungs.size(); ++i)
    if (rungs[i].microbatch == b && !rungs[i].asked && (deep || !rungs[i].deep) && rungs[i].leastBudget <= arenaBudget)
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

// The plan that computes nothing again, whose ladder may not be needed.
int Planner::plainRung(int64_t b) {
  std::vector<int> loop = inOrder(index.loop, b);
  for (size_t i = 0; i < rungs.size(); ++i)
    if (rungs[i].microbatch == b && !rungs[i].asked && rungs[i].loop == loop)
      return int(i);
  Timeline line(index);
  line.build(b, loop);
  rungs.push_back({b, "none", loop, line.peak, predictedSeconds(index, b, loop), nullptr});
  return int(rungs.size()) - 1;
}

} // namespace cinch::solve
