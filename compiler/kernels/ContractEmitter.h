// ContractEmitter.h: writes the loops of a planned contraction. Index arithmetic is folded while it is built, so that
// one description serves shapes with and without outer dims.
#ifndef CINCH_COMPILER_KERNELS_CONTRACTEMITTER_H
#define CINCH_COMPILER_KERNELS_CONTRACTEMITTER_H

#include "compiler/kernels/Amx.h"
#include "compiler/kernels/ContractPlan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace cinch::kernels {

// An empty function over A, B, C and, if there is any, scratch.
mlir::func::FuncOp contractFunction(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, bool hasScratch);

class ContractEmitter {
public:
  ContractEmitter(mlir::OpBuilder &builder, mlir::Location loc, const ContractPlan &plan)
      : builder(builder), loc(loc), plan(plan) {}

  // The body of the kernel; the arguments of the function as the kernel ABI has them. Bytes of scratch a thread: of the whole
  // kernel, of which this may be a part.
  void emitBody(mlir::Value arena, mlir::Value offsets, mlir::Value context, mlir::Value thread, mlir::Value threads, int64_t scratchBytes);

private:
  using Value = mlir::Value;
  using Range = std::pair<Value, Value>;
  using Body = llvm::function_ref<void(Value)>;

  // A block of the reduction: `runs` stretches of `length` along the inner dim, from stretch `firstRun` and inner
  // `start` on.
  struct KBlock {
    Value firstRun, runs, start, length;
    Value total; // runs * length
    Value later, last; // not the first of its chain (null: it is), the last one
    Value finite;      // whether all of B is, if what lies outside of A is left out
  };
  // Where a block of outputs begins in each operand, in elements.
  struct Origin {
    Value a, b, c;
    Value bound[2]; // where A is beside its bounds, if it has them
    Value unit; // of a grained reduction: the number of the first row of tiles in its band
    Value band; // Bands: where the place, or the tap, lies in the band of A
  };

  // Index arithmetic and loops.
  Value number(int64_t);
  Value add(Value, Value);
  Value add(Value, int64_t);
  Value sub(Value, Value);
  Value mul(Value, Value);
  Value mul(Value, int64_t);
  Value div(Value, int64_t);
  Value rem(Value, int64_t);
  Value min(Value, Value);
  Value min(Value value, int64_t bound) { return min(value, number(bound)); }
  Value max(Value, Value);
  Value less(Value, Value);
  bool isMultiple(Value, int64_t of);
  void forLoop(Value from, Value to, int64_t step, Body);
  // `body` for every full step of [from, to) up to `fullEnd`, then `edge` at fullEnd if the range reaches past it.
  void forTiles(Value from, Value to, int64_t step, int64_t fullEnd, Body full, Body edge);
  Value offsetIn(const ContractDims &, int64_t ContractDim::*stride, Value linear);

  // Memory.
  mlir::Type elementType();
  mlir::VectorType vectorType(int64_t lanes);
  Value mask(int64_t lanes, int64_t alive);
  Value viewOf(Value arena, Value byteOffset, Elem elem);
  Value loaded(Value stored, Value memory);
  Value loadVector(Value memory, Value index, int64_t lanes, int64_t alive);
  Value loadMasked(Value memory, Value index, Value mask); // +0.0 elsewhere
  void storeVector(Value vector, Value memory, Value index, int64_t alive);
  Value loadScalar(Value memory, Value index);
  void storeScalar(Value value, Value memory, Value index);
  Value zeros(int64_t lanes);

  // The loops around the tiles (Contract.cpp).
  void moveA(Origin &, const ContractDims &, Value linear);
  void emitParts(Range batches, Range m, Range n);
  void splitThreads(Value thread, Value threads, Range &batch, Range &m, Range &n);
  Range innerRange(Range units, Value outer, int64_t unitsPerOuter, int64_t unit, int64_t size);
  void emitColumns(Origin origin, Range n, Range mUnits);
  void emitReduction(Origin origin, Range n, Range mUnits);
  void emitBlock(Origin origin, Range n, Range mUnits, KBlock block);
  void emitTiles(Origin origin, Range m, Range n, KBlock block);

