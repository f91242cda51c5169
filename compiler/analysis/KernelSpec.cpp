// KernelSpec.cpp: the kinds of kernels: which op each serves, how its spec is traced, and what is asked of it.
#include "compiler/analysis/KernelSpec.h"

#include "compiler/analysis/RowWise.h"
#include "compiler/analysis/Specs.h"
#include "compiler/kernels/ContractDevice.h"
#include "compiler/kernels/ElemFacts.h"

#include "llvm/ADT/bit.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {

// ---- Kinds -------------------------------------------------------------------------------------------------------------
const KernelTraits &traitsOf(KernelKind kind) {
  static const KernelTraits traits[] = {
      {solve::Kernel::Loop, &MachineRates::loop, true},
      {solve::Kernel::Product, &MachineRates::product, true},
      {solve::Kernel::Attention, &MachineRates::attend, false},
      {solve::Kernel::AttentionGrad, &MachineRates::attendGrad, false},
      {solve::Kernel::Product, &MachineRates::product, true},
      {solve::Kernel::Loop, &MachineRates::loop, true},
      {solve::Kernel::Nothing, &MachineRates::loop, false},
  };
  return traits[size_t(kind)];
}

KernelKind kindOf(Operation *op) {
  return isa<nn::ContractOp>(op)     ? KernelKind::Product
         : isa<nn::AttendOp>(op)     ? KernelKind::Attention
         : isa<nn::AttendGradOp>(op) ? KernelKind::AttentionGrad
         : isa<nn::ConvOp>(op)       ? KernelKind::Convolution
         : isPool(op)                ? KernelKind::Pool
         : isa<nn::ScanOp, plan::LoopOp>(op) ? KernelKind::Scan
                                             : KernelKind::Loop;
}

static Operation *rootOf(plan::KernelOp kernel) {
  return kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp();
}

KernelKind kindOf(plan::KernelOp kernel) { return kindOf(rootOf(kernel)); }

plan::LoopOp loopOf(plan::KernelOp kernel) { return dyn_cast<plan::LoopOp>(rootOf(kernel)); }

// ---- Tracing -----------------------------------------------------------------------------------------------------------
namespace {

struct Tracer {
  plan::KernelOp kernel;
  const Extent &extent;
  Operation *root;
  ValueRange results;
  int inputs;
  KernelSpec &out;

  Tracer(plan::KernelOp kernel, const Extent &extent, KernelSpec &out)
      : kernel(kernel), extent(extent), root(rootOf(kernel)),
        results(kernel.getBody().front().getTerminator()->getOperands()), inputs(int(kernel.getNumOperands())), out(out) {}

  // Buffers are the inputs. In a block of positions, positions cut out of something longer lie where the block begins in it.
  int inputOf(Value value) const {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return int(argument.getArgNumber());
    if (!extent.cutsPositions() || sliceOfPositions(value.getDefiningOp(), {extent.of, {}}) < 0)
      return -1;
    auto argument = dyn_cast<BlockArgument>(value.getDefiningOp()->getOperand(0));
    return argument ? int(argument.getArgNumber()) : -1;
  }
  // And, for the kinds whose views name them, the outputs.
  int bufferOf(Value value) const {
    if (int input = inputOf(value); input >= 0)
      return input;
    for (auto [i, result] : llvm::enumerate(results))
      if (result == value)
        return inputs + int(i);
    return -1;
  }

  bool accumulates(size_t result) { return kernel.getAccumulates() && (*kernel.getAccumulates())[result]; }

