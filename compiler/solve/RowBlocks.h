// RowBlocks.h: work that is independent for each row, an (example, position) pair, in blocks of consecutive rows.
//
// A range is a list of kernels of the loop body, each independent for each row (Kernel::rows). Instead of one after the
// other on all rows of a micro-batch, they run one after the other on a block of rows, block after block:
//
//     whole     logits [m T x V] -> its gradient [m T x V] -> d hidden, d weights
//     blocks    r rows of each, m T / r times: the T x V tensors never exist whole
//
// Values that only the range reads have the bytes of one block. All others are whole, and an accumulator goes on from
// block to block with the very additions of the undivided sum, since blocks come in the order of the rows.
//
// To every other solver a range in blocks is *one kernel*: its scratch holds the values of a block, packed once by the
// one `evaluate` and proved by the one plan checker on the graph of a block. So searching, counting bytes and checking
// need not know of rows.
#ifndef CINCH_COMPILER_SOLVE_ROWBLOCKS_H
#define CINCH_COMPILER_SOLVE_ROWBLOCKS_H

#include "compiler/solve/LoopBody.h"
#include "compiler/solve/TripRows.h"

#include <functional>

namespace cinch::solve {

struct RowRange {
  std::vector<int> kernels; // in the order in which they run on a block
  int again = 0;            // the first so many are computed again: their first run stands in another range
};

// Rows of a block: `positions` of one example, or all positions of `examples` examples.
struct RowBlock {
  int64_t examples = 1, positions = 1;
};

// Ranges that belong together (what feeds a wide value forward, what uses it backward), widest values first.
struct RowWork {
  std::vector<RowRange> ranges;
  int64_t width = 0; // bytes a row of its widest value
};
// Where blocks help: around values at least twice as wide as whatever the range reads and leaves. Wide values of the
// forward sweep that the backward sweep reads are computed again in the backward range.
std::vector<RowWork> findRowWork(const StepGraph &);
// Is there an order of the kernels in which every range stands together, and can each run on some positions of an example?
bool canStandTogether(const StepGraph &, const std::vector<RowRange> &);

// Block sizes worth trying, smallest first. Blocks hold whole grains.
std::vector<RowBlock> rowBlockSizes(const StepGraph &);
// All that there can be, smallest first.
std::vector<RowBlock> possibleRowBlocks(const StepGraph &);
// The block of so many rows; nothing, with what would be near in `error`, if there is none.
bool rowBlockOf(const StepGraph &, int64_t rows, RowBlock &, std::string &error);

// A range as one kernel. A trip is the work of one block. Where its kernels read rows around it, bands of what lies outside are copied
// right before they are read for the first time.
struct RowKernel : LoopBody {
  int kernel = -1;          // of the new graph
  RowRange range;           // of the old graph
  std::vector<int> work;    // kernels of the trip -> of `range`; -1: the copy of a band
  std::vector<TripRows> rows; // that they make, or sum over; empty: each all of the block's
  std::vector<int> buffers; // of the trip -> of the old (and the new) graph
  Seconds whole;            // predicted seconds of its kernels, once each, on all rows
};
struct RowBlocked {
  std::string error; // not empty: no order of the kernels keeps the ranges together, or the block does not fit
  RowBlock block;
  StepGraph graph;              // buffers keep their numbers; those that are nowhere whole have no bytes
  std::vector<int> original;    // kernel of the new graph -> of the old; -1: a range
  std::vector<RowKernel> ranges;
  bool movesParameterWork = false; // work on parameters stands in the main loop (ParameterWork.h)
};
// Bytes a thread of a kernel when it makes such rows, all those of a block where `rows` is null, and has so many of each buffer that it
// reads; -1: it is none there.
struct KernelRows {
  int kernel = -1;
  TripRows made;
  std::vector<TripRows> read; // one a read; count 0: it has no rows
};
using ScratchOfRows = std::function<int64_t(int kernel, const KernelRows *rows)>;
RowBlocked withRowBlocks(const StepGraph &, const std::vector<RowRange> &, RowBlock, const ScratchOfRows &);

// What a range in blocks saves and costs, for people.
struct RowSummary {
  std::string name; // of its widest value
  int line = 0;
  int64_t blocks = 1;            // a micro-batch
  int64_t bytes = 0, instead = 0; // of values that exist for one block only; of the same values whole
  double seconds = 0;            // a step more than whole, what is computed again included
};
RowSummary summaryOf(const RowKernel &, const RowBlocked &, const Decision &);

} // namespace cinch::solve
#endif
