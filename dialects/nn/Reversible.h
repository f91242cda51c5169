// Reversible.h: the mark of the two additions of a reversible layer, y = x + e: the number of the operand that is the stream x. It holds
// until gradients are made (GradientSweep.h).
#ifndef CINCH_DIALECTS_NN_REVERSIBLE_H
#define CINCH_DIALECTS_NN_REVERSIBLE_H

#include "llvm/ADT/StringRef.h"

namespace cinch::nn {

inline constexpr llvm::StringLiteral kStreamAttr = "nn.stream";

} // namespace cinch::nn
#endif
