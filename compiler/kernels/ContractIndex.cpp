// ContractIndex.cpp: index arithmetic, loops and memory accesses of the contraction kernel.
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace cinch::kernels {

static std::optional<int64_t> constantOf(Value value) {
  APInt number;
  if (matchPattern(value, m_ConstantInt(&number)))
    return number.getSExtValue();
  return std::nullopt;
}

Value ContractEmitter::number(int64_t value) { return arith::ConstantIndexOp::create(builder, loc, value); }

Value ContractEmitter::add(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return number(*cx + *cy);
  if (cx && *cx == 0)
    return y;
  if (cy && *cy == 0)
    return x;
  return arith::AddIOp::create(builder, loc, x, y);
}

Value ContractEmitter::add(Value x, int64_t y) { return y == 0 ? x : add(x, number(y)); }

Value ContractEmitter::sub(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return number(*cx - *cy);
  if (cy && *cy == 0)
    return x;
  return arith::SubIOp::create(builder, loc, x, y);
}

Value ContractEmitter::mul(Value x, Value y) {
  if (auto cy = constantOf(y))
    return mul(x, *cy);
  return arith::MulIOp::create(builder, loc, x, y);
}

Value ContractEmitter::mul(Value x, int64_t y) {
  if (auto cx = constantOf(x))
    return number(*cx * y);
  if (y == 0)
    return number(0);
  return y == 1 ? x : Value(arith::MulIOp::create(builder, loc, x, number(y)));
}

Value ContractEmitter::div(Value x, int64_t y) {
  if (auto cx = constantOf(x))
    return number(*cx / y);
  return y == 1 ? x : Value(arith::DivUIOp::create(builder, loc, x, number(y)));
}

Value ContractEmitter::rem(Value x, int64_t y) {
  if (auto cx = constantOf(x))
    return number(*cx % y);
  return y == 1 ? number(0) : Value(arith::RemUIOp::create(builder, loc, x, number(y)));
}

Value ContractEmitter::min(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return number(std::min(*cx, *cy));
  return arith::MinSIOp::create(builder, loc, x, y);
}

Value ContractEmitter::max(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return number(std::max(*cx, *cy));
  return arith::MaxSIOp::create(builder, loc, x, y);
}

Value ContractEmitter::less(Value x, Value y) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, x, y);
}

// Known to be a multiple.
bool ContractEmitter::isMultiple(Value value, int64_t of) {
  auto known = constantOf(value);
  return known && *known % of == 0;
}

void ContractEmitter::forLoop(Value from, Value to, int64_t step, Body body) {
  auto first = constantOf(from), last = constantOf(to);
  if (first && last) {
    if (*first >= *last)
      return;
    if (*first + step >= *last)
      return body(from);
  }
  auto loop = scf::ForOp::create(builder, loc, from, to, number(step));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

void ContractEmitter::forTiles(Value from, Value to, int64_t step, int64_t fullEnd, Body full, Body edge) {
  forLoop(from, min(to, fullEnd), step, full);
  if (!edge)
    return;
  Value end = number(fullEnd);
  if (auto last = constantOf(to)) {
    if (*last > fullEnd)
      edge(end);
    return;
  }
  ifThere(less(end, to), [&] { edge(end); });
}

void ContractEmitter::ifThere(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  body();
}

// Row-major decomposition of `linear` over the dims, slowest first.
Value ContractEmitter::offsetIn(const ContractDims &dims, int64_t ContractDim::*stride, Value linear) {
  Value offset = number(0), rest = linear;
  for (size_t i = dims.size(); i-- > 0;) {
    Value at = i == 0 ? rest : rem(rest, dims[i].size);
    offset = add(offset, mul(at, dims[i].*stride));
    rest = i == 0 ? rest : div(rest, dims[i].size);
  }
  return offset;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

Type ContractEmitter::elementType() { return valueType(builder, plan.elem); }

VectorType ContractEmitter::vectorType(int64_t lanes) { return VectorType::get({lanes}, elementType()); }

Value ContractEmitter::zeros(int64_t lanes) {
  return arith::ConstantOp::create(builder, loc, cast<TypedAttr>(builder.getZeroAttr(vectorType(lanes))));
}

Value ContractEmitter::mask(int64_t lanes, int64_t alive) {
  return vector::ConstantMaskOp::create(builder, loc, VectorType::get({lanes}, builder.getI1Type()),
                                        builder.getDenseI64ArrayAttr({alive}));
}

Value ContractEmitter::viewOf(Value arena, Value byteOffset, Elem elem) {
  auto type = elem == Elem::BF16 ? MemRefType::get({kArenaBytes / 2}, builder.getI16Type())
                                 : MemRefType::get({kArenaBytes / plan.bytes}, elementType());
  return memref::ViewOp::create(builder, loc, type, arena, byteOffset, ValueRange{});
}

// What was read of an operand of a product of bf16 is an f32 that holds one.
Value ContractEmitter::loaded(Value stored, Value memory) {
  if (cast<MemRefType>(memory.getType()).getElementType().isInteger(16))
    return emitWidened(builder, loc, stored);
  return plan.rounds && (memory == memA || memory == memB) ? emitRounded(builder, loc, stored) : stored;
}

Value ContractEmitter::loadVector(Value memory, Value index, int64_t lanes, int64_t alive) {
  if (alive < lanes)
    return loadMasked(memory, index, mask(lanes, alive));
  auto type = VectorType::get({lanes}, cast<MemRefType>(memory.getType()).getElementType());
  return loaded(vector::LoadOp::create(builder, loc, type, memory, index), memory);
}

Value ContractEmitter::loadMasked(Value memory, Value index, Value mask) {
  auto type = VectorType::get(cast<VectorType>(mask.getType()).getShape(), cast<MemRefType>(memory.getType()).getElementType());
  Value elsewhere = arith::ConstantOp::create(builder, loc, cast<TypedAttr>(builder.getZeroAttr(type)));
  return loaded(vector::MaskedLoadOp::create(builder, loc, type, memory, index, mask, elsewhere), memory);
}

void ContractEmitter::storeVector(Value vector, Value memory, Value index, int64_t alive) {
  int64_t lanes = cast<VectorType>(vector.getType()).getNumElements();
  bool narrow = cast<MemRefType>(memory.getType()).getElementType().isInteger(16);
  if (narrow) // panels are made of rounded values
    vector = emitNarrowed(builder, loc, memory == halves ? vector : emitRounded(builder, loc, vector));
  if (alive >= lanes)
    vector::StoreOp::create(builder, loc, vector, memory, index);
  else if (alive == 1 && narrow) // LLVM 22 makes a scalar store of the wide type of a truncation under a mask of lane 0 (issue 179489)
    memref::StoreOp::create(builder, loc, vector::ExtractOp::create(builder, loc, vector, ArrayRef<int64_t>{0}), memory, index);
  else
    vector::MaskedStoreOp::create(builder, loc, memory, index, mask(lanes, alive), vector);
}

Value ContractEmitter::loadScalar(Value memory, Value index) {
  return loaded(memref::LoadOp::create(builder, loc, memory, index), memory);
}

void ContractEmitter::storeScalar(Value value, Value memory, Value index) {
  if (cast<MemRefType>(memory.getType()).getElementType().isInteger(16))
    value = emitNarrowed(builder, loc, memory == halves ? value : emitRounded(builder, loc, value));
  memref::StoreOp::create(builder, loc, value, memory, index);
}

} // namespace cinch::kernels
