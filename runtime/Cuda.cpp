// Cuda.cpp: GPUs of NVIDIA behind Device.h: for each worker one allocation, one stream, the kernels of the program's PTX.
#include "runtime/Cuda.h"
#include "runtime/Fill.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include <new>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

Gpu *gpus;

namespace {

// Parameters on their way: two buffers take turns.
constexpr int64_t kWriteBytes = int64_t(4) << 20;

int deviceCount;
int64_t pinnedBytes;

// The architecture that the PTX names: 80.
int neededCapability() {
  const char *at = strstr(cinch_device_code, ".target sm_");
  return at ? atoi(at + strlen(".target sm_")) : 0;
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

void findDevice(Gpu &gpu, int ordinal) {
  int major = 0, minor = 0;
  expect(cuda.getDevice(&gpu.device, ordinal), "be found");
  expect(cuda.deviceName(gpu.name, sizeof gpu.name, gpu.device), "tell its name");
  expect(cuda.deviceAttribute(&major, kCapabilityMajor, gpu.device), "tell its capability");
  expect(cuda.deviceAttribute(&minor, kCapabilityMinor, gpu.device), "tell its capability");
  if (10 * major + minor < neededCapability())
    fail(kResources, "the GPU %s has compute capability %d.%d; the program was compiled for %d.%d and later (--target nvidia:sm_%d)", gpu.name,
         major, minor, neededCapability() / 10, neededCapability() % 10, 10 * major + minor);
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
  for (int64_t i = 0; i < count; ++i) {
    const char *end = strchr(at, '\n');
    expect(cuda.functionOf(&gpu.kernels[i], module, copyText(at, size_t(end - at))), "find a kernel");
    at = end + 1;
  }
  size_t bytes = 0;
  expect(cuda.functionOf(&gpu.gate, module, "cinch_gate"), "find a kernel");
  expect(cuda.functionOf(&gpu.endStep, module, "cinch_end_step"), "find a kernel");
  expect(cuda.functionOf(&gpu.clear, module, "cinch_clear"), "find a kernel");
  expect(cuda.functionOf(&gpu.take, module, "cinch_take"), "find a kernel");
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

// Two workers may share a device; each has an allocation and kernels of its own there.
void openDevices() {
  openDriver();
  countDevices();
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
  }
  prepareMessages();
  if (run.options.kernelTimes || run.options.profile)
    prepareTimes();
}

void zero(Worker &worker, int64_t offset, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  if (gpu.behind)
    return launchIfOpen(gpu, gpu.clear, offset, 0, bytes);
  use(gpu);
  expect(cuda.setBytes(gpu.arena + uint64_t(offset), 0, size_t(bytes), gpu.stream), "clear memory");
}

void set(Worker &worker, int64_t offset, int64_t bytes, int64_t word) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  const uint64_t bits = uint64_t(word);
  const uint32_t low = uint32_t(bits), high = uint32_t(bits >> 32);
  const CUdeviceptr at = gpu.arena + uint64_t(offset);
  CUresult result;
  if (bits == (bits & 0xff) * 0x0101010101010101u)
    result = cuda.setBytes(at, uint8_t(bits), size_t(bytes), gpu.stream);
  else if (bits == (bits & 0xffff) * 0x0001000100010001u && bytes % 2 == 0)
    result = cuda.setHalves(at, uint16_t(bits), size_t(bytes / 2), gpu.stream);
  else if (low == high && bytes % 4 == 0)
    result = cuda.setWords(at, low, size_t(bytes / 4), gpu.stream);
  else if (bytes % 8 != 0)
    failInternal("%lld bytes cannot hold whole words", (long long)bytes);
  else if (!(result = cuda.setRows(at, 8, low, 1, size_t(bytes / 8), gpu.stream)))
    result = cuda.setRows(at + 4, 8, high, 1, size_t(bytes / 8), gpu.stream);
  expect(result, "set memory");
}

void copy(Worker &worker, int64_t to, int64_t from, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.copyOnDevice(gpu.arena + uint64_t(to), gpu.arena + uint64_t(from), size_t(bytes), gpu.stream), "copy memory");
}

void awaitCopied(Staging &staging) {
  if (staging.used)
    expect(cuda.waitForEvent(staging.copied), "finish a copy");
}

void markCopied(Gpu &gpu, Staging &staging) {
  expect(cuda.recordEvent(staging.copied, gpu.stream), "mark a copy");
  staging.used = true;
}

void send(Worker &worker, int64_t offset, const char *from, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.copyToDevice(gpu.arena + uint64_t(offset), from, size_t(bytes), gpu.stream), "take data");
}

void write(Worker &worker, int64_t offset, const char *from, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  while (bytes > 0) {
    int64_t part = bytes < kWriteBytes ? bytes : kWriteBytes;
    Staging &buffer = gpu.writes[gpu.writeTurn ^= 1];
    awaitCopied(buffer);
    memcpy(buffer.memory, from, size_t(part));
    send(worker, offset, buffer.memory, part);
    markCopied(gpu, buffer);
    offset += part, from += part, bytes -= part;
  }
}

