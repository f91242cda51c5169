// Cost.cpp: bytes and predicted times of kernels.
#include "compiler/analysis/Cost.h"

#include "compiler/analysis/Target.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch::analysis {

int64_t bytesOf(Value value) { return elementsOf(value) * kernels::bytesOf(elemOf(value)); }

// Waking a thread that sleeps takes some microseconds; between processes over TCP some tens, which a profile may say.
static constexpr double kMessage = 10e-6;

// Products of bf16 by AMX, packing included: 450 to 750 G operations a second and core in the steps of GPTs with two of them at work,
// where products of f32 reached 130 (an Intel Xeon at 2.6 GHz), and attention 95 to 135 where that of f32 reached 50 to 80, since its
// softmax stays. A profile has the rates of f32; these ratios serve there.
static constexpr double kAmxProducts = 500e9, kAmxAttends = 110e9, kAmxGain = 4, kAmxAttendGain = 1.6;
// By vdpbf16ps: 200 to 215 of products and 100 to 120 of attention on a core of Zen 4, where those of f32 reached 108, 75 and 83.
static constexpr double kDotGain = 1.9, kDotAttendGain = 1.4;

// Of one core. `cinch calibrate` on an AMD EPYC (Zen 4) found 108 G operations a second of products, 78 and 85 of attention and its gradient, 52
// of loops and 0.1 us to start a kernel; with kernels for AVX2 104, 62, 75, 46 and 0.1 us. These are rounded down, since other cores reach less.
// Memory is what comes from beyond the caches, of which the cores of a machine share one bus.
MachineRates builtInRates(int threads, int lanes) {
  double n = threads;
  bool wide = lanes >= 16;
  return {85e9 * n, (wide ? 65e9 : 50e9) * n, (wide ? 70e9 : 60e9) * n, (wide ? 50e9 : 30e9) * n, std::min(14e9 * n, 24e9), 0.2e-6, 0, kMessage};
}

// More threads than were measured do not run at once.
MachineRates Cpu::rates() const {
  bool builtIn = costs.measured.empty();
  MachineRates rates = builtIn ? builtInRates(threads, kernels.lanes) : costs.measured.front().second;
  for (auto &[count, reached] : costs.measured)
    if (count <= threads)
      rates = reached;
  if (kernels.amx && builtIn)
    rates.tensor = kAmxProducts * threads, rates.tensorAttend = kAmxAttends * threads;
  else if (kernels.amx)
    rates.tensor = kAmxGain * rates.product, rates.tensorAttend = kAmxAttendGain * rates.attend;
  else if (kernels.dots)
    rates.tensor = kDotGain * rates.product, rates.tensorAttend = kDotAttendGain * rates.attend;
  return rates;
}

int MachineCosts::threads(int most) const {
  int counted = measured.empty() ? most : measured.front().first;
  for (auto &[count, reached] : measured)
    if (count <= most)
      counted = count;
  return counted;
}

double rateOf(plan::KernelOp op, const KernelSpec &spec, const MachineRates &machine) {
  if (machine.tensor > 0 && spec.isOfTensorCores())
    return spec.isAttention() ? machine.tensorAttend : machine.tensor;
  double rate = machine.*traitsOf(op.getKind()).rate;
  // Rates are those of f32; a vector holds half as many f64.
  return elemOf(op.getOutputs().front()) == kernels::Elem::F64 ? rate / 2 : rate;
}

void priceKernel(plan::KernelOp op, const KernelSpec &spec, bool inLoop, const MachineRates &machine, int64_t batch, solve::Kernel &kernel) {
  // Arithmetic and traffic of one micro-batch of one example, and what does not depend on it.
  double fixedFlops = 0, exampleFlops = 0, fixedBytes = 0, exampleBytes = 0;
  for (Operation &inner : op.getBody().front())
    if (auto cost = dyn_cast<nn::Cost>(inner))
      (nn::touchesBatch(&inner) ? exampleFlops : fixedFlops) += cost.flops();
  auto touch = [&](Value value, int times) {
    (batchAxisOf(value) >= 0 ? exampleBytes : fixedBytes) += double(bytesOf(value)) * times;
  };
  for (Value value : op.getInputs())
    touch(value, 1);
  for (Value value : op.getOutputs())
    touch(value, batchAxisOf(value) < 0 && inLoop ? 2 : 1);
  exampleFlops /= double(batch);
  exampleBytes /= double(batch);
  kernel.work = traitsOf(op.getKind()).work;
  double rate = rateOf(op, spec, machine);
  kernel.flops = {fixedFlops, exampleFlops};
  kernel.traffic = {fixedBytes, exampleBytes};
  // The traffic that every micro-batch has (weights, their gradients) is not hidden behind the arithmetic of its
  // examples: measured on deep nets, small micro-batches cost what the sum says.
  double fixed = std::max(fixedFlops / rate, fixedBytes / machine.bytes);
  double example = std::max(exampleFlops / rate, exampleBytes / machine.bytes);
  kernel.seconds = {fixed + machine.launch, example};
}

} // namespace cinch::analysis
