// LoopTraceOps.cpp: what the element of an op's result is computed from, one function a kind of op.
#include "compiler/analysis/LoopTrace.h"
#include "compiler/analysis/Specs.h"

#include "dialects/nn/Approximate.h"
#include "dialects/nn/NN.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {

static std::optional<LoopOp> plainOp(Operation *op) {
  return TypeSwitch<Operation *, std::optional<LoopOp>>(op)
#define PLAIN(OP) .Case<nn::OP##Op>([](auto) { return LoopOp::OP; })
#define FORMULA(KIND, FUNCTION, OPERANDS, WEIGHT) PLAIN(KIND)
#include "dialects/ops/Ops.inc"
      PLAIN(And) PLAIN(Or) PLAIN(Not) PLAIN(Cast)
#undef PLAIN
      .Case<nn::WhereOp>([](auto) { return LoopOp::Select; })
      .Case<nn::CompareOp>([](nn::CompareOp c) {
        switch (c.getComparison()) {
        case nn::Comparison::EQ: return LoopOp::CompareEQ;
        case nn::Comparison::NE: return LoopOp::CompareNE;
        case nn::Comparison::LT: return LoopOp::CompareLT;
        case nn::Comparison::LE: return LoopOp::CompareLE;
        case nn::Comparison::GT: return LoopOp::CompareGT;
        case nn::Comparison::GE: return LoopOp::CompareGE;
        }
        return LoopOp::CompareEQ;
      })
      .Default([](Operation *) { return std::nullopt; });
}

LoopReduce reduceOf(nn::Reduction reduction) {
  switch (reduction) {
  case nn::Reduction::Sum: return LoopReduce::Sum;
  case nn::Reduction::Max: return LoopReduce::Max;
  case nn::Reduction::Min: return LoopReduce::Min;
  case nn::Reduction::Prod: return LoopReduce::Prod;
  case nn::Reduction::Any: return LoopReduce::Any;
  case nn::Reduction::All: return LoopReduce::All;
  }
  return LoopReduce::Sum;
}

// A view: the trace goes on at its operand. A reshape that the map cannot go through reads its operand where that lies in memory.
int LoopTracer::traceView(Operation *op, Value value, const IndexMap &map) {
  Value operand = op->getOperand(0);
  if (auto next = throughView(op, map, sizes, extent))
    return trace(operand, *next);
  if (!isa<nn::ReshapeOp>(op) || bufferOf(operand) < 0)
    return fail(bufferOf(operand) >= 0 ? value : operand);
  return load(bufferOf(operand), operand, flatIndex(map, shapeOf(value, extent), sizes.size()));
}

// An op whose element reads the same element of each operand.
int LoopTracer::tracePlain(LoopOp plain, Operation *op, Value value, const IndexMap &map) {
  LoopNode node;
  node.op = plain;
  node.elem = elemOf(value);
  node.approximate = op->hasAttr(nn::kApproximateAttr);
  for (Value operand : op->getOperands()) {
    int arg = trace(operand, map);
    if (arg < 0)
      return -1;
    node.args.push_back(arg);
  }
  return add(node);
}

// One of the numbers written in the program, chosen by the index. Equal ones that follow each other are one choice.
int LoopTracer::traceVector(nn::VectorOp op, const IndexMap &map) {
  const Elem elem = elemOf(op.getResult());
  const ArrayRef<double> numbers = op.getNumbers();
  const LinearIndex flat = flatIndex(map, shapeOf(op.getResult(), extent), sizes.size());
  if (llvm::all_of(flat.coef, [](int64_t coef) { return coef == 0; }) && flat.offset >= 0 && flat.offset < int64_t(numbers.size()))
    return constant(elem, numbers[size_t(flat.offset)]);
  const int at = index(flat);
  int result = constant(elem, numbers.back());
  for (size_t i = numbers.size() - 1; i > 0; --i) {
    if (numbers[i - 1] == numbers[i] && std::signbit(numbers[i - 1]) == std::signbit(numbers[i]))
      continue;
    const int last = constant(Elem::I32, double(i - 1)), number = constant(elem, numbers[i - 1]);
    result = select(elem, binary(LoopOp::CompareLE, Elem::Bool, at, last), number, result);
  }
  return result;
}

static LoopOp drawOf(nn::Draw draw) {
  switch (draw) {
  case nn::Draw::Uniform: return LoopOp::RandomUniform;
  case nn::Draw::Normal: return LoopOp::RandomNormal;
  case nn::Draw::Int: return LoopOp::RandomInt;
  case nn::Draw::Bool: return LoopOp::RandomBool;
  }
  return LoopOp::RandomUniform;
}

