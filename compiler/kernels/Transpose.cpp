// Transpose.cpp: copies in squares that are turned in registers. Lines of both buffers are read and written as a whole, one after the other,
// where a loop over the columns of one would take an element from every line of the other. Nothing is computed.
#include "compiler/kernels/Transpose.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace cinch::kernels {

// Butterflies: at distance d the off-diagonal d x d blocks of every 2d x 2d block change places.
SmallVector<Value> emitTransposed(OpBuilder &builder, Location loc, SmallVector<Value> rows) {
  int64_t size = rows.size();
  for (int64_t d = size / 2; d >= 1; d /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t c = 0; c < size; ++c) {
      low.push_back(c & d ? size + c - d : c);
      high.push_back(c & d ? size + c : c + d);
    }
    for (int64_t i = 0; i < size; ++i) {
      if (i & d)
        continue;
      Value upper = rows[i], lower = rows[i + d];
      rows[i] = vector::ShuffleOp::create(builder, loc, upper, lower, low);
      rows[i + d] = vector::ShuffleOp::create(builder, loc, upper, lower, high);
    }
  }
  return rows;
}

namespace {

class TranspositionEmitter {
public:
  TranspositionEmitter(OpBuilder &b, Location loc, const LoopPlan &plan, ValueRange arguments)
      : b(b), loc(loc), plan(plan), shape(plan.transposition), arguments(arguments) {}
  void emit();

private:
  using Dims = LoopPlan::Transposition::Dims;
  Value index(int64_t number) { return arith::ConstantIndexOp::create(b, loc, number); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value mul(Value x, int64_t y) { return arith::MulIOp::create(b, loc, x, index(y)); }
  Value div(Value x, int64_t y) { return arith::DivUIOp::create(b, loc, x, index(y)); }
  Value rem(Value x, int64_t y) { return arith::RemUIOp::create(b, loc, x, index(y)); }
  Value memory(int buffer);
  Value place(const Dims &, int64_t LoopPlan::Transposition::Dim::*stride, Value linear);
  void square(Value from, Value to, Value row, Value column, int64_t rows, int64_t columns);
  // `body` with the length of a part that begins at `first`: whole, or what is left at the end.
  void part(Value first, int64_t count, llvm::function_ref<void(int64_t)> body);

  OpBuilder &b;
  Location loc;
  const LoopPlan &plan;
  const LoopPlan::Transposition &shape;
  ValueRange arguments;
  Value source, target;
};

Value TranspositionEmitter::memory(int buffer) {
  Value bytes = memref::LoadOp::create(b, loc, arguments[1], ValueRange{index(buffer)});
  bytes = arith::IndexCastOp::create(b, loc, b.getIndexType(), bytes);
  auto type = MemRefType::get({kArenaBytes / bytesOf(shape.elem)}, valueType(b, shape.elem));
  return memref::ViewOp::create(b, loc, type, arguments[0], bytes, ValueRange{});
}

// Row-major, the fastest dim first.
Value TranspositionEmitter::place(const Dims &dims, int64_t LoopPlan::Transposition::Dim::*stride, Value linear) {
  Value sum = index(0);
  for (size_t i = 0; i < dims.size(); ++i) {
    bool last = i + 1 == dims.size();
    sum = add(sum, mul(last ? linear : rem(linear, dims[i].size), dims[i].*stride));
    if (!last)
      linear = div(linear, dims[i].size);
  }
  return sum;
}

void TranspositionEmitter::square(Value from, Value to, Value row, Value column, int64_t rows, int64_t columns) {
  int64_t lanes = shape.lanes;
  auto type = VectorType::get({lanes}, valueType(b, shape.elem));
  auto mask = [&](int64_t alive) {
    return vector::ConstantMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()), b.getDenseI64ArrayAttr({alive}));
  };
  Value zeros = arith::ConstantOp::create(b, loc, cast<TypedAttr>(b.getZeroAttr(type)));
  SmallVector<Value> lines(lanes, zeros);
  for (int64_t i = 0; i < rows; ++i) {
    Value at = add(add(from, column), place(shape.across, &LoopPlan::Transposition::Dim::from, add(row, index(i))));
    lines[i] = columns == lanes ? Value(vector::LoadOp::create(b, loc, type, source, ValueRange{at}))
                                : Value(vector::MaskedLoadOp::create(b, loc, type, source, ValueRange{at}, mask(columns), zeros));
  }
  lines = emitTransposed(b, loc, lines);
  for (int64_t i = 0; i < columns; ++i) {
    Value at = add(add(to, row), place(shape.along, &LoopPlan::Transposition::Dim::to, add(column, index(i))));
    if (rows == lanes)
      vector::StoreOp::create(b, loc, lines[i], target, ValueRange{at});
    else
      vector::MaskedStoreOp::create(b, loc, target, ValueRange{at}, mask(rows), lines[i]);
  }
}

void TranspositionEmitter::part(Value first, int64_t count, llvm::function_ref<void(int64_t)> body) {
  int64_t lanes = shape.lanes, rest = count % lanes;
  if (rest == 0 || count < lanes)
    return body(std::min(count, lanes));
  Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, first, index(count - rest));
  auto branch = scf::IfOp::create(b, loc, whole, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body(lanes);
  b.setInsertionPointToStart(branch.elseBlock());
  body(rest);
}

void TranspositionEmitter::emit() {
  source = memory(shape.source);
  target = memory(shape.target);
  int64_t lanes = shape.lanes, along = shape.count(shape.along), across = shape.count(shape.across);
  int64_t columns = (along + lanes - 1) / lanes, rows = (across + lanes - 1) / lanes;
  int64_t items = columns * rows * shape.count(shape.rest);
  Value thread = arguments[3], threads = arguments[4];
  auto share = [&](Value number) -> Value { return arith::DivUIOp::create(b, loc, mul(number, items), threads); };
  auto loop = scf::ForOp::create(b, loc, share(thread), share(add(thread, index(1))), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value item = loop.getInductionVar();
  Value column = mul(rem(item, columns), lanes), others = div(item, columns);
  Value row = mul(rem(others, rows), lanes), rest = div(others, rows);
  Value from = add(index(shape.fromOffset), place(shape.rest, &LoopPlan::Transposition::Dim::from, rest));
  Value to = add(index(shape.toOffset), place(shape.rest, &LoopPlan::Transposition::Dim::to, rest));
  part(row, across, [&](int64_t rows) {
    part(column, along, [&](int64_t columns) { square(from, to, row, column, rows, columns); });
  });
}

} // namespace

void emitTransposition(OpBuilder &builder, Location loc, const LoopPlan &plan, ValueRange arguments) {
  TranspositionEmitter(builder, loc, plan, arguments).emit();
}

} // namespace cinch::kernels
