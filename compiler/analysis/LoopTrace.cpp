// LoopTrace.cpp: the walk from stored values back to memory.
#include "compiler/analysis/LoopTrace.h"

#include "dialects/nn/NN.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {

// ---- The tracer --------------------------------------------------------------------------------------------------------
LoopTracer::LoopTracer(const LoopDomain &domain, std::function<int(Value)> bufferOf, const Extent &extent)
    : domain(domain), extent(extent), sizes(domain.sizes()), bufferOf(std::move(bufferOf)) {
  spec.outer = domain.outer;
  spec.chain = domain.chain;
  spec.cols = domain.cols;
}

int LoopTracer::fail(Value value) {
  if (!blocker)
    blocker = value;
  return -1;
}

Level LoopTracer::levelOf(const std::vector<int64_t> &strides) const {
  bool chain = false, col = strides.back() != 0;
  for (size_t d = domain.outer.size(); d + 1 < strides.size(); ++d)
    chain |= strides[d] != 0;
  return chain ? (col ? Level::Full : Level::Row) : (col ? (domain.chain.empty() ? Level::Full : Level::Column) : Level::Outer);
}

static Level join(Level a, Level b) {
  if (a == b || b == Level::Outer)
    return a;
  return a == Level::Outer ? b : Level::Full;
}

int LoopTracer::add(LoopNode node) {
  switch (node.op) {
  case LoopOp::Load: case LoopOp::LoadAt: case LoopOp::Index:
  case LoopOp::RandomUniform: case LoopOp::RandomNormal: case LoopOp::RandomInt: case LoopOp::RandomBool:
    break; // given
  case LoopOp::ReduceCols: case LoopOp::ArgMaxCols: case LoopOp::ArgMinCols:
    node.level = levels[node.args[0]] == Level::Full && !domain.chain.empty() ? Level::Row : Level::Outer;
    break;
  case LoopOp::ReduceChain:
    node.level = levels[node.args[0]] == Level::Row ? Level::Outer : domain.chain.empty() ? Level::Full : Level::Column;
    break;
  default:
    node.level = Level::Outer;
    for (int arg : node.args)
      node.level = join(node.level, levels[arg]);
  }
  levels.push_back(node.level);
  spec.nodes.push_back(std::move(node));
  return int(spec.nodes.size()) - 1;
}

// The nodes made since `firstNode` that belong to no operand compute `op`.
void LoopTracer::claim(size_t firstNode, Operation *op) {
  origins.resize(spec.nodes.size());
  for (size_t n = firstNode; n < origins.size(); ++n)
    if (!origins[n] && spec.nodes[n].op != LoopOp::Load)
      origins[n] = op;
}

// Axis `axis` of `value`, which is stored or reduced here, is dim `dim` of the domain.
void LoopTracer::findExamples(Value value, int64_t axis, int dim) {
  int batch = batchAxisOf(value);
  if (batch >= 0 && axis == batch)
    batchDim = dim;
  if (batch == 0 && axis == 1)
    positionDim = dim;
}

int LoopTracer::binary(LoopOp op, Elem elem, int a, int b) {
  LoopNode node;
  node.op = op;
  node.elem = elem;
  node.args = {a, b};
  return add(node);
}

int LoopTracer::constant(Elem elem, double number) {
  LoopNode node;
  node.op = LoopOp::Const;
  node.elem = elem;
  node.number = number;
  return add(node);
}

int LoopTracer::index(const LinearIndex &at) {
  LoopNode node;
  node.op = LoopOp::Index;
  node.elem = Elem::I32;
  node.view.elem = Elem::I32;
  node.view.offset = at.offset;
  node.view.strides = at.coef;
  node.level = levelOf(at.coef);
  return add(node);
}

// Makes a node vary, formally, over the dims it is about to be summed over (a value repeated along them).
int LoopTracer::spread(int node, bool overCols, bool overChain) {
  LinearIndex at = LinearIndex::zero(sizes.size());
  for (size_t d = domain.outer.size(); d + 1 < sizes.size(); ++d)
    at.coef[d] = overChain ? 1 : 0;
  at.coef.back() = overCols ? 1 : 0;
  int zero = constant(Elem::I32, 0);
  int always = binary(LoopOp::CompareGE, Elem::Bool, index(at), zero);
  LoopNode select;
  select.op = LoopOp::Select;
  select.elem = spec.nodes[node].elem;
  select.args = {always, node, node};
  return add(select);
}

View LoopTracer::viewOf(int buffer, Value value, const LinearIndex &at) const {
  View view;
  view.buffer = buffer;
  view.elem = elemOf(value);
  view.offset = at.offset;
  view.strides = at.coef;
  return view;
}


