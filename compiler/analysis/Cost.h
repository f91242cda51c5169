// Cost.h: the one source of predicted times. A roofline: a kernel takes the longer of its arithmetic and its memory traffic,
// and a fixed time to start.
#ifndef CINCH_COMPILER_ANALYSIS_COST_H
#define CINCH_COMPILER_ANALYSIS_COST_H

#include "compiler/analysis/Formation.h"

namespace cinch::analysis {

// What a machine reaches with all threads of a program together.
struct MachineRates {
  double product = 0;    // operations a second: matrix products
  double attend = 0;     // streaming attention
  double attendGrad = 0; // its gradient
  double loop = 0;       // element-wise and row-wise work, in additions
  double bytes = 0;      // bytes a second from and to memory
  double launch = 0;     // seconds to start a kernel
};

struct MachineCosts {
  std::string source = "built-in costs"; // for people
  std::vector<std::pair<int, MachineRates>> measured; // by rising number of threads; empty: the built-in model
  // The built-in model has a current x86 core with AVX2 in mind, and as many of them as there are threads; plans compare
  // kernels with one another, so ratios matter more than absolutes.
  MachineRates at(int threads) const;
};

// Bytes of a value over the whole batch (f32 4, f64 8, i32 4, bool 1 an element).
int64_t bytesOf(mlir::Value value);

// Fills work, flops, traffic and seconds of a kernel as functions of the micro-batch.
void priceKernel(const KernelGroup &, const MachineRates &, int64_t batch, solve::Kernel &kernel);

} // namespace cinch::analysis
#endif
