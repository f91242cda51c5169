// Engines.cpp: see Engines.h.
#include "compiler/solve/Engines.h"

#include <algorithm>
#include <map>

namespace cinch::solve {

EngineTimes runEngines(const StepGraph &g, const std::vector<int> &kernels, int64_t microbatch) {
  EngineTimes times;
  double now = 0, freeIn = 0, freeOut = 0;
  std::map<int, double> ends; // of the copies under way, by the buffer in the arena
  for (int k : kernels) {
    const Kernel &kernel = g.kernels[size_t(k)];
    if (kernel.copy == Kernel::NoCopy) {
      double seconds = kernel.seconds.at(double(microbatch));
      now += seconds, times.kernels += seconds;
      continue;
    }
    if (kernel.copy == Kernel::Await) {
      now = std::max(now, ends[kernel.reads.front()]);
      continue;
    }
    bool in = kernel.copy == Kernel::Fetch;
    int buffer = in ? kernel.writes.front() : kernel.reads.front();
    int64_t bytes = g.buffers[size_t(buffer)].bytes(microbatch);
    double seconds = g.link.seconds(kernel.copy, bytes), &engine = in ? freeIn : freeOut;
    engine = std::max(engine, now) + seconds;
    (in ? times.in : times.out) += seconds;
    times.bytes += in ? bytes : 0;
    ends[buffer] = engine;
  }
  times.end = std::max({now, freeIn, freeOut});
  return times;
}

} // namespace cinch::solve
