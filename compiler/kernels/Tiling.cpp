// Tiling.cpp: the built-in rules for a product's tile and blocks, and the measured ones beside them.
#include "compiler/kernels/ContractPlan.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cinch::kernels {

// Cycles, roughly, of one step in k of a tile: FMAs and loads go to two ports each; fewer than eight chains wait for
// one another.
static double costOfStep(const ContractPlan &plan, int64_t rows, int64_t vectors) {
  double fmas = double(rows * vectors), loads = double(rows + vectors);
  double load = plan.dots ? 1.0 : 0.9; // a word of A is an instruction of its own
  return std::max({fmas, loads * load, 8.0}) + 0.5;
}

static double costOfTile(const ContractPlan &plan, int mr, int nv) {
  int64_t nr = int64_t(nv) * plan.lanes;
  int64_t fullM = plan.m.size / mr, edgeM = plan.m.size % mr;
  int64_t fullN = plan.n.size / nr, edgeN = (plan.n.size % nr + plan.lanes - 1) / plan.lanes;
  double cost = 0;
  cost += double(fullM * fullN) * costOfStep(plan, mr, nv);
  if (edgeM)
    cost += double(fullN) * costOfStep(plan, edgeM, nv);
  if (edgeN)
    cost += double(fullM) * costOfStep(plan, mr, edgeN);
  if (edgeM && edgeN)
    cost += costOfStep(plan, edgeM, edgeN);
  return cost;
}

// Accumulators, one step's vectors of B and one broadcast fit the registers with one to spare: more spills.
static int mostChains(bool manyRegisters) { return manyRegisters ? 28 : 12; }
static bool hasTwoChains(const ContractPlan &plan) { return plan.pairs && !plan.dots; } // an output, at once

using Tiles = std::vector<std::pair<int, int>>; // rows, vectors
static const Tiles &tilesOf(const ContractPlan &plan) {
  static const Tiles wide{{8, 3}, {14, 2}, {12, 2}, {8, 2}, {6, 4}, {4, 6}, {2, 12}, {1, 14}, {28, 1}, {16, 1}, {10, 2}};
  static const Tiles narrow{{6, 2}, {4, 3}, {4, 2}, {5, 2}, {12, 1}, {8, 1}, {2, 6}, {1, 12}};
  static const Tiles widePairs{{4, 3}, {6, 2}, {12, 1}, {2, 6}, {1, 12}, {8, 1}};
  static const Tiles narrowPairs{{3, 2}, {6, 1}, {2, 3}, {4, 1}, {1, 6}};
  return hasTwoChains(plan) ? (plan.manyRegisters ? widePairs : narrowPairs) : plan.manyRegisters ? wide : narrow;
}

// As much of a tile as there are outputs.
static std::pair<int, int> clipped(const ContractPlan &plan, std::pair<int, int> tile) {
  return {int(std::min<int64_t>(tile.first, plan.m.size)),
          int(std::min<int64_t>(tile.second, (plan.n.size + plan.lanes - 1) / plan.lanes))};
}

static std::pair<int, int> bestTile(const ContractPlan &plan) {
  std::pair<int, int> best;
  double least = -1;
  for (auto &tile : tilesOf(plan)) {
    auto [m, v] = clipped(plan, tile);
    double cost = costOfTile(plan, m, v);
    if (least < 0 || cost < least * 0.98)
      least = cost, best = {m, v};
  }
  return best;
}

double cyclesOfRows(const ContractPlan &plan) {
  auto [rows, vectors] = bestTile(plan);
  return costOfTile(plan, rows, vectors) / double(plan.m.size);
}

