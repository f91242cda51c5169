// Matrices.cpp: what products on tensor cores ask of a GPU: 16 bytes at a time, copies that go on, ldmatrix and mma.sync, as NVVM's
// intrinsics of LLVM.
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace cinch::kernels::simt {

static Value number(OpBuilder &b, Location loc, int64_t n) { return emitInteger(b, loc, b.getI32Type(), n); }

Value pointerTo(OpBuilder &b, Location loc, Value memory, unsigned space) {
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memory);
  address = arith::IndexCastOp::create(b, loc, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), space), address);
}

Value at(OpBuilder &b, Location loc, Value pointer, Value bytes) {
  return LLVM::GEPOp::create(b, loc, pointer.getType(), b.getI8Type(), pointer, ValueRange{bytes});
}

void store(OpBuilder &b, Location loc, Value value, Value pointer, unsigned alignment) {
  LLVM::StoreOp::create(b, loc, value, pointer, alignment);
}

static Value orZero(OpBuilder &b, Location loc, Value value, Value valid) {
  if (!valid)
    return value;
  return arith::SelectOp::create(b, loc, valid, value, arith::ConstantOp::create(b, loc, b.getZeroAttr(value.getType())));
}

Value loadOneRounded(OpBuilder &b, Location loc, Value pointer, bool narrow, Value valid) {
  if (narrow)
    return orZero(b, loc, LLVM::LoadOp::create(b, loc, b.getI16Type(), pointer, 2), valid);
  Value element = LLVM::LoadOp::create(b, loc, b.getF32Type(), pointer, 4);
  return orZero(b, loc, arith::TruncIOp::create(b, loc, b.getI16Type(), roundedPair(b, loc, element, element)), valid);
}

Value roundedPair(OpBuilder &b, Location loc, Value first, Value second) {
  auto two = VectorType::get({2}, b.getBF16Type());
  Value rounded = LLVM::CallIntrinsicOp::create(b, loc, two, b.getStringAttr("llvm.nvvm.ff2bf16x2.rn"), {second, first}).getResult(0);
  return LLVM::BitcastOp::create(b, loc, b.getI32Type(), rounded);
}

SmallVector<Value> loadNumbers(OpBuilder &b, Location loc, Value pointer, int64_t count) {
  if (count == 1)
    return {LLVM::LoadOp::create(b, loc, b.getF32Type(), pointer, 4)};
  Value all = LLVM::LoadOp::create(b, loc, VectorType::get({count}, b.getF32Type()), pointer, unsigned(count * 4));
  SmallVector<Value> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(vector::ExtractOp::create(b, loc, all, ArrayRef<int64_t>{i}));
  return numbers;
}

void storeNumbers(OpBuilder &b, Location loc, ValueRange numbers, Value pointer, bool narrow) {
  const bool two = numbers.size() == 2;
  if (narrow) {
    Value word = roundedPair(b, loc, numbers.front(), numbers.back());
    return store(b, loc, two ? word : Value(arith::TruncIOp::create(b, loc, b.getI16Type(), word)), pointer, two ? 4 : 2);
  }
  if (numbers.size() == 1)
    return store(b, loc, numbers[0], pointer, 4);
  const int64_t count = int64_t(numbers.size());
  store(b, loc, vector::FromElementsOp::create(b, loc, VectorType::get({count}, b.getF32Type()), numbers), pointer, unsigned(count * 4));
}

Value exp2(OpBuilder &b, Location loc, Value x) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz"), {x}).getResult(0);
}

Value reciprocal(OpBuilder &b, Location loc, Value x) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(), b.getStringAttr("llvm.nvvm.rcp.approx.ftz.f"), {x}).getResult(0);
}

// So many f32 from `pointer` on, in pairs.
static SmallVector<Value> loadPairs(OpBuilder &b, Location loc, Value pointer, int64_t count) {
  Value all = LLVM::LoadOp::create(b, loc, VectorType::get({count}, b.getF32Type()), pointer, unsigned(count * 4));
  SmallVector<Value> pairs;
  for (int64_t i = 0; i < count; i += 2) {
    Value first = vector::ExtractOp::create(b, loc, all, ArrayRef<int64_t>{i}), second = vector::ExtractOp::create(b, loc, all, ArrayRef<int64_t>{i + 1});
    pairs.push_back(roundedPair(b, loc, first, second));
  }
  return pairs;
}

Value loadEightRounded(OpBuilder &b, Location loc, Value pointer, Value valid) {
  Value result = arith::ConstantOp::create(b, loc, b.getZeroAttr(VectorType::get({4}, b.getI32Type())));
  for (int64_t half : {0, 1}) {
    Value from = at(b, loc, pointer, emitInteger(b, loc, b.getI64Type(), half * 16));
    for (auto [place, word] : llvm::enumerate(loadPairs(b, loc, from, 4)))
      result = vector::InsertOp::create(b, loc, word, result, ArrayRef<int64_t>{half * 2 + int64_t(place)});
  }
  return orZero(b, loc, result, valid);
}

Value loadTwo(OpBuilder &b, Location loc, Value pointer, Value valid) {
  return orZero(b, loc, LLVM::LoadOp::create(b, loc, b.getI32Type(), pointer, 4), valid);
}

