// LoopNodes.cpp: how single nodes of a loop kernel are evaluated, as scalars and as vectors of 16 columns.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {

// ---- Small pieces ----------------------------------------------------------------------------------------------------------

VectorType LoopEmitter::lanesOf(Type element) { return VectorType::get({kLoopLanes}, element); }

Type LoopEmitter::type(Elem elem, bool vector) {
  Type element = valueType(b, elem);
  return vector ? Type(lanesOf(element)) : element;
}

static Type storedType(OpBuilder &b, Elem elem) {
  return elem == Elem::Bool ? Type(b.getI8Type()) : valueType(b, elem);
}

Value LoopEmitter::index(int64_t n) { return emitInteger(b, loc, b.getIndexType(), n); }

static bool isConstant(Value value, int64_t number) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  auto integer = constant ? dyn_cast<IntegerAttr>(constant.getValue()) : IntegerAttr();
  return integer && integer.getValue() == number;
}

Value LoopEmitter::addIndex(Value x, Value y) {
  if (isConstant(x, 0))
    return y;
  if (isConstant(y, 0))
    return x;
  return arith::AddIOp::create(b, loc, x, y);
}

Value LoopEmitter::mulIndex(Value x, int64_t factor) {
  if (factor == 0)
    return index(0);
  if (factor == 1)
    return x;
  return arith::MulIOp::create(b, loc, x, index(factor));
}

Value LoopEmitter::toI64(Value x) {
  if (getElementTypeOrSelf(x.getType()).isInteger(64))
    return x;
  Type to = isa<VectorType>(x.getType()) ? Type(lanesOf(b.getI64Type())) : b.getI64Type();
  if (x.getType().isIndex())
    return arith::IndexCastOp::create(b, loc, to, x);
  return arith::ExtSIOp::create(b, loc, to, x);
}

Value LoopEmitter::splat(Value scalar) {
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>())
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(lanesOf(scalar.getType()), Attribute(constant.getValue())));
  return vector::BroadcastOp::create(b, loc, lanesOf(scalar.getType()), scalar);
}

Value LoopEmitter::iota(Type element) {
  SmallVector<APInt> numbers;
  for (int64_t lane = 0; lane < kLoopLanes; ++lane)
    numbers.push_back(APInt(element.getIntOrFloatBitWidth(), lane));
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(lanesOf(element), numbers));
}

Value LoopEmitter::base(int64_t offset, const std::vector<int64_t> &strides) {
  Value sum = index(offset);
  for (size_t i = 0; i < outerIndex.size(); ++i)
    sum = addIndex(sum, mulIndex(outerIndex[i], strides[i]));
  for (size_t i = 0; i < chainIndex.size(); ++i)
    sum = addIndex(sum, mulIndex(chainIndex[i], strides[spec.outer.size() + i]));
  return sum;
}

// The scalar arguments' share is added; those that vary over the columns go to argOffsets.
Value LoopEmitter::basePlus(const View &view, const std::vector<int> &args, const std::vector<int64_t> &strides) {
  Value sum = base(view.offset, view.strides);
  for (size_t i = 0; i < args.size(); ++i) {
    if (plan.variesCol[args[i]])
      continue;
    Value number = arith::IndexCastOp::create(b, loc, b.getIndexType(), scalars[args[i]]);
    sum = addIndex(sum, mulIndex(number, strides[i]));
  }
  return sum;
}

Value LoopEmitter::argOffsets(const std::vector<int> &args, const std::vector<int64_t> &strides, const Lanes &lanes,
                              const Preheader &pre) {
  Value sum;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!plan.variesCol[args[i]])
      continue;
    Value number = toI64(operand(args[i], lanes, pre));
    number = arith::MulIOp::create(b, loc, number, emitInteger(b, loc, number.getType(), strides[i]));
    sum = sum ? Value(arith::AddIOp::create(b, loc, sum, number)) : number;
  }
  return sum;
}

Value LoopEmitter::laneOffsets(int64_t stride) {
  Value lanes = iota(b.getI64Type());
  return arith::MulIOp::create(b, loc, lanes, emitInteger(b, loc, lanes.getType(), stride));
}

// ---- Memory ----------------------------------------------------------------------------------------------------------------

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

