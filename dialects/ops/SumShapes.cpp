// SumShapes.cpp: sums, products, gathers and sums at computed places.
#include "dialects/ops/ShapeRules.h"

#include <algorithm>
#include <map>
#include <set>

namespace cinch {

using namespace shapes;

std::string shapes::reduce(const OpView &op, Types &results) {
  const TensorType &x = op.in(0);
  const Shape &axes = op.integers(Key::Axes);
  int64_t last = -1;
  if (axes.empty()) // C1
    return "expected an axis";
  for (int64_t axis : axes) {
    if (axis <= last || axis >= rankOf(x)) // C1
      return say("expected increasing axes below ", rankOf(x), ", got ", axis, " behind ", last);
    last = axis;
  }
  auto reduction = Reduction(op.integer(Key::Reduction));
  bool logical = reduction == Reduction::Any || reduction == Reduction::All;
  if (logical != (x.dtype == DType::Bool) || x.dtype == DType::BF16) // C2
    return say("'", nameOf(ChoiceType::Reduction, int64_t(reduction)), "' does not fit ", x);
  results.push_back(withoutAxes(x, axes, x.dtype));
  return "";
}

// The labels of axes: the size that each stands for, and which of them is the batch axis.
namespace {
struct Labels {
  std::map<int64_t, int64_t> sizes;
  int64_t batch = -1, group = 1;

  std::string read(const TensorType &type, const Shape &labels) {
    std::set<int64_t> seen;
    if (labels.size() != type.shape.size()) // C1
      return say("expected one label an axis of ", type, ", got ", labels.size());
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      int64_t label = labels[axis];
      if (label < 0 || !seen.insert(label).second) // C1
        return say("label ", label, " is negative or twice in one operand");
      int64_t size = sizes.try_emplace(label, type.shape[axis]).first->second;
      if (size != type.shape[axis]) // C2
        return say("label ", label, " stands for ", size, " and for ", type.shape[axis], " elements");
      if (int(axis) != type.batch)
        continue;
      if (batch >= 0 && batch != label) // C5
        return say("the batch axes have two labels, ", batch, " and ", label);
      if (batch >= 0 && group != type.group) // C5
        return say("the batch axes hold groups of ", group, " and of ", type.group, " examples");
      batch = label, group = type.group;
    }
    return "";
  }
  // False if an axis that is not the batch axis has its label.
  bool keepsBatch(const TensorType &type, const Shape &labels) const {
    for (size_t axis = 0; axis < labels.size(); ++axis)
      if (labels[axis] == batch && int(axis) != type.batch)
        return false;
    return true;
  }
  // Labels 0 .. rank - 1 as axes.
  TensorType type(DType element, int64_t rank) const {
    TensorType result{element, {}, batch < rank ? int(batch) : -1};
    if (result.batch >= 0)
      result.group = group;
    for (int64_t label = 0; label < rank; ++label)
      result.shape.push_back(sizes.at(label));
    return result;
  }
};
} // namespace

std::string shapes::contract(const OpView &op, Types &results) {
  const TensorType &lhs = op.in(0), &rhs = op.in(1);
  const Shape &a = op.integers(Key::LhsLabels), &b = op.integers(Key::RhsLabels);
  auto contains = [](const Shape &labels, int64_t label) {
    return std::find(labels.begin(), labels.end(), label) != labels.end();
  };
  int64_t rank = rankOf(results[0]), firstSum = -1;
  Labels labels;
  if (std::string fault = labels.read(lhs, a); !fault.empty())
    return fault;
  if (std::string fault = labels.read(rhs, b); !fault.empty())
    return fault;
  for (int64_t label = 0; label < rank; ++label)
    if (!labels.sizes.count(label)) // C3
      return say("result axis ", label, " is in no operand");
  for (const auto &[label, size] : labels.sizes)
    if (label >= rank) {
      if (!contains(a, label) || !contains(b, label)) // C3
        return say("summed label ", label, " is in one operand only");
      firstSum = firstSum < 0 ? label : std::min(firstSum, label);
    }
  bool ofBoth = lhs.batch >= 0 && rhs.batch >= 0;
  if (labels.batch >= rank && (labels.batch != firstSum || !ofBoth)) // C5
    return say("expected a summed batch axis to be one of both operands and the slowest, got label ", labels.batch,
               " and slowest ", firstSum);
  if (labels.batch >= 0 && (!labels.keepsBatch(lhs, a) || !labels.keepsBatch(rhs, b))) // C5
    return say("label ", labels.batch, " is the batch axis of one operand only");
  bool rounded = lhs.dtype == DType::BF16 || rhs.dtype == DType::BF16;
  TensorType expected = labels.type(rounded ? DType::F32 : lhs.dtype, rank);
  bool narrow = rounded && expected.batch >= 0 && results[0].dtype == DType::BF16;
  if (results[0] != withElement(expected, narrow ? DType::BF16 : expected.dtype)) // C4, C5
    return say("expected result type ", expected, ", got ", results[0]);
  auto fits = [](const TensorType &type) { return type.dtype == DType::F32 || type.dtype == DType::BF16; };
  if (rounded ? !fits(lhs) || !fits(rhs) : lhs.dtype != rhs.dtype) // C4
    return say("expected one element type, got ", lhs, " and ", rhs);
  return "";
}