SmallVector<Value> widened(OpBuilder &b, Location loc, Value eight) {
  SmallVector<Value> numbers;
  for (int64_t i = 0; i < 4; ++i) {
    Value two = vector::ExtractOp::create(b, loc, eight, ArrayRef<int64_t>{i});
    Value first = arith::ShLIOp::create(b, loc, two, number(b, loc, 16)), second = arith::AndIOp::create(b, loc, two, number(b, loc, int32_t(0xffff0000)));
    for (Value bits : {first, second})
      numbers.push_back(LLVM::BitcastOp::create(b, loc, b.getF32Type(), bits));
  }
  return numbers;
}

Value widenedOne(OpBuilder &b, Location loc, Value half) {
  Value bits = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, b.getI32Type(), half), number(b, loc, 16));
  return LLVM::BitcastOp::create(b, loc, b.getF32Type(), bits);
}

Value loadEight(OpBuilder &b, Location loc, Value pointer) {
  return LLVM::LoadOp::create(b, loc, VectorType::get({4}, b.getI32Type()), pointer, 16);
}

Value firstOf(OpBuilder &b, Location loc, Value eight, Value count) {
  if (!count)
    return eight;
  SmallVector<Value> words;
  for (int64_t i = 0; i < 4; ++i) {
    auto more = [&](int64_t n) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, count, number(b, loc, n)); };
    Value lower = arith::SelectOp::create(b, loc, more(2 * i), number(b, loc, 0xffff), number(b, loc, 0));
    Value mask = arith::SelectOp::create(b, loc, more(2 * i + 1), number(b, loc, -1), lower);
    words.push_back(arith::AndIOp::create(b, loc, vector::ExtractOp::create(b, loc, eight, ArrayRef<int64_t>{i}), mask));
  }
  return vector::FromElementsOp::create(b, loc, cast<VectorType>(eight.getType()), words);
}

Value eightFrom(OpBuilder &b, Location loc, Value low, Value high, Value first) {
  SmallVector<Value> words;
  for (Value four : {low, high})
    for (int64_t i = 0; i < 4; ++i)
      words.push_back(vector::ExtractOp::create(b, loc, four, ArrayRef<int64_t>{i}));
  for (int64_t by : {2, 1}) { // words
    Value bit = arith::AndIOp::create(b, loc, first, number(b, loc, 2 * by));
    Value far = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bit, number(b, loc, 0));
    for (size_t i = 0; i + by < words.size(); ++i)
      words[i] = arith::SelectOp::create(b, loc, far, words[i + by], words[i]);
    words.resize(4 + by);
  }
  Value bits = arith::ShLIOp::create(b, loc, first, number(b, loc, 4)); // modulo 32
  SmallVector<Value> eight;
  for (size_t i = 0; i < 4; ++i)
    eight.push_back(LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr("llvm.fshr.i32"), {words[i + 1], words[i], bits}).getResult(0));
  return vector::FromElementsOp::create(b, loc, cast<VectorType>(low.getType()), eight);
}

static void call(OpBuilder &b, Location loc, StringRef name, ValueRange arguments) {
  LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(name), arguments);
}

void copyLater(OpBuilder &b, Location loc, Value to, Value from, Value valid, int64_t bytes) {
  Value global = LLVM::AddrSpaceCastOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 1), from);
  const std::string name = bytes == 16 ? "llvm.nvvm.cp.async.cg.shared.global.16" : "llvm.nvvm.cp.async.ca.shared.global.4";
  if (!valid)
    return call(b, loc, name, {to, global});
  call(b, loc, name + ".s", {to, global, arith::SelectOp::create(b, loc, valid, number(b, loc, bytes), number(b, loc, 0))});
}

void endOfCopies(OpBuilder &b, Location loc) { call(b, loc, "llvm.nvvm.cp.async.commit.group", {}); }

void waitForCopies(OpBuilder &b, Location loc, int groups) { call(b, loc, "llvm.nvvm.cp.async.wait.group", {number(b, loc, groups)}); }

static SmallVector<Value> four(OpBuilder &b, Location loc, Type element, StringRef name, ValueRange arguments) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, element));
  Value all = LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name), arguments).getResult(0);
  SmallVector<Value> each;
  for (int64_t i = 0; i < 4; ++i)
    each.push_back(LLVM::ExtractValueOp::create(b, loc, all, i));
  return each;
}

SmallVector<Value> loadMatrices(OpBuilder &b, Location loc, Value pointer, bool turned) {
  return four(b, loc, b.getI32Type(), turned ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16" : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
              {pointer});
}

static SmallVector<Value> multiply(OpBuilder &b, Location loc, StringRef name, ValueRange x, ValueRange y, ValueRange sums) {
  SmallVector<Value> arguments(x);
  arguments.append(y.begin(), y.end());
  arguments.append(sums.begin(), sums.end());
  return four(b, loc, b.getF32Type(), name, arguments);
}

SmallVector<Value> multiplyMatrices(OpBuilder &b, Location loc, ValueRange x, ValueRange y, ValueRange sums) {
  return multiply(b, loc, "llvm.nvvm.mma.m16n8k16.row.col.bf16", x, y, sums);
}

SmallVector<Value> multiplyMatricesOfTF32(OpBuilder &b, Location loc, ValueRange x, ValueRange y, ValueRange sums) {
  return multiply(b, loc, "llvm.nvvm.mma.m16n8k8.row.col.tf32", x, y, sums);
}

Value roundedToTF32(OpBuilder &b, Location loc, Value value) {
  if (!value.getType().isF32())
    value = LLVM::BitcastOp::create(b, loc, b.getF32Type(), value);
  return LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr("llvm.nvvm.f2tf32.rna"), {value}).getResult(0);
}

} // namespace cinch::kernels::simt
