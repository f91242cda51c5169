// Cost.h: the one source of predicted times. On a CPU a roofline: a kernel takes the longer of its arithmetic and its memory traffic,
// and a fixed time to start; all threads share it, or one does it alone if that is no slower. On a GPU arithmetic and waiting follow from how the kernel goes through its work (DeviceCost.h).
#ifndef CINCH_COMPILER_ANALYSIS_COST_H
#define CINCH_COMPILER_ANALYSIS_COST_H

#include "compiler/analysis/KernelSpec.h"
#include "compiler/analysis/Rates.h"

#include "llvm/ADT/ArrayRef.h"

namespace cinch::analysis {

// Bytes of a value over the whole batch (f32 4, f64 8, i32 4, bool 1 an element).
int64_t bytesOf(mlir::Value value);

// What a kernel is priced for: a CPU (whose target is not asked), or a GPU.
struct PricedMachine {
  const MachineRates &rates;
  const kernels::TargetInfo &target;
};

// On a function, a number: its kernels take so many times as long as they would be priced otherwise.
inline constexpr llvm::StringLiteral kDearerAttr = "plan.dearer";

// Specs of a kernel at some numbers of examples, the largest first, which is the whole batch.
using SpecsOfKernel = llvm::ArrayRef<std::pair<int64_t, const KernelSpec *>>;

// Fills work, flops, traffic and seconds of a kernel as functions of the micro-batch. On a GPU the seconds are the line through those at the
// largest and at the smallest number of examples: pieces of work do not fill its multiprocessors evenly at each.
void priceKernel(plan::KernelOp, SpecsOfKernel, bool inLoop, const PricedMachine &, solve::Kernel &kernel);

// Of a kernel as it is launched: how long its arithmetic, its traffic and the whole of it take.
struct LaunchPrice {
  double flops = 0, traffic = 0, arithmeticSeconds = 0, trafficSeconds = 0, seconds = 0;
  bool alone = false; // of a CPU: one thread does all of it
};
LaunchPrice priceOfLaunch(plan::KernelOp, const KernelSpec &, bool inLoop, const PricedMachine &);

} // namespace cinch::analysis
#endif
