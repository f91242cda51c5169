// Amx.cpp: see Amx.h.
#include "compiler/kernels/Amx.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace cinch::kernels {

static constexpr int kRegisters = 8, kSquaresOfC = 4;

static int64_t elementBytes(Value memory) { return cast<MemRefType>(memory.getType()).getElementTypeBitWidth() / 8; }

Value Amx::pointerTo(Value memory, Value index, int64_t more) {
  auto number = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memory);
  Value at = b.createOrFold<arith::AddIOp>(loc, index, number(more));
  at = b.createOrFold<arith::MulIOp>(loc, at, number(elementBytes(memory)));
  Value address = arith::IndexCastOp::create(b, loc, b.getI64Type(), arith::AddIOp::create(b, loc, base, at));
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), address);
}

Value Amx::bytesOf(Value memory, int64_t elements) {
  return arith::ConstantIntOp::create(b, loc, elements * elementBytes(memory), 64);
}

// Numbers of registers come first among an instruction's operands.
void Amx::call(StringRef name, ArrayRef<int> registers, ValueRange operands) {
  SmallVector<Value> all;
  for (int number : registers)
    all.push_back(LLVM::ConstantOp::create(b, loc, b.getI8Type(), b.getI8IntegerAttr(int8_t(number))));
  all.append(operands.begin(), operands.end());
  LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr("llvm.x86." + name.str()), all);
}

// The words of what ldtilecfg reads (Intel's manual, "TILECFG"): palette 1, bytes a row of each register from byte 16 on, rows of each from
// byte 48 on.
void Amx::configure() {
  constexpr int64_t kBytes = 0x0040004000400040, kRows = 0x1010101010101010;
  const int64_t configuration[8] = {1, 0, kBytes, kBytes, 0, 0, kRows, 0};
  auto type = MemRefType::get({8}, b.getI64Type());
  Value memory = memref::AllocaOp::create(b, loc, type, b.getI64IntegerAttr(64));
  for (int64_t i = 0; i < 8; ++i) {
    Value word = arith::ConstantIntOp::create(b, loc, configuration[i], 64);
    memref::StoreOp::create(b, loc, word, memory, ValueRange{arith::ConstantIndexOp::create(b, loc, i)});
  }
  call("ldtilecfg", {}, ValueRange{pointerTo(memory, arith::ConstantIndexOp::create(b, loc, 0), 0)});
}

void Amx::release() { call("tilerelease", {}); }

Value Amx::narrowed(Value low, Value high) {
  auto halves = VectorType::get({2 * kSquare}, b.getBF16Type());
  Value both = LLVM::CallIntrinsicOp::create(b, loc, halves, b.getStringAttr("llvm.x86.avx512bf16.cvtne2ps2bf16.512"), ValueRange{high, low})
                   .getResult(0);
  return LLVM::BitcastOp::create(b, loc, VectorType::get({2 * kSquare}, b.getI16Type()), both);
}

void Amx::zero(int rows, int columns) {
  for (int i = 0; i < rows * columns; ++i)
    call("tilezero", {i});
}

void Amx::load(int rows, int columns, Value memory, Value index, int64_t pitch) {
  for (int i = 0; i < rows * columns; ++i)
    call("tileloadd64", {i}, {pointerTo(memory, index, kSquare * (i / columns * pitch + i % columns)), bytesOf(memory, pitch)});
}

void Amx::store(int rows, int columns, Value memory, Value index, int64_t pitch) {
  for (int i = 0; i < rows * columns; ++i)
    call("tilestored64", {i}, {pointerTo(memory, index, kSquare * (i / columns * pitch + i % columns)), bytesOf(memory, pitch)});
}

void Amx::loadOperand(int target, const Operand &from, int square) {
  call("tileloadd64", {target}, {pointerTo(from.memory, from.index, square * from.next), bytesOf(from.memory, from.pitch)});
}

bool Amx::canChain(int rows, int columns) { return rows + columns <= kRegisters - kSquaresOfC; }

void Amx::fetch(int rows, int columns, const Operand &a, const Operand &b) {
  for (int i = 0; i < rows; ++i)
    loadOperand(kSquaresOfC + i, a, i);
  for (int j = 0; j < columns; ++j)
    loadOperand(kSquaresOfC + rows + j, b, j);
}

void Amx::multiplyAndFetch(int rows, int columns, const Operand &nextA, const Operand &nextB) {
  const int ofA = kSquaresOfC, ofB = kSquaresOfC + rows;
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) {
      call("tdpbf16ps", {i * columns + j, ofA + i, ofB + j});
      if (j == columns - 1)
        loadOperand(ofA + i, nextA, i);
      if (i == rows - 1)
        loadOperand(ofB + j, nextB, j);
    }
}

void Amx::multiply(int rows, int columns, const Operand &a, const Operand &b) {
  bool rowsStay = rows <= columns;
  int stay = rowsStay ? rows : columns, pass = rowsStay ? columns : rows;
  int first = kSquaresOfC + stay, others = kRegisters - first;
  for (int j = 0; j < pass; ++j) {
    int passing = first + j % others;
    loadOperand(passing, rowsStay ? b : a, j);
    for (int i = 0; i < stay; ++i) {
      if (j == 0) // the first product waits for two registers, not for all that stay
        loadOperand(kSquaresOfC + i, rowsStay ? a : b, i);
      int row = rowsStay ? i : j, column = rowsStay ? j : i, staying = kSquaresOfC + i;
      call("tdpbf16ps", {row * columns + column, rowsStay ? staying : passing, rowsStay ? passing : staying});
    }
  }
}

} // namespace cinch::kernels
