// Shapes.cpp: the shape rules: the type of a result, batch axis included, from the types of the operands. A rule
// serves both builders, which ask it for the type, and the verifier, which compares.
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch::nn {

using Results = SmallVectorImpl<Type>;

static LogicalResult checkAxis(std::optional<Location> loc, StringRef op, RankedTensorType type, int64_t axis) {
  if (axis < 0 || axis >= type.getRank())
    return emitOptionalError(loc, "'nn.", op, "' op expected an axis below ", type.getRank(), ", got ", axis);
  if (axis == batchAxis(type))
    return emitOptionalError(loc, "'nn.", op, "' op axis ", axis, " is the batch axis: an op works example by example");
  return success();
}

static RankedTensorType tensorOfOperand(Value value) { return cast<RankedTensorType>(value.getType()); }

static RankedTensorType withAxis(RankedTensorType type, int64_t axis, int64_t size) {
  SmallVector<int64_t> shape(type.getShape());
  shape[axis] = size;
  return RankedTensorType::get(shape, type.getElementType(), type.getEncoding());
}

// The type without some axes; a batch axis among them goes away too.
static RankedTensorType withoutAxes(RankedTensorType type, ArrayRef<int64_t> axes, Type element) {
  SmallVector<int64_t> shape;
  int64_t batch = -1;
  for (int64_t axis = 0; axis < type.getRank(); ++axis) {
    if (llvm::is_contained(axes, axis))
      continue;
    if (axis == batchAxis(type))
      batch = shape.size();
    shape.push_back(type.getDimSize(axis));
  }
  return tensorType(shape, element, batch);
}

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, Adaptor op,
                                          Results &types) {
  types.push_back(withElement(tensorOfOperand(op.getA()), IntegerType::get(context, 1)));
  return success();
}

LogicalResult WhereOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto condition = tensorOfOperand(op.getCondition()), a = tensorOfOperand(op.getA());
  if (condition.getShape() != a.getShape() || condition.getEncoding() != a.getEncoding()) // C1
    return emitOptionalError(loc, "'nn.where' op expected the condition to have the shape and batch axis of ", a,
                             ", got ", condition);
  if (op.getB().getType() != a) // C2
    return emitOptionalError(loc, "'nn.where' op expected one type, got ", a, " and ", op.getB().getType());
  types.push_back(a);
  return success();
}

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto x = tensorOfOperand(op.getX());
  SmallVector<int64_t> shape, sorted(op.getPermutation());
  int64_t batch = -1;
  llvm::sort(sorted);
  if (sorted != llvm::to_vector(llvm::seq<int64_t>(0, x.getRank()))) // C1
    return emitOptionalError(loc, "'nn.transpose' op expected a permutation of ", x.getRank(), " axes");
  for (int64_t axis : op.getPermutation()) {
    if (axis == batchAxis(x))
      batch = shape.size();
    shape.push_back(x.getDimSize(axis));
  }
  types.push_back(tensorType(shape, x.getElementType(), batch));
  return success();
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto x = tensorOfOperand(op.getX());
  int64_t axis = op.getAxis(), begin = op.getBegin(), end = op.getEnd();
  if (failed(checkAxis(loc, "slice", x, axis))) // C1
    return failure();
  if (begin < 0 || begin >= end || end > x.getDimSize(axis)) // C2
    return emitOptionalError(loc, "'nn.slice' op expected a range inside ", x.getDimSize(axis), " elements, got ",
                             begin, " to ", end);
  types.push_back(withAxis(x, axis, end - begin));
  return success();
}

