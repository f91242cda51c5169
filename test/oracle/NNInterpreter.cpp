// NNInterpreter.cpp: the walk over a function, and the ops that are one line each.
#include "test/oracle/NNInterpreter.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "test/oracle/NNSums.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;

namespace cinch::oracle {

int64_t sizeOf(const Shape &shape) {
  int64_t size = 1;
  for (int64_t extent : shape)
    size *= extent;
  return size;
}

Array Array::filled(Shape shape, double value) {
  int64_t size = sizeOf(shape);
  return {std::move(shape), std::vector<double>(size, value)};
}

Shape Array::strides() const {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

bool advance(Shape &index, const Shape &shape) {
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (++index[axis] < shape[axis])
      return true;
    index[axis] = 0;
  }
  return false;
}

static Shape shapeOf(Value value) {
  auto shape = nn::tensorOf(value).getShape();
  return Shape(shape.begin(), shape.end());
}

// A new array whose element at each index is computed from the index.
template <typename Function> static Array build(Shape shape, Function function) {
  Array result = Array::filled(shape, 0);
  Shape index(shape.size(), 0);
  for (double &element : result.data) {
    element = function(index);
    advance(index, shape);
  }
  return result;
}

static double at(const Array &x, const Shape &index) {
  Shape strides = x.strides();
  int64_t offset = 0;
  for (size_t axis = 0; axis < index.size(); ++axis)
    offset += strides[axis] * index[axis];
  return x.data[offset];
}

using UnaryFunction = double (*)(double);
using BinaryFunction = double (*)(double, double);

static UnaryFunction unaryOf(Operation *op) {
  return TypeSwitch<Operation *, UnaryFunction>(op)
#define FUNCTION(OP, NAME, FROM, TO, NEAR, ULP32, ULP64, TRUTH)                                                       \
  .Case([](nn::OP##Op) -> UnaryFunction { return [](double x) -> double { return TRUTH; }; })
#include "test/oracle/Functions.def"
      .Case([](nn::FloorOp) -> UnaryFunction { return [](double x) { return std::floor(x); }; })
      .Case([](nn::NotOp) -> UnaryFunction { return [](double x) { return double(x == 0); }; })
      .Case<nn::StopGradientOp, nn::ReshapeOp, nn::NewStateOp>([](auto) -> UnaryFunction { return [](double x) { return x; }; })
      .Default([](Operation *) -> UnaryFunction { return nullptr; });
}

static BinaryFunction comparisonOf(nn::Comparison comparison) {
  switch (comparison) {
  case nn::Comparison::EQ: return [](double a, double b) { return double(a == b); };
  case nn::Comparison::NE: return [](double a, double b) { return double(a != b); };
  case nn::Comparison::LT: return [](double a, double b) { return double(a < b); };
  case nn::Comparison::LE: return [](double a, double b) { return double(a <= b); };
  case nn::Comparison::GT: return [](double a, double b) { return double(a > b); };
  case nn::Comparison::GE: break;
  }
  return [](double a, double b) { return double(a >= b); };
}

static BinaryFunction binaryOf(Operation *op) {
  return TypeSwitch<Operation *, BinaryFunction>(op)
      .Case([](nn::AddOp) -> BinaryFunction { return [](double a, double b) { return a + b; }; })
      .Case([](nn::SubOp) -> BinaryFunction { return [](double a, double b) { return a - b; }; })
      .Case([](nn::MulOp) -> BinaryFunction { return [](double a, double b) { return a * b; }; })
      .Case([](nn::DivOp) -> BinaryFunction { return [](double a, double b) { return a / b; }; })
      .Case([](nn::PowOp) -> BinaryFunction { return [](double a, double b) { return std::pow(a, b); }; })
      .Case([](nn::MaxOp) -> BinaryFunction {
        return [](double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b); };
      })
      .Case([](nn::MinOp) -> BinaryFunction {
        return [](double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b); };
      })
      .Case([](nn::AndOp) -> BinaryFunction { return [](double a, double b) { return double(a != 0 && b != 0); }; })
      .Case([](nn::OrOp) -> BinaryFunction { return [](double a, double b) { return double(a != 0 || b != 0); }; })
      .Case([](nn::CompareOp compare) -> BinaryFunction { return comparisonOf(compare.getComparison()); })
      .Default([](Operation *) -> BinaryFunction { return nullptr; });
}

static Array randomOf(nn::RandomOp op, const RunState &run) {
  auto type = op.getType();
  int64_t batch = nn::batchAxis(type);
  Shape shape(type.getShape().begin(), type.getShape().end());
  return build(shape, [&](const Shape &index) -> double {
    int64_t example = batch < 0 ? 0 : index[batch], element = 0;
    for (int64_t axis = 0; axis < type.getRank(); ++axis)
      if (axis != batch)
        element = element * shape[axis] + index[axis];
    double number = op.getNumber().convertToDouble();
    switch (op.getDraw()) {
    case nn::Draw::Uniform: return drawUniform(run, op.getKey(), example, element);
    case nn::Draw::Normal: return drawNormal(run, op.getKey(), example, element);
    case nn::Draw::Int: return drawBelow(run, op.getKey(), example, element, int64_t(number));
    case nn::Draw::Bool: break;
    }
    return drawBool(run, op.getKey(), example, element, number);
  });
}

static Array concatOf(nn::ConcatOp op, ArrayRef<const Array *> x, const Shape &shape) {
  return build(shape, [&](Shape index) {
    size_t part = 0;
    int64_t axis = op.getAxis();
    while (index[axis] >= x[part]->shape[axis])
      index[axis] -= x[part++]->shape[axis];
    return at(*x[part], index);
  });
}

static Array shapedOf(Operation *op, ArrayRef<const Array *> x, const Shape &shape) {
  return TypeSwitch<Operation *, Array>(op)
      .Case([&](nn::BroadcastOp broadcast) {
        return build(shape, [&](const Shape &index) {
          Shape from;
          for (int64_t axis : broadcast.getAxes())
            from.push_back(index[axis]);
          return at(*x[0], from);
        });
      })
      .Case([&](nn::TransposeOp transpose) {
        return build(shape, [&](const Shape &index) {
          Shape from(index.size());
          for (auto [to, axis] : llvm::enumerate(transpose.getPermutation()))
            from[axis] = index[to];
          return at(*x[0], from);
        });
      })
      .Case([&](nn::SliceOp slice) {
        return build(shape, [&](Shape index) {
          index[slice.getAxis()] += slice.getBegin();
          return at(*x[0], index);
        });
      })
      .Case([&](nn::PadOp pad) {
        return build(shape, [&](Shape index) {
          int64_t place = index[pad.getAxis()] -= pad.getBefore();
          bool inside = place >= 0 && place < x[0]->shape[pad.getAxis()];
          return inside ? at(*x[0], index) : pad.getValue().convertToDouble();
        });
      })
      .Case([&](nn::ReverseOp reverse) {
        return build(shape, [&](Shape index) {
          index[reverse.getAxis()] = shape[reverse.getAxis()] - 1 - index[reverse.getAxis()];
          return at(*x[0], index);
        });
      })
      .Case([&](nn::ConcatOp concat) { return concatOf(concat, x, shape); });
}

static std::optional<int64_t> exceptOf(std::optional<uint64_t> except) {
  return except ? std::optional<int64_t>(int64_t(*except)) : std::nullopt;
}

// Results of one op; empty if it is not known.
static Arrays compute(Operation *op, ArrayRef<const Array *> x, const RunState &run) {
  Shape shape = shapeOf(op->getResult(0));
  if (UnaryFunction function = unaryOf(op))
    return {build(shape, [&, i = size_t(0)](const Shape &) mutable { return function(x[0]->data[i++]); })};
  if (BinaryFunction function = binaryOf(op))
    return {build(shape, [&, i = size_t(0)](const Shape &) mutable {
      double value = function(x[0]->data[i], x[1]->data[i]);
      ++i;
      return value;
    })};
  return TypeSwitch<Operation *, Arrays>(op)
      .Case([&](nn::ConstantOp constant) {
        double number = constant.getNumber().convertToDouble();
        return Arrays{Array::filled(shape, constant.getType().getElementType().isF32() ? float(number) : number)};
      })
      .Case([&](nn::VectorOp vector) {
        return Arrays{Array{shape, std::vector<double>(vector.getNumbers().begin(), vector.getNumbers().end())}};
      })
      .Case([&](nn::RangeOp) { return Arrays{build(shape, [](const Shape &index) { return double(index[0]); })}; })
      .Case([&](nn::RandomOp random) { return Arrays{randomOf(random, run)}; })
      .Case([&](nn::StepOp) { return Arrays{Array::filled({}, double(run.step))}; })
      .Case([&](nn::RunValueOp value) { return Arrays{Array::filled({}, value.getNumber().convertToDouble())}; })
      .Case([&](nn::TotalStepsOp) { return Arrays{Array::filled({}, double(run.totalSteps))}; })
      .Case([&](nn::CastOp) { return Arrays{*x[0]}; })
      .Case([&](nn::WhereOp) {
        return Arrays{build(shape, [&, i = size_t(0)](const Shape &) mutable {
          double value = x[0]->data[i] != 0 ? x[1]->data[i] : x[2]->data[i];
          ++i;
          return value;
        })};
      })
      .Case<nn::BroadcastOp, nn::TransposeOp, nn::SliceOp, nn::PadOp, nn::ReverseOp, nn::ConcatOp>(
          [&](auto shaped) { return Arrays{shapedOf(shaped, x, shape)}; })
      .Case([&](nn::GroupMeanOp mean) {
        int64_t group = mean.getGroup(), batch = nn::batchAxis(mean.getX());
        return Arrays{build(shape, [&](Shape index) {
          double sum = 0;
          index[batch] = index[batch] / group * group;
          for (int64_t i = 0; i < group; ++i, ++index[batch])
            sum += at(*x[0], index);
          return sum / double(group);
        })};
      })
      .Case([&](nn::ReduceOp reduce) { return Arrays{reduceOf(reduce, *x[0], shape)}; })
      .Case([&](nn::ContractOp contract) { return Arrays{contractOf(contract, *x[0], *x[1], shape)}; })
      .Case([&](nn::ConvOp conv) { return Arrays{convOf(conv, *x[0], *x[1], shape)}; })
      .Case<nn::MaxPoolOp, nn::MaxPoolGradOp, nn::SumPoolOp, nn::SumPoolGradOp>([&](auto pool) { return poolOf(pool, x); })
      .Case([&](nn::GatherOp gather) { return Arrays{gatherOf(gather, x, shape)}; })
      .Case([&](nn::ScatterAddOp scatter) { return Arrays{scatterOf(scatter, x, shape)}; })
      .Case([&](nn::SoftmaxOp softmax) { return Arrays{softmaxOf(*x[0], softmax.getAxis(), false)}; })
      .Case([&](nn::LogSoftmaxOp softmax) { return Arrays{softmaxOf(*x[0], softmax.getAxis(), true)}; })
      .Case([&](nn::SoftmaxGradOp grad) { return Arrays{softmaxGradOf(*x[0], *x[1], grad.getAxis(), false)}; })
      .Case([&](nn::LogSoftmaxGradOp grad) { return Arrays{softmaxGradOf(*x[0], *x[1], grad.getAxis(), true)}; })
      .Case([&](nn::ArgMaxOp arg) { return Arrays{extremeOf(*x[0], arg.getAxis(), true, shape)}; })
      .Case([&](nn::ArgMinOp arg) { return Arrays{extremeOf(*x[0], arg.getAxis(), false, shape)}; })
      .Case([&](nn::CrossEntropyOp loss) {
        return Arrays{crossEntropyOf(*x[0], *x[1], loss.getAxis(), loss.getSmooth().convertToDouble(),
                                     exceptOf(loss.getExcept()))};
      })
      .Case([&](nn::CrossEntropyGradOp loss) {
        return Arrays{crossEntropyGradOf(*x[0], *x[1], *x[2], loss.getAxis(), loss.getSmooth().convertToDouble(),
                                         exceptOf(loss.getExcept()))};
      })
      .Case([&](nn::AttendOp attend) { return attendOf(attend, x, run); })
      .Case([&](nn::AttendGradOp grad) { return attendGradOf(grad, x, run); })
      .Case([&](nn::SumSquaresOp) {
        double sum = 0;
        for (double element : x[0]->data)
          sum += element * element;
        return Arrays{Array::filled({}, sum)};
      })
      .Case([&](nn::ClipFactorOp clip) {
        return Arrays{Array::filled({}, std::min(1.0, clip.getLimit().convertToDouble() / (x[0]->data[0] + 1e-6)))};
      })
      .Case([&](nn::LearningRateOp rate) { return Arrays{Array::filled({}, learningRateOf(rate, run))}; })
      .Case([&](nn::UpdateOp update) { return updateOf(update, x, run); })
      .Default([](Operation *) { return Arrays(); });
}

// Examples [first, first + count) of an operand that has a batch axis.
static Array examplesOf(const Array &x, int64_t axis, int64_t first, int64_t count) {
  Shape shape = x.shape;
  shape[axis] = count;
  return build(shape, [&](Shape index) {
    index[axis] += first;
    return at(x, index);
  });
}

// What sums over the batch does so in blocks of the function's grain.
static Arrays computeInBlocks(Operation *op, ArrayRef<const Array *> x, const RunState &run) {
  auto reduce = dyn_cast<nn::ReduceOp>(op);
  bool sums = isa<nn::ContractOp, nn::ConvOp, nn::ScatterAddOp>(op) || (reduce && reduce.getReduction() == nn::Reduction::Sum);
  int64_t grain = nn::grainOf(op);
  if (grain == 0 || !sums || !nn::touchesBatch(op) || nn::hasBatch(op->getResult(0)))
    return compute(op, x, run);
  Value batched = *llvm::find_if(op->getOperands(), [](Value value) { return nn::hasBatch(value); });
  grain /= nn::batchGroup(batched.getType());
  Array total = Array::filled(shapeOf(op->getResult(0)), 0);
  for (int64_t first = 0; first < shapeOf(batched)[nn::batchAxis(batched)]; first += grain) {
    Arrays parts(x.size());
    SmallVector<const Array *> pointers;
    for (auto [part, value, array] : llvm::zip_equal(parts, op->getOperands(), x)) {
      part = nn::hasBatch(value) ? examplesOf(*array, nn::batchAxis(value), first, grain) : *array;
      pointers.push_back(&part);
    }
    Arrays block = compute(op, pointers, run);
    for (auto [sum, element] : llvm::zip_equal(total.data, block[0].data))
      sum += element;
  }
  return {total};
}

FailureOr<std::vector<Array>> interpret(func::FuncOp function, ArrayRef<Array> arguments, const RunState &run) {
  DenseMap<Value, Array> values;
  if (arguments.size() != function.getNumArguments())
    return function.emitError() << "expected " << function.getNumArguments() << " arguments, got " << arguments.size();
  for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments)) {
    if (value.shape != shapeOf(argument) || value.size() != sizeOf(value.shape))
      return function.emitError() << "argument " << argument.getArgNumber() << " has another shape";
    values[argument] = value;
  }
  for (Operation &op : function.getBody().front().without_terminator()) {
    Arrays operands;
    for (Value operand : op.getOperands())
      operands.push_back(values[operand]);
    SmallVector<const Array *> pointers;
    for (const Array &operand : operands)
      pointers.push_back(&operand);
    Arrays results = computeInBlocks(&op, pointers, run);
    if (results.size() != op.getNumResults())
      return op.emitError() << "the oracle does not know this op";
    for (auto [value, result] : llvm::zip_equal(op.getResults(), results))
      values[value] = std::move(result);
  }
  std::vector<Array> results;
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    results.push_back(values[value]);
  return results;
}

} // namespace cinch::oracle
