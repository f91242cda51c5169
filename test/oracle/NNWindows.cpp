// NNWindows.cpp: convolutions and pools, by asking of every pair of elements whether they meet.
#include "test/oracle/NNSums.h"
#include <cmath>

using namespace mlir;

namespace cinch::oracle {

// Row-major number of an element of [.., rows, columns, channels]; -1 outside.
static int64_t numberOf(const Shape &shape, int64_t lead, int64_t row, int64_t column, int64_t channel) {
  size_t rank = shape.size();
  if (row < 0 || column < 0 || row >= shape[rank - 3] || column >= shape[rank - 2])
    return -1;
  return ((lead * shape[rank - 3] + row) * shape[rank - 2] + column) * shape[rank - 1] + channel;
}

static int64_t leadsOf(const Shape &shape) {
  int64_t leads = 1;
  for (size_t i = 0; i + 3 < shape.size(); ++i)
    leads *= shape[i];
  return leads;
}

Array convOf(nn::ConvOp op, const Array &a, const Array &b, const Shape &resultShape) {
  Array result = Array::filled(resultShape, 0);
  auto gives = op.getGives();
  auto shapeOfPart = [&](nn::ConvPart part) { return nn::tensorOf(op.part(part)).getShape().vec(); };
  Shape image = shapeOfPart(nn::ConvPart::Image), filter = shapeOfPart(nn::ConvPart::Filter);
  Shape output = shapeOfPart(nn::ConvPart::Output);
  size_t rank = output.size();
  int64_t groupOut = filter[3] / int64_t(op.getGroups());
  for (int64_t lead = 0; lead < leadsOf(output); ++lead) {
    Shape walk{output[rank - 3], output[rank - 2], filter[0], filter[1], filter[2], filter[3]}, at(6, 0);
    do {
      int64_t row = at[0] * op.getStride()[0] + at[2] * op.getDilate()[0] - op.getPad()[0];
      int64_t column = at[1] * op.getStride()[1] + at[3] * op.getDilate()[1] - op.getPad()[1];
      int64_t x = numberOf(image, lead, row, column, at[5] / groupOut * filter[2] + at[4]);
      int64_t y = numberOf(output, lead, at[0], at[1], at[5]);
      int64_t w = ((at[2] * filter[1] + at[3]) * filter[2] + at[4]) * filter[3] + at[5];
      if (x < 0)
        continue;
      if (gives == nn::ConvPart::Output)
        result.data[y] += a.data[x] * b.data[w];
      else if (gives == nn::ConvPart::Image)
        result.data[x] += a.data[y] * b.data[w];
      else
        result.data[w] += a.data[x] * b.data[y];
    } while (advance(at, walk));
  }
  return result;
}

Arrays poolOf(Operation *op, ArrayRef<const Array *> operands) {
  auto shapeOfValue = [](Value value) { return Shape(nn::tensorOf(value).getShape().vec()); };
  auto numbers = [&](const char *name) { return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef(); };
  ArrayRef<int64_t> window = numbers("window"), stride = numbers("stride"), pad = numbers("pad");
  bool gradient = isa<nn::MaxPoolGradOp, nn::SumPoolGradOp>(op), max = isa<nn::MaxPoolOp, nn::MaxPoolGradOp>(op);
  Shape image = shapeOfValue(gradient ? op->getResult(0) : op->getOperand(0));
  Shape output = shapeOfValue(gradient ? op->getOperands().back() : op->getResult(0));
  size_t rank = output.size();
  Array y = Array::filled(gradient ? image : output, gradient || !max ? 0 : -std::numeric_limits<double>::infinity());
  Array place = Array::filled(output, -1);
  for (int64_t lead = 0; lead < leadsOf(output); ++lead) {
    Shape walk{output[rank - 3], output[rank - 2], window[0], window[1], output[rank - 1]}, at(5, 0);
    do {
      int64_t x = numberOf(image, lead, at[0] * stride[0] + at[2] - pad[0], at[1] * stride[1] + at[3] - pad[1], at[4]);
      int64_t to = numberOf(output, lead, at[0], at[1], at[4]), number = at[2] * window[1] + at[3];
      if (x < 0)
        continue;
      if (gradient) {
        if (!max || operands[0]->data[to] == double(number))
          y.data[x] += operands.back()->data[to];
      } else if (!max) {
        y.data[to] += operands[0]->data[x];
      } else if (place.data[to] < 0 || operands[0]->data[x] > y.data[to]) {
        y.data[to] = operands[0]->data[x];
        place.data[to] = double(number);
      }
    } while (advance(at, walk));
  }
  if (max && !gradient)
    return {y, place};
  return {y};
}

} // namespace cinch::oracle
