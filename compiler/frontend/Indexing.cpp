// Indexing.cpp: x[slots]: slices, constant positions and gathers outside of index notation; operands indexed in full
// inside.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>

namespace cinch {

using namespace ast;

Value Elaborator::evalIndex(const Expr &expr, Frame &frame) {
  const Expr &base = *expr.children[0];
  if (base.kind == ExprKind::Name && !frame.names.count(base.text) &&
      !(frame.file != 0 && fileFrame.names.count(base.text)) && findLayer(base.text, frame.file) &&
      !(frame.index && frame.index->find(base.text) >= 0))
    return callNamed(expr, base, &expr.slots, {}, frame);
  Value value = evalWhole(base, frame);
  if (value.isError())
    return {};
  if (!value.isTensor()) {
    return failure(Code::E0212, base.span,
                   "only a tensor has axes to index, but `" + textOf(base.span) + "` is " + describe(value, dims),
                   frame);
  }
  for (const Slot &slot : expr.slots)
    if (slot.name) {
      report(Code::E0212, slot.span, "a slot of a tensor has no name, but this is `" + slot.name.text + " = ..`",
             frame);
      return {};
    }
  return frame.index ? indexScalar(value.tensor, expr, frame) : indexWhole(value.tensor, expr, frame);
}

// One slot an axis; nullptr for the axes that `..` stands for (or that are left out at the end).
bool Elaborator::placeSlots(const Expr &expr, size_t rank, Frame &frame, std::vector<const Slot *> &slots,
                            size_t &dotsAt, size_t &dotsCount) {
  size_t given = 0, dots = 0;
  for (const Slot &slot : expr.slots)
    (slot.kind == Slot::Dots ? dots : given) += 1;
  if (dots > 1) {
    report(Code::E0212, expr.op, "`..` stands twice in one index", frame);
    return false;
  }
  if (given > rank) {
    report(Code::E0212, expr.op, std::to_string(given) + " slots for " + std::to_string(rank) + " axes", frame)
        .label(expr.children[0]->span, textOf(expr.children[0]->span) + " has " + std::to_string(rank) + " axes");
    return false;
  }
  dotsCount = rank - given;
  slots.clear();
  for (const Slot &slot : expr.slots) {
    if (slot.kind != Slot::Dots) {
      slots.push_back(&slot);
      continue;
    }
    dotsAt = slots.size();
    slots.insert(slots.end(), dotsCount, nullptr);
  }
  if (dots == 0) {
    dotsAt = slots.size();
    slots.insert(slots.end(), dotsCount, nullptr);
  }
  return true;
}

std::optional<int64_t> Elaborator::constantIndex(const Value &value, const Number &axis, Span span, Frame &frame) {
  std::optional<int64_t> at = value.isNumber() ? value.number.integer() : std::nullopt;
  if (!at) {
    report(Code::E0212, span, "an index must be a whole number or an i32 tensor, but this is " + describe(value, dims),
           frame);
    return std::nullopt;
  }
  std::optional<int64_t> size = axis.integer();
  if (*at < 0 || (size && *at >= *size)) {
    report(Code::E0209, span, "index " + std::to_string(*at) + " is outside of the axis " + sizeText(axis), frame)
        .help(size && *at < 0 ? "count from the end as " + formOf(axis, dims) + " - " + std::to_string(-*at) : "");
    return std::nullopt;
  }
  return at;
}

bool Elaborator::checkGatherRange(const Tensor &index, const Number &axis, Span span, Frame &frame) {
  std::optional<int64_t> size = axis.integer();
  if (mayBeExcept(index)) {
    report(Code::E0211, span, "an index may not hold the `except` value of the data", frame)
        .help("write where(c, y, 0)");
    return false;
  }
  if (!size || index.range.within(0, *size - 1))
    return true;
  Diagnostic &d = report(Code::E0209, span,
                         "an index must be known to lie in 0 .. " + std::to_string(*size - 1) + ", but this is " +
                             intervalText(index.range),
                         frame);
  d.label(span, textOf(span) + ": " + describe(Value::of(index), dims));
  d.help(index.range.known
             ? "declare a larger axis, or bound it with min and max"
             : "declare the integers `below " + formOf(axis, dims) + "`, in data or in the parameter's type");
  return false;
}

// The axis goes away.
Tensor Elaborator::dropAxis(const Tensor &tensor, size_t axis, int64_t at, Span span, Frame &frame) {
  Tensor result = tensor;
  if (tensor.axes[axis].integer() != 1) {
    Op slice(OpKind::Slice, {tensor.op}, {{Key::Axis, int64_t(axis)}, {Key::Begin, at}, {Key::End, at + 1}});
    std::vector<Number> axes = tensor.axes;
    axes[axis] = Number(1);
    result.op = emit(std::move(slice), tensor.dtype, axes, span, frame).op;
  }
  result.axes.erase(result.axes.begin() + axis);
  if (!result.labels.empty())
    result.labels.erase(result.labels.begin() + axis);
  result.op = emit(Op(OpKind::Reshape, {result.op}), tensor.dtype, result.axes, span, frame).op;
  return result;
}

// Axis k of `result`, which is `axis` long, from the slot's beginning to its end; false after an error.
bool Elaborator::sliceAxis(Tensor &result, size_t k, const Number &axis, const Slot &slot, Span span, Frame &frame) {
  std::optional<Number> begin = Number(0), end = axis;
  if (slot.begin)
    begin = evalConstantNumber(*slot.begin, frame, "the beginning of a slice");
  if (slot.end)
    end = evalConstantNumber(*slot.end, frame, "the end of a slice");
  if (!begin || !end)
    return false;
  std::optional<int64_t> from = begin->integer(), to = end->integer(), size = axis.integer();
  std::optional<Number> length = subtractNumbers(*end, *begin);
  if (!from || !to || *from < 0 || *to <= *from || (size && *to > *size) || !length) {
    report(Code::E0212, slot.span,
           "the slice " + sizeText(*begin) + " : " + sizeText(*end) + " is not inside the axis " + sizeText(axis) + " or is empty", frame);
    return false;
  }
  if (size && *from == 0 && *to == *size && sameSize(*end, axis))
    return true;
  Op op(OpKind::Slice, {result.op}, {{Key::Axis, int64_t(k)}, {Key::Begin, *from}, {Key::End, *to}});
  result.axes[k] = *length;
  result.op = emit(std::move(op), result.dtype, result.axes, span, frame).op;
  return true;
}

// The axes of the index tensor replace the axis.
Tensor Elaborator::gatherAxis(const Tensor &x, size_t axis, const Tensor &index, Span span, Frame &frame) {
  std::vector<Number> axes;
  std::vector<int64_t> ofBase, ofIndex;
  for (size_t k = 0; k < x.axes.size(); ++k) {
    if (k != axis) {
      ofBase.push_back(int64_t(axes.size()));
      axes.push_back(x.axes[k]);
      continue;
    }
    ofBase.push_back(-1);
    for (const Number &size : index.axes) {
      ofIndex.push_back(int64_t(axes.size()));
      axes.push_back(size);
    }
  }
  Op op(OpKind::Gather, {x.op, index.op}, {{Key::XLabels, ofBase}, {Key::IndexLabels, Lists{ofIndex}}});
  Tensor gathered = emit(std::move(op), x.dtype, axes, span, frame);
  gathered.range = x.range;
  gathered.hasExcept = x.hasExcept;
  gathered.except = x.except;
  return gathered;
}

Value Elaborator::indexWhole(const Tensor &base, const Expr &expr, Frame &frame) {
  std::vector<const Slot *> slots;
  size_t dotsAt = 0, dotsCount = 0;
  if (!placeSlots(expr, base.axes.size(), frame, slots, dotsAt, dotsCount))
    return {};
  Tensor result = base;
  std::optional<Tensor> index;
  size_t indexAxis = 0;
  bool bad = false;
  for (size_t k = slots.size(); k-- > 0;) { // from the right, so that axes that go do not move the others
    const Slot *slot = slots[k];
    if (!slot || (slot->kind == Slot::Range && !slot->begin && !slot->end))
      continue;
    const Number axis = base.axes[k];
    if (isBatch(axis)) {
      report(Code::E0502, slot->span, "the batch axis " + dims[batchDim].name + " may not be sliced or indexed", frame)
          .help("write `:` or `..` there; operations work example by example");
      return {};
    }
    if (slot->kind == Slot::Range) {
      bad |= !sliceAxis(result, k, axis, *slot, expr.span, frame);
      continue;
    }
    Value at = eval(*slot->begin, frame);
    if (at.isError()) {
      bad = true;
      continue;
    }
    if (at.isTensor() && at.tensor.dtype == DType::I32) {
      if (index) {
        report(Code::E0212, slot->span, "only one slot may be a tensor", frame)
            .help("write index notation, y[i] = x[row[i], column[i]]");
        return {};
      }
      if (!checkGatherRange(at.tensor, axis, slot->span, frame))
        bad = true;
      index = at.tensor;
      indexAxis = k;
      continue;
    }
    std::optional<int64_t> position = constantIndex(at, axis, slot->span, frame);
    if (!position) {
      bad = true;
      continue;
    }
    result = dropAxis(result, k, *position, expr.span, frame);
    if (index)
      --indexAxis;
  }
  if (bad)
    return {};
  return Value::of(index ? gatherAxis(result, indexAxis, *index, expr.span, frame) : result);
}

// The elements of x at the `indices` that its labels -2, -3 .. stand for. The axes of the result are in the order of their labels.
Tensor Elaborator::gatherByIndex(const Tensor &x, const std::vector<Tensor> &indices, Span span, Frame &frame) {
  std::map<int, Number> found; // canonical order
  for (size_t k = 0; k < x.axes.size(); ++k)
    if (x.labels[k] >= 0)
      found[x.labels[k]] = x.axes[k];
  for (const Tensor &tensor : indices)
    for (size_t k = 0; k < tensor.axes.size(); ++k) {
      auto [entry, isNew] = found.try_emplace(tensor.labels[k], tensor.axes[k]);
      entry->second = betterName(entry->second, tensor.axes[k]);
    }
  Tensor gathered = x;
  gathered.labels.clear();
  gathered.axes.clear();
  for (const auto &[label, axis] : found) {
    gathered.labels.push_back(label);
    gathered.axes.push_back(axis);
  }
  auto place = [&](int label) -> int64_t {
    return std::find(gathered.labels.begin(), gathered.labels.end(), label) - gathered.labels.begin();
  };
  std::vector<int> operands = {x.op};
  std::vector<int64_t> ofBase;
  Lists ofIndices;
  for (int label : x.labels)
    ofBase.push_back(label >= 0 ? place(label) : label + 1); // -1 - j stands for index tensor j
  for (const Tensor &tensor : indices) {
    operands.push_back(tensor.op);
    ofIndices.emplace_back();
    for (int label : tensor.labels)
      ofIndices.back().push_back(place(label));
  }
  Op op(OpKind::Gather, operands, {{Key::XLabels, ofBase}, {Key::IndexLabels, ofIndices}});
  gathered.op = emit(std::move(op), x.dtype, gathered.axes, span, frame).op;
  return gathered;
}

// The axes that `..` stands for get the labels of `..` in the statement; false after an error.
bool Elaborator::labelDots(Tensor &tensor, size_t first, size_t count, const Expr &expr, Frame &frame) {
  IndexScope &scope = *frame.index;
  int dots = scope.find("");
  if (dots < 0) {
    report(Code::E0404, expr.op, "`..` is neither on the left nor bound by a reduction", frame);
    return false;
  }
  std::vector<Number> sizes(tensor.axes.begin() + first, tensor.axes.begin() + first + count);
  if (!useDots(dots, sizes, expr.span, frame))
    return false;
  for (size_t k = 0; k < count; ++k)
    tensor.labels[first + k] = (scope.indices[dots].order << 8) + static_cast<int>(k);
  return true;
}

Value Elaborator::indexScalar(const Tensor &base, const Expr &expr, Frame &frame) {
  IndexScope &scope = *frame.index;
  std::vector<const Slot *> slots;
  size_t dotsAt = 0, dotsCount = 0;
  if (!placeSlots(expr, base.axes.size(), frame, slots, dotsAt, dotsCount))
    return {};
  bool hasDots = false;
  for (const Slot &slot : expr.slots)
    hasDots |= slot.kind == Slot::Dots;
  if (!hasDots && dotsCount > 0)
    return failure(Code::E0402, expr.op,
                   "an operand of index notation is indexed in full, but " + textOf(expr.children[0]->span) + " has " +
                       std::to_string(base.axes.size()) + " axes and " + std::to_string(expr.slots.size()) + " slots",
                   frame);
  Tensor result = base;
  result.labels.assign(base.axes.size(), -1);
  if (hasDots && !labelDots(result, dotsAt, dotsCount, expr, frame))
    return {};
  std::vector<Tensor> gathers;
  std::vector<std::pair<size_t, int64_t>> constants;
  bool bad = false;
  for (size_t k = 0; k < slots.size(); ++k) {
    const Slot *slot = slots[k];
    if (!slot)
      continue;
    if (slot->kind == Slot::Range) {
      report(Code::E0402, slot->span, "a slice has no place in index notation", frame)
          .help("slice outside, z = x[a:b]");
      return {};
    }
    int index = slot->begin->kind == ExprKind::Name ? scope.find(slot->begin->text) : -1;
    if (index >= 0) {
      int label = scope.indices[index].order << 8;
      if (std::find(result.labels.begin(), result.labels.end(), label) != result.labels.end()) {
        report(Code::E0402, slot->span, "index `" + slot->begin->text + "` stands twice in one operand", frame);
        return {};
      }
      bad |= !useIndex(index, base.axes[k], slot->span, frame);
      result.labels[k] = label;
      continue;
    }
    Value at = eval(*slot->begin, frame);
    if (at.isError())
      return {};
    if (isBatch(base.axes[k])) {
      report(Code::E0502, slot->span, "the batch axis " + dims[batchDim].name + " may only be indexed by an index name",
             frame);
      return {};
    }
    if (at.isTensor() && at.tensor.dtype == DType::I32) {
      bad |= !checkGatherRange(at.tensor, base.axes[k], slot->span, frame);
      gathers.push_back(at.tensor);
      result.labels[k] = -1 - static_cast<int>(gathers.size());
      continue;
    }
    std::optional<int64_t> position = constantIndex(at, base.axes[k], slot->span, frame);
    if (!position)
      return {};
    constants.push_back({k, *position});
  }
  if (bad)
    return {};
  for (size_t c = constants.size(); c-- > 0;)
    result = dropAxis(result, constants[c].first, constants[c].second, expr.span, frame);
  return Value::of(gathers.empty() ? result : gatherByIndex(result, gathers, expr.span, frame));
}

} // namespace cinch
