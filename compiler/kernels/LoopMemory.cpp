// LoopMemory.cpp: loads, gathers, stores and scatters of a loop kernel, of scalars and of 16 columns.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace cinch::kernels {

Type storedType(OpBuilder &b, Elem elem) {
  return elem == Elem::Bool ? Type(b.getI8Type()) : elem == Elem::BF16 ? Type(b.getI16Type()) : valueType(b, elem);
}

Value toValue(OpBuilder &b, Location loc, Value stored, Elem elem) {
  if (elem == Elem::BF16)
    return emitWidened(b, loc, stored);
  if (elem != Elem::Bool)
    return stored;
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, stored, emitInteger(b, loc, stored.getType(), 0));
}

Value toStored(OpBuilder &b, Location loc, Value value, Elem elem) {
  if (elem == Elem::BF16)
    return emitNarrowed(b, loc, value);
  if (elem != Elem::Bool)
    return value;
  Type type = isa<VectorType>(value.getType()) ? Type(VectorType::get({kLoopLanes}, b.getI8Type())) : b.getI8Type();
  return arith::ExtUIOp::create(b, loc, type, value);
}

static Value toIndex(OpBuilder &b, Location loc, Value number) {
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
}

Value LoopEmitter::loadOne(Value memory, Value at, Elem elem, Value mask) {
  if (!mask)
    return memref::LoadOp::create(b, loc, memory, ValueRange{at});
  auto branch = scf::IfOp::create(
      b, loc, mask,
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(b, loc, Value(memref::LoadOp::create(b, loc, memory, ValueRange{at})));
      },
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, emitNumber(b, loc, storedType(b, elem), 0)); });
  return branch.getResult(0);
}

void LoopEmitter::storeOne(Value value, Value memory, Value at, Value mask) {
  if (!mask) {
    memref::StoreOp::create(b, loc, value, memory, ValueRange{at});
    return;
  }
  scf::IfOp::create(b, loc, mask, [&](OpBuilder &, Location) {
    memref::StoreOp::create(b, loc, value, memory, ValueRange{at});
    scf::YieldOp::create(b, loc);
  });
}

void LoopEmitter::onFirstLane(llvm::function_ref<void()> body) {
  simt::syncTeam(b, loc);
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, index(0));
  scf::IfOp::create(b, loc, first, [&](OpBuilder &, Location) {
    body();
    scf::YieldOp::create(b, loc);
  });
}

Value LoopEmitter::gather(const View &view, Value at, Value offsets, Elem elem, const Lanes &lanes) {
  if (plan.teams)
    return toValue(b, loc, loadOne(buffer(view.buffer, elem), addIndex(at, toIndex(b, loc, offsets)), elem, lanes.mask), elem);
  auto type = cast<VectorType>(lanesOf(storedType(b, elem)));
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
  if (plan.teams)
    return toValue(b, loc, loadOne(memory, addIndex(at, lane), elem, lanes.mask), elem);
  auto type = cast<VectorType>(lanesOf(storedType(b, elem)));
  Value loaded = lanes.mask ? Value(vector::MaskedLoadOp::create(b, loc, type, memory, ValueRange{at}, lanes.mask,
                                                                 emitNumber(b, loc, type, 0)))
                            : Value(vector::LoadOp::create(b, loc, type, memory, ValueRange{at}));
  return toValue(b, loc, loaded, elem);
}

// Rows side by side, of a vector: of those behind the last column there are none.
int64_t LoopEmitter::rowsOf(const Lanes &lanes) {
  return (lanes.mask ? spec.cols % kLoopLanes : kLoopLanes) / plan.rowColumns;
}

// One element a row, in all of its lanes; or the same row again and again.
Value LoopEmitter::loadOfRows(int node, Value base, const Lanes &lanes) {
  const LoopNode &n = spec.nodes[node];
  Value memory = buffer(n.view.buffer, n.elem);
  bool again = plan.loadWalk[node] == LoopPlan::Walk::Again;
  int64_t row = plan.rowColumns, count = again ? row : rowsOf(lanes), stride = plan.columnStride(n.view);
  Value first = again ? index(0) : Value(arith::DivUIOp::create(b, loc, lanes.column, index(row)));
  Value at = addIndex(base, mulIndex(first, stride));
  auto type = VectorType::get({count}, storedType(b, n.elem));
  Value loaded;
  if (stride == 1) {
    loaded = vector::LoadOp::create(b, loc, type, memory, ValueRange{at});
  } else {
    SmallVector<Value> elements;
    for (int64_t i = 0; i < count; ++i)
      elements.push_back(memref::LoadOp::create(b, loc, memory, ValueRange{addIndex(at, index(i * stride))}));
    loaded = vector::FromElementsOp::create(b, loc, type, elements);
  }
  SmallVector<int64_t> spread;
  for (int64_t lane = 0; lane < kLoopLanes; ++lane)
    spread.push_back(again ? lane % row : std::min(lane / row, count - 1));
  return toValue(b, loc, vector::ShuffleOp::create(b, loc, loaded, loaded, spread), n.elem);
}

