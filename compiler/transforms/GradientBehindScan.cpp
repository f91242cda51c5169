// GradientBehindScan.cpp: one op over all trips for what an op computes in each.
#include "compiler/transforms/GradientBehindScan.h"
#include "dialects/nn/Scan.h"

using namespace mlir;

namespace cinch {

using Axes = SmallVector<int64_t>;

Value withTrips(nn::GradientBuilder &b, Value value, int64_t trips) {
  auto type = nn::ScanOp::stackedType(value.getType(), trips);
  Axes axes;
  for (int64_t axis = 1; axis < type.getRank(); ++axis)
    axes.push_back(axis);
  return b.broadcast(value, axes, type);
}

bool canStandBehindLoop(Operation *op) {
  auto reduce = dyn_cast_or_null<nn::ReduceOp>(op);
  auto conv = dyn_cast_or_null<nn::ConvOp>(op);
  return isa_and_nonnull<nn::ContractOp, nn::ScatterAddOp>(op) || (reduce && reduce.getReduction() == nn::Reduction::Sum) ||
         (conv && conv.getGives() == nn::ConvPart::Filter);
}

namespace {

struct BehindLoop {
  nn::GradientBuilder &b;
  int64_t trips;
  bool keepsTrips;

  Value contractOf(nn::ContractOp op, SmallVectorImpl<Value> &operands, ArrayRef<bool> timeless) {
    int64_t rank = op.getType().getRank();
    bool sumsBatch = !nn::hasBatch(op.getResult()) && nn::hasBatch(op.getLhs());
    // Behind the labels of the result: the batch, the trips, the others.
    int64_t trip = keepsTrips ? 0 : rank + (sumsBatch ? 1 : 0);
    auto renamed = [&](ArrayRef<int64_t> labels, bool withTrip) {
      SmallVector<int64_t> result;
      if (withTrip)
        result.push_back(trip);
      for (int64_t label : labels)
        result.push_back(keepsTrips ? label + 1 : label < trip ? label : label + 1);
      return result;
    };
    // A summed label stands in both operands, one of the result in at least one.
    bool inBoth = !keepsTrips || (timeless[0] && timeless[1]);
    for (unsigned i = 0; i < 2; ++i)
      if (timeless[i] && inBoth)
        operands[i] = withTrips(b, operands[i], trips);
    auto type = op.getType();
    if (keepsTrips)
      type = nn::ScanOp::stackedType(type, trips);
    return b.make<nn::ContractOp>(type, operands[0], operands[1], renamed(op.getLhsLabels(), inBoth || !timeless[0]),
                                  renamed(op.getRhsLabels(), inBoth || !timeless[1]));
  }

  // The trips are leading axes of image and output, which a filter's sum walks behind the batch. A filter a trip is a convolution in
  // groups: the channels of each trip are a group's.
  Value filterOf(nn::ConvOp op, SmallVectorImpl<Value> &operands, ArrayRef<bool> timeless) {
    for (unsigned i = 0; i < 2; ++i)
      if (timeless[i])
        operands[i] = withTrips(b, operands[i], trips);
    auto type = op.getType();
    int64_t groups = int64_t(op.getGroups());
    if (keepsTrips) {
      for (Value &operand : operands)
        operand = tripsAsChannels(operand);
      Axes shape(type.getShape());
      shape.back() *= trips;
      type = nn::tensorType(shape, type.getElementType(), -1);
      groups *= trips;
    }
    Value filter = b.make<nn::ConvOp>(type, operands[0], operands[1], nn::ConvPart::Filter, op.getStride(), op.getPad(), op.getDilate(),
                                      uint64_t(groups));
    if (!keepsTrips)
      return filter;
    Axes split(op.getType().getShape()); // [r, s, c, trip, o], the trips then first
    split.insert(split.end() - 1, trips);
    filter = b.reshape(filter, nn::tensorType(split, type.getElementType(), -1));
    return b.make<nn::TransposeOp>(filter, Axes{3, 0, 1, 2, 4}).getResult();
  }

