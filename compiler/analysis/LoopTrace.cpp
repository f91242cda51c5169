// LoopTrace.cpp: the walk from stored values back to memory.
#include "compiler/analysis/LoopTrace.h"

#include "dialects/nn/NN.h"

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

Level join(Level a, Level b) {
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

int LoopTracer::select(Elem elem, int condition, int yes, int no) {
  LoopNode node;
  node.op = LoopOp::Select;
  node.elem = elem;
  node.args = {condition, yes, no};
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

// A number of the step: which it is, of how many, or a value of the run.
int LoopTracer::ofStep(LoopOp op, double which) {
  LoopNode node;
  node.op = op;
  node.elem = Elem::F64;
  node.number = which;
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
  return select(spec.nodes[node].elem, always, node, node);
}

View LoopTracer::viewOf(int buffer, Value value, const LinearIndex &at) const {
  View view;
  view.buffer = buffer;
  view.elem = elemOf(value);
  view.offset = at.offset;
  view.strides = at.coef;
  return view;
}

int LoopTracer::load(int buffer, Value value, const LinearIndex &at) {
  LoopNode node;
  node.op = LoopOp::Load;
  node.elem = elemOf(value);
  node.view = viewOf(buffer, value, at);
  node.level = levelOf(at.coef);
  return add(node);
}

int LoopTracer::trace(Value value, const IndexMap &map) {
  const int buffer = bufferOf(value);
  LinearIndex flat = flatIndex(map, buffer >= 0 ? shapeInMemory(value, extent) : shapeOf(value, extent), sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == 1)
      flat.coef[d] = 0;
  std::vector<int64_t> where = flat.coef;
  where.push_back(flat.offset);
  auto key = std::make_pair(value.getAsOpaquePointer(), std::move(where));
  if (auto found = memo.find(key); found != memo.end())
    return found->second;
  int node = -1;
  if (buffer >= 0) {
    node = load(buffer, value, flat);
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

} // namespace cinch::analysis
