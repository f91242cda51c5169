// IndexNotation.cpp: y[i, .., j] = e. Every value inside is a scalar that runs over some of the indices; it is kept
// as a tensor with one label an axis.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>

namespace cinch {

using namespace ast;

int Elaborator::bindIndex(IndexScope &scope, const std::string &name, Span span) {
  IndexScope::Index index;
  index.name = name;
  index.span = span;
  index.order = scope.next++;
  scope.indices.push_back(index);
  return static_cast<int>(scope.indices.size()) - 1;
}

// All axes an index runs over are equal sizes.
bool Elaborator::useIndex(int number, const Number &size, Span span, Frame &frame) {
  IndexScope::Index &index = frame.index->indices[number];
  index.used = true;
  if (!index.known) {
    index.known = true;
    index.sizes = {size};
    index.sizedAt = span;
    return true;
  }
  if (sameSize(index.sizes[0], size)) {
    index.sizes[0] = betterName(index.sizes[0], size);
    return true;
  }
  Diagnostic &d = report(
      Code::E0403, span,
      "index `" + index.name + "` runs over two sizes, " + sizeText(index.sizes[0]) + " and " + sizeText(size), frame);
  d.label(index.sizedAt, sizeText(index.sizes[0]), originOf(index.sizes[0]));
  d.label(span, sizeText(size), originOf(size));
  if (compareNumbers(index.sizes[0], size) == 0)
    d.help(equalValuesHelp(index.sizes[0], size));
  return false;
}

bool Elaborator::useDots(int number, const std::vector<Number> &sizes, Span span, Frame &frame) {
  IndexScope::Index &dots = frame.index->indices[number];
  dots.used = true;
  if (sizes.size() > 200) {
    report(Code::E0403, span, "too many axes", frame);
    return false;
  }
  if (!dots.known) {
    dots.known = true;
    dots.sizes = sizes;
    dots.sizedAt = span;
    return true;
  }
  bool equal = dots.sizes.size() == sizes.size();
  for (size_t i = 0; equal && i < sizes.size(); ++i)
    equal = sameSize(dots.sizes[i], sizes[i]);
  if (equal)
    return true;
  auto text = [&](const std::vector<Number> &list) {
    std::string all;
    for (const Number &size : list)
      all += (all.empty() ? "" : ", ") + sizeText(size);
    return "[" + all + "]";
  };
  Diagnostic &d = report(
      Code::E0403, span,
      "`..` stands for the same axes in every operand, but " + text(dots.sizes) + " meets " + text(sizes), frame);
  d.label(dots.sizedAt, text(dots.sizes));
  return false;
}

Value Elaborator::requireScalar(Value value, Span span, Frame &frame) {
  if (!value.isTensor() || value.tensor.axes.empty())
    return value;
  Diagnostic &error = report(Code::E0402, span,
                             "inside index notation every value is a scalar, but `" + textOf(span) + "` is " +
                                 describe(value, dims) + "; index it in full",
                             frame);
  // `mean[b]` where `mean[B]` was meant: a name that is no size is an index.
  auto upper = [](std::string name) {
    for (char &c : name)
      c = c >= 'a' && c <= 'z' ? char(c - 0x20) : c;
    return name;
  };
  for (const IndexScope::Index &index : frame.index->indices)
    if (std::string dim = upper(index.name); index.reduced && !index.used && dim != index.name && fileFrame.names.count(dim)) {
      error.help("`" + index.name + "` is no size, and so it names an index; the axis of size `" + dim + "` is written [" + dim + "]");
      return {};
    }
  // `q[b, y]` where `q[b, y[b]]` was meant: an index for each axis, the first one of its size that no other axis has.
  std::string slots;
  std::set<const IndexScope::Index *> taken;
  for (const Number &axis : value.tensor.axes)
    for (const IndexScope::Index &index : frame.index->indices)
      if (!index.name.empty() && index.visible && index.known && sameSize(index.sizes[0], axis) && taken.insert(&index).second) {
        slots += (slots.empty() ? "" : ", ") + index.name;
        break;
      }
  if (taken.size() == value.tensor.axes.size())
    error.help("write `" + textOf(span) + "[" + slots + "]`");
  return {};
}

Value Elaborator::defineByIndex(const Statement &statement, Frame &frame) {
  IndexScope scope;
  for (const Place &place : statement.places) {
    if (scope.find(place.dots ? "" : place.name.text) >= 0) // told by the names pass
      return {};
    bindIndex(scope, place.dots ? "" : place.name.text, place.span);
  }
  size_t free = scope.indices.size();
  IndexScope *outer = frame.index;
  frame.index = &scope;
  Value value = eval(*statement.values[0], frame);
  frame.index = outer;
  if (value.isError())
    return {};
  for (size_t i = 0; i < free; ++i)
    if (!scope.indices[i].used)
      return failure(Code::E0404, scope.indices[i].span,
                     "index `" + (scope.indices[i].name.empty() ? ".." : scope.indices[i].name) +
                         "` does not appear on the right, so its size is unknown",
                     frame);
  if (!value.isTensor())
    return failure(Code::E0404, statement.values[0]->span,
                   "an index definition needs a tensor, but this is " + describe(value, dims), frame);
  std::vector<int> labels;
  std::vector<Number> axes;
  for (size_t i = 0; i < free; ++i)
    for (size_t k = 0; k < scope.indices[i].sizes.size(); ++k) {
      labels.push_back((scope.indices[i].order << 8) + static_cast<int>(k));
      axes.push_back(scope.indices[i].sizes[k]);
    }
  frame.index = &scope;
  Tensor result = bring(value.tensor, labels, axes, statement.values[0]->span, frame);
  frame.index = outer;
  result.labels.clear();
  return Value::of(result);
}

// ---- Contractions -------------------------------------------------------------------------------------------------
bool Elaborator::contracts(const Tensor &left, const Tensor &right) const {
  auto lacks = [](const Tensor &a, const Tensor &b) {
    for (int label : b.labels)
      if (std::find(a.labels.begin(), a.labels.end(), label) == a.labels.end())
        return true;
    return false;
  };
  return left.dtype == DType::F32 && right.dtype == DType::F32 && lacks(left, right) && lacks(right, left);
}

// A transposed operand is read through its transposition: only the order of the labels differs.
static void lookThroughTranspose(Tensor &tensor, const GraphBuilder &graph) {
  while (graph.at(tensor.op).kind == OpKind::Transpose) {
    const Op &op = graph.at(tensor.op);
    Tensor source = tensor;
    const std::vector<int64_t> &permutation = op.integers(Key::Permutation);
    for (size_t i = 0; i < permutation.size(); ++i) {
      source.labels[permutation[i]] = tensor.labels[i];
      source.axes[permutation[i]] = tensor.axes[i];
    }
    source.op = op.operands[0];
    tensor = source;
  }
}

Tensor Elaborator::contract(Tensor left, Tensor right, const std::vector<int> &result, const std::vector<int> &summed,
                            Span span, Frame &frame) {
  std::map<int, Number> sizes;
  for (Tensor *tensor : {&left, &right}) {
    lookThroughTranspose(*tensor, *graph);
    for (size_t i = 0; i < tensor->labels.size(); ++i) {
      auto [entry, isNew] = sizes.try_emplace(tensor->labels[i], tensor->axes[i]);
      entry->second = betterName(entry->second, tensor->axes[i]);
    }
  }
  std::vector<int> operands;
  Lists maps;
  for (Tensor *tensor : {&left, &right}) {
    std::vector<int> labels = tensor->labels;
    std::vector<Number> axes = tensor->axes;
    for (int label : summed) // a summed index that only the other has
      if (std::find(labels.begin(), labels.end(), label) == labels.end()) {
        labels.push_back(label);
        axes.push_back(sizes[label]);
      }
    *tensor = bring(*tensor, labels, axes, span, frame);
    operands.push_back(tensor->op);
    maps.emplace_back();
    for (int label : labels) {
      auto kept = std::find(result.begin(), result.end(), label);
      auto gone = std::find(summed.begin(), summed.end(), label);
      maps.back().push_back(kept != result.end() ? kept - result.begin()
                                                 : static_cast<int64_t>(result.size()) + (gone - summed.begin()));
    }
  }
  std::vector<Number> axes;
  for (int label : result)
    axes.push_back(sizes[label]);
  Op op(OpKind::Contract, operands, {{Key::LhsLabels, maps[0]}, {Key::RhsLabels, maps[1]}});
  Tensor product = emit(std::move(op), DType::F32, axes, span, frame);
  product.labels = result;
  return product;
}

} // namespace cinch
