// Cost.cpp: bytes and predicted times of kernels.
#include "compiler/analysis/Cost.h"

#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch::analysis {

int64_t bytesOf(Value value) { return elementsOf(value) * kernels::bytesOf(elemOf(value)); }

MachineRates MachineCosts::at(int threads) const {
  if (measured.empty()) {
    double n = threads;
    return {85e9 * n, 40e9 * n, 40e9 * n, 8e9 * n, std::min(14e9 * n, 24e9), 4e-6};
  }
  // More threads than were measured do not run at once.
  const MachineRates *rates = &measured.front().second;
  for (auto &[count, reached] : measured)
    if (count <= threads)
      rates = &reached;
  return *rates;
}

int MachineCosts::threads(int most) const {
  int counted = measured.empty() ? most : measured.front().first;
  for (auto &[count, reached] : measured)
    if (count <= most)
      counted = count;
  return counted;
}

void priceKernel(const KernelGroup &group, const MachineRates &machine, int64_t batch, solve::Kernel &kernel) {
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
  double rate = machine.loop;
  switch (group.kind) {
  case KernelGroup::Loop: break;
  case KernelGroup::Contract: kernel.work = solve::Kernel::Product, rate = machine.product; break;
  case KernelGroup::Attend: kernel.work = solve::Kernel::Attention, rate = machine.attend; break;
  case KernelGroup::AttendGrad: kernel.work = solve::Kernel::AttentionGrad, rate = machine.attendGrad; break;
  case KernelGroup::Gate:
  case KernelGroup::Results: kernel.work = solve::Kernel::Nothing; break;
  }
  // Rates are those of f32; a vector holds half as many f64.
  if (!group.stores.empty() && elemOf(group.stores.front()) == kernels::Elem::F64)
    rate /= 2;
  kernel.flops = {fixedFlops, exampleFlops};
  kernel.traffic = {fixedBytes, exampleBytes};
  if (kernel.work == solve::Kernel::Nothing) {
    kernel.seconds = {0, 0};
    return;
  }
  // The traffic that every micro-batch has (weights, their gradients) is not hidden behind the arithmetic of its
  // examples: measured on deep nets, small micro-batches cost what the sum says.
  double fixed = std::max(fixedFlops / rate, fixedBytes / machine.bytes);
  double example = std::max(exampleFlops / rate, exampleBytes / machine.bytes);
  kernel.seconds = {fixed + machine.launch, example};
}

} // namespace cinch::analysis
