// Search.cpp: which plan of the ladder answers a budget, and the explanation of a budget that cannot be met.
#include "compiler/solve/Search.h"

#include "compiler/solve/MemoryBound.h"

#include <algorithm>

namespace cinch::solve {

static bool isFree(const SearchOptions &options) {
  return options.strategy.kind == Strategy::Auto || options.strategy.kind == Strategy::Optimal;
}

std::string nearestOf(const std::vector<int64_t> &sizes, int64_t asked) {
  auto above = std::upper_bound(sizes.begin(), sizes.end(), asked);
  std::string text = above == sizes.begin() ? "" : std::to_string(*std::prev(above));
  return above == sizes.end() ? text : text + (text.empty() ? "" : " and ") + std::to_string(*above);
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
  error = "expected a micro-batch that divides the batch of " + std::to_string(graph.batch) +
          (graph.grain > 1 ? " and is a multiple of " + std::to_string(graph.grain) + ", the examples that belong together (grain, groups)" : "") + ", got " +
          std::to_string(options.microbatch) + "; nearest: " + nearestOf(sizes, options.microbatch);
  return {};
}

std::vector<int> Planner::rungsOf(const SearchOptions &options, std::string &error) {
  std::vector<int64_t> sizes = sizesOf(options, error);
  std::vector<int> chosen;
  bool free = isFree(options);
  for (int64_t b : sizes) {
    if (free) {
      addMicrobatch(b);
      std::vector<int> ladder = ladderOf(b, true);
      chosen.insert(chosen.end(), ladder.begin(), ladder.end());
      continue;
    }
    // A named strategy is one schedule a micro-batch.
    std::string name = str(options.strategy);
    std::vector<int> loop = inOrder(schedule(sweep, options.strategy), b);
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
      rungs.push_back({b, name, loop, line.peak, predictedSeconds(index, b, loop), nullptr});
      rungs.back().asked = true;
    }
    chosen.push_back(found);
  }
  return chosen;
}

int64_t Planner::memoryBound(int64_t b) const { return solve::memoryBound(index, b); }

// Values that lie on both sides of the kernel at which the sweep turns, in any order: made by what it needs, read by
// what needs it.
void Planner::findHeldOver() {
  if (sweep.turn >= int(index.loop.size()))
    return;
  int pivot = index.loop[sweep.turn];
  std::vector<char> before(graph.kernels.size(), 0), after(graph.kernels.size(), 0), made(graph.buffers.size(), 0);
  std::vector<int> stack{pivot};
  while (!stack.empty()) {
    int k = stack.back();
    stack.pop_back();
    for (int r : graph.kernels[k].reads)
      if (int from = graph.buffers[r].producer; from >= 0 && index.bornIn[r] == graph.mainLoop() && !before[from] &&
                                                graph.buffers[r].kind == Buffer::Value && from != pivot)
        before[from] = 1, stack.push_back(from);
  }
  after[pivot] = 1;
  for (int k : index.loop) {
    for (int r : graph.kernels[k].reads)
      after[k] |= made[r];
    if (after[k])
      for (int w : graph.kernels[k].writes)
        made[w] = graph.buffers[w].kind == Buffer::Value;
  }
  for (int k : index.loop) {
    if (!before[k] || !index.mayRecompute[k])
      continue;
    std::vector<int> over;
    for (int w : graph.kernels[k].writes)
      for (int reader : index.readers[w])
        if (after[reader] && reader != pivot && graph.inMainLoop(reader)) {
          over.push_back(w);
          break;
        }
    if (!over.empty())
      heldOver.push_back({k, over});
  }
}

