// ContractBandPlan.cpp: whether A is an image that may lie in scratch band by band, and how large its bands are.
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/ContractPlan.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace cinch::kernels {

namespace {

// The dims of one side of an image: of places (examples, then rows and columns of windows) or of taps (rows and columns).
struct Side {
  ContractDims others;
  ContractDim row, column; // of size 1 where there is none
  bool hasRow = false, hasColumn = false;
};

int64_t stepOf(const ContractDim &dim, int bound) { return bound < 0 ? 0 : bound == 0 ? dim.bound0 : dim.bound1; }

// False if the dims have another order.
bool sideOf(const ContractDims &dims, const Band &band, Side &side) {
  for (const ContractDim &dim : dims) {
    if (dim.size == 1)
      continue;
    int64_t row = stepOf(dim, band.rowBound), column = stepOf(dim, band.columnBound);
    if ((row && column) || side.hasColumn || (side.hasRow && !column))
      return false;
    if (row)
      side.row = dim, side.hasRow = true;
    else if (column)
      side.column = dim, side.hasColumn = true;
    else
      side.others.push_back(dim);
  }
  return true;
}

// The distance in A of neighbours of the image along rows or columns; 0: there are none or they have several.
int64_t strideOf(int bound, const ContractDim &place, const ContractDim &tap) {
  int64_t stride = 0;
  for (const ContractDim *dim : {&place, &tap}) {
    int64_t step = stepOf(*dim, bound);
    if (dim->size == 1 || step == 0)
      continue;
    if (dim->a % step != 0 || (stride && stride != dim->a / step))
      return 0;
    stride = dim->a / step;
  }
  return stride;
}

void append(ContractDims &dims, bool present, const ContractDim &dim) {
  if (present)
    dims.push_back(dim);
}

} // namespace

// Windows: each place of C has a cell for every row of taps, of `run` elements and zeros.
static void placesAsWindows(Band &band, int64_t run, Side &places, Side &taps) {
  band.taps = taps.hasColumn ? taps.column.size : 1;
  band.tapStep = stepOf(taps.column, band.columnBound);
  band.placeStep = stepOf(places.column, band.columnBound);
  band.columns = places.column.size;
  band.columnsBefore = 0;
  band.channels = solve::roundUp(run, kPairBlock) / 2;
  const int64_t rowElems = band.columns * band.channels;
  places.column.band = band.channels;
  places.row.band = band.rowStep * rowElems;
  taps.column.band = 0; // a run begins with its first tap
  taps.row.band = stepOf(taps.row, band.rowBound) * rowElems;
  band.behind = (kSquare - 1) * band.channels + kPairBlock / 2;
}

// Turned: for each channel the places of a row. They are put down in vectors of 32, the last of which reaches over the end.
static void turnPlaces(Band &band, int64_t channelsOfImage, Side &places, Side &taps, ContractDim &channels) {
  band.columns = solve::roundUp(band.columns + kPairBlock - 1, 2);
  const int64_t rowElems = band.columns * channelsOfImage;
  channels.band = band.columns;
  places.column.band = 1;
  places.row.band = band.rowStep * rowElems;
  taps.column.band = stepOf(taps.column, band.columnBound);
  taps.row.band = stepOf(taps.row, band.rowBound) * rowElems;
  band.behind = kSquare * band.columns;
}

static bool describeImage(ContractPlan &plan, Side &places, Side &taps, ContractDim &channels) {
  Band &band = plan.band;
  band.elements = channels.size;
  band.channels = band.cell == Cell::Channels ? channels.size / 2 : band.cell == Cell::Padded ? solve::roundUp(channels.size, kPairBlock) / 2 : channels.size;
  int64_t step = stepOf(places.column, band.columnBound), tapStep = stepOf(taps.column, band.columnBound);
  int64_t tapRow = stepOf(taps.row, band.rowBound);
  band.rowStep = places.hasRow ? stepOf(places.row, band.rowBound) : 1;
  band.rowStride = strideOf(band.rowBound, places.row, taps.row);
  band.columnStride = strideOf(band.columnBound, places.column, taps.column);
  if (step <= 0 || band.rowStep <= 0 || band.columnStride == 0 || (band.rowBound >= 0 && band.rowStride == 0))
    return false;
  int64_t tapReach = taps.hasColumn ? (taps.column.size - 1) * tapStep : 0, rowReach = taps.hasRow ? (taps.row.size - 1) * tapRow : 0;
  band.columns = (places.column.size - 1) * step + std::llabs(tapReach) + 1;
  band.columnsBefore = std::max<int64_t>(0, -tapReach);
  band.apart = 2 * step;
  band.reach = std::llabs(rowReach);
  band.rowsBefore = std::max<int64_t>(0, -rowReach);
  band.height = places.hasRow ? places.row.size : 1;
  int64_t rowElems = band.columns * band.channels;
  channels.band = 1;
  places.column.band = step * band.channels;
  places.row.band = band.rowStep * rowElems;
  taps.column.band = tapStep * band.channels;
  taps.row.band = tapRow * rowElems;
  if (band.cell == Cell::Windows)
    placesAsWindows(band, plan.runLength, places, taps);
  else if (band.cell == Cell::Turned)
    turnPlaces(band, channels.size, places, taps, channels);
  else if (plan.amx)
    band.behind = (kSquare - 1) * places.column.band;
  return true;
}

// Taps of a row and their channels as one dim, if they follow each other in the band and in the other operand or C.
static bool follow(const Band &band, const ContractDim &taps, const ContractDim &channels) {
  return taps.band == band.channels && taps.b == channels.size * channels.b && taps.c == channels.size * channels.c;
}

static bool endsWithChannels(const ContractDims &dims) {
  return !dims.empty() && !dims.back().isBounded() && (dims.back().a == 1 || dims.back().size == 1);
}

// By AMX, where rows of C are places: what a band holds. A block of 32 is read as 64 bytes that lie together, so a run of k is one stretch of the band.
// `length`: of what blocks do not begin anew in.
static bool chooseCell(ContractPlan &plan, int64_t length, const Side &taps, const ContractDim &channels, bool &join) {
  const int64_t size = channels.size, ofRow = size * (taps.hasColumn ? taps.column.size : 1);
  const bool beside = stepOf(taps.column, plan.band.columnBound) == 1;
  join = taps.hasColumn && taps.column.b == size * channels.b;
  plan.band.cell = Cell::Padded;
  plan.runLength = size;
  if (size % kPairBlock == 0) { // blocks end with each tap anyway
    join &= beside;
    plan.runLength = join ? ofRow : size;
    return true;
  }
  if (length == size) {
    join = false;
    return true;
  }
  plan.runLength = ofRow;
  plan.band.cell = join && beside && ofRow % kPairBlock == 0 && size % 2 == 0 ? Cell::Channels : Cell::Windows;
  return length == ofRow;
}

// Whether rows of the image can be turned, so that blocks of 32 places lie together for each channel.
static bool canTurn(const ContractPlan &plan, const Side &places) {
  return places.hasColumn && places.column.size % kPairBlock == 0 && stepOf(places.column, plan.band.columnBound) == 1;
}

// A as an image whose rows of places have columns; `withTaps` ends with the channels. `run`: the length of what blocks do not begin anew in.
static bool formImage(ContractPlan &plan, Cell cell, ContractDims withTaps, const ContractDims &withPlaces, int64_t run, Side &places, Side &taps, ContractDim &channels,
                      bool &join) {
  bool sameElems = plan.a.elem == plan.elem && plan.b.elem == plan.elem && plan.c.elem == plan.elem;
  if ((!plan.pairs && (plan.rounds || !sameElems)) || !endsWithChannels(withTaps))
    return false;
  channels = withTaps.back();
  withTaps.pop_back();
  plan.band = {};
  plan.band.cell = cell;
  plan.band.columnBound = int(plan.bounds.size()) - 1;
  plan.band.rowBound = plan.bounds.size() == 2 ? 0 : -1;
  if (!sideOf(withPlaces, plan.band, places) || !sideOf(withTaps, plan.band, taps) || !taps.others.empty() || !places.hasColumn)
    return false;
  if (channels.size == 1) // a dim of one has no strides of its own
    channels.b = taps.column.b, channels.c = taps.column.c;
  if (plan.amx && !(cell == Cell::Turned ? canTurn(plan, places) : chooseCell(plan, run, taps, channels, join)))
    return false;
  if (!describeImage(plan, places, taps, channels))
    return false;
  if (!plan.amx)
    join = taps.hasColumn && follow(plan.band, taps.column, channels);
  return true;
}

static int64_t mostOfBand(const ContractPlan &plan) { return 128 * 1024 / plan.bytes; } // cells: a share of the second-level cache

// Pairs: which stretches of k are one run, if what begins anew lets any be. `join`: taps of a row and their channels are to be one dim.
static bool chooseRuns(ContractPlan &plan, const ContractDims &run, bool ofM, const Side &places, const Side &taps, int64_t channels, bool &join) {
  const int64_t length = countOf(run);
  if (ofM) {
    const int64_t ofRow = channels * (taps.hasColumn ? taps.column.size : 1);
    const bool wholeBlocks = channels % kPairBlock == 0;
    join &= wholeBlocks || length == ofRow;
    plan.runLength = join ? ofRow : wholeBlocks ? channels : length;
    return plan.runLength > 1 && (wholeBlocks || length == channels || length == ofRow);
  }
  // Whole blocks, as soon as rows have any: those begin anew wherever the image does.
  const int64_t columns = places.column.size, height = plan.band.height;
  int64_t rows = 1;
  while (rows < height && length != columns && (height % rows || rows * columns % kPairBlock))
    ++rows;
  plan.runLength = rows * columns;
  plan.band.rows = rows;
  return length % (height * columns) == 0 ? (plan.runLength % kPairBlock == 0 || length == height * columns) && plan.band.elems() <= mostOfBand(plan)
                                          : length == columns;
}

bool formBands(ContractPlan &plan, ContractDims m, ContractDims n, ContractDims k, size_t anew) {
  // Columns of places: shorter rows of them make poor tiles. Places of an image: a block of k ends with it, and C is read and written
  // once a block.
  constexpr int64_t kFewColumns = 8, kFewPlaces = 128;
  bool ofM = endsWithChannels(k);
  Side places, taps;
  ContractDim channels;
  const Cell cell = plan.amx ? (ofM ? Cell::Channels : Cell::Turned) : !plan.dots ? Cell::Element : ofM ? Cell::Channels : Cell::Places;
  const ContractDims run(k.begin() + anew, k.end());
  bool join = false; // taps of a row and their channels to one dim
  if ((ofM && plan.grained) || !formImage(plan, cell, ofM ? k : m, ofM ? m : k, countOf(run), places, taps, channels, join) ||
      places.column.size < (plan.amx ? kSquare : kFewColumns) || (!ofM && places.row.size * places.column.size < kFewPlaces))
    return false;
  constexpr int64_t kGroup = 4; // elements of two words, which lie in one stretch
  if (plan.dots && (ofM ? channels : places.column).size % kGroup)
    return false;
  if (plan.pairs && !(plan.amx && ofM) && !chooseRuns(plan, run, ofM, places, taps, channels.size, join))
    return false;
  if (cell == Cell::Turned) { // a square of rows is a tap, if it has as many channels
    join = channels.size == kSquare && taps.hasColumn && taps.column.c == channels.size * channels.c;
    plan.band.squareStep = join ? taps.column.band : 0;
  }
  ContractDims further; // of the taps, beside the dim that ends with the channels
  append(further, taps.hasRow, taps.row);
  if (join) {
    channels.size *= taps.column.size;
    channels.bound0 = channels.bound1 = 0;
  } else {
    append(further, taps.hasColumn, taps.column);
  }
  ContractDims outer = places.others;
  append(outer, places.hasRow, places.row);
  plan.bands = ofM ? Bands::OfM : Bands::OfK;
  plan.m = ofM ? places.column : channels;
  plan.outerM = ofM ? outer : further;
  plan.k = ofM ? channels : places.column;
  plan.outerK = ofM ? further : outer;
  if (!ofM && !plan.pairs && further.size() == 1 && plan.m.size * further[0].size <= (plan.manyRegisters ? 28 : 12) &&
      further[0].c == plan.m.c * plan.m.size) {
    plan.rows = {further[0], plan.m};
    plan.rowsInTile = true;
    plan.m.size *= further[0].size;
    plan.outerM.clear();
  }
  plan.n = takeInner(n, /*contiguousInC=*/true);
  plan.outerN = n;
  return true;
}

// Places beside each other are neighbours in the image, and C has few columns. A row of the band is a row of places for each channel, as long as
// the last vector of a row reads.
bool formPlanar(ContractPlan &plan, ContractDims m, ContractDims n, ContractDims k) {
  Side places, taps;
  ContractDim channels;
  bool join = false;
  if (plan.grained || countOf(n) > plan.lanes / 2 || n.size() > 1 || plan.pairs || !formImage(plan, Cell::Element, k, m, 0, places, taps, channels, join) ||
      stepOf(places.column, plan.band.columnBound) != 1)
    return false;
  Band &band = plan.band;
  int64_t before = band.columns, channelBand = channels.band * band.channels;
  band.columns += solve::roundUp(places.column.size, plan.lanes) - places.column.size;
  for (ContractDim *dim : {&places.row, &taps.row})
    dim->band = dim->band / (before * channelBand) * band.columns * channelBand;
  places.column.band = 1;
  taps.column.band /= channelBand;
  channels.band = band.columns;
  plan.bands = Bands::Planar;
  plan.m = places.column;
  plan.outerM = places.others;
  append(plan.outerM, places.hasRow, places.row);
  plan.k = channels;
  append(plan.outerK, taps.hasRow, taps.row);
  append(plan.outerK, taps.hasColumn, taps.column);
  plan.n = takeInner(n, /*contiguousInC=*/true);
  choosePlanarTile(plan);
  return true;
}

void chooseBand(ContractPlan &plan, int64_t longest) {
  const int64_t most = mostOfBand(plan);
  Band &band = plan.band;
  if (plan.bands != Bands::OfK) {
    while (band.rows < band.height) {
      ++band.rows;
      if (band.elems() > most) {
        --band.rows;
        break;
      }
    }
    int64_t bands = (band.height + band.rows - 1) / band.rows; // of equal heights
    band.rows = std::min(band.height, solve::roundUp((band.height + bands - 1) / bands, band.rowsInTile));
    return;
  }
  // A block of k is one band. Blocks do not reach into the next image.
  plan.runs = plan.stretches();
  if (plan.kc < plan.k.size)
    return;
  for (int64_t rows = plan.runs; rows <= band.height; rows += plan.stretches()) {
    band.rows = rows;
    if (band.height % rows == 0 && rows * plan.kc <= longest && band.elems() <= most)
      plan.runs = rows;
  }
  band.rows = plan.runs;
}

} // namespace cinch::kernels
