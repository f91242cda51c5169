// PlainTypes.cpp: both ways, by the kinds of attributes that the table has.
#include "dialects/nn/PlainTypes.h"
#include "dialects/ops/Shapes.h"

using namespace mlir;

namespace cinch::nn {

RankedTensorType typeOf(const TensorType &type, MLIRContext *context) {
  Builder builder(context);
  const Type elements[] = {builder.getF32Type(), builder.getI32Type(), builder.getI1Type(), builder.getF64Type(),
                           builder.getBF16Type()};
  return tensorType(type.shape, elements[size_t(type.dtype)], type.batch, type.group);
}

TensorType plainType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  Type element = tensor.getElementType();
  return {element.isF32()          ? DType::F32
          : element.isF64()        ? DType::F64
          : element.isBF16()       ? DType::BF16
          : element.isInteger(32) ? DType::I32
                                   : DType::Bool,
          tensor.getShape().vec(), int(batchAxis(tensor)), batchGroup(tensor)};
}

mlir::Attribute attributeOf(const AttrInfo &info, const AttrValue &value, Builder &b) {
  if (value.index() == 0)
    return {};
  switch (info.kind) {
  case AttrKind::Integer: return b.getI64IntegerAttr(std::get<int64_t>(value));
  case AttrKind::Number: return b.getF64FloatAttr(std::get<double>(value));
  case AttrKind::Flag: return std::get<bool>(value) ? b.getUnitAttr() : UnitAttr();
  case AttrKind::Integers: return b.getDenseI64ArrayAttr(std::get<std::vector<int64_t>>(value));
  case AttrKind::Numbers: return b.getDenseF64ArrayAttr(std::get<std::vector<double>>(value));
  case AttrKind::Lists:
    return b.getArrayAttr(llvm::map_to_vector(std::get<Lists>(value), [&](const std::vector<int64_t> &list) {
      return Attribute(b.getDenseI64ArrayAttr(list));
    }));
  case AttrKind::Choice: break;
  }
  int64_t number = std::get<int64_t>(value);
  switch (info.choice) {
  case ChoiceType::None: break;
#define ATTRIBUTE_ENUM(TYPE) \
  case ChoiceType::TYPE: return TYPE##Attr::get(b.getContext(), TYPE(number));
#include "dialects/ops/Ops.inc"
  }
  return {};
}

AttrValue plainAttribute(const AttrInfo &info, Attribute attribute) {
  if (!attribute)
    return info.absent;
  switch (info.kind) {
  case AttrKind::Integer: return cast<IntegerAttr>(attribute).getInt();
  case AttrKind::Number: return cast<FloatAttr>(attribute).getValueAsDouble();
  case AttrKind::Flag: return true;
  case AttrKind::Integers: return cast<DenseI64ArrayAttr>(attribute).asArrayRef().vec();
  case AttrKind::Numbers: return cast<DenseF64ArrayAttr>(attribute).asArrayRef().vec();
  case AttrKind::Lists: {
    Lists lists;
    for (Attribute list : cast<ArrayAttr>(attribute))
      lists.push_back(cast<DenseI64ArrayAttr>(list).asArrayRef().vec());
    return lists;
  }
  case AttrKind::Choice: break;
  }
  switch (info.choice) {
  case ChoiceType::None: break;
#define ATTRIBUTE_ENUM(TYPE) \
  case ChoiceType::TYPE: return int64_t(cast<TYPE##Attr>(attribute).getValue());
#include "dialects/ops/Ops.inc"
  }
  return {};
}

Operation *createFromTable(OpBuilder &b, Location location, OpKind kind, ArrayRef<Value> x,
                           ArrayRef<AttrValue> attributes, RankedTensorType result) {
  const OpInfo &info = infoOf(kind);
  OperationState state(location, (NNDialect::getDialectNamespace() + "." + info.name).str());
  OpView view{kind, {}, attributes.vec()};
  std::vector<TensorType> types, results;
  for (Value operand : x)
    types.push_back(operand ? plainType(operand.getType()) : TensorType());
  SmallVector<int32_t> segments;
  size_t next = 0;
  for (const ValueInfo &operand : info.operands) {
    size_t first = state.operands.size(), end = operand.count == Count::Variadic ? x.size() : next + 1;
    for (; next < end; ++next) {
      view.operands.push_back(x[next] ? &types[next] : nullptr);
      if (x[next])
        state.operands.push_back(x[next]);
    }
    segments.push_back(state.operands.size() - first);
  }
  if (llvm::any_of(info.operands, [](const ValueInfo &operand) { return operand.count == Count::Optional; }))
    state.addAttribute("operandSegmentSizes", b.getDenseI32ArrayAttr(segments));
  for (auto [attribute, value] : llvm::zip_equal(info.attributes, attributes))
    if (Attribute made = attributeOf(attribute, value, b))
      state.addAttribute(attribute.name, made);
  // What does not fit is found by the op's verifier.
  if (infersTypes(kind) && applyShapeRule(view, results).empty())
    for (const TensorType &type : results)
      state.addTypes(typeOf(type, b.getContext()));
  else
    state.addTypes(result);
  return b.create(state);
}

} // namespace cinch::nn