// The type of x[.., index, ..]; operand 0 of the op is left to the caller, the others are the index tensors.
static std::string gathered(const OpView &op, const TensorType &x, TensorType &result) {
  const Shape &ofX = op.integers(Key::XLabels);
  const Lists &ofIndices = std::get<Lists>(op.attribute(Key::IndexLabels));
  size_t indices = op.operands.size() - 1;
  if (int64_t(ofX.size()) != rankOf(x) || ofIndices.size() != indices) // C1
    return say("expected one label an axis of ", x, " and one list an index tensor, got ", ofX.size(), " and ",
               ofIndices.size());
  std::vector<int> named(indices, 0);
  TensorType kept{x.dtype, {}, -1};
  Shape keptLabels;
  for (size_t axis = 0; axis < ofX.size(); ++axis) {
    int64_t label = ofX[axis];
    if (label < 0 && (-label > int64_t(indices) || int(axis) == x.batch)) // C1, C5
      return say("entry ", label, " names no index tensor, or takes the batch axis by index");
    if (label < 0) {
      ++named[-label - 1];
      continue;
    }
    if (int(axis) == x.batch)
      kept.batch = int(kept.shape.size()), kept.group = x.group;
    kept.shape.push_back(x.shape[axis]);
    keptLabels.push_back(label);
  }
  Labels labels;
  if (std::string fault = labels.read(kept, keptLabels); !fault.empty())
    return fault;
  for (size_t i = 0; i < indices; ++i)
    if (std::string fault = labels.read(op.in(i + 1), ofIndices[i]); !fault.empty())
      return fault;
  bool keepsBatch = labels.keepsBatch(kept, keptLabels);
  for (size_t i = 0; i < indices; ++i)
    keepsBatch &= labels.keepsBatch(op.in(i + 1), ofIndices[i]);
  if (labels.batch >= 0 && !keepsBatch) // C5
    return say("label ", labels.batch, " is the batch axis of one operand only");
  int64_t rank = int64_t(labels.sizes.size());
  if (rank > 0 && labels.sizes.rbegin()->first != rank - 1) // C3
    return "expected the labels of the result without a gap";
  if (std::any_of(named.begin(), named.end(), [](int count) { return count != 1; })) // C4
    return "expected every index tensor to be named once";
  result = labels.type(x.dtype, rank);
  return "";
}

std::string shapes::gather(const OpView &op, Types &results) {
  results.emplace_back();
  return gathered(op, op.in(0), results[0]);
}

std::string shapes::scatterAdd(const OpView &op, Types &results) {
  TensorType updates;
  if (std::string fault = gathered(op, results[0], updates); !fault.empty())
    return fault;
  if (updates != op.in(0)) // C1
    return say("expected updates of type ", updates, ", got ", op.in(0));
  return "";
}

std::string shapes::groupMean(const OpView &op, Types &results) {
  const TensorType &x = op.in(0);
  int64_t group = op.integer(Key::Group);
  if (x.batch < 0 || x.group > 1 || group < 1 || x.shape[x.batch] % group) // C1
    return say("expected a batch axis that groups of ", group, " examples divide, got ", x);
  results.push_back(x);
  return "";
}

} // namespace cinch
