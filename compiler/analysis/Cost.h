// Cost.h: the one source of predicted times. A roofline: a kernel takes the longer of its arithmetic and its memory traffic,
// and a fixed time to start.
#ifndef CINCH_COMPILER_ANALYSIS_COST_H
#define CINCH_COMPILER_ANALYSIS_COST_H

#include "compiler/analysis/Formation.h"

namespace cinch::analysis {

// What one machine reaches, a thread where not said otherwise. The defaults are those of a current x86 core with AVX2;
// plans compare kernels with one another, so ratios matter more than absolutes.
struct MachineCosts {
  double productFlops = 85e9;   // matrix products
  double attendFlops = 40e9;    // streaming attention
  double loopWork = 8e9;        // element-wise work, in additions a second
  double bytesPerSecond = 14e9; // a thread
  double allBytesPerSecond = 24e9; // all threads together
  double launchSeconds = 4e-6;
};

// Bytes of a value over the whole batch (f32 4, f64 8, i32 4, bool 1 an element).
int64_t bytesOf(mlir::Value value);

// Fills flops, traffic and seconds of a kernel as functions of the micro-batch.
void priceKernel(const KernelGroup &, const MachineCosts &, int64_t batch, int threads, solve::Kernel &kernel);

} // namespace cinch::analysis
#endif
