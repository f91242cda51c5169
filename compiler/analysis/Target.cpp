// Target.cpp: the GPUs that are known by name, with the rates that NVIDIA publishes.
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
  double tensor, reached; // operations a second of bf16 on tensor cores, in 10^12, and the share of it that mma.sync can reach
};
} // namespace

// Data sheets of NVIDIA: A100 (2021), H100 (2023), H200 (2023), SXM versions; tensor cores without sparsity. On Hopper, mma.sync ends near 63 %
// of what wgmma reaches (Luo et al., arXiv 2402.13499). The bus: PCIe of generation 4 (64 GB/s in both
// directions together) and 5 (128 GB/s).
static const Device devices[] = {
    {"a100", "A100 SXM 80GB", "sm_80", 108, 80, 19.5, 2039, 32, 312, 1},
    {"a100-40gb", "A100 SXM 40GB", "sm_80", 108, 40, 19.5, 1555, 32, 312, 1},
    {"h100", "H100 SXM", "sm_90a", 132, 80, 67, 3350, 64, 989.4, 0.63},
    {"h200", "H200 SXM", "sm_90a", 132, 141, 67, 4800, 64, 989.4, 0.63},
};
// A GPU that has a name is given the fastest PTX there is for it. PTX for one of these runs on it and on all later ones, but for sm_90a, which is
// for 9.0 alone; the GPU that it is priced as.
static const struct {
  const char *arch, *device;
} archs[] = {{"sm_80", "a100"},  {"sm_86", "a100"},  {"sm_89", "a100"}, {"sm_90", "h100"},
             {"sm_90a", "h100"}, {"sm_100", "h200"}, {"sm_120", "h200"}};
// Of the peak of wgmma, which is sm_90a's, the share is assumed that cuBLAS reaches on an H200 in products of 8192 x 8192 (770 to 800
// TFLOP/s). Attention stays mma.sync's.
static const double kOfWarpgroups = 0.79;

// Assumed: what copies from and to pinned memory reach of the bus, the rest being headers of its packets, and what it takes to start one.
static const double kOfBus = 0.8, kCopyLatency = 10e-6;

static Target targetOf(const Device &device) {
  Target target;
  target.device = device.name, target.people = device.people, target.arch = device.arch;
  target.processors = device.processors, target.memory = device.gigabytes * 1'000'000'000;
  // A roofline. The peak counts an FMA as two operations, so that additions reach half of it. A launch: what the driver takes at least. A
  // message: a copy and an event, which the other device's stream waits for.
  const double peak = device.tera * 1e12;
  target.published = {peak, peak, peak, peak / 2, device.bandwidth * 1e9, 3e-6, device.tensor * device.reached * 1e12, 10e-6};
  target.published.tensorAttend = target.published.tensor;
  target.published.hostIn = target.published.hostOut = kOfBus * device.host * 1e9;
  target.published.hostLatency = kCopyLatency;
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
    if (kind == "nvidia" && name == device.name) {
      Target target = targetOf(device);
      if (!arch.empty())
        target.arch = arch;
      if (target.hasWarpgroups())
        target.published.tensor = kOfWarpgroups * device.tensor * 1e12;
      return target;
    }
  error = "no target is called '" + word + "'; these are known: " + known;
  return std::nullopt;
}

} // namespace cinch::analysis
