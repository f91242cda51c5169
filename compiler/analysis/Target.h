// Target.h: what a program is compiled for: a CPU, or a GPU of NVIDIA. What depends on the machine is asked here.
#ifndef CINCH_COMPILER_ANALYSIS_TARGET_H
#define CINCH_COMPILER_ANALYSIS_TARGET_H

#include "compiler/analysis/Rates.h"
#include "compiler/kernels/Kernels.h"

#include <optional>
#include <string>

namespace cinch::analysis {

struct Target {
  // Of a GPU; "": a CPU.
  std::string device;     // "h100", for people "H100 SXM"
  std::string people;
  std::string arch;       // of the PTX: "sm_80"
  int processors = 0;     // multiprocessors
  int64_t memory = 0;     // bytes
  MachineRates published;

  bool isDevice() const { return processors > 0; }
  // Products of bf16 are wgmma's. Its PTX runs on Hopper alone.
  bool hasWarpgroups() const { return arch == "sm_90a"; }
  // What kernels are built for; what is said of the CPU stays.
  kernels::TargetInfo kernels(kernels::TargetInfo ofCpu) const {
    ofCpu.processors = processors;
    ofCpu.warpgroups = hasWarpgroups();
    if (isDevice())
      ofCpu.dots = ofCpu.amx = false;
    return ofCpu;
  }
  // Threads of the host that share the work of a kernel. The host launches the kernels of a GPU from one.
  int planThreads(int maxThreads) const { return isDevice() ? 1 : maxThreads; }
  // With these a plan is priced: of a GPU the published rates, of a CPU those measured, or the built-in ones.
  MachineCosts costs(const MachineCosts &ofCpu) const;
};

// "cpu", "nvidia" (every GPU from sm_80 on, priced as an A100), "nvidia:h100", "nvidia:sm_90". None, with the reason, for other words.
std::optional<Target> parseTarget(const std::string &word, std::string &error);

} // namespace cinch::analysis
#endif
