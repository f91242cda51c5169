// Fit.h: measured kernels become the coefficients of the cost model.
#ifndef CINCH_COMPILER_CALIBRATE_FIT_H
#define CINCH_COMPILER_CALIBRATE_FIT_H

#include "compiler/analysis/Profile.h"
#include "compiler/solve/StepGraph.h"

#include <vector>

namespace cinch::calibrate {

// One kernel as it was measured.
struct Sample {
  solve::Kernel::Work work = solve::Kernel::Loop;
  double fixedFlops = 0, flops = 0, fixedBytes = 0, bytes = 0; // fixed, and what grew with the micro-batch
  double seconds = 0;
};

// The model's time for a sample: the formula of priceKernel, with one rate of memory, wherever what is touched lies.
double predict(const analysis::MachineRates &, const Sample &);

// The rates under which the samples' predicted times are nearest to the measured ones: least sum of |log(predicted /
// measured)|, a long kernel counting for more than a short one. Kinds of work that were not measured get the rate of
// the nearest kind that was.
analysis::MachineRates fit(const std::vector<Sample> &, const analysis::MachineRates &start);

// Sum of predicted over sum of measured seconds, and the mean of |log| as a factor (1: exact), weighted as in `fit`.
struct Quality {
  double ratio = 1, factor = 1;
};
Quality quality(const analysis::MachineRates &, const std::vector<Sample> &);

} // namespace cinch::calibrate
#endif
