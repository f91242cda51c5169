// ContractOutsidePlan.cpp: which stretches of k a tile may leave out because its part of A lies outside of the image, and whether rows of
// tiles are one place in many examples, which all lie on the same side of every bound.
#include "compiler/kernels/ContractPlan.h"

#include <algorithm>
#include <iterator>

namespace cinch::kernels {

static int64_t ContractDim::*const kBounds[] = {&ContractDim::bound0, &ContractDim::bound1};

// Steps of so many that lie inside, from `place` on, `stride` apart.
static int64_t stepsInside(int64_t place, int64_t stride, int64_t steps, int64_t size) {
  if (stride < 0)
    place += (steps - 1) * stride, stride = -stride;
  auto before = [&](int64_t end) { return end <= place ? 0 : std::min(steps, (end - place + stride - 1) / stride); };
  return before(size) - before(0);
}

// Of all pairs of an output and a stretch of k, those that are not left out. Each dim moves along one bound at most. The longest one is not walked: a
// wide image has many places, and each of them may have as many taps.
static double shareInsideOf(const ContractPlan &plan, size_t bound, const ContractDims &ofK) {
  ContractDims moving;
  for (const ContractDims *dims : {&plan.batch, &plan.outerM, &ofK})
    std::copy_if(dims->begin(), dims->end(), std::back_inserter(moving), [&](const ContractDim &dim) { return dim.*kBounds[bound] != 0; });
  const int64_t size = plan.bounds[bound].size;
  std::vector<int64_t> places{plan.bounds[bound].offset};
  if (moving.empty())
    return places[0] >= 0 && places[0] < size;
  std::iter_swap(std::max_element(moving.begin(), moving.end(), [](const ContractDim &x, const ContractDim &y) { return x.size < y.size; }), moving.end() - 1);
  const ContractDim longest = moving.back();
  moving.pop_back();
  for (const ContractDim &dim : moving) {
    std::vector<int64_t> moved;
    for (int64_t place : places)
      for (int64_t step = 0; step < dim.size; ++step)
        moved.push_back(place + step * (dim.*kBounds[bound]));
    places = std::move(moved);
  }
  int64_t inside = 0;
  for (int64_t place : places)
    inside += stepsInside(place, longest.*kBounds[bound], longest.size, size);
  return double(inside) / (double(places.size()) * double(longest.size));
}

static double shareInside(const ContractPlan &plan) {
  double share = 1;
  for (size_t i = 0; i < plan.bounds.size(); ++i)
    if (plan.skips[i])
      share *= shareInsideOf(plan, i, plan.outerK);
  return share;
}

void chooseSkips(ContractPlan &plan) {
  plan.skips[0] = plan.skips[1] = false;
  if (plan.pairs || plan.rounds || plan.overLanes || plan.rowsInTile || plan.outerK.empty() || plan.bands == Bands::Planar)
    return;
  for (int i = 0; i < int(plan.bounds.size()); ++i) {
    auto moves = [&](const ContractDim &dim) { return dim.*kBounds[i] != 0; };
    plan.skips[i] = plan.bands != Bands::No ? i == plan.band.rowBound
                                            : !moves(plan.k) && std::none_of(plan.rows.begin(), plan.rows.end(), moves);
  }
  // Each element of B is looked at once more, and each stretch of k asked where it lies.
  constexpr double kRows = 8, kSteps = 4;
  double outside = 1 - shareInside(plan), rows = double(plan.m.size * countOf(plan.outerM));
  if (outside * rows < kRows || plan.k.size < kSteps)
    plan.skips[0] = plan.skips[1] = false;
}

// Each bound goes with one dim of k at most, and the rows of a tile with none.
void chooseSpares(ContractPlan &plan) {
  constexpr double kWorth = 0.97;
  if (plan.pairs || plan.rounds || plan.grained || plan.overLanes || plan.bands != Bands::No || plan.bounds.empty() || plan.outerK.empty() ||
      plan.rows.size() != 1 || plan.rows[0].isBounded() || plan.rows[0].a != 1 || plan.outerK.front().isBounded())
    return;
  double inside = 1;
  for (size_t i = 0; i < plan.bounds.size(); ++i) {
    ContractDims places = plan.outerK;
    places.push_back(plan.k);
    int moving = 0;
    for (const ContractDim &dim : places) {
      moving += dim.*kBounds[i] != 0;
      if (dim.*kBounds[i] < 0 || (dim.bound0 && dim.bound1))
        return;
    }
    if (moving > 1)
      return;
    inside *= shareInsideOf(plan, i, places);
  }
  plan.sparesPlaces = inside < kWorth;
}

bool formExamples(ContractPlan &plan, ContractDims m, ContractDims n, ContractDims k) {
  constexpr int64_t kFewExamples = 4;
  if (plan.pairs || plan.rounds || plan.grained || k.empty() || k.back().isBounded() || k.back().a != 1 || k.back().size < plan.lanes)
    return false;
  auto take = [](ContractDims &dims, ContractDims::iterator at) {
    ContractDim taken = *at;
    dims.erase(at);
    dims.erase(std::remove_if(dims.begin(), dims.end(), [](const ContractDim &dim) { return dim.size == 1; }), dims.end());
    return taken;
  };
  auto longer = [](const ContractDim &x, const ContractDim &y) {
    return (x.isBounded() ? 0 : x.size) < (y.isBounded() ? 0 : y.size);
  };
  auto examples = std::max_element(m.begin(), m.end(), longer);
  if (examples == m.end() || examples->isBounded() || examples->size < kFewExamples)
    return false;
  plan.m = take(m, examples);
  plan.rows = {plan.m};
  plan.outerM = m;
  plan.k = take(k, k.end() - 1);
  plan.outerK = k;
  plan.n = takeInner(n, /*contiguousInC=*/true);
  plan.outerN = n;
  return true;
}

// Cycles of a step in k for each row. What lies outside is copied as zeros; a band holds each element once, not once a tap.
static double cyclesOf(ContractPlan plan) {
  chooseSkips(plan);
  double vector = 3, run = 8; // cycles of copying a vector, of beginning a stretch
  double copying = (double(plan.k.size) / plan.lanes * vector + run) / double(plan.k.size);
  if (plan.bands != Bands::No)
    copying /= double(countOf(plan.outerK));
  return cyclesOfRows(plan) * double(countOf(plan.outerN)) * shareInside(plan) + copying;
}

bool takesExamples(const ContractPlan &otherwise, const ContractPlan &examples) {
  constexpr double kWorth = 0.97; // rows of tiles lie apart in C
  return cyclesOf(examples) < kWorth * cyclesOf(otherwise);
}

// Turning an element of the image, and storing one of C alone.
bool takesPlanar(const ContractPlan &otherwise, const ContractPlan &planar) {
  constexpr double kTurn = 0.6, kStore = 2;
  ContractPlan chosen = planar;
  double taps = double(countOf(planar.outerK)), steps = taps * double(planar.k.size);
  double stores = planar.m.c == 1 ? 0 : kStore * double(planar.n.size) / steps;
  return choosePlanarTile(chosen) + kTurn / taps + stores < cyclesOf(otherwise);
}

} // namespace cinch::kernels
