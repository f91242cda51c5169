// ShapeRules.h: the plain shape rules (dialects/ops/Shapes.h) asked for ops of the dialect: by builders, for the results' types,
// and by verifiers.
#ifndef CINCH_DIALECTS_NN_SHAPE_RULES_H
#define CINCH_DIALECTS_NN_SHAPE_RULES_H

#include "dialects/nn/PlainTypes.h"
#include "dialects/ops/Shapes.h"

namespace cinch::nn {

template <typename Op> OpKind kindOf() {
  static const OpKind kind = *opNamed(Op::getOperationName().drop_front(NNDialect::getDialectNamespace().size() + 1));
  return kind;
}

// What the rule says about an op or an adaptor of one; the fault, if there is one.
template <typename Op, typename OpOrAdaptor>
std::string askRule(OpOrAdaptor op, llvm::function_ref<mlir::Attribute(llvm::StringRef)> attribute,
                    std::vector<TensorType> &results) {
  const OpInfo &info = infoOf(kindOf<Op>());
  OpView view{kindOf<Op>(), {}, {}};
  llvm::SmallVector<TensorType> types;
  llvm::SmallVector<bool> given;
  for (auto [i, operand] : llvm::enumerate(info.operands)) {
    for (mlir::Value value : op.getODSOperands(i)) {
      types.push_back(plainType(value.getType()));
      given.push_back(true);
    }
    if (operand.count == Count::Optional && op.getODSOperands(i).empty())
      given.push_back(false);
  }
  const TensorType *next = types.begin();
  for (bool isGiven : given)
    view.operands.push_back(isGiven ? next++ : nullptr);
  for (const AttrInfo &each : info.attributes)
    view.attributes.push_back(plainAttribute(each, attribute(each.name)));
  return applyShapeRule(view, results);
}

template <typename Op> mlir::LogicalResult verifyByRule(Op op) {
  std::vector<TensorType> results;
  if (!infersTypes(kindOf<Op>()))
    for (mlir::Type type : op->getResultTypes())
      results.push_back(plainType(type));
  auto attribute = [&](llvm::StringRef name) {
    return op->getInherentAttr(name).value_or(mlir::Attribute());
  };
  std::string fault = askRule<Op>(op, attribute, results);
  return fault.empty() ? mlir::success() : mlir::LogicalResult(op.emitOpError() << fault);
}

template <typename Op>
mlir::LogicalResult inferByRule(mlir::MLIRContext *context, std::optional<mlir::Location> location,
                                typename Op::Adaptor op, llvm::SmallVectorImpl<mlir::Type> &types) {
  mlir::DictionaryAttr attributes;
  if constexpr (!std::is_same_v<typename Op::Properties, mlir::EmptyProperties>)
    attributes = mlir::cast<mlir::DictionaryAttr>(Op::getPropertiesAsAttr(context, op.getProperties()));
  std::vector<TensorType> results;
  auto attribute = [&](llvm::StringRef name) { return attributes ? attributes.get(name) : mlir::Attribute(); };
  std::string fault = askRule<Op>(op, attribute, results);
  if (!fault.empty())
    return mlir::emitOptionalError(location, "'", Op::getOperationName(), "' op ", fault);
  for (const TensorType &result : results)
    types.push_back(typeOf(result, context));
  return mlir::success();
}

} // namespace cinch::nn
#endif