void LoopEmitter::storeColumns(int store, Value base, Value value, const Lanes &lanes) {
  const LoopStore &target = spec.stores[store];
  if (plan.rowColumns == 0 || plan.storeWalk[store] == LoopPlan::Walk::Columns)
    return this->store(target, base, value, &lanes);
  Elem elem = spec.nodes[target.node].elem;
  Value memory = buffer(target.view.buffer, elem), stored = toStored(b, loc, value, elem);
  int64_t rows = rowsOf(lanes), stride = plan.columnStride(target.view);
  Value at = addIndex(base, mulIndex(arith::DivUIOp::create(b, loc, lanes.column, index(plan.rowColumns)), stride));
  if (stride == 1 && rows > 1) {
    SmallVector<int64_t> firsts;
    for (int64_t row = 0; row < rows; ++row)
      firsts.push_back(row * plan.rowColumns);
    vector::StoreOp::create(b, loc, vector::ShuffleOp::create(b, loc, stored, stored, firsts), memory, ValueRange{at});
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    Value element = vector::ExtractOp::create(b, loc, stored, ArrayRef<int64_t>{row * plan.rowColumns});
    memref::StoreOp::create(b, loc, element, memory, ValueRange{addIndex(at, index(row * stride))});
  }
}

void LoopEmitter::store(const LoopStore &store, Value base, Value value, const Lanes *lanes) {
  if (store.copies > 1) {
    scf::ForOp::create(b, loc, index(0), index(store.copies), index(1), ValueRange(),
                       [&](OpBuilder &, Location, Value copy, ValueRange) {
                         Value place = addIndex(base, mulIndex(copy, store.copyStride));
                         this->store({store.node, store.view}, place, value, lanes);
                         scf::YieldOp::create(b, loc);
                       });
    return;
  }
  Elem elem = spec.nodes[store.node].elem;
  Value memory = buffer(store.view.buffer, elem);
  value = toStored(b, loc, value, elem);
  auto whole = [&] { memref::StoreOp::create(b, loc, value, memory, ValueRange{base}); };
  if (!lanes)
    return plan.teams ? onFirstLane(whole) : whole();
  int64_t stride = plan.columnStride(store.view);
  Value at = addIndex(base, mulIndex(lanes->column, stride));
  if (plan.teams) {
    storeOne(value, memory, addIndex(at, mulIndex(lane, stride)), lanes->mask);
  } else if (stride != 1) {
    Value mask = lanes->mask ? lanes->mask : emitInteger(b, loc, lanesOf(b.getI1Type()), 1);
    vector::ScatterOp::create(b, loc, Type(), memory, ValueRange{at}, laneOffsets(stride), mask, value);
  } else if (lanes->mask && elem == Elem::BF16 && spec.cols % kLoopLanes == 1) {
    // LLVM 22 makes a scalar store of the wide type of a truncation under a mask of lane 0 alone (its issue 179489).
    memref::StoreOp::create(b, loc, vector::ExtractOp::create(b, loc, value, ArrayRef<int64_t>{0}), memory, ValueRange{at});
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

// A column of the table is a column of the item.
View LoopEmitter::tableView() const {
  View view{kTable, spec.nodes[spec.addAt.node].elem, 0, spec.addAt.view.strides};
  std::fill(view.strides.begin(), view.strides.end(), 0);
  view.strides.back() = plan.addAtVector ? 1 : 0;
  return view;
}

Value LoopEmitter::tableBase() {
  if (plan.tableAt < 0)
    return {};
  Value sum = index(0);
  for (auto [arg, stride] : llvm::zip_equal(spec.addAt.args, plan.tableStrides))
    if (!plan.variesCol[arg])
      sum = addIndex(sum, mulIndex(arith::IndexCastOp::create(b, loc, b.getIndexType(), scalars[arg]), stride));
  return plan.addAtVector ? Value(arith::SubIOp::create(b, loc, sum, columnBegin)) : sum;
}

void LoopEmitter::emitAddAt(Value base, Value tableBase, const Lanes *lanes, const Preheader *pre) {
  if (plan.teams && !lanes)
    return onFirstLane([&] { addAtPlaces(base, tableBase, lanes, pre); });
  addAtPlaces(base, tableBase, lanes, pre);
}

void LoopEmitter::addAtPlaces(Value base, Value tableBase, const Lanes *lanes, const Preheader *pre) {
  const LoopAddAt &addAt = spec.addAt;
  Elem elem = spec.nodes[addAt.node].elem;
  // An element (or 16) of the destination or the table.
  struct Places {
    View view;
    Value at, offsets; // with offsets: scattered columns
  };
  auto placesIn = [&](const View &view, Value at, const std::vector<int64_t> &strides) {
    Places places{view, at, lanes ? argOffsets(addAt.args, strides, *lanes, *pre) : Value()};
    int64_t stride = plan.columnStride(view);
    if (places.offsets) {
      places.at = addIndex(at, mulIndex(lanes->column, stride));
      if (stride != 0)
        places.offsets = arith::AddIOp::create(b, loc, places.offsets, laneOffsets(stride));
    }
    return places;
  };
  auto read = [&](const Places &places) {
    return places.offsets ? gather(places.view, places.at, places.offsets, elem, *lanes)
                          : load(places.view, places.at, elem, lanes);
  };
  auto write = [&](const Places &places, Value value) {
    if (!lanes) { // of a team, this is its first thread alone
      memref::StoreOp::create(b, loc, toStored(b, loc, value, elem), buffer(places.view.buffer, elem), ValueRange{places.at});
      return;
    }
    if (!places.offsets)
      return store({addAt.node, places.view}, places.at, value, lanes);
    if (plan.teams)
      return storeOne(toStored(b, loc, value, elem), buffer(places.view.buffer, elem),
                      addIndex(places.at, toIndex(b, loc, places.offsets)), lanes->mask);
    Value mask = lanes->mask ? lanes->mask : emitInteger(b, loc, lanesOf(b.getI1Type()), 1);
    vector::ScatterOp::create(b, loc, Type(), buffer(places.view.buffer, elem), ValueRange{places.at}, places.offsets,
                              mask, value);
  };
  auto add = [&](const Places &places, Value value) {
    write(places, emitElementwise(b, loc, LoopOp::Add, elem, {read(places), value}));
  };
  auto value = [&] { return lanes ? operand(addAt.node, *lanes, *pre) : scalars[addAt.node]; };
  auto target = [&] { return placesIn(addAt.view, base, addAt.atStrides); };
  if (addAtWalk == AddAtWalk::Add)
    return add(target(), value());
  Places table = placesIn(tableView(), tableBase, plan.tableStrides);
  Value zero = emitNumber(b, loc, type(elem, lanes != nullptr), 0);
  if (addAtWalk == AddAtWalk::Sum)
    return add(table, value());
  if (addAtWalk == AddAtWalk::Flush)
    add(target(), read(table));
  write(table, zero);
}

// Scratch rows are padded to whole vectors: no masks.
Value LoopEmitter::loadRow(int64_t scratchByte, Elem elem, const Lanes &lanes) {
  Value row = viewAt(addIndex(scratchAt, index(scratchByte)), elem);
  Value at = arith::SubIOp::create(b, loc, lanes.column, columnBegin);
  if (plan.teams)
    return toValue(b, loc, loadOne(row, addIndex(at, lane), elem, Value()), elem);
  auto stored = cast<VectorType>(lanesOf(storedType(b, elem)));
  return toValue(b, loc, vector::LoadOp::create(b, loc, stored, row, ValueRange{at}), elem);
}

void LoopEmitter::storeRow(int64_t scratchByte, Elem elem, Value value, const Lanes &lanes) {
  Value row = viewAt(addIndex(scratchAt, index(scratchByte)), elem);
  Value at = arith::SubIOp::create(b, loc, lanes.column, columnBegin);
  if (plan.teams)
    return storeOne(toStored(b, loc, value, elem), row, addIndex(at, lane), Value());
  vector::StoreOp::create(b, loc, toStored(b, loc, value, elem), row, ValueRange{at});
}

Value LoopEmitter::loadScratch(int node, const Lanes &lanes) {
  return loadRow(plan.scratchOf[node], spec.nodes[node].elem, lanes);
}

void LoopEmitter::storeScratch(int node, Value value, const Lanes &lanes) {
  storeRow(plan.scratchOf[node], spec.nodes[node].elem, value, lanes);
}

} // namespace cinch::kernels