LogicalResult PadOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto x = tensorOfOperand(op.getX());
  int64_t axis = op.getAxis(), before = op.getBefore(), after = op.getAfter();
  if (failed(checkAxis(loc, "pad", x, axis))) // C1
    return failure();
  if (before < 0 || after < 0) // C2
    return emitOptionalError(loc, "'nn.pad' op expected no negative count, got ", before, " and ", after);
  types.push_back(withAxis(x, axis, before + x.getDimSize(axis) + after));
  return success();
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  if (op.getOperands().empty()) // C1
    return emitOptionalError(loc, "'nn.concat' op expected an operand");
  auto first = tensorOfOperand(op.getOperands()[0]);
  int64_t axis = op.getAxis(), size = 0;
  if (failed(checkAxis(loc, "concat", first, axis))) // C2
    return failure();
  for (Value operand : op.getOperands()) {
    auto type = tensorOfOperand(operand);
    if (type.getRank() != first.getRank() || withAxis(type, axis, 1) != withAxis(first, axis, 1)) // C3
      return emitOptionalError(loc, "'nn.concat' op expected all but axis ", axis, " to agree, got ", first, " and ",
                               type);
    size += type.getDimSize(axis);
  }
  types.push_back(withAxis(first, axis, size));
  return success();
}

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto x = tensorOfOperand(op.getX());
  int64_t last = -1;
  if (op.getAxes().empty()) // C1
    return emitOptionalError(loc, "'nn.reduce' op expected an axis");
  for (int64_t axis : op.getAxes()) {
    if (axis <= last || axis >= x.getRank()) // C1
      return emitOptionalError(loc, "'nn.reduce' op expected increasing axes below ", x.getRank(), ", got ", axis,
                               " behind ", last);
    last = axis;
  }
  bool logical = op.getReduction() == Reduction::Any || op.getReduction() == Reduction::All;
  if (logical != x.getElementType().isInteger(1)) // C2
    return emitOptionalError(loc, "'nn.reduce' op '", stringifyReduction(op.getReduction()), "' does not fit ", x);
  types.push_back(withoutAxes(x, op.getAxes(), x.getElementType()));
  return success();
}

RankedTensorType contractType(RankedTensorType lhs, ArrayRef<int64_t> lhsLabels, RankedTensorType rhs,
                              ArrayRef<int64_t> rhsLabels, int64_t resultRank) {
  SmallVector<int64_t> shape(resultRank, 1);
  int64_t batch = -1;
  auto read = [&](RankedTensorType type, ArrayRef<int64_t> labels) {
    for (auto [axis, label] : llvm::enumerate(labels)) {
      if (label >= resultRank)
        continue;
      shape[label] = type.getDimSize(axis);
      if (int64_t(axis) == batchAxis(type))
        batch = label;
    }
  };
  read(lhs, lhsLabels);
  read(rhs, rhsLabels);
  return tensorType(shape, lhs.getElementType(), batch);
}

FailureOr<RankedTensorType> gatherType(RankedTensorType x, TypeRange indices, ArrayRef<int64_t> xLabels,
                                       ArrayAttr indexLabels, function_ref<InFlightDiagnostic()> emitError) {
  if (int64_t(xLabels.size()) != x.getRank() || indexLabels.size() != indices.size()) { // C1
    emitError() << "expected one label an axis of " << x << " and one list an index tensor, got " << xLabels.size()
                << " and " << indexLabels.size();
    return failure();
  }
  SmallVector<int64_t> shape, named(indices.size(), 0);
  int64_t batch = -1;
  auto note = [&](RankedTensorType type, ArrayRef<int64_t> labels) -> LogicalResult {
    llvm::SmallDenseSet<int64_t> seen;
    for (auto [axis, label] : llvm::enumerate(labels)) {
      bool isBatch = int64_t(axis) == batchAxis(type);
      if (label < 0) {
        if (type != x || -label > int64_t(indices.size()) || isBatch) { // C1, C5
          emitError() << "entry " << label << " names no index tensor, or takes the batch axis by index";
          return failure();
        }
        ++named[-label - 1];
        continue;
      }
      if (!seen.insert(label).second) { // C1
        emitError() << "label " << label << " is twice in one operand";
        return failure();
      }
      if (label >= int64_t(shape.size()))
        shape.resize(label + 1, 0);
      if (shape[label] && shape[label] != type.getDimSize(axis)) { // C2
        emitError() << "label " << label << " stands for " << shape[label] << " and for " << type.getDimSize(axis)
                    << " elements";
        return failure();
      }
      shape[label] = type.getDimSize(axis);
      if (isBatch && batch >= 0 && batch != label) { // C5
        emitError() << "the batch axes have two labels, " << batch << " and " << label;
        return failure();
      }
      if (isBatch)
        batch = label;
    }
    return success();
  };
  if (failed(note(x, xLabels)))
    return failure();
  for (auto [type, labels] : llvm::zip_equal(indices, indexLabels)) {
    auto list = cast<DenseI64ArrayAttr>(labels).asArrayRef();
    auto tensor = cast<RankedTensorType>(type);
    if (int64_t(list.size()) != tensor.getRank() || llvm::any_of(list, [](int64_t label) { return label < 0; })) { // C1
      emitError() << "expected one label an axis of " << tensor << ", got " << list.size();
      return failure();
    }
    if (failed(note(tensor, list)))
      return failure();
  }
  if (llvm::is_contained(shape, 0)) { // C3
    emitError() << "expected the labels of the result without a gap";
    return failure();
  }
  if (llvm::any_of(named, [](int64_t count) { return count != 1; })) { // C4
    emitError() << "expected every index tensor to be named once";
    return failure();
  }
  return tensorType(shape, x.getElementType(), batch);
}

