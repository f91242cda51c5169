// OwnRows.cpp: see OwnRows.h.
#include "runtime/OwnRows.h"
#include "runtime/Random.h"

namespace cinch::rt {

RowDraw::RowDraw(const DatasetSpec &spec) : key(streamKey(uint64_t(spec.holdSeed), "hold_out")), share(spec.holdOut), held(spec.held) {}

bool RowDraw::owns(int64_t row) const {
  const bool isHeld = double(mix64(key + uint64_t(row) * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53 < share;
  return isHeld == held;
}

OwnRows::OwnRows(const DatasetSpec &spec, int64_t rows) : draw(spec), blockRows((rows + kBlocks - 1) / kBlocks) {
  int64_t own = 0, row = 0;
  for (int block = 0; block < kBlocks; ++block) {
    before[block] = own;
    for (const int64_t end = (block + 1) * blockRows < rows ? (block + 1) * blockRows : rows; row < end; ++row)
      own += draw.owns(row);
  }
  before[kBlocks] = own;
}

int64_t OwnRows::rowOf(int64_t number) const {
  int low = 0, high = kBlocks; // before[low] <= number < before[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (before[middle] <= number ? low : high) = middle;
  }
  int64_t row = low * blockRows;
  for (int64_t left = number - before[low];; ++row)
    if (draw.owns(row) && left-- == 0)
      return row;
}

} // namespace cinch::rt
