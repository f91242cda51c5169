// LoopStore.cpp: the stores of a loop kernel: plain values, reductions with a chain, sums at computed places.
#include "compiler/analysis/LoopTrace.h"

#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {

// ---- Stores ------------------------------------------------------------------------------------------------------------
bool LoopTracer::store(Value value, int buffer, bool accumulate) {
  Operation *op = value.getDefiningOp();
  if (bufferOf(value) < 0) {
    if (auto scatter = dyn_cast_or_null<nn::ScatterAddOp>(op))
      return storeScatter(scatter, buffer, accumulate);
    if (isa_and_nonnull<nn::GroupMeanOp>(op))
      return storeGroupMean(op, buffer);
    if (auto reduce = dyn_cast_or_null<nn::ReduceOp>(op)) {
      ReductionAxes split = splitReduction(reduce.getX(), reduce.getAxes());
      if (!split.chain.empty() || split.run.empty())
        return storeReduction(op, value, buffer, accumulate);
    }
  }
  if (!domain.chain.empty())
    return fail(value) >= 0; // false
  // Index of the stored element: axes are the outer dims, and the columns if the value has one axis more.
  Shape shape = shapeOf(value, extent);
  size_t dims = sizes.size();
  std::vector<LinearIndex> axes;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    size_t dim = axis < domain.outer.size() ? axis : dims - 1;
    if (axis > domain.outer.size() || shape[axis] != sizes[dim])
      return fail(value) >= 0; // false
    axes.push_back(LinearIndex::dim(dims, dim));
    findExamples(value, int64_t(axis), int(dim));
  }
  if (shape.size() < domain.outer.size())
    return fail(value) >= 0; // false
  IndexMap map = mapOfAxes(axes);
  int node = trace(value, map);
  if (node < 0)
    return false;
  LinearIndex flat = flatIndex(map, shapeInMemory(value, extent), dims);
  bool full = shape.size() > domain.outer.size() && domain.cols > 1;
  if (full && (levels[node] == Level::Outer))
    node = spread(node, true, false);
  spec.stores.push_back({node, viewOf(buffer, value, flat)});
  return true;
}

bool readsWhereItWrites(const LoopSpec &spec, int read, int written) {
  Shape sizes = LoopDomain{spec.outer, spec.chain, spec.cols}.sizes();
  auto samePlaces = [&](const View &a, const View &b) { // the stride of a single step means nothing
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] > 1 && a.strides[d] != b.strides[d])
        return false;
    return a.offset == b.offset;
  };
  const View *target = nullptr;
  for (const LoopStore &store : spec.stores)
    if (store.view.buffer == written && store.copies == 1)
      target = &store.view;
  if (!target)
    return false;
  return llvm::all_of(spec.nodes, [&](const LoopNode &node) {
    bool loads = node.op == LoopOp::Load || node.op == LoopOp::LoadAt;
    return !loads || node.view.buffer != read || (node.op == LoopOp::Load && samePlaces(node.view, *target));
  });
}

// The blocks of a chain whose slowest dim counts examples: `grain` of these, or else `together` rows of one. All chains of a kernel have the same
// blocks, and where rows of an example are left out (Extent), these may only be whole blocks.
bool LoopTracer::setBlocks(int64_t grain, int64_t together) {
  int64_t perExample = 1;
  for (size_t dim = 1; dim < domain.chain.size(); ++dim)
    perExample *= domain.chain[dim];
  int64_t blockRows = grain > 0 ? grain * perExample : together;
  bool chains = llvm::any_of(spec.nodes, [](const LoopNode &node) { return node.op == LoopOp::ReduceChain; });
  if ((grain == 0 && together > 0 && perExample % together != 0) || (chains && spec.blockRows != blockRows))
    return false;
  spec.blockRows = blockRows;
  return true;
}