  bool trace(LoopSpec &spec) {
    Value anchor = results.front();
    if (auto number = kernel.getDomain())
      anchor = std::next(kernel.getBody().front().begin(), int64_t(*number))->getResult(0);
    LoopTracer tracer(domainOf(anchor, extent), [&](Value value) { return inputOf(value); }, extent);
    for (auto [i, value] : llvm::enumerate(results))
      if (!tracer.store(value, inputs + int(i), accumulates(i)))
        return false;
    spec = std::move(tracer.spec);
    out.origins = std::move(tracer.origins);
    out.batchDim = tracer.batchDim, out.positionDim = tracer.positionDim;
    out.examplesOfGroup = tracer.examplesOfGroup;
    return true;
  }
  bool trace(ContractSpec &spec) {
    Value blocker;
    return contractSpec(cast<nn::ContractOp>(root), [&](Value v) { return bufferOf(v); }, accumulates(0), spec, blocker,
                        nullptr, extent);
  }
  bool trace(AttendSpec &spec) {
    Value blocker;
    return attendSpec(cast<nn::AttendOp>(root), [&](Value v) { return bufferOf(v); }, spec, blocker, nullptr, extent);
  }
  bool trace(AttendGradSpec &spec) {
    Value blocker;
    return attendGradSpec(cast<nn::AttendGradOp>(root), [&](Value v) { return bufferOf(v); }, spec, blocker, nullptr,
                          extent);
  }
  bool trace(ConvSpec &spec) {
    Value blocker;
    return convSpec(cast<nn::ConvOp>(root), [&](Value v) { return bufferOf(v); }, accumulates(0), spec, blocker, nullptr,
                    extent);
  }
  bool trace(PoolSpec &spec) {
    Value blocker;
    return poolSpec(root, [&](Value v) { return bufferOf(v); }, spec, blocker, nullptr, extent);
  }
};

// Draw keys and numbers become words of the launch. Of the numbers only those that no processor takes a shorter way for: zero, powers of
// two and what is not finite stay, and subnormal ones, too.
bool isPlainNumber(Elem elem, double number) {
  int exponent;
  if (!factsOf(elem).real)
    return false;
  bool normal = elem == Elem::F64 ? std::isnormal(number) : std::isnormal(float(number));
  return normal && std::fabs(std::frexp(number, &exponent)) != 0.5;
}
// Of 65536 draws, how many are true; -1 if none or all are, which needs no draw.
int64_t thresholdOf(double probability) {
  int64_t threshold = std::llround(probability * 65536.0);
  return threshold > 0 && threshold < 65536 ? threshold : -1;
}

// A GPU's kernel takes its words by value, and all its parameters together are 4352 bytes at most.
constexpr size_t kMostWords = 256;

void moveToWords(LoopSpec &spec, SmallVectorImpl<int64_t> &words) {
  for (LoopNode &node : spec.nodes) {
    if (node.op != LoopOp::RandomUniform && node.op != LoopOp::RandomNormal && node.op != LoopOp::RandomInt &&
        node.op != LoopOp::RandomBool)
      continue;
    auto found = llvm::find(words, int64_t(node.key));
    node.keyWord = int(found - words.begin());
    if (found == words.end())
      words.push_back(int64_t(node.key));
    node.key = 0;
  }
  // Each number has a word of its own: kernels whose numbers happen to be equal are like those whose numbers are not.
  for (LoopNode &node : spec.nodes) {
    if (words.size() >= kMostWords)
      break;
    int64_t threshold = node.op == LoopOp::RandomBool ? thresholdOf(node.number) : -1;
    bool number = node.op == LoopOp::Const && isPlainNumber(node.elem, node.number);
    if (!number && threshold < 0)
      continue;
    node.numberWord = int(words.size());
    words.push_back(number ? llvm::bit_cast<int64_t>(node.number) : threshold);
    node.number = 0;
  }
}
void moveToWords(AttendSpec &spec, SmallVectorImpl<int64_t> &words) {
  if (spec.dropout == 0)
    return;
  words.push_back(int64_t(spec.key));
  spec.keyWord = 0;
  spec.key = 0;
  if (int64_t threshold = thresholdOf(1 - spec.dropout); threshold > 0) {
    words.append({threshold, llvm::bit_cast<int64_t>(1 / (1 - spec.dropout))});
    spec.dropoutWord = 1;
    spec.dropout = 0.5;
  }
}
void moveToWords(AttendGradSpec &spec, SmallVectorImpl<int64_t> &words) { moveToWords(spec.forward, words); }
template <typename Spec> void moveToWords(Spec &, SmallVectorImpl<int64_t> &) {}

// The builder of products wants A, B, C as buffers 0, 1, 2; the others take them as the kernel has them.
void numberBuffers(ContractSpec &spec, SmallVectorImpl<int> &buffers, int) {
  for (View *view : {&spec.a, &spec.b, &spec.c}) {
    buffers.push_back(view->buffer);
    view->buffer = int(buffers.size()) - 1;
  }
}
void numberBuffers(ConvSpec &spec, SmallVectorImpl<int> &buffers, int count) {
  for (ContractSpec &part : spec.parts) {
    buffers.clear();
    numberBuffers(part, buffers, count);
  }
}
template <typename Spec> void numberBuffers(Spec &, SmallVectorImpl<int> &buffers, int count) {
  for (int i = 0; i < count; ++i)
    buffers.push_back(i);
}

template <typename Spec> bool traceInto(Tracer &tracer, KernelSpec &out) {
  Spec spec;
  if (!tracer.trace(spec))
    return false;
  moveToWords(spec, out.words);
  numberBuffers(spec, out.buffers, tracer.inputs + int(tracer.results.size()));
  out.work = std::move(spec);
  return true;
}

} // namespace

