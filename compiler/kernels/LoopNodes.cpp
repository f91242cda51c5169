// LoopNodes.cpp: how single nodes of a loop kernel are evaluated, as scalars and as vectors of 16 columns.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace cinch::kernels {

// ---- Small pieces ---------------------------------------------------------------------------------------------------

Type LoopEmitter::lanesOf(Type element) { return plan.teams ? element : Type(VectorType::get({kLoopLanes}, element)); }

Type LoopEmitter::type(Elem elem, bool vector) {
  Type element = valueType(b, elem);
  return vector ? Type(lanesOf(element)) : element;
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
  if (plan.teams)
    return scalar;
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>())
    return arith::ConstantOp::create(b, loc,
                                     DenseElementsAttr::get(cast<VectorType>(lanesOf(scalar.getType())), Attribute(constant.getValue())));
  return vector::BroadcastOp::create(b, loc, lanesOf(scalar.getType()), scalar);
}

Value LoopEmitter::iota(Type element) {
  if (plan.teams)
    return arith::IndexCastOp::create(b, loc, element, lane);
  SmallVector<APInt> numbers;
  for (int64_t lane = 0; lane < kLoopLanes; ++lane)
    numbers.push_back(APInt(element.getIntOrFloatBitWidth(), lane));
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(cast<VectorType>(lanesOf(element)), numbers));
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

// ---- Draws ----------------------------------------------------------------------------------------------------------

Value LoopEmitter::drawValue(int node, Value raw) {
  const LoopNode &n = spec.nodes[node];
  switch (n.op) {
  case LoopOp::RandomBool:
    if (n.numberWord >= 0)
      return emitKept(b, loc, raw, thresholds.at(node));
    return emitKept(b, loc, raw, n.number);
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

// What the place of a block of positions adds to the number of an element.
Value LoopEmitter::elementsBefore(const LoopNode &node) {
  return mulIndex(arith::IndexCastOp::create(b, loc, b.getIndexType(), firstPosition), node.positionStride);
}

Value LoopEmitter::drawnElement(const LoopNode &node, const Lanes *lanes) {
  Value element = elementNumber(node.view, lanes);
  if (node.positionStride == 0)
    return element;
  Value before = toI64(elementsBefore(node));
  return arith::AddIOp::create(b, loc, element, lanes ? splat(before) : before);
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
    Value example =
        exampleNumber(n, plan.columnStride({0, Elem::I32, 0, n.exampleStrides}) && n.usesExample ? &lanes : nullptr);
    return drawValue(node, emitDraw(b, loc, draw, n.elem, keys.at(keyName(n)), example, drawnElement(n, &lanes)));
  }
  auto [row, first] = draws[node];
  Type element = cast<MemRefType>(row.getType()).getElementType();
  Value at = addIndex(first, arith::SubIOp::create(b, loc, lanes.column, columnBegin));
  return drawValue(node, vector::LoadOp::create(b, loc, cast<VectorType>(lanesOf(element)), row, ValueRange{at}));
}

// ---- Nodes ----------------------------------------------------------------------------------------------------------

static Value stepAs(OpBuilder &b, Location loc, Value step, Elem elem) {
  if (elem == Elem::I32)
    return arith::TruncIOp::create(b, loc, b.getI32Type(), step);
  return arith::SIToFPOp::create(b, loc, valueType(b, elem), step);
}

Value LoopEmitter::evaluateScalar(int node) {
  const LoopNode &n = spec.nodes[node];
  switch (n.op) {
  case LoopOp::Const:
    if (n.numberWord >= 0)
      return emitNumberOfWord(b, loc, valueType(b, n.elem), wordOfLaunch(n.numberWord));
    return emitNumber(b, loc, type(n.elem, false), n.number);
  case LoopOp::Load: return load(n.view, base(n.view.offset, n.view.strides), n.elem, nullptr);
  case LoopOp::LoadAt: return load(n.view, basePlus(n.view, n.args, n.atStrides), n.elem, nullptr);
  case LoopOp::Index:
    return arith::IndexCastOp::create(b, loc, b.getI32Type(), base(n.view.offset, n.view.strides));
  case LoopOp::Step: return stepAs(b, loc, step, n.elem);
  case LoopOp::TotalSteps: return stepAs(b, loc, totalSteps, n.elem);
  case LoopOp::RunValue: {
    Value word = memref::LoadOp::create(b, loc, context, ValueRange{index(kRunValues + int64_t(n.number))});
    return arith::BitcastOp::create(b, loc, valueType(b, n.elem), word);
  }
  default: break;
  }
  if (plan.isDraw(node))
    return drawValue(node, emitDraw(b, loc, plan.drawOf(node), n.elem, keys.at(keyName(n)), exampleNumber(n, nullptr),
                                    drawnElement(n, nullptr)));
  Values args;
  for (int arg : n.args)
    args.push_back(scalars[arg]);
  return elementwise(node, args);
}

// A GPU has an instruction that rounds to bf16: what it gives of a NaN is a NaN, too.
Value LoopEmitter::elementwise(int node, ArrayRef<Value> args) {
  const LoopNode &n = spec.nodes[node];
  if (plan.teams && n.approximate)
    return emitApproximate(b, loc, n.op, args);
  if (!plan.teams || n.op != LoopOp::Cast || n.elem != Elem::BF16)
    return emitElementwise(b, loc, n.op, n.elem, args);
  Value wide = emitElementwise(b, loc, LoopOp::Cast, Elem::F32, args);
  return arith::BitcastOp::create(b, loc, b.getF32Type(), simt::roundedPair(b, loc, emitNumber(b, loc, b.getF32Type(), 0), wide));
}

Value LoopEmitter::operand(int node, const Lanes &lanes, const Preheader &pre) {
  return plan.variesCol[node] ? lanes.values[node] : pre.splats[node];
}

Value LoopEmitter::evaluateVector(int node, Lanes &lanes, const Preheader &pre) {
  const LoopNode &n = spec.nodes[node];
  if (plan.selectsAddress[node])
    return loadContiguous(viewAt(index(0), n.elem), addIndex(pre.bases[node], lanes.column), n.elem, lanes);
  switch (n.op) {
  case LoopOp::Load:
    return plan.walksColumns(node) ? load(n.view, pre.bases[node], n.elem, &lanes) : loadOfRows(node, pre.bases[node], lanes);
  case LoopOp::LoadAt:
    return plan.clamped[node].index >= 0 && !plan.teams ? loadClamped(node, lanes, pre) : loadAt(node, lanes, pre);
  case LoopOp::Index: {
    int64_t stride = plan.columnStride(n.view);
    Value first = addIndex(pre.bases[node], mulIndex(lanes.column, stride));
    Value vector = splat(arith::IndexCastOp::create(b, loc, b.getI32Type(), first));
    Value steps = iota(b.getI32Type());
    steps = arith::MulIOp::create(b, loc, steps, emitInteger(b, loc, steps.getType(), stride));
    return arith::AddIOp::create(b, loc, vector, steps);
  }
  case LoopOp::ReduceChain: return loadScratch(node, lanes);
  case LoopOp::ReduceCols: return reduceRows(node, operand(n.args[0], lanes, pre));
  default: break;
  }
  if (plan.isDraw(node))
    return drawLanes(node, lanes);
  Values args;
  for (int arg : n.args)
    args.push_back(operand(arg, lanes, pre));
  return beyondQuick && pre.isQuick[node] ? quickValue(node, args, pre) : elementwise(node, args);
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

} // namespace cinch::kernels
