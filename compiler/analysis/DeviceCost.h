// DeviceCost.h: the price of a kernel of a GPU, from how it goes through its work (kernels/DeviceWalk.h) and what the GPU reaches (Rates.h).
#ifndef CINCH_COMPILER_ANALYSIS_DEVICECOST_H
#define CINCH_COMPILER_ANALYSIS_DEVICECOST_H

#include "compiler/analysis/KernelSpec.h"
#include "compiler/analysis/Rates.h"

namespace cinch::analysis {

// What a kernel does at the extent of its spec.
struct DeviceWork {
  double operations = 0; // as they are counted on a CPU
  double accesses = 0;   // elements that are read and written
  double bytes = 0;      // of these
};

// Seconds that its arithmetic takes, and its traffic, which go on at the same time; and all of it, launches included.
struct DevicePrice {
  double arithmetic = 0, traffic = 0, seconds = 0;
  DevicePrice &operator+=(const DevicePrice &next) {
    arithmetic += next.arithmetic, traffic += next.traffic, seconds += next.seconds;
    return *this;
  }
};
DevicePrice priceOnDevice(const KernelSpec &, const DeviceWork &, const kernels::TargetInfo &, const MachineRates &);

} // namespace cinch::analysis
#endif
