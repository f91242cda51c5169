// Versions.h: `combine async`: a replica computes with the parameters that it left behind some steps before. It keeps them in slots.
#ifndef CINCH_DIALECTS_NN_VERSIONS_H
#define CINCH_DIALECTS_NN_VERSIONS_H

#include "dialects/nn/NN.h"

namespace cinch::nn {

// On `@step`: k, so many steps more than the last one.
inline constexpr llvm::StringLiteral kStaleAttr = "nn.stale";

// The slots of the parameters that a replica computes with, and (n > 0) will compute with n steps later.
inline std::string versionOf(llvm::StringRef path, int64_t n) { return previousOf(path) + (n ? std::to_string(n) : std::string()); }
// Is a slot one of these, or the previous parameter of `delay 1`?
inline bool isVersion(llvm::StringRef slot) { return slot.rsplit('.').second.starts_with("prev"); }

} // namespace cinch::nn
#endif