// A block of A stays in the second-level cache beside one panel of B; the block of B comes from the third level and is as wide as scratch
// may be, for A is packed once for every block of B. A band is soon copied again: beside it B stays in the second level, too.
static Tiling builtInTiling(const ContractPlan &plan) {
  bool many = plan.manyRegisters;
  Tiling tiling{0, 0, many ? 512 : 384, 128 * 1024, (plan.bands != Bands::No ? 512 : many ? 1280 : 1024) * 1024};
  if (plan.rowsInTile) {
    tiling.rows = int(plan.m.size);
    tiling.vectors = int(std::min<int64_t>((plan.n.size + plan.lanes - 1) / plan.lanes, mostChains(many) / tiling.rows));
  } else {
    std::tie(tiling.rows, tiling.vectors) = bestTile(plan);
  }
  return tiling;
}

static const Tiling *measuredTiling(const ContractSpec &spec, const TargetInfo &target) {
  if (!target.tiles)
    return nullptr;
  auto found = target.tiles->tilings.find(shapeText(spec, target));
  return found == target.tiles->tilings.end() ? nullptr : &found->second;
}

void chooseTiling(ContractPlan &plan, const ContractSpec &spec, const TargetInfo &target) {
  plan.tiling = builtInTiling(plan);
  const Tiling *measured = measuredTiling(spec, target);
  if (!measured)
    return;
  auto [rows, vectors] = clipped(plan, {measured->rows, measured->vectors});
  if (!plan.rowsInTile && rows * vectors * (hasTwoChains(plan) ? 2 : 1) <= mostChains(plan.manyRegisters))
    plan.tiling.rows = rows, plan.tiling.vectors = vectors;
  plan.tiling.steps = measured->steps, plan.tiling.near = measured->near, plan.tiling.far = measured->far;
}

bool tilingOf(const ContractSpec &spec, const TargetInfo &target, TilingChoice &choice) {
  ContractPlan plan = planContract(spec, target);
  if (plan.nothing || plan.overLanes)
    return false;
  choice.tiling = plan.tiling;
  choice.tiles.clear();
  if (!plan.rowsInTile)
    for (auto &tile : tilesOf(plan))
      if (auto part = clipped(plan, tile); std::find(choice.tiles.begin(), choice.tiles.end(), part) == choice.tiles.end())
        choice.tiles.push_back(part);
  return true;
}

bool isTiling(const Tiling &tiling, const TargetInfo &target) {
  constexpr int64_t kMost = int64_t(1) << 30;
  constexpr int64_t kFewestSteps = 64; // no block of k is shorter, where there are several
  return tiling.rows >= 1 && tiling.vectors >= 1 && int64_t(tiling.rows) * tiling.vectors <= mostChains(target.lanes >= 16) &&
         tiling.steps >= kFewestSteps && tiling.steps <= kMost && tiling.near >= 1 && tiling.near <= kMost && tiling.far >= 1 && tiling.far <= kMost;
}

std::string shapeText(const ContractSpec &spec, const TargetInfo &target) {
  static const char *names[] = {"f32", "f64", "i32", "bool", "bf16"};
  std::string text = std::to_string(target.lanes) + (target.dots ? " dots" : "") + (spec.pairs ? " pairs" + std::to_string(spec.anew) : "") +
                     (spec.rounds ? " rounds" : "") + (spec.accumulate ? " adds" : "") +
                     (spec.grain > 0 ? " grain " + std::to_string(spec.grain) : "");
  auto list = [&](const char *name, const std::vector<int64_t> &numbers) {
    if (!numbers.empty())
      text += std::string(" ") + name;
    for (size_t i = 0; i < numbers.size(); ++i)
      text += (i ? "," : " ") + std::to_string(numbers[i]);
  };
  list("batch", spec.batch);
  list("m", spec.m);
  list("n", spec.n);
  list("k", spec.k);
  for (auto [name, view] : {std::pair{"A", &spec.a}, {"B", &spec.b}, {"C", &spec.c}})
    list((std::string(name) + " " + names[size_t(view->elem)]).c_str(), view->strides);
  for (const Bound &bound : spec.bounds) {
    list("bound", {bound.offset, bound.size});
    list("by", bound.strides);
  }
  return text;
}

} // namespace cinch::kernels
