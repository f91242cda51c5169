// Target.cpp: the GPUs that are known by name: what NVIDIA publishes of them, and what kernels reach of it.
#include "compiler/analysis/Target.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"

namespace cinch::analysis {

namespace {
struct Device {
  const char *name, *people, *arch;
  int processors;
  int64_t gigabytes;
  double tera, bandwidth; // f32 operations a second on the cores that compute FMAs one by one, in 10^12; bytes a second in 10^9
  double host;            // bytes a second in 10^9 of the bus to the host, in one direction
  double tensor, tf32;    // operations a second of bf16 and of tf32 on tensor cores, in 10^12
  double eachCycle;       // FMAs of bf16 in a cycle of a multiprocessor
  double sync;            // the share of it that mma.sync can reach
};
} // namespace

// Data sheets of NVIDIA: A100 (2021), H100 (2023), H200 (2023), SXM versions; tensor cores without sparsity (the sheets of H100 and H200 name what
// sparsity doubles: 1,979 of bf16, 989 of tf32). On Hopper, mma.sync ends near 63 %
// of what wgmma reaches (Luo et al., arXiv 2402.13499). The bus: PCIe of generation 4 (64 GB/s in both
// directions together) and 5 (128 GB/s).
static const Device devices[] = {
    {"a100", "A100 SXM 80GB", "sm_80", 108, 80, 19.5, 2039, 32, 312, 156, 1024, 1},
    {"a100-40gb", "A100 SXM 40GB", "sm_80", 108, 40, 19.5, 1555, 32, 312, 156, 1024, 1},
    {"h100", "H100 SXM", "sm_90a", 132, 80, 67, 3350, 64, 989.4, 494.7, 2048, 0.63},
    {"h200", "H200 SXM", "sm_90a", 132, 141, 67, 4800, 64, 989.4, 494.7, 2048, 0.63},
};
// A GPU that has a name is given the fastest PTX there is for it. PTX for one of these runs on it and on all later ones, but for sm_90a, which is
// for 9.0 alone; the GPU that it is priced as.
static const struct {
  const char *arch, *device;
} archs[] = {{"sm_80", "a100"},  {"sm_86", "a100"},  {"sm_89", "a100"}, {"sm_90", "h100"},
             {"sm_90a", "h100"}, {"sm_100", "h200"}, {"sm_120", "h200"}};

// Assumed: what copies from and to pinned memory reach of the bus, the rest being headers of its packets, and what it takes to start one.
static const double kOfBus = 0.8, kCopyLatency = 10e-6;

// What kernels reach of that. What is fitted was fitted on GPT-2 124M in bf16 on an H200, 26 and 28 November 2026: docs/nvidia.md says on what, and how
// far the rest is off. Other GPUs are assumed to reach as much.
static const double kOfBandwidth = 0.9;  // a device copy: 4.3 of 4.8 TB/s on an H200
static const double kOfClock = 0.79;     // of the clock, while all multiply by wgmma: cuBLAS, 8192 x 8192 (770 to 800 TFLOP/s), on an H200
static const double kIssuers = 128;      // instructions of threads that the four quarters of a multiprocessor begin in a cycle
static const double kOfIssuers = 0.5;    // fitted on loops of rows and elements
// Attention. Instructions a score beside products stand in its main loops, without draws; those of a draw, too. Of the instructions that begin in a
// cycle, two shares were fitted, each on attention forward and backward together: by mma.sync (26 November) and by wgmma (28 November). Comparisons and
// choices have half of the rate, powers of two an eighth, and products wait.
static const DeviceRates::Scores kScores = {11, 16, 0.27 * kIssuers}, kScoresOfGroups = {9.4, 18.4, 0.38 * kIssuers};
static const double kDrawForward = 8, kDrawBackward = 13.4;
static const double kAccess = 2;         // assumed: widening or rounding, and a part of a load or store and its address
static const double kLatency = 0.4e-6;   // fitted on the products that read rows of 50,257
static const double kRoundTrip = 1.4e-6; // fitted on column sums
static const double kLaunch = 3e-6;      // assumed: what the driver takes at least

static MachineRates ratesOf(const Device &device, bool groups) {
  MachineRates rates;
  rates.bytes = kOfBandwidth * device.bandwidth * 1e9;
  rates.launch = kLaunch;
  rates.message = 10e-6; // a copy and an event, which the other device's stream waits for
  rates.hostIn = rates.hostOut = kOfBus * device.host * 1e9;
  rates.hostLatency = kCopyLatency;
  DeviceRates &each = rates.device;
  each.clock = device.tensor * 1e12 / (2 * device.eachCycle * device.processors);
  each.singles = device.tera * 1e12 / (2 * each.clock * device.processors);
  each.sync = device.sync * device.eachCycle, each.syncTF32 = each.sync * device.tf32 / device.tensor;
  if (groups)
    each.groups = device.eachCycle, each.groupsClock = kOfClock * each.clock;
  each.issued = kOfIssuers * kIssuers;
  each.access = kAccess;
  each.latency = kLatency;
  each.roundTrip = kRoundTrip;
  each.scores = kScores, each.scoresOfGroups = kScoresOfGroups;
  each.drawForward = kDrawForward, each.drawBackward = kDrawBackward;
  return rates;
}

static Target targetOf(const Device &device, const std::string &arch) {
  Target target;
  target.device = device.name, target.people = device.people, target.arch = arch;
  target.processors = device.processors, target.memory = device.gigabytes * 1'000'000'000;
  target.reached = ratesOf(device, target.hasWarpgroups());
  return target;
}

std::optional<Target> parseTarget(const std::string &word, std::string &error) {
  if (word == "cpu")
    return Target();
  llvm::StringRef kind, name;
  std::tie(kind, name) = llvm::StringRef(word).split(':');
  std::string known = "cpu, nvidia";
  for (const Device &device : devices)
    known += std::string(", nvidia:") + device.name;
  for (auto &each : archs)
    known += std::string(", nvidia:") + each.arch;
  std::string arch;
  if (kind == "nvidia" && word == "nvidia")
    name = "sm_80";
  for (auto &each : archs)
    if (kind == "nvidia" && name == each.arch)
      name = each.device, arch = each.arch;
  for (const Device &device : devices)
    if (kind == "nvidia" && name == device.name)
      return targetOf(device, arch.empty() ? device.arch : arch);
  error = "no target is called '" + word + "'; these are known: " + known;
  return std::nullopt;
}

} // namespace cinch::analysis
