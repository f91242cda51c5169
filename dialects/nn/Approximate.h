// Approximate.h: which ops a GPU may compute by approximations.
//
// An op with the attribute `nn.approximate` is computed by what a GPU has instructions for: powers of two and reciprocals that are within two
// units in the last place (MathFormulas.h, `approximate`). It belongs to the kind of the target (docs/nvidia.md), and to the op: no plan changes it.
#ifndef CINCH_DIALECTS_NN_APPROXIMATE_H
#define CINCH_DIALECTS_NN_APPROXIMATE_H

#include "llvm/ADT/StringRef.h"

namespace cinch::nn {

inline constexpr llvm::StringLiteral kApproximateAttr = "nn.approximate";

} // namespace cinch::nn
#endif