// When the turning kernel runs first, each of these kernels either has its values lying in memory or runs again: what
// is dear for its bytes is held, fractions of it, too.
double Planner::secondsBound(int64_t b, std::optional<int64_t> arenaBytes) const {
  double plain = predictedSeconds(index, b, index.loop);
  if (!arenaBytes)
    return plain;
  double room = double(*arenaBytes);
  for (size_t v = 0; v < graph.buffers.size(); ++v)
    if (index.livesThroughLoop(int(v), b))
      room -= double(graph.buffers[v].bytes(b));
  struct Item {
    double bytes, seconds;
  };
  std::vector<Item> items;
  double again = 0;
  for (auto &[kernel, values] : heldOver) {
    Item item{1e-3, graph.kernels[kernel].seconds.at(b)};
    for (int v : values)
      item.bytes += double(graph.buffers[v].bytes(b));
    again += item.seconds;
    items.push_back(item);
  }
  std::sort(items.begin(), items.end(),
            [](const Item &x, const Item &y) { return x.seconds * y.bytes > y.seconds * x.bytes; });
  for (const Item &item : items) {
    double share = item.bytes <= room ? 1 : std::max(0.0, room) / std::max(item.bytes, 1.0);
    again -= share * item.seconds;
    room -= share * item.bytes;
  }
  return plain + std::max(0.0, again) * (1 - 1e-9) * double(graph.batch / b);
}

// The fastest plan of the ladder that fits, of equally fast ones the smaller; -1: none that is faster than what is asked for.
int Planner::fastestWithin(const SearchOptions &options, const std::vector<Size> &sizes, const std::vector<int> &chosen) {
  int best = -1;
  const int64_t room = options.arenaBudget.value_or(INT64_MAX - 1); // what cannot be packed fits nowhere
  auto limit = [&] { return best < 0 ? options.fasterThan : rungs[best].seconds; };
  auto look = [&](std::vector<int> ladder) {
    sortByTime(ladder);
    for (int r : ladder) {
      if (rungs[r].seconds >= limit())
        return;
      if (rungs[r].peakLive <= room && bytesOf(r, room) <= room)
        best = r;
    }
  };
  if (!isFree(options)) {
    look(chosen);
    return best;
  }
  // Where the bounds rule a micro-batch out, its ladder is not needed.
  auto mayWin = [&](const Size &size) { return size.bound <= room && size.seconds < limit(); };
  for (size_t i = 0; i < sizes.size() && best < 0; ++i)
    if (mayWin(sizes[i]))
      look({plainRung(sizes[i].microbatch)});
  for (const Size &size : sizes)
    if (mayWin(size)) {
      addMicrobatch(size.microbatch);
      look(ladderOf(size.microbatch));
      refineMicrobatch(size.microbatch);
      look(ladderOf(size.microbatch));
    }
  const bool deep = options.deep && (best >= 0 || options.fasterThan < SearchOptions().fasterThan);
  if (deep && options.arenaBudget)
    for (const Size &size : sizes)
      for (Gap *gap : mayWin(size) ? gapsAt(size.microbatch, *options.arenaBudget) : std::vector<Gap *>()) {
        look(ladderOf(size.microbatch, true, room)); // what was found of it before
        // The next one is slower, but it may be packed where this one was not.
        while (gap->seconds < limit() && nextInGap(*gap, *options.arenaBudget) >= 0)
          look(ladderOf(size.microbatch, true, room));
      }
  // What does not fit without is refused, whatever was asked before. A micro-batch of which nothing fits yet is searched deeper, too: plans come of
  // it that need fewer bytes.
  if (deep)
    for (const Size &size : sizes) {
      double fastest;
      if (mayWin(size) && !lowerEnd(size.microbatch, fastest).empty() && fastest < limit()) {
        deepen(size.microbatch, room, limit());
        look(ladderOf(size.microbatch, true, room));
      }
    }
  return best;
}

