// Emit.cpp: adds ops to the graph being built, with the checks that hold for every tensor: whole axes of a sensible
// size, at most one batch axis, bytes that can exist, integers that stay within i32.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

bool Elaborator::sameSize(const Number &a, const Number &b) const {
  if (sameForm(a, b))
    return true;
  if (isBatch(a) || isBatch(b))
    return false;
  return (!a.hasNames() || !b.hasNames()) && compareNumbers(a, b) == 0;
}

const Number &Elaborator::betterName(const Number &a, const Number &b) const { return a.hasNames() ? a : b; }

int Elaborator::batchAxis(const std::vector<Number> &axes) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (isBatch(axes[i]))
      return static_cast<int>(i);
  return -1;
}

std::string Elaborator::sameLength(const Tensor &tensor, const Number &size) const {
  std::string axes, found;
  for (const Number &axis : tensor.axes) {
    const bool isIt = found.empty() && axis.integer() && axis.integer() == size.integer() && !sameForm(axis, size);
    if (isIt)
      found = sizeText(axis);
    axes += (axes.empty() ? "" : ", ") + formOf(isIt ? size : axis, dims);
  }
  return found.empty() ? "" : "the axis " + found + " is as long, but is not called so; `reshape[" + axes + "](..)` calls it so";
}

bool Elaborator::checkAxis(const Number &axis, Span span, Frame &frame) {
  // A number of many digits is none of these.
  const bool isHuge = axis.exact ? axis.value.isWhole() && !axis.integer() && axis.sign() > 0 : axis.real > INT32_MAX;
  if (isHuge) {
    report(Code::E0204, span, "an axis must be below 2^31, but this is " + (axis.exact ? sizeText(axis) : valueOf(axis)), frame);
    return false;
  }
  if (!axis.exact) {
    report(Code::E0204, span, "a size must be an exact number, but this is " + valueOf(axis), frame);
    return false;
  }
  std::optional<int64_t> value = axis.integer();
  if (!value || *value < 1) {
    Diagnostic &d =
        report(Code::E0204, span, "an axis must be a whole number of at least 1, but this is " + sizeText(axis), frame);
    std::string origin = originOf(axis);
    if (!origin.empty())
      d.note(origin);
    if (!axis.value.isWhole())
      d.help("`/` never truncates; write floor(..) if rounding down is meant");
    return false;
  }
  if (*value > INT32_MAX) {
    report(Code::E0204, span, "an axis must be below 2^31, but this is " + sizeText(axis), frame);
    return false;
  }
  if (batchDim >= 0 && axis.mentions(batchDim) && !isBatch(axis)) {
    report(Code::E0503, span,
           "the batch dim " + dims[batchDim].name + " may not be part of another axis, as in " + formOf(axis, dims),
           frame)
        .help("keep " + dims[batchDim].name + " as an axis of its own");
    return false;
  }
  return true;
}

// The result is always usable, so that callers need not ask; after an error `eval` drops the value that was made with
// it.
Tensor Elaborator::emit(Op op, DType dtype, std::vector<Number> axes, Span span, Frame &frame) {
  op.type.dtype = dtype;
  op.type.shape.clear();
  op.type.batch = -1;
  bool good = true;
  double bytes = dtype == DType::Bool ? 1 : 4;
  for (size_t i = 0; i < axes.size(); ++i) {
    bool axisGood = good && checkAxis(axes[i], span, frame);
    good &= axisGood;
    op.type.shape.push_back(axisGood ? *axes[i].integer() : 1);
    bytes *= static_cast<double>(op.type.shape.back());
    if (!isBatch(axes[i]))
      continue;
    if (op.type.batch >= 0 && good) {
      report(Code::E0503, span,
             "the result has the batch axis " + dims[batchDim].name + " twice: " + typeText(dtype, axes, dims), frame)
          .help("examples may not be compared with one another, but with those of their group: group_all(x, group = n), in `train`; reductions over the "
                "batch stand there, too");
      good = false;
    }
    op.type.batch = static_cast<int>(i);
  }
  if (good && bytes >= 70368744177664.0) // 2^46
    good = false, report(Code::E0205, span,
                         "a tensor must be smaller than 2^46 bytes, but this is " + typeText(dtype, axes, dims) +
                             " of " + countText(bytes) + " bytes",
                         frame);
  // Sums of bytes, of gradients too and of f64, are whole numbers of 64 bits from here on.
  allBytes += good ? bytes : 0;
  if (good && allBytes >= 576460752303423488.0 && !tooManyBytes) { // 2^59
    report(Code::E0205, span,
           "all tensors of a program together must be smaller than 2^59 bytes, and with " + typeText(dtype, axes, dims) +
               " they are " + countText(allBytes),
           frame);
    tooManyBytes = true;
  }
  badOps += !good;
  Tensor result;
  result.dtype = dtype;
  result.axes = std::move(axes);
  TensorType type = op.type;
  result.op = emit(std::move(op), std::move(type), span, frame);
  return result;
}

int Elaborator::emit(Op op, TensorType type, Span span, Frame &frame) {
  op.type = std::move(type);
  op.span = span;
  op.instance = frame.node ? frame.node->instance : 0;
  op.block = frame.block;
  if (op.operands.empty()) // constants, parameters: no part of a block
    op.block = op.draws() ? frame.block : -1;
  if (--opsLeft < 0) {
    if (!tooLarge)
      report(Code::E0207, span, "the program has too many operations", frame).help("make `repeat` counts smaller");
    tooLarge = true;
    ++badOps;
    return 0;
  }
  return graph->add(std::move(op));
}

} // namespace cinch
