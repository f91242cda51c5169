// Shapes.h: the shape rules on plain types: the one statement of them, which the checker's verifier and `nn`'s ask.
#ifndef CINCH_DIALECTS_OPS_SHAPES_H
#define CINCH_DIALECTS_OPS_SHAPES_H

#include "dialects/ops/Ops.h"

namespace cinch {

// An op by what its rule sees. Operands as the table lists them, those of a variadic one in a row; nullptr: an optional one that
// is absent. One attribute for each of the table.
struct OpView {
  OpKind kind;
  std::vector<const TensorType *> operands;
  std::vector<AttrValue> attributes;

  const TensorType &in(size_t i) const { return *operands[i]; }
  const AttrValue &attribute(Key key) const { return attributes[size_t(infoOf(kind).placeOf(key))]; }
  int64_t integer(Key key) const { return std::get<int64_t>(attribute(key)); }
  double number(Key key) const { return std::get<double>(attribute(key)); }
  const std::vector<int64_t> &integers(Key key) const { return std::get<std::vector<int64_t>>(attribute(key)); }
};

// The number, the element types and the kinds of values that the table asks for. What is wrong, or "".
std::string checkForm(const OpView &);
// The shape rule of an op of the right form. `results`: of an op whose types are inferred they are added, else they are checked.
// What is wrong, or "".
std::string applyShapeRule(const OpView &, std::vector<TensorType> &results);
bool infersTypes(OpKind);

std::string typeText(const TensorType &); // as `nn` prints it

} // namespace cinch
#endif
