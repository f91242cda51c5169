// ContractBlocks.cpp: the blocks that a contraction is cut into, what of A and B is packed for them, and what is fetched ahead.
#include "compiler/kernels/ContractPlan.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>

namespace cinch::kernels {

using solve::roundUp;

static int64_t lengthOfBlocks(ContractPlan &plan, int64_t longest) {
  // Pairs: whole runs, or parts of a run in one stretch that end with a block.
  int64_t stretches = plan.stretches(), unit = plan.pairs ? kPairBlock : 16;
  if (stretches > 1 || plan.c.elem == Elem::BF16) { // a result that is rounded is a whole sum
    plan.kc = plan.k.size;
  } else {
    int64_t pieces = (plan.k.size + longest + longest / 2 - 1) / (longest + longest / 2);
    plan.kc = pieces == 1 ? plan.k.size : roundUp((plan.k.size + pieces - 1) / pieces, unit);
    // No short last block: packing by whole vectors needs a length of at least one.
    while (plan.k.size % plan.kc != 0 && plan.k.size % plan.kc < 64)
      plan.kc += unit;
  }
  return stretches;
}

// The whole of k at once: nothing of B is copied, and the band has all channels.
static void choosePlanarBlocks(ContractPlan &plan) {
  plan.kc = plan.k.size;
  plan.runs = countOf(plan.outerK);
  chooseBand(plan, plan.kc);
  plan.unroll = 1;
  for (int unroll : {4, 3, 2})
    if (plan.unroll == 1 && plan.kc % unroll == 0)
      plan.unroll = unroll;
  plan.packA = PackedA::Band;
  plan.packB = PackedB::No;
  plan.nc = plan.nr();
  plan.mc = plan.m.size;
}

// Steps along k that stand one behind the other in the loop of a tile; `last` is the length of the last block.
static void chooseUnroll(ContractPlan &plan, int64_t last) {
  plan.unroll = 1;
  // Elements that several steps of a tile read stay in registers between them. Where these are too few, chains go to the stack at each step.
  auto readsAgain = [&](int steps) {
    if (plan.bands == Bands::OfM) { // neighbouring places, by several taps
      const int64_t apart = plan.m.band / plan.k.band; // steps until the next place's element comes
      const int64_t kept = plan.mr * std::min<int64_t>(apart, steps - apart), registers = plan.manyRegisters ? 32 : 16;
      return steps > apart && plan.mr * plan.nv + plan.nv + kept > registers;
    }
    return plan.k.band < (plan.rowsInTile ? plan.rows.back().size : plan.mr) * plan.m.band;
  };
  for (int unroll : {7, 6, 5, 4, 3, 2})
    if (plan.bands != Bands::No && !readsAgain(unroll) && plan.unroll == 1 && plan.kc % unroll == 0 && plan.k.size % plan.kc % unroll == 0)
      plan.unroll = unroll;
  for (int unroll : {4, 2}) {
    bool within = !plan.skipsOutside() || (plan.kc % unroll == 0 && plan.k.size % plan.kc % unroll == 0); // a stretch
    if (plan.bands == Bands::No && plan.blockK() % unroll == 0 && last % unroll == 0 && within && plan.mr * plan.nv <= 24) {
      plan.unroll = unroll;
      break;
    }
  }
}

constexpr int64_t kSets = 4096; // bytes after which places share a set of the first cache
static bool rowsShareSet(const ContractPlan &plan) { return plan.k.b * plan.bytes % kSets == 0; } // those of B

// A filter's gradient of few columns of C: places of B follow each other like the rows of a panel, or of two beside each other, as far as a band goes.
// Copying them took up to a quarter of the time, for few rows of C read them again.
static bool isPanelItself(const ContractPlan &plan) {
  bool follow = plan.outerK.empty() || plan.outerK.back().b == plan.k.size * plan.k.b;
  return !plan.pairs && plan.n.b == 1 && follow && plan.n.size % plan.lanes == 0 && plan.k.b == plan.n.size && plan.n.size <= 2 * plan.nr();
}

// Words of vdpbf16ps are woven of two rows of bf16 where these lie, if few rows of A need them: every tile of rows does so again (an LSTM on Zen 4: with one
// row its products take a tenth of the time, with 16 rows 0.72 of it; with 24 rows packing is 1.1 times as fast).
static bool readsWordsInPlace(const ContractPlan &plan) {
  constexpr int64_t kGroup = 4, kFewRows = 16;
  return plan.dots && plan.hasWords() && plan.bounds.empty() && plan.bands == Bands::No && plan.outerK.empty() && plan.runLength == plan.k.size &&
         plan.b.elem == Elem::BF16 && plan.n.b == 1 && plan.k.size % kGroup == 0 && plan.n.size % plan.lanes == 0 &&
         plan.m.size * countOf(plan.outerM) <= kFewRows;
}

// A small B, and one that few rows of A need. If its own rows share a set of the first cache, the narrow columns of AVX2's tiles lose by that (of 16 and 24
// rows they are still 1.2 to 1.3 times as fast as with a packed B, of 32 rows 0.85 to 1.05 times; Emerald Rapids), and wider ones want shorter blocks of
// k: with these 64 rows are as quick as with a packed B (0.97 to 1.01 of its speed, Zen 4), whose scratch small budgets have no room for.
static bool readsBInPlace(const ContractPlan &plan) {
  if (readsWordsInPlace(plan))
    return true;
  if (plan.bands == Bands::OfK && !plan.skipsOutside() && isPanelItself(plan))
    return true;
  bool isSmall = plan.k.size * plan.n.size * plan.bytes <= 32 * 1024;
  int64_t fewRows = !rowsShareSet(plan) || plan.manyRegisters ? 64 : 24;
  return !plan.pairs && plan.bands == Bands::No && plan.outerK.empty() && plan.n.b == 1 &&
         (isSmall || plan.m.size * countOf(plan.outerM) <= fewRows);
}
// Steps of a block, at most, beside such a B. Several tiles of rows read the same columns of it one after the other, and all but the first should find
// them in the near caches; from the second-level cache on, the machine fetches ahead in few pages at a time, and each row of a long B lies in another one.
// Measured on Emerald Rapids, of 16 to 64 rows under 4 to 16 MB of B: 1.2 to 1.9 times as fast as blocks of 256 steps and more where rows are more than a
// page apart, 1.05 to 1.25 where they are less.
static int64_t stepsBesideB(const ContractPlan &plan) {
  constexpr int64_t kFewSteps = 256, kShort = 128, kShortest = 64, kNear = 1 << 20, kPage = 4096;
  const int64_t row = plan.k.b * plan.bytes;
  if (plan.m.size * countOf(plan.outerM) > plan.mr && plan.k.size * row > kNear)
    return row > kPage ? kShortest : kShort;
  return rowsShareSet(plan) ? kFewSteps : plan.tiling.steps;
}

// Rows of A that run along k are read in place: as quick as packed rows, and packing them is saved (measured).
// Not if they lie so that all share one set of the first cache, which has fewer ways than a tall tile has rows.
// So are few reads of an A that runs along m, again unless neighbours in k share one set.
static bool readsAInPlace(const ContractPlan &plan) {
  constexpr int64_t kWays = 8, kFewColumns = 64, kSmall = 32 * 1024;
  const int64_t n = plan.n.size * countOf(plan.outerN);
  const bool isSmall = plan.k.size * plan.m.size * plan.bytes <= kSmall, oneSet = plan.mr > kWays && plan.m.a * plan.bytes % kSets == 0;
  const bool fewReads = n <= 2 * plan.nr() || (n <= kFewColumns && plan.k.a * plan.bytes % kSets != 0);
  return !plan.pairs && plan.bounds.empty() && plan.outerK.empty() && !oneSet && (isSmall || fewReads || plan.k.a == 1);
}
// Each step of one that runs along m reads a line in another place, and the next tile reads most of these lines again. So many of them stay in the near
// caches until then, though they share few sets there (blocks of 750 steps and less, 64 to 3072 rows on an Intel with AMX: 1.0 to 1.5 times as fast).
constexpr int64_t kStepsApart = 128;

// Fewer columns at a time, where that costs nothing: as long as all rows of A stay in the second-level cache, it does not matter how often they are
// read again. Rows of A that are packed are packed before the loop over columns, then. Measured on Zen 4, of 16 to 128 rows in place and of 1024 that
// are packed: 1.00 to 1.06 times as fast as with blocks as wide as scratch may be, for whose megabyte a thread small budgets have no room. A
// B that is copied along its rows, beside an A in place, keeps long stretches of them (else 0.98).
static void narrowColumns(ContractPlan &plan) {
  constexpr int64_t kReadRows = 512 * 1024, kPackedRows = 288 * 1024, kColumns = 32 * 1024;
  if (plan.amx || plan.grained || plan.bands != Bands::No || !plan.bounds.empty() || plan.packB == PackedB::No)
    return;
  const int64_t narrow = std::max<int64_t>(1, kColumns / (plan.panelB() * plan.bytes)) * plan.nr();
  if (narrow >= plan.nc)
    return;
  if (plan.packA == PackedA::No) {
    const int64_t rows = plan.m.size * countOf(plan.outerM);
    if (plan.packB != PackedB::Copy && rows * plan.blockK() * plan.bytes <= kReadRows)
      plan.nc = narrow;
    return;
  }
  const int64_t panels = (plan.m.size + plan.mr - 1) / plan.mr;
  if (plan.outerM.empty() && panels * plan.panelA() * plan.bytes <= kPackedRows)
    plan.rowsFirst = true, plan.mc = panels * plan.mr, plan.nc = narrow;
}

// With AMX, where the rows of A take at most half of the second-level cache: A is packed once before all columns, and a block of B takes the other half.
// Few rows take what is packed of B only a few times. Then a block is a pair of panels, which is still in the first cache when it is multiplied.
static void keepRowsOfA(ContractPlan &plan) {
  constexpr int64_t kHalf = 1024 * 1024, kFewRows = 256;
  if (!plan.amx || plan.grained || !plan.bounds.empty() || plan.packB == PackedB::No)
    return;
  const bool inPlace = plan.packA == PackedA::No;
  const int64_t rows = plan.m.size * countOf(plan.outerM), panels = (plan.m.size + plan.mr - 1) / plan.mr;
  if (!inPlace && !plan.outerM.empty())
    return;
  if ((inPlace ? rows * plan.blockK() * 2 : panels * plan.panelA() * plan.bytes) > kHalf)
    return;
  plan.pairOfPanels = rows <= kFewRows && plan.nc > 2 * plan.nr();
  plan.nc = std::min(plan.nc, (plan.pairOfPanels ? 2 : std::max<int64_t>(2, kHalf / (plan.panelB() * plan.bytes))) * plan.nr());
  if (!inPlace)
    plan.rowsFirst = true, plan.mc = panels * plan.mr;
}

void chooseBlocks(ContractPlan &plan) {
  if (plan.bands == Bands::Planar)
    return choosePlanarBlocks(plan);
  int64_t longest = plan.tiling.steps;
  if (readsBInPlace(plan))
    longest = std::min(longest, stepsBesideB(plan));
  if (readsAInPlace(plan) && plan.k.a != 1)
    longest = std::min(longest, kStepsApart);
  int64_t stretches = lengthOfBlocks(plan, longest);
  plan.runs = 1;
  if (plan.kc >= plan.k.size) {
    plan.kc = plan.k.size;
    plan.runs = std::max<int64_t>(1, std::min(countOf(plan.outerK), longest / plan.kc));
    plan.runs = std::max(stretches, plan.runs / stretches * stretches);
    if (plan.c.elem == Elem::BF16)
      plan.runs = countOf(plan.outerK);
  }
  if (plan.bands != Bands::No)
    chooseBand(plan, longest);
  if (plan.sparesPlaces) { // blocks are whole examples
    const int64_t image = plan.runsOfImage();
    plan.sparesPlaces = plan.kc == plan.k.size && plan.runs >= image;
    if (plan.sparesPlaces) // which leaves out all that skips would
      plan.runs -= plan.runs % image, plan.skips[0] = plan.skips[1] = false;
  }
  int64_t lastRuns = countOf(plan.outerK) % plan.runs;
  int64_t last = plan.runs == 1 ? plan.k.size % plan.kc : lastRuns * plan.kc;
  chooseUnroll(plan, last);

  bool single = plan.outerK.empty();
  int64_t m = plan.m.size * countOf(plan.outerM);
  bool banded = plan.bands != Bands::No;
  if (plan.wordsOfB || readsBInPlace(plan))
    plan.packB = PackedB::No;
  else if (plan.n.b == 1)
    plan.packB = PackedB::Copy;
  else if (plan.k.b == 1 && plan.k.size >= plan.lanes && !(plan.hasWords() && stretches > 1))
    plan.packB = PackedB::Transpose;
  else
    plan.packB = PackedB::Gather;

  // AMX takes rows of whole blocks from where they lie; not if those that follow each other share one set of the first cache.
  bool wholeRows = plan.a.elem == Elem::BF16 && plan.k.a == 1 && plan.k.size % kPairBlock == 0 && plan.m.size % 16 == 0 && plan.m.a % kPairBlock == 0;
  bool rowsOfBlocks = plan.amx && plan.bounds.empty() && single && wholeRows && plan.m.a * 2 % 4096 != 0;
  constexpr int64_t kRowsInRun = 256;
  bool windows = !plan.bounds.empty();
  if (banded)
    plan.packA = PackedA::Band;
  else if (rowsOfBlocks || readsAInPlace(plan))
    plan.packA = PackedA::No;
  else if (plan.k.a == 1 && (windows ? !plan.k.isBounded() : plan.k.size >= plan.lanes))
    plan.packA = PackedA::Rows;
  else
    plan.packA = PackedA::Cols;

  plan.prefetchC = plan.directC && (plan.bands == Bands::OfM || plan.skips[0] ? m : plan.m.size) * plan.n.size * plan.bytes > 256 * 1024;
  plan.prefetchC &= !plan.pairs || plan.amx;
  plan.prefetchB = plan.packB == PackedB::No && m <= 32 && plan.k.size * plan.n.size * plan.bytes > 256 * 1024;
  auto share = [](int64_t size, int64_t unit, int64_t most) { // equal blocks of at most `most` units
    int64_t units = (size + unit - 1) / unit, blocks = (units + most - 1) / most;
    return (units + blocks - 1) / blocks * unit;
  };
  plan.nc = share(plan.n.size, plan.nr(), std::max<int64_t>(1, plan.tiling.far / (plan.panelB() * plan.bytes)));
  // An A that runs along m is read in runs of this many rows at least: shorter ones, each in another page, take longer than the caches gain.
  const int64_t fewest = plan.packA == PackedA::Cols && plan.m.a == 1 && !windows ? kRowsInRun / plan.mr : 1;
  plan.mc = banded ? plan.m.size : share(plan.m.size, plan.mr, std::max(fewest, plan.tiling.near / (plan.panelA() * plan.bytes)));
  if (plan.grained && plan.blocksK() > 1) {
    // B is packed again for each of these bands of rows: they are as tall as the second-level cache allows.
    const int64_t cacheSums = 768 * 1024;
    int64_t units = (plan.m.size + plan.mr - 1) / plan.mr * countOf(plan.outerM);
    int64_t most = std::max<int64_t>(1, cacheSums / (plan.tilesN() * plan.mr * plan.nr() * plan.bytes));
    plan.sumUnits = std::min(units, most);
    plan.prefetchC = false; // most blocks do not touch it
  }
  narrowColumns(plan);
  keepRowsOfA(plan);
}

} // namespace cinch::kernels
