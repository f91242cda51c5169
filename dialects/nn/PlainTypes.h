// PlainTypes.h: types, attributes and ops of `nn` from their plain counterparts of dialects/ops, and back.
#ifndef CINCH_DIALECTS_NN_PLAIN_TYPES_H
#define CINCH_DIALECTS_NN_PLAIN_TYPES_H

#include "dialects/nn/NN.h"
#include "dialects/ops/Ops.h"

namespace cinch::nn {

mlir::RankedTensorType typeOf(const TensorType &, mlir::MLIRContext *);
TensorType plainType(mlir::Type);
// Null for what is not given.
mlir::Attribute attributeOf(const AttrInfo &, const AttrValue &, mlir::Builder &);
AttrValue plainAttribute(const AttrInfo &, mlir::Attribute);

// An op of the table: operands as it lists them (null: absent), one attribute for each. `result` is the type of its (first)
// result; an op whose types are inferred asks its rule, which knows those of further results.
mlir::Operation *createFromTable(mlir::OpBuilder &, mlir::Location, OpKind, llvm::ArrayRef<mlir::Value> operands,
                                 llvm::ArrayRef<AttrValue> attributes, mlir::RankedTensorType result);

} // namespace cinch::nn
#endif
