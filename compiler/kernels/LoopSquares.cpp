// LoopSquares.cpp: element-wise work on buffers of which some are contiguous along one dim and the others along another one.
//
// It is done in squares. What is loaded along the one dim is turned in registers, so that lines of all buffers are read and written as a
// whole, where a loop over the columns of some would take an element from every line of the others. Each element is computed as it is in
// any other order.
//
// Neither the lines that are turned nor those that are stored lie side by side, so that a CPU does not foresee them. They are asked for: what
// this square stores before it loads, and what is loaded two squares further along.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

// Row-major over these dims, the fastest first.
Value LoopEmitter::placeIn(const View &view, const std::vector<size_t> &dims, Value linear) {
  Value sum = index(0);
  for (size_t i = 0; i < dims.size(); ++i) {
    bool last = i + 1 == dims.size();
    Value size = index(plan.sizeOf({dims[i]}));
    sum = addIndex(sum, mulIndex(last ? linear : Value(arith::RemUIOp::create(b, loc, linear, size)), view.strides[dims[i]]));
    if (!last)
      linear = arith::DivUIOp::create(b, loc, linear, size);
  }
  return sum;
}

Value LoopEmitter::loadLine(int node, Value at, int64_t count) {
  const LoopNode &n = spec.nodes[node];
  int64_t lanes = plan.transposition.lanes;
  auto type = VectorType::get({lanes}, storedType(b, n.elem));
  Value memory = buffer(n.view.buffer, n.elem);
  if (count == lanes)
    return toValue(b, loc, vector::LoadOp::create(b, loc, type, memory, ValueRange{at}), n.elem);
  Value mask = vector::ConstantMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()), b.getDenseI64ArrayAttr({count}));
  Value none = arith::ConstantOp::create(b, loc, cast<TypedAttr>(b.getZeroAttr(type)));
  return toValue(b, loc, vector::MaskedLoadOp::create(b, loc, type, memory, ValueRange{at}, mask, none), n.elem);
}

void LoopEmitter::storeLine(const LoopStore &store, Value at, Value value, int64_t count) {
  int64_t lanes = plan.transposition.lanes;
  const Elem elem = spec.nodes[store.node].elem;
  Value memory = buffer(store.view.buffer, elem);
  value = toStored(b, loc, value, elem);
  if (count == lanes) {
    vector::StoreOp::create(b, loc, value, memory, ValueRange{at});
  } else if (count == 1 && elem == Elem::BF16) { // LLVM 22 makes a scalar store of the wide type under a mask of lane 0 alone (its issue 179489)
    memref::StoreOp::create(b, loc, vector::ExtractOp::create(b, loc, value, ArrayRef<int64_t>{0}), memory, ValueRange{at});
  } else {
    Value mask = vector::ConstantMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()), b.getDenseI64ArrayAttr({count}));
    vector::MaskedStoreOp::create(b, loc, memory, ValueRange{at}, mask, value);
  }
}

void LoopEmitter::askForLine(const View &view, Elem elem, Value at, bool toWrite) {
  memref::PrefetchOp::create(b, loc, buffer(view.buffer, elem), ValueRange{at}, toWrite, /*localityHint=*/3, /*isDataCache=*/true);
}