LogicalResult GatherOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, Adaptor op,
                                         Results &types) {
  auto emitError = [&] { return mlir::emitError(loc.value_or(UnknownLoc::get(context))) << "'nn.gather' op "; };
  auto type = gatherType(tensorOfOperand(op.getX()), op.getIndices().getTypes(), op.getXLabels(), op.getIndexLabels(),
                         emitError);
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

static LogicalResult inferArg(MLIRContext *context, std::optional<Location> loc, StringRef name, Value operand,
                              int64_t axis, Results &types) {
  auto x = tensorOfOperand(operand);
  if (failed(checkAxis(loc, name, x, axis))) // C1
    return failure();
  types.push_back(withoutAxes(x, axis, IntegerType::get(context, 32)));
  return success();
}
LogicalResult ArgMaxOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, Adaptor op,
                                         Results &types) {
  return inferArg(context, loc, "argmax", op.getX(), op.getAxis(), types);
}
LogicalResult ArgMinOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, Adaptor op,
                                         Results &types) {
  return inferArg(context, loc, "argmin", op.getX(), op.getAxis(), types);
}

LogicalResult CrossEntropyOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto logits = tensorOfOperand(op.getLogits()), y = tensorOfOperand(op.getY());
  if (failed(checkAxis(loc, "cross_entropy", logits, op.getAxis()))) // C1
    return failure();
  auto loss = withoutAxes(logits, op.getAxis(), logits.getElementType());
  if (y != withElement(loss, y.getElementType())) // C2
    return emitOptionalError(loc, "'nn.cross_entropy' op expected labels of type ",
                             withElement(loss, y.getElementType()), ", got ", y);
  double smooth = op.getSmooth().convertToDouble();
  if (!(smooth >= 0 && smooth < 1)) // C3
    return emitOptionalError(loc, "'nn.cross_entropy' op expected a smoothing in [0, 1), got ", smooth);
  types.push_back(loss);
  return success();
}

LogicalResult AttendOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor op, Results &types) {
  auto q = tensorOfOperand(op.getQ()), k = tensorOfOperand(op.getK()), v = tensorOfOperand(op.getV());
  auto fail = [&](StringRef what) {
    return emitOptionalError(loc, "'nn.attend' op ", what, ", got ", q, ", ", k, " and ", v);
  };
  int64_t lead = q.getRank() - 3;
  if (lead < 0 || k.getRank() != q.getRank() || v.getRank() != q.getRank()) // C3
    return fail("expected q, k and v of equal rank, at least 3");
  if (q.getShape().take_front(lead) != k.getShape().take_front(lead) ||
      q.getShape().take_front(lead) != v.getShape().take_front(lead) || batchAxis(q) != batchAxis(k) ||
      batchAxis(q) != batchAxis(v) || batchAxis(q) >= lead) // C1
    return fail("expected the same leading axes, the batch axis among them");
  int64_t A = q.getDimSize(lead), T = q.getDimSize(lead + 1), K = q.getDimSize(lead + 2);
  int64_t G = k.getDimSize(lead), S = k.getDimSize(lead + 1), E = v.getDimSize(lead + 2);
  if (A % G) // C2
    return fail("expected a multiple of the key heads as query heads");
  if (k.getDimSize(lead + 2) != K || v.getDimSize(lead) != G || v.getDimSize(lead + 1) != S) // C3
    return fail("expected q[A, T, K], k[G, S, K], v[G, S, E]");
  Type element = q.getElementType();
  if (k.getElementType() != element || v.getElementType() != element) // C5
    return fail("expected one element type");
  SmallVector<int64_t> shape(q.getShape().take_front(lead));
  shape.push_back(S);
  if (op.getKeys() &&
      op.getKeys().getType() != tensorType(shape, IntegerType::get(q.getContext(), 1), batchAxis(q))) // C3
    return emitOptionalError(loc, "'nn.attend' op expected keys of the leading axes and ", S, " positions, got ",
                             op.getKeys().getType());
  if (op.getBias() && op.getBias().getType() != tensorType({A, T, S}, element, -1)) // C3, C4
    return emitOptionalError(loc, "'nn.attend' op expected a bias of ", A, " x ", T, " x ", S,
                             " without batch axis, got ", op.getBias().getType());
  types.push_back(withAxis(q, lead + 2, E));
  types.push_back(tensorType(q.getShape().drop_back(), element, batchAxis(q)));
  return success();
}

} // namespace cinch::nn
