// LoopDomain.cpp: the domain a value is computed over, and the way through views to what lies in memory.
#include "compiler/analysis/LoopTrace.h"

#include "dialects/nn/NN.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {

// ---- Types -------------------------------------------------------------------------------------------------------------
Shape shapeOf(Value value, const Extent &extent) {
  auto type = cast<RankedTensorType>(value.getType());
  Shape shape(type.getShape().begin(), type.getShape().end());
  int batch = batchAxisOf(value);
  if (batch < 0 || extent.examples == 0)
    return shape;
  shape[batch] = extent.examples / nn::batchGroup(value.getType());
  if (extent.cutsPositions() && batch == 0 && shape.size() > 1 && shape[1] == extent.of)
    shape[1] = extent.positions;
  return shape;
}

Shape shapeInMemory(Value value, const Extent &extent) {
  Shape shape = shapeOf(value, extent);
  auto type = nn::tensorOf(value);
  if (!shape.empty() && nn::rowPitch(type) != type.getShape().back()) // else the last axis may be that of the examples, and shorter here
    shape.back() = nn::rowPitch(type);
  return shape;
}

int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

int batchAxisOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  auto batch = dyn_cast_or_null<nn::BatchAttr>(type.getEncoding());
  return batch ? int(batch.getAxis()) : -1;
}

Elem elemOf(Value value) {
  Type type = cast<RankedTensorType>(value.getType()).getElementType();
  if (type.isF32())
    return Elem::F32;
  if (type.isF64())
    return Elem::F64;
  if (type.isBF16())
    return Elem::BF16;
  if (type.isInteger(1))
    return Elem::Bool;
  if (type.isInteger(32))
    return Elem::I32;
  std::string text;
  llvm::raw_string_ostream(text) << type;
  llvm::report_fatal_error(llvm::Twine("no kernel computes elements of type ") + text);
}

// ---- Domains -----------------------------------------------------------------------------------------------------------
Shape LoopDomain::sizes() const {
  Shape all = outer;
  all.insert(all.end(), chain.begin(), chain.end());
  all.push_back(cols);
  return all;
}

ReductionAxes splitReduction(Value operand, ArrayRef<int64_t> axes) {
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
static LoopDomain scatterDomain(nn::ScatterAddOp op, const Extent &extent) {
  // Labels of the gather: those of x's plain axes address disjoint elements (outer, and the last as columns), the labels of
  // the index tensors are walked in order, the batch axis first.
  LoopDomain domain;
  Shape updates = shapeOf(op.getUpdates(), extent);
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

LoopDomain domainOf(Value value, const Extent &extent) {
  LoopDomain domain;
  Operation *op = value.getDefiningOp();
  if (auto reduce = dyn_cast_or_null<nn::ReduceOp>(op)) {
    Shape shape = shapeOf(reduce.getX(), extent);
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
    return scatterDomain(scatter, extent);
  if (auto mean = dyn_cast_or_null<nn::GroupMeanOp>(op)) { // the groups, and a chain over the examples of one
    int64_t group = mean.getGroup(), batch = batchAxisOf(value);
    Shape shape = shapeOf(value, extent);
    shape[batch] /= group;
    domain.chain = {group};
    if (batch + 1 < int64_t(shape.size())) {
      domain.cols = shape.back();
      shape.pop_back();
    }
    domain.outer = shape;
    return domain;
  }
  if (isa_and_nonnull<nn::ArgMaxOp, nn::ArgMinOp>(op)) {
    Shape shape = shapeOf(op->getOperand(0), extent);
    int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
    domain.cols = shape[axis];
    shape.erase(shape.begin() + axis);
    domain.outer = shape;
    return domain;
  }
  Shape shape = shapeOf(value, extent);
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

bool isLoopOp(Operation *op) {
  return !isa<nn::ContractOp, nn::AttendOp, nn::AttendGradOp, nn::ConvOp, nn::MaxPoolOp, nn::MaxPoolGradOp, nn::SumPoolOp,
              nn::SumPoolGradOp, nn::ScanOp>(op);
}

std::optional<IndexMap> throughView(Operation *op, const IndexMap &map, const Shape &domain, const Extent &extent) {
  Shape result = shapeOf(op->getResult(0), extent), operand = shapeOf(op->getOperand(0), extent);
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
                                                    llvm::SetVector<Operation *> *passed, const Extent &extent) {
  IndexMap at = map;
  while (!inMemory(value)) {
    Operation *op = value.getDefiningOp();
    if (!op || !isView(op)) {
      blocker = value;
      return std::nullopt;
    }
    auto next = throughView(op, at, domain, extent);
    if (!next) {
      // A reshape of what is in memory is free whatever its shape: elements keep their flat number.
      if (isa<nn::ReshapeOp>(op) && inMemory(op->getOperand(0))) {
        if (passed)
          passed->insert(op);
        return std::make_pair(op->getOperand(0), flatIndex(at, shapeOf(value, extent), domain.size()));
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
  return std::make_pair(value, flatIndex(at, shapeInMemory(value, extent), domain.size()));
}

} // namespace cinch::analysis