  // [trip, .., c] as [.., trip * c].
  Value tripsAsChannels(Value value) {
    auto type = nn::tensorOf(value);
    Axes order;
    for (int64_t axis = 1; axis < type.getRank(); ++axis)
      order.push_back(axis);
    order.insert(order.end() - 1, 0);
    Value moved = b.make<nn::TransposeOp>(value, order);
    Axes shape(nn::tensorOf(moved).getShape());
    int64_t channels = shape.pop_back_val();
    shape.back() *= channels;
    return b.reshape(moved, nn::tensorType(shape, type.getElementType(), nn::batchAxis(moved), nn::batchGroup(moved.getType())));
  }

  Value sumOf(nn::ReduceOp op, Value x) {
    if (nn::tensorOf(x).getRank() == nn::tensorOf(op.getX()).getRank())
      x = withTrips(b, x, trips);
    SmallVector<int64_t> axes;
    if (!keepsTrips)
      axes.push_back(0);
    for (int64_t axis : op.getAxes())
      axes.push_back(axis + 1);
    return b.sum(x, axes);
  }

  Value scatterOf(nn::ScatterAddOp op, SmallVectorImpl<Value> &operands, ArrayRef<bool> timeless) {
    SmallVector<int64_t> ofX;
    for (int64_t label : op.getXLabels())
      ofX.push_back(label < 0 ? label : label + 1);
    auto type = cast<RankedTensorType>(op.getResult().getType());
    if (keepsTrips) {
      type = nn::ScanOp::stackedType(type, trips);
      ofX.insert(ofX.begin(), 0);
    }
    if (timeless[0])
      operands[0] = withTrips(b, operands[0], trips);
    SmallVector<Attribute> lists;
    for (auto [i, list] : llvm::enumerate(op.getIndexLabels())) {
      SmallVector<int64_t> labels;
      if (!timeless[i + 1])
        labels.push_back(0);
      for (int64_t label : cast<DenseI64ArrayAttr>(list).asArrayRef())
        labels.push_back(label + 1);
      lists.push_back(DenseI64ArrayAttr::get(op.getContext(), labels));
    }
    // The labels of the gather must have every axis of the updates.
    if (!keepsTrips && llvm::all_of(timeless.drop_front(), [](bool none) { return none; })) {
      Value whole = b.sum(operands[0], {0});
      return b.make<nn::ScatterAddOp>(type, whole, ValueRange(operands).drop_front(), op.getXLabels(), op.getIndexLabels());
    }
    return b.make<nn::ScatterAddOp>(type, operands[0], ValueRange(operands).drop_front(), ofX, ArrayAttr::get(op.getContext(), lists));
  }
};

} // namespace

Value sumOverTrips(nn::GradientBuilder &b, Operation *op, int64_t trips, bool keepsTrips, SmallVectorImpl<Value> &operands,
                   ArrayRef<bool> timeless) {
  BehindLoop behind{b, trips, keepsTrips};
  if (auto contract = dyn_cast<nn::ContractOp>(op))
    return behind.contractOf(contract, operands, timeless);
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return behind.sumOf(reduce, operands[0]);
  if (auto conv = dyn_cast<nn::ConvOp>(op))
    return behind.filterOf(conv, operands, timeless);
  return behind.scatterOf(cast<nn::ScatterAddOp>(op), operands, timeless);
}

Value viewBehind(nn::GradientBuilder &b, Operation *view, int64_t trips, bool keepsTrips, Value value) {
  if (auto reshape = dyn_cast<nn::ReshapeOp>(view))
    return b.reshape(value, keepsTrips ? nn::ScanOp::stackedType(reshape.getType(), trips) : reshape.getType());
  Axes order;
  if (keepsTrips)
    order.push_back(0);
  for (int64_t axis : cast<nn::TransposeOp>(view).getPermutation())
    order.push_back(keepsTrips ? axis + 1 : axis);
  return b.transpose(value, order);
}

} // namespace cinch