std::optional<KernelSpec> specOf(plan::KernelOp kernel, const Extent &extent) {
  KernelSpec spec;
  Tracer tracer(kernel, extent, spec);
  auto traced = [&]() {
    switch (kindOf(kernel)) {
    case KernelKind::Loop: return traceInto<LoopSpec>(tracer, spec);
    case KernelKind::Product: return traceInto<ContractSpec>(tracer, spec);
    case KernelKind::Attention: return traceInto<AttendSpec>(tracer, spec);
    case KernelKind::AttentionGrad: return traceInto<AttendGradSpec>(tracer, spec);
    case KernelKind::Convolution: return traceInto<ConvSpec>(tracer, spec);
    case KernelKind::Pool: return traceInto<PoolSpec>(tracer, spec);
    case KernelKind::Scan: return false;
    }
    return false;
  };
  if (!traced())
    return std::nullopt;
  return spec;
}

// ---- What is asked of a spec -------------------------------------------------------------------------------------------
// Tiles of products, convolutions and attention lie in shared memory on a GPU.
static int64_t scratchOfWorker(const KernelSpec &spec, const TargetInfo &target) {
  if (auto *loop = std::get_if<LoopSpec>(&spec.work))
    return kernels::scratchBytesPerThread(*loop, target);
  if (target.isDevice() || std::holds_alternative<PoolSpec>(spec.work))
    return 0;
  if (auto *contract = std::get_if<ContractSpec>(&spec.work))
    return kernels::scratchBytesPerThread(*contract, target);
  if (auto *conv = std::get_if<ConvSpec>(&spec.work))
    return kernels::scratchBytesPerThread(*conv, target);
  if (auto *attend = std::get_if<AttendSpec>(&spec.work))
    return kernels::scratchBytesPerThread(*attend, target);
  return kernels::scratchBytesPerThread(std::get<AttendGradSpec>(spec.work), target);
}

int64_t KernelSpec::scratchBytesPerThread(const TargetInfo &target) const {
  int64_t each = scratchOfWorker(*this, target);
  return target.isDevice() && each > 0 ? each * grid(target).workers : each;
}

bool KernelSpec::isOfTensorCores() const {
  if (auto *contract = std::get_if<ContractSpec>(&work))
    return device::isOfTensorCores(*contract);
  if (auto *attend = std::get_if<AttendSpec>(&work))
    return kernels::isOfTensorCores(*attend);
  if (auto *grad = std::get_if<AttendGradSpec>(&work))
    return kernels::isOfTensorCores(grad->forward);
  auto *conv = std::get_if<ConvSpec>(&work);
  return conv && llvm::all_of(conv->parts, device::isOfTensorCores);
}

Grid KernelSpec::grid(const TargetInfo &target) const {
  if (auto *loop = std::get_if<LoopSpec>(&work))
    return gridOf(*loop, target);
  if (auto *contract = std::get_if<ContractSpec>(&work))
    return gridOfContracts({*contract}, target);
  if (auto *conv = std::get_if<ConvSpec>(&work))
    return gridOfContracts(conv->parts, target);
  if (auto *attend = std::get_if<AttendSpec>(&work))
    return gridOfAttend(*attend, target);
  if (auto *pool = std::get_if<PoolSpec>(&work))
    return gridOf(*pool, target);
  return gridOfAttend(std::get<AttendGradSpec>(work), target);
}

func::FuncOp KernelSpec::build(OpBuilder &builder, ModuleOp module, const std::string &name, const TargetInfo &target) const {
  const bool device = target.isDevice();
  if (auto *loop = std::get_if<LoopSpec>(&work))
    return buildLoop(builder, module, name, *loop, target);
  if (auto *contract = std::get_if<ContractSpec>(&work))
    return device ? buildContractsOnDevice(builder, module, name, {*contract}, target)
                  : buildContract(builder, module, name, *contract, target);
  if (auto *attend = std::get_if<AttendSpec>(&work))
    return device ? buildAttendOnDevice(builder, module, name, *attend, target) : buildAttend(builder, module, name, *attend, target);
  if (auto *conv = std::get_if<ConvSpec>(&work))
    return device ? buildContractsOnDevice(builder, module, name, conv->parts, target)
                  : buildConv(builder, module, name, *conv, target);
  if (auto *pool = std::get_if<PoolSpec>(&work))
    return buildPool(builder, module, name, *pool, target);
  auto &grad = std::get<AttendGradSpec>(work);
  return device ? buildAttendOnDevice(builder, module, name, grad, target) : buildAttendGrad(builder, module, name, grad, target);
}

