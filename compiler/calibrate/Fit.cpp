// Fit.cpp: coordinate descent in the logarithms of the six coefficients, with steps that shrink. The function is not
// convex (a kernel changes sides under the roof), so it starts from several places.
#include "compiler/calibrate/Fit.h"

#include <algorithm>
#include <cmath>

namespace cinch::calibrate {

using analysis::MachineRates;
using solve::Kernel;

static double rateOf(const MachineRates &rates, Kernel::Work work) {
  switch (work) {
  case Kernel::Product: return rates.product;
  case Kernel::Attention: return rates.attend;
  case Kernel::AttentionGrad: return rates.attendGrad;
  default: return rates.loop;
  }
}

double predict(const MachineRates &rates, const Sample &s) {
  double rate = rateOf(rates, s.work);
  return std::max(s.fixedFlops / rate, s.fixedBytes / rates.bytes) + std::max(s.flops / rate, s.bytes / rates.bytes) +
         rates.launch;
}

// Twice as long counts for 1.4 times as much: a step is made of the long ones, but the short ones must be seen.
static double weightOf(const Sample &s) { return std::sqrt(s.seconds); }

static double distance(const MachineRates &rates, const std::vector<Sample> &samples) {
  double sum = 0;
  for (const Sample &s : samples)
    sum += weightOf(s) * std::fabs(std::log(predict(rates, s) / s.seconds));
  return sum;
}

MachineRates fit(const std::vector<Sample> &samples, const MachineRates &start) {
  static double MachineRates::*const fields[] = {&MachineRates::product, &MachineRates::attend, &MachineRates::attendGrad,
                                                 &MachineRates::loop,    &MachineRates::bytes,  &MachineRates::launch};
  MachineRates best = start;
  double least = distance(best, samples);
  for (double roof : {0.25, 1.0, 4.0, 16.0}) {
    MachineRates rates = start;
    rates.bytes *= roof;
    double here = distance(rates, samples);
    for (double step = 4; step > 1.002; step = std::sqrt(step))
      for (bool moved = true; moved;) {
        moved = false;
        for (double MachineRates::*field : fields)
          for (double factor : {step, 1 / step}) {
            MachineRates other = rates;
            other.*field *= factor;
            other.launch = std::max(other.launch, 2e-8); // a function call at least
            double there = distance(other, samples);
            if (there < here - 1e-12 * std::fabs(here))
              rates = other, here = there, moved = true;
          }
      }
    if (here < least)
      best = rates, least = here;
  }
  auto measured = [&](Kernel::Work work) {
    return std::any_of(samples.begin(), samples.end(), [&](const Sample &s) { return s.work == work; });
  };
  if (!measured(Kernel::AttentionGrad))
    best.attendGrad = best.attend;
  return best;
}

Quality quality(const MachineRates &rates, const std::vector<Sample> &samples) {
  double predicted = 0, measured = 0, weight = 0;
  for (const Sample &s : samples)
    predicted += predict(rates, s), measured += s.seconds, weight += weightOf(s);
  if (samples.empty() || measured <= 0)
    return {};
  return {predicted / measured, std::exp(distance(rates, samples) / weight)};
}

} // namespace cinch::calibrate