// A load of consecutive columns where the clamp leaves them alone, of one element where it leaves nothing, else a gather.
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

// ---- Draws -----------------------------------------------------------------------------------------------------------------

Value LoopEmitter::drawValue(int node, Value raw) {
  const LoopNode &n = spec.nodes[node];
  switch (n.op) {
  case LoopOp::RandomBool: return emitKept(b, loc, raw, n.number);
  case LoopOp::RandomUniform: return emitUniform(b, loc, raw, n.elem);
  case LoopOp::RandomInt: return emitBelow(b, loc, raw, uint32_t(n.number));
  default: return raw;
  }
}

Value LoopEmitter::elementNumber(const View &view, const Lanes *lanes) {
  Value first = base(view.offset, view.strides);
  if (!lanes)
    return toI64(first);
  int64_t stride = plan.columnStride(view);
  first = toI64(addIndex(first, mulIndex(lanes->column, stride)));
  return arith::AddIOp::create(b, loc, splat(first), laneOffsets(stride));
}

Value LoopEmitter::exampleNumber(const LoopNode &node, const Lanes *lanes) {
  if (!node.usesExample)
    return emitInteger(b, loc, b.getI64Type(), 0);
  View view{0, Elem::I32, 0, node.exampleStrides};
  Value within = elementNumber(view, lanes);
  return arith::AddIOp::create(b, loc, within, lanes ? splat(firstExample) : firstExample);
}

Value LoopEmitter::drawLanes(int node, const Lanes &lanes) {
  const LoopNode &n = spec.nodes[node];
  Draw draw = plan.drawOf(node);
  if (!plan.drawsRow(node)) {
    Value example = exampleNumber(n, plan.columnStride({0, Elem::I32, 0, n.exampleStrides}) && n.usesExample ? &lanes : nullptr);
    return drawValue(node, emitDraw(b, loc, draw, n.elem, keys.at(keyName(n)), example, elementNumber(n.view, &lanes)));
  }
  auto [row, first] = draws[node];
  Type element = cast<MemRefType>(row.getType()).getElementType();
  Value at = addIndex(first, arith::SubIOp::create(b, loc, lanes.column, columnBegin));
  return drawValue(node, vector::LoadOp::create(b, loc, lanesOf(element), row, ValueRange{at}));
}

// ---- Nodes -----------------------------------------------------------------------------------------------------------------

static Value stepAs(OpBuilder &b, Location loc, Value step, Elem elem) {
  if (elem == Elem::I32)
    return arith::TruncIOp::create(b, loc, b.getI32Type(), step);
  return arith::SIToFPOp::create(b, loc, valueType(b, elem), step);
}

Value LoopEmitter::evaluateScalar(int node) {
  const LoopNode &n = spec.nodes[node];
  switch (n.op) {
  case LoopOp::Const: return emitNumber(b, loc, type(n.elem, false), n.number);
  case LoopOp::Load: return load(n.view, base(n.view.offset, n.view.strides), n.elem, nullptr);
  case LoopOp::LoadAt: return load(n.view, basePlus(n.view, n.args, n.atStrides), n.elem, nullptr);
  case LoopOp::Index:
    return arith::IndexCastOp::create(b, loc, b.getI32Type(), base(n.view.offset, n.view.strides));
  case LoopOp::Step: return stepAs(b, loc, step, n.elem);
  case LoopOp::TotalSteps: return stepAs(b, loc, totalSteps, n.elem);
  default: break;
  }
  if (plan.isDraw(node))
    return drawValue(node, emitDraw(b, loc, plan.drawOf(node), n.elem, keys.at(keyName(n)), exampleNumber(n, nullptr),
                                    elementNumber(n.view, nullptr)));
  Values args;
  for (int arg : n.args)
    args.push_back(scalars[arg]);
  return emitElementwise(b, loc, n.op, n.elem, args);
}