// A draw is a function of its key, the example and the element within the example, wherever the element lies.
int LoopTracer::traceRandom(nn::RandomOp op, const IndexMap &map) {
  Value value = op.getResult();
  Shape shape = shapeOf(value, extent);
  int batch = batchAxisOf(value);
  LoopNode node;
  node.op = drawOf(op.getDraw());
  node.elem = elemOf(value);
  node.key = uint64_t(op.getKey());
  node.number = op.getNumber().convertToDouble();
  LinearIndex element = LinearIndex::zero(sizes.size()), example = element;
  if (batch < 0) {
    element = flatIndex(map, shape, sizes.size());
  } else {
    auto split = splitAxes(map, shape, sizes);
    if (!split)
      return fail(value);
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (int(axis) == batch) {
        example = split->groups[axis].at;
        continue;
      }
      element.addScaled(split->groups[axis].at, stride);
      stride *= shape[axis];
    }
    node.usesExample = true;
  }
  if (op->hasAttr(kPositionsAttr) || (extent.cutsPositions() && batch >= 0)) {
    node.positionStride = 1;
    for (size_t axis = 2; axis < shape.size(); ++axis)
      node.positionStride *= shape[axis];
  }
  node.view.offset = element.offset;
  node.view.strides = element.coef;
  node.exampleStrides = example.coef;
  std::vector<int64_t> reach = element.coef;
  for (size_t d = 0; d < reach.size(); ++d)
    reach[d] |= example.coef[d];
  node.level = levelOf(reach);
  return add(node);
}

// Elements of a table in memory, at indices that are traced like any value.
int LoopTracer::traceGather(nn::GatherOp op, const IndexMap &map) {
  Value value = op.getResult();
  auto split = splitAxes(map, shapeOf(value, extent), sizes);
  if (!split)
    return fail(value);
  int buffer = bufferOf(op.getX());
  if (buffer < 0)
    return fail(op.getX());
  Shape x = shapeInMemory(op.getX(), extent);
  LinearIndex flat = LinearIndex::zero(sizes.size());
  LoopNode node;
  node.op = LoopOp::LoadAt;
  node.elem = elemOf(value);
  int64_t stride = 1;
  std::vector<int64_t> strideOf(x.size());
  for (size_t axis = x.size(); axis-- > 0; stride *= x[axis])
    strideOf[axis] = stride;
  node.level = Level::Outer;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    int64_t label = op.getXLabels()[axis];
    if (label >= 0) {
      flat.addScaled(split->groups[label].at, strideOf[axis]);
      continue;
    }
    Value indices = op.getIndices()[-label - 1];
    std::vector<LinearIndex> axes;
    auto labels = cast<DenseI64ArrayAttr>(op.getIndexLabels()[-label - 1]);
    for (int64_t l : labels.asArrayRef())
      axes.push_back(split->groups[l].at);
    int at = trace(indices, mapOfAxes(axes));
    if (at < 0)
      return -1;
    node.args.push_back(at);
    node.atStrides.push_back(strideOf[axis]);
    node.level = join(node.level, levels[at]);
  }
  node.view = viewOf(buffer, op.getX(), flat);
  node.level = join(node.level, levelOf(flat.coef));
  return add(node);
}

int LoopTracer::tracePad(nn::PadOp op, const IndexMap &map) {
  Value value = op.getResult();
  auto split = splitAxes(map, shapeOf(value, extent), sizes);
  if (!split)
    return fail(value);
  int at = index(split->groups[op.getAxis()].at);
  int64_t before = op.getBefore(), size = shapeOf(op.getX(), extent)[op.getAxis()];
  int load = clampedLoad(op.getX(), *split, op.getAxis(), at, before);
  if (load < 0)
    return -1;
  int inside = binary(LoopOp::And, Elem::Bool,
                      binary(LoopOp::CompareGE, Elem::Bool, at, constant(Elem::I32, double(before))),
                      binary(LoopOp::CompareLT, Elem::Bool, at, constant(Elem::I32, double(before + size))));
  int fill = constant(elemOf(value), op.getValue().convertToDouble());
  return select(elemOf(value), inside, load, fill);
}

// The parts from the last to the first, each chosen where the index lies before its end.
int LoopTracer::traceConcat(nn::ConcatOp op, const IndexMap &map) {
  Value value = op.getResult();
  auto split = splitAxes(map, shapeOf(value, extent), sizes);
  if (!split)
    return fail(value);
  int at = index(split->groups[op.getAxis()].at);
  int result = -1;
  int64_t end = shapeOf(value, extent)[op.getAxis()];
  for (size_t i = op->getNumOperands(); i-- > 0;) {
    Value part = op->getOperand(i);
    int64_t begin = end - shapeOf(part, extent)[op.getAxis()];
    int load = clampedLoad(part, *split, op.getAxis(), at, begin);
    if (load < 0)
      return -1;
    if (result < 0) {
      result = load;
    } else {
      int before = binary(LoopOp::CompareLT, Elem::Bool, at, constant(Elem::I32, double(end)));
      result = select(elemOf(value), before, load, result);
    }
    end = begin;
  }
  return result;
}

