// AttendTensor.h: what forward and backward of attention on tensor cores share, in programs of bf16.
//
// A block has eight warps. A warp has 16 rows (queries, or keys) as the left side of its products, in registers. The right side comes through
// shared memory as bf16, a tile of rows for all warps. A product of the two is a piece of the matrix of scores, 16 rows x the tile's rows, in
// pieces of 16 x 8 as `mma.sync.m16n8k16` leaves them: lane l has columns l % 4 * 2 and the next one of rows l / 4 and l / 4 + 8. Two such
// pieces, rounded to bf16, are a left side of 16 x 16 as the next product takes it. So shares never leave the registers.
//
// Where a GPU has `wgmma`, and features are at most 64, four warps multiply together: their 64 rows times all rows of a tile, which both lie in shared
// memory in lines of 128 bytes, or 64 rows of shares in their registers times the features of a tile's rows. Each warp finds its 16 rows of the result as
// above.
//
// An instruction adds 16 products to an f32: features 0 to 15 first, keys from a multiple of 16 on, queries likewise. Where features, keys or
// queries end, zeros follow. That order, and which scores a row's maximum is taken over before the row is scaled anew (kKeyBlock), hang on the
// program alone.
#ifndef CINCH_COMPILER_KERNELS_ATTENDTENSOR_H
#define CINCH_COMPILER_KERNELS_ATTENDTENSOR_H

#include "compiler/kernels/AttendDevice.h"

namespace cinch::kernels {

constexpr int64_t kWarpRows = 16, kTensorWarps = kAttendThreads / 32;
constexpr int64_t kTensorFeatures = 128; // of a head, at most: a result's row lies in registers
constexpr int64_t kLineFeatures = 64, kLinesAlignment = 1024; // of wgmma's tiles: features of a line; bytes that a tile begins at a multiple of

Grid gridOfTensorAttend(const AttendSpec &, const TargetInfo &);
Grid gridOfTensorAttend(const AttendGradSpec &, const TargetInfo &);
// Pieces of equal work, of which a block does one after another.
int64_t itemsOfTensorAttend(const AttendGradSpec &, const TargetInfo &);
// Whether it multiplies by wgmma.
inline bool attendsByGroups(const AttendSpec &spec, const TargetInfo &target) { return target.warpgroups && std::max(spec.K, spec.E) <= kLineFeatures; }
bool attendsByGroups(const AttendGradSpec &, const TargetInfo &);
mlir::func::FuncOp buildAttendOnTensorCores(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &, const TargetInfo &);
mlir::func::FuncOp buildAttendOnTensorCores(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendGradSpec &, const TargetInfo &);

class TensorAttend : protected BlockAttend {
protected:
  TensorAttend(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &, const TargetInfo &, int64_t buffers);

  Value warp, group, pair; // of the block's warps; l / 4 and l % 4 * 2 of lane l

  // Rows in global memory, features contiguous: bf16 (`narrow`), but those of o, of which the gradient needs more, are f32.
  struct Matrix {
    Place at; // row 0
    int64_t stride, rows, features;
    bool wide; // features are eights, and begin at multiples of 16 bytes
    bool narrow;
    int64_t bytes() const { return narrow ? 2 : 4; } // of an element
  };
  Matrix matrixOf(Place, const View &, int64_t rows, int64_t features);

  // A tile of rows in shared memory. Rows are padded, so that eight of them lie in different banks; or each is a line of 64 features, whose sixteen
  // bytes number i lie at i ^ (line % 8), as wgmma reads them (ContractTensor.h, GroupTiles).
  struct Stage {
    Value memory, pointer;
    int64_t rows, features; // features: with zeros behind
    bool lines = false;
    int64_t pitch() const { return lines ? kLineFeatures : features + 8; }
    int64_t bytes() const { return rows * pitch() * 2; }
  };
  Stage stageOf(const std::string &name, int64_t rows, int64_t features);
  // Of lines, `begin` bytes (a multiple of 1024) into what the launch gives a block; and how much it gives for so many bytes of lines.
  Stage linesOf(int64_t begin, int64_t rows);
  static int64_t bytesOfLaunch(int64_t bytes) { return bytes + kLinesAlignment; }
  // Rows `first` on, of bf16, are brought: by and by, where they come 16 bytes at a time. They are there behind `awaitTiles`, for which all threads wait.
  void bring(const Stage &, const Matrix &, Value first);
  void awaitTiles();

