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
  // The traffic that every micro-batch has (weights, their gradients) is not hidden behind the arithmetic of its
  // examples: measured on deep nets, small micro-batches cost what the sum says.
  double fixed = std::max(fixedFlops / rate, fixedBytes / bandwidth);
  double example = std::max(exampleFlops / rate, exampleBytes / bandwidth);
  kernel.seconds = {fixed + machine.launchSeconds, example};
}

} // namespace cinch::analysis
