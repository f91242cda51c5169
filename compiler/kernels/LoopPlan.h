// LoopPlan.h: how a LoopSpec is walked, decided before a single operation is emitted.
//
// The domain is first made simple: dims of extent 1 go, neighbours that every view walks as one are merged, a chain
// that nothing reduces becomes outer dims, and if there is a single column an outer dim takes its place. None of this
// changes which numbers are added to which, or in what order.
//
// Then each node gets a sweep: how many walks over the chain must be complete before it is known (the result of a
// ReduceChain is known one sweep after its operand). A kernel runs
//
//     for each item (outer element, block of columns):      split among threads
//       stage 0; sweep 0; stage 1; sweep 1; ..              stages hold what does not vary over the chain
//
// and within a stage or one row of a sweep, ReduceCols splits the work into passes over the columns.
#ifndef CINCH_COMPILER_KERNELS_LOOPPLAN_H
#define CINCH_COMPILER_KERNELS_LOOPPLAN_H

#include "compiler/kernels/Kernels.h"
#include "compiler/kernels/Philox.h"

namespace cinch::kernels {

// Columns of one vector, whatever the CPU: also the number of logical lanes of a row sum.
constexpr int64_t kLoopLanes = 16;

struct LoopPlan {
  bool teams = false;              // a vector of columns is a team of threads of a GPU (Simt.h)
  LoopSpec spec;                   // simplified; strides are (outer.., chain.., column) of the simplified domain
  bool hasChain = false;           // sweeps exist (their rows may be 1)
  int64_t outerCount = 1, rows = 1;
  int sweeps = 0;
  // Rows of few columns are walked side by side: so many neighbouring columns are one row, over which ReduceCols combines the lanes of a
  // vector. What it gives, and all that does not vary within a row, is in every lane of the row. 0: columns are those of one row.
  int64_t rowColumns = 0;
  // Columns: an element a column. Rows: an element a row, the last stride is that from row to row. Again: each row is the same.
  enum class Walk { Columns, Rows, Again };
  std::vector<Walk> loadWalk, storeWalk;    // per node and per store, of joined rows; of stores not Again
  bool walksColumns(size_t node) const { return rowColumns == 0 || loadWalk[node] == Walk::Columns; }
  // Per node.
  std::vector<bool> variesRow, variesCol, needed;
  std::vector<bool> constant;      // a scalar that is the same for every item
  std::vector<int> sweep;
  // Two shapes that concatenations and paddings take. A Select between loads of contiguous columns whose condition does
  // not vary over the columns is one load at a selected address; a LoadAt whose index is the column, shifted and
  // clamped, is contiguous wherever the clamp does nothing.
  struct Clamped {
    int index = -1;                // the Index node; -1: no such LoadAt
    int64_t shift = 0, last = 0;   // element number min(max(index - shift, 0), last)
  };
  std::vector<bool> selectsAddress;
  std::vector<Clamped> clamped;
  // Costly values that several passes over a row need are kept in a scratch row by the first: its number, or -1.
  std::vector<int> keptBy;
  // Per store: whether it belongs into the rows of a sweep, whether it writes columns.
  std::vector<bool> storeInRow, storeVector;
  bool addAtVector = false;

  // Work without sums whose contiguous dim in some buffers is not that of the others: it is done in squares of elements, and what is
  // loaded along the other side is turned in registers (LoopSquares.cpp). Dims are numbers of outer dims, behind them the columns; of
  // a range the fastest comes first.
  struct Transposition {
    int64_t lanes = 0;         // elements of a side: those of a vector of the CPU; 0: there are no squares
    std::vector<size_t> along; // one range in every load that is turned
    std::vector<size_t> across, rest; // one range in all other loads and in the stores; all other dims
    std::vector<bool> turned;  // per node
    bool found() const { return lanes > 0; }
  } transposition;
  int64_t squares() const; // of a transposition

