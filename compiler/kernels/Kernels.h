// Kernels.h: what a kernel computes (plain specs) and the builders that emit it as scf, vector, memref, arith and math.
//
// A kernel is one function on the arena, run by every thread of the pool at once:
//
//   func.func @name(%arena: memref<kArenaBytes x i8>, %offsets: memref<N x i64>, %context: memref<8 x i64>,
//                   %thread: index, %threads: index)
//
// Buffer i of the spec starts at byte offsets[i] of the arena: a multiple of 64, but for parts of a value that a loop walks along, whose
// distance is the bytes that a part has (View::alignment). The last buffer is the scratch, if
// the spec needs any: thread t uses bytes [t * perThread, (t + 1) * perThread) of it. Threads split outputs, never a sum, and
// write disjoint bytes. Sizes and strides are constants of the kernel, offsets are not: equal specs share one function.
// Numbers: every rule of the numbers contract is kept here by construction (one FMA chain a contraction, 16 logical lanes and
// a fixed tree a row sum, chains over the rest, no fast-math flag, mathematics expanded by us).
#ifndef CINCH_COMPILER_KERNELS_KERNELS_H
#define CINCH_COMPILER_KERNELS_KERNELS_H

#include "compiler/kernels/LoopOps.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class OpBuilder;
class ModuleOp;
namespace func { class FuncOp; }
}

