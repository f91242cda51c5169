// WinogradPlan.cpp: tiles and blocks of a convolution by Winograd's minimal filtering.
#include "compiler/kernels/ContractPlan.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>
#include <cassert>

namespace cinch::kernels {

using solve::roundUp;

// A register tile may have more tiles than there are, and throws away what comes of them.
int64_t WinogradPlan::imageOfProduct() const {
  return roundUp(std::max(rowsOfTiles * columns.tiles, tileRows) * pitch, 16) + 16;
}

namespace {

// `place` and `tap`: where strides of places and of taps stand among those of A, along `axis` (0 rows, 1 columns). Dims of one element have no strides.
WinogradAxis axisOf(const ContractSpec &spec, size_t axis) {
  const size_t batches = spec.batch.size(), place = batches + spec.m.size() - 2 + axis, tap = batches + spec.m.size() + axis;
  const Bound &bound = spec.bounds[axis];
  const bool backwards = bound.strides[tap] < 0; // the first tap meets the last element of the window
  const int64_t back = backwards ? kWinogradTaps - 1 : 0, tapB = spec.b.strides[batches + axis];
  WinogradAxis result;
  result.places = spec.m[spec.m.size() - 2 + axis];
  result.tiles = (result.places + kWinogradOutputs - 1) / kWinogradOutputs;
  result.image = bound.size, result.first = bound.offset - back;
  result.a = spec.a.strides[tap] / bound.strides[tap], result.place = spec.c.strides[place];
  result.firstA = -back * result.a;
  result.firstTap = back * tapB, result.tap = backwards ? -tapB : tapB;
  return result;
}

// As many vectors of columns as leave no part of a panel empty, two where that can be chosen; as many tiles as registers allow without many that are
// computed for nothing.
void chooseTile(ContractPlan &plan, int64_t tiles) {
  const int64_t vectors = (plan.n.size + plan.lanes - 1) / plan.lanes;
  plan.nv = vectors % 2 == 0 ? 2 : vectors % 3 == 0 ? 3 : vectors == 1 ? 1 : 2;
  const int64_t most = plan.manyRegisters ? (plan.nv == 1 ? 24 : plan.nv == 2 ? 13 : 8) : (plan.nv == 1 ? 12 : plan.nv == 2 ? 6 : 4);
  double least = 0;
  for (int64_t rows = std::max<int64_t>(1, most / 3); rows <= most; ++rows) {
    const double cost = double((tiles + rows - 1) / rows) * (double(rows) + 1); // every step of B is loaded, too
    if (least == 0 || cost <= least)
      least = cost, plan.winograd.tileRows = rows;
  }
}

// Do the taps lie side by side, in this order or in the opposite one? So they do in PyTorch's order of axes.
bool liesTogether(const WinogradAxis &rows, const WinogradAxis &columns) {
  return std::abs(columns.tap) == 1 && rows.tap == kWinogradTaps * columns.tap && rows.firstTap + columns.firstTap == (columns.tap < 0 ? kWinogradTaps * kWinogradTaps - 1 : 0);
}

// Of the gradient of a filter: taps and channels are rows of C, places are summed.
WinogradAxis axisOfFilter(const ContractSpec &spec, size_t axis) {
  const size_t place = spec.k.size() - 2 + axis;
  WinogradAxis result;
  result.places = spec.k[place];
  result.tiles = (result.places + kWinogradOutputs - 1) / kWinogradOutputs;
  result.image = spec.bounds[axis].size, result.first = spec.bounds[axis].offset;
  result.a = spec.a.strides[axis], result.place = spec.b.strides[place], result.tap = spec.c.strides[axis];
  return result;
}

void planFilter(ContractPlan &plan, const ContractSpec &spec) {
  constexpr int64_t kChannels = 64;         // of the image, transformed together
  constexpr int64_t kGradient = 256 * 1024; // bytes of the outputs' gradient, transformed together
  assert(spec.batch.empty() && spec.m.size() == 3 && spec.k.size() >= 2 && spec.n.size() == 1 && spec.bounds.size() == 2 && spec.grain == 0);
  WinogradPlan &w = plan.winograd;
  const size_t leads = spec.k.size() - 2;
  w.ofFilter = true;
  w.rows = axisOfFilter(spec, 0), w.columns = axisOfFilter(spec, 1);
  w.channels = spec.m[2], w.channelA = spec.a.strides[2];
  for (size_t i = 0; i < leads; ++i)
    plan.outerK.push_back({spec.k[i], spec.a.strides[3 + i], spec.b.strides[i], 0});
  plan.m = {w.channels, w.channelA, 0, spec.c.strides[2]};
  plan.n = {spec.n[0], 0, spec.b.strides[leads + 2], spec.c.strides[3]};
  w.rowsOfTiles = std::min(rowsOfTilesTogether(w.columns.tiles), w.rows.tiles);
  const int64_t tiles = w.rowsOfTiles * w.columns.tiles, rest = w.rows.tiles % w.rowsOfTiles * w.columns.tiles; // summed together; the last ones
  w.depth = tiles + 1; // else 16 panels share a few sets of the first cache
  const int64_t vectors = (plan.n.size + plan.lanes - 1) / plan.lanes;
  plan.nv = vectors % 2 == 0 ? 2 : vectors % 3 == 0 ? 3 : vectors == 1 ? 1 : 2;
  plan.mr = std::max(1, plan.lanes / 2); // threads divide these, and panels
  w.tileRows = std::min(plan.manyRegisters ? 8 : 4, plan.mr);
  w.pitch = std::min(kChannels, roundUp(w.channels, plan.mr));
  for (int unroll : {4, 2})
    if (plan.unroll == 1 && tiles % unroll == 0 && rest % unroll == 0)
      plan.unroll = unroll;
  plan.packA = PackedA::Rows, plan.packB = PackedB::Copy;
  plan.kc = tiles;
  const int64_t panel = kWinogradProducts * w.depth * plan.nr() * plan.bytes;
  const int64_t panels = (plan.n.size + plan.nr() - 1) / plan.nr(), together = std::clamp<int64_t>(kGradient / panel, 1, panels);
  const int64_t blocks = (panels + together - 1) / together;
  plan.nc = (panels + blocks - 1) / blocks * plan.nr();
}

} // namespace

int64_t rowsOfTilesTogether(int64_t tilesOfRow) {
  constexpr int64_t kTiles = 16;
  return std::max<int64_t>(1, (kTiles + tilesOfRow - 1) / tilesOfRow);
}

void planWinograd(ContractPlan &plan, const ContractSpec &spec) {
  if (spec.sumsPlaces)
    return planFilter(plan, spec);
  constexpr int64_t kImage = 128 * 1024, kFilter = 512 * 1024, kLeastFilter = 256 * 1024; // bytes: larger ones are a little quicker, but small
                                                                                         // budgets have no room for them
  constexpr int64_t kSets = 4096; // bytes after which places share a set of the first cache
  assert(spec.batch.empty() && spec.k.size() == 3 && spec.n.size() == 1 && spec.bounds.size() == 2 && !spec.accumulate);
  WinogradPlan &w = plan.winograd;
  const size_t leads = spec.m.size() - 2;
  w.rows = axisOf(spec, 0), w.columns = axisOf(spec, 1);
  w.channels = w.depth = spec.k[2], w.channelA = spec.a.strides[leads + 4], w.channelB = spec.b.strides[2];
  w.firstRow = spec.firstRow, w.movesRows = spec.movesRows;
  w.rows.tiles = (w.rows.places + (w.movesRows ? 1 : w.firstRow) + kWinogradOutputs - 1) / kWinogradOutputs;
  for (size_t i = 0; i < leads; ++i)
    plan.outerM.push_back({spec.m[i], spec.a.strides[i], 0, spec.c.strides[i]});
  plan.outerM.push_back({w.rows.tiles});
  plan.n = {spec.n[0], 0, spec.b.strides[3], spec.c.strides[leads + 2]};
  // Threads divide rows of tiles and panels.
  plan.m = {w.columns.tiles};
  plan.mr = int(w.columns.tiles);
  w.pitch = roundUp(w.channels, plan.lanes);
  if (w.pitch * plan.bytes % kSets == 0)
    w.pitch += plan.lanes;
  const int64_t ofRow = kWinogradProducts * w.columns.tiles * w.pitch * plan.bytes;
  w.rowsOfTiles = std::clamp<int64_t>(kImage / ofRow, 1, countOf(plan.outerM));
  chooseTile(plan, w.rowsOfTiles * w.columns.tiles);
  for (int unroll : {4, 2})
    if (plan.unroll == 1 && w.channels % unroll == 0)
      plan.unroll = unroll;

  plan.packA = PackedA::Band;
  w.tapsTogether = plan.n.b != 1 && liesTogether(w.rows, w.columns);
  plan.packB = plan.n.b == 1                                                           ? PackedB::Copy
               : w.tapsTogether || (w.channelB == 1 && w.channels >= plan.lanes) ? PackedB::Transpose
                                                                                       : PackedB::Gather;
  plan.kc = w.channels;
  const int64_t panel = kWinogradProducts * w.channels * plan.nr() * plan.bytes, panels = (plan.n.size + plan.nr() - 1) / plan.nr();
  // Beside few places a large filter would be most of what there is.
  const int64_t places = countOf(plan.outerM) / w.rows.tiles * w.rows.places * w.columns.places;
  const int64_t filter = std::clamp(places * (w.channels + plan.n.size) * plan.bytes, kLeastFilter, kFilter);
  const int64_t together = std::clamp<int64_t>(filter / panel, 1, panels), blocks = (panels + together - 1) / together;
  plan.nc = (panels + blocks - 1) / blocks * plan.nr();
}

} // namespace cinch::kernels
