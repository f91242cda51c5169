// WindowBuiltins.cpp: convolutions and pools. The language's tensors have their channels before the rows and columns, as
// PyTorch's; the ops have them behind. What has one axis (L) is an image of L rows of one column, so that blocks of rows can cut it.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

// A number of the call, whole and at least so large.
std::optional<int64_t> Elaborator::wholeArgument(const Frame &callee, const char *name, int64_t least, Span span, Frame &frame) {
  const Value &value = callee.names.at(name).value;
  std::optional<int64_t> number = value.isNumber() ? value.number.integer() : std::nullopt;
  if (number && *number >= least && *number <= INT32_MAX)
    return number;
  report(Code::E0311, span,
         std::string("`") + name + "` is a whole number of at least " + std::to_string(least) + " and at most " + std::to_string(INT32_MAX) + ", but this is " +
             describe(value, dims),
         frame);
  return std::nullopt;
}

// The sizes of a signature's names in a call; none of them is the batch.
bool Elaborator::windowSizes(const Frame &callee, const std::vector<const char *> &names, const std::string &builtin, Span span,
                             Frame &frame) {
  for (const char *name : names)
    if (isBatch(callee.names.at(name).value.number)) {
      report(Code::E0502, span, "`" + builtin + "` along the batch axis " + dims[batchDim].name + " mixes examples", frame)
          .help("keep " + dims[batchDim].name + " before the channels");
      return false;
    }
  return true;
}

// [.., C, H, W] as [.., H, W, C], and [.., C, L] as [.., L, 1, C]; and back.
Tensor Elaborator::channelsLast(const Tensor &x, bool oneAxis, Span span, Frame &frame) {
  std::vector<int64_t> order;
  int64_t rank = int64_t(x.axes.size()), channel = rank - (oneAxis ? 2 : 3);
  for (int64_t axis = 0; axis < rank; ++axis)
    if (axis != channel)
      order.push_back(axis);
  order.push_back(channel);
  Tensor moved = transposed(x, order, span, frame);
  if (!oneAxis)
    return moved;
  std::vector<Number> axes = moved.axes;
  axes.insert(axes.end() - 1, Number(1));
  return emit(Op(OpKind::Reshape, {moved.op}), x.dtype, axes, span, frame);
}

Tensor Elaborator::channelsFirst(Tensor y, bool oneAxis, Span span, Frame &frame) {
  if (oneAxis) {
    std::vector<Number> axes = y.axes;
    axes.erase(axes.end() - 2);
    y = emit(Op(OpKind::Reshape, {y.op}), y.dtype, axes, span, frame);
  }
  std::vector<int64_t> order;
  int64_t rank = int64_t(y.axes.size()), behind = oneAxis ? 1 : 2;
  for (int64_t axis = 0; axis < rank - 1; ++axis) {
    if (axis == rank - 1 - behind)
      order.push_back(rank - 1);
    order.push_back(axis);
  }
  return transposed(y, order, span, frame);
}

Value Elaborator::builtinConvolution(const LayerItem &item, const std::vector<Argument> &args, Span span, Frame &frame) {
  const std::string &name = item.name.text;
  bool transposes = name.rfind("conv_transpose", 0) == 0, oneAxis = name.back() == 'd' && name[name.size() - 2] == '1';
  Frame callee;
  if (!bindBuiltin(item, args, span, frame, callee))
    return {};
  std::vector<const char *> images = oneAxis ? std::vector{"L"} : std::vector{"H", "W"};
  std::vector<const char *> filters = oneAxis ? std::vector{"k"} : std::vector{"k", "l"};
  std::vector<const char *> sizes = {"Ci", "Co"};
  sizes.insert(sizes.end(), images.begin(), images.end());
  sizes.insert(sizes.end(), filters.begin(), filters.end());
  if (!windowSizes(callee, sizes, name, span, frame))
    return {};
  auto size = [&](const char *of) { return *callee.names.at(of).value.number.integer(); };
  std::optional<int64_t> stride = wholeArgument(callee, "stride", 1, span, frame);
  std::optional<int64_t> pad = stride ? wholeArgument(callee, "pad", 0, span, frame) : std::nullopt;
  std::optional<int64_t> dilate = transposes ? 1 : pad ? wholeArgument(callee, "dilate", 1, span, frame) : std::nullopt;
  std::optional<int64_t> groups = transposes ? 1 : dilate ? wholeArgument(callee, "groups", 1, span, frame) : std::nullopt;
  if (!stride || !pad || !dilate || !groups)
    return {};
  if (size("Co") % *groups != 0)
    return failure(Code::E0311, span,
                   "`groups` must divide the output channels, but " + std::to_string(*groups) + " does not divide " +
                       sizeText(callee.names.at("Co").value.number),
                   frame);
  for (size_t i = 0; i < images.size() && !transposes; ++i)
    if (size(images[i]) + 2 * *pad < *dilate * (size(filters[i]) - 1) + 1)
      return failure(Code::E0311, span,
                     "a kernel that reaches over " + std::to_string(*dilate * (size(filters[i]) - 1) + 1) +
                         " elements does not fit into " + sizeText(callee.names.at(images[i]).value.number) + " and " +
                         std::to_string(2 * *pad) + " of padding",
                     frame);
  for (size_t i = 0; i < images.size() && transposes; ++i)
    if ((size(images[i]) - 1) * *stride + size(filters[i]) - 2 * *pad < 1)
      return failure(Code::E0311, span, "a padding of " + std::to_string(*pad) + " leaves nothing of the result", frame);
  std::optional<std::vector<Number>> axes = typeAxes(item.signature.results[0], callee);
  if (!axes)
    return {};

  Tensor x = channelsLast(callee.names.at("x").value.tensor, oneAxis, span, frame);
  Tensor w = callee.names.at("w").value.tensor; // [O, C, k, l], of a transposed one [C, O, k, l]
  w = transposed(w, oneAxis ? std::vector<int64_t>{2, 1, 0} : std::vector<int64_t>{2, 3, 1, 0}, span, frame);
  if (oneAxis) {
    std::vector<Number> filter = w.axes;
    filter.insert(filter.begin() + 1, Number(1));
    w = emit(Op(OpKind::Reshape, {w.op}), w.dtype, filter, span, frame);
  }
  auto pair = [&](int64_t number, int64_t ofColumn) { return std::vector<int64_t>{number, oneAxis ? ofColumn : number}; };
  Op op(OpKind::Conv, {x.op, w.op},
        {{Key::Gives, int64_t(transposes ? ConvPart::Image : ConvPart::Output)}, {Key::Stride, pair(*stride, 1)},
         {Key::Pad, pair(*pad, 0)}, {Key::Dilate, pair(*dilate, 1)}, {Key::Groups, *groups}});
  std::vector<Number> last = *axes; // with the channels behind
  size_t channel = last.size() - images.size() - 1;
  Number channels = last[channel];
  last.erase(last.begin() + channel);
  if (oneAxis)
    last.push_back(Number(1));
  last.push_back(channels);
  Tensor y = emit(std::move(op), DType::F32, last, span, frame);
  return Value::of(channelsFirst(y, oneAxis, span, frame));
}

