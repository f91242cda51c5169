// CudaOpen.cpp: finds a device for every worker of this process, and takes there what it will need: an allocation, a stream, the kernels of
// the program, pinned memory. Two workers may share a device; each has its own of all these there.
#include "runtime/Cuda.h"
#include "runtime/Fill.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <new>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

Gpu *gpus;

namespace {

int deviceCount;

// The architecture that the PTX names: 80.
int neededCapability() {
  const char *at = strstr(cinch_device_code, ".target sm_");
  return at ? atoi(at + strlen(".target sm_")) : 0;
}

// Whether that is the only one it runs on: sm_90a.
bool isForOneKind() {
  const char *at = strstr(cinch_device_code, ".target sm_");
  at = at ? at + strlen(".target sm_") : "";
  return at[strspn(at, "0123456789")] == 'a';
}

void countDevices() {
  CUresult result = cuda.init(0);
  if (result == kDriverTooOld)
    fail(kResources, "the driver of NVIDIA on this machine is too old for its own library libcuda.so.1; update it");
  if (result != kNoDevice)
    expect(result, "start (cuInit)");
  if (result == 0)
    expect(cuda.deviceCount(&deviceCount), "be counted");
  if (result == kNoDevice || deviceCount == 0)
    fail(kResources, "no GPU of NVIDIA is in this machine, or none may be used (CUDA_VISIBLE_DEVICES)");
}

// Targets of cinch that run on every later GPU, too (compiler/analysis/Target.cpp).
static constexpr int kTargets[] = {80, 86, 89, 90, 100, 120};

// The newest of them that a GPU of this capability runs; 0: none.
static int newestTarget(int capability) {
  int newest = 0;
  for (int target : kTargets)
    newest = target <= capability ? target : newest;
  return newest;
}

void findDevice(Gpu &gpu, int ordinal) {
  int major = 0, minor = 0;
  expect(cuda.getDevice(&gpu.device, ordinal), "be found");
  expect(cuda.deviceName(gpu.name, sizeof gpu.name, gpu.device), "tell its name");
  expect(cuda.deviceAttribute(&major, kCapabilityMajor, gpu.device), "tell its capability");
  expect(cuda.deviceAttribute(&minor, kCapabilityMinor, gpu.device), "tell its capability");
  if (10 * major + minor < neededCapability()) {
    Text advice;
    if (int newest = newestTarget(10 * major + minor))
      advice.add("compile it with --target nvidia:sm_%d", newest);
    else
      advice.add("Cinch serves GPUs from %d.%d on", kTargets[0] / 10, kTargets[0] % 10);
    fail(kResources, "the GPU %s has compute capability %d.%d; the program was compiled for %d.%d and later: %s", gpu.name, major, minor,
         neededCapability() / 10, neededCapability() % 10, advice.data);
  }
  if (isForOneKind() && 10 * major + minor != neededCapability())
    fail(kResources,
         "the GPU %s has compute capability %d.%d; the program was compiled for %d.%d alone (--target nvidia:sm_%d is for later ones, too)",
         gpu.name, major, minor, neededCapability() / 10, neededCapability() % 10, neededCapability());
  CUresult result = cuda.retainContext(&gpu.context, gpu.device);
  if (result == kDeviceUnavailable)
    fail(kResources, "the GPU %s is another process's alone (nvidia-smi shows its compute mode and its processes)", gpu.name);
  expect(result, "make a context");
}

// Of this process: that use a device.
int64_t workersOn(CUdevice device) {
  int64_t count = 0;
  for (int64_t i = 0; i < workerCount; ++i)
    count += gpus[i].device == device;
  return count;
}

void takeArena(Gpu &gpu, const Worker &worker) {
  size_t left = 0, total = 0;
  char needs[40], human[40], all[40];
  Text whose;
  const int64_t bytes = worker.bytes > 0 ? worker.bytes : 1;
  expect(cuda.memoryInfo(&left, &total), "tell its memory");
  gpu.takenBefore = total - left;
  if (programWorkers() > 1)
    whose.add(" of worker %lld", (long long)worker.number);
  humanBytes(needs, bytes);
  if (uint64_t(bytes) > total)
    fail(kResources, "the plan%s needs %s (%lld bytes) on the device; %s has %s in all: compile with a smaller --memory-budget", whose.data, needs,
         (long long)bytes, gpu.name, humanBytes(all, int64_t(total)));
  CUresult result = cuda.allocateOnDevice(&gpu.arena, size_t(bytes));
  if (result == kOutOfMemory && workersOn(gpu.device) > 1)
    fail(kResources, "the plan%s needs %s (%lld bytes) on the device; of the %s of %s only %s are free: %lld workers of this run share it; let them "
         "have more devices (CUDA_VISIBLE_DEVICES), or compile with a smaller --memory-budget", whose.data, needs, (long long)bytes,
         humanBytes(all, int64_t(total)), gpu.name, humanBytes(human, int64_t(left)), (long long)workersOn(gpu.device));
  if (result == kOutOfMemory)
    fail(kResources, "the plan%s needs %s (%lld bytes) on the device; of the %s of %s only %s are free: another process holds the rest", whose.data,
         needs, (long long)bytes, humanBytes(all, int64_t(total)), gpu.name, humanBytes(human, int64_t(left)));
  expect(result, "hand out the arena");
}

// Machine code serves later devices of the same major number; others, and drivers that do not take it, get the PTX.
CUresult loadModule(const Gpu &gpu, CUmodule &module) {
  int major = 0;
  expect(cuda.deviceAttribute(&major, kCapabilityMajor, gpu.device), "tell its capability");
  if (cinch_device_cubin && major == neededCapability() / 10 && cuda.loadModule(&module, cinch_device_cubin, 0, nullptr, nullptr) == 0)
    return 0;
  return cuda.loadModule(&module, cinch_device_code, 0, nullptr, nullptr);
}

void loadKernels(Gpu &gpu) {
  CUmodule module = nullptr;
  CUresult result = loadModule(gpu, module);
  if (result == kUnsupportedPtx || result == kInvalidImage || result == kNoBinaryForGpu) {
    int version = 0;
    cuda.driverVersion(&version);
    fail(kResources, "the driver of NVIDIA on this machine (CUDA %d.%d) cannot read the program's kernels; it is too old for sm_%d",
         version / 1000, version % 1000 / 10, neededCapability());
  }
  expect(result, "take the program's kernels");
  int64_t count = 0;
  for (const char *at = cinch_device_kernels; *at; ++at)
    count += *at == '\n';
  gpu.kernels = allocateArray<CUfunction>(count + 1);
  const char *at = cinch_device_kernels;
  for (int64_t i = 0; i < count; ++i) { // its name, and the bytes of shared memory of its launches
    const char *end = strchr(at, ' ');
    const int shared = atoi(end);
    expect(cuda.functionOf(&gpu.kernels[i], module, copyText(at, size_t(end - at))), "find a kernel");
    if (shared > 0)
      expect(cuda.setFunction(gpu.kernels[i], kMostSharedOfLaunch, shared), "give a kernel its shared memory");
    at = strchr(end, '\n') + 1;
  }
  size_t bytes = 0;
  expect(cuda.functionOf(&gpu.gate, module, "cinch_gate"), "find a kernel");
  expect(cuda.functionOf(&gpu.endStep, module, "cinch_end_step"), "find a kernel");
  expect(cuda.functionOf(&gpu.clear, module, "cinch_clear"), "find a kernel");
  expect(cuda.functionOf(&gpu.take, module, "cinch_take"), "find a kernel");
  expect(cuda.functionOf(&gpu.add[0], module, "cinch_add32"), "find a kernel");
  expect(cuda.functionOf(&gpu.add[1], module, "cinch_add64"), "find a kernel");
  expect(cuda.globalOf(&gpu.control, &bytes, module, "cinch_control"), "find the words of the run");
  if (bytes != sizeof(Control))
    failInternal("the words of the run have %zu bytes on the device", bytes);
}

void prepareStaging(Staging &staging, int64_t bytes) {
  staging.memory = takePinned(bytes);
  if (!staging.memory)
    fail(kResources, "the driver of the GPU has no %lld bytes of pinned memory for data on its way", (long long)bytes);
  expect(cuda.createEvent(&staging.copied, kEventWithoutTimes), "make an event");
}

} // namespace

