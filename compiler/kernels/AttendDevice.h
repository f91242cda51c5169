// AttendDevice.h: what forward and backward of attention on a GPU share.
//
// A block of 256 threads has a tile of scores: queries x keys, 64 x 64 at most. Thread (column, row) of 16 x 16 computes some of the
// scores in registers: the queries column * reach + i, the keys row + 16 * j. Operands come through shared memory 16 features, keys or
// queries at a time. What the sums over keys or queries need of a tile lies in shared memory as [key][query].
// Numbers are those of the CPU's kernel: blocks of 64 queries and kKeyBlock keys, the same chains, the same terms of each. Under a causal
// mask a chain leaves out what the CPU's leaves out (`rowsOfSameTerms`), since a product of zero can turn -0 into +0.
#ifndef CINCH_COMPILER_KERNELS_ATTENDDEVICE_H
#define CINCH_COMPILER_KERNELS_ATTENDDEVICE_H

#include "compiler/kernels/AttendEmitter.h"

namespace cinch::kernels {

constexpr int64_t kAttendThreads = 256, kAttendSide = 16, kAttendStep = 16;
constexpr int64_t kMostColumns = 128; // of a result's rows that a block has in registers; wider rows are several items

// How attention is cut into tiles.
struct AttendTiles {
  int64_t queries, keys;         // of a tile: 16, 32 or 64
  int64_t blocksT, blocksS;      // tiles along each
  int64_t heads, keyHeads;       // times all leading indices
  explicit AttendTiles(const AttendSpec &);
  static int64_t chunksOf(int64_t columns) { return (columns + kMostColumns - 1) / kMostColumns; }
};

// A block of threads that work on one item together: control, shared memory, the draws of a tile's dropout.
class BlockAttend : protected AttendEmitter {
protected:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  BlockAttend(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &, const TargetInfo &, int64_t buffers);

  // Left to itself, ptxas keeps to 128 registers a thread, so that two blocks share a multiprocessor, and spills a few where a kernel needs more.
  void allowRegisters(int);

  Value self; // this thread among 256

  Value rem(Value, int64_t);
  Value div(Value, int64_t);
  Value below(Value, Value);
  Value atLeast(Value, Value);
  Value both(Value, Value); // either may be null: holds
  Value max(Value, Value);
  void when(Value condition, llvm::function_ref<void()> body); // null: always
  Value choose(Value condition, llvm::function_ref<Value()> value); // 0 where it does not hold; null: always
  void sync();
  // One item after another, spread over the blocks.
  void forBlocks(int64_t items, llvm::function_ref<void(Value)> body);
  Value take(Value &number, int64_t size); // the fastest index of a number of an item

  Value sharedMemory(const std::string &name, int64_t elements, mlir::Type);
  Value read(Value memory, Value at);
  void write(Value value, Value memory, Value at);

  // The leading indices of number `linear` when the examples are counted slowest.
  Values examplesFirst(Value linear);
  // Of backward: where this head's results and their gradients are.
  struct Located : Head {
    Place o, lse, dout;
    Values where;
    explicit Located(const Head &head) : Head(head) {}
  };
  Located headAt(const AttendGradSpec &, Values lead, Value head);

  // Adds the slopes of a tile of scores to the gradient of the bias, for head number `head`: a chain over the leading axes, the examples
  // slowest; in blocks of `grain` of them if there is one. `seen`: whether any of the tile's queries looks at any of its keys (null: yes).
  // `forPlaces` calls its argument for each of this thread's scores: whether it is there (null: it is), and its element of the gradient.
  // `slopesOf` computes the slopes of these scores for one leading index, in the same order.
  using OfPlace = llvm::function_ref<void(Value there, Value element)>;
  void addToBiasGradient(const AttendGradSpec &, Value head, Value seen, llvm::function_ref<void(OfPlace)> forPlaces,
                         llvm::function_ref<Values(const Located &)> slopesOf);