  // Packing (ContractPack.cpp). Origins are those of the block's first row or column and of k = 0.
  Value offsetOfRun(KBlock, Value run, int64_t ContractDim::*stride);
  // Ahead of a load or a store: 3 for the first cache, 2 for the second one.
  void askFor(Value memory, Value place, bool toWrite = false, unsigned hint = 3);
  void packA(const Origin &, Range m, KBlock);
  void packRowsA(const Origin &, Range m, KBlock);
  void packColsA(const Origin &, Range m, KBlock);
  void copyRunA(Value from, Value to, Value length);
  void packWindowRows(const Origin &, Range m, KBlock);
  bool runsFollow(int64_t runs);
  void packRowsOfTaps(const Origin &, Range m, KBlock);
  void packWindowColumns(const Origin &, Range m, KBlock);
  Value exists(Value bound0, Value bound1);
  void ifThere(Value condition, llvm::function_ref<void()> body);
  void ifElse(Value condition, llvm::function_ref<void()> yes, llvm::function_ref<void()> no);
  void packB(Value base, Range n, KBlock);
  void copyRowB(Value from, Value to, int64_t columns);
  void transposeIntoPanel(Value base, Value column, Value panel, int64_t columns, KBlock);
  // Where the copied rows of A lie, and what is to be done with a row when it is complete (words: ContractWords.cpp).
  Value rowMemory() { return plan.hasWords() ? halves : scratch; }
  Value rowTarget(Value row);
  Value runTarget(Value target, KBlock, Value run);
  void finishRow(Value target, KBlock);

  // Panels of words (ContractWords.cpp).
  struct Element { Value stretch, k; }; // number of the stretch among all, place within it
  Value lengthOfRun(KBlock);
  Value stepsOfRun(KBlock);
  void forGroups(KBlock, int64_t size, llvm::function_ref<void(Value step, llvm::ArrayRef<Element>)>);
  void forFillings(KBlock, int64_t size, llvm::function_ref<void(Value step)>);
  llvm::ArrayRef<std::pair<size_t, size_t>> pairing();
  mlir::SmallVector<int64_t> orderOfHalves(int64_t count);
  Value halvesOf(Value values);
  Value wordsOf(Value low, Value high, int64_t count);
  Value word(Value low, Value high);
  Value halfOfA(const Origin &, const Element &, Value row, int64_t rows);
  Value elementOfA(const Origin &, const Element &, Value row);
  void packWordsA(const Origin &, Range m, KBlock);
  void packWordsB(Value base, Range n, KBlock);
  void transposeWords(Value base, Value column, Value panel, int64_t columns, KBlock);
  void forPanels(Range n, llvm::function_ref<void(Value column, Value panel, int64_t columns)>);

  // A in bands (ContractBands.cpp).
  void fillZeros(Value to, int64_t count);
  void copyForwards(Value from, Value to, int64_t count);
  void copyWords(Value from, Value to, int64_t count);
  void copyNeighbours(Value source, Value to, int64_t left, int64_t end);
  void copyBand(const Origin &, Value rows);
  // .. by AMX (ContractAmxBands.cpp).
  void copyHalves(Value from, Value to, int64_t count, bool filled);
  Value zeroHalves();
  void copyPlaces(Value source, Value to, int64_t left, int64_t end);
  void copyWindows(Value origin, Value to);
  void turnHalves(Value source, Value to, int64_t left, int64_t end);
  void emitBands(const Origin &, Range n, Range mUnits, KBlock);
  void forBands(Value first, Value last, llvm::function_ref<void(Value row, Value rows)>);

  // Bands whose places are lanes (ContractPlanar.cpp).
  struct PlanarTile {
    int64_t rows, vectors, alive; // of places; how many the last vector has
    Value band, filter, c;        // its first place and k = 0
  };
  void turnRow(Value source, Value to, int64_t left, int64_t end);
  void emitPlanar(const Origin &, Range rows);
  void planarRows(const Origin &, Value first, int64_t rows);
  void planarTile(const PlanarTile &);
  mlir::SmallVector<Value> planarChains(const PlanarTile &, size_t dim, mlir::SmallVector<Value> chains);
  mlir::SmallVector<Value> planarStep(const PlanarTile &, mlir::ValueRange chains);
  Value placesOfC(Value at, int64_t alive);
  void storePlaces(Value values, Value at, int64_t alive);

