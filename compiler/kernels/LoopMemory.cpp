// LoopMemory.cpp: loads, gathers, stores and scatters of a loop kernel, of scalars and of 16 columns.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace cinch::kernels {

static Type storedType(OpBuilder &b, Elem elem) {
  return elem == Elem::Bool ? Type(b.getI8Type()) : valueType(b, elem);
}

static Value toValue(OpBuilder &b, Location loc, Value stored, Elem elem) {
  if (elem != Elem::Bool)
    return stored;
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, stored, emitInteger(b, loc, stored.getType(), 0));
}

static Value toStored(OpBuilder &b, Location loc, Value value, Elem elem) {
  if (elem != Elem::Bool)
    return value;
  Type type = isa<VectorType>(value.getType()) ? Type(VectorType::get({kLoopLanes}, b.getI8Type())) : b.getI8Type();
  return arith::ExtUIOp::create(b, loc, type, value);
}

Value LoopEmitter::gather(const View &view, Value at, Value offsets, Elem elem, const Lanes &lanes) {
  VectorType type = lanesOf(storedType(b, elem));
  Value mask = lanes.mask ? lanes.mask : emitInteger(b, loc, lanesOf(b.getI1Type()), 1);
  Value loaded = vector::GatherOp::create(b, loc, type, buffer(view.buffer, elem), ValueRange{at}, offsets, mask,
                                          emitNumber(b, loc, type, 0));
  return toValue(b, loc, loaded, elem);
}

Value LoopEmitter::load(const View &view, Value base, Elem elem, const Lanes *lanes) {
  Value memory = buffer(view.buffer, elem);
  if (!lanes)
    return toValue(b, loc, memref::LoadOp::create(b, loc, memory, ValueRange{base}), elem);
  int64_t stride = plan.columnStride(view);
  Value at = addIndex(base, mulIndex(lanes->column, stride));
  if (stride == 0)
    return splat(toValue(b, loc, memref::LoadOp::create(b, loc, memory, ValueRange{at}), elem));
  if (stride != 1)
    return gather(view, at, laneOffsets(stride), elem, *lanes);
  return loadContiguous(memory, at, elem, *lanes);
}

Value LoopEmitter::loadContiguous(Value memory, Value at, Elem elem, const Lanes &lanes) {
  VectorType type = lanesOf(storedType(b, elem));
  Value loaded = lanes.mask ? Value(vector::MaskedLoadOp::create(b, loc, type, memory, ValueRange{at}, lanes.mask,
                                                                 emitNumber(b, loc, type, 0)))
                            : Value(vector::LoadOp::create(b, loc, type, memory, ValueRange{at}));
  return toValue(b, loc, loaded, elem);
}

void LoopEmitter::store(const LoopStore &store, Value base, Value value, const Lanes *lanes) {
  Elem elem = spec.nodes[store.node].elem;
  Value memory = buffer(store.view.buffer, elem);
  value = toStored(b, loc, value, elem);
  if (!lanes) {
    memref::StoreOp::create(b, loc, value, memory, ValueRange{base});
    return;
  }
  int64_t stride = plan.columnStride(store.view);
  Value at = addIndex(base, mulIndex(lanes->column, stride));
  if (stride != 1) {
    Value mask = lanes->mask ? lanes->mask : emitInteger(b, loc, lanesOf(b.getI1Type()), 1);
    vector::ScatterOp::create(b, loc, Type(), memory, ValueRange{at}, laneOffsets(stride), mask, value);
  } else if (lanes->mask) {
    vector::MaskedStoreOp::create(b, loc, memory, ValueRange{at}, lanes->mask, value);
  } else {
    vector::StoreOp::create(b, loc, value, memory, ValueRange{at});
  }
}

Value LoopEmitter::loadAt(int node, Lanes &lanes, const Preheader &pre) {
  const LoopNode &n = spec.nodes[node];
  Value offsets = argOffsets(n.args, n.atStrides, lanes, pre);
  if (!offsets)
    return load(n.view, pre.bases[node], n.elem, &lanes);
  int64_t stride = plan.columnStride(n.view);
  if (stride != 0)
    offsets = arith::AddIOp::create(b, loc, offsets, laneOffsets(stride));
  return gather(n.view, addIndex(pre.bases[node], mulIndex(lanes.column, stride)), offsets, n.elem, lanes);
}

