// Target.h: what a program is compiled for: a CPU, or a GPU of NVIDIA. What depends on the machine is asked here.
#ifndef CINCH_COMPILER_ANALYSIS_TARGET_H
#define CINCH_COMPILER_ANALYSIS_TARGET_H

#include "compiler/analysis/Rates.h"
#include "compiler/kernels/Kernels.h"

#include <optional>
#include <string>

namespace cinch::analysis {

// All that is a CPU's.
struct Cpu {
  std::string name;            // LLVM's; "": this machine
  kernels::TargetInfo kernels; // lanes, instructions and measured tilings: what its kernels are built for
  MachineCosts costs;          // what was measured on it
  int threads = 4;             // most threads that a program runs on

  // What they reach together: as measured, or the built-in model. (Cost.cpp)
  MachineRates rates() const;
  // Bytes of the process beside its arena if the binary and the description in it have so many: in steps of kAllowanceStep, with a reserve and
  // what the stack of each thread touches. test/execute/budget.py measures it. Half of the reserve is for the arguments and the environment of the
  // process, of which the runtime grants so many bytes (rt::kArgumentBytes).
  static constexpr int64_t kAllowanceStep = 64 << 10;
  int64_t allowance(int64_t binaryBytes) const {
    constexpr int64_t kReserve = 512 << 10, kThread = 32 << 10;
    return (binaryBytes + kReserve + threads * kThread + kAllowanceStep - 1) / kAllowanceStep * kAllowanceStep;
  }
};

// The machine: a CPU, and perhaps a GPU beside it, which does the steps then.
struct Target {
  Cpu cpu;
  // Of a GPU; "": there is none.
  std::string device;     // "h100", for people "H100 SXM"
  std::string people;
  std::string arch;       // of the PTX: "sm_80"
  int processors = 0;     // multiprocessors
  int64_t memory = 0;     // bytes
  MachineRates reached;

  bool isDevice() const { return processors > 0; }
  // Products of bf16 are wgmma's. Its PTX runs on Hopper alone.
  bool hasWarpgroups() const { return arch == "sm_90a"; }
  // What kernels are built for; what is said of the CPU stays.
  kernels::TargetInfo kernels() const {
    kernels::TargetInfo info = cpu.kernels;
    info.processors = processors;
    info.warpgroups = hasWarpgroups();
    if (isDevice())
      info.dots = info.amx = false;
    return info;
  }
  // Threads of the host that share the work of a kernel. The host launches the kernels of a GPU from one.
  int threads() const { return isDevice() ? 1 : cpu.threads; }
  // With these a plan is priced: of a GPU what kernels reach of the published rates, of a CPU those measured, or the built-in ones.
  MachineRates rates() const { return isDevice() ? reached : cpu.rates(); }
  std::string sourceOfRates() const { return isDevice() ? "built-in costs of " + people : cpu.costs.source; } // for people
  // The budget of a GPU is for what the plan holds there. Its context and the process on the host are lines of their own.
  int64_t allowance(int64_t binaryBytes) const { return isDevice() ? 0 : cpu.allowance(binaryBytes); }
};

// "cpu", "nvidia" (every GPU from sm_80 on, priced as an A100), "nvidia:h100", "nvidia:sm_90". None, with the reason, for other words.
std::optional<Target> parseTarget(const std::string &word, std::string &error);

} // namespace cinch::analysis
#endif