void openDevices() {
  openDriver();
  countDevices();
  enterThread();
  gpus = allocateArray<Gpu>(workerCount);
  for (int64_t i = 0; i < workerCount; ++i)
    findDevice(*new (&gpus[i]) Gpu(), int(workers[i].number % deviceCount));
  for (int64_t i = 0; i < workerCount; ++i) {
    Gpu &gpu = gpus[i];
    use(gpu);
    takeArena(gpu, workers[i]);
    expect(cuda.createStream(&gpu.stream, kStreamWaitsForNoOther), "make a stream");
    loadKernels(gpu);
    for (const Entry &entry : run.meta.entries)
      gpu.fillBytes = stagedBytes(workers[i], entry) > gpu.fillBytes ? stagedBytes(workers[i], entry) : gpu.fillBytes;
    for (int each = 0; each < 2; ++each) {
      prepareStaging(gpu.writes[each], kWriteBytes);
      prepareStaging(gpu.fills[each], gpu.fillBytes > 0 ? gpu.fillBytes : 64);
    }
    prepareSteps(workers[i]);
    prepareOffload(workers[i]);
  }
  prepareMessages();
  prepareMeetings();
  if (run.options.kernelTimes || run.options.profile)
    prepareTimes();
}

} // namespace cinch::rt
