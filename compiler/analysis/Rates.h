// Rates.h: what a machine reaches: the coefficients of the cost model.
#ifndef CINCH_COMPILER_ANALYSIS_RATES_H
#define CINCH_COMPILER_ANALYSIS_RATES_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cinch::analysis {

// What a multiprocessor of a GPU reaches. FMAs and instructions are counted one for each thread. (Target.cpp says where each number is from.)
struct DeviceRates {
  double clock = 0;       // cycles a second
  double groupsClock = 0; // while all multiprocessors multiply by wgmma
  double singles = 0;     // FMAs a cycle on cores that compute them one by one
  double sync = 0;        // on tensor cores by mma.sync, of bf16
  double syncTF32 = 0;    // and of tf32
  double groups = 0;      // by wgmma; 0: it has none
  double issued = 0;      // instructions a cycle that loops begin
  double access = 0;      // instructions for each element that is read or written, beside what is computed
  double latency = 0;     // seconds from a read of memory to its use
  double roundTrip = 0;   // seconds of a turn of a block that sums columns: a read, what is computed of it, a barrier
  // Attention beside its products: instructions a score, and how many of them begin in a cycle.
  struct Scores {
    double forward = 0, backward = 0, issued = 0;
  };
  Scores scores, scoresOfGroups; // the latter: whose products are those of wgmma
  double drawForward = 0, drawBackward = 0; // instructions of a draw of dropout
};

// What a machine reaches with all threads of a program together.
struct MachineRates {
  double product = 0;    // operations a second: matrix products
  double attend = 0;     // streaming attention
  double attendGrad = 0; // its gradient
  double loop = 0;       // element-wise and row-wise work, in additions
  double bytes = 0;      // bytes a second from and to memory
  double near = 0;       // bytes a second from and to the caches that each core has for itself
  int64_t nearBytes = 0; // of these caches; 0: all traffic is priced as memory's
  double launch = 0;     // seconds to start a kernel, on all threads
  double tensor = 0;     // operations a second: products of bf16 by AMX or vdpbf16ps; 0: the CPU has none
  double message = 0;    // seconds until a worker that waits for a message goes on with it, beside the copying of its bytes
  // Of a device: bytes a second from pinned memory of the host, and to it, both at the same time, and seconds to start a copy. 0: it has none.
  double hostIn = 0, hostOut = 0, hostLatency = 0;
  double tensorAttend = 0; // as `tensor`, of attention with its softmax
  int threads = 1;         // that reach all this together
  double bytesOfCore = 0;  // of `bytes`, what one core reaches by itself
  // Of a GPU. Its kernels are priced with these, `bytes` and `launch` (DeviceCost.h), and with none of the rates of arithmetic above.
  DeviceRates device;
  double launchAlone = 0; // of a CPU: seconds to start a kernel on one thread
};

struct MachineCosts {
  std::string source = "built-in costs"; // for people
  std::vector<std::pair<int, MachineRates>> measured; // by rising number of threads; empty: the built-in model
  // How many of so many threads count.
  int threads(int most) const;
};

// The built-in model, of a CPU whose vectors hold so many f32. It has current x86 cores in mind, as many of them as there are threads; plans
// compare kernels with one another, so ratios matter more than absolutes.
MachineRates builtInRates(int threads, int lanes);

} // namespace cinch::analysis
#endif