// The axis before the rows and columns serves as channels, unless it is the batch or absent.
Value Elaborator::builtinPool(const LayerItem &item, const std::vector<Argument> &args, Span span, Frame &frame) {
  const std::string &name = item.name.text;
  bool max = name.rfind("max", 0) == 0, oneAxis = name[name.size() - 2] == '1';
  Frame callee;
  if (!bindBuiltin(item, args, span, frame, callee))
    return {};
  std::vector<const char *> images = oneAxis ? std::vector{"L"} : std::vector{"H", "W"};
  if (!windowSizes(callee, images, name, span, frame))
    return {};
  std::optional<int64_t> window = wholeArgument(callee, "k", 1, span, frame);
  std::optional<int64_t> stride = window ? wholeArgument(callee, "stride", 1, span, frame) : std::nullopt;
  std::optional<int64_t> pad = stride ? wholeArgument(callee, "pad", 0, span, frame) : std::nullopt;
  if (!pad)
    return {};
  if (*pad >= *window)
    return failure(Code::E0311, span,
                   "a window of " + std::to_string(*window) + " would lie wholly in a padding of " + std::to_string(*pad), frame);
  for (const char *image : images)
    if (*callee.names.at(image).value.number.integer() + 2 * *pad < *window)
      return failure(Code::E0311, span,
                     "a window of " + std::to_string(*window) + " does not fit into " +
                         sizeText(callee.names.at(image).value.number) + " and " + std::to_string(2 * *pad) + " of padding",
                     frame);
  std::optional<std::vector<Number>> axes = typeAxes(item.signature.results[0], callee);
  if (!axes)
    return {};

  Tensor x = callee.names.at("x").value.tensor;
  size_t leads = x.axes.size() - images.size();
  bool hasChannels = leads > 0 && !isBatch(x.axes[leads - 1]);
  std::vector<Number> last = *axes;
  if (!hasChannels) {
    std::vector<Number> one = x.axes;
    one.insert(one.begin() + leads, Number(1));
    x.op = emit(Op(OpKind::Reshape, {x.op}), x.dtype, one, span, frame).op;
    x.axes = one;
    last.push_back(Number(1));
  } else {
    last.push_back(last[leads - 1]);
    last.erase(last.begin() + leads - 1);
  }
  if (oneAxis)
    last.insert(last.end() - 1, Number(1));
  x = channelsLast(x, oneAxis, span, frame);
  auto pair = [&](int64_t number, int64_t ofColumn) { return std::vector<int64_t>{number, oneAxis ? ofColumn : number}; };
  Op op(max ? OpKind::MaxPool : OpKind::SumPool, {x.op},
        {{Key::Window, pair(*window, 1)}, {Key::Stride, pair(*stride, 1)}, {Key::Pad, pair(*pad, 0)}});
  Tensor y = emit(std::move(op), DType::F32, last, span, frame);
  if (!max) {
    double count = double(*window) * double(oneAxis ? 1 : *window);
    Tensor number = emit(Op(OpKind::Constant, {}, {{Key::Number, count}}), DType::F32, y.axes, span, frame);
    y = emit(Op(OpKind::Div, {y.op, number.op}), DType::F32, y.axes, span, frame);
  }
  y = channelsFirst(y, oneAxis, span, frame);
  if (!hasChannels)
    y = emit(Op(OpKind::Reshape, {y.op}), DType::F32, *axes, span, frame);
  return Value::of(y);
}

} // namespace cinch