namespace {

// The fields of a spec as bytes. Every struct is taken apart by a structured binding, which stops compiling when a field is added
// that does not stand here.
struct Key {
  std::string bytes;

  void put(const void *data, size_t size) { bytes.append(static_cast<const char *>(data), size); }
  template <typename T> std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>> add(T value) { put(&value, sizeof value); }
  template <typename T> void add(const std::vector<T> &list) {
    add(list.size());
    for (const T &item : list)
      add(item);
  }
  void add(const View &view) {
    const auto &[buffer, elem, offset, strides] = view;
    all(buffer, elem, offset, strides);
  }
  void add(const LoopNode &node) {
    const auto &[op, elem, args, view, atStrides, level, number, reduce, hasInit, key, keyWord, numberWord, usesExample, exampleStrides,
                 positionStride] = node;
    all(op, elem, args, view, atStrides, level, number, reduce, hasInit, key, keyWord, numberWord, usesExample, exampleStrides,
        positionStride);
  }
  void add(const LoopStore &store) {
    const auto &[node, view, copies, copyStride] = store;
    all(node, view, copies, copyStride);
  }
  void add(const LoopAddAt &at) {
    const auto &[present, node, view, args, atStrides, atSizes] = at;
    all(present, node, view, args, atStrides, atSizes);
  }
  void add(const LoopSpec &spec) {
    const auto &[outer, chain, cols, grain, nodes, stores, addAt] = spec;
    all(outer, chain, cols, grain, nodes, stores, addAt);
  }
  void add(const Bound &bound) {
    const auto &[offset, size, strides] = bound;
    all(offset, size, strides);
  }
  void add(const ContractSpec &spec) {
    const auto &[elem, batch, m, n, k, a, b, c, bounds, accumulate, grain, pairs, anew, rounds] = spec;
    all(elem, batch, m, n, k, a, b, c, bounds, accumulate, grain, pairs, anew, rounds);
  }
  void add(const ConvSpec &spec) {
    const auto &[parts] = spec;
    add(parts);
  }
  void add(const int64_t (&pair)[2]) { all(pair[0], pair[1]); }
  void add(const PoolSpec &spec) {
    const auto &[kind, elem, lead, C, image, places, window, stride, pad, x, y, place] = spec;
    all(kind, elem, lead, C, image, places, window, stride, pad, x, y, place);
  }
  void add(const AttendSpec &spec) {
    const auto &[elem, lead, A, G, T, S, K, E, causal, firstHead, scale, dropout, key, keyWord, dropoutWord, batchDim, q, k, v, o, lse, hasKeys,
                 hasBias, pairs, keys, bias] = spec;
    all(elem, lead, A, G, T, S, K, E, causal, firstHead, scale, dropout, key, keyWord, dropoutWord, batchDim, q, k, v, o, lse, hasKeys, hasBias,
        pairs, keys, bias);
  }
  void add(const AttendGradSpec &spec) {
    const auto &[forward, dout, dq, dk, dv, grain, wantsBiasGrad, dbias] = spec;
    all(forward, dout, dq, dk, dv, grain, wantsBiasGrad, dbias);
  }
  template <typename... T> void all(const T &...fields) { (add(fields), ...); }
};

} // namespace

LoopSpec KernelSpec::loopWithNumbers() const {
  LoopSpec loop = std::get<LoopSpec>(work);
  for (LoopNode &node : loop.nodes)
    if (node.numberWord >= 0)
      node.number = node.op == LoopOp::RandomBool ? double(words[node.numberWord]) / 65536 : llvm::bit_cast<double>(words[node.numberWord]);
  return loop;
}

std::string KernelSpec::key() const {
  Key key;
  key.add(work.index());
  std::visit([&](auto &spec) { key.add(spec); }, work);
  return key.bytes;
}

} // namespace cinch::analysis
