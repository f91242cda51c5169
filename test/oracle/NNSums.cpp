// NNSums.cpp: reductions, contractions, places, rows and attention, each as its definition reads.
#include "test/oracle/NNSums.h"
#include <cmath>

using namespace mlir;

namespace cinch::oracle {

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

Array reduceOf(nn::ReduceOp op, const Array &x, const Shape &resultShape) {
  auto kind = op.getReduction();
  double neutral = kind == nn::Reduction::Max                                  ? -kInfinity
                   : kind == nn::Reduction::Min                                ? kInfinity
                   : kind == nn::Reduction::Prod || kind == nn::Reduction::All ? 1
                                                                               : 0;
  Array result = Array::filled(resultShape, neutral);
  Shape strides = result.strides(), index(x.rank(), 0);
  for (double element : x.data) {
    int64_t offset = 0, axisOfResult = 0;
    for (int64_t axis = 0; axis < x.rank(); ++axis)
      if (!llvm::is_contained(op.getAxes(), axis))
        offset += strides[axisOfResult++] * index[axis];
    double &sum = result.data[offset];
    switch (kind) {
    case nn::Reduction::Sum: sum += element; break;
    case nn::Reduction::Max: sum = std::isnan(element) ? element : std::max(sum, element); break;
    case nn::Reduction::Min: sum = std::isnan(element) ? element : std::min(sum, element); break;
    case nn::Reduction::Prod: sum *= element; break;
    case nn::Reduction::Any: sum = sum != 0 || element != 0; break;
    case nn::Reduction::All: sum = sum != 0 && element != 0; break;
    }
    advance(index, x.shape);
  }
  return result;
}

// Offset of an operand whose axes carry labels, where every label has a number.
static int64_t offsetOf(const Array &x, ArrayRef<int64_t> labels, const Shape &numbers) {
  Shape strides = x.strides();
  int64_t offset = 0;
  for (auto [axis, label] : llvm::enumerate(labels))
    offset += strides[axis] * numbers[label];
  return offset;
}

Array contractOf(nn::ContractOp op, const Array &a, const Array &b, const Shape &resultShape) {
  Shape extents = resultShape;
  auto note = [&](const Array &x, ArrayRef<int64_t> labels) {
    for (auto [axis, label] : llvm::enumerate(labels)) {
      if (label >= int64_t(extents.size()))
        extents.resize(label + 1, 1);
      extents[label] = x.shape[axis];
    }
  };
  note(a, op.getLhsLabels());
  note(b, op.getRhsLabels());
  Array result = Array::filled(resultShape, 0);
  Shape index(extents.size(), 0);
  SmallVector<int64_t> own = llvm::to_vector(llvm::seq<int64_t>(0, resultShape.size()));
  do
    result.data[offsetOf(result, own, index)] +=
        a.data[offsetOf(a, op.getLhsLabels(), index)] * b.data[offsetOf(b, op.getRhsLabels(), index)];
  while (advance(index, extents));
  return result;
}

// Where in x the result's element `index` of a gather comes from.
static int64_t placeOf(const Shape &strides, ArrayRef<int64_t> xLabels, ArrayAttr indexLabels,
                       ArrayRef<const Array *> indices, const Shape &index) {
  int64_t offset = 0;
  for (auto [axis, label] : llvm::enumerate(xLabels)) {
    int64_t number = label >= 0 ? index[label] : 0;
    if (label < 0) {
      const Array &places = *indices[-label - 1];
      number =
          int64_t(places.data[offsetOf(places, cast<DenseI64ArrayAttr>(indexLabels[-label - 1]).asArrayRef(), index)]);
    }
    offset += strides[axis] * number;
  }
  return offset;
}

Array gatherOf(nn::GatherOp op, ArrayRef<const Array *> operands, const Shape &resultShape) {
  Array result = Array::filled(resultShape, 0);
  Shape index(resultShape.size(), 0), strides = operands[0]->strides();
  for (double &element : result.data) {
    element = operands[0]->data[placeOf(strides, op.getXLabels(), op.getIndexLabels(), operands.drop_front(), index)];
    advance(index, resultShape);
  }
  return result;
}

Array scatterOf(nn::ScatterAddOp op, ArrayRef<const Array *> operands, const Shape &resultShape) {
  Array result = Array::filled(resultShape, 0);
  const Array &updates = *operands[0];
  Shape index(updates.shape.size(), 0), strides = result.strides();
  for (double element : updates.data) {
    result.data[placeOf(strides, op.getXLabels(), op.getIndexLabels(), operands.drop_front(), index)] += element;
    advance(index, updates.shape);
  }
  return result;
}

// Calls function(first offset, stride, count) for every row of x along an axis, in row-major order of the other axes.
template <typename Function> static void forRows(const Array &x, int64_t axis, Function function) {
  int64_t stride = x.strides()[axis], count = x.shape[axis];
  for (int64_t outer = 0; outer < x.size() / (stride * count); ++outer)
    for (int64_t inner = 0; inner < stride; ++inner)
      function(outer * stride * count + inner, stride, count);
}

// The largest of a row, and log(sum(exp(x))) of it.
static std::pair<double, double> logSum(const Array &x, int64_t first, int64_t stride, int64_t count) {
  double largest = -kInfinity, sum = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, x.data[first + i * stride]);
  for (int64_t i = 0; i < count; ++i)
    sum += std::exp(x.data[first + i * stride] - largest);
  return {largest, largest + std::log(sum)};
}