Value LoopEmitter::operand(int node, const Lanes &lanes, const Preheader &pre) {
  return plan.variesCol[node] ? lanes.values[node] : pre.splats[node];
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

Value LoopEmitter::evaluateVector(int node, Lanes &lanes, const Preheader &pre) {
  const LoopNode &n = spec.nodes[node];
  if (plan.selectsAddress[node])
    return loadContiguous(viewAt(index(0), n.elem), addIndex(pre.bases[node], lanes.column), n.elem, lanes);
  switch (n.op) {
  case LoopOp::Load: return load(n.view, pre.bases[node], n.elem, &lanes);
  case LoopOp::LoadAt: return plan.clamped[node].index >= 0 ? loadClamped(node, lanes, pre) : loadAt(node, lanes, pre);
  case LoopOp::Index: {
    int64_t stride = plan.columnStride(n.view);
    Value first = addIndex(pre.bases[node], mulIndex(lanes.column, stride));
    Value vector = splat(arith::IndexCastOp::create(b, loc, b.getI32Type(), first));
    Value steps = iota(b.getI32Type());
    steps = arith::MulIOp::create(b, loc, steps, emitInteger(b, loc, steps.getType(), stride));
    return arith::AddIOp::create(b, loc, vector, steps);
  }
  case LoopOp::ReduceChain: return loadScratch(node, lanes);
  default: break;
  }
  if (plan.isDraw(node))
    return drawLanes(node, lanes);
  Values args;
  for (int arg : n.args)
    args.push_back(operand(arg, lanes, pre));
  return emitElementwise(b, loc, n.op, n.elem, args);
}

void LoopEmitter::evaluateVectors(Lanes &lanes, const Preheader &pre) {
  lanes.values.resize(spec.nodes.size());
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!pre.nodes[n] || lanes.values[n])
      continue;
    lanes.values[n] = isKept(int(n)) ? loadScratch(int(n), lanes) : evaluateVector(int(n), lanes, pre);
    if (plan.keptBy[n] == pass)
      storeScratch(int(n), lanes.values[n], lanes);
  }
}

// ---- Reductions ------------------------------------------------------------------------------------------------------------

Value LoopEmitter::combine(LoopReduce reduce, Value x, Value y) {
  switch (reduce) {
  case LoopReduce::Sum: return emitElementwise(b, loc, LoopOp::Add, Elem::F32, {x, y});
  case LoopReduce::Prod: return emitElementwise(b, loc, LoopOp::Mul, Elem::F32, {x, y});
  case LoopReduce::Max: return emitElementwise(b, loc, LoopOp::Max, Elem::F32, {x, y});
  case LoopReduce::Min: return emitElementwise(b, loc, LoopOp::Min, Elem::F32, {x, y});
  case LoopReduce::Any: return emitElementwise(b, loc, LoopOp::Or, Elem::Bool, {x, y});
  case LoopReduce::All: return emitElementwise(b, loc, LoopOp::And, Elem::Bool, {x, y});
  }
  return {};
}

Value LoopEmitter::neutral(LoopReduce reduce, Elem elem, bool vector) {
  bool isFloat = elem == Elem::F32 || elem == Elem::F64;
  double inf = std::numeric_limits<double>::infinity();
  switch (reduce) {
  case LoopReduce::Sum: return emitNumber(b, loc, type(elem, vector), isFloat ? -0.0 : 0);
  case LoopReduce::Prod: return emitNumber(b, loc, type(elem, vector), 1);
  case LoopReduce::Max:
    return isFloat ? emitNumber(b, loc, type(elem, vector), -inf)
                   : emitInteger(b, loc, type(elem, vector), elem == Elem::Bool ? 0 : std::numeric_limits<int32_t>::min());
  case LoopReduce::Min:
    return isFloat ? emitNumber(b, loc, type(elem, vector), inf)
                   : emitInteger(b, loc, type(elem, vector), elem == Elem::Bool ? 1 : std::numeric_limits<int32_t>::max());
  case LoopReduce::Any: return emitInteger(b, loc, type(elem, vector), 0);
  case LoopReduce::All: return emitInteger(b, loc, type(elem, vector), 1);
  }
  return {};
}

Value LoopEmitter::chainStart(const LoopNode &node, bool vector) {
  if (node.reduce == LoopReduce::Sum)
    return emitNumber(b, loc, type(node.elem, vector), 0);
  return neutral(node.reduce, node.elem, vector);
}

