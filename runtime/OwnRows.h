// OwnRows.h: which rows of a file are a data set's own, where `hold_out` draws them: one by one, whatever else is in the file.
#ifndef CINCH_RUNTIME_OWNROWS_H
#define CINCH_RUNTIME_OWNROWS_H
#include "runtime/ColumnBytes.h"
#include "runtime/Meta.h"

namespace cinch::rt {

class RowDraw {
public:
  explicit RowDraw(const DatasetSpec &);
  bool owns(int64_t row) const;

private:
  uint64_t key;
  double share;
  bool held;
};

// The own rows of a file, in their order, in the same memory for any number of them: those in front of a block of rows are counted once, those of one block
// are drawn again.
class OwnRows {
public:
  OwnRows(const DatasetSpec &, int64_t rows);
  bool owns(int64_t row) const { return draw.owns(row); }
  int64_t count() const { return before[kBlocks]; }
  int64_t rowOf(int64_t number) const; // the row that is number 0 .. count() - 1 of them

private:
  static constexpr int kBlocks = 1024;
  RowDraw draw;
  int64_t blockRows;
  int64_t before[kBlocks + 1]; // own rows in front of each block, and all
};
static_assert(sizeof(OwnRows) <= kOwnRowsBytes);

} // namespace cinch::rt
#endif