  // The bits of draws, in shared memory: a row for each query of a tile, a byte for each block of draws, of whole groups of 64 draws from
  // the one on in which the row's first draw lies.
  struct Draws {
    Value memory; // null: there is no dropout
    int64_t queries = 0, bytes = 0, pitch = 0;
    Value first; // row in memory of the tile's first query; null: 0
    bool together = false; // a thread's blocks of draws are computed together, not one after the other
  };
  Draws drawsOf(const std::string &name, int64_t queries, int64_t bytes, int64_t pitch);
  Value firstDrawOf(const Head &, Value query, Value firstKey);
  Values keptOfBlock(const Head &, Value block); // of its eight draws
  // Draws those of a tile. Threads wait in between.
  void drawTile(const Draws &, const Head &, Value firstQuery, Value firstKey);
};

class DeviceAttend : protected BlockAttend {
protected:
  DeviceAttend(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &, const TargetInfo &, int64_t buffers,
               int64_t mostColumns);

  AttendTiles tiles;
  int64_t reachQ, reachK; // of a thread
  Value row, column;      // this thread among 16 x 16

  // Rows of a matrix in global memory, features contiguous. `count`: those that there are; null: as many as the tile.
  struct Rows {
    Place at;
    int64_t stride;
    Value count;
  };
  Rows rows(Place, const View &, Value first, int64_t total, int64_t tile);

  // A tile: its first query and key, and what lies there.
  struct Tile {
    Value t0, s0;
    Value keys; // of them these are looked at (the CPU's Patch::keys); null: all of the tile
  };
  Tile tileAt(Value t0, Value s0);
  Value limitOfKeys(Value t0);
  Value query(int64_t i) { return add(mul(column, reachQ), i); } // of this thread, within the tile
  Value key(int64_t j) { return add(row, kAttendSide * j); }

  // The products of queries' and keys' rows, one chain over the features each: [i * reachK + j].
  Values products(const Rows &queries, const Rows &keys, int64_t features);
  // Of these products the scores: scaled, biased, -inf where masked out.
  void finishScores(const Head &, const Tile &, Values &);
  void store(const Values &, Value memory); // to [key][query]
  int64_t pitch() const { return tiles.queries + 1; }

  // sums[i * columns / 16 + j] go on over a.terms x rows: for the rows column * reach + i of the result and its columns
  // first + row + 16 * j.
  struct Sum {
    Value memory;               // in shared memory
    int64_t rowStride, termStride, reach;
    Rows rows;                  // of the other operand, by term
    Value first;                // column
    int64_t columns, all;       // of these a block has so many; of the matrix
    int64_t terms;              // at most
    Value end;                  // terms that there are; null: all
    Values from, to;            // of each i, where a causal mask may cut chains; looked at where `cut` holds
    Value cut;
  };
  Values sumUp(const Sum &, Values sums);
  Sum overKeys(const Tile &, Value memory, const Rows &, Value first, int64_t columns, int64_t all);
  Sum overQueries(const Tile &, Value memory, const Rows &, Value first, int64_t columns, int64_t all);
  Values zeros(int64_t count) { return Values(size_t(count), number(0)); }
  static int64_t columnsOf(int64_t all) { return std::min(kMostColumns, (all + kAttendSide - 1) / kAttendSide * kAttendSide); }
  // Result rows first + column * reach + i < total, columns firstColumn + row + 16 * j < all.
  void storeRows(const Values &, int64_t reach, Place, int64_t stride, Value first, int64_t total, Value firstColumn, int64_t columns,
                 int64_t all, llvm::function_ref<Value(int64_t i, Value)> finish);

  // With dropout: draws the tile's kept shares; true where that of a place in the tile is. Threads wait in between.
  void drawTile(const Head &, const Tile &);
  Value isKept(const Head &, const Tile &, Value query, Value key);

private:
  void stageFeatures(const Rows &, int64_t tile, Value feature, int64_t count, Value to, int64_t at);
  Value staged;
  Draws draws;
};

} // namespace cinch::kernels
#endif