// `rows` of the range across, from `row` on, and `columns` of the range along.
void LoopEmitter::square(Value rest, Value row, Value column, int64_t rows, int64_t columns) {
  const LoopPlan::Transposition &shape = plan.transposition;
  auto beginOf = [&](const View &view) { return addIndex(index(view.offset), placeIn(view, shape.rest, rest)); };
  auto lineOf = [&](const View &view, int64_t i) {
    return addIndex(addIndex(beginOf(view), row), placeIn(view, shape.along, addIndex(column, index(i))));
  };
  for (const LoopStore &store : spec.stores)
    for (int64_t i = 0; i < columns; ++i)
      askForLine(store.view, spec.nodes[store.node].elem, lineOf(store.view, i), /*toWrite=*/true);
  std::vector<SmallVector<Value>> lines(spec.nodes.size());
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!plan.needed[n] || !shape.turned[n])
      continue;
    const View &view = spec.nodes[n].view;
    Value begin = addIndex(beginOf(view), column);
    Value none = emitNumber(b, loc, VectorType::get({shape.lanes}, valueType(b, spec.nodes[n].elem)), 0);
    SmallVector<Value> loaded(shape.lanes, none);
    auto turnedLine = [&](int64_t i) { return addIndex(begin, placeIn(view, shape.across, addIndex(row, index(i)))); };
    for (int64_t i = 0; i < rows; ++i)
      askForLine(view, spec.nodes[n].elem, addIndex(turnedLine(i), index(2 * shape.lanes)), /*toWrite=*/false);
    for (int64_t i = 0; i < rows; ++i)
      loaded[i] = loadLine(int(n), turnedLine(i), columns);
    lines[n] = emitTransposed(b, loc, loaded);
  }
  for (int64_t i = 0; i < columns; ++i) {
    std::vector<Value> values(spec.nodes.size());
    for (size_t n = 0; n < spec.nodes.size(); ++n) {
      const LoopNode &node = spec.nodes[n];
      if (!plan.needed[n])
        continue;
      if (shape.turned[n]) {
        values[n] = lines[n][i];
      } else if (plan.constant[n]) {
        values[n] = vector::BroadcastOp::create(b, loc, VectorType::get({shape.lanes}, scalars[n].getType()), scalars[n]);
      } else if (node.op == LoopOp::Load) {
        values[n] = loadLine(int(n), lineOf(node.view, i), rows);
      } else {
        Values args;
        for (int arg : node.args)
          args.push_back(values[arg]);
        values[n] = emitElementwise(b, loc, node.op, node.elem, args);
      }
    }
    for (const LoopStore &store : spec.stores)
      storeLine(store, lineOf(store.view, i), values[store.node], rows);
  }
}

// Some squares above one another, then those beside them: all buffers are walked some lines at a time.
void LoopEmitter::emitSquares() {
  constexpr int64_t kAbove = 2;
  const LoopPlan::Transposition &shape = plan.transposition;
  int64_t lanes = shape.lanes, along = plan.sizeOf(shape.along), across = plan.sizeOf(shape.across);
  int64_t columns = (along + lanes - 1) / lanes, rows = (across + lanes - 1) / lanes;
  auto div = [&](Value x, Value y) -> Value { return arith::DivUIOp::create(b, loc, x, y); };
  auto rem = [&](Value x, Value y) -> Value { return arith::RemUIOp::create(b, loc, x, y); };
  // `body` with the length of a part that begins at `first`: whole, or what is left at the end.
  auto part = [&](Value first, int64_t count, llvm::function_ref<void(int64_t)> body) {
    int64_t left = count % lanes;
    if (left == 0)
      return body(lanes);
    Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, first, index(count - left));
    auto branch = scf::IfOp::create(b, loc, whole, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    body(lanes);
    b.setInsertionPointToStart(branch.elseBlock());
    body(left);
  };
  auto [begin, end] = itemsOfThread(plan.items());
  auto loop = scf::ForOp::create(b, loc, begin, end, index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value item = loop.getInductionVar(), rest = div(item, index(columns * rows)), within = rem(item, index(columns * rows));
  Value band = mulIndex(div(within, index(kAbove * columns)), kAbove);
  Value height = arith::MinUIOp::create(b, loc, index(kAbove), arith::SubIOp::create(b, loc, index(rows), band));
  Value inBand = rem(within, index(kAbove * columns));
  Value row = mulIndex(addIndex(band, rem(inBand, height)), lanes), column = mulIndex(div(inBand, height), lanes);
  part(row, across, [&](int64_t rows) {
    part(column, along, [&](int64_t columns) { square(rest, row, column, rows, columns); });
  });
}

} // namespace cinch::kernels