char *stage(Worker &worker, int32_t entry, int64_t index) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  ++gpu.fillsOfStep;
  if (gpu.capturing)
    return stageInCapture(worker, entry, index);
  Staging &buffer = gpu.fills[gpu.fillTurn ^= 1];
  awaitCopied(buffer);
  return buffer.memory;
}

void endStaging(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  if (!gpu.capturing)
    markCopied(gpu, gpu.fills[gpu.fillTurn]);
}

void finish(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.waitForStream(gpu.stream), "finish its work");
  collectTimes(gpu);
}

void read(Worker &worker, int64_t offset, char *into, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  if (bytes > 0)
    expect(cuda.copyFromDevice(into, gpu.arena + uint64_t(offset), size_t(bytes), gpu.stream), "give data back");
  expect(cuda.waitForStream(gpu.stream), "finish its work");
}

void describe(Text &text) {
  if (workerCount == 1) {
    text.add("%s", gpus[0].name);
    return;
  }
  int used = 0;
  for (int64_t i = 0; i < workerCount; ++i) {
    bool known = false;
    for (int64_t j = 0; j < i; ++j)
      known |= gpus[j].device == gpus[i].device;
    used += !known;
  }
  text.add("%d GPU%s (the first: %s)", used, used == 1 ? "" : "s", gpus[0].name);
  if (used < workerCount)
    text.add(", which workers share");
}

void describeMemory() {
  char human[40], more[40];
  for (int64_t i = 0; i < workerCount; ++i) {
    Gpu &gpu = gpus[i];
    size_t left = 0, total = 0;
    use(gpu);
    expect(cuda.memoryInfo(&left, &total), "tell its memory");
    Text whose;
    if (programWorkers() > 1)
      whose.add("worker %lld: ", (long long)workers[i].number);
    say("%sdevice memory %lld bytes (%s) in one piece; %s of %s are taken by all now, %lld bytes of it before: other processes and the driver's context",
        whose.data, (long long)workers[i].bytes, humanBytes(human, workers[i].bytes), humanBytes(more, int64_t(total - left)), gpu.name,
        (long long)gpu.takenBefore);
  }
  say("%lld graphs of the steps, %lld bytes of the device; pinned memory of the host %lld bytes (%s); this process %lld bytes", (long long)graphCount,
      (long long)graphBytes, (long long)pinnedBytes, humanBytes(human, pinnedBytes), (long long)peakMemory());
}

const Device nvidia = {openDevices,   launchOnDevice, zero,     set,          copy,         write,      read,         finish,     stage,    send,
                       endStaging,    sendOnDevice,   receiveOnDevice, restartSteps, askForStep, gateOnDevice, settleStep, mayStopNow, describe, describeMemory};

} // namespace

void use(Gpu &gpu) {
  static thread_local CUcontext current = nullptr;
  if (current == gpu.context)
    return;
  expect(cuda.setContext(gpu.context), "use its context");
  current = gpu.context;
}

char *takePinned(int64_t bytes) {
  void *memory = nullptr;
  if (cuda.allocatePinned(&memory, size_t(bytes)) != 0)
    return nullptr;
  __atomic_fetch_add(&pinnedBytes, bytes, __ATOMIC_RELAXED);
  return static_cast<char *>(memory);
}

void launchOnDevice(Worker &worker, int32_t number, const int64_t *kernel, const int64_t *offsets) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  // In a step that the device counts, kernels ask it for the number; those behind the gate ask it whether that is closed.
  int64_t words[sizeof worker.context.words / 8];
  memcpy(words, worker.context.words, sizeof words);
  if (gpu.counting)
    words[kStep] = -1;
  words[kBehindGate] = gpu.behind;
  ++gpu.launchesOfStep;
  if (__builtin_expect(timing, 0))
    beginTime(gpu, number, worker.number);
  void *arguments[] = {&gpu.arena, const_cast<int64_t *>(offsets), words};
  expect(cuda.launchKernel(gpu.kernels[kernel[0]], unsigned(kernel[1]), 1, 1, unsigned(kernel[2]), 1, 1, 0, gpu.stream, arguments, nullptr),
         "start a kernel", number);
  if (__builtin_expect(timing, 0))
    endTime(gpu);
  if (__builtin_expect(cuda.blocking, 0))
    expect(cuda.waitForStream(gpu.stream), "do a kernel", number);
}

void launchControl(Gpu &gpu, CUfunction kernel, const int64_t (&words)[4], unsigned blocks, unsigned threads) {
  use(gpu);
  static const int64_t context[sizeof(cinch_ctx::words) / 8] = {};
  void *arguments[] = {&gpu.arena, const_cast<int64_t *>(words), const_cast<int64_t *>(context)};
  expect(cuda.launchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, gpu.stream, arguments, nullptr), "start a kernel of the gate");
}

void launchIfOpen(Gpu &gpu, CUfunction kernel, int64_t to, int64_t from, int64_t bytes) {
  constexpr int64_t kThreads = 128, kMostBlocks = 512;
  int64_t blocks = (bytes / 4 + kThreads - 1) / kThreads;
  blocks = blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks;
  launchControl(gpu, kernel, {to, from, bytes, blocks * kThreads}, unsigned(blocks), unsigned(kThreads));
}

} // namespace cinch::rt

extern "C" void cinch_open_device() { cinch::rt::device = &cinch::rt::nvidia; }
