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
using cinch::plan::KernelKind;

namespace cinch::analysis {

// ---- Kinds -------------------------------------------------------------------------------------------------------------
// In the order of plan::KernelKind, whose kinds before the last one come in the order of the alternatives of KernelSpec::work.
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

static Operation *rootOf(plan::KernelOp kernel) {
  return kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp();
}

plan::LoopOp loopOf(plan::KernelOp kernel) { return dyn_cast<plan::LoopOp>(rootOf(kernel)); }

// ---- Tracing -----------------------------------------------------------------------------------------------------------
namespace {

// One overload of `trace` a kind.
struct Tracer {
  const KernelWork &work;
  const Extent &extent;
  TracedWork &out;

  // For the kinds whose views name them, results are buffers, too.
  int bufferOf(Value value) const {
    for (auto [i, result] : llvm::enumerate(work.stores))
      if (result == value)
        return work.firstStore + int(i);
    return work.inputOf(value);
  }
  Operation *op() const { return work.stores.front().getDefiningOp(); }

  bool trace(LoopSpec &spec) {
    LoopTracer tracer(domainOf(work.anchor, extent), [&](Value value) { return work.inputOf(value); }, extent);
    for (auto [i, value] : llvm::enumerate(work.stores))
      if (!tracer.store(value, work.firstStore + int(i), work.accumulates(i))) {
        out.blocker = tracer.blocker;
        return false;
      }
    spec = std::move(tracer.spec);
    out.ops = std::move(tracer.computed);
    out.origins = std::move(tracer.origins);
    out.spec.batchDim = tracer.batchDim, out.spec.positionDim = tracer.positionDim;
    out.spec.examplesOfGroup = tracer.examplesOfGroup;
    return true;
  }
  bool trace(ContractSpec &spec) {
    return contractSpec(cast<nn::ContractOp>(op()), [&](Value v) { return bufferOf(v); }, work.accumulates(0), spec, out.blocker, &out.ops,
                        extent);
  }
  bool trace(AttendSpec &spec) {
    return attendSpec(cast<nn::AttendOp>(op()), [&](Value v) { return bufferOf(v); }, spec, out.blocker, &out.ops, extent);
  }
  bool trace(AttendGradSpec &spec) {
    return attendGradSpec(cast<nn::AttendGradOp>(op()), [&](Value v) { return bufferOf(v); }, spec, out.blocker, &out.ops, extent);
  }
  bool trace(ConvSpec &spec) {
    return convSpec(cast<nn::ConvOp>(op()), [&](Value v) { return bufferOf(v); }, work.accumulates(0), spec, out.blocker, &out.ops, extent);
  }
  bool trace(PoolSpec &spec) {
    return poolSpec(op(), [&](Value v) { return bufferOf(v); }, spec, out.blocker, &out.ops, extent);
  }
};

template <typename Spec> bool traceAs(const KernelWork &work, const Extent &extent, TracedWork &out) {
  return Tracer{work, extent, out}.trace(out.spec.work.emplace<Spec>());
}

} // namespace

bool traceWork(const KernelWork &work, const Extent &extent, TracedWork &out) {
  switch (work.kind) {
  case KernelKind::Loop: return traceAs<LoopSpec>(work, extent, out);
  case KernelKind::Product: return traceAs<ContractSpec>(work, extent, out);
  case KernelKind::Attention: return traceAs<AttendSpec>(work, extent, out);
  case KernelKind::AttentionGrad: return traceAs<AttendGradSpec>(work, extent, out);
  case KernelKind::Convolution: return traceAs<ConvSpec>(work, extent, out);
  case KernelKind::Pool: return traceAs<PoolSpec>(work, extent, out);
  case KernelKind::Scan: return false;
  }
  return false;
}

namespace {

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

} // namespace

std::optional<KernelSpec> specOf(plan::KernelOp kernel, const Extent &extent) {
  const int inputs = int(kernel.getNumOperands());
  Block &body = kernel.getBody().front();
  OperandRange stores = body.getTerminator()->getOperands();
  Value anchor = stores.front();
  if (auto number = kernel.getDomain())
    anchor = std::next(body.begin(), int64_t(*number))->getResult(0);
  // In a block of positions, positions cut out of something longer lie where the block begins in it.
  auto inputOf = [&](Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return int(argument.getArgNumber());
    if (!extent.cutsPositions() || sliceOfPositions(value.getDefiningOp(), {extent.of, {}}) < 0)
      return -1;
    auto argument = dyn_cast<BlockArgument>(value.getDefiningOp()->getOperand(0));
    return argument ? int(argument.getArgNumber()) : -1;
  };
  auto accumulates = [&](size_t store) { return kernel.getAccumulates() && (*kernel.getAccumulates())[store]; };
  TracedWork traced;
  if (!traceWork({kernel.getKind(), stores, anchor, inputOf, accumulates, inputs}, extent, traced))
    return std::nullopt;
  KernelSpec &spec = traced.spec;
  llvm::DenseMap<Operation *, int> numbers;
  for (auto [number, op] : llvm::enumerate(body))
    numbers[&op] = int(number);
  for (Operation *op : traced.origins)
    spec.origins.push_back(op ? numbers.lookup(op) : -1);
  std::visit(
      [&](auto &work) {
        moveToWords(work, spec.words);
        numberBuffers(work, spec.buffers, inputs + int(stores.size()));
      },
      spec.work);
  return std::move(spec);
}

// ---- Kernels that are alike --------------------------------------------------------------------------------------------
// What an op says beside its definition counts, unless it is known to be for the planner alone.
static bool isForPlanner(StringRef attribute) {
  return llvm::is_contained({nn::kKeepAttr, nn::kRecomputeAttr, nn::kBlockAttr, nn::kBlockEndAttr, nn::kStageAttr, nn::kBackwardAttr,
                             nn::kLayerAttr, nn::kRoundedAttr},
                            attribute);
}

static bool sayTheSame(Region &a, Region &b) {
  auto saidBy = [](Operation &op) {
    SmallVector<NamedAttribute> said;
    for (NamedAttribute attribute : op.getDiscardableAttrs())
      if (!isForPlanner(attribute.getName()))
        said.push_back(attribute);
    return said;
  };
  return llvm::all_of(llvm::zip_equal(a.front(), b.front()), [&](auto pair) { return saidBy(std::get<0>(pair)) == saidBy(std::get<1>(pair)); });
}

static constexpr auto kAlike = OperationEquivalence::IgnoreLocations | OperationEquivalence::IgnoreDiscardableAttrs;

static size_t hashOf(plan::KernelOp kernel) {
  llvm::hash_code hash = llvm::hash_value(kernel.getNumResults());
  for (Operation &op : kernel.getBody().front())
    hash = llvm::hash_combine(hash, OperationEquivalence::computeHash(&op, OperationEquivalence::ignoreHashValue,
                                                                      OperationEquivalence::ignoreHashValue, kAlike));
  return hash;
}

const KernelSpec *KernelSpecs::find(plan::KernelOp kernel, const Extent &extent) {
  std::deque<Known> &like = known[hashOf(kernel)];
  auto same = llvm::find_if(like, [&](Known &other) {
    return other.kernel.getDomainAttr() == kernel.getDomainAttr() && other.kernel.getAccumulatesAttr() == kernel.getAccumulatesAttr() &&
           OperationEquivalence::isRegionEquivalentTo(&other.kernel.getBody(), &kernel.getBody(), kAlike) &&
           sayTheSame(other.kernel.getBody(), kernel.getBody());
  });
  if (same == like.end())
    same = like.insert(like.end(), {kernel, {}});
  auto found = llvm::find_if(same->at, [&](auto &at) { return at.first == extent; });
  if (found == same->at.end())
    found = same->at.insert(same->at.end(), {extent, specOf(kernel, extent)});
  return found->second ? &*found->second : nullptr;
}

// ---- What is asked of a spec -------------------------------------------------------------------------------------------
// Tiles of products, convolutions and attention lie in shared memory on a GPU; but attention's gradient may keep sums beside them.
static int64_t scratchOfWorker(const KernelSpec &spec, const TargetInfo &target) {
  if (auto *loop = std::get_if<LoopSpec>(&spec.work))
    return kernels::scratchBytesPerThread(*loop, target);
  if (auto *grad = std::get_if<AttendGradSpec>(&spec.work); grad && target.isDevice())
    return kernels::scratchBytesOfBlock(*grad, target);
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
  if (auto *loop = std::get_if<LoopSpec>(&work); loop && target.isDevice())
    return scratchBytesOnDevice(*loop, target);
  int64_t each = scratchOfWorker(*this, target);
  return target.isDevice() && each > 0 ? each * grids(target).front().workers : each;
}

int64_t KernelSpec::itemsOnCpu(const TargetInfo &target) const {
  if (auto *loop = std::get_if<LoopSpec>(&work))
    return itemsOf(*loop, target);
  if (auto *pool = std::get_if<PoolSpec>(&work))
    return itemsOf(*pool);
  if (auto *attend = std::get_if<AttendSpec>(&work))
    return itemsOf(*attend);
  auto *grad = std::get_if<AttendGradSpec>(&work);
  return grad ? itemsOf(*grad) : 0;
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

bool KernelSpec::approximates() const {
  const auto *loop = std::get_if<LoopSpec>(&work);
  return loop ? std::any_of(loop->nodes.begin(), loop->nodes.end(), [](const LoopNode &node) { return node.approximate; })
              : isAttention() && isOfTensorCores();
}

bool KernelSpec::multipliesInTF32() const {
  if (auto *contract = std::get_if<ContractSpec>(&work))
    return contract->tf32;
  auto *conv = std::get_if<ConvSpec>(&work);
  return conv && llvm::any_of(conv->parts, [](const ContractSpec &part) { return part.tf32; });
}

namespace {

// The views of a spec whose buffers a GPU reads or writes 16 bytes at a time without a look at where they begin.
SmallVector<View *> alignedViews(ContractSpec &spec) { return {&spec.a, &spec.b, &spec.c}; }
SmallVector<View *> alignedViews(ConvSpec &spec) {
  SmallVector<View *> views;
  for (ContractSpec &part : spec.parts)
    views.append(alignedViews(part));
  return views;
}
SmallVector<View *> alignedViews(AttendSpec &spec) { return {&spec.q, &spec.k, &spec.v, &spec.o, &spec.lse, &spec.keys, &spec.bias}; }
SmallVector<View *> alignedViews(AttendGradSpec &spec) {
  SmallVector<View *> views = alignedViews(spec.forward);
  views.append({&spec.dout, &spec.dq, &spec.dk, &spec.dv, &spec.dbias});
  return views;
}
template <typename Spec> SmallVector<View *> alignedViews(Spec &) { return {}; }

} // namespace

KernelSpec KernelSpec::withAlignments(ArrayRef<int64_t> ofBuffers) const {
  KernelSpec spec = *this;
  std::visit(
      [&](auto &work) {
        for (View *view : alignedViews(work))
          view->alignment = std::min(kWidestAccess, ofBuffers[size_t(view->buffer)]);
      },
      spec.work);
  return spec;
}

std::vector<Grid> KernelSpec::grids(const TargetInfo &target) const {
  if (auto *loop = std::get_if<LoopSpec>(&work))
    return gridsOf(*loop, target);
  if (auto *contract = std::get_if<ContractSpec>(&work))
    return {gridOfContracts({*contract}, target)};
  if (auto *conv = std::get_if<ConvSpec>(&work))
    return {gridOfContracts(conv->parts, target)};
  if (auto *attend = std::get_if<AttendSpec>(&work))
    return {gridOfAttend(*attend, target)};
  if (auto *pool = std::get_if<PoolSpec>(&work))
    return {gridOf(*pool, target)};
  return {gridOfAttend(std::get<AttendGradSpec>(work), target)};
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
    const auto &[buffer, elem, offset, strides, alignment] = view;
    all(buffer, elem, offset, strides, alignment);
  }
  void add(const LoopNode &node) {
    const auto &[op, elem, args, view, atStrides, level, number, reduce, hasInit, key, keyWord, numberWord, usesExample, exampleStrides,
                 positionStride, approximate] = node;
    all(op, elem, args, view, atStrides, level, number, reduce, hasInit, key, keyWord, numberWord, usesExample, exampleStrides,
        positionStride, approximate);
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
    const auto &[elem, batch, m, n, k, a, b, c, bounds, accumulate, grain, pairs, anew, tf32, rounds, winograd, sumsPlaces, firstRow, movesRows] = spec;
    all(elem, batch, m, n, k, a, b, c, bounds, accumulate, grain, pairs, anew, tf32, rounds, winograd, sumsPlaces, firstRow, movesRows);
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
    const auto &[elem, lead, A, G, T, S, K, E, causal, headsBefore, headsBehind, scale, dropout, key, keyWord, dropoutWord, batchDim, q, k, v, o, lse, hasKeys,
                 hasBias, pairs, keys, bias] = spec;
    all(elem, lead, A, G, T, S, K, E, causal, headsBefore, headsBehind, scale, dropout, key, keyWord, dropoutWord, batchDim, q, k, v, o, lse, hasKeys, hasBias,
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
