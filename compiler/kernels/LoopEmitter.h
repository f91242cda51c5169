// LoopEmitter.h: turns a LoopPlan into operations. Private to the loop builder.
#ifndef CINCH_COMPILER_KERNELS_LOOPEMITTER_H
#define CINCH_COMPILER_KERNELS_LOOPEMITTER_H

#include "compiler/kernels/LoopPlan.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include <functional>
#include <map>

namespace cinch::kernels {

class LoopEmitter {
public:
  LoopEmitter(mlir::OpBuilder &, mlir::Location, const LoopPlan &, mlir::ValueRange arguments);
  void emit();

private:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<mlir::Value, 4>;

  // What a context (a stage, or one row of a sweep) has to bring about.
  struct Work {
    bool row = false;
    std::vector<int> reductions, chains, stores;
    bool addAt = false, last = false;
    std::vector<bool> needed; // nodes to compute here; those of other contexts are at hand
    std::vector<int> depth;   // reductions over the columns that must be complete before a node is known
    int vectorPass = -1, lastDepth = 0; // the pass of the vector stores; the greatest depth
  };
  // One vector of columns that is being evaluated.
  struct Lanes {
    Value column;             // index of the first
    Value mask;               // live lanes; null: all
    std::vector<Value> values;
  };
  // What a loop over the columns needs from outside of it.
  struct Preheader {
    std::vector<bool> nodes;               // vector nodes to evaluate
    std::vector<Value> splats;             // scalars as vectors
    std::vector<Value> bases, storeBases;  // element numbers of the views, without the column's share
    std::vector<Value> clampBases;         // the index of a clamped load at column 0, shifted
    Value addAtBase, tableBase;
    std::vector<bool> isQuick;             // quotients and powers that are found quickly where all is ordinary; empty: there are none
    std::vector<Value> divisors, reciprocals; // of quotients, the latter negative
    Value areDivisorsPlain;                // all of them; null: there are none
  };

  // LoopEmitter.cpp: contexts.
  Work stageWork(int stage);
  Work rowWork(int sweep);
  void need(Work &, int node);
  void measure(Work &);
  void runContext(Work &, std::vector<Value> &chainScalars);
  void runColumns(const std::vector<int> &reductions, const std::vector<int> &chains, const std::vector<int> &stores,
                  bool addAt);
  void emitScalars(const Work &, int pass);
  std::pair<Value, Value> itemsOfThread(int64_t items); // first, behind the last
  void runItem(Value item);
  void runSweep(int sweep);
  void runDirect();
  void directColumns(Value column, int vectors, Value mask);
  void storeDirect(const Work &row, std::vector<Lanes>, mlir::ValueRange sums);
  void prefetchRows(Value column, int vectors, const Preheader &);
  void prefetchColumns(Value column, const Preheader &);
  std::vector<int> chainsInScratch(int stage);
  void startChains(const std::vector<int> &chains);
  void startBlock(const std::vector<int> &chains);
  void endBlock(const std::vector<int> &chains);
  Values forRows(Value first, int64_t count, mlir::ValueRange initial, std::function<Values(mlir::ValueRange)> body);
  Values forBlocks(mlir::ValueRange initial, std::function<Values(Value first, mlir::ValueRange)> body);
  Value forVectorsTogether(Value begin, Values &carried, const Preheader &, llvm::function_ref<void(const Lanes &, Values &)> reduce,
                           llvm::function_ref<void(const Lanes &)> put);
  Values forColumns(Value begin, mlir::ValueRange initial, std::function<Values(Lanes &, mlir::ValueRange)> body);
  bool anyOrderSuits(const std::vector<int> &reductions, const Preheader &);
  Values reduceInAnyOrder(const std::vector<int> &reductions, Value end, mlir::ValueRange initial, const Preheader &);
  Value wholeVectorsEnd();
  Preheader preheader(const std::vector<int> &roots, const std::vector<int> &stores);
  std::vector<int> rootsOf(const std::vector<int> &chains, const std::vector<int> &stores);
  void fillDraws(const std::vector<bool> &nodes);

