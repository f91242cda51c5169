// LoopTrace.cpp: the walk from stored values back to memory.
#include "compiler/analysis/LoopTrace.h"

#include "dialects/nn/NN.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {

// ---- Types -------------------------------------------------------------------------------------------------------------
Shape shapeOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return Shape(type.getShape().begin(), type.getShape().end());
}

int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

int batchAxisOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  auto batch = dyn_cast_or_null<nn::BatchAttr>(type.getEncoding());
  return batch ? int(batch.getAxis()) : -1;
}

Elem elemOf(Value value) {
  Type type = cast<RankedTensorType>(value.getType()).getElementType();
  return type.isF32() ? Elem::F32 : type.isF64() ? Elem::F64 : type.isInteger(1) ? Elem::Bool : Elem::I32;
}

// ---- Domains -----------------------------------------------------------------------------------------------------------
Shape LoopDomain::sizes() const {
  Shape all = outer;
  all.insert(all.end(), chain.begin(), chain.end());
  all.push_back(cols);
  return all;
}

// How a reduction's axes fall apart (the order of sums in design.md): the run of reduced axes at the end, batch excepted, is
// summed in lanes; the other reduced axes are a chain, batch first. Without such a run the last kept axis is the columns.
struct ReductionAxes {
  std::vector<int64_t> outer, chain, run; // axes of the operand
  int64_t column = -1;                    // the kept axis that is the columns, if there is no run
};

static ReductionAxes splitReduction(Value operand, ArrayRef<int64_t> axes) {
  ReductionAxes split;
  int64_t rank = cast<RankedTensorType>(operand.getType()).getRank(), batch = batchAxisOf(operand);
  auto reduced = [&](int64_t axis) { return llvm::is_contained(axes, axis); };
  int64_t runBegin = rank;
  while (runBegin > 0 && reduced(runBegin - 1) && runBegin - 1 != batch)
    --runBegin;
  for (int64_t axis = runBegin; axis < rank; ++axis)
    split.run.push_back(axis);
  if (runBegin == rank && rank > 0 && !reduced(rank - 1))
    split.column = rank - 1;
  if (batch >= 0 && reduced(batch))
    split.chain.push_back(batch);
  for (int64_t axis = 0; axis < runBegin; ++axis) {
    if (axis == split.column || (axis == batch && reduced(axis)))
      continue;
    (reduced(axis) ? split.chain : split.outer).push_back(axis);
  }
  return split;
}

// A row-wise arg op: all other axes outside, its axis as columns.
static LoopDomain scatterDomain(nn::ScatterAddOp op) {
  // Labels of the gather: those of x's plain axes address disjoint elements (outer, and the last as columns), the labels of
  // the index tensors are walked in order, the batch axis first.
  LoopDomain domain;
  Shape updates = shapeOf(op.getUpdates());
  int batch = batchAxisOf(op.getUpdates());
  ArrayRef<int64_t> labels = op.getXLabels();
  auto plain = [&](int64_t label) { return llvm::is_contained(labels, label); };
  int64_t column = !labels.empty() && labels.back() >= 0 ? labels.back() : -1;
  if (batch >= 0 && !plain(batch))
    domain.chain.push_back(updates[batch]);
  for (int64_t label = 0; label < int64_t(updates.size()); ++label) {
    if (label == column || (label == batch && !plain(label)))
      continue;
    (plain(label) ? domain.outer : domain.chain).push_back(updates[label]);
  }
  domain.cols = column >= 0 ? updates[column] : 1;
  return domain;
}

static Shape sizesOf(const Shape &shape, ArrayRef<int64_t> axes) {
  Shape sizes;
  for (int64_t axis : axes)
    sizes.push_back(shape[axis]);
  return sizes;
}

LoopDomain domainOf(Value value) {
  LoopDomain domain;
  Operation *op = value.getDefiningOp();
  if (auto reduce = dyn_cast_or_null<nn::ReduceOp>(op)) {
    Shape shape = shapeOf(reduce.getX());
    ReductionAxes split = splitReduction(reduce.getX(), reduce.getAxes());
    domain.outer = sizesOf(shape, split.outer);
    domain.chain = sizesOf(shape, split.chain);
    for (int64_t axis : split.run)
      domain.cols *= shape[axis];
    if (split.column >= 0)
      domain.cols = shape[split.column];
    return domain;
  }
  if (auto scatter = dyn_cast_or_null<nn::ScatterAddOp>(op))
    return scatterDomain(scatter);
  if (isa_and_nonnull<nn::ArgMaxOp, nn::ArgMinOp>(op)) {
    Shape shape = shapeOf(op->getOperand(0));
    int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
    domain.cols = shape[axis];
    shape.erase(shape.begin() + axis);
    domain.outer = shape;
    return domain;
  }
  Shape shape = shapeOf(value);
  if (!shape.empty()) {
    domain.cols = shape.back();
    shape.pop_back();
    domain.outer = shape;
  }
  return domain;
}

