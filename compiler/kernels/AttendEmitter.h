// AttendEmitter.h: what forward and backward of streaming attention share: addressing, register-tiled products,
// transposed blocks, masks and dropout.
//
// Both walk blocks of queries and, inside, blocks of keys. A block of scores is kept transposed, S[key][query]: the
// lanes of a vector are queries, so that running maximum and sum need no sum across lanes, and each number is a chain
// whose order the shape alone fixes (keys ascending in blocks of kKeyBlock). Vector width and tile sizes therefore
// change no bit.
#ifndef CINCH_COMPILER_KERNELS_ATTENDEMITTER_H
#define CINCH_COMPILER_KERNELS_ATTENDEMITTER_H

#include "compiler/kernels/Kernels.h"
#include "compiler/kernels/Philox.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <functional>

namespace cinch::kernels {

constexpr int64_t kKeyBlock = 64; // keys between two updates of the running maximum: part of what `attend` means
// Rows whose queries are packed together, whole vectors; changes no bit.
int64_t queryBlockOf(const AttendSpec &);
int64_t headsOf(const AttendSpec &); // times all leading indices

// Under a causal mask, so many rows have the same terms in their chains: some of a row are zeros then. It is part of what `attend`
// means, since a product of zero can turn -0 into +0. Rows of bf16 have whole blocks of terms.
inline int64_t rowsOfSameTerms(const AttendSpec &spec) { return spec.pairs ? 32 : 6; }

// Typed memory and the element number where something starts in it.
struct Place {
  mlir::Value memory, at;
};

// C[row, col] = start + sum over i of A[row, i] * B[i, col], i ascending, one chain of FMAs an element. Columns are
// contiguous in B and C.
struct TileProduct {
  Place a, b, c;
  int64_t aRow = 0, aInner = 0, bInner = 0, cRow = 0; // strides
  mlir::Value rows, inner;                            // counts, at least 1
  int64_t cols = 0;                                   // padded to whole vectors in C if `colCount` is set
  mlir::Value colCount;                               // only so many columns are needed
  bool fresh = false;                                 // start from +0.0, not from what C holds
  Place rowScale;                                     // if set: what C holds is multiplied by rowScale[row] first
  std::function<mlir::Value(mlir::Value row, mlir::Value col, mlir::Value vector)> finish; // before storing
  // What a causal mask spares, if set: rows needed by the columns before `colEnd`; first and last + 1 of the terms that
  // rows from `row` on need, as far as they have the same terms.
  std::function<mlir::Value(mlir::Value colEnd)> rowsNeeded;
  std::function<std::pair<mlir::Value, mlir::Value>(mlir::Value row)> termsNeeded;
};

class AttendEmitter {
public:
  AttendEmitter(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &, const TargetInfo &,
                int64_t buffers, int64_t ownScratch);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const AttendSpec &spec;
  mlir::func::FuncOp function;
  mlir::Value arena, offsets, context, thread, threads;
  mlir::Type elem;
  int64_t lanes; // of a vector of queries or features: 16 in f32, 8 in f64
  int64_t queryBlock;
  mlir::VectorType vector;
  bool amx = false, dots = false; // products by words of two terms: tdpbf16ps, vdpbf16ps

  // Index arithmetic, folded where constant.
  mlir::Value index(int64_t);
  mlir::Value add(mlir::Value, mlir::Value);
  mlir::Value add(mlir::Value, int64_t);
  mlir::Value sub(mlir::Value, mlir::Value);
  mlir::Value mul(mlir::Value, int64_t);
  mlir::Value min(mlir::Value, mlir::Value);
  mlir::Value ceilDiv(mlir::Value, int64_t);

  // Numbers.
  mlir::Value number(double);     // scalar
  mlir::Value splat(double);      // vector
  mlir::Value splat(mlir::Value); // scalar to vector
  mlir::Value fadd(mlir::Value, mlir::Value);
  mlir::Value fsub(mlir::Value, mlir::Value);
  mlir::Value fmul(mlir::Value, mlir::Value);
  mlir::Value fdiv(mlir::Value, mlir::Value);
  mlir::Value fma(mlir::Value, mlir::Value, mlir::Value);
  mlir::Value larger(mlir::Value x, mlir::Value y); // x > y ? x : y
  mlir::Value isEqual(mlir::Value, double);         // lane by lane
  mlir::Value select(mlir::Value, mlir::Value, mlir::Value);
  mlir::Value rounded(mlir::Value); // to bf16, if products are those of bf16
  mlir::Value exp(mlir::Value);
  mlir::Value log(mlir::Value);