  // By Winograd's minimal filtering (ContractWinograd.cpp).
  void emitWinograd(Value context, Value thread, Value threads);
  void transformFilter(Range columns);
  void transformPanel(Value column, Value panel, int64_t columns);
  mlir::SmallVector<Value> loadTaps(Value channel, Value column, int64_t alive);
  void storeTaps(llvm::ArrayRef<Value> taps, Value at);
  struct TileRow {           // of tiles beside each other
    Value a, c;              // where the image begins that it lies in, and its outputs (in B, if C is the gradient of the filter)
    Value output;            // number of its first row of outputs; it may be outside
  };
  TileRow tileRowAt(Value number, Value firstRow);
  void transformRow(const TileRow &, Range channels, int64_t unit, Value to);
  struct Patch {
    Range channels;          // from a multiple of `unit` to one, or to the last channel; `unit` divides a vector
    int64_t unit = 1;
    llvm::SmallVector<Value, 4> rowExists; // none: all do
    llvm::SmallVector<bool, 4> columnExists;
  };
  void transformPatch(Value source, Value to, const Patch &);
  mlir::SmallVector<Value> loadPatch(Value source, const Patch &, int64_t lanes, int64_t alive);
  void winogradTile(Value firstOfBlock, Value first, Value count, Value panel, Value column, int64_t columns, Value firstRow);
  void putTogether(const TileRow &, Value tile, Value products, Value column, int64_t columns);
  // .. the gradient of a filter (ContractWinogradFilter.cpp).
  struct FilterBlock {       // of C, and what is summed together for it
    Range channels;          // of the image
    Range columns;
    Value tiles;             // that are summed
    Value isFirst;           // nothing has been added to C; null: something has
  };
  void emitWinogradOfFilter(Value thread, Value threads);
  void sumTogether(FilterBlock, Value image, Value row);
  void transformGradient(const TileRow &, Range columns, Value tile);
  void transformPlaces(Value source, Value to, int64_t columns, int64_t places, bool hasSecondRow);
  void filterTile(const FilterBlock &, Value channel, int64_t count, Value panel, Value column, int64_t columns);
  void addToFilter(const FilterBlock &, Value sums, Value c, int64_t alive);
  Value loadApart(Value memory, Value index, int64_t stride, int64_t lanes, int64_t alive);
  void storeApart(Value vector, Value memory, Value index, int64_t stride, int64_t alive);

  // What lies outside of A (ContractOutside.cpp).
  Value magnitudes(Value vector);
  Value isFinite(Range n, KBlock);
  Value hasNegativeZero(mlir::ValueRange chains);
  Value anyOf(Value flags);

  // A batch dim and n in the lanes (ContractLanes.cpp).
  void emitZeros(Value thread, Value threads);
  void emitLanes(Value thread, Value threads);
  // `alive`: how many elements the vector of a tile has; null: all. `checked`: it was asked whether it lies within all bounds, and it
  // is `inside` or not.
  struct LaneTile {
    int64_t rows;
    Value alive;
    bool inside = false, checked = false;
    int within = -1; // a bound of which it is known that it holds
  };
  struct LaneMiddle {
    int bound;
    int64_t first, last;
  };
  struct LaneChannel { // of a group's channels, which follow each other in memory
    int64_t channel = 0, channels = 1;
  };
  LaneChannel channelOf(const ContractDims &, int64_t ContractDim::*stride, int64_t group, int64_t linear);
  LaneChannel channelOfRow(const LaneTile &, int64_t row);
  std::optional<LaneMiddle> middleOf(const Origin &, const LaneTile &);
  void laneTile(const Origin &, LaneTile);
  mlir::SmallVector<Value> laneChains(const Origin &, const LaneTile &, size_t dim, mlir::ValueRange accumulators);
  mlir::SmallVector<Value> laneSteps(const Origin &, const LaneTile &, const ContractDims &walk, mlir::ValueRange accumulators);
  size_t firstCheck();
  int64_t mostWritten();
  size_t firstWritten(const LaneTile &);
  Value isInside(const Origin &, const LaneTile &, size_t dim);
  std::optional<Value> isThere(const Origin &, const LaneTile &);
  Value laneLoad(Value memory, Value index, int64_t group, int64_t within, LaneChannel, Value alive, Value there);
  Value laneSpread(Value memory, Value index, int64_t group, LaneChannel, Value alive, Value there);
  Value placeIfThere(Value index, Value there);
  Value laneMask(Value count, Value there);
  Range share(Value thread, Value threads, int64_t items);