Array softmaxOf(const Array &x, int64_t axis, bool logarithm) {
  Array y = x;
  forRows(x, axis, [&](int64_t first, int64_t stride, int64_t count) {
    double sum = logSum(x, first, stride, count).second;
    for (int64_t i = 0; i < count; ++i) {
      double &element = y.data[first + i * stride];
      element = logarithm ? element - sum : std::exp(element - sum);
    }
  });
  return y;
}

Array softmaxGradOf(const Array &y, const Array &dy, int64_t axis, bool logarithm) {
  Array dx = y;
  forRows(y, axis, [&](int64_t first, int64_t stride, int64_t count) {
    double sum = 0;
    for (int64_t i = first; i < first + count * stride; i += stride)
      sum += logarithm ? dy.data[i] : dy.data[i] * y.data[i];
    for (int64_t i = first; i < first + count * stride; i += stride)
      dx.data[i] = logarithm ? dy.data[i] - std::exp(y.data[i]) * sum : y.data[i] * (dy.data[i] - sum);
  });
  return dx;
}

Array extremeOf(const Array &x, int64_t axis, bool largest, const Shape &resultShape) {
  Array result = Array::filled(resultShape, 0);
  int64_t row = 0;
  forRows(x, axis, [&](int64_t first, int64_t stride, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; ++i) {
      double a = x.data[first + i * stride], b = x.data[first + best * stride];
      if (largest ? a > b : a < b)
        best = i;
    }
    result.data[row++] = double(best);
  });
  return result;
}

Array crossEntropyOf(const Array &logits, const Array &y, int64_t axis, double smooth, std::optional<int64_t> except) {
  Array loss = Array::filled(y.shape, 0);
  int64_t row = 0;
  forRows(logits, axis, [&](int64_t first, int64_t stride, int64_t count) {
    int64_t label = int64_t(y.data[row]);
    double &result = loss.data[row++];
    if (except && label == *except)
      return;
    double total = logSum(logits, first, stride, count).second;
    for (int64_t i = 0; i < count; ++i) {
      double target = (i == label ? 1 - smooth : 0) + smooth / double(count);
      result += target * (total - logits.data[first + i * stride]);
    }
  });
  return loss;
}

Array crossEntropyGradOf(const Array &logits, const Array &y, const Array &dy, int64_t axis, double smooth,
                         std::optional<int64_t> except) {
  Array grad = softmaxOf(logits, axis, false);
  int64_t row = 0;
  forRows(logits, axis, [&](int64_t first, int64_t stride, int64_t count) {
    int64_t label = int64_t(y.data[row]);
    double scale = except && label == *except ? 0 : dy.data[row];
    ++row;
    for (int64_t i = 0; i < count; ++i) {
      double target = (i == label ? 1 - smooth : 0) + smooth / double(count);
      grad.data[first + i * stride] = scale * (grad.data[first + i * stride] - target);
    }
  });
  return grad;
}

} // namespace cinch::oracle