  Values eightOf(const Matrix &, Value row, Value feature); // neighbours, as f32; zeros beyond the features
  // 16 rows from `first` on as left sides: four registers for each 16 features.
  llvm::SmallVector<Values> leftSide(const Matrix &, Value first, int64_t features);
  // The same from a tile, 16 features from `feature` on.
  Values leftSide(const Stage &, int64_t feature);
  // The products of these rows with the tile's: four numbers for each eight rows of the tile.
  Values products(llvm::ArrayRef<Values> left, const Stage &);
  Values products(const Stage &left, const Stage &);
  Stage linesFrom(Stage, Value first); // of a tile; of lines, a multiple of eight
  Value addressOf(const Stage &);      // of lines: i64, in shared memory
  // By wgmma, of lines: the products of this warpgroup's 64 rows with the tile's, the first ones of whose features are summed up. They are under way until
  // simt::finishedSums returns them.
  Values groupProducts(const Stage &left, const Stage &, int64_t features);
  // By wgmma, as sumUp: for `features` features. The sums are under way likewise.
  Values groupSumUp(const Values &shares, const Stage &, int64_t features, const Values &sums);
  // sums[f / 8 * 4 ..] go on over the tile's rows: shares x rows, for `features` features from `first` on (null: from 0). `shares` are f32
  // in the layout of products; they are rounded.
  void sumUp(const Values &shares, const Stage &, Value first, int64_t features, Values &sums);

  // 16 x 16 of a tile, turned, as a left side: rows are features from `feature` on, columns the tile's rows from `row` on.
  Values turnedSide(const Stage &, int64_t row, Value feature);
  // A left side times 16 features of 16 of the tile's rows, added to eight sums.
  void multiplyRows(llvm::ArrayRef<Value> left, const Stage &, int64_t row, Value feature, Value *sums);
  // Shares in the layout of products, rounded, into a tile: rows `first` on, columns 0 on.
  void storeShares(const Values &shares, const Stage &, Value first);

  // Number `e` of four: its row among the warp's 16, and its column in eight columns `piece`.
  Value rowOf(int64_t e) { return add(group, e / 2 * 8); }
  Value columnOf(int64_t piece, int64_t e) { return add(pair, piece * 8 + e % 2); }

  // Of a score in units of log2. Scores without a bias stay the products that they are; those with one are in units of log2 themselves.
  const double unit;
  const bool groups; // products are those of warpgroups
  // Scores: biased, and -inf where masked out, if any are (`masked`). Rows are queries and columns keys, or the other way round (`turned`);
  // `rows` and `columns` are their first.
  void finishScores(const Head &, Values &scores, Value rows, Value columns, bool turned, bool masked);
  Value limitOfKeys(Value t0, int64_t queries); // that these look at
  // The first keys, whole tiles of `step`, that all queries from t0 on look at.
  Value plainKeys(Value t0, int64_t step);
  // Two loops, one after the other, of which one masks scores and the other need not.
  Values loops(Value from, Value between, Value to, int64_t step, mlir::ValueRange init,
               llvm::function_ref<Values(Value, mlir::ValueRange, bool masked)> body, bool maskedFirst);
  Value exp2(Value);
  Values zeros(int64_t count) { return Values(size_t(count), number(0)); }
  Value ofQuad(Value, llvm::function_ref<Value(Value, Value)> join); // over the four lanes of a row

  // With dropout: whether key `key` + 8 i of a query is kept, as bit i; both counted within the tile, and at most eight of them asked for.
  Value keptBits(const Draws &, const Head &, Value firstQuery, Value firstKey, Value query, Value key);
  Value isBit(Value bits, int64_t i);
  // Where rows of draws begin with whole groups of 64, a lane's columns in 64 keys are whole blocks of draws (Philox.h), and a lane whose rows
  // are queries draws for itself: key `column` + 8 i of a query, i16.
  bool drawsForItself(int64_t keys) const { return spec.dropout > 0 && spec.S % 64 == 0 && keys == 64; }
  // Which of a lane's shares are kept, of a tile of queries x keys; `draws`: where others have drawn them.
  using IsKept = std::function<Value(int64_t piece, int64_t e)>;
  IsKept keptOfLane(const Draws &draws, const Head &, Value firstQuery, Value firstKey, int64_t keys);
  Draws tensorDraws(const std::string &name, int64_t queries, int64_t keys);

  // Result rows first + 0 .. 15 < total and their `features` features from `firstFeature` on (null: 0; else a multiple of `features`) < all.
  void storeRows(const Values &sums, Place, const View &, Value first, int64_t total, Value firstFeature, int64_t features, int64_t all,
                 llvm::function_ref<Value(int64_t e, Value)> finish);
  Value word(Value index);

private:
  mlir::ModuleOp module;
  void maskScores(const Head &, Values &scores, Value rows, Value columns, bool turned);
  Value addressOf(const Matrix &, Value element);
  Value half(const Matrix &, Value element, Value valid);
  Value elements(const Matrix &, Value row, Value feature);
  Values fourOf(const Stage &, bool below, bool turned, int64_t row, Value feature);
  Values rightSide(const Stage &stage, int64_t row, Value feature) { return fourOf(stage, false, false, row, feature); } // rows are columns
  void multiply(llvm::ArrayRef<Value> left, llvm::ArrayRef<Value> right, Value *sums);
  struct Chunk {
    Value line, feature, valid, inTile; // inTile: null: yes
  };
  Chunk chunkOf(const Stage &, const Matrix &, Value first, int64_t number);
  Value byteAt(const Stage &, Value line, Value feature);
};

} // namespace cinch::kernels
#endif