  // The register tile (ContractTile.cpp).
  struct Tile {
    int64_t rows, columns; // of this tile
    Value a, b, c;         // indices of its first element in `memoryA`, `memoryB` and C
    Value sums;            // of its block sums in scratch
    Value memoryA, memoryB;
    int64_t strideMA, strideKA, strideKB;
    Value bound[2]; // where its first row lies, if what lies outside of A is left out
    // In a chain of tiles by AMX: where the next one's operands and its part of C begin, and that part of C whose results still wait in scratch.
    Value nextA, nextB, nextC, waiting;
    Value belowA, number; // of an A in place: where rows below this one's begin, and how many tiles stand before this one in its row
  };
  Tile tileAt(const Origin &, Range m, Range n, KBlock, Value row, Value column, int64_t rows, int64_t columns);
  void emitTileAt(const Origin &, Range m, Range n, KBlock, Value row, Value column, int64_t rows, int64_t columns);
  int64_t rowOfA(const Tile &, int64_t row);
  void prefetchBelow(const Tile &);
  void emitTile(const Tile &, KBlock);
  // Two chains an output, for products of bf16 (ContractPairs.cpp).
  using Values = mlir::SmallVector<Value>;
  Tile atStretch(const Tile &, KBlock, Value run, Value panelSteps);
  Value stepInBand(Value step);
  Value offsetOfStep(const Tile &tile, Value step) {
    return plan.pairs && plan.bands != Bands::No ? stepInBand(step) : mul(step, tile.strideKA);
  }
  Values bandChains(const Tile &, KBlock, Values accumulators);
  Values pairChains(const Tile &, KBlock, Values accumulators);
  Values pairsOfRun(const Tile &, Value first, Value blocks, Value hasTail, int64_t tail, Values accumulators);
  Values pairBlock(const Tile &, Value first, int64_t count, Values accumulators);
  Values wordBlock(const Tile &, Value first, int64_t count, Values accumulators);
  Values choose(Value condition, mlir::TypeRange, llvm::function_ref<Values()> yes, llvm::function_ref<Values()> no);
  Values unlessOutside(const Tile &, KBlock, Value run, Values chains, llvm::function_ref<Values(Values)>);
  Values runsOfTile(const Tile &, KBlock, Values chains);
  Range placesInside(const Tile &, const ContractDim &);
  Values placesOfTile(const Tile &, KBlock, Values chains);
  Values overRange(Value from, Value to, int64_t step, Values, llvm::function_ref<Values(Value, Values)>);
  mlir::SmallVector<Value> firstAccumulators(const Tile &, KBlock);
  void finishTile(const Tile &, KBlock, mlir::ValueRange accumulators);
  mlir::SmallVector<Value> loadAccumulators(const Tile &, Value memory, Value index, int64_t pitch);
  mlir::SmallVector<Value> loadC(const Tile &);
  void storeAccumulators(const Tile &, mlir::ValueRange, Value memory, Value index, int64_t pitch);
  void storeC(const Tile &, mlir::ValueRange);
  mlir::SmallVector<Value> multiply(const Tile &, Value k, mlir::ValueRange accumulators);
  void prefetchRowsOfB(const Tile &, mlir::Value at);
  Values multiplySteps(const Tile &, Value k, Values accumulators);
  Values wordsInPlace(const Tile &, Value step, int64_t chain);
  Values multiplyWords(const Tile &, Value step, mlir::ValueRange accumulators, int64_t chain = 0);
  void copyTile(const Tile &, bool toC);

  // One chain over k (ContractInOrder.cpp).
  std::pair<Value, Value> exponents(Value memory, Value start, int64_t stride, Value first, Value last);
  Value isMultipleC(const Origin &, Range m, Range n);
  Value mayBeInOrder(const Origin &, Range m, Range n);
  Values chainInOrder(const Tile &, KBlock, Values accumulators);

  // By AMX (ContractAmx.cpp).
  void bandProducts(const Tile &, KBlock); // ContractAmxBands.cpp
  enum class Staged { Out, In, Added };
  void packRowsOfWords(const Origin &, Range m, KBlock);
  void amxTiles(const Origin &, Range m, Range n, KBlock);
  Range wholeTiles(Range, int64_t size, int64_t step);
  void chainOfTiles(const Origin &, Range m, Range n, KBlock);
  Amx::Operand operandA(const Tile &, Value at);
  Amx::Operand operandB(const Tile &, Value at);
  Value blocksOf(KBlock);
  bool waitsInScratch(KBlock);
  void besideProducts(const Tile &, KBlock, Value at);
  void askForRowsBelow(const Tile &, Value at);
  void amxProducts(const Tile &, KBlock);
  void amxTile(const Tile &, KBlock);
  void stageC(const Tile &, Staged);
  void putDown(const Tile &, Staged, Value c, Value row);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  const ContractPlan &plan;
  Value memA, memB, memC, scratch; // one-dimensional, of elements
  Value words, halves;             // the scratch as i32 and as i16, where panels hold words
  Value threadScratch;             // index of this thread's first element in `scratch`
};

} // namespace cinch::kernels
#endif