  // LoopAhead.cpp: direct chains of a team, whose rows are read before any of them is computed.
  struct Neighbours {
    llvm::SmallVector<Lanes> columns; // of this thread, side by side; without masks
    Value first;                      // the lane of the first of them
    Value mask;                       // whether there are such columns; null: yes
  };
  struct RowAhead {
    std::vector<Value> chainIndex, scalars;
    llvm::SmallVector<Lanes> columns;
  };
  Neighbours neighboursAt(Value column, int64_t together);
  template <class Body> void forEach(const Neighbours &, Body body);
  RowAhead readRow(const Work &row, const Neighbours &, Value number);
  void loadTogether(int node, const Neighbours &, llvm::MutableArrayRef<Lanes> columns);
  void computeRow(const Work &row, const Neighbours &, RowAhead, llvm::function_ref<void(int, size_t, Value)> take);
  // Chains over rows of one number, which the threads of a team share. `single`: a row for all of them.
  bool threadsTakeRows(const Work &row) const;
  Values forRowsOfThreads(const Work &row, Value first, int64_t count, mlir::ValueRange initial, llvm::function_ref<Values(mlir::ValueRange)> single);
  void storeTogether(int store, Value base, const Neighbours &, llvm::ArrayRef<Lanes> columns, const Preheader &);
  void storeSums(const Work &row, const Neighbours &, mlir::ValueRange sums);
  Values startsOf(const Work &row, const Neighbours &, Values &fresh);
  void teamColumns(Value column, int64_t together);
  void runTeams();

  // LoopGang.cpp: direct chains of a block of threads.
  void openGang();
  Value isTeam(int64_t number);
  void gangColumns(Value column);
  void evaluateBatch(const Work &row, const Neighbours &, Value first, Value end, Value at);
  void keepRow(int chain, Value value, Value place);
  Value addBatch(int chain, Value sum, Value at, Value count);
  Values walkBatches(const Work &row, const Neighbours &, Value first, int64_t count, mlir::ValueRange initial);

  // LoopShares.cpp: AddAt, whose places are shared among teams.
  Value isOfShare(Value number);
  void forRowsOfShare(llvm::function_ref<void()> body);

  // LoopSquares.cpp: squares, some of whose operands are turned in registers.
  void emitSquares();
  void square(Value rest, Value row, Value column, int64_t rows, int64_t columns);
  Value placeIn(const View &, const std::vector<size_t> &dims, Value linear);
  void askForLine(const View &, Elem, Value at, bool toWrite);
  Value loadLine(int node, Value at, int64_t count);
  void storeLine(const LoopStore &, Value at, Value value, int64_t count);

  // LoopWide.cpp: with teams, four or eight neighbouring columns a thread, where nothing is summed.
  struct Wide {
    int64_t together = 0; // columns of a thread; 0: they are walked one by one
    bool aligned = true;  // each row begins at a multiple of `together` elements; else all views begin equally far from one
    Value base;           // the element number of one of the views
  };
  Wide wideOf(const std::vector<int> &stores, const Preheader &) const;
  void chosenFrom(int node, std::vector<int> &loads) const;
  Value basesAreAligned();
  mlir::VectorType accessOf(Elem, int64_t columns); // of a thread
  mlir::Attribute alignmentOf(Elem, int64_t columns);
  llvm::SmallVector<Lanes> loadWide(const Wide &, Value column, const Preheader &);
  Value reduceWide(const Wide &, const std::vector<int> &reductions, Values &carried, const Preheader &);
  void runWide(const Wide &, const std::vector<int> &stores, const Preheader &);
  void runNarrow(Value from, Value to, const std::vector<int> &stores, const Preheader &);

  // LoopDraws.cpp: flags that threads of a team draw for one another.
  bool sharesDraw(int node, const Wide &) const;
  Values sharedDraw(int node, Value column);

  // LoopQuick.cpp: with teams, quotients of one divisor a row, and powers.
  bool isQuickPower(int node) const;
  void prepareQuick(Preheader &);
  bool hasQuick(const Preheader &) const;
  void lookAtUsual(Value unusual);
  Value quickValue(int node, llvm::ArrayRef<Value> args, const Preheader &);
  Value power(Value exponent);
  Value quotient(int node, Value dividend, const Preheader &);
  void evaluateTogether(mlir::MutableArrayRef<Lanes>, const Preheader &, llvm::function_ref<void(size_t)> turnTo);