  // Column blocks: items = outerCount * blocks; a block has blockCols columns, the last one perhaps fewer.
  int64_t blocks = 1, blockCols = 1;
  // With teams: AddAt's places are shared among so many items; each walks all rows, and does those whose place modulo `shares` is its own.
  int64_t shares = 1;
  int64_t items() const { return transposition.found() ? squares() : outerCount * blocks * shares; }
  // Accumulators of the chains stay in registers for `directVectors` vectors of columns; 0: they lie in scratch rows.
  int directVectors = 0;
  // Direct chains of a team of a GPU (LoopAhead.cpp): a thread has `together` neighbouring columns, which it loads and stores together, and reads
  // `rowsAhead` rows before it adds the first of them.
  int64_t together = 1, rowsAhead = 1;
  // On a GPU, where items are few and rows are many, a block of threads is a worker (LoopGang.cpp): `teams` of it evaluate `rows` rows each at
  // a time, and a team for each chain, each in a warp of its own, adds what they found.
  struct Gang {
    int64_t teams = 0, rows = 0, chains = 0;
    int64_t batch() const { return teams * rows; }
    int64_t adder(size_t chain) const { return teams + 2 * int64_t(chain); }
    int64_t threads() const { return (teams + 2 * chains) * kLoopLanes; }
  } gang;

  int buffers = 0;                 // of the kernel, named by views; the scratch, if any, comes next
  std::vector<int64_t> scratchOf;  // per node: byte offset of its scratch row, -1: none
  std::vector<int64_t> totalOf;    // where chains go on in blocks, per chain in scratch: the row of what the blocks before came to
  // Where chains go on in blocks, AddAt sums one in a table of all places, rows of `tableCols` columns: byte offset, a stride an argument.
  int64_t tableAt = -1, tableCols = 0;
  std::vector<int64_t> tableStrides;
  // Per thread. Fewer examples may merge dims into longer blocks, or leave no columns at all, so a kernel over fewer elements may need more
  // or less: whoever plans asks at every micro-batch and block of rows.
  int64_t scratchBytes = 0;

  bool isReduction(int node) const; // ReduceCols, ArgMaxCols, ArgMinCols: takes a pass over the columns
  bool isDraw(int node) const;
  Draw drawOf(int node) const;
  bool drawsRow(int node) const;    // consecutive elements along the columns: filled row by row
  int64_t columnStride(const View &view) const { return view.strides.back(); }
  int64_t sizeOf(const std::vector<size_t> &dims) const; // outer dims and, behind them, the columns
};

LoopPlan planLoop(const LoopSpec &, const TargetInfo & = {});

// How a loop kernel is launched (LoopLaunches.cpp): once; or, on a GPU, twice, where chains go on in blocks of few rows: the first launch leaves
// the sum of each block in scratch, `sumBytes` of it, and the second one adds them in their order.
struct LoopLaunches {
  std::vector<LoopPlan> plans;
  int64_t sumBytes = 0;
};
LoopLaunches planLaunches(const LoopSpec &, const TargetInfo & = {});
Grid gridOf(const LoopPlan &, const TargetInfo &); // of one of them, on a GPU

// LoopSimplify.cpp
void simplifyLoop(LoopSpec &);
void joinRows(LoopPlan &); // of a simplified spec

// LoopTeams.cpp, of a GPU
constexpr int64_t kItemsOfTeams = 1 << 15; // keep the teams of any GPU busy: of the largest there are some 17,000 at a time
void chooseTeams(LoopPlan &);              // gang, together, rowsAhead, shares

// LoopLoads.cpp
void findLoads(LoopPlan &);                    // selectsAddress, clamped
void findTransposition(LoopPlan &, int lanes); // lanes of a vector of the CPU

bool hasView(const LoopNode &);       // it lies somewhere, or its value follows from where it stands
int costOf(LoopOp);                   // of computing it once more, in cheap operations
bool reducesColumns(LoopOp);          // ReduceCols, ArgMaxCols, ArgMinCols
bool readsBuffer(const LoopNode &);   // its view names a buffer
bool anyNode(const LoopSpec &, bool (*test)(LoopOp));
// So many neighbouring columns of a view are one access of a thread of a GPU, if its buffer begins at 16 bytes.
bool isOneAccess(const View &, Elem, int64_t columns);

} // namespace cinch::kernels
#endif