bool isView(Operation *op) {
  return isa<nn::BroadcastOp, nn::TransposeOp, nn::ReshapeOp, nn::SliceOp, nn::ReverseOp, nn::StopGradientOp>(op);
}

bool isLoopOp(Operation *op) { return !isa<nn::ContractOp, nn::AttendOp, nn::AttendGradOp>(op); }

std::optional<IndexMap> throughView(Operation *op, const IndexMap &map, const Shape &domain) {
  Shape result = shapeOf(op->getResult(0)), operand = shapeOf(op->getOperand(0));
  return TypeSwitch<Operation *, std::optional<IndexMap>>(op)
      .Case<nn::BroadcastOp>([&](auto b) {
        return throughBroadcast(map, result, operand, std::vector<int64_t>(b.getAxes()), domain);
      })
      .Case<nn::TransposeOp>(
          [&](auto t) { return throughTranspose(map, result, std::vector<int64_t>(t.getPermutation()), domain); })
      .Case<nn::ReshapeOp>([&](auto) { return throughReshape(map, result, operand, domain); })
      .Case<nn::SliceOp>(
          [&](auto s) { return throughSlice(map, result, operand, s.getAxis(), s.getBegin(), domain); })
      .Case<nn::ReverseOp>([&](auto r) { return throughReverse(map, result, r.getAxis(), domain); })
      .Case<nn::StopGradientOp>([&](auto) { return std::optional<IndexMap>(map); })
      .Default([](Operation *) { return std::nullopt; });
}

std::optional<std::pair<Value, LinearIndex>> locate(Value value, const IndexMap &map, const Shape &domain,
                                                    llvm::function_ref<bool(Value)> inMemory, Value &blocker,
                                                    llvm::SetVector<Operation *> *passed) {
  IndexMap at = map;
  while (!inMemory(value)) {
    Operation *op = value.getDefiningOp();
    if (!op || !isView(op)) {
      blocker = value;
      return std::nullopt;
    }
    auto next = throughView(op, at, domain);
    if (!next) {
      // A reshape of what is in memory is free whatever its shape: elements keep their flat number.
      if (isa<nn::ReshapeOp>(op) && inMemory(op->getOperand(0))) {
        if (passed)
          passed->insert(op);
        return std::make_pair(op->getOperand(0), flatIndex(at, shapeOf(value), domain.size()));
      }
      blocker = op->getOperand(0);
      if (inMemory(blocker)) // the shape operation itself needs a copy
        blocker = value;
      return std::nullopt;
    }
    if (passed)
      passed->insert(op);
    at = *next;
    value = op->getOperand(0);
  }
  return std::make_pair(value, flatIndex(at, shapeOf(value), domain.size()));
}

// ---- The tracer --------------------------------------------------------------------------------------------------------
LoopTracer::LoopTracer(const LoopDomain &domain, llvm::function_ref<int(Value)> bufferOf)
    : domain(domain), sizes(domain.sizes()), bufferOf(bufferOf) {
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

static std::string keyOf(Value value, const LinearIndex &flat) {
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(value.getAsOpaquePointer()));
  for (int64_t coef : flat.coef)
    key += "," + std::to_string(coef);
  return key + "@" + std::to_string(flat.offset);
}

