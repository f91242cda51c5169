// Cost.cpp: bytes and predicted times of kernels.
#include "compiler/analysis/Cost.h"

#include "compiler/analysis/DeviceCost.h"
#include "compiler/analysis/KernelProblem.h"
#include "compiler/analysis/Target.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch::analysis {

int64_t bytesOf(Value value) { return nn::elementsInMemory(nn::tensorOf(value)) * kernels::bytesOf(elemOf(value)); }

// Waking a thread that sleeps takes some microseconds; between processes over TCP some tens, which a profile may say.
static constexpr double kMessage = 10e-6;

// Products of bf16 by AMX, packing included: 700 to 1000 G operations a second and core in the steps of GPTs with two of them at work, where products
// of f32 reached 150 (an Intel Xeon), 150 to 1000 in convolutions and 300 to 400 in the small products of an LSTM; attention 120 to 180, where that of
// f32 reached 65 to 85, since its softmax stays. A profile has the rates of f32; these ratios serve there.
static constexpr double kAmxProducts = 700e9, kAmxAttends = 140e9, kAmxGain = 4.5, kAmxAttendGain = 1.9;
// By vdpbf16ps: 200 to 215 of products and 100 to 120 of attention on a core of Zen 4, where those of f32 reached 108, 75 and 83.
static constexpr double kDotGain = 1.9, kDotAttendGain = 1.4;

// A convolution by Winograd's minimal filtering makes its products at this share of the usual rate, since it transforms its operands, too. On an Emerald
// Rapids it was 0.8 with 128 channels, 0.7 with 64 and 256, and 0.55 with 16; of gradients of filters 0.45 to 0.65 (`bench/run conv`).
static constexpr double kWinogradShare = 0.7;

// Of one core: what its second-level cache holds, and hands out. (Zen 4, Zen 5 and Skylake's servers have 1 MiB, later ones of Intel 2 MiB; on an
// Emerald Rapids loops over less went at 35 to 58 GB/s a core.)
static constexpr int64_t kNearBytes = 1 << 20;
static constexpr double kNear = 40e9;

// Memory is what comes from beyond the caches, of which the cores of a machine share one bus.
static constexpr double kBytesOfCore = 14e9;

// Threads that spin take up a kernel and report its end in 0.25 us (two of a Zen 4, an LSTM of an example at a time); a thread begins with it in 0.03 us.
static constexpr double kLaunch = 0.25e-6, kLaunchAlone = 0.03e-6;

// Of one core. `cinch calibrate` on an AMD EPYC (Zen 4) found 108 G operations a second of products, 78 and 85 of attention and its gradient, 52
// of loops; with kernels for AVX2 104, 62, 75 and 46. These are rounded down, since other cores reach less.
MachineRates builtInRates(int threads, int lanes) {
  double n = threads;
  bool wide = lanes >= 16;
  MachineRates rates;
  rates.product = 85e9 * n, rates.attend = (wide ? 65e9 : 50e9) * n, rates.attendGrad = (wide ? 70e9 : 60e9) * n;
  rates.loop = (wide ? 50e9 : 30e9) * n;
  rates.bytes = std::min(kBytesOfCore * n, 24e9), rates.bytesOfCore = kBytesOfCore, rates.threads = threads;
  rates.near = kNear * n, rates.nearBytes = kNearBytes * threads;
  rates.launch = threads > 1 ? kLaunch : kLaunchAlone, rates.launchAlone = kLaunchAlone, rates.message = kMessage;
  return rates;
}