void LoopEmitter::initialReduction(int node, Values &accumulators) {
  const LoopNode &n = spec.nodes[node];
  if (n.op == LoopOp::ReduceCols) {
    accumulators.push_back(neutral(n.reduce, n.elem, true));
    return;
  }
  // Lanes without any element (a row shorter than 16) lose every tie.
  auto worst = n.op == LoopOp::ArgMaxCols ? LoopReduce::Max : LoopReduce::Min;
  accumulators.push_back(neutral(worst, spec.nodes[n.args[0]].elem, true));
  SmallVector<APInt> first;
  for (int64_t lane = 0; lane < kLoopLanes; ++lane)
    first.push_back(APInt(32, lane < spec.cols ? lane : std::numeric_limits<int32_t>::max()));
  accumulators.push_back(arith::ConstantOp::create(b, loc, DenseElementsAttr::get(lanesOf(b.getI32Type()), first)));
}

// Whether x goes before y: larger (or smaller, for ArgMin), or a NaN before numbers.
static Value goesBefore(OpBuilder &b, Location loc, LoopOp op, Value x, Value y) {
  auto compare = op == LoopOp::ArgMaxCols ? LoopOp::CompareGT : LoopOp::CompareLT;
  Value better = emitElementwise(b, loc, compare, Elem::Bool, {x, y});
  if (!isa<FloatType>(getElementTypeOrSelf(x.getType())))
    return better;
  Value xNan = emitElementwise(b, loc, LoopOp::CompareNE, Elem::Bool, {x, x});
  Value yNumber = emitElementwise(b, loc, LoopOp::CompareEQ, Elem::Bool, {y, y});
  return arith::OrIOp::create(b, loc, better, arith::AndIOp::create(b, loc, xNan, yNumber));
}

void LoopEmitter::accumulate(int node, MutableArrayRef<Value> accumulators, const Lanes &lanes, const Preheader &pre) {
  const LoopNode &n = spec.nodes[node];
  Value value = operand(n.args[0], lanes, pre);
  if (n.op == LoopOp::ReduceCols) {
    Value next = combine(n.reduce, accumulators[0], value);
    if (lanes.mask)
      next = arith::SelectOp::create(b, loc, lanes.mask, next, accumulators[0]);
    accumulators[0] = next;
    return;
  }
  Value take = goesBefore(b, loc, n.op, value, accumulators[0]);
  if (lanes.mask)
    take = arith::AndIOp::create(b, loc, take, lanes.mask);
  Value column = splat(arith::IndexCastOp::create(b, loc, b.getI32Type(), lanes.column));
  column = arith::AddIOp::create(b, loc, column, iota(b.getI32Type()));
  accumulators[0] = arith::SelectOp::create(b, loc, take, value, accumulators[0]);
  accumulators[1] = arith::SelectOp::create(b, loc, take, column, accumulators[1]);
}

void LoopEmitter::finishReduction(int node, ArrayRef<Value> accumulators) {
  const LoopNode &n = spec.nodes[node];
  auto half = [&](Value vector, int64_t from, int64_t count) -> Value {
    SmallVector<int64_t> lanes;
    for (int64_t lane = from; lane < from + count; ++lane)
      lanes.push_back(lane);
    return vector::ShuffleOp::create(b, loc, vector, vector, lanes);
  };
  Value value = accumulators[0], number = accumulators.size() > 1 ? accumulators[1] : Value();
  for (int64_t width = kLoopLanes / 2; width > 0; width /= 2) {
    Value x = half(value, 0, width), y = half(value, width, width);
    if (!number) {
      value = combine(n.reduce, x, y);
      continue;
    }
    Value xNumber = half(number, 0, width), yNumber = half(number, width, width);
    Value yFirst = goesBefore(b, loc, n.op, y, x), xFirst = goesBefore(b, loc, n.op, x, y);
    Value lower = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, yNumber, xNumber);
    Value tie = arith::XOrIOp::create(b, loc, arith::OrIOp::create(b, loc, yFirst, xFirst),
                                      emitInteger(b, loc, yFirst.getType(), 1));
    Value takeY = arith::OrIOp::create(b, loc, yFirst, arith::AndIOp::create(b, loc, tie, lower));
    value = arith::SelectOp::create(b, loc, takeY, y, x);
    number = arith::SelectOp::create(b, loc, takeY, yNumber, xNumber);
  }
  scalars[node] = vector::ExtractOp::create(b, loc, number ? number : value, ArrayRef<int64_t>{0});
}

} // namespace cinch::kernels
