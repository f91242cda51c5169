// Hints.h: what a program says of a value, on the op that computes it.
#ifndef CINCH_COMPILER_TRANSFORMS_HINTS_H
#define CINCH_COMPILER_TRANSFORMS_HINTS_H

#include "dialects/nn/NN.h"

namespace cinch {

inline constexpr llvm::StringLiteral kHints[] = {nn::kKeepAttr, nn::kRecomputeAttr, nn::kStageAttr, nn::kBlockEndAttr};

inline bool hasHint(mlir::Operation *op) {
  return llvm::any_of(kHints, [&](llvm::StringRef hint) { return op->hasAttr(hint); });
}

// Of an op that is to go, to the op that computes the same value. False, and nothing is moved, if that has hints of its own, or is none.
inline bool moveHints(mlir::Operation *from, mlir::Operation *to) {
  if (!hasHint(from))
    return true;
  if (!to || hasHint(to))
    return false;
  for (llvm::StringRef hint : kHints)
    if (mlir::Attribute value = from->removeDiscardableAttr(hint))
      to->setDiscardableAttr(hint, value);
  return true;
}

} // namespace cinch
#endif
