// Simt.h: what a kernel of a GPU asks of the threads around it.
//
// Kernels of both targets come from the same builders. A vector of 16 columns is 16 numbers in one register of a CPU; on a GPU it is
// one number in each of 16 threads, a *team*: half of a warp. Vector loads become loads of one element a thread, the tree of a row sum
// becomes shuffles, and what is one number for all columns is computed by every thread of the team for itself.
#ifndef CINCH_COMPILER_KERNELS_SIMT_H
#define CINCH_COMPILER_KERNELS_SIMT_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Value.h"

namespace cinch::kernels::simt {

constexpr int kTeam = 16;

// The number of this thread within its block, and within its team (index).
mlir::Value threadOfBlock(mlir::OpBuilder &, mlir::Location);
mlir::Value lane(mlir::OpBuilder &, mlir::Location);

// All threads of a team call these together. The value that the thread `distance` lanes behind has (its own beyond the last), that of
// thread `number` of the team, and that of lane 0; of i1, i8, i16, i32, i64, f32 or f64.
mlir::Value fromBehind(mlir::OpBuilder &, mlir::Location, mlir::Value, int distance);
mlir::Value fromThread(mlir::OpBuilder &, mlir::Location, mlir::Value, int number);
mlir::Value fromFirst(mlir::OpBuilder &, mlir::Location, mlir::Value);
// The i32 of the thread of the team whose number differs in the bits of `distance`.
mlir::Value fromBesideInTeam(mlir::OpBuilder &, mlir::Location, mlir::Value, int distance);
// All threads of a warp: the f32 of the lane whose number differs in the bits of `distance`.
mlir::Value fromBeside(mlir::OpBuilder &, mlir::Location, mlir::Value, int distance);
// All threads of a warp, four by four: the i32 of lane `place` of the four (i32).
mlir::Value fromFour(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::Value place);
// Waits until the whole team is here. What it read and wrote before is done.
void syncTeam(mlir::OpBuilder &, mlir::Location);
// The same for all threads of the block.
void syncBlock(mlir::OpBuilder &, mlir::Location);
// A memref of so many elements of shared memory, which the kernel declares under that name; it begins at a multiple of 16 bytes.
mlir::Value sharedMemory(mlir::OpBuilder &, mlir::Location, mlir::Operation *function, const std::string &name, int64_t elements, mlir::Type);

// ---- Tensor cores (Matrices.cpp). Pointers are LLVM's: the arena's generic ones, those of shared memory in space 3. ----
mlir::Value pointerTo(mlir::OpBuilder &, mlir::Location, mlir::Value memory, unsigned space); // where a memref of bytes begins
mlir::Value at(mlir::OpBuilder &, mlir::Location, mlir::Value pointer, mlir::Value bytes);    // i64
void store(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::Value pointer, unsigned alignment);
// One element as i16, and eight as four i32, of bf16 or rounded to it; zero where `valid` does not hold (null: it does). The pointer may be
// read in any case. Eight begin at a multiple of 16 bytes, and are f32 in memory.
mlir::Value loadOneRounded(mlir::OpBuilder &, mlir::Location, mlir::Value pointer, bool narrow, mlir::Value valid);
mlir::Value loadEightRounded(mlir::OpBuilder &, mlir::Location, mlir::Value pointer, mlir::Value valid);
// Eight of bf16, as four i32, from 16 bytes on; zeros behind the first `count` (i32; null: all are there). And of sixteen, as two times four i32, the
// eight from number `first` on (i32, below 8). Two are one i32.
mlir::Value loadTwo(mlir::OpBuilder &, mlir::Location, mlir::Value pointer, mlir::Value valid);
mlir::Value loadEight(mlir::OpBuilder &, mlir::Location, mlir::Value pointer);
mlir::Value firstOf(mlir::OpBuilder &, mlir::Location, mlir::Value eight, mlir::Value count);
mlir::Value eightFrom(mlir::OpBuilder &, mlir::Location, mlir::Value low, mlir::Value high, mlir::Value first);
// Eight of bf16, or one (i16), as f32.
llvm::SmallVector<mlir::Value> widened(mlir::OpBuilder &, mlir::Location, mlir::Value eight);
mlir::Value widenedOne(mlir::OpBuilder &, mlir::Location, mlir::Value half);
// One, two or four neighbouring f32; stored, one or two of them are rounded to bf16 if `narrow`. They begin at a multiple of their bytes.
llvm::SmallVector<mlir::Value> loadNumbers(mlir::OpBuilder &, mlir::Location, mlir::Value pointer, int64_t count);
void storeNumbers(mlir::OpBuilder &, mlir::Location, mlir::ValueRange, mlir::Value pointer, bool narrow);
// Two f32 rounded to bf16, to nearest, ties to even; a NaN becomes the NaN 0x7fff. The first is the lower half.
mlir::Value roundedPair(mlir::OpBuilder &, mlir::Location, mlir::Value first, mlir::Value second);
// 2^x within 2 units in the last place, subnormal numbers taken for zeros: only in programs of bf16.
mlir::Value exp2(mlir::OpBuilder &, mlir::Location, mlir::Value);
// 1 / x within one, and 0 where that is subnormal: likewise.
mlir::Value reciprocal(mlir::OpBuilder &, mlir::Location, mlir::Value);
// 16 bytes into shared memory, or 4, from and to a multiple of them, zeros where `valid` does not hold: by and by. Copies make groups; `waitForCopies` waits until at most so many
// of this thread's groups are on their way.
void copyLater(mlir::OpBuilder &, mlir::Location, mlir::Value to, mlir::Value from, mlir::Value valid, int64_t bytes = 16);
void endOfCopies(mlir::OpBuilder &, mlir::Location);
void waitForCopies(mlir::OpBuilder &, mlir::Location, int groups);
// All lanes of a warp together. Four 8 x 8 of bf16 from shared memory, a register each; `turned`: what lies in rows are columns. Then
// 16 x 16 (four registers) times 16 x 8 (two), added to 16 x 8 of f32 (four).
llvm::SmallVector<mlir::Value> loadMatrices(mlir::OpBuilder &, mlir::Location, mlir::Value pointer, bool turned);
llvm::SmallVector<mlir::Value> multiplyMatrices(mlir::OpBuilder &, mlir::Location, mlir::ValueRange a, mlir::ValueRange b, mlir::ValueRange sums);
// The same of tf32, half as deep: 16 x 8 times 8 x 8, an f32 a word, rounded by `roundedToTF32`. Read as above, a matrix of f32 has 8 x 4.
llvm::SmallVector<mlir::Value> multiplyMatricesOfTF32(mlir::OpBuilder &, mlir::Location, mlir::ValueRange a, mlir::ValueRange b, mlir::ValueRange sums);
// An f32 (or the i32 that it is) rounded to tf32, to nearest, ties away from zero, as i32.
mlir::Value roundedToTF32(mlir::OpBuilder &, mlir::Location, mlir::Value);

// ---- Warpgroups of a Hopper (Warpgroups.cpp): 128 threads whose four warps multiply together, by wgmma ----
// The shared memory that a launch gives a block, from a multiple of 1024 bytes on; one for all kernels of the module.
mlir::Value sharedOfLaunch(mlir::OpBuilder &, mlir::Location, mlir::ModuleOp);
// A barrier of eight bytes in shared memory, whose phases number 0, 1, .. end when so many arrivals have come. Who waits names the phase by
// its number modulo 2 (i32), and goes on if that one has ended; before phase 0, phase 1 counts as ended.
void beginPhases(mlir::OpBuilder &, mlir::Location, mlir::Value barrier, int64_t arrivals);
void arrive(mlir::OpBuilder &, mlir::Location, mlir::Value barrier);
void awaitPhase(mlir::OpBuilder &, mlir::Location, mlir::Value barrier, mlir::Value parity);
// What this thread has written to shared memory, barriers too, is there for wgmma and for copies of boxes, which go by another way.
void showToProducts(mlir::OpBuilder &, mlir::Location);
// Copies of boxes (TMA): the box of a map (TensorMap.h; `map` is where the launch has put it) that begins at these elements of its axes
// comes into lines of shared memory (ContractTensor.h, GroupTiles), zeros where there are no elements, and the barrier's phase does not end before
// all bytes have come that it was told to expect. One thread asks for all of it.
void expectBytes(mlir::OpBuilder &, mlir::Location, mlir::Value barrier, int64_t bytes);
void copyBox(mlir::OpBuilder &, mlir::Location, mlir::Value to, mlir::Value map, mlir::ValueRange begin, mlir::Value barrier);
// The same number (i64), found anew where this stands: nothing that is made of it moves out of a loop, where it would hold registers.
mlir::Value foundHere(mlir::OpBuilder &, mlir::Location, mlir::Value);
// 64 x 16 times 16 x N, added to `sums`: row 16 w + l / 4 (and 8 below) and columns 2 (l % 4) + 8 j are those of lane l of warp w, as in
// multiplyMatrices. Both operands lie in shared memory in lines of 128 bytes (ContractTensor.h, GroupTiles) from `at` (i64, an address) on
// and so many bytes beside; `turned`: a line has 64 rows at one k. It goes on by and by: `sums` are not to be touched before `finishedSums` returns them.
struct TileOfLines {
  mlir::Value at;
  int64_t beside = 0;
  bool turned = false;
};
llvm::SmallVector<mlir::Value> multiplyTiles(mlir::OpBuilder &, mlir::Location, TileOfLines a, TileOfLines b, mlir::ValueRange sums);
// The same, and the sums begin with it: of so many columns.
llvm::SmallVector<mlir::Value> firstTiles(mlir::OpBuilder &, mlir::Location, TileOfLines a, TileOfLines b, int64_t columns);
// The same with the left side in registers: four words a lane, each warp's sixteen rows as multiplyMatrices takes them.
llvm::SmallVector<mlir::Value> multiplyRows(mlir::OpBuilder &, mlir::Location, mlir::ValueRange a, TileOfLines b, mlir::ValueRange sums);
// Before products: what was written to registers, sums and left sides, is there for them. Behind them: they are a group; at most so many groups are
// under way.
llvm::SmallVector<mlir::Value> preparedSums(mlir::OpBuilder &, mlir::Location, mlir::ValueRange registers);
void beginProducts(mlir::OpBuilder &, mlir::Location);
void endProducts(mlir::OpBuilder &, mlir::Location);
void awaitProducts(mlir::OpBuilder &, mlir::Location, int groups);
llvm::SmallVector<mlir::Value> finishedSums(mlir::OpBuilder &, mlir::Location, mlir::ValueRange sums);

} // namespace cinch::kernels::simt
#endif
