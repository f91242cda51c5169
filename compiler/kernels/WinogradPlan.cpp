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
  result.a = spec.a.strides[tap] / bound.strides[tap], result.c = spec.c.strides[place];
  result.firstA = -back * result.a;
  result.firstB = back * tapB, result.tapB = backwards ? -tapB : tapB;
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

} // namespace

void planWinograd(ContractPlan &plan, const ContractSpec &spec) {
  constexpr int64_t kImage = 128 * 1024, kFilter = 512 * 1024; // bytes: larger ones are a little quicker, but small budgets have no room for them
  constexpr int64_t kSets = 4096; // bytes after which places share a set of the first cache
  assert(spec.batch.empty() && spec.k.size() == 3 && spec.n.size() == 1 && spec.bounds.size() == 2 && !spec.accumulate);
  WinogradPlan &w = plan.winograd;
  const size_t leads = spec.m.size() - 2;
  w.rows = axisOf(spec, 0), w.columns = axisOf(spec, 1);
  w.channels = spec.k[2], w.channelA = spec.a.strides[leads + 4], w.channelB = spec.b.strides[2];
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
  plan.packB = plan.n.b == 1 ? PackedB::Copy : w.channelB == 1 && w.channels >= plan.lanes ? PackedB::Transpose : PackedB::Gather;
  plan.kc = w.channels;
  const int64_t panel = kWinogradProducts * w.channels * plan.nr() * plan.bytes, panels = (plan.n.size + plan.nr() - 1) / plan.nr();
  const int64_t together = std::clamp<int64_t>(kFilter / panel, 1, panels), blocks = (panels + together - 1) / together;
  plan.nc = (panels + blocks - 1) / blocks * plan.nr();
}

} // namespace cinch::kernels