// The smallest plan of the ladder and its bytes, if it is smaller than what is asked for; -1: none is, or none can be packed. `thorough`: nothing fits,
// so it is what the refusal names.
int Planner::smallestOf(const SearchOptions &options, std::vector<Size> sizes, const std::vector<int> &chosen, bool thorough, int64_t &bytes) {
  int smallest = -1;
  bytes = options.smallerThan;
  // All are packed quickly first: where the same bytes are alive, some rungs are easily packed and others not at all. Of these one will do that is packed
  // well: the others could gain what a packing may waste.
  std::vector<int> all;
  auto look = [&](std::vector<int> ladder) {
    sortByBytes(ladder);
    for (int r : ladder) {
      int64_t live = rungs[r].peakLive;
      if (smallest >= 0 && live == rungs[smallest].peakLive ? isPackedWell(graph, bytes, live) : live >= bytes)
        continue;
      all.push_back(r);
      if (int64_t taken = bytesOf(r, INT64_MAX); taken < bytes)
        smallest = r, bytes = taken;
    }
  };
  if (!isFree(options))
    look(chosen), sizes.clear();
  std::stable_sort(sizes.begin(), sizes.end(), [](const Size &x, const Size &y) { return x.bound < y.bound; });
  for (const Size &size : sizes)
    if (size.bound < bytes) {
      if (thorough)
        refineMicrobatch(size.microbatch);
      look(ladderOf(size.microbatch));
    }
  if (!thorough || !options.packsWell)
    return smallest;
  // What is small already goes first: behind it few others may be so much smaller that they are worth the time.
  constexpr int64_t kLeastGain = 512; // a part of the arena
  std::stable_sort(all.begin(), all.end(), [&](int x, int y) { return bytesOf(x, INT64_MAX) < bytesOf(y, INT64_MAX); });
  for (int r : all) {
    int64_t wanted = bytes - bytes / kLeastGain;
    if (rungs[r].peakLive <= wanted && bytesOf(r, wanted) < bytes)
      smallest = r, bytes = bytesOf(r, kAsFewAsPossible);
  }
  if (smallest >= 0)
    bytes = bytesOf(smallest, kAsFewAsPossible);
  return smallest;
}

// The cheapest change that makes it fit: give up the fixed strategy, then the fixed micro-batch, then both. Empty: only a larger
// budget does.
std::string Planner::adviceFor(const SearchOptions &options) {
  std::vector<SearchOptions> relaxed;
  SearchOptions freer = options;
  if (!isFree(options)) {
    freer.strategy = {};
    relaxed.push_back(freer);
  }
  if (options.microbatch > 0) {
    SearchOptions freed = options;
    freed.microbatch = freer.microbatch = 0;
    relaxed.push_back(freed);
    if (!isFree(options))
      relaxed.push_back(freer);
  }
  std::string advice;
  double least = 0;
  for (SearchOptions &o : relaxed) {
    o.deep = false; // only said
    SearchResult other = search(o);
    if (!other.feasible || (!advice.empty() && other.plan.seconds >= least))
      continue;
    least = other.plan.seconds;
    advice.clear();
    if (o.microbatch != options.microbatch)
      advice = "micro-batch " + std::to_string(other.choice.microbatch) + " instead of " + std::to_string(options.microbatch);
    if (o.strategy.kind != options.strategy.kind)
      advice += std::string(advice.empty() ? "" : " and ") + "strategy auto instead of " + str(options.strategy);
  }
  return advice;
}

std::vector<Planner::Size> Planner::sizesByTime(const std::vector<int64_t> &allowed, const SearchOptions &options) const {
  std::vector<Size> sizes;
  for (int64_t b : allowed)
    sizes.push_back({b, memoryBound(b), secondsBound(b, options.arenaBudget)});
  std::stable_sort(sizes.begin(), sizes.end(), [](const Size &x, const Size &y) { return x.seconds < y.seconds; });
  return sizes;
}

double Planner::deeperBound(const SearchOptions &options) {
  double least = options.fasterThan;
  if (!isFree(options) || !options.arenaBudget)
    return least;
  std::string error;
  for (const Size &size : sizesByTime(sizesOf(options, error), options)) {
    if (size.bound > *options.arenaBudget || size.seconds >= options.fasterThan)
      continue;
    addMicrobatch(size.microbatch);
    refineMicrobatch(size.microbatch);
    for (const Gap *gap : gapsAt(size.microbatch, *options.arenaBudget))
      least = std::min(least, gap->seconds);
    if (double fastest; !lowerEnd(size.microbatch, fastest).empty())
      least = std::min(least, fastest);
  }
  return least;
}

