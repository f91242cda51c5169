// Specs.cpp: products and attention as kernel specs.
#include "compiler/analysis/Specs.h"

#include "dialects/nn/Grain.h"
#include "dialects/nn/Shards.h"
#include "dialects/nn/TensorCores.h"

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {
namespace {

// Finds where a value lies and describes it over the domain.
struct Locator {
  Shape domain;
  llvm::function_ref<int(Value)> bufferOf;
  Value &blocker;
  llvm::SetVector<Operation *> *passed;
  const Extent &extent;

  bool locate(Value value, const std::vector<LinearIndex> &axes, View &view, bool unitLast) {
    auto found = analysis::locate(
        value, mapOfAxes(axes), domain, [&](Value v) { return bufferOf(v) >= 0; }, blocker, passed, extent);
    if (!found)
      return false;
    view.buffer = bufferOf(found->first);
    view.elem = elemOf(value);
    view.offset = found->second.offset;
    view.strides = found->second.coef;
    for (size_t d = 0; d < domain.size(); ++d)
      if (domain[d] == 1)
        view.strides[d] = 0;
    if (unitLast && domain.back() > 1 && view.strides.back() != 1) {
      blocker = value;
      return false;
    }
    return true;
  }
};

std::vector<LinearIndex> identity(size_t rank) {
  std::vector<LinearIndex> axes;
  for (size_t d = 0; d < rank; ++d)
    axes.push_back(LinearIndex::dim(rank, d));
  return axes;
}

} // namespace

bool locateAxes(Value value, llvm::function_ref<int(Value)> bufferOf, bool unitLast, View &view, Value &blocker,
                llvm::SetVector<Operation *> *passed, const Extent &extent) {
  Shape shape = shapeOf(value, extent);
  Locator locator{shape, bufferOf, blocker, passed, extent};
  return locator.locate(value, identity(shape.size()), view, unitLast);
}

bool contractSpec(nn::ContractOp op, llvm::function_ref<int(Value)> bufferOf, bool accumulate, ContractSpec &spec,
                  Value &blocker, llvm::SetVector<Operation *> *passed, const Extent &extent) {
  ArrayRef<int64_t> lhs = op.getLhsLabels(), rhs = op.getRhsLabels();
  int64_t rank = nn::tensorOf(op.getResult()).getRank(), labels = rank;
  for (int64_t label : lhs)
    labels = std::max(labels, label + 1);
  for (int64_t label : rhs)
    labels = std::max(labels, label + 1);
  Shape sizes(labels, 1);
  for (auto [axis, label] : llvm::enumerate(lhs))
    sizes[label] = shapeOf(op.getLhs(), extent)[axis];
  for (auto [axis, label] : llvm::enumerate(rhs))
    sizes[label] = shapeOf(op.getRhs(), extent)[axis];
  auto in = [](ArrayRef<int64_t> list, int64_t label) { return llvm::is_contained(list, label); };

  Value a = op.getLhs(), b = op.getRhs();
  ArrayRef<int64_t> aLabels = lhs, bLabels = rhs;
  // Columns of C are its fastest axis that one operand alone has.
  for (int64_t label = rank - 1; label >= 0; --label) {
    bool inLhs = in(lhs, label), inRhs = in(rhs, label);
    if (inLhs == inRhs)
      continue;
    if (inLhs) {
      std::swap(a, b);
      std::swap(aLabels, bLabels);
    }
    break;
  }
  std::vector<int64_t> batch, m, n, k;
  for (int64_t label = 0; label < labels; ++label) {
    bool inA = in(aLabels, label), inB = in(bLabels, label);
    (label >= rank ? k : inA && inB ? batch : inA ? m : n).push_back(label);
  }
  Locator locator{sizes, bufferOf, blocker, passed, extent};
  auto axesOf = [&](ArrayRef<int64_t> list) {
    std::vector<LinearIndex> axes;
    for (int64_t label : list)
      axes.push_back(LinearIndex::dim(labels, label));
    return axes;
  };
  View aView, bView, cView;
  std::vector<int64_t> cLabels;
  for (int64_t label = 0; label < rank; ++label)
    cLabels.push_back(label);
  if (!locator.locate(a, axesOf(aLabels), aView, false) || !locator.locate(b, axesOf(bLabels), bView, false) ||
      !locator.locate(op.getResult(), axesOf(cLabels), cView, false))
    return false;
  auto pick = [&](const View &from, std::initializer_list<const std::vector<int64_t> *> groups) {
    View view = from;
    view.strides.clear();
    for (const std::vector<int64_t> *group : groups)
      for (int64_t label : *group)
        view.strides.push_back(from.strides[label]);
    return view;
  };
  auto sizesOf = [&](const std::vector<int64_t> &group) {
    std::vector<int64_t> out;
    for (int64_t label : group)
      out.push_back(sizes[label]);
    return out;
  };
  spec.pairs = op->hasAttr(nn::kBF16Attr) || elemOf(a) == Elem::BF16 || elemOf(b) == Elem::BF16;
  spec.elem = spec.pairs ? Elem::F32 : elemOf(op.getResult());
  // The slowest summed axis is the batch if any is: blocks start anew at each example, or at each grain. A sum over examples alone has none in tf32.
  bool overBatch = !k.empty() && batchAxisOf(a) >= 0 && aLabels[batchAxisOf(a)] == k.front();
  int64_t anew = overBatch && !(accumulate && nn::grainOf(op) > 0);
  spec.tf32 = op->hasAttr(nn::kTF32Attr) && int64_t(k.size()) > anew;
  spec.anew = spec.pairs || spec.tf32 ? anew : 0;
  spec.batch = sizesOf(batch);
  spec.m = sizesOf(m);
  spec.n = sizesOf(n);
  spec.k = sizesOf(k);
  spec.a = pick(aView, {&batch, &m, &k});
  spec.b = pick(bView, {&batch, &k, &n});
  spec.c = pick(cView, {&batch, &m, &n});
  spec.accumulate = accumulate;
  spec.grain = accumulate ? nn::grainOver(op, op.getLhs()) : 0;
  return true;
}

// Attention's operands over (lead.., head, position, feature).
template <typename Op>
static bool attendOperands(Op op, llvm::function_ref<int(Value)> bufferOf, Value o, Value lse, AttendSpec &spec,
                           Value &blocker, llvm::SetVector<Operation *> *passed, const Extent &extent) {
  Shape q = shapeOf(op.getQ(), extent), k = shapeOf(op.getK(), extent), v = shapeOf(op.getV(), extent);
  size_t leads = q.size() - 3;
  spec.elem = elemOf(op.getQ()) == Elem::BF16 ? Elem::F32 : elemOf(op.getQ());
  spec.lead = Shape(q.begin(), q.begin() + leads);
  spec.A = q[leads];
  spec.T = q[leads + 1];
  spec.K = q[leads + 2];
  spec.G = k[leads];
  spec.S = k[leads + 1];
  spec.E = v[leads + 2];
  spec.causal = op.getCausal();
  spec.scale = op.getScale().convertToDouble();
  spec.dropout = op.getDropout().convertToDouble();
  spec.key = uint64_t(op.getKey());
  spec.batchDim = batchAxisOf(op.getQ());
  spec.pairs = op->hasAttr(nn::kBF16Attr);
  if (auto others = op->template getAttrOfType<DenseI64ArrayAttr>(nn::kOtherHeadsAttr))
    spec.headsBefore = others[0], spec.headsBehind = others[1];
  auto place = [&](Value value, View &view, bool unitLast) {
    return locateAxes(value, bufferOf, unitLast, view, blocker, passed, extent);
  };
  if (!place(op.getQ(), spec.q, true) || !place(op.getK(), spec.k, true) || !place(op.getV(), spec.v, true) ||
      !place(o, spec.o, true) || !place(lse, spec.lse, false))
    return false;
  if (op.getKeys()) {
    spec.hasKeys = true;
    if (!place(op.getKeys(), spec.keys, false))
      return false;
  }
  if (op.getBias()) {
    spec.hasBias = true;
    if (!place(op.getBias(), spec.bias, false))
      return false;
  }
  return true;
}

bool attendSpec(nn::AttendOp op, llvm::function_ref<int(Value)> bufferOf, AttendSpec &spec, Value &blocker,
                llvm::SetVector<Operation *> *passed, const Extent &extent) {
  return attendOperands(op, bufferOf, op.getO(), op.getLse(), spec, blocker, passed, extent);
}

bool attendGradSpec(nn::AttendGradOp op, llvm::function_ref<int(Value)> bufferOf, AttendGradSpec &spec, Value &blocker,
                    llvm::SetVector<Operation *> *passed, const Extent &extent) {
  if (!attendOperands(op, bufferOf, op.getO(), op.getLse(), spec.forward, blocker, passed, extent))
    return false;
  auto place = [&](Value value, View &view, bool unitLast) {
    return locateAxes(value, bufferOf, unitLast, view, blocker, passed, extent);
  };
  if (!place(op.getDout(), spec.dout, true) || !place(op.getDq(), spec.dq, true) || !place(op.getDk(), spec.dk, true) ||
      !place(op.getDv(), spec.dv, true))
    return false;
  if (op.getDbias()) {
    spec.wantsBiasGrad = true;
    spec.grain = spec.forward.batchDim >= 0 ? nn::grainOf(op) : 0;
    if (!place(op.getDbias(), spec.dbias, false))
      return false;
  }
  return true;
}

} // namespace cinch::analysis