int LoopTracer::trace(Value value, const IndexMap &map) {
  LinearIndex flat = flatIndex(map, shapeOf(value), sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == 1)
      flat.coef[d] = 0;
  std::string key = keyOf(value, flat);
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
    node = traceOp(op, value, map);
    if (node >= 0)
      computed.insert(op);
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
      PLAIN(Neg) PLAIN(Exp) PLAIN(Expm1) PLAIN(Log) PLAIN(Log1p) PLAIN(Sqrt) PLAIN(Sin) PLAIN(Cos) PLAIN(Tanh)
      PLAIN(Erf) PLAIN(Sigmoid) PLAIN(Softplus) PLAIN(Abs) PLAIN(Floor) PLAIN(Add) PLAIN(Sub) PLAIN(Mul) PLAIN(Div)
      PLAIN(Pow) PLAIN(Max) PLAIN(Min) PLAIN(And) PLAIN(Or) PLAIN(Not) PLAIN(Cast)
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

static LoopReduce reduceOf(nn::Reduction reduction) {
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
    if (auto next = throughView(op, map, sizes))
      return trace(operand, *next);
    if (isa<nn::ReshapeOp>(op) && bufferOf(operand) >= 0) {
      LoopNode load;
      load.op = LoopOp::Load;
      load.elem = elemOf(value);
      LinearIndex flat = flatIndex(map, shapeOf(value), sizes.size());
      load.view = viewOf(bufferOf(operand), operand, flat);
      load.level = levelOf(flat.coef);
      return add(load);
    }
    return fail(bufferOf(operand) >= 0 ? value : operand);
  }
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
  if (isa<nn::RangeOp>(op))
    return index(flatIndex(map, shapeOf(value), sizes.size()));
  if (auto vector = dyn_cast<nn::VectorOp>(op)) {
    int at = index(flatIndex(map, shapeOf(value), sizes.size()));
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
    Shape shape = shapeOf(value);
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
    auto split = splitAxes(map, shapeOf(value), sizes);
    if (!split)
      return fail(value);
    int buffer = bufferOf(gather.getX());
    if (buffer < 0)
      return fail(gather.getX());
    Shape x = shapeOf(gather.getX());
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
    auto split = splitAxes(map, shapeOf(value), sizes);
    if (!split)
      return fail(value);
    int at = index(split->groups[pad.getAxis()].at);
    int64_t before = pad.getBefore(), size = shapeOf(pad.getX())[pad.getAxis()];
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
    auto split = splitAxes(map, shapeOf(value), sizes);
    if (!split)
      return fail(value);
    int at = index(split->groups[concat.getAxis()].at);
    int result = -1;
    int64_t end = shapeOf(value)[concat.getAxis()];
    for (size_t i = concat->getNumOperands(); i-- > 0;) {
      Value part = concat->getOperand(i);
      int64_t begin = end - shapeOf(part)[concat.getAxis()];
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
  Shape shape = shapeOf(operand);
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
  Shape shape = shapeOf(operand);
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
  LinearIndex flat = flatIndex(map, shapeOf(value), sizes.size());
  if (length != domain.cols || (domain.cols > 1 && flat.dependsOn(sizes.size() - 1)))
    return fail(value);
  auto split = splitAxes(map, shapeOf(value), sizes);
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

// ---- Stores ------------------------------------------------------------------------------------------------------------
bool LoopTracer::store(Value value, int buffer, bool accumulate) {
  Operation *op = value.getDefiningOp();
  if (bufferOf(value) < 0) {
    if (auto scatter = dyn_cast_or_null<nn::ScatterAddOp>(op))
      return storeScatter(scatter, buffer);
    if (auto reduce = dyn_cast_or_null<nn::ReduceOp>(op)) {
      ReductionAxes split = splitReduction(reduce.getX(), reduce.getAxes());
      if (!split.chain.empty() || split.run.empty())
        return storeReduction(op, value, buffer, accumulate);
    }
  }
  if (!domain.chain.empty())
    return fail(value) >= 0;
  // Index of the stored element: axes are the outer dims, and the columns if the value has one axis more.
  Shape shape = shapeOf(value);
  size_t dims = sizes.size();
  std::vector<LinearIndex> axes;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    size_t dim = axis < domain.outer.size() ? axis : dims - 1;
    if (axis > domain.outer.size() || shape[axis] != sizes[dim])
      return fail(value) >= 0;
    axes.push_back(LinearIndex::dim(dims, dim));
  }
  if (shape.size() < domain.outer.size())
    return fail(value) >= 0;
  IndexMap map = mapOfAxes(axes);
  int node = trace(value, map);
  if (node < 0)
    return false;
  LinearIndex flat = flatIndex(map, shape, dims);
  bool full = shape.size() > domain.outer.size() && domain.cols > 1;
  if (full && (levels[node] == Level::Outer))
    node = spread(node, true, false);
  spec.stores.push_back({node, viewOf(buffer, value, flat)});
  return true;
}

bool LoopTracer::storeReduction(Operation *op, Value value, int buffer, bool accumulate) {
  auto reduce = cast<nn::ReduceOp>(op);
  Value operand = reduce.getX();
  Shape shape = shapeOf(operand);
  ReductionAxes split = splitReduction(operand, reduce.getAxes());
  if (!(domainOf(value) == domain))
    return fail(value) >= 0;
  size_t dims = sizes.size();
  // Operand axes in terms of the domain; the run is one group with the columns as flat index.
  std::vector<AxisGroup> groups;
  size_t dim = 0;
  for (int64_t axis : split.outer)
    groups.push_back({size_t(axis), size_t(axis) + 1, LinearIndex::dim(dims, dim++)});
  for (int64_t axis : split.chain)
    groups.push_back({size_t(axis), size_t(axis) + 1, LinearIndex::dim(dims, dim++)});
  if (!split.run.empty())
    groups.push_back({size_t(split.run.front()), size_t(split.run.back()) + 1, LinearIndex::dim(dims, dims - 1)});
  if (split.column >= 0)
    groups.push_back({size_t(split.column), size_t(split.column) + 1, LinearIndex::dim(dims, dims - 1)});
  llvm::sort(groups, [](const AxisGroup &a, const AxisGroup &b) { return a.first < b.first; });
  IndexMap inner;
  inner.groups = groups;
  int node = trace(operand, inner);
  if (node < 0)
    return false;
  if (!split.run.empty()) {
    if (levels[node] == Level::Outer || levels[node] == Level::Row)
      node = spread(node, true, true);
    LoopNode sum;
    sum.op = LoopOp::ReduceCols;
    sum.elem = elemOf(value);
    sum.reduce = reduceOf(reduce.getReduction());
    sum.args = {node};
    node = add(sum);
  }
  if (!split.chain.empty()) {
    if (levels[node] == Level::Outer || levels[node] == Level::Column)
      node = spread(node, split.column >= 0 && domain.cols > 1, true);
    LoopNode chain;
    chain.op = LoopOp::ReduceChain;
    chain.elem = elemOf(value);
    chain.reduce = reduceOf(reduce.getReduction());
    chain.args = {node};
    // Kept axes in the result's order, which is the operand's.
    std::vector<int64_t> kept = split.outer;
    if (split.column >= 0)
      kept.push_back(split.column);
    Shape result = shapeOf(value);
    LinearIndex flat = LinearIndex::zero(dims);
    int64_t stride = 1;
    for (size_t i = kept.size(); i-- > 0;) {
      flat.coef[kept[i] == split.column ? dims - 1 : i] += stride;
      stride *= shape[kept[i]];
    }
    chain.view = viewOf(buffer, value, flat);
    chain.hasInit = accumulate;
    node = add(chain);
    spec.stores.push_back({node, viewOf(buffer, value, flat)});
  } else {
    LinearIndex flat = LinearIndex::zero(dims);
    int64_t stride = 1;
    for (size_t i = split.outer.size(); i-- > 0;) {
      flat.coef[i] += stride;
      stride *= shape[split.outer[i]];
    }
    spec.stores.push_back({node, viewOf(buffer, value, flat)});
  }
  computed.insert(op);
  return true;
}

bool LoopTracer::storeScatter(Operation *op, int buffer) {
  auto scatter = cast<nn::ScatterAddOp>(op);
  Value updates = scatter.getUpdates();
  Shape shape = shapeOf(updates), result = shapeOf(scatter.getResult());
  if (!(domainOf(scatter.getResult()) == domain) || spec.addAt.present || !spec.stores.empty())
    return fail(scatter.getResult()) >= 0;
  size_t dims = sizes.size();
  int batch = batchAxisOf(updates);
  ArrayRef<int64_t> labels = scatter.getXLabels();
  auto plain = [&](int64_t label) { return llvm::is_contained(labels, label); };
  int64_t column = !labels.empty() && labels.back() >= 0 ? labels.back() : -1;
  // Labels to dims, as scatterDomain lays them out.
  std::vector<LinearIndex> at(shape.size(), LinearIndex::zero(dims));
  size_t outer = 0, chain = domain.outer.size();
  if (batch >= 0 && !plain(batch))
    at[batch] = LinearIndex::dim(dims, chain++);
  for (int64_t label = 0; label < int64_t(shape.size()); ++label) {
    if (label == column)
      at[label] = LinearIndex::dim(dims, dims - 1);
    else if (!(label == batch && !plain(label)))
      at[label] = LinearIndex::dim(dims, plain(label) ? outer++ : chain++);
  }
  int node = trace(updates, mapOfAxes(at));
  if (node < 0)
    return false;
  LinearIndex flat = LinearIndex::zero(dims);
  int64_t stride = 1;
  spec.addAt.present = true;
  spec.addAt.node = node;
  for (size_t axis = result.size(); axis-- > 0; stride *= result[axis]) {
    if (labels[axis] >= 0) {
      flat.addScaled(at[labels[axis]], stride);
    } else {
      std::vector<LinearIndex> axes;
      for (int64_t l : cast<DenseI64ArrayAttr>(scatter.getIndexLabels()[-labels[axis] - 1]).asArrayRef())
        axes.push_back(at[l]);
      int index = trace(scatter.getIndices()[-labels[axis] - 1], mapOfAxes(axes));
      if (index < 0)
        return false;
      spec.addAt.args.push_back(index);
      spec.addAt.atStrides.push_back(stride);
    }
  }
  spec.addAt.view = viewOf(buffer, scatter.getResult(), flat);
  computed.insert(op);
  return true;
}

} // namespace cinch::analysis
