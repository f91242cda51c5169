// Cost.h: the one source of predicted times. A roofline: a kernel takes the longer of its arithmetic and its memory traffic,
// and a fixed time to start.
#ifndef CINCH_COMPILER_ANALYSIS_COST_H
#define CINCH_COMPILER_ANALYSIS_COST_H

#include "compiler/analysis/KernelSpec.h"
#include "compiler/analysis/Rates.h"

namespace cinch::analysis {

// Bytes of a value over the whole batch (f32 4, f64 8, i32 4, bool 1 an element).
int64_t bytesOf(mlir::Value value);

// Operations a second that the arithmetic of a kernel is priced with. The spec may be of any extent.
double rateOf(plan::KernelOp, const KernelSpec &, const MachineRates &);

// Fills work, flops, traffic and seconds of a kernel as functions of the micro-batch.
void priceKernel(plan::KernelOp, const KernelSpec &, bool inLoop, const MachineRates &, int64_t batch, solve::Kernel &kernel);

} // namespace cinch::analysis
#endif
