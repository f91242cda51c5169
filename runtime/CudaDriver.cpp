// CudaDriver.cpp: see CudaDriver.h.
#include "runtime/CudaDriver.h"
#include "runtime/Checkpoint.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

CudaDriver cuda;

void openDriver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    fail(kResources, "this program was compiled for a GPU of NVIDIA, whose driver is not here: %s; install it, or compile with --target cpu",
         dlerror());
#define F(NAME, SYMBOL, ARGUMENTS)                                                                                                 \
  cuda.NAME = reinterpret_cast<CUresult(*) ARGUMENTS>(dlsym(library, SYMBOL));                                                     \
  if (!cuda.NAME)                                                                                                                  \
    fail(kResources, "the driver of NVIDIA on this machine is too old: it has no %s", SYMBOL);
  CINCH_CUDA_FUNCTIONS(F)
#undef F
  cuda.hasGraphs = true;
#define F(NAME, SYMBOL, ARGUMENTS)                                                                                                 \
  cuda.NAME = reinterpret_cast<CUresult(*) ARGUMENTS>(dlsym(library, SYMBOL));                                                     \
  cuda.hasGraphs = cuda.hasGraphs && cuda.NAME;
  CINCH_CUDA_GRAPHS(F)
#undef F
#define F(NAME, SYMBOL, ARGUMENTS) cuda.NAME = reinterpret_cast<CUresult(*) ARGUMENTS>(dlsym(library, SYMBOL));
  CINCH_CUDA_MAPS(F)
#undef F
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
  cuda.blocking = blocking && strcmp(blocking, "1") == 0;
}

// Where the error was seen, in the user's words. The device does its work later than the host asks for it.
static void addPlace(Text &text, int64_t number) {
  static Launch launch;
  if (number >= 0 && readLaunch(run.meta, cinch_meta, int32_t(number), launch))
    text.add(", %s %s (%s:%lld)", cuda.blocking ? "in" : "starting", launch.text[0] ? launch.text : launch.kernel,
             launch.file[0] ? launch.file : run.meta.source, (long long)launch.line);
  if (run.training)
    text.add(", in step %lld", (long long)run.step);
}

void addResult(Text &text, CUresult result) {
  const char *name = nullptr, *words = nullptr;
  if (cuda.errorName)
    cuda.errorName(result, &name);
  if (cuda.errorText)
    cuda.errorText(result, &words);
  text.add("%s (%s, %d)", words ? words : "unknown error", name ? name : "no name", result);
}

// What may be done about it.
static void addAdvice(Text &text, CUresult result, int64_t launch) {
  if (result == kOutOfMemory)
    text.add("; beside the plan's bytes the driver needs some for itself, and other processes may hold the rest: compile with a smaller "
             "--memory-budget");
  else if (result == kEccUncorrectable)
    text.add("; the device's memory is faulty: what was computed since the last checkpoint cannot be trusted");
  else if (result >= kFirstOfKernels && result <= kLastOfKernels && !cuda.blocking && launch < 0)
    text.add("; with CUDA_LAUNCH_BLOCKING=1 in the environment the kernel is named");
}

void expect(CUresult result, const char *what, int64_t launch) {
  if (result == 0)
    return;
  Text text;
  text.add("the GPU failed to %s", what);
  addPlace(text, launch);
  text.add(": ");
  addResult(text, result);
  addAdvice(text, result, launch);
  fail(kResources, "%s%s", text.data, whatToGoOnFrom());
}

} // namespace cinch::rt