  // Loops. `body` runs with the insertion point inside.
  void loop(mlir::Value from, mlir::Value to, int64_t step, llvm::function_ref<void(mlir::Value)> body);
  llvm::SmallVector<mlir::Value>
  loop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange init,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)>);

  // Memory.
  mlir::Value bufferMemory(const View &);
  Place scratch(int64_t byteOffset);
  // Where `view` starts for these leading indices; the view's further strides are the caller's.
  Place place(const View &view, mlir::ValueRange leadingIndices);
  static bool isNarrow(Place); // holds bf16
  mlir::Value load(Place, mlir::Value offset);
  mlir::Value loadVector(Place, mlir::Value offset);
  void store(mlir::Value, Place, mlir::Value offset);
  void storeVector(mlir::Value, Place, mlir::Value offset);
  mlir::Value loadSome(Place, mlir::Value offset, int64_t count, mlir::VectorType); // the first `count` lanes, else 0
  void storeSome(mlir::Value, Place, mlir::Value offset, int64_t count);

  // Blocks.
  void product(const TileProduct &);
  // to[col * queryBlock + row] = from[min(row, rows - 1) * rowStride + col] for all rows of a block.
  void packTransposed(Place from, int64_t rowStride, mlir::Value rows, int64_t cols, Place to);
  void fillRows(Place, int64_t rowStride, mlir::Value rows, int64_t cols, double value);

  // Splits `items` into one run a thread and walks this thread's.
  void forItems(int64_t items, llvm::function_ref<void(mlir::Value)> body);
  llvm::SmallVector<mlir::Value> leadIndices(mlir::Value linear);

  // Where a (lead, head) is: queries, keys and values at position 0, and the number of its first draw within the
  // example.
  struct Head {
    llvm::SmallVector<mlir::Value> lead;
    mlir::Value head, firstDraw, example;
    Place q, k, v, bias, keys;
  };
  Head locate(mlir::ValueRange lead, mlir::Value head);

  // A block of queries against a block of keys, and where it lies.
  struct Patch {
    mlir::Value t0, queries, s0, keys;
  };
  // Number of keys that a block of queries looks at: later ones are skipped.
  mlir::Value keyLimit(mlir::Value t0, mlir::Value queries);
  // to[key][query] = the scores, scaled, biased, -inf where masked out.
  void scores(const Head &, const Patch &, Place packedQueries, Place to);
  // Along the diagonal of a causal mask only a triangle of the block is computed: keys that the queries before
  // `queryEnd` need (with what their tiles of rows read beyond), as counts within the block.
  mlir::Value keysNeeded(const Patch &, mlir::Value queryEnd);
  void spareScores(TileProduct &, const Patch &);         // rows are keys, columns queries
  void spareSumOverKeys(TileProduct &, const Patch &);    // rows are queries, terms keys
  void spareSumOverQueries(TileProduct &, const Patch &); // rows are keys, terms queries
  // With dropout: which probabilities of the block are kept, as bits in the thread's scratch for `forKeys`.
  void drawKept(const Head &, const Patch &);
  // Calls `body` for every key of the block and the queries from `lane` on, keys ascending; `kept`, a vector of i1, is
  // null without dropout. Carries `init` along.
  llvm::SmallVector<mlir::Value>
  forKeys(const Patch &, mlir::Value lane, mlir::ValueRange init,
          llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value key, mlir::Value kept, mlir::ValueRange)> body);

  // With dropout.
  DrawKey drawKey;
  mlir::Value keptBelow;    // of 65536 draws, if that is a word; null: a constant
  mlir::Value factorOfKept; // 1 / (1 - dropout), of kept probabilities

private:
  mlir::Value queryNumbers(mlir::Value first); // i32: first, first + 1, ..
  mlir::Value widened(mlir::Value);            // bf16, as bits, to f32; all else stays
  TileProduct widened(TileProduct);            // without instructions that take words: a narrow operand is copied as f32 first
  using Values = llvm::SmallVector<mlir::Value>;
  Values pairChains(mlir::Value from, mlir::Value to, Values accumulators, llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> step);
  // By AMX (AttendAmx.cpp).
  void amxProduct(const TileProduct &);
  void amxColumns(const TileProduct &, mlir::Value col, int64_t valid, Place panelA, int64_t pitchA, Place panelB, Place results);
  // By words of two terms (AttendWords.cpp).
  struct WordsOfA {
    Place at;
    int64_t row = 0, step = 0;
  };
  Place panel(int64_t firstWord);
  std::pair<int64_t, int64_t> termsOfWord(int64_t step);
  mlir::Value wordsOf(mlir::Value low, mlir::Value high);
  mlir::Value loadAlive(Place, mlir::Value offset, mlir::Value alive, double filler);
  mlir::Value loadTerm(const TileProduct &, Place, mlir::Value offset, mlir::Value term, int64_t count, double filler);
  mlir::Value wordsOfA(const TileProduct &, mlir::Value row, mlir::Value first, int64_t step);
  void packRowsOfA(const TileProduct &, Place panel, int64_t pitch);
  void packStepsOfA(const TileProduct &, Place panel, int64_t pitch);
  void packB(const TileProduct &, mlir::Value col, int64_t valid, Place panel, int64_t width);
  WordsOfA packWordsOfA(const TileProduct &);
  Place panelOfB();
  Values wordChains(const WordsOfA &, mlir::ValueRange rows, Place panelB, mlir::Value from, mlir::Value to, Values sums);
  void productColumns(const TileProduct &, const WordsOfA &, mlir::Value col, int vectors, int64_t validLast);
  void transpose8(llvm::SmallVectorImpl<mlir::Value> &rows);
  int tileRows = 1, tileVectors = 1; // of products in vector registers; no bit depends on them
  mlir::Value scratchStart;
  int64_t drawsAt, panelsAt; // bytes into the scratch
};

// Scratch of a thread when the kernel itself uses `own` bytes of it: behind those draws, then panels of words.
int64_t attendScratch(const AttendSpec &, int64_t own, const TargetInfo &);
int64_t attendDrawBytes(const AttendSpec &);
int64_t attendPanelBytes(const AttendSpec &, const TargetInfo &);

// Where panels of words lie, in words of four bytes: A, then B, then results of AMX; or the operand that was widened. A product has at most
// 64 rows, and as many terms as a key has features or a block has keys.
struct AttendPanels {
  int64_t a = 0, pitchA, stepA, b, results, words; // pitchA: between rows, stepA: between steps that have all rows
  int64_t pitchOfWidened, widened;
  AttendPanels(const AttendSpec &, bool amx);
};

// Buffers named by the views of a spec: largest number + 1.
int64_t bufferCount(const AttendSpec &);
int64_t bufferCount(const AttendGradSpec &);
inline int64_t rowStride(const View &view) { return view.strides.rbegin()[1]; }

} // namespace cinch::kernels
#endif
