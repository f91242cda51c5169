// Held.h: sums over the batch that are made grain by grain (compiler/transforms/HoldSums.h).
#ifndef CINCH_DIALECTS_NN_HELD_H
#define CINCH_DIALECTS_NN_HELD_H

#include "llvm/ADT/StringRef.h"

namespace cinch::nn {

// Of an op: its result has a sum for each grain, and waits for the sum to which they are added. Of a function: it has such ops.
inline constexpr llvm::StringLiteral kHeldAttr = "nn.held";

} // namespace cinch::nn
#endif