// A load of consecutive columns where the clamp leaves them alone, of one element where it leaves nothing, else a
// gather.
Value LoopEmitter::loadClamped(int node, Lanes &lanes, const Preheader &pre) {
  const LoopNode &n = spec.nodes[node];
  const LoopPlan::Clamped &clamp = plan.clamped[node];
  int64_t live = lanes.mask ? spec.cols % kLoopLanes : kLoopLanes;
  Value first = addIndex(pre.clampBases[node], lanes.column), last = addIndex(first, index(live - 1));
  auto compare = [&](arith::CmpIPredicate predicate, Value x, int64_t y) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, x, index(y));
  };
  Value inside = arith::AndIOp::create(b, loc, compare(arith::CmpIPredicate::sge, first, 0),
                                       compare(arith::CmpIPredicate::sle, last, clamp.last));
  Value below = compare(arith::CmpIPredicate::sle, last, 0);
  Value outside = arith::OrIOp::create(b, loc, below, compare(arith::CmpIPredicate::sge, first, clamp.last));
  auto yield = [&](Value value) { scf::YieldOp::create(b, loc, value); };
  auto otherwise = [&](OpBuilder &, Location) {
    auto inner = scf::IfOp::create(
        b, loc, outside,
        [&](OpBuilder &, Location) {
          Value end = arith::SelectOp::create(b, loc, below, index(0), index(clamp.last));
          yield(splat(load(n.view, addIndex(pre.bases[node], end), n.elem, nullptr)));
        },
        [&](OpBuilder &, Location) { yield(loadAt(node, lanes, pre)); });
    yield(inner.getResult(0));
  };
  auto branch = scf::IfOp::create(
      b, loc, inside,
      [&](OpBuilder &, Location) {
        yield(loadContiguous(buffer(n.view.buffer, n.elem), addIndex(pre.bases[node], first), n.elem, lanes));
      },
      otherwise);
  return branch.getResult(0);
}

void LoopEmitter::emitAddAt(Value base, const Lanes *lanes, const Preheader *pre) {
  const LoopAddAt &addAt = spec.addAt;
  Elem elem = spec.nodes[addAt.node].elem;
  auto add = [&](Value old, Value value) { return emitElementwise(b, loc, LoopOp::Add, elem, {old, value}); };
  LoopStore target{addAt.node, addAt.view};
  if (!lanes) {
    store(target, base, add(load(addAt.view, base, elem, nullptr), scalars[addAt.node]), nullptr);
    return;
  }
  Value value = operand(addAt.node, *lanes, *pre);
  Value offsets = argOffsets(addAt.args, addAt.atStrides, *lanes, *pre);
  if (!offsets) {
    store(target, base, add(load(addAt.view, base, elem, lanes), value), lanes);
    return;
  }
  int64_t stride = plan.columnStride(addAt.view);
  if (stride != 0)
    offsets = arith::AddIOp::create(b, loc, offsets, laneOffsets(stride));
  Value at = addIndex(base, mulIndex(lanes->column, stride));
  Value sum = add(gather(addAt.view, at, offsets, elem, *lanes), value);
  Value mask = lanes->mask ? lanes->mask : emitInteger(b, loc, lanesOf(b.getI1Type()), 1);
  vector::ScatterOp::create(b, loc, Type(), buffer(addAt.view.buffer, elem), ValueRange{at}, offsets, mask, sum);
}

// Scratch rows are padded to whole vectors: no masks.
Value LoopEmitter::loadScratch(int node, const Lanes &lanes) {
  Elem elem = spec.nodes[node].elem;
  Value at = arith::SubIOp::create(b, loc, lanes.column, columnBegin);
  VectorType stored = lanesOf(storedType(b, elem));
  return toValue(b, loc, vector::LoadOp::create(b, loc, stored, scratchRow(node), ValueRange{at}), elem);
}

void LoopEmitter::storeScratch(int node, Value value, const Lanes &lanes) {
  Value at = arith::SubIOp::create(b, loc, lanes.column, columnBegin);
  vector::StoreOp::create(b, loc, toStored(b, loc, value, spec.nodes[node].elem), scratchRow(node), ValueRange{at});
}

} // namespace cinch::kernels