namespace cinch::kernels {

int64_t bytesOf(Elem);
struct TileTable;

// Of a kernel that computes with subnormal numbers taken for zeros, operands and results (target/LowerKernels.cpp sees to it).
constexpr const char *kFlushesAttr = "cinch.flushes";

// The static extent that the arena argument's type claims (the type needs one for the bare-pointer calling convention).
constexpr int64_t kArenaBytes = int64_t(1) << 46;

constexpr int64_t kWidestAccess = 16; // bytes that a thread of a GPU reads or writes at once

// Where an operand lies: element (d0, d1, ..) of the kernel's domain is element offset + sum(d_i * strides[i]) of the buffer.
// A stride may be 0 (broadcast) or negative (reverse).
struct View {
  int buffer = 0;
  Elem elem = Elem::F32;
  int64_t offset = 0;
  std::vector<int64_t> strides;
  // The buffer starts at a multiple of so many bytes, kWidestAccess at most: a GPU has no access that does not begin at a multiple of its
  // bytes. Builders of a CPU need no promise, and those of loops ask the offsets.
  int64_t alignment = kWidestAccess;
};

// What code is generated for. It decides tiles, packing and who does what, never a number: target::infoOf(cpu) gives that of a CPU.
struct TargetInfo {
  int lanes = 16;     // f32 lanes of a vector register: 16 (AVX-512, 32 registers) or 8 (AVX2, 16 registers)
  int processors = 0; // of a GPU: its multiprocessors; 0: a CPU
  bool dots = false;  // has a quick vdpbf16ps, which makes two steps of a chain of a product of bf16
  bool fewLoads = false; // of tiles of a product that need as many FMAs the one that loads least is the quickest
  bool amx = false;   // has tdpbf16ps, which adds a whole block of 32 to 16 x 16 results of a product of bf16
  bool warpgroups = false; // of a GPU: has wgmma
  std::shared_ptr<const TileTable> tiles; // measured tilings of products (Tiling.h); null: the built-in rules
  bool isDevice() const { return processors > 0; }
};

// How a kernel is spread over a GPU. What it calls its threads are `workers` there: each is one thread of the GPU, a team of them
// (Simt.h) or a whole block.
struct Grid {
  int64_t workers = 1;
  int lanes = 1;   // threads of the GPU that are one worker
  int block = 128; // threads of a block
  int64_t shared = 0; // bytes of shared memory that a block is given when it is launched, beside what its kernel declares
  int64_t blocks() const { return (workers * lanes + block - 1) / block; }
};

// ---- Contraction -----------------------------------------------------------------------------------------------------------
// C[batch, m, n] (+)= sum over k of A[batch, m, k] * B[batch, k, n]; each of the four is a group of zero or more indices, any
// strides. k is in reduction order, slowest first. Every C element is ONE chain of FMAs over k in that order, started from
// +0.0, or from what C holds if `accumulate`.
// Nothing to sum (a k of size 0): C is +0.0.
// Buffers: 0 = A, 1 = B, 2 = C, 3 = scratch (packing).
// Where A reaches beyond what there is (the padding of a convolution): its element exists where 0 <= offset + sum(d_i * strides[i])
// < size, strides over A's indices. Any other is +0.0, and is in the chain.
struct Bound {
  int64_t offset = 0, size = 0;
  std::vector<int64_t> strides;
};
struct ContractSpec {
  Elem elem = Elem::F32; // F32 or F64
  std::vector<int64_t> batch, m, n, k;
  View a, b, c;          // strides over (batch.., m.., k..), (batch.., k.., n..), (batch.., m.., n..)
  std::vector<Bound> bounds; // of A, two at most; all of them hold where an element exists. Not along k's or m's last index.
  bool accumulate = false;
  // > 0 (with `accumulate` only; divides k[0]): C goes on in blocks of so many steps of k[0]. The chain of a block starts from
  // +0.0, and its sum is added to C.
  int64_t grain = 0;
  // A product of bf16 (elem is F32; A and B are F32 or BF16, C too if nothing is accumulated): A and B are rounded to bf16, and k is
  // cut into blocks of 32, anew at each index of the first `anew` dims of k. A block is a chain of FMAs from +0.0 over its even
  // elements and one over its odd ones, and C += even + odd; subnormal numbers count as zeros. It is what AMX's tdpbf16ps computes.
  bool pairs = false;
  int64_t anew = 0;
  // Of f32, on the tensor cores of a GPU: A and B are rounded to tf32, to nearest, ties away from zero, and products are added eight at a time, anew
  // where blocks of `pairs` begin. The builders of a CPU have none.
  bool tf32 = false;
  // A and B are rounded to bf16 and subnormal numbers count as zeros, without blocks: one chain an element (a depthwise convolution).
  bool rounds = false;
  // A convolution of 3 x 3 taps by Winograd's minimal filtering (Winograd.h): one chain over channels for each of 16 products of transformed elements,
  // from +0.0, and 2 x 2 elements of C are put together from these. No batch dims; m ends with rows and columns, whose windows begin one element
  // apart; k is rows and columns of taps and channels; both bounds are there, of rows and of columns. Nothing is accumulated.
  bool winograd = false;
  // Of such a convolution: C is the gradient of the filter. m is rows and columns of taps and channels, k ends with rows and columns. A chain goes over
  // tiles of some rows that are summed together, from +0.0; what the sums make of the filter is added to C, or to +0.0.
  bool sumsPlaces = false;
  // Of a trip of a loop over blocks of rows: C's first row is the second one of its tile (firstRow = 1), or the first one (0); if the rows move, that
  // holds where the context's kFirstPosition is even, and the other thing where it is odd.
  int64_t firstRow = 0;
  bool movesRows = false;
};
int64_t scratchBytesPerThread(const ContractSpec &, const TargetInfo & = {});
mlir::func::FuncOp buildContract(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const ContractSpec &,
                                 const TargetInfo & = {});

// ---- Convolution -----------------------------------------------------------------------------------------------------------
// Any of the three tensors of a convolution as contractions with windows (compiler/analysis/ConvSpecs.cpp), one after the other. They
// write disjoint parts of one C. Buffers as those of a contraction.
struct ConvSpec {
  std::vector<ContractSpec> parts;
};
int64_t scratchBytesPerThread(const ConvSpec &, const TargetInfo & = {});
mlir::func::FuncOp buildConv(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const ConvSpec &,
                             const TargetInfo & = {});

// ---- Pools -----------------------------------------------------------------------------------------------------------------
// Windows of `window` elements over the rows and columns of an image [lead.., H, W, C], at p * stride - pad; there are P x Q of them.
// Views have strides over (lead.., row, column, channel); those of channels are 1. What lies outside of the image counts for nothing.
enum class PoolKind {
  Max,    // y = the largest of x in the window, place = its number in the window, the first of several
  Sum,    // y = the chain of x over the window
  MaxGrad, // y = the chain of the x of the windows in which an element is at `place`
  SumGrad // y = the chain of the x of the windows that an element lies in, by its number in them
};
struct PoolSpec {
  PoolKind kind = PoolKind::Max;
  Elem elem = Elem::F32;
  std::vector<int64_t> lead;
  int64_t C = 1;
  int64_t image[2] = {1, 1}, places[2] = {1, 1}, window[2] = {1, 1}, stride[2] = {1, 1}, pad[2] = {0, 0}; // rows, columns
  View x, y, place; // place is i32; of Max an output, of MaxGrad an input. x of Max and Sum may be BF16, and y of Max (elem is F32)
  bool gradient() const { return kind == PoolKind::MaxGrad || kind == PoolKind::SumGrad; }
  bool hasPlace() const { return kind == PoolKind::Max || kind == PoolKind::MaxGrad; }
};
// Pieces of about equal work that the threads of a CPU share. A thread does one after the other.
int64_t itemsOf(const PoolSpec &);
mlir::func::FuncOp buildPool(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const PoolSpec &,
                             const TargetInfo & = {});

// ---- Loops -----------------------------------------------------------------------------------------------------------------
// A fused DAG of element-wise operations and reductions over one rectangular domain
//     outer dims (parallel)  x  chain dims (walked in order, slowest first)  x  one column dim (vectorised)
// Every node has a level: the dims it varies over. Full = outer x chain x col, Row = outer x chain, Column = outer x col,
// Outer = outer alone. A Load's level is given; an operation's level is the join of its operands'.
//   ReduceCols: Full -> Row, or Column -> Outer (if there is no chain dim, Full = Column and Row = Outer).
//               16 logical lanes: lane l takes columns l, l + 16, ..; lanes are then added as a fixed tree
//               (l with l+8, then +4, +2, +1); dead lanes hold -0.0 (sums), -inf (max), the neutral element in general.
//   ReduceChain: Full -> Column, Row -> Outer: one chain over the chain dims in order. If `init` names a buffer view the chain
//               goes on from what is stored there (accumulation over micro-batches), else it starts from +0.0
//               (sum), -inf, .. .
// Stores write a node at its own level.
struct LoopNode {
  LoopOp op = LoopOp::Const;
  Elem elem = Elem::F32;
  std::vector<int> args;           // earlier nodes
  View view;                       // Load, LoadAt, Index, ReduceChain's init (hasInit)
  std::vector<int64_t> atStrides;  // LoadAt
  Level level = Level::Full;       // Load, LoadAt, Index, Random*
  double number = 0;               // Const; RandomBool's p; RandomInt's n; RunValue's place
  LoopReduce reduce = LoopReduce::Sum;
  bool hasInit = false;
  // Random*: a pure function of (context seed, context step, example, key, element). `view.strides/offset` give the element's
  // number inside its example over the domain; exampleStrides the example's number inside the micro-batch (the context's
  // kFirstExample is added); all zero and usesExample = false for tensors without a batch axis.
  // The key is `key`, or if keyWord >= 0 the keyWord-th of the words that stand in %offsets behind the buffers and the place of
  // the scratch's offset: so that kernels that differ in the key alone share their code.
  uint64_t key = 0;
  int keyWord = -1;
  // If >= 0, the word that holds the number, so that kernels which differ in a number alone share their code, too: of a Const of
  // floats its f64, of a RandomBool how many of 65536 draws are true.
  int numberWord = -1;
  bool usesExample = false;
  std::vector<int64_t> exampleStrides;
  // On some positions of an example: elements of one position; the context's kFirstPosition times so many are added.
  int64_t positionStride = 0;
  // Of Exp, Tanh, Sigmoid and Div of f32 on a GPU: by its powers of two and reciprocals (MathFormulas.h, `approximate`).
  bool approximate = false;
};

struct LoopStore {
  int node = 0;
  View view;
  int64_t copies = 1, copyStride = 0; // the same value at so many places, so many elements apart
};

// Writes at computed places: dst[view + sum(args_i * atStrides_i)] += value, in the order of the domain (gather's gradient).
// A kernel with an AddAt has no other store; its domain's outer and column dims must address disjoint elements, the chain
// dims are walked in order by one thread for each (outer, column).
struct LoopAddAt {
  bool present = false;
  int node = 0;
  View view;
  std::vector<int> args;
  std::vector<int64_t> atStrides, atSizes; // args[i] is in [0, atSizes[i])
};

struct LoopSpec {
  std::vector<int64_t> outer, chain;
  int64_t cols = 1;
  // > 0 (divides the product of `chain`): chains go on in blocks of so many rows. A block starts where a chain without `init` does, and its
  // result is then combined with what there was. So does AddAt, each place by itself.
  int64_t blockRows = 0;
  std::vector<LoopNode> nodes;
  std::vector<LoopStore> stores;
  LoopAddAt addAt;
};
// Eight bytes of what a chain over micro-batches must find before the first: +0.0 (sum), -inf, .. .
int64_t firstWord(LoopReduce, Elem);
int64_t scratchBytesPerThread(const LoopSpec &, const TargetInfo & = {});
int64_t itemsOf(const LoopSpec &, const TargetInfo &); // as of a pool
mlir::func::FuncOp buildLoop(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const LoopSpec &,
                             const TargetInfo & = {});
// On a GPU a loop kernel is one launch or two, one behind the other with the same words (LoopLaunches.cpp): how each is spread, the scratch of
// both, and the names of their functions, of which the builder returns the first one.
std::vector<Grid> gridsOf(const LoopSpec &, const TargetInfo &);
int64_t scratchBytesOnDevice(const LoopSpec &, const TargetInfo &);
std::string nameOfLaunch(const std::string &name, size_t number);

// ---- Attention -------------------------------------------------------------------------------------------------------------
// Streaming attention; no T x S matrix is stored. lead = leading dims (batch first if there is one), A query heads, G key
// heads (head a uses floor(a * G / A)). Views have strides over (lead.., head, position, feature); feature stride is 1.
// lse [lead, A, T], in elem, = log-sum-exp of the scaled (masked) scores, what backward needs; -inf where a row has no key,
// whose o is 0. Causal: query t sees the keys s <= t.
struct AttendSpec {
  Elem elem = Elem::F32;
  std::vector<int64_t> lead;
  int64_t A = 1, G = 1, T = 1, S = 1, K = 1, E = 1;
  bool causal = false;
  int64_t headsBefore = 0, headsBehind = 0; // of other shards, in front of the A heads here and behind them
  double scale = 1, dropout = 0;
  uint64_t key = 0;                // of the dropout's draw (Bits16, kept with probability 1 - dropout); element =
                                   // ((other lead * allHeads() + headsBefore + head) * T + t) * S + s within the example
  int keyWord = -1;                // as LoopNode::keyWord
  int dropoutWord = -1;            // if >= 0, `dropout` only says that there is some. This word is how many of 65536 draws are kept,
                                   // the next one the f64 that the kept are multiplied by
  int batchDim = -1;               // which of `lead` counts examples; -1: none
  int64_t allHeads() const { return headsBefore + A + headsBehind; }
  View q, k, v, o, lse;            // lse strides over (lead.., head, position)
  bool hasKeys = false, hasBias = false;
  // Products are those of bf16: chains over even and odd elements in blocks of 32 features, keys or queries from the first on. q, k, v
  // and dout hold bf16 already; shares (after dropout) and slopes are rounded for their products. Subnormal numbers count as zeros
  // in all of the kernel.
  bool pairs = false;
  View keys, bias;                 // keys (lead.., S); bias (A, T, S)
};
// Forward. Buffers as the views name them, then scratch.
int64_t scratchBytesPerThread(const AttendSpec &, const TargetInfo & = {});
int64_t itemsOf(const AttendSpec &); // as of a pool
mlir::func::FuncOp buildAttend(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &,
                               const TargetInfo & = {});

struct AttendGradSpec {
  AttendSpec forward;              // its o and lse are inputs here
  View dout, dq, dk, dv;           // dq, dk, dv are written (not accumulated)
  int64_t grain = 0;               // > 0: dbias sums blocks of so many examples (of lead[batchDim]) from +0.0 first
  bool wantsBiasGrad = false; View dbias; // dbias accumulates over `lead` in order, from what it holds
};
int64_t scratchBytesPerThread(const AttendGradSpec &, const TargetInfo & = {});
int64_t itemsOf(const AttendGradSpec &); // as of a pool
mlir::func::FuncOp buildAttendGrad(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendGradSpec &,
                                   const TargetInfo & = {});

} // namespace cinch::kernels
#endif
