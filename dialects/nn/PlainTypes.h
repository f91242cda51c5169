// PlainTypes.h: types and attributes of `nn` and their plain counterparts of dialects/ops.
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

} // namespace cinch::nn
#endif
