// Tiling.cpp: the built-in rules for a product's tile and blocks, and the measured ones beside them.
#include "compiler/kernels/ContractPlan.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cinch::kernels {

// Cycles, roughly, of one step in k of a tile: FMAs and loads go to two ports each; fewer than eight chains wait for
// one another. Of AMX, of one block of 32: an instruction takes 16 cycles and its result comes after 52, a register is loaded in 8.
static double costOfStep(const ContractPlan &plan, int64_t rows, int64_t vectors) {
  if (plan.amx) {
    int64_t squares = (rows + 15) / 16;
    return std::max({16.0 * double(squares * vectors), 8.0 * double(squares + vectors), 52.0}) + 4;
  }
  double fmas = double(rows * vectors), loads = double(rows + vectors);
  return std::max({fmas, loads * (plan.dots ? 1.0 : 0.9), 8.0}) + 0.5;
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

// An A that runs along m is packed step by step, into all panels at once, and long sums of it are better cut into short blocks: the panels of both
// sides then stay in the second-level cache until they are read (measured on Emerald Rapids, 14 gradients of weights: 0.99 to 1.09 times as fast as
// with long blocks by AVX-512, 1.00 to 1.05 times by AVX2; a step of an LSTM 1.02 times).
static int64_t stepsAtATime(const ContractPlan &plan) {
  constexpr int64_t kShort = 192;
  const int64_t usual = plan.manyRegisters ? 512 : 384, longSum = plan.manyRegisters ? 768 : 384;
  const bool isPackedByColumns = plan.m.a == 1 && plan.k.a != 1 && plan.bounds.empty() && plan.bands == Bands::No && !plan.pairs;
  return isPackedByColumns && plan.k.size * countOf(plan.outerK) > longSum ? kShort : usual;
}

// What reading and writing C adds to each step, where the reduction is short: rows of C that lie a multiple of half a page apart share sets of the
// first cache, and more than four of them in one tile wait for each other (measured on Zen 5: some 32 cycles a row, of AVX2 and AVX-512 alike).
// Where they lie pages apart in a large C, and the sums are shorter still, a tile takes as long as C does: 17 cycles a row and 8 a line (measured there,
// of tiles of 2 x 8 to 14 x 2 vectors and of 2 x 4 to 6 x 2 shorter ones). One row alone reads all of B for itself.
static double costOfRowsApart(const ContractPlan &plan, int mr, int nv) {
  constexpr int64_t kApart = 2048, kRows = 4, kFmas = 64, kPage = 4096, kLargeC = 4 << 20, kLine = 64;
  const int64_t bytes = bytesOf(plan.c.elem), row = plan.m.c * bytes;
  if (plan.amx || !plan.bounds.empty() || !plan.directC || row % kApart)
    return 0;
  const double steps = double(std::min<int64_t>(plan.k.size * countOf(plan.outerK), stepsAtATime(plan)));
  const double tiles = double(plan.m.size) / mr * double(plan.n.size) / double(int64_t(nv) * plan.lanes);
  if (steps <= 24 && row % kPage == 0 && plan.m.size * row >= kLargeC) {
    const double computed = costOfStep(plan, mr, nv) * steps, lines = double(mr * nv * plan.lanes * bytes) / kLine;
    return tiles * (mr == 1 ? computed : std::max(0.0, 34.0 * mr + 16.0 * lines - computed)) / steps;
  }
  if (steps > 128 || mr <= kRows)
    return 0;
  return tiles * double(kFmas * (mr - kRows)) / steps;
}

// Accumulators, one step's vectors of B and one broadcast fit the registers with one to spare: more spills.
static int mostChains(bool manyRegisters) { return manyRegisters ? 28 : 12; }
static bool hasTwoChains(const ContractPlan &plan) { return plan.pairs && !plan.dots && !plan.amx; } // an output, at once
static bool hasSums(const ContractPlan &plan) { return plan.dots && plan.hasWords(); } // beside its two chains
constexpr int kMostSums = 10;
static bool fitsRegisters(const ContractPlan &plan, int64_t outputs) {
  return hasSums(plan) ? outputs <= kMostSums : outputs * (hasTwoChains(plan) ? 2 : 1) <= mostChains(plan.manyRegisters);
}
static constexpr int kMostSquares = 4; // of 16 rows and one vector, with AMX: the other half of the registers holds operands
static bool fitsAmx(int64_t rows, int64_t vectors) { return rows % 16 == 0 && rows / 16 * vectors <= kMostSquares; }

using Tiles = std::vector<std::pair<int, int>>; // rows, vectors
static const Tiles &tilesOf(const ContractPlan &plan) {
  static const Tiles wide{{8, 3}, {14, 2}, {12, 2}, {8, 2}, {6, 4}, {4, 6}, {2, 8}, {1, 14}, {28, 1}, {16, 1}, {10, 2}};
  static const Tiles narrow{{6, 2}, {4, 3}, {4, 2}, {5, 2}, {12, 1}, {8, 1}, {2, 4}, {1, 12}};
  static const Tiles widePairs{{4, 3}, {6, 2}, {12, 1}, {2, 6}, {1, 12}, {8, 1}};
  static const Tiles narrowPairs{{3, 2}, {6, 1}, {2, 3}, {4, 1}, {1, 6}};
  static const Tiles words{{4, 2}, {5, 2}, {3, 3}, {10, 1}, {8, 1}, {2, 5}, {1, 10}};
  static const Tiles squares{{32, 2}, {16, 4}, {64, 1}, {16, 3}, {48, 1}, {16, 2}, {32, 1}, {16, 1}};
  // CPUs that prefer few loads: f32 1.01 to 1.04 times as fast (measured on Sapphire and Emerald Rapids, 1024^3 and layers of GPTs). Convolutions
  // are not, some layers of a ResNet take 1.12 times as long.
  static const Tiles wideFewLoads{{6, 4}, {8, 3}, {14, 2}, {12, 2}, {8, 2}, {4, 6}, {2, 8}, {1, 14}, {28, 1}, {16, 1}, {10, 2}};
  const bool prefersFewLoads = plan.prefersFewLoads && plan.bands == Bands::No && plan.bounds.empty();
  if (plan.amx)
    return squares;
  if (hasSums(plan))
    return words;
  return hasTwoChains(plan) ? (plan.manyRegisters ? widePairs : narrowPairs) : plan.manyRegisters ? (prefersFewLoads ? wideFewLoads : wide) : narrow;
}

// As much of a tile as there are outputs.
static std::pair<int, int> clipped(const ContractPlan &plan, std::pair<int, int> tile) {
  int64_t rows = plan.amx ? solve::roundUp(plan.m.size, 16) : plan.m.size;
  return {int(std::min<int64_t>(tile.first, rows)),
          int(std::min<int64_t>(tile.second, (plan.n.size + plan.lanes - 1) / plan.lanes))};
}

// Few rows of A over a B that is far away and read where it lies: what counts is how B arrives. Each step reads some lines in another page, and two
// lines that follow each other are fetched as one (measured on Emerald Rapids, of 1 to 12 rows: two lines a step 1.1 to 1.4 times as fast as three and more
// where vectors have 16 elements; where they have eight, one line and a half, or two under one or two rows, 1.2 to 1.4 times as fast as one).
static bool isFarAndReadOnce(const ContractPlan &plan) {
  constexpr int64_t kFar = 1 << 20, kPage = 4096, kWideRows = 14, kNarrowRows = 12;
  const int64_t row = plan.k.b * plan.bytes;
  return !plan.pairs && plan.bounds.empty() && plan.bands == Bands::No && plan.outerK.empty() && plan.n.b == 1 && row >= kPage && plan.k.size * row > kFar &&
         plan.m.size * countOf(plan.outerM) <= (plan.manyRegisters ? kWideRows : kNarrowRows);
}

static std::pair<int, int> bestTile(const ContractPlan &plan) {
  if (isFarAndReadOnce(plan))
    return clipped(plan, plan.manyRegisters ? std::pair{14, 2} : plan.m.size > 2 ? std::pair{4, 3} : std::pair{2, 4});
  std::pair<int, int> best;
  double least = -1;
  for (auto &tile : tilesOf(plan)) {
    auto [m, v] = clipped(plan, tile);
    double cost = costOfTile(plan, m, v) + costOfRowsApart(plan, m, v);
    if (least < 0 || cost < least * 0.98)
      least = cost, best = {m, v};
  }
  return best;
}

// Both ways have the same bits. AMX takes whole blocks of 32 and squares of 16 x 16, however little of them is asked for, and rows of A are packed for
// it. Two FMAs begin in each cycle, and each block ends with two additions an output.
bool isQuickerByAmx(ContractPlan plan) {
  constexpr double kPackedRow = 4; // cycles of a block
  const int64_t run = plan.runLength;
  if (run <= 1)
    return false;
  const double blocks = double((run + kPairBlock - 1) / kPairBlock);
  auto cycles = [&](bool amx) {
    plan.amx = amx, plan.dots = false;
    auto [rows, vectors] = bestTile(plan);
    return costOfTile(plan, rows, vectors) * (amx ? blocks : 0.5 * double(run) + blocks);
  };
  const double packing = plan.bands == Bands::No ? kPackedRow * blocks * double(plan.m.size) : 0;
  return cycles(true) + packing < cycles(false);
}

double cyclesOfRows(const ContractPlan &plan) {
  auto [rows, vectors] = bestTile(plan);
  return costOfTile(plan, rows, vectors) / double(plan.m.size);
}

// All columns of C under some vectors of some rows of places. Vectors of the image, the elements of B for all of their lanes and one that is
// read share the registers with the chains.
double choosePlanarTile(ContractPlan &plan) {
  int64_t vectors = (plan.m.size + plan.lanes - 1) / plan.lanes, height = plan.band.height, columns = plan.n.size;
  int64_t most = std::min<int64_t>(mostChains(plan.manyRegisters), (plan.manyRegisters ? 32 : 16) - 1 - columns);
  double least = -1;
  auto cyclesOf = [&](int64_t rows, int64_t wide) {
    double tiles = double(vectors / wide) * costOfStep(plan, columns, rows * wide);
    return vectors % wide ? tiles + costOfStep(plan, columns, rows * (vectors % wide)) : tiles;
  };
  for (int64_t wide = 1; wide <= vectors && wide * columns <= most; ++wide)
    for (int64_t rows = 1; rows <= height && rows * wide * columns <= most; ++rows) {
      double cycles = (double(height / rows) * cyclesOf(rows, wide) + double(height % rows) * cyclesOf(1, wide)) / double(height);
      if (least >= 0 && cycles >= least * 0.98)
        continue;
      least = cycles, plan.nv = int(wide), plan.band.rowsInTile = rows;
    }
  return least / double(plan.m.size);
}

// Places of a convolution whose whole sum is at most so long: it is one block of k, so that C, which is much larger than a band, is written once and not
// read. Nine taps of 128 channels under 128 columns, the longest ones, find room in a second-level cache of 1 MiB beside the band (measured on Emerald
// Rapids: layers of 64 and 128 channels 1.02 to 1.14 times as fast, of 256 channels 0.9 times, which are therefore cut as before).
constexpr int64_t kShortOverBands = 9 * 128;
static bool isShortOverBands(const ContractPlan &plan) {
  return plan.manyRegisters && !plan.pairs && plan.bands == Bands::OfM && plan.k.size * countOf(plan.outerK) <= kShortOverBands;
}

// A block of A stays in the second-level cache beside one panel of B; the block of B comes from the third level and is as wide as scratch
// may be, for A is packed once for every block of B. A band is soon copied again: beside it B stays in the second level, too. With AMX all rows of A
// shall find room in the second level (`keepRowsOfA`), so blocks of k are short (measured: 1.13 times as fast as 1024 steps, though C is read more often).
static Tiling builtInTiling(const ContractPlan &plan) {
  bool many = plan.manyRegisters;
  constexpr int64_t kStepsByAmx = 384, kStepsOfOthers = 1024;
  const int64_t steps = !plan.amx ? stepsAtATime(plan) : plan.bounds.empty() && !plan.grained ? kStepsByAmx : kStepsOfOthers;
  Tiling tiling{0, 0, steps, 128 * 1024, (plan.bands != Bands::No ? 512 : many ? 1280 : 1024) * 1024};
  if (isShortOverBands(plan))
    tiling.steps = kShortOverBands, tiling.far = 704 * 1024;
  if (plan.bands == Bands::Planar) {
    tiling.rows = int(plan.m.size), tiling.vectors = plan.nv;
  } else if (plan.rowsInTile) {
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
  if (!measured || plan.bands == Bands::Planar)
    return;
  auto [rows, vectors] = clipped(plan, {measured->rows, measured->vectors});
  bool fits = plan.amx ? fitsAmx(rows, vectors) : fitsRegisters(plan, rows * vectors);
  if (!plan.rowsInTile && fits)
    plan.tiling.rows = rows, plan.tiling.vectors = vectors;
  plan.tiling.steps = measured->steps, plan.tiling.near = measured->near, plan.tiling.far = measured->far;
}

bool tilingOf(const ContractSpec &spec, const TargetInfo &target, TilingChoice &choice) {
  ContractPlan plan = planContract(spec, target);
  if (plan.nothing || plan.overLanes || plan.bands == Bands::Planar)
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
  bool fits = int64_t(tiling.rows) * tiling.vectors <= mostChains(target.lanes >= 16) || (target.amx && fitsAmx(tiling.rows, tiling.vectors));
  return tiling.rows >= 1 && tiling.vectors >= 1 && fits &&
         tiling.steps >= kFewestSteps && tiling.steps <= kMost && tiling.near >= 1 && tiling.near <= kMost && tiling.far >= 1 && tiling.far <= kMost;
}

std::string shapeText(const ContractSpec &spec, const TargetInfo &target) {
  static const char *names[] = {"f32", "f64", "i32", "bool", "bf16"};
  std::string text = std::to_string(target.lanes) + (target.dots ? " dots" : "") + (target.amx ? " amx" : "") + (spec.pairs ? " pairs" + std::to_string(spec.anew) : "") +
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
