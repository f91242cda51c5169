// WindowShapes.cpp: convolutions and pools.
#include "dialects/ops/ShapeRules.h"

namespace cinch {

using namespace shapes;

// How often a window fits along an axis.
static int64_t placesOf(int64_t size, int64_t window, int64_t stride, int64_t pad, int64_t dilate = 1) {
  int64_t room = size + 2 * pad - dilate * (window - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// Leading axes, H, W and channels; the batch axis is one of the leading ones.
static std::string spatial(const TensorType &type) {
  if (rankOf(type) < 3 || type.batch >= rankOf(type) - 3) // C1
    return say("expected rows, columns and channels behind the leading axes, the batch axis among these, got ", type);
  return "";
}

// The sizes of [.., P, Q, C] given those of [.., H, W, C].
static TensorType pooled(const OpView &op, TensorType type) {
  size_t rows = type.shape.size() - 3;
  for (size_t i : {0, 1})
    type.shape[rows + i] = placesOf(type.shape[rows + i], op.integers(Key::Window)[i], op.integers(Key::Stride)[i],
                                    op.integers(Key::Pad)[i]);
  return type;
}

static std::string windows(const OpView &op, const TensorType &x) {
  const Shape &window = op.integers(Key::Window), &stride = op.integers(Key::Stride), &pad = op.integers(Key::Pad);
  for (const Shape *list : {&window, &stride, &pad})
    if (list->size() != 2) // C2
      return say("expected two numbers, one of rows and one of columns, got ", list->size());
  for (size_t i : {0, 1})
    if (window[i] < 1 || stride[i] < 1 || pad[i] < 0 || pad[i] >= window[i]) // C2
      return say("expected windows and strides of at least 1 and a padding from 0 to below the window, got ", window[i], ", ",
                 stride[i], " and ", pad[i]);
  if (std::string fault = spatial(x); !fault.empty())
    return fault;
  TensorType y = pooled(op, x);
  if (y.shape[y.shape.size() - 3] < 1 || y.shape[y.shape.size() - 2] < 1) // C3
    return say("a window of ", window[0], " x ", window[1], " does not fit into ", x);
  return "";
}

std::string shapes::pool(const OpView &op, Types &results) {
  if (std::string fault = windows(op, op.in(0)); !fault.empty())
    return fault;
  bool sums = op.kind == OpKind::SumPool && op.in(0).dtype == DType::BF16;
  results.push_back(pooled(op, sums ? withElement(op.in(0), DType::F32) : op.in(0)));
  if (op.kind == OpKind::MaxPool)
    results.push_back(withElement(results[0], DType::I32));
  return "";
}

std::string shapes::poolGrad(const OpView &op, Types &results) {
  if (std::string fault = windows(op, results[0]); !fault.empty())
    return fault;
  const TensorType &dy = *op.operands.back();
  if (TensorType y = pooled(op, results[0]); dy != y) // C3
    return say("expected a gradient of type ", y, ", got ", dy);
  if (op.kind == OpKind::MaxPoolGrad && op.in(0) != withElement(dy, DType::I32)) // C4
    return say("expected places of type ", withElement(dy, DType::I32), ", got ", op.in(0));
  return "";
}

std::string shapes::conv(const OpView &op, Types &results) {
  auto gives = ConvPart(op.integer(Key::Gives));
  const TensorType &image = gives == ConvPart::Image ? results[0] : op.in(0);
  const TensorType &output = gives == ConvPart::Output ? results[0] : gives == ConvPart::Image ? op.in(0) : op.in(1);
  const TensorType &filter = gives == ConvPart::Filter ? results[0] : op.in(1);
  const Shape &stride = op.integers(Key::Stride), &pad = op.integers(Key::Pad), &dilate = op.integers(Key::Dilate);
  int64_t groups = op.integer(Key::Groups);
  if (stride.size() != 2 || pad.size() != 2 || dilate.size() != 2) // C2
    return "expected two strides, paddings and dilations, of rows and of columns";
  for (size_t i : {0, 1})
    if (stride[i] < 1 || pad[i] < 0 || dilate[i] < 1) // C2
      return say("expected strides and dilations of at least 1 and no negative padding, got ", stride[i], ", ", dilate[i],
                 " and ", pad[i]);
  for (const TensorType *type : {&image, &output})
    if (std::string fault = spatial(*type); !fault.empty())
      return fault;
  size_t rows = image.shape.size() - 3;
  if (output.shape.size() != image.shape.size() || output.batch != image.batch ||
      !std::equal(image.shape.begin(), image.shape.begin() + rows, output.shape.begin())) // C1
    return say("expected the same leading axes, got ", image, " and ", output);
  if (rankOf(filter) != 4 || filter.batch >= 0) // C1
    return say("expected a filter of four axes without the examples', got ", filter);
  int64_t in = image.shape.back(), out = output.shape.back();
  if (groups < 1 || in % groups || out % groups || filter.shape[2] != in / groups || filter.shape[3] != out) // C2, C3
    return say("expected a filter from ", in, " to ", out, " channels in ", groups, " groups, got ", filter);
  for (size_t i : {0, 1})
    if (int64_t places = placesOf(image.shape[rows + i], filter.shape[i], stride[i], pad[i], dilate[i]);
        places < 1 || output.shape[rows + i] != places) // C4
      return say("expected ", places, " places of the filter along axis ", rows + i, " of the output, got ", output);
  const DType lhs = op.in(0).dtype, rhs = op.in(1).dtype, result = results[0].dtype;
  auto fits = [](DType type) { return type == DType::F32 || type == DType::BF16; };
  bool rounded = lhs == DType::BF16 || rhs == DType::BF16, whole = gives != ConvPart::Filter;
  bool narrow = whole && result == DType::BF16;
  if (rounded ? !fits(lhs) || !fits(rhs) || (result != DType::F32 && !narrow) : lhs != rhs || lhs != result) // C5
    return say("expected one element type, got ", image, ", ", filter, " and ", output);
  return "";
}

} // namespace cinch
