// ShapeRules.h: what the shape rules share: the words of their messages, types with an axis more or less, and their names.
#ifndef CINCH_DIALECTS_OPS_SHAPERULES_H
#define CINCH_DIALECTS_OPS_SHAPERULES_H

#include "dialects/ops/Shapes.h"

namespace cinch::shapes {

using Shape = std::vector<int64_t>;
using Types = std::vector<TensorType>;

// ---- What messages are made of ----------------------------------------------------------------------------------------
inline std::string piece(const char *text) { return text; }
inline std::string piece(const std::string &text) { return text; }
inline std::string piece(int64_t number) { return std::to_string(number); }
inline std::string piece(size_t number) { return std::to_string(number); }
std::string piece(double);
std::string piece(DType);
inline std::string piece(const TensorType &type) { return "'" + typeText(type) + "'"; }
template <typename... Pieces> std::string say(const Pieces &...pieces) { return (piece(pieces) + ...); }

// ---- Types ------------------------------------------------------------------------------------------------------------
inline bool isFloat(DType type) { return type == DType::F32 || type == DType::F64 || type == DType::BF16; }
inline int64_t rankOf(const TensorType &type) { return int64_t(type.shape.size()); }
int64_t elementsOf(const Shape &, size_t count); // of the first `count` axes
TensorType withElement(TensorType, DType);
TensorType withAxis(TensorType, int64_t axis, int64_t size);
// Without some axes; a batch axis among them goes away too.
TensorType withoutAxes(const TensorType &, const Shape &axes, DType element);
std::string oneAxis(const TensorType &, const std::string &size);

// ---- The rules: each appends its results' types, or looks at those it is given; what it returns is a fault --------------------
std::string constant(const OpView &, Types &results);
std::string vector(const OpView &, Types &results);
std::string random(const OpView &, Types &results);
std::string compare(const OpView &, Types &results);
std::string where(const OpView &, Types &results);
std::string cast(const OpView &, Types &results);
std::string broadcast(const OpView &, Types &results);
std::string transpose(const OpView &, Types &results);
std::string reshape(const OpView &, Types &results);
std::string slice(const OpView &, Types &results);
std::string pad(const OpView &, Types &results);
std::string concat(const OpView &, Types &results);
std::string reduce(const OpView &, Types &results);
std::string contract(const OpView &, Types &results);
std::string gather(const OpView &, Types &results);
std::string scatterAdd(const OpView &, Types &results);
std::string groupMean(const OpView &, Types &results);
std::string indexOfExtreme(const OpView &, Types &results);
std::string crossEntropy(const OpView &, Types &results);
std::string crossEntropyGrad(const OpView &, Types &results);
std::string attend(const OpView &, Types &results);
std::string attendGrad(const OpView &, Types &results);
std::string conv(const OpView &, Types &results);
std::string pool(const OpView &, Types &results);
std::string poolGrad(const OpView &, Types &results);
std::string sumSquares(const OpView &, Types &results);
std::string newState(const OpView &, Types &results);
std::string update(const OpView &, Types &results);

} // namespace cinch::shapes
#endif
