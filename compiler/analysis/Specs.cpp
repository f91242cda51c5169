// Specs.cpp: products and attention as kernel specs, and the keys under which equal kernels are shared.
#include "compiler/analysis/Specs.h"

#include "dialects/nn/Grain.h"

#include "llvm/ADT/bit.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

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

  bool locate(Value value, const std::vector<LinearIndex> &axes, View &view, bool unitLast) {
    auto found = analysis::locate(
        value, mapOfAxes(axes), domain, [&](Value v) { return bufferOf(v) >= 0; }, blocker, passed);
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

bool contractSpec(nn::ContractOp op, llvm::function_ref<int(Value)> bufferOf, bool accumulate, ContractSpec &spec,
                  Value &blocker, llvm::SetVector<Operation *> *passed, int64_t examples, int64_t positions) {
  ArrayRef<int64_t> lhs = op.getLhsLabels(), rhs = op.getRhsLabels();
  int64_t rank = nn::tensorOf(op.getResult()).getRank(), labels = rank;
  for (int64_t label : lhs)
    labels = std::max(labels, label + 1);
  for (int64_t label : rhs)
    labels = std::max(labels, label + 1);
  Shape sizes(labels, 1);
  for (auto [axis, label] : llvm::enumerate(lhs))
    sizes[label] = shapeOf(op.getLhs())[axis];
  for (auto [axis, label] : llvm::enumerate(rhs))
    sizes[label] = shapeOf(op.getRhs())[axis];
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
  Locator locator{sizes, bufferOf, blocker, passed};
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
  if (examples > 0)
    for (auto [value, list] : {std::pair{op.getLhs(), lhs}, std::pair{op.getRhs(), rhs}})
      if (int axis = batchAxisOf(value); axis >= 0) {
        sizes[list[axis]] = examples;
        if (positions > 0)
          sizes[list[axis + 1]] = positions;
      }
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
  spec.elem = elemOf(op.getResult());
  spec.batch = sizesOf(batch);
  spec.m = sizesOf(m);
  spec.n = sizesOf(n);
  spec.k = sizesOf(k);
  spec.a = pick(aView, {&batch, &m, &k});
  spec.b = pick(bView, {&batch, &k, &n});
  spec.c = pick(cView, {&batch, &m, &n});
  spec.accumulate = accumulate;
  spec.grain = accumulate ? nn::grainOf(op) : 0;
  return true;
}

// Attention's operands over (lead.., head, position, feature).
template <typename Op>
static bool attendOperands(Op op, llvm::function_ref<int(Value)> bufferOf, Value o, Value lse, AttendSpec &spec,
                           Value &blocker, llvm::SetVector<Operation *> *passed) {
  Shape q = shapeOf(op.getQ()), k = shapeOf(op.getK()), v = shapeOf(op.getV());
  size_t leads = q.size() - 3;
  spec.elem = elemOf(op.getQ());
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
  auto place = [&](Value value, View &view, bool unitLast) {
    Locator locator{shapeOf(value), bufferOf, blocker, passed};
    return locator.locate(value, identity(shapeOf(value).size()), view, unitLast);
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
                llvm::SetVector<Operation *> *passed) {
  return attendOperands(op, bufferOf, op.getO(), op.getLse(), spec, blocker, passed);
}

bool attendGradSpec(nn::AttendGradOp op, llvm::function_ref<int(Value)> bufferOf, AttendGradSpec &spec, Value &blocker,
                    llvm::SetVector<Operation *> *passed) {
  if (!attendOperands(op, bufferOf, op.getO(), op.getLse(), spec.forward, blocker, passed))
    return false;
  auto place = [&](Value value, View &view, bool unitLast) {
    Locator locator{shapeOf(value), bufferOf, blocker, passed};
    return locator.locate(value, identity(shapeOf(value).size()), view, unitLast);
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

// ---- Keys --------------------------------------------------------------------------------------------------------------
namespace {
struct Key {
  std::string text;
  llvm::raw_string_ostream out{text};
  Key &operator<<(int64_t number) {
    out << number << ' ';
    return *this;
  }
  Key &operator<<(const std::vector<int64_t> &list) {
    out << '[';
    for (int64_t number : list)
      out << number << ' ';
    out << ']';
    return *this;
  }
  Key &number(double value) {
    out << llvm::format_hex(llvm::bit_cast<uint64_t>(value), 18) << ' ';
    return *this;
  }
  Key &operator<<(const View &view) { return *this << view.buffer << int64_t(view.elem) << view.offset << view.strides; }
};
} // namespace

std::string keyOf(const ContractSpec &spec) {
  Key key;
  key.out << "contract ";
  key << int64_t(spec.elem) << spec.batch << spec.m << spec.n << spec.k << spec.a << spec.b << spec.c << spec.accumulate << spec.grain;
  return key.text;
}

std::string keyOf(const LoopSpec &spec) {
  Key key;
  key.out << "loop ";
  key << spec.outer << spec.chain << spec.cols << spec.grain;
  for (const LoopNode &node : spec.nodes) {
    key << int64_t(node.op) << int64_t(node.elem) << std::vector<int64_t>(node.args.begin(), node.args.end()) << node.view
        << node.atStrides << int64_t(node.level) << int64_t(node.reduce) << node.hasInit << int64_t(node.key) << node.keyWord
        << node.usesExample << node.exampleStrides << node.positionStride;
    key.number(node.number);
  }
  for (const LoopStore &store : spec.stores)
    key << store.node << store.view;
  if (spec.addAt.present)
    key << spec.addAt.node << spec.addAt.view << std::vector<int64_t>(spec.addAt.args.begin(), spec.addAt.args.end())
        << spec.addAt.atStrides << spec.addAt.atSizes;
  return key.text;
}

static void describe(Key &key, const AttendSpec &spec) {
  key << int64_t(spec.elem) << spec.lead << spec.A << spec.G << spec.T << spec.S << spec.K << spec.E << spec.causal
      << int64_t(spec.key) << spec.keyWord << spec.batchDim << spec.q << spec.k << spec.v << spec.o << spec.lse << spec.hasKeys
      << spec.hasBias << spec.keys << spec.bias;
  key.number(spec.scale).number(spec.dropout);
}

std::string keyOf(const AttendSpec &spec) {
  Key key;
  key.out << "attend ";
  describe(key, spec);
  return key.text;
}

std::string keyOf(const AttendGradSpec &spec) {
  Key key;
  key.out << "attend_grad ";
  describe(key, spec.forward);
  key << spec.dout << spec.dq << spec.dk << spec.dv << spec.wantsBiasGrad << spec.dbias << spec.grain;
  return key.text;
}

} // namespace cinch::analysis
