// Cost.cpp: bytes and predicted times of kernels.
#include "compiler/analysis/Cost.h"

#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch::analysis {

int64_t bytesOf(Value value) { return elementsOf(value) * kernels::bytesOf(elemOf(value)); }

void priceKernel(const KernelGroup &group, const MachineCosts &machine, int64_t batch, int threads,
                 solve::Kernel &kernel) {
  // Arithmetic and traffic of one micro-batch of one example, and what does not depend on it.
  double fixedFlops = 0, exampleFlops = 0, fixedBytes = 0, exampleBytes = 0;
  for (Operation *op : group.ops)
    if (auto cost = dyn_cast<nn::Cost>(op))
      (nn::touchesBatch(op) ? exampleFlops : fixedFlops) += cost.flops();
  auto touch = [&](Value value, int times) {
    (batchAxisOf(value) >= 0 ? exampleBytes : fixedBytes) += double(bytesOf(value)) * times;
  };
  for (Value value : group.reads)
    touch(value, 1);
  for (Value value : group.stores)
    touch(value, batchAxisOf(value) < 0 && group.section == solve::Section::Loop ? 2 : 1);
  exampleFlops /= double(batch);
  exampleBytes /= double(batch);
  double rate = group.kind == KernelGroup::Contract                                              ? machine.productFlops
                : group.kind == KernelGroup::Attend || group.kind == KernelGroup::AttendGrad ? machine.attendFlops
                                                                                             : machine.loopWork;
  rate *= threads;
  double bandwidth = std::min(machine.bytesPerSecond * threads, machine.allBytesPerSecond);
  kernel.flops = {fixedFlops, exampleFlops};
  kernel.traffic = {fixedBytes, exampleBytes};
  if (group.kind == KernelGroup::Gate || group.kind == KernelGroup::Results) {
    kernel.seconds = {0, 0};
    return;
  }
  kernel.flopsPerSecond = rate, kernel.bytesPerSecond = bandwidth, kernel.launchSeconds = machine.launchSeconds;
  // A roofline: arithmetic hides traffic or traffic hides arithmetic. As a function of the micro-batch it has a knee
  // (the same weights, for more examples); the line through its values at the batch and a quarter of it stands for it.
  auto roofline = [&](double examples) {
    return std::max((fixedFlops + exampleFlops * examples) / rate, (fixedBytes + exampleBytes * examples) / bandwidth);
  };
  double whole = roofline(double(batch)), quarter = roofline(double(batch) / 4);
  double example = (whole - quarter) / (0.75 * double(batch));
  kernel.seconds = {std::max(0.0, whole - example * double(batch)) + machine.launchSeconds, example};
}

} // namespace cinch::analysis