// More threads than were measured do not run at once.
MachineRates Cpu::rates() const {
  bool builtIn = costs.measured.empty();
  MachineRates rates = builtIn ? builtInRates(threads, kernels.lanes) : costs.measured.front().second;
  for (auto &[count, reached] : costs.measured)
    if (count <= threads)
      rates = reached;
  if (!builtIn) { // a profile has one rate of memory, that of what was measured
    const MachineRates usual = builtInRates(costs.threads(threads), kernels.lanes);
    rates.threads = usual.threads;
    rates.bytesOfCore = costs.measured.front().first == 1 ? costs.measured.front().second.bytes : std::min(rates.bytes, kBytesOfCore);
    rates.near = std::max(rates.bytes, usual.near), rates.nearBytes = usual.nearBytes;
    rates.launchAlone = costs.measured.front().first == 1 ? costs.measured.front().second.launch : std::min(rates.launch, usual.launchAlone);
  }
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

// Operations a second that the arithmetic of a kernel is priced with on a CPU. The spec may be of any extent.
static double rateOf(plan::KernelOp op, const KernelSpec &spec, const MachineRates &machine) {
  if (machine.tensor > 0 && spec.isOfTensorCores())
    return spec.isAttention() ? machine.tensorAttend : machine.tensor;
  double rate = machine.*traitsOf(op.getKind()).rate;
  if (auto *conv = std::get_if<kernels::ConvSpec>(&spec.work); conv && conv->parts.front().winograd)
    rate *= kWinogradShare;
  // Rates are those of f32; a vector holds half as many f64.
  return elemOf(op.getOutputs().front()) == kernels::Elem::F64 ? rate / 2 : rate;
}

namespace {

// Is what a kernel reads of its examples still in the caches if few of them are worked on at a time? What the forward sweep has left for the
// backward one is not, nor is the data.
bool isLately(plan::KernelOp reader, Value value) {
  auto producer = value.getDefiningOp<plan::KernelOp>();
  return producer && (isBackward(producer) || !isBackward(reader));
}

// What a kernel does for each example, and what does not depend on their number.
struct Work {
  solve::Linear flops, bytes, accesses;
  double near = 0; // of the bytes of an example
  Work(plan::KernelOp op, bool inLoop, int64_t batch) {
    for (Operation &inner : op.getBody().front())
      if (auto cost = dyn_cast<nn::Cost>(inner))
        (nn::touchesBatch(&inner) ? flops.perExample : flops.fixed) += cost.flops();
    auto touch = [&](Value value, int times, bool lately) {
      const bool ofExamples = batchAxisOf(value) >= 0;
      (ofExamples ? bytes.perExample : bytes.fixed) += double(bytesOf(value)) * times;
      (ofExamples ? accesses.perExample : accesses.fixed) += double(elementsOf(value)) * times;
      near += ofExamples && lately ? double(bytesOf(value)) / double(batch) : 0;
    };
    for (Value value : op.getInputs())
      touch(value, 1, isLately(op, value));
    for (Value value : op.getOutputs())
      touch(value, batchAxisOf(value) < 0 && inLoop ? 2 : 1, true);
    for (solve::Linear *each : {&flops, &bytes, &accesses})
      each->perExample /= double(batch);
  }
  DeviceWork at(double examples) const { return {flops.at(examples), accesses.at(examples), bytes.at(examples)}; }
};

} // namespace

// What a kernel reaches whose threads share so many equal pieces of work (0: as many as you like). A thread does one after the other: in the last
// round some threads have none. So a chain over the positions of one example is one thread's.
static MachineRates reachedBy(int64_t items, MachineRates machine) {
  const int64_t threads = machine.threads;
  if (items <= 0 || items % threads == 0)
    return machine;
  const double busy = double(items) / double((items + threads - 1) / threads), share = busy / double(threads);
  for (double MachineRates::*rate : {&MachineRates::product, &MachineRates::attend, &MachineRates::attendGrad, &MachineRates::loop, &MachineRates::near,
                                     &MachineRates::tensor, &MachineRates::tensorAttend})
    machine.*rate *= share;
  machine.bytes = std::min(machine.bytes, busy * machine.bytesOfCore);
  return machine;
}

static MachineRates ofOneThread(const MachineRates &machine) {
  MachineRates one = reachedBy(1, machine);
  one.launch = machine.launchAlone, one.nearBytes /= machine.threads;
  return one;
}

// The traffic that every micro-batch has (weights, their gradients) is not hidden behind the arithmetic of its
// examples: measured on deep nets, small micro-batches cost what the sum says. As long as all that the kernel touches of its examples finds
// room in the caches, what it reads that was written lately and what it writes is priced with their rate (U-Net: a step of 4 examples at a
// time is 1.13 times as fast as one of 32, on an Emerald Rapids).
static solve::Seconds secondsAtRates(const Work &work, double rate, const MachineRates &machine) {
  double fixed = std::max(work.flops.fixed / rate, work.bytes.fixed / machine.bytes);
  auto example = [&](double near) {
    return std::max(work.flops.perExample / rate, (work.bytes.perExample - near) / machine.bytes + near / machine.near);
  };
  solve::Seconds seconds(fixed + machine.launch, example(0));
  if (double saved = work.near > 0 ? example(0) - example(work.near) : 0; saved > 0)
    seconds.near.push_back({double(machine.nearBytes) / work.bytes.perExample, saved});
  return seconds;
}

namespace {

// Handing a small kernel to the threads takes longer than it does itself: then one of them does all of it.
struct CpuPrice {
  MachineRates rates; // of the threads that do it
  double rate = 0;    // of its arithmetic
  bool alone = false;
  solve::Seconds seconds;
  CpuPrice(plan::KernelOp op, const KernelSpec &spec, const Work &work, int64_t examples, const PricedMachine &machine) {
    auto price = [&](const MachineRates &reached) {
      rates = reached, rate = rateOf(op, spec, rates);
      seconds = secondsAtRates(work, rate, rates);
      return seconds.at(double(examples));
    };
    double byOne = price(ofOneThread(machine.rates));
    alone = byOne <= price(reachedBy(spec.itemsOnCpu(machine.target), machine.rates));
    if (alone)
      price(ofOneThread(machine.rates));
  }
};

} // namespace

// The line is that of the whole batch.
static solve::Seconds secondsOnCpu(plan::KernelOp op, const Work &work, SpecsOfKernel specs, const PricedMachine &machine) {
  constexpr double kTold = 0.01; // of the time
  auto secondsOf = [&](auto &spec) { return CpuPrice(op, *spec.second, work, spec.first, machine).seconds; };
  solve::Seconds seconds = secondsOf(specs.front());
  for (auto &each : specs.drop_front()) {
    const double b = double(each.first), there = secondsOf(each).at(b), more = there - seconds.at(b);
    if (std::abs(more) > kTold * there)
      seconds.uneven.push_back({b, more});
  }
  return seconds;
}

static solve::Seconds secondsOnDevice(const Work &work, SpecsOfKernel specs, const PricedMachine &machine) {
  auto at = [&](auto &spec) { return priceOnDevice(*spec.second, work.at(double(spec.first)), machine.target, machine.rates).seconds; };
  const auto &[most, whole] = specs.front();
  const auto &[fewest, part] = specs.back();
  const double all = at(specs.front());
  if (fewest == most)
    return {all, 0};
  const double few = at(specs.back()), example = std::max(0.0, (all - few) / double(most - fewest));
  const double fixed = std::max(machine.rates.launch, all - example * double(most));
  return {fixed, (all - fixed) / double(most)};
}

static double dearer(plan::KernelOp op) {
  auto function = op->getParentOfType<func::FuncOp>();
  auto times = function ? function->getAttrOfType<FloatAttr>(kDearerAttr) : FloatAttr();
  return times ? times.getValueAsDouble() : 1;
}

void priceKernel(plan::KernelOp op, SpecsOfKernel specs, bool inLoop, const PricedMachine &machine, solve::Kernel &kernel) {
  const Work work(op, inLoop, specs.front().first);
  kernel.work = traitsOf(op.getKind()).work;
  kernel.flops = work.flops, kernel.traffic = work.bytes;
  kernel.seconds = {};
  kernel.seconds.add(machine.target.isDevice() ? secondsOnDevice(work, specs, machine)
                                               : secondsOnCpu(op, work, specs, machine),
                     dearer(op));
}

LaunchPrice priceOfLaunch(plan::KernelOp op, const KernelSpec &spec, bool inLoop, const PricedMachine &machine) {
  const Work work(op, inLoop, 1);
  LaunchPrice price;
  price.flops = work.flops.at(1), price.traffic = work.bytes.at(1);
  if (machine.target.isDevice()) {
    DevicePrice device = priceOnDevice(spec, work.at(1), machine.target, machine.rates);
    price.arithmeticSeconds = device.arithmetic, price.trafficSeconds = device.traffic, price.seconds = device.seconds * dearer(op);
    return price;
  }
  const CpuPrice cpu(op, spec, work, 1, machine);
  price.arithmeticSeconds = price.flops / cpu.rate, price.trafficSeconds = price.traffic / cpu.rates.bytes;
  price.seconds = cpu.seconds.at(1) * dearer(op), price.alone = cpu.alone;
  return price;
}

} // namespace cinch::analysis