SearchResult Planner::search(const SearchOptions &options) {
  SearchResult result;
  std::vector<int> chosen; // of a named strategy
  if (!isFree(options))
    chosen = rungsOf(options, result.error);
  std::vector<int64_t> allowed = sizesOf(options, result.error);
  if (!result.error.empty() || allowed.empty())
    return result;
  result.bound = INT64_MAX;
  const std::vector<Size> sizes = sizesByTime(allowed, options);
  for (const Size &size : sizes)
    result.bound = std::min(result.bound, size.bound);
  result.secondsBound = sizes.front().seconds;
  int best = fastestWithin(options, sizes, chosen);
  if (best < 0 && !options.smallest) {
    result.smallestArena = INT64_MAX;
    return result;
  }
  int smallest = smallestOf(options, sizes, chosen, best < 0, result.smallestArena);
  if (smallest < 0 && options.smallerThan == INT64_MAX) {
    result.error = chosen.empty() ? "no schedule can be packed" : packed(chosen.front()).error;
    return result;
  }
  if (smallest < 0)
    result.smallestArena = INT64_MAX;
  if (best >= 0)
    result.smallestArena = std::min(result.smallestArena, bytesOf(best, options.arenaBudget.value_or(INT64_MAX)));
  if (smallest < 0 && best < 0)
    return result;
  // What a refusal would have named may fit: it was looked for more closely.
  if (best < 0 && options.arenaBudget && result.smallestArena <= *options.arenaBudget && rungs[smallest].seconds < options.fasterThan)
    best = smallest;
  result.feasible = best >= 0;
  int shown = best >= 0 ? best : smallest;
  result.plan = packed(shown);
  result.choice = {rungs[shown].microbatch, rungs[shown].loop};
  result.name = rungs[shown].name;
  if (result.feasible) {
    if (options.ship)
      packForShipping(result);
    return result;
  }
  result.holders = alive(graph, result.plan, result.plan.peakRun);
  if (options.advises)
    result.advice = adviceFor(options);
  return result;
}

void Planner::packForShipping(SearchResult &result) const {
  if (!result.feasible || isPackedWell(graph, result.plan))
    return;
  Plan plan = evaluateWell(index, result.choice);
  if (plan.error.empty() && plan.decision.arenaBytes < result.plan.decision.arenaBytes)
    result.plan = std::move(plan);
}

std::vector<LadderSchedule> Planner::ladder(const SearchOptions &options) {
  std::string error;
  // Micro-batches are refined that may need fewer bytes than any plan of those before them.
  std::vector<std::pair<int64_t, int64_t>> sizes; // what is proven, micro-batch
  if (isFree(options))
    for (int64_t b : sizesOf(options, error))
      sizes.push_back({memoryBound(b), b});
  std::sort(sizes.begin(), sizes.end());
  int64_t least = INT64_MAX;
  for (auto [bytes, b] : sizes)
    if (bytes < least) {
      refineMicrobatch(b);
      for (int r : ladderOf(b))
        least = std::min(least, rungs[size_t(r)].peakLive);
    }
  std::vector<int> order = rungsOf(options, error);
  sortByBytes(order);
  std::vector<LadderSchedule> points;
  double fastest = 0;
  for (int r : order) {
    if (!points.empty() && rungs[r].seconds >= fastest)
      continue;
    fastest = rungs[r].seconds;
    points.push_back({{-1, rungs[r].peakLive, rungs[r].seconds, rungs[r].microbatch, rungs[r].name}, rungs[r].loop});
    // Only plans already packed know their arena; the others say what they need at least. A plan that is made only for budgets with more room than it
    // takes, is shown with that room.
    points.back().point.arenaBytes = std::max(rungs[r].plan ? rungs[r].plan->decision.arenaBytes : rungs[r].peakLive, rungs[r].leastBudget);
  }
  return points;
}

std::vector<LadderPoint> pointsOf(std::vector<LadderSchedule> schedules) {
  std::vector<LadderPoint> points;
  for (LadderSchedule &schedule : schedules)
    points.push_back(std::move(schedule.point));
  return points;
}

std::vector<LadderPoint> Planner::tradeOff(const SearchOptions &options) { return pointsOf(ladder(options)); }

} // namespace cinch::solve
