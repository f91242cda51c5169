// KernelKind.h: the kinds of kernels, listed once.
#ifndef CINCH_COMPILER_ANALYSIS_KERNELKIND_H
#define CINCH_COMPILER_ANALYSIS_KERNELKIND_H

#include "dialects/plan/Plan.h"

namespace cinch::analysis {

// Those before Scan come in the order of the alternatives of KernelSpec::work; a Scan is a loop over kernels of its own and has no spec
// (KernelProblem.h). Each is described once, in KernelSpec.cpp.
enum class KernelKind { Loop, Product, Attention, AttentionGrad, Convolution, Pool, Scan };

// The kind that serves an op: loops serve whatever has no kernel of its own.
KernelKind kindOf(mlir::Operation *);
// The kind of a kernel is that of the op whose result it returns first.
KernelKind kindOf(plan::KernelOp);

} // namespace cinch::analysis
#endif
