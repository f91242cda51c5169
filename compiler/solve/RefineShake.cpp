// RefineShake.cpp: iterated local search: a loop is disturbed, brought back within its bytes, and kept if it is faster or hardly slower.
//
// `shrink` gives up what frees most for least time at the moment that is too full, one value after the other, and `fill` takes back what fits.
// Where little fits, what the first moves give up settles what the later ones can do; another start leads elsewhere.
#include "compiler/solve/LoopCopies.h"
#include "compiler/solve/Random.h"
#include "compiler/solve/Refine.h"
#include "compiler/solve/Reorder.h"

namespace cinch::solve {
namespace {

struct ShakeSizes {
  int64_t most = 3;     // single repetitions that are held instead, at once
  int64_t stretch = 3;  // or some of a stretch of them: up to such a part of all
  double lower = 0.2;   // or the plan is first brought this far below its bytes; mostly less far
  double slower = 0.02; // of the time repeated: how much slower a loop may be to go on from it, in the mean and at first
};
constexpr ShakeSizes kSizes;

// Places of repetitions, of so many.
std::vector<size_t> someOf(size_t count, Random &random) {
  std::vector<size_t> chosen;
  int64_t n = int64_t(count);
  if (random.below(2)) {
    for (int64_t left = 1 + random.below(kSizes.most); n && left > 0; --left)
      chosen.push_back(size_t(random.below(n)));
    return chosen;
  }
  int64_t from = random.below(n), to = std::min(n, from + 2 + random.below(n / kSizes.stretch + 1)), quarters = 1 + random.below(4);
  for (int64_t i = from; i < to; ++i)
    if (random.below(4) < quarters)
      chosen.push_back(size_t(i));
  return chosen;
}

// Between 0 and 1, mostly small.
double smallShare(Random &random, int power) {
  double share = double(random.below(1000)) / 1000, result = share;
  while (--power)
    result *= share;
  return result;
}

} // namespace

Refiner::Refiner(const GraphIndex &index, int64_t b)
    : index(index), microbatch(b), copies(std::make_unique<LoopCopies>(index, b)), longer(std::make_unique<LoopCopies>(index, b)),
      reordered(std::make_unique<Reorderer>(index, b)) {}
Refiner::~Refiner() = default;

Refiner::Loop Refiner::lowered(Loop loop, int64_t low, int64_t target, int steps) {
  loop = shrink(std::move(loop), low, steps);
  return loop.empty() ? loop : fill((*reordered)(loop, false, 2), target);
}

Refiner::Loop Refiner::shake(Loop loop, int64_t target, int tries, int steps, uint64_t seed, const std::function<Serves(const Loop &)> &serves) {
  Random random = Random::seeded(seed);
  double plain = predictedSeconds(index, microbatch, index.loop), now = predictedSeconds(index, microbatch, loop), least = now;
  Loop best = loop;
  for (int i = 0; i < tries && least > plain; ++i) {
    bool lower = random.below(3) == 0;
    int64_t first = target - (lower ? int64_t(double(target) * kSizes.lower * smallShare(random, 2)) : 0);
    Loop next = lowered(lower ? loop : withHeld(loop, [&](size_t count) { return someOf(count, random); }), first, target, steps);
    if (next.empty())
      continue;
    double seconds = predictedSeconds(index, microbatch, next);
    const Serves answer = seconds < least && serves ? serves(next) : Serves::Yes;
    if (answer == Serves::NoneWill)
      break;
    if (answer == Serves::No)
      continue;
    double cooler = 1 - double(i) / tries;
    if (seconds < now + 4 * smallShare(random, 3) * kSizes.slower * cooler * (least - plain))
      now = seconds, loop = next;
    if (seconds < least)
      least = seconds, best = std::move(next);
  }
  return best;
}

} // namespace cinch::solve