int LoopTracer::trace(Value value, const IndexMap &map) {
  LinearIndex flat = flatIndex(map, shapeOf(value, extent), sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == 1)
      flat.coef[d] = 0;
  std::vector<int64_t> where = flat.coef;
  where.push_back(flat.offset);
  auto key = std::make_pair(value.getAsOpaquePointer(), std::move(where));
  if (auto found = memo.find(key); found != memo.end())
    return found->second;
  int node = -1;
  if (int buffer = bufferOf(value); buffer >= 0) {
    LoopNode load;
    load.op = LoopOp::Load;
    load.elem = elemOf(value);
    load.view = viewOf(buffer, value, flat);
    load.level = levelOf(flat.coef);
    node = add(load);
  } else if (Operation *op = value.getDefiningOp(); op && isLoopOp(op)) {
    size_t firstNode = spec.nodes.size();
    node = traceOp(op, value, map);
    if (node >= 0) {
      computed.insert(op);
      claim(firstNode, op);
    }
  } else {
    return fail(value);
  }
  if (node >= 0)
    memo[key] = node;
  return node;
}

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

int LoopTracer::traceOp(Operation *op, Value value, const IndexMap &map) {
  if (isView(op)) {
    Value operand = op->getOperand(0);
    if (auto next = throughView(op, map, sizes, extent))
      return trace(operand, *next);
    if (isa<nn::ReshapeOp>(op) && bufferOf(operand) >= 0) {
      LoopNode load;
      load.op = LoopOp::Load;
      load.elem = elemOf(value);
      LinearIndex flat = flatIndex(map, shapeOf(value, extent), sizes.size());
      load.view = viewOf(bufferOf(operand), operand, flat);
      load.level = levelOf(flat.coef);
      return add(load);
    }
    return fail(bufferOf(operand) >= 0 ? value : operand);
  }
  if (auto state = dyn_cast<nn::NewStateOp>(op))
    return trace(state.getX(), map);
  if (auto plain = plainOp(op)) {
    LoopNode node;
    node.op = *plain;
    node.elem = elemOf(value);
    for (Value operand : op->getOperands()) {
      int arg = trace(operand, map);
      if (arg < 0)
        return -1;
      node.args.push_back(arg);
    }
    return add(node);
  }
  if (auto c = dyn_cast<nn::ConstantOp>(op))
    return constant(elemOf(value), c.getNumber().convertToDouble());
  if (isa<nn::StepOp, nn::TotalStepsOp>(op)) {
    LoopNode node;
    node.op = isa<nn::StepOp>(op) ? LoopOp::Step : LoopOp::TotalSteps;
    node.elem = Elem::F64;
    return add(node);
  }
  if (auto value = dyn_cast<nn::RunValueOp>(op)) {
    LoopNode node;
    node.op = LoopOp::RunValue;
    node.elem = Elem::F64;
    node.number = double(value.getWhich());
    return add(node);
  }
  if (isa<nn::RangeOp>(op))
    return index(flatIndex(map, shapeOf(value, extent), sizes.size()));
  if (auto vector = dyn_cast<nn::VectorOp>(op)) {
    int at = index(flatIndex(map, shapeOf(value, extent), sizes.size()));
    int result = constant(elemOf(value), vector.getNumbers().back());
    for (int64_t i = int64_t(vector.getNumbers().size()) - 2; i >= 0; --i) {
      LoopNode select;
      select.op = LoopOp::Select;
      select.elem = elemOf(value);
      int here = constant(Elem::I32, double(i));
      int number = constant(elemOf(value), vector.getNumbers()[i]);
      select.args = {binary(LoopOp::CompareEQ, Elem::Bool, at, here), number, result};
      result = add(select);
    }
    return result;
  }
  if (auto random = dyn_cast<nn::RandomOp>(op)) {
    Shape shape = shapeOf(value, extent);
    int batch = batchAxisOf(value);
    LoopNode node;
    switch (random.getDraw()) {
    case nn::Draw::Uniform: node.op = LoopOp::RandomUniform; break;
    case nn::Draw::Normal: node.op = LoopOp::RandomNormal; break;
    case nn::Draw::Int: node.op = LoopOp::RandomInt; break;
    case nn::Draw::Bool: node.op = LoopOp::RandomBool; break;
    }
    node.elem = elemOf(value);
    node.key = uint64_t(random.getKey());
    node.number = random.getNumber().convertToDouble();
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
  if (auto gather = dyn_cast<nn::GatherOp>(op)) {
    auto split = splitAxes(map, shapeOf(value, extent), sizes);
    if (!split)
      return fail(value);
    int buffer = bufferOf(gather.getX());
    if (buffer < 0)
      return fail(gather.getX());
    Shape x = shapeOf(gather.getX(), extent);
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
      int64_t label = gather.getXLabels()[axis];
      if (label >= 0) {
        flat.addScaled(split->groups[label].at, strideOf[axis]);
        continue;
      }
      Value indices = gather.getIndices()[-label - 1];
      std::vector<LinearIndex> axes;
      auto labels = cast<DenseI64ArrayAttr>(gather.getIndexLabels()[-label - 1]);
      for (int64_t l : labels.asArrayRef())
        axes.push_back(split->groups[l].at);
      int at = trace(indices, mapOfAxes(axes));
      if (at < 0)
        return -1;
      node.args.push_back(at);
      node.atStrides.push_back(strideOf[axis]);
      node.level = join(node.level, levels[at]);
    }
    node.view = viewOf(buffer, gather.getX(), flat);
    node.level = join(node.level, levelOf(flat.coef));
    return add(node);
  }
  if (auto pad = dyn_cast<nn::PadOp>(op)) {
    auto split = splitAxes(map, shapeOf(value, extent), sizes);
    if (!split)
      return fail(value);
    int at = index(split->groups[pad.getAxis()].at);
    int64_t before = pad.getBefore(), size = shapeOf(pad.getX(), extent)[pad.getAxis()];
    int load = clampedLoad(pad.getX(), *split, pad.getAxis(), at, before);
    if (load < 0)
      return -1;
    int inside = binary(LoopOp::And, Elem::Bool,
                        binary(LoopOp::CompareGE, Elem::Bool, at, constant(Elem::I32, double(before))),
                        binary(LoopOp::CompareLT, Elem::Bool, at, constant(Elem::I32, double(before + size))));
    LoopNode select;
    select.op = LoopOp::Select;
    select.elem = elemOf(value);
    int fill = constant(elemOf(value), pad.getValue().convertToDouble());
    select.args = {inside, load, fill};
    return add(select);
  }
  if (auto concat = dyn_cast<nn::ConcatOp>(op)) {
    auto split = splitAxes(map, shapeOf(value, extent), sizes);
    if (!split)
      return fail(value);
    int at = index(split->groups[concat.getAxis()].at);
    int result = -1;
    int64_t end = shapeOf(value, extent)[concat.getAxis()];
    for (size_t i = concat->getNumOperands(); i-- > 0;) {
      Value part = concat->getOperand(i);
      int64_t begin = end - shapeOf(part, extent)[concat.getAxis()];
      int load = clampedLoad(part, *split, concat.getAxis(), at, begin);
      if (load < 0)
        return -1;
      if (result < 0) {
        result = load;
      } else {
        LoopNode select;
        select.op = LoopOp::Select;
        select.elem = elemOf(value);
        int before = binary(LoopOp::CompareLT, Elem::Bool, at, constant(Elem::I32, double(end)));
        select.args = {before, load, result};
        result = add(select);
      }
      end = begin;
    }
    return result;
  }
  if (isa<nn::ReduceOp, nn::ArgMaxOp, nn::ArgMinOp>(op))
    return reduceCols(op, value, map);
  return fail(value); // scatter_add is only ever stored
}

// The element of `operand` at `map`, its `axis` at index - shift clamped into the operand.
int LoopTracer::clampedLoad(Value operand, const IndexMap &map, int64_t axis, int index, int64_t shift) {
  int buffer = bufferOf(operand);
  if (buffer < 0)
    return fail(operand);
  Shape shape = shapeOf(operand, extent);
  int moved = shift ? binary(LoopOp::Sub, Elem::I32, index, constant(Elem::I32, double(shift))) : index;
  int low = binary(LoopOp::Max, Elem::I32, moved, constant(Elem::I32, 0));
  int clamped = binary(LoopOp::Min, Elem::I32, low, constant(Elem::I32, double(shape[axis] - 1)));
  IndexMap rest = map;
  rest.groups[axis].at = LinearIndex::zero(sizes.size());
  LinearIndex flat = flatIndex(rest, shape, sizes.size());
  int64_t stride = 1;
  for (size_t i = axis + 1; i < shape.size(); ++i)
    stride *= shape[i];
  LoopNode node;
  node.op = LoopOp::LoadAt;
  node.elem = elemOf(operand);
  node.view = viewOf(buffer, operand, flat);
  node.args = {clamped};
  node.atStrides = {stride};
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