  // LoopNodes.cpp: nodes.
  Value evaluateScalar(int node);
  Value elementwise(int node, mlir::ArrayRef<Value> args);
  Value evaluateVector(int node, Lanes &, const Preheader &);
  Value loadScratch(int node, const Lanes &);
  void storeScratch(int node, Value, const Lanes &);
  Value loadRow(int64_t scratchByte, Elem, const Lanes &);
  void storeRow(int64_t scratchByte, Elem, Value, const Lanes &);
  bool isKept(int node) const { return plan.keptBy[node] >= 0 && plan.keptBy[node] < pass; }
  void evaluateVectors(Lanes &, const Preheader &);
  Value operand(int node, const Lanes &, const Preheader &);
  Value load(const View &, Value base, Elem, const Lanes *);
  Value gather(const View &, Value at, Value laneOffsets, Elem, const Lanes &);
  Value loadAt(int node, Lanes &, const Preheader &);
  Value loadClamped(int node, Lanes &, const Preheader &);
  Value loadContiguous(Value memory, Value at, Elem, const Lanes &);
  int64_t rowsOf(const Lanes &);
  Value loadOfRows(int node, Value base, const Lanes &);
  void storeColumns(int store, Value base, Value value, const Lanes &);
  Value drawLanes(int node, const Lanes &);
  void store(const LoopStore &, Value base, Value value, const Lanes *);
  void addAtPlaces(Value base, Value tableBase, const Lanes *, const Preheader *);
  void emitAddAt(Value base, Value tableBase, const Lanes *, const Preheader *);
  Value tableBase();
  View tableView() const;
  Value laneOffsets(int64_t stride);
  Value argOffsets(const std::vector<int> &args, const std::vector<int64_t> &strides, const Lanes &, const Preheader &);
  Value drawValue(int node, Value raw);
  Value elementNumber(const View &, const Lanes *);
  Value exampleNumber(const LoopNode &, const Lanes *);
  Value elementsBefore(const LoopNode &);
  Value drawnElement(const LoopNode &, const Lanes *);
  Value combine(LoopReduce, Value, Value);
  Value neutral(LoopReduce, Elem, bool vector);
  Value chainStart(const LoopNode &, bool vector);
  void initialReduction(int node, Values &);
  void accumulate(int node, mlir::MutableArrayRef<Value> accumulators, const Lanes &, const Preheader &);
  Value reduceRows(int node, Value vector);
  void finishReduction(int node, llvm::ArrayRef<Value> accumulators);

  // Small pieces.
  mlir::Type type(Elem elem, bool vector);
  mlir::Type lanesOf(mlir::Type element); // of a vector of columns; with teams, of one
  Value index(int64_t);
  Value addIndex(Value, Value);
  Value mulIndex(Value, int64_t);
  Value splat(Value);
  Value iota(mlir::Type element);
  Value buffer(int number, Elem);
  void openBuffers();
  Value wordOfLaunch(int number);           // behind the buffers and the scratch
  Value viewAt(Value byte, Elem);
  Value addressOf(int node);
  Value scratchByte(int node);
  Value base(int64_t offset, const std::vector<int64_t> &strides);
  Value basePlus(const View &, const std::vector<int> &args, const std::vector<int64_t> &strides);
  std::vector<Value> split(Value flat, const std::vector<int64_t> &dims);
  Value toI64(Value);
  // With teams: a mask is one bit; what a thread has no part in is 0, or is not done.
  Value loadOne(Value memory, Value at, Elem, Value mask);
  void storeOne(Value value, Value memory, Value at, Value mask);
  // One number for the whole team is stored by its first thread, when no other needs what was there before.
  void onFirstLane(llvm::function_ref<void()> body);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const LoopPlan &plan;
  const LoopSpec &spec;
  Value arena, offsets, context, thread, threads;
  Value scratchAt;                          // byte offset of this thread's scratch
  Value step, totalSteps, firstExample, firstPosition;
  static std::pair<int, uint64_t> keyName(const LoopNode &node) {
    return {node.keyWord, node.keyWord < 0 ? node.key : 0};
  }
  std::map<std::pair<int, uint64_t>, DrawKey> keys;
  std::map<int, Value> thresholds;          // of draws whose number is a word
  std::map<std::pair<int, Elem>, Value> buffers;
  std::map<int, Value> bufferBytes;
  // What a walk over the rows does for AddAt. A block of rows takes three: its places of the table are cleared; it is
  // summed there; its places are added where they belong, each once, for they are cleared again at the first visit.
  enum class AddAtWalk { Add, Clear, Sum, Flush } addAtWalk = AddAtWalk::Add;
  static constexpr int kTable = -1;         // the table, among `buffers`
  std::vector<Value> scalars;               // per node, where known
  std::vector<std::pair<Value, Value>> draws; // rows of draws that are filled: memref, first element
  std::vector<Value> outerIndex, chainIndex;
  Value columnBegin, columnEnd;             // of the item
  Value share;                              // of the places of AddAt, the item's: its number
  Value tailMask;
  Value lane;                               // with teams: of this thread (index)
  Value team;                               // with a gang: its number in the block
  std::map<int, Value> gangRows, gangTotals; // of each chain, in shared memory: values of two batches of rows, sums of the columns
  int pass = 0;                             // over the columns of a context
  Value *beyondQuick = nullptr;             // while values are found quickly: whether one of them has to be found otherwise
};

// What memory holds of an element, and the value that it is (LoopMemory.cpp).
mlir::Type storedType(mlir::OpBuilder &, Elem);
mlir::Value toValue(mlir::OpBuilder &, mlir::Location, mlir::Value stored, Elem);
mlir::Value toStored(mlir::OpBuilder &, mlir::Location, mlir::Value, Elem);

} // namespace cinch::kernels
#endif