bool LoopTracer::storeReduction(Operation *op, Value value, int buffer, bool accumulate) {
  auto reduce = cast<nn::ReduceOp>(op);
  Value operand = reduce.getX();
  Shape shape = shapeOf(operand, extent);
  ReductionAxes split = splitReduction(operand, reduce.getAxes());
  if (!(domainOf(value, extent) == domain))
    return fail(value) >= 0; // false
  size_t dims = sizes.size();
  // Operand axes in terms of the domain; the run is one group with the columns as flat index.
  std::vector<AxisGroup> groups;
  size_t dim = 0;
  for (const std::vector<int64_t> &axes : {split.outer, split.chain})
    for (int64_t axis : axes) {
      findExamples(operand, axis, int(dim));
      groups.push_back({size_t(axis), size_t(axis) + 1, LinearIndex::dim(dims, dim++)});
    }
  if (!split.run.empty())
    groups.push_back({size_t(split.run.front()), size_t(split.run.back()) + 1, LinearIndex::dim(dims, dims - 1)});
  if (split.column >= 0) {
    findExamples(operand, split.column, int(dims) - 1);
    groups.push_back({size_t(split.column), size_t(split.column) + 1, LinearIndex::dim(dims, dims - 1)});
  }
  llvm::sort(groups, [](const AxisGroup &a, const AxisGroup &b) { return a.first < b.first; });
  IndexMap inner;
  inner.groups = groups;
  int node = trace(operand, inner);
  if (node < 0)
    return false;
  size_t firstNode = spec.nodes.size();
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
    Shape result = shapeOf(value, extent);
    LinearIndex flat = LinearIndex::zero(dims);
    int64_t stride = 1;
    for (size_t i = kept.size(); i-- > 0;) {
      flat.coef[kept[i] == split.column ? dims - 1 : i] += stride;
      stride *= shape[kept[i]];
    }
    chain.view = viewOf(buffer, value, flat);
    chain.hasInit = accumulate;
    // A grain cuts sums alone: a largest number is the same however it is found, and a product goes on from one example to the next.
    if (!setBlocks(accumulate && chain.reduce == LoopReduce::Sum ? nn::grainOver(op, operand) : 0, nn::rowsTogether(op)))
      return fail(value) >= 0; // false
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
  claim(firstNode, op);
  return true;
}

// The mean of a group is found once and written for each of its examples.
bool LoopTracer::storeGroupMean(Operation *op, int buffer) {
  auto mean = cast<nn::GroupMeanOp>(op);
  int64_t group = mean.getGroup(), batch = batchAxisOf(mean.getX()), stride = 1;
  Shape shape = shapeOf(mean.getResult(), extent);
  if (!(domainOf(mean.getResult(), extent) == domain))
    return fail(mean.getResult()) >= 0; // false
  size_t dims = sizes.size();
  std::vector<LinearIndex> axes(shape.size());
  LinearIndex flat = LinearIndex::zero(dims);
  bool columns = batch + 1 < int64_t(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    bool isBatch = int64_t(axis) == batch;
    axes[axis] = LinearIndex::zero(dims);
    axes[axis].addScaled(LinearIndex::dim(dims, columns && axis + 1 == shape.size() ? dims - 1 : axis), isBatch ? group : 1);
    flat.addScaled(axes[axis], stride);
    if (isBatch)
      axes[axis].addScaled(LinearIndex::dim(dims, domain.outer.size()), 1); // the example in its group
  }
  batchDim = int(batch);
  examplesOfGroup = group;
  int node = trace(mean.getX(), mapOfAxes(axes));
  if (node < 0)
    return false;
  size_t firstNode = spec.nodes.size();
  if (levels[node] == Level::Outer || levels[node] == Level::Column)
    node = spread(node, columns && domain.cols > 1, true);
  LoopNode sum;
  sum.op = LoopOp::ReduceChain;
  sum.elem = elemOf(mean.getResult());
  sum.args = {node};
  node = add(sum);
  int count = constant(elemOf(mean.getResult()), double(group));
  node = binary(LoopOp::Div, elemOf(mean.getResult()), node, count);
  int64_t example = 1;
  for (size_t axis = batch + 1; axis < shape.size(); ++axis)
    example *= shape[axis];
  spec.stores.push_back({node, viewOf(buffer, mean.getResult(), flat), group, example});
  computed.insert(op);
  claim(firstNode, op);
  return true;
}

bool LoopTracer::storeScatter(Operation *op, int buffer, bool accumulate) {
  auto scatter = cast<nn::ScatterAddOp>(op);
  Value updates = scatter.getUpdates();
  Shape shape = shapeOf(updates, extent), result = shapeOf(scatter.getResult(), extent);
  if (!(domainOf(scatter.getResult(), extent) == domain) || spec.addAt.present || !spec.stores.empty())
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
  for (int64_t label = 0; label < int64_t(shape.size()); ++label)
    findExamples(updates, label, int(llvm::find(at[label].coef, 1) - at[label].coef.begin()));
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
      spec.addAt.atSizes.push_back(result[axis]);
    }
  }
  spec.addAt.view = viewOf(buffer, scatter.getResult(), flat);
  if (!setBlocks(accumulate ? nn::grainOver(op, updates) : 0, 0))
    return fail(scatter.getResult()) >= 0;
  computed.insert(op);
  return true;
}

} // namespace cinch::analysis