int LoopTracer::traceOp(Operation *op, Value value, const IndexMap &map) {
  if (isView(op))
    return traceView(op, value, map);
  if (auto plain = plainOp(op))
    return tracePlain(*plain, op, value, map);
  return TypeSwitch<Operation *, int>(op)
      .Case<nn::NewStateOp>([&](auto o) { return trace(o.getX(), map); })
      .Case<nn::ConstantOp>([&](auto o) { return constant(elemOf(value), o.getNumber().convertToDouble()); })
      .Case<nn::StepOp>([&](auto) { return ofStep(LoopOp::Step); })
      .Case<nn::TotalStepsOp>([&](auto) { return ofStep(LoopOp::TotalSteps); })
      .Case<nn::RunValueOp>([&](auto o) { return ofStep(LoopOp::RunValue, double(o.getWhich())); })
      .Case<nn::RangeOp>([&](auto) { return index(flatIndex(map, shapeOf(value, extent), sizes.size())); })
      .Case<nn::VectorOp>([&](auto o) { return traceVector(o, map); })
      .Case<nn::RandomOp>([&](auto o) { return traceRandom(o, map); })
      .Case<nn::GatherOp>([&](auto o) { return traceGather(o, map); })
      .Case<nn::PadOp>([&](auto o) { return tracePad(o, map); })
      .Case<nn::ConcatOp>([&](auto o) { return traceConcat(o, map); })
      .Case<nn::ReduceOp, nn::ArgMaxOp, nn::ArgMinOp>([&](auto) { return reduceCols(op, value, map); })
      .Default([&](Operation *) { return fail(value); }); // scatter_add is only ever stored
}

// The element of `operand` at `map`, its `axis` at index - shift clamped into the operand.
int LoopTracer::clampedLoad(Value operand, const IndexMap &map, int64_t axis, int index, int64_t shift) {
  View place;
  Value inWay;
  if (!locateAxes(operand, bufferOf, /*unitLast=*/false, place, inWay, &computed, extent))
    return fail(inWay);
  Shape shape = shapeOf(operand, extent);
  int moved = shift ? binary(LoopOp::Sub, Elem::I32, index, constant(Elem::I32, double(shift))) : index;
  int low = binary(LoopOp::Max, Elem::I32, moved, constant(Elem::I32, 0));
  int clamped = binary(LoopOp::Min, Elem::I32, low, constant(Elem::I32, double(shape[axis] - 1)));
  LinearIndex flat = LinearIndex::zero(sizes.size());
  flat.offset = place.offset;
  for (size_t i = 0; i < shape.size(); ++i)
    if (int64_t(i) != axis)
      flat.addScaled(map.groups[i].at, place.strides[i]);
  LoopNode node;
  node.op = LoopOp::LoadAt;
  node.elem = elemOf(operand);
  node.view = viewOf(place.buffer, operand, flat);
  node.args = {clamped};
  node.atStrides = {place.strides[axis]};
  node.level = join(levelOf(flat.coef), levels[clamped]);
  return add(node);
}

// A reduction used inside the kernel: its axes must be the columns, all of them, and nothing else may move with the columns.
int LoopTracer::reduceCols(Operation *op, Value value, const IndexMap &map) {
  Value operand = op->getOperand(0);
  Shape shape = shapeOf(operand, extent);
  std::vector<int64_t> kept, run;
  if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
    ReductionAxes split = splitReduction(operand, reduce.getAxes());
    if (!split.chain.empty() || split.run.empty())
      return fail(value);
    run = split.run;
    kept = split.outer;
  } else {
    int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
    run = {axis};
    for (int64_t i = 0; i < int64_t(shape.size()); ++i)
      if (i != axis)
        kept.push_back(i);
  }
  int64_t length = 1;
  for (int64_t axis : run)
    length *= shape[axis];
  LinearIndex flat = flatIndex(map, shapeOf(value, extent), sizes.size());
  if (length != domain.cols || (domain.cols > 1 && flat.dependsOn(sizes.size() - 1)))
    return fail(value);
  auto split = splitAxes(map, shapeOf(value, extent), sizes);
  if (!split)
    return fail(value);
  LinearIndex col = LinearIndex::dim(sizes.size(), sizes.size() - 1);
  std::vector<AxisGroup> groups;
  for (size_t i = 0; i < kept.size(); ++i)
    groups.push_back({size_t(kept[i]), size_t(kept[i]) + 1, split->groups[i].at});
  groups.push_back({size_t(run.front()), size_t(run.back()) + 1, col});
  llvm::sort(groups, [](const AxisGroup &a, const AxisGroup &b) { return a.first < b.first; });
  IndexMap inner;
  inner.groups = groups;
  int arg = trace(operand, inner);
  if (arg < 0)
    return -1;
  if (levels[arg] == Level::Outer || levels[arg] == Level::Row)
    arg = spread(arg, true, false);
  LoopNode node;
  node.elem = elemOf(value);
  node.args = {arg};
  if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
    node.op = LoopOp::ReduceCols;
    node.reduce = reduceOf(reduce.getReduction());
  } else {
    node.op = isa<nn::ArgMaxOp>(op) ? LoopOp::ArgMaxCols : LoopOp::ArgMinCols;
  }
  return add(node);
}

} // namespace cinch::analysis
